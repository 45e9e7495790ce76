/*
 * sim_outside.c - the world around a simulated process: clock, standard error, files, environment, memory pressure, and its death.
 *
 * Everything written is kept in fixed tables; a text that does not fit is cut and fatal for files, cut only for standard error, whose
 * overflow must not be reported on itself.
 */
#define _GNU_SOURCE 1
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "platform/sim/sim_internal.h"

#define OUTPUT_BYTES (256 * KIB)
#define FILES_MAX 16
#define FILE_BYTES (4 * MIB)
#define FILE_FIRST 1000 /* far from real file numbers, so that mixing them up is seen */
#define PATH_BYTES 256
#define VARIABLES_MAX 32
#define VARIABLE_BYTES 1024
#define CATCHES_MAX 8
#define CLOCK_START_NS UINT64_C(1000000000) /* not 0, so that "never" and "at the start" differ */

static struct {
    uint64_t now_ns;
    uint64_t populate_ns; /* what platform_populate takes */
    enum platform_pressure pressure;
    bool pressure_soon; /* platform_pressure_soon was called */
    bool pressure_open;
    char output[OUTPUT_BYTES];
    size_t output_bytes;
} outside;

static struct file {
    char path[PATH_BYTES]; /* "": free */
    char *text;
    size_t bytes;
    bool open;
} files[FILES_MAX];

static struct {
    char name[VARIABLE_BYTES]; /* "": free */
    char value[VARIABLE_BYTES];
} variables[VARIABLES_MAX];

/* Where platform_die goes: the calls of sim_dies under way, innermost last. */
static struct catch {
    jmp_buf place;
    uintptr_t frame;
    unsigned thread;
    unsigned body;
    unsigned depth;
}
catches[CATCHES_MAX];
static unsigned catch_count;

void sim_outside_reset(void) {
    outside.populate_ns = 0;
    outside.pressure_soon = false;
    outside.now_ns = CLOCK_START_NS;
    outside.pressure = PLATFORM_PRESSURE_NONE;
    outside.pressure_open = false;
    sim_output_clear();
    for (unsigned i = 0; i < FILES_MAX; i++) {
        files[i].path[0] = 0;
        files[i].bytes = 0;
        files[i].open = false;
    }
    for (unsigned i = 0; i < VARIABLES_MAX; i++) variables[i].name[0] = 0;
}

/* ------------------------------------------------------------------ clock */

uint64_t platform_now_ns(void) { return outside.now_ns; }
uint64_t platform_first_ns(void) { return outside.now_ns; }
uint64_t platform_precise_ns(void) { return outside.now_ns; }
void sim_clock_advance(uint64_t ns) { outside.now_ns += ns; }
void sim_set_populate_ns(uint64_t ns) { outside.populate_ns = ns; }
void sim_clock_populate(void) { outside.now_ns += outside.populate_ns; }

/* ------------------------------------------------------------------ standard error and death */

void platform_write_error(const char *text, size_t bytes) {
    sim_call_count(SIM_WRITE_ERROR);
    size_t room = OUTPUT_BYTES - 1 - outside.output_bytes;
    if (bytes > room) bytes = room;
    memcpy(outside.output + outside.output_bytes, text, bytes);
    outside.output_bytes += bytes;
    outside.output[outside.output_bytes] = 0;
}

const char *sim_output(void) { return outside.output; }

void sim_output_clear(void) {
    outside.output[0] = 0;
    outside.output_bytes = 0;
}

/*
 * A test framework may have jumped out of a sim_dies, whose catch is left behind then. It is gone for certain when a function now runs at
 * its place on the stack or above (stacks grow downwards).
 */
void sim_catches_drop(const void *frame) {
    while (catch_count != 0 && catches[catch_count - 1].body == SIM_BODIES_MAX && catches[catch_count - 1].frame <= (uintptr_t)frame) catch_count--;
    if (catch_count == 0) sim_cpu_explore_end();
}

bool sim_dies(void (*body)(void *), void *argument) {
    if (sim_thread_body() == SIM_BODIES_MAX) sim_catches_drop(__builtin_frame_address(0));
    if (catch_count == CATCHES_MAX) fatal("sim: sim_dies: at most %u within each other", CATCHES_MAX);
    struct catch *catch = &catches[catch_count++];
    catch->frame = (uintptr_t)__builtin_frame_address(0);
    catch->thread = sim_thread();
    catch->body = sim_thread_body();
    catch->depth = sim_cpu_depth();
    if (setjmp(catch->place) != 0) return true;
    body(argument);
    catch_count--;
    return false;
}

void sim_die_now(void) {
    struct catch *catch = &catches[--catch_count];
    sim_thread_unwind(catch->thread, catch->body);
    sim_cpu_unwind(catch->depth);
    longjmp(catch->place, 1);
}

void platform_die(void) {
    if (catch_count != 0 && catches[catch_count - 1].body == sim_thread_body()) sim_die_now();
    /* The jump must not cross stacks: the test's own stack, where the catch is, is switched to first. */
    if (catch_count != 0 && catches[catch_count - 1].body == SIM_BODIES_MAX) sim_thread_die();
    const char *text = outside.output;
    size_t left = outside.output_bytes;
    while (left != 0) {
        ssize_t written = write(STDERR_FILENO, text, left);
        if (written <= 0) break;
        text += written;
        left -= (size_t)written;
    }
    abort();
}

