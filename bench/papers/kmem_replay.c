/*
 * kmem_replay.c - experiment: sections 5.2 and 5.3 of the kmem paper. Replays recorded processes (trace_recorder.c) over an allocator in layers, all
 * of them over one as in a kernel, and counts the visits of each layer.
 *
 *     kmem_replay strata|kmem CPUS FOLDER
 *
 * The processes run by the clock of their recording on CPUS virtual CPUs, each on another one after every SLICE_US; what a process holds when it ends
 * is freed then. Requests beyond a page are left out, as the paper's tables do. A pass ahead, without an allocator, finds the moment at which most
 * bytes are in use (heavy load), and the first one after it with no more than LOW_SHARE of them (low load); there the memory of the layers is read.
 * One thread, no locks.
 */
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "layers.h"
#include "load.h"
#include "trace.h"

#define PROCESSES_MAX 4096
#define SLICE_US 100000
/* Table 5 against table 6: what was in use of 12,964 - 1,262 KiB when it was 9,706 - 3,382. */
#define LOW_SHARE 0.54
#define EMPTY UINT64_MAX
/* The pass ahead keeps the bytes in use at every so many-th event. */
#define STEP_EVENTS 64

/* A block that a process holds, by its recorded address. */
struct held {
    uint64_t unit;
    void *block;
    uint32_t bytes;
};

struct process {
    const unsigned char *bytes, *at, *end;
    uint64_t now_us, last_unit;
    unsigned number;
    struct held *held; /* a hash table, open; room is a power of two */
    uint64_t held_count, held_room;
};

static struct process processes[PROCESSES_MAX], *queue[PROCESSES_MAX];
static unsigned processes_count, queue_count;
static unsigned cpus;
static const struct layers *layers; /* NULL: the pass ahead */
static uint64_t start_us, events, in_use_bytes, large_requests;

/* What the pass ahead finds. */
static uint64_t *curve, curve_length, curve_room, heavy_event, low_event, heavy_bytes, low_bytes;

static struct layers_memory heavy[LAYERS_SIZES], low[LAYERS_SIZES];

/* ------------------------------------------------------------------ reading */

static uint64_t get_number(struct process *process) {
    uint64_t number = 0;
    for (unsigned shift = 0;; shift += 7) {
        if (process->at == process->end || shift > 63) load_fail("a trace is broken");
        unsigned char byte = *process->at++;
        number |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) return number;
    }
}

static uint64_t get_unit(struct process *process) {
    uint64_t folded = get_number(process);
    process->last_unit += folded >> 1 ^ -(folded & 1);
    return process->last_unit;
}

static void open_trace(const char *folder, const char *name) {
    char path[1024];
    struct stat status;
    if (processes_count == PROCESSES_MAX) load_fail("too many processes");
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path) load_fail("the folder's name is too long");
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0 || fstat(file, &status)) load_fail("a trace can't be opened");
    if ((size_t)status.st_size < sizeof(struct trace_head)) load_fail("a trace is too short");
    const unsigned char *bytes = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, file, 0);
    close(file);
    if (bytes == MAP_FAILED || ((const struct trace_head *)(const void *)bytes)->magic != TRACE_MAGIC) load_fail("a file is no trace");
    processes[processes_count++] = (struct process){.bytes = bytes, .end = bytes + status.st_size};
}

static int by_start(const void *left, const void *right) {
    const struct process *a = left, *b = right;
    uint64_t a_us = ((const struct trace_head *)(const void *)a->bytes)->start_us,
             b_us = ((const struct trace_head *)(const void *)b->bytes)->start_us;
    return (a_us > b_us) - (a_us < b_us);
}

static void open_traces(const char *folder) {
    static const char suffix[] = ".trace";
    DIR *files = opendir(folder);
    if (!files) load_fail("the folder can't be read");
    for (struct dirent *file; (file = readdir(files));) {
        size_t length = strlen(file->d_name);
        if (length > strlen(suffix) && !strcmp(file->d_name + length - strlen(suffix), suffix)) open_trace(folder, file->d_name);
    }
    closedir(files);
    if (!processes_count) load_fail("the folder has no traces");
    qsort(processes, processes_count, sizeof processes[0], by_start);
    start_us = ((const struct trace_head *)(const void *)processes[0].bytes)->start_us;
}

