/*
 * api_handles.c - blocks that move while real threads use them: by handles, with guards and locks, and by windows, through plain pointers. Each block
 * carries stamps that say whose it is and how often it was written; nothing is lost, mixed up, or seen half done, while the zone is compacted all the
 * time.
 *
 * ThreadSanitizer sees the guards: two owners of a block, or a mover beside a writer, are data races. A window's pages are copied through other
 * addresses, which it can't see; there each writer counts what it has written. api_handles [ROUNDS] makes so many rounds a thread.
 */
#include <string.h>

#include <strata/handle.h>
#include <strata/zone_compact.h>

#include "concurrency/concurrency.h"

enum { THREADS = 3, BLOCKS = 240, ZONE_SUPERPAGES = 4, DEFAULT_ROUNDS = 20000, SCENES = 4, PAGES = 256, WRITERS = 2 };

static unsigned rounds = DEFAULT_ROUNDS;
static struct strata_zone *zone;
static struct strata_handles *handles;
static uint32_t stop; /* atomic */
static uint64_t moved;

static void open_zone(enum strata_zone_backend backend) {
    const struct strata_zone_config config = {.name = "moves", .backend = backend, .bytes = ZONE_SUPERPAGES * STRATA_ZONE_SUPERPAGE_BYTES};
    EXPECT(strata_zone_create(&config, &zone) == STRATA_ZONE_OK);
}
static void close_zone(void) {
    const char *broken = strata_zone_check(zone);
    if (broken != NULL) fprintf(stderr, "%s\n", broken);
    EXPECT(broken == NULL);
    EXPECT(strata_zone_destroy(zone) == STRATA_ZONE_OK);
}

static void *compact(void *unused) {
    (void)unused;
    for (unsigned pass = 0; !__atomic_load_n(&stop, __ATOMIC_ACQUIRE); pass++) {
        struct strata_zone_compact_counts counts;
        EXPECT(strata_zone_compact(zone, pass % 2 != 0 ? 9 : 3, &counts) == STRATA_ZONE_OK);
        moved += counts.moved;
    }
    return NULL;
}

/* ------------------------------------------------------------------ handles */

/* At both ends of a block. */
struct stamp {
    uint64_t owner, writes;
};

static size_t frame_bytes;

static struct stamp *last_of(void *block, size_t bytes) { return (struct stamp *)(void *)((char *)block + bytes - sizeof(struct stamp)); }
static size_t bytes_of(uint64_t i) { return (1 + i % 3) * frame_bytes; }

struct mine {
    strata_handle handle;
    uint64_t writes;
};

static void write_one(struct mine *block, uint64_t owner, size_t bytes) {
    void *address;
    EXPECT(strata_handle_write(handles, block->handle, &address) == STRATA_HANDLE_OK);
    struct stamp *first = address, *last = last_of(address, bytes);
    EXPECT(first->owner == owner && first->writes == block->writes && last->owner == owner && last->writes == block->writes);
    block->writes++;
    first->writes = last->writes = block->writes;
    EXPECT(strata_handle_write_end(handles, block->handle) == STRATA_HANDLE_OK);
}

static void read_one(const struct mine *block, uint64_t owner, size_t bytes) {
    const void *address;
    EXPECT(strata_handle_read(handles, block->handle, &address) == STRATA_HANDLE_OK);
    const struct stamp *first = address, *last = last_of((void *)(uintptr_t)address, bytes);
    EXPECT(first->owner == owner && first->writes == block->writes && last->owner == owner && last->writes == block->writes);
    EXPECT(strata_handle_read_end(handles, block->handle) == STRATA_HANDLE_OK);
}

/* Through a guard that orders it with the mover, in a block that stays all the while. */
static void lock_one(struct mine *block, uint64_t owner, size_t bytes) {
    void *address, *again;
    EXPECT(strata_handle_lock(handles, block->handle, &address) == STRATA_HANDLE_OK);
    write_one(block, owner, bytes);
    EXPECT(strata_handle_write(handles, block->handle, &again) == STRATA_HANDLE_OK && again == address);
    EXPECT(strata_handle_write_end(handles, block->handle) == STRATA_HANDLE_OK);
    EXPECT(strata_handle_unlock(handles, block->handle) == STRATA_HANDLE_OK);
}

