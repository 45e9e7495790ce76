/*
 * sim_fault.c - faults that the process serves itself, by script: the test says who has met which page (sim_fault_raise), and the reader is told.
 *
 * Nothing stops real code from touching such a page. What is registered and protected is kept page by page, so that a test can ask, and
 * breaches of the contract are fatal. One file at a time, and one more for who moves pages.
 */
#include <string.h>

#include "platform/sim/sim_internal.h"

#define QUEUE_MAX 64
#define PAGE_MISSING 1
#define PAGE_PROTECTABLE 2
#define PAGE_PROTECTED 4
#define PAGE_NO_READ 8
#define PAGE_NO_WRITE 16
#define PAGE_TARGET 32 /* registered by who moves */

#define NOBODY UINT32_MAX

enum { SERVER = 1, MOVER = 2 };

static struct {
    uint8_t *pages; /* PAGE_* of each page of the arena */
    uint64_t pages_bytes;
    uint64_t end; /* pages from here on have never been marked */
    struct platform_fault queue[QUEUE_MAX];
    unsigned queued, wakes;
    bool used;         /* since the last reset */
    unsigned features; /* 0: none to be had */
    bool open, mover_open;
    bool gone;       /* the program has closed the server's file */
    unsigned keeper; /* the thread that has it all the same; NOBODY: none */
    bool (*serve)(char *page, bool write);
} script;

void sim_fault_reset(void) {
    uint64_t bytes = sim_config.arena_bytes / (4 * KIB);
    if (script.pages_bytes < bytes) {
        script.pages = sim_table_map(bytes);
        script.pages_bytes = bytes;
    } else if (script.used) {
        memset(script.pages, 0, script.end);
    }
    script.used = false;
    script.end = 0;
    script.queued = script.wakes = script.features = 0;
    script.open = script.mover_open = script.gone = false;
    script.keeper = NOBODY;
}

static uint64_t page_number(const void *address) {
    return (uint64_t)((const char *)address - (const char *)sim_arena_base()) / sim_config.page_bytes;
}

/* ------------------------------------------------------------------ the test's side */

void sim_faults_offer(unsigned features) { script.features = features; }

void sim_fault_raise(void *address, bool write, uint32_t thread) {
    char *page = (char *)align_down((uintptr_t)address, sim_config.page_bytes);
    if (script.queued == QUEUE_MAX) fatal("sim: sim_fault_raise: more than %d faults that nobody reads", QUEUE_MAX);
    bool protect = (script.pages[page_number(page)] & PAGE_PROTECTED) != 0;
    script.queue[script.queued++] = (struct platform_fault){.page = page, .thread = thread, .write = write, .protect = protect && write};
}

bool sim_fault_protected(const void *address) { return script.open && (script.pages[page_number(address)] & PAGE_PROTECTED) != 0; }
bool sim_fault_registered(const void *address) {
    return script.open && (script.pages[page_number(address)] & (PAGE_MISSING | PAGE_PROTECTABLE)) != 0;
}
uint64_t sim_fault_registrations(void) {
    uint64_t pages = 0;
    for (uint64_t i = 0; i < script.end; i++) pages += (script.pages[i] & (PAGE_MISSING | PAGE_PROTECTABLE | PAGE_TARGET)) != 0;
    return pages;
}
unsigned sim_fault_wakes(void) { return script.wakes; }

void sim_fault_forget(void *address, size_t bytes) {
    for (size_t i = 0; script.used && i < bytes / sim_config.page_bytes; i++)
        script.pages[page_number(address) + i] &= (uint8_t)~(PAGE_MISSING | PAGE_PROTECTABLE | PAGE_PROTECTED | PAGE_TARGET);
}

void sim_faults_close(void) {
    script.gone = true;
    if (script.keeper == NOBODY) memset(script.pages, 0, script.end);
}

/* ------------------------------------------------------------------ platform.h */

static bool is_gone(const struct platform_faults *faults) {
    return faults->file < 0 || (faults->file == SERVER && script.gone && sim_thread() != script.keeper);
}

enum platform_faults_status platform_faults_open(struct platform_faults *faults, unsigned needed) {
    *faults = (struct platform_faults)PLATFORM_FAULTS_CLOSED;
    if (sim_call_fails(SIM_FAULTS_OPEN)) return PLATFORM_FAULTS_FORBIDDEN;
    if (script.features == 0 || (needed & ~script.features) != 0) return PLATFORM_FAULTS_UNSUPPORTED;
    bool *open = (needed & PLATFORM_FAULTS_MOVE) != 0 ? &script.mover_open : &script.open;
    if (*open) fatal("sim: platform_faults_open: one file at a time");
    *open = script.used = true;
    if (open == &script.open) script.gone = false, script.keeper = NOBODY;
    faults->file = open == &script.mover_open ? MOVER : SERVER;
    faults->features = script.features;
    return PLATFORM_FAULTS_OK;
}

bool platform_faults_keep(const struct platform_faults *faults) {
    if (sim_call_fails(SIM_FAULTS_KEEP) || is_gone(faults)) return false;
    script.keeper = sim_thread();
    return true;
}