void platform_exit(int status) {
    (void)status;
    platform_die();
}

/* What is written to standard error is collected, not written to a file: nothing can close it, and it has no number. */
void platform_error_keep(void) {}
int platform_error_file(void) { return -1; }

/* ------------------------------------------------------------------ environment and files */

void sim_env_set(const char *name, const char *value) {
    if (strlen(name) >= VARIABLE_BYTES || (value != NULL && strlen(value) >= VARIABLE_BYTES)) fatal("sim: sim_env_set: %s is too long", name);
    unsigned slot = VARIABLES_MAX;
    for (unsigned i = VARIABLES_MAX; i-- != 0;)
        if (strcmp(variables[i].name, name) == 0) slot = i;
    for (unsigned i = 0; slot == VARIABLES_MAX && i < VARIABLES_MAX; i++)
        if (variables[i].name[0] == 0) slot = i;
    if (slot == VARIABLES_MAX) fatal("sim: sim_env_set: more than %u variables", VARIABLES_MAX);
    variables[slot].name[0] = 0;
    if (value == NULL) return;
    strcpy(variables[slot].name, name);
    strcpy(variables[slot].value, value);
}

const char *platform_getenv(const char *name) {
    for (unsigned i = 0; i < VARIABLES_MAX; i++)
        if (variables[i].name[0] != 0 && strcmp(variables[i].name, name) == 0) return variables[i].value;
    return NULL;
}

static struct file *find_file(const char *path) {
    for (unsigned i = 0; i < FILES_MAX; i++)
        if (strcmp(files[i].path, path) == 0) return &files[i];
    return NULL;
}

int platform_file_create(const char *path) {
    if (sim_call_fails(SIM_FILE_CREATE) || path[0] == 0) return -1;
    if (strlen(path) >= PATH_BYTES) fatal("sim: platform_file_create: the path %s is too long", path);
    struct file *file = find_file(path);
    if (file == NULL) file = find_file("");
    if (file == NULL) fatal("sim: platform_file_create: more than %u files", FILES_MAX);
    if (file->open) fatal("sim: platform_file_create: %s is open already", path);
    if (file->text == NULL) file->text = sim_table_map(FILE_BYTES);
    strcpy(file->path, path);
    file->bytes = 0;
    file->text[0] = 0;
    file->open = true;
    return FILE_FIRST + (int)(file - files);
}

static struct file *open_file(const char *function, int number) {
    if (number < FILE_FIRST || number >= FILE_FIRST + FILES_MAX || !files[number - FILE_FIRST].open)
        fatal("sim: %s(%d): not an open file", function, number);
    return &files[number - FILE_FIRST];
}

bool platform_file_write(int number, const char *bytes, size_t count) {
    struct file *file = open_file("platform_file_write", number);
    if (sim_call_fails(SIM_FILE_WRITE)) return false;
    if (count >= FILE_BYTES - file->bytes) fatal("sim: platform_file_write: %s is longer than %zu bytes", file->path, FILE_BYTES);
    memcpy(file->text + file->bytes, bytes, count);
    file->bytes += count;
    file->text[file->bytes] = 0;
    return true;
}

void platform_file_close(int number) { open_file("platform_file_close", number)->open = false; }

const char *sim_file_text(const char *path, size_t *bytes) {
    const struct file *file = path[0] == 0 ? NULL : find_file(path);
    if (file == NULL) return NULL;
    if (bytes != NULL) *bytes = file->bytes;
    return file->text;
}

/* The program's own C library serves the program itself. */
bool platform_libc_lead(const struct platform_name *names, unsigned count) {
    (void)names, (void)count;
    return false;
}

/* ------------------------------------------------------------------ memory pressure */

void sim_pressure_raise(enum platform_pressure pressure) { outside.pressure = pressure; }
bool sim_pressure_pending(void) { return outside.pressure != PLATFORM_PRESSURE_NONE; }

bool platform_pressure_open(void) {
    if (sim_call_fails(SIM_PRESSURE_OPEN) || sim_config.no_pressure) return false;
    outside.pressure_open = true;
    return true;
}

void platform_pressure_soon(void) { outside.pressure_soon = true; } /* all is watched from the start */
bool sim_pressure_is_soon(void) { return outside.pressure_soon; }

void platform_pressure_close(void) { outside.pressure_open = false; }

enum platform_pressure platform_pressure_wait(struct platform_event *event, uint64_t timeout_ns, bool *woken) {
    sim_call_count(SIM_PRESSURE_WAIT);
    *woken = sim_thread_wait(event, timeout_ns, outside.pressure_open);
    if (*woken || !outside.pressure_open) return PLATFORM_PRESSURE_NONE;
    enum platform_pressure pressure = outside.pressure;
    outside.pressure = PLATFORM_PRESSURE_NONE;
    return pressure;
}
