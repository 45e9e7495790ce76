/*
 * sim_store.c - the files behind paged blocks: each has what was written, and what is on the disk, which are the same after platform_store_sync only.
 *
 * A read or write may fail (EIO), the disk may be full (ENOSPC), a file may be cut off; who reads or writes lets others run meanwhile. A write that
 * fails has written the first half of its pages.
 */
#include <errno.h>
#include <string.h>

#include "platform/sim/sim_internal.h"

#define STORES_MAX 4
#define STORE_BYTES_MAX (64 * MIB)
#define STORE_FIRST 2000 /* far from real file numbers */
#define PATH_BYTES 64
#define JOBS_MAX 16

static struct stored {
    char path[PATH_BYTES]; /* "": free */
    uint8_t *written, *durable;
    uint64_t bytes;
} stores[STORES_MAX];
static uint64_t room_bytes;

static void forget_jobs(void);

void sim_store_reset(void) {
    forget_jobs();
    for (unsigned i = 0; i < STORES_MAX; i++) stores[i].path[0] = 0;
    room_bytes = UINT64_MAX;
}

static struct stored *find(const char *path) {
    for (unsigned i = 0; i < STORES_MAX; i++)
        if (strcmp(stores[i].path, path) == 0) return &stores[i];
    return NULL;
}

/* ------------------------------------------------------------------ the test's side */

const uint8_t *sim_store_text(const char *path, bool durable, uint64_t *bytes) {
    const struct stored *stored = path[0] == 0 ? NULL : find(path);
    if (stored == NULL) return NULL;
    if (bytes != NULL) *bytes = stored->bytes;
    return durable ? stored->durable : stored->written;
}

void sim_store_set_room(uint64_t bytes) { room_bytes = bytes; }

void sim_store_cut(const char *path, uint64_t bytes) {
    struct stored *stored = find(path);
    if (stored == NULL || bytes > stored->bytes) fatal("sim: sim_store_cut: %s has no %llu bytes", path, (unsigned long long)bytes);
    memset(stored->written + bytes, 0, stored->bytes - bytes);
    memset(stored->durable + bytes, 0, stored->bytes - bytes);
    stored->bytes = bytes;
}

void sim_store_lose_power(const char *path, uint64_t seed) {
    struct stored *stored = find(path);
    if (stored == NULL) fatal("sim: sim_store_lose_power: there is no %s", path);
    for (uint64_t at = 0; at < stored->bytes; at += sim_config.page_bytes, seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u) {
        size_t bytes = min_u64(sim_config.page_bytes, stored->bytes - at);
        bool arrived = (seed >> 40 & 1) != 0;
        memcpy((arrived ? stored->durable : stored->written) + at, (arrived ? stored->written : stored->durable) + at, bytes);
    }
}

/* ------------------------------------------------------------------ platform.h */

static struct stored *stored_of(const char *function, const struct platform_store *store) {
    unsigned number = (unsigned)(store->file - STORE_FIRST);
    if (number >= STORES_MAX || stores[number].path[0] == 0) fatal("sim: %s(%d): not an open file", function, store->file);
    return &stores[number];
}

int platform_store_open(struct platform_store *store, const char *path, int file, uint64_t bytes) {
    if (path == NULL) fatal("sim: platform_store_open: file %d: only paths are known here", file);
    if (strlen(path) >= PATH_BYTES || path[0] == 0 || bytes > STORE_BYTES_MAX) fatal("sim: platform_store_open: %s: too much", path);
    if (sim_call_fails(SIM_STORE_OPEN)) return EIO;
    struct stored *stored = find(path);
    if (stored == NULL) {
        stored = find("");
        if (stored == NULL) fatal("sim: platform_store_open: more than %u files", STORES_MAX);
        if (stored->written == NULL) stored->written = sim_table_map(STORE_BYTES_MAX);
        if (stored->durable == NULL) stored->durable = sim_table_map(STORE_BYTES_MAX);
        memset(stored->written, 0, stored->bytes);
        memset(stored->durable, 0, stored->bytes);
        stored->bytes = 0;
        strcpy(stored->path, path);
    }
    stored->bytes = max_u64(stored->bytes, bytes);
    *store = (struct platform_store){.file = STORE_FIRST + (int)(stored - stores)};
    return 0;
}