/* ------------------------------------------------------------------ what a process holds */

static uint64_t place_of(const struct process *process, uint64_t unit) {
    uint64_t place = unit * UINT64_C(0x9e3779b97f4a7c15) >> 20 & (process->held_room - 1);
    while (process->held[place].unit != unit && process->held[place].unit != EMPTY) place = (place + 1) & (process->held_room - 1);
    return place;
}

static void make_room(struct process *process) {
    struct held *old = process->held;
    uint64_t old_room = process->held_room;
    process->held_room = old_room ? 2 * old_room : 256;
    process->held = malloc(process->held_room * sizeof *process->held);
    if (!process->held) load_fail("no memory for what is held");
    for (uint64_t i = 0; i < process->held_room; i++) process->held[i].unit = EMPTY;
    for (uint64_t i = 0; i < old_room; i++)
        if (old[i].unit != EMPTY) process->held[place_of(process, old[i].unit)] = old[i];
    free(old);
}

static unsigned cpu_of(const struct process *process) { return (unsigned)((process->number + (process->now_us - start_us) / SLICE_US) % cpus); }

static void note_event(void) {
    if (!layers && events % STEP_EVENTS == 0) {
        if (curve_length == curve_room) {
            curve_room = curve_room ? 2 * curve_room : 65536;
            curve = realloc(curve, curve_room * sizeof *curve);
            if (!curve) load_fail("no memory for the curve");
        }
        curve[curve_length++] = in_use_bytes;
    }
    if (layers && events == heavy_event) layers->memory(heavy);
    if (layers && events == low_event) layers->memory(low);
    events++;
}

static void replay_alloc(struct process *process, uint64_t unit, uint64_t bytes) {
    if (bytes > LAYERS_BYTES_MAX) {
        large_requests++;
        return;
    }
    note_event();
    if (2 * (process->held_count + 1) > process->held_room) make_room(process);
    struct held *held = &process->held[place_of(process, unit)];
    if (held->unit != EMPTY) load_fail("an address was given out twice");
    void *block = layers ? layers->alloc(cpu_of(process), bytes ? bytes : 1) : NULL;
    *held = (struct held){.unit = unit, .block = block, .bytes = (uint32_t)bytes};
    process->held_count++;
    in_use_bytes += bytes;
}

static void release(struct process *process, const struct held *held) {
    note_event();
    if (layers) layers->free(cpu_of(process), held->block);
    in_use_bytes -= held->bytes;
}

static void replay_free(struct process *process, uint64_t unit) {
    uint64_t place = process->held_room ? place_of(process, unit) : 0;
    if (!process->held_room || process->held[place].unit == EMPTY) return; /* a large one, or from before the recording */
    release(process, &process->held[place]);
    process->held_count--;
    /* Those behind it that would have come to this place close the gap. */
    for (uint64_t gap = place, next = place;;) {
        process->held[gap].unit = EMPTY;
        for (;;) {
            next = (next + 1) & (process->held_room - 1);
            if (process->held[next].unit == EMPTY) return;
            uint64_t home = place_of(process, process->held[next].unit);
            if (home == gap) break;
        }
        process->held[gap] = process->held[next];
        gap = next;
    }
}

static void replay_resize(struct process *process, uint64_t bytes) {
    uint64_t old = get_unit(process), fresh = get_unit(process);
    if (old == fresh) { /* where it stayed in the recording, another allocator would have to copy */
        replay_free(process, old);
        replay_alloc(process, fresh, bytes);
    } else {
        replay_alloc(process, fresh, bytes);
        replay_free(process, old);
    }
}

/* ------------------------------------------------------------------ the merge */

static void sift_down(unsigned at) {
    struct process *process = queue[at];
    for (unsigned child; (child = 2 * at + 1) < queue_count; at = child) {
        if (child + 1 < queue_count && queue[child + 1]->now_us < queue[child]->now_us) child++;
        if (process->now_us <= queue[child]->now_us) break;
        queue[at] = queue[child];
    }
    queue[at] = process;
}