static void renew(struct mine *block, uint64_t owner, size_t bytes) {
    void *address;
    if (block->handle != 0) EXPECT(strata_handle_free(handles, block->handle) == STRATA_HANDLE_OK);
    EXPECT(strata_handle_alloc(handles, bytes, &block->handle) == STRATA_HANDLE_OK);
    EXPECT(strata_handle_write(handles, block->handle, &address) == STRATA_HANDLE_OK);
    block->writes = 0;
    *(struct stamp *)address = *last_of(address, bytes) = (struct stamp){.owner = owner};
    EXPECT(strata_handle_write_end(handles, block->handle) == STRATA_HANDLE_OK);
}

static void *use_handles(void *argument) {
    uint64_t number = (uint64_t)(uintptr_t)argument, random = random_seed(number);
    static struct mine all[THREADS][BLOCKS];
    struct mine *blocks = all[number];
    for (uint64_t i = 0; i < BLOCKS; i++) renew(&blocks[i], number * BLOCKS + i, bytes_of(i));
    for (unsigned round = 0; round < rounds; round++) {
        uint64_t i = next_random(&random) % BLOCKS, owner = number * BLOCKS + i;
        switch (next_random(&random) % 8) {
        case 0: renew(&blocks[i], owner, bytes_of(i)); break;
        case 1: lock_one(&blocks[i], owner, bytes_of(i)); break;
        case 2:
        case 3: write_one(&blocks[i], owner, bytes_of(i)); break;
        default: read_one(&blocks[i], owner, bytes_of(i)); break;
        }
    }
    for (uint64_t i = 0; i < BLOCKS; i++) {
        read_one(&blocks[i], number * BLOCKS + i, bytes_of(i));
        if (i % 2 == 0) EXPECT(strata_handle_free(handles, blocks[i].handle) == STRATA_HANDLE_OK);
        blocks[i].handle = 0;
    }
    return NULL;
}

static void with_handles(enum strata_zone_backend backend) {
    pthread_t threads[THREADS], compactor;
    open_zone(backend);
    frame_bytes = strata_zone_frame_bytes(zone);
    EXPECT(strata_handles_create(zone, 0, &handles) == STRATA_HANDLE_OK);
    const struct strata_zone_compactor_config config = {.order = 9, .unusable = 0.01, .interval_ns = 1000000};
    EXPECT(strata_zone_compactor_start(zone, &config) == STRATA_ZONE_OK);
    stop = 0;
    moved = 0;
    EXPECT(pthread_create(&compactor, NULL, compact, NULL) == 0);
    for (uintptr_t i = 0; i < THREADS; i++) EXPECT(pthread_create(&threads[i], NULL, use_handles, (void *)i) == 0);
    for (unsigned i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    __atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
    pthread_join(compactor, NULL);
    EXPECT(strata_zone_compactor_stop(zone) == STRATA_ZONE_OK);
    struct strata_handles_stats stats;
    EXPECT(strata_handles_stats_get(handles, &stats) == STRATA_HANDLE_OK);
    EXPECT(stats.handles == THREADS * BLOCKS / 2);
    printf("handles: %llu moves; refused to %llu held, %llu waited for, %llu read\n", (unsigned long long)stats.moves,
           (unsigned long long)stats.refused_held, (unsigned long long)stats.refused_waited, (unsigned long long)stats.refused_readers);
    EXPECT(strata_handles_check(handles) == NULL);
    EXPECT(strata_handles_destroy(handles) == STRATA_HANDLE_OK);
    close_zone();
}

/* ------------------------------------------------------------------ windows */

/* At the start of each page: a counter for each writer, and the number of the page. */
struct page {
    uint64_t number;
    uint64_t writes[WRITERS]; /* atomic */
};

static char *window;
static uint64_t written[WRITERS][PAGES];

/* ThreadSanitizer takes a new mapping for a write to all of it, and can't know that it shows the same contents. */
#define UNSEEN __attribute__((no_sanitize("thread"), noinline))

UNSEEN static struct page *page_at(uint64_t i) { return (struct page *)(void *)(window + i * frame_bytes); }

UNSEEN static void *write_pages(void *argument) {
    uintptr_t number = (uintptr_t)argument;
    uint64_t random = random_seed(number);
    for (unsigned round = 0; round < 5 * rounds; round++) {
        uint64_t i = next_random(&random) % PAGES;
        EXPECT(__atomic_load_n(&page_at(i)->writes[number], __ATOMIC_RELAXED) == written[number][i]);
        __atomic_fetch_add(&page_at(i)->writes[number], 1, __ATOMIC_RELAXED);
        written[number][i]++;
    }
    return NULL;
}

UNSEEN static void *read_pages(void *unused) {
    (void)unused;
    uint64_t last[PAGES] = {0};
    for (uint64_t i = 0; !__atomic_load_n(&stop, __ATOMIC_ACQUIRE); i = (i + 1) % PAGES) {
        EXPECT(__atomic_load_n(&page_at(i)->number, __ATOMIC_RELAXED) == i);
        uint64_t writes = __atomic_load_n(&page_at(i)->writes[0], __ATOMIC_RELAXED);
        EXPECT(writes >= last[i]);
        last[i] = writes;
    }
    return NULL;
}

/* Takes frames and frees some, so that there is always something to compact. */
static void *disturb(void *unused) {
    (void)unused;
    enum { HELD = 300 };
    static uint64_t held[HELD];
    uint64_t random = random_seed(77), count = 0;
    while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE)) {
        const struct strata_zone_request request = {.frames = 1, .mobility = STRATA_ZONE_MOVABLE, .flags = STRATA_ZONE_NO_EFFORT};
        if (count < HELD && strata_zone_alloc_as(zone, &request, &held[count]) == STRATA_ZONE_OK) count++;
        if (count == HELD || next_random(&random) % 3 == 0) {
            uint64_t i = next_random(&random) % count;
            EXPECT(strata_zone_free(zone, held[i], 1) == STRATA_ZONE_OK);
            held[i] = held[--count];
        }
    }
    while (count != 0) EXPECT(strata_zone_free(zone, held[--count], 1) == STRATA_ZONE_OK);
    return NULL;
}