bool platform_faults_is_there(const struct platform_faults *faults) {
    return faults->file == SERVER ? script.open : faults->file == MOVER && script.mover_open;
}

void platform_faults_close(struct platform_faults *faults) {
    if (faults->file == SERVER) {
        memset(script.pages, 0, script.end);
        script.open = false;
    } else if (faults->file == MOVER) {
        for (uint64_t i = 0; i < script.end; i++) script.pages[i] &= (uint8_t)~PAGE_TARGET;
        script.mover_open = false;
    }
    faults->file = -1;
}

/* The state of each page of a range; fatal unless all of it has one of `needed` (0: none at all). */
static uint8_t *pages_of(const char *function, const struct platform_faults *faults, const void *address, size_t bytes, unsigned needed) {
    if (bytes == 0 || (((uintptr_t)address | bytes) & (sim_config.page_bytes - 1)) != 0)
        fatal("sim: %s(%p, %zu): not whole pages of %zu bytes", function, address, bytes, sim_config.page_bytes);
    if (is_gone(faults)) return NULL;
    uint8_t *pages = &script.pages[page_number(address)];
    for (size_t i = 0; needed != 0 && i < bytes / sim_config.page_bytes; i++)
        if ((pages[i] & needed) == 0) fatal("sim: %s(%p, %zu): not all of it is registered for that", function, address, bytes);
    return pages;
}

static enum platform_faults_status mark(uint8_t *pages, size_t bytes, unsigned clear, unsigned set) {
    if (pages == NULL) return PLATFORM_FAULTS_GONE;
    script.end = max_u64(script.end, (uint64_t)(pages - script.pages) + bytes / sim_config.page_bytes);
    for (size_t i = 0; i < bytes / sim_config.page_bytes; i++) pages[i] = (uint8_t)((pages[i] & ~clear) | set);
    return PLATFORM_FAULTS_OK;
}

enum platform_faults_status platform_faults_register(struct platform_faults *faults, void *address, size_t bytes, bool missing, bool protect) {
    uint8_t *pages = pages_of("platform_faults_register", faults, address, bytes, 0);
    unsigned kinds = faults->file == MOVER ? PAGE_TARGET : (missing ? PAGE_MISSING : 0u) | (protect ? PAGE_PROTECTABLE : 0u);
    if (sim_call_fails(SIM_FAULTS_REGISTER)) { /* half way */
        (void)mark(pages, sim_config.page_bytes, 0, kinds);
        return PLATFORM_FAULTS_NO_MEMORY;
    }
    for (size_t i = 0; i < bytes / sim_config.page_bytes; i++)
        if (pages != NULL && (pages[i] & (faults->file == MOVER ? PAGE_MISSING | PAGE_PROTECTABLE : PAGE_TARGET)) != 0) return PLATFORM_FAULTS_TAKEN;
    return mark(pages, bytes, 0, kinds);
}

enum platform_faults_status platform_faults_unregister(struct platform_faults *faults, void *address, size_t bytes, bool protect) {
    for (size_t i = 0; !protect && i < bytes / sim_config.page_bytes; i++)
        if ((script.pages[page_number(address) + i] & PAGE_PROTECTABLE) != 0)
            fatal("sim: platform_faults_unregister(%p, %zu): it was registered for protection", address, bytes);
    script.wakes++;
    sim_shared_wake(address, bytes);
    if (faults->file == MOVER) return mark(pages_of("platform_faults_unregister", faults, address, bytes, PAGE_TARGET), bytes, PAGE_TARGET, 0);
    return mark(pages_of("platform_faults_unregister", faults, address, bytes, 0), bytes, PAGE_MISSING | PAGE_PROTECTABLE | PAGE_PROTECTED, 0);
}

enum platform_faults_status platform_faults_protect(struct platform_faults *faults, void *address, size_t bytes, bool on) {
    uint8_t *pages = pages_of("platform_faults_protect", faults, address, bytes, PAGE_PROTECTABLE);
    if (on && sim_call_fails(SIM_FAULTS_PROTECT)) return PLATFORM_FAULTS_NO_MEMORY;
    if (!on) script.wakes++, sim_shared_wake(address, bytes);
    return mark(pages, bytes, on ? 0 : PAGE_PROTECTED, on ? PAGE_PROTECTED : 0);
}

/* NULL as source: zeros. */
static enum platform_faults_status give(struct platform_faults *faults, char *to, const char *from, size_t bytes, bool protect, size_t *done) {
    uint8_t *pages = pages_of("platform_faults_copy", faults, to, bytes, PAGE_MISSING);
    enum platform_faults_status status = pages == NULL ? PLATFORM_FAULTS_GONE : PLATFORM_FAULTS_OK;
    if (status == PLATFORM_FAULTS_OK && sim_call_fails(SIM_FAULTS_COPY)) status = PLATFORM_FAULTS_NO_MEMORY;
    size_t given = 0;
    for (; status == PLATFORM_FAULTS_OK && given < bytes; given += sim_config.page_bytes) {
        if (sim_populated_pages(to + given, sim_config.page_bytes) != 0) {
            status = PLATFORM_FAULTS_TAKEN;
            break;
        }
        if (from == NULL)
            sim_touch(to + given, sim_config.page_bytes);
        else
            memcpy(to + given, from + given, sim_config.page_bytes);
        if (protect) pages[given / sim_config.page_bytes] |= PAGE_PROTECTED;
    }
    script.wakes++;
    if (done != NULL) *done = given;
    return status;
}