void platform_store_pass(struct platform_store *store) { store->passing = true; }

int platform_store_read(struct platform_store *store, void *to, size_t bytes, uint64_t offset) {
    const struct stored *stored = stored_of("platform_store_read", store);
    sim_cpu_yield();
    if (sim_call_fails(SIM_STORE_READ)) return EIO;
    size_t there = offset < stored->bytes ? min_u64(bytes, stored->bytes - offset) : 0;
    memcpy(to, stored->written + offset, there);
    sim_cpu_yield();
    return there == bytes ? 0 : PLATFORM_STORE_NO_DATA;
}

int platform_store_write(struct platform_store *store, const void *from, size_t bytes, uint64_t offset) {
    struct stored *stored = stored_of("platform_store_write", store);
    bool fails = sim_call_fails(SIM_STORE_WRITE);
    size_t room = offset < room_bytes ? min_u64(bytes, room_bytes - offset) : 0, there = fails ? align_down(bytes / 2, sim_config.page_bytes) : room;
    if (offset + there > STORE_BYTES_MAX) fatal("sim: platform_store_write: %s: too long", stored->path);
    sim_cpu_yield();
    memcpy(stored->written + offset, from, there);
    stored->bytes = max_u64(stored->bytes, there != 0 ? offset + there : 0);
    sim_cpu_yield();
    return fails ? EIO : there == bytes ? 0 : ENOSPC;
}

int platform_store_sync(struct platform_store *store) {
    struct stored *stored = stored_of("platform_store_sync", store);
    sim_cpu_yield();
    if (sim_call_fails(SIM_STORE_SYNC)) return EIO;
    memcpy(stored->durable, stored->written, stored->bytes);
    return 0;
}

void platform_store_close(struct platform_store *store) { store->file = -1; }

bool platform_store_is_ours(const struct platform_store *store) { return store->file >= STORE_FIRST; }

/* ------------------------------------------------------------------ jobs */

static struct platform_store_ring {
    struct platform_store_job *jobs[JOBS_MAX];
    unsigned depth, count; /* depth 0: not open */
} ring;

static void forget_jobs(void) { ring.depth = ring.count = 0; }

struct platform_store_ring *platform_store_ring_open(unsigned depth) {
    if (sim_call_fails(SIM_STORE_RING)) return NULL;
    if (ring.depth != 0 || depth > JOBS_MAX) fatal("sim: platform_store_ring_open: one at a time, of at most %u jobs", JOBS_MAX);
    ring.depth = depth;
    ring.count = 0;
    return &ring;
}

void platform_store_ring_close(struct platform_store_ring *closed, bool forked) {
    if (!forked && closed->count != 0) fatal("sim: platform_store_ring_close: %u jobs are under way", closed->count);
    closed->depth = 0;
}

bool platform_store_begin(struct platform_store_ring *used, struct platform_store_job *job) {
    if (used->count == used->depth || sim_call_fails(SIM_STORE_BEGIN)) return false;
    used->jobs[used->count++] = job;
    sim_cpu_yield();
    return true;
}

/* They end in any order, and do their work then. */
struct platform_store_job *platform_store_end(struct platform_store_ring *used, bool wait) {
    unsigned choice = used->count == 0 ? 0 : sim_cpu_choose(used->count + !wait);
    if (choice == used->count) return NULL;
    struct platform_store_job *job = used->jobs[choice];
    used->jobs[choice] = used->jobs[--used->count];
    job->error = job->write ? platform_store_write(job->store, job->memory, job->bytes, job->offset)
                            : platform_store_read(job->store, job->memory, job->bytes, job->offset);
    return job;
}