UNSEEN static void with_windows(void) {
    pthread_t writers[WRITERS], compactor, reader, other;
    void *space;
    open_zone(STRATA_ZONE_MEMFD);
    EXPECT(strata_zone_window_open(zone, PAGES * frame_bytes, &space) == STRATA_ZONE_OK);
    window = space;
    memset(written, 0, sizeof written);
    /* All over the zone: the frames between them are freed. */
    uint64_t gap = strata_zone_frames(zone) / PAGES, frames[ZONE_SUPERPAGES * 512];
    for (uint64_t i = 0; i < gap * PAGES; i++) EXPECT(strata_zone_alloc(zone, 1, STRATA_ZONE_MOVABLE, &frames[i]) == STRATA_ZONE_OK);
    for (uint64_t i = 0; i < gap * PAGES; i++) {
        if (i % gap != 0) {
            EXPECT(strata_zone_free(zone, frames[i], 1) == STRATA_ZONE_OK);
            continue;
        }
        EXPECT(strata_zone_map(zone, frames[i], 1, window + i / gap * frame_bytes) == STRATA_ZONE_OK);
        page_at(i / gap)->number = i / gap;
    }
    stop = 0;
    moved = 0;
    EXPECT(pthread_create(&compactor, NULL, compact, NULL) == 0);
    EXPECT(pthread_create(&reader, NULL, read_pages, NULL) == 0);
    EXPECT(pthread_create(&other, NULL, disturb, NULL) == 0);
    for (uintptr_t i = 0; i < WRITERS; i++) EXPECT(pthread_create(&writers[i], NULL, write_pages, (void *)i) == 0);
    for (unsigned i = 0; i < WRITERS; i++) pthread_join(writers[i], NULL);
    __atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
    pthread_join(compactor, NULL);
    pthread_join(reader, NULL);
    pthread_join(other, NULL);
    for (uint64_t i = 0; i < PAGES; i++) {
        EXPECT(page_at(i)->number == i);
        for (unsigned j = 0; j < WRITERS; j++) EXPECT(page_at(i)->writes[j] == written[j][i]);
    }
    printf("windows: %llu moves%s\n", (unsigned long long)moved, moved == 0 ? " (is userfaultfd forbidden?)" : "");
    for (uint64_t i = 0; i < PAGES; i++) {
        uint64_t frame;
        EXPECT(strata_zone_frame_at(zone, window + i * frame_bytes, &frame) == STRATA_ZONE_OK);
        EXPECT(strata_zone_unmap(zone, window + i * frame_bytes, frame_bytes) == STRATA_ZONE_OK);
        EXPECT(strata_zone_free(zone, frame, 1) == STRATA_ZONE_OK);
    }
    EXPECT(strata_zone_window_close(zone, window) == STRATA_ZONE_OK);
    close_zone();
}

int main(int argc, char **argv) {
    if (argc > 1) rounds = (unsigned)strtoul(argv[1], NULL, 10);
    for (unsigned i = 0; i < SCENES; i++) {
        with_handles(STRATA_ZONE_MEMFD);
        with_handles(STRATA_ZONE_ANON);
        with_windows();
    }
    return 0;
}