enum platform_faults_status platform_faults_copy(struct platform_faults *faults, void *to, const void *from, size_t bytes, bool protect,
                                                 size_t *done) {
    return give(faults, to, from, bytes, protect, done);
}
/* Of a range that nobody has registered, as of one whose watch has just ended, it is refused. */
enum platform_faults_status platform_faults_zero(struct platform_faults *faults, void *to, size_t bytes, size_t *done) {
    if ((script.pages[page_number(to)] & PAGE_MISSING) == 0) return PLATFORM_FAULTS_BAD_RANGE;
    return give(faults, to, NULL, bytes, false, done);
}

static bool is_one_mapping(const void *address, size_t bytes) {
    return sim_vma_is_one(page_number(address), page_number((const char *)address + bytes));
}

enum platform_faults_status platform_faults_move(struct platform_faults *faults, void *to, void *from, size_t bytes, size_t *done) {
    enum platform_faults_status status = PLATFORM_FAULTS_OK;
    size_t moved = 0;
    if (pages_of("platform_faults_move", faults, to, bytes, faults->file == MOVER ? PAGE_TARGET : PAGE_MISSING) == NULL)
        status = PLATFORM_FAULTS_GONE;
    else if (!is_one_mapping(from, bytes) || !is_one_mapping(to, bytes))
        status = PLATFORM_FAULTS_BAD_RANGE;
    for (; status == PLATFORM_FAULTS_OK && moved < bytes; moved += sim_config.page_bytes) {
        if (sim_populated_pages((char *)to + moved, sim_config.page_bytes) != 0 || sim_call_fails(SIM_FAULTS_MOVE)) {
            status = PLATFORM_FAULTS_TAKEN;
            break;
        }
        sim_transfer("platform_faults_move", (char *)from + moved, (char *)to + moved, sim_config.page_bytes);
        script.pages[page_number((char *)from + moved)] &= (uint8_t)~PAGE_PROTECTED; /* what is absent has no protection */
    }
    if (done != NULL) *done = moved;
    return status;
}

void platform_faults_wake(struct platform_faults *faults, void *address, size_t bytes) {
    (void)pages_of("platform_faults_wake", faults, address, bytes, 0);
    sim_shared_wake(address, bytes);
    script.wakes++;
}

void platform_faults_wait(struct platform_faults *faults, uint64_t timeout_ns) {
    struct platform_event nobody = {0};
    if (!is_gone(faults) && script.queued == 0) (void)sim_thread_wait(&nobody, timeout_ns, false);
}

enum platform_faults_status platform_faults_read(struct platform_faults *faults, struct platform_fault *events, unsigned count, uint64_t timeout_ns,
                                                 unsigned *got) {
    *got = 0;
    if (timeout_ns != 0) platform_faults_wait(faults, timeout_ns);
    if (is_gone(faults)) return PLATFORM_FAULTS_GONE;
    while (*got < count && *got < script.queued) {
        events[*got] = script.queue[*got];
        ++*got;
    }
    script.queued -= *got;
    memmove(script.queue, script.queue + *got, script.queued * sizeof script.queue[0]);
    return PLATFORM_FAULTS_OK;
}

bool platform_protect(void *address, size_t bytes, enum platform_access access) {
    const struct platform_faults any = {.file = MOVER};
    uint8_t *pages = pages_of("platform_protect", &any, address, bytes, 0);
    if (access != PLATFORM_ACCESS_ALL && sim_call_fails(SIM_PROTECT)) return false;
    script.used = true;
    unsigned lacks = access == PLATFORM_ACCESS_ALL ? 0 : access == PLATFORM_ACCESS_READ ? PAGE_NO_WRITE : PAGE_NO_READ | PAGE_NO_WRITE;
    return mark(pages, bytes, PAGE_NO_READ | PAGE_NO_WRITE, lacks) == PLATFORM_FAULTS_OK;
}

bool platform_on_access_fault(bool (*serve)(char *page, bool write)) {
    if (sim_call_fails(SIM_ON_ACCESS_FAULT)) return false;
    script.serve = serve;
    return true;
}
void platform_access_fork_prepare(void) {}
void platform_access_fork_child(void) {}

enum platform_access sim_access(const void *address) {
    uint8_t page = script.pages[page_number(address)];
    return (page & PAGE_NO_READ) != 0 ? PLATFORM_ACCESS_NONE : (page & PAGE_NO_WRITE) != 0 ? PLATFORM_ACCESS_READ : PLATFORM_ACCESS_ALL;
}

bool sim_access_fault(void *address, bool write) { return script.serve((char *)align_down((uintptr_t)address, sim_config.page_bytes), write); }

void platform_hear_access_faults(void) {}