/* Up to the process's next step in time. False: it has ended. */
static int run_process(struct process *process) {
    if (layers) layers->advance(process->now_us - start_us);
    while (process->at < process->end) {
        uint64_t number = get_number(process);
        switch ((enum trace_kind)(number & 3)) {
        case TRACE_ALLOC: replay_alloc(process, get_unit(process), number >> 2); break;
        case TRACE_FREE: replay_free(process, get_unit(process)); break;
        case TRACE_RESIZE: replay_resize(process, number >> 2); break;
        case TRACE_TIME: process->now_us += number >> 2; return 1;
        }
    }
    for (uint64_t i = 0; i < process->held_room; i++)
        if (process->held[i].unit != EMPTY) release(process, &process->held[i]);
    free(process->held);
    return 0;
}

static void run_all(void) {
    events = large_requests = 0;
    queue_count = processes_count;
    for (unsigned i = 0; i < processes_count; i++) {
        const struct trace_head *head = (const struct trace_head *)(const void *)processes[i].bytes;
        processes[i] = (struct process){.bytes = processes[i].bytes, .at = (const unsigned char *)(head + 1), .end = processes[i].end, .number = i};
        processes[i].now_us = head->start_us;
        queue[i] = &processes[i]; /* in the order of their starts: a heap already */
    }
    while (queue_count) {
        if (!run_process(queue[0])) queue[0] = queue[--queue_count];
        if (queue_count) sift_down(0);
    }
    if (in_use_bytes) load_fail("bytes are still in use");
}

static void find_loads(void) {
    uint64_t at = 0;
    for (uint64_t i = 0; i < curve_length; i++)
        if (curve[i] > curve[at]) at = i;
    heavy_event = at * STEP_EVENTS;
    heavy_bytes = curve[at];
    while (at < curve_length && (double)curve[at] > LOW_SHARE * (double)heavy_bytes) at++;
    if (at == curve_length) load_fail("the load never goes down");
    low_event = at * STEP_EVENTS;
    low_bytes = curve[at];
}

int main(int argc, char **argv) {
    /* Table 4, and section 4.4 for the global layer; fewer lists of large blocks, as theirs are shorter. */
    static const struct kmem_parameters parameters = {
        .target = {20, 20, 20, 20, 20, 16, 8, 4, 2},
        .global_target = {15, 15, 15, 15, 15, 12, 6, 3, 1},
        .frees_between_flushes = 2893, /* 321.4 frees/s on 8 CPUs in 72 s */
    };
    cpus = argc == 4 ? (unsigned)strtoul(argv[2], NULL, 10) : 0;
    int is_strata = argc == 4 && !strcmp(argv[1], "strata");
    if (!cpus || cpus > LAYERS_CPUS_MAX || (!is_strata && strcmp(argv[1], "kmem"))) load_fail("usage: kmem_replay strata|kmem CPUS FOLDER");
    open_traces(argv[3]);
    run_all();
    find_loads();
    layers = is_strata ? &strata_layers : &kmem_layers;
    kmem_layers_set(&parameters);
    layers->start(cpus);
    run_all();

    struct layers_counts counts[LAYERS_SIZES];
    layers->counts(counts);
    layers->check_empty();
    printf("{\"processes\": %u, \"events\": %" PRIu64 ", \"large_requests\": %" PRIu64 ", \"heavy_bytes\": %" PRIu64 ", \"low_bytes\": %" PRIu64
           ", \"frees_between_flushes\": %" PRIu64 ", \"sizes\": [",
           processes_count, events, large_requests, heavy_bytes, low_bytes, parameters.frees_between_flushes);
    for (unsigned size = 0; size < LAYERS_SIZES; size++) {
        printf("%s{", size ? ", " : "");
        layers_print_size(size, &parameters, &counts[size]);
        layers_print_memory("heavy", &heavy[size]);
        layers_print_memory("low", &low[size]);
        printf("}");
    }
    printf("]}\n");
    return fflush(stdout) ? 2 : 0;
}
