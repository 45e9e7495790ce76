/*
 * api_zone_reclaim.c - a cache of "disk blocks" in a zone that is a quarter as large: threads read and write them while the zone's thread, and the
 * threads' own requests, have frames back. Every block that is read has what was last written, whether it stayed, was dropped clean or written first.
 *
 * On shared memory with a file number (used or not is told by page tables), on private memory, and on huge pages where there are (the program tells).
 * For some turns of each thread a superpage is asked for, which area reclaim must find. Before, that a page which is read alone stays alone.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "pages_support.h"
#include "strata/zone_reclaim.h"
#include "stress/huge_pool.h"

enum {
    SUPERPAGES = 8,
    ZONE_FRAMES = SUPERPAGES * 512,
    DISK_BLOCKS = 4 * ZONE_FRAMES,
    THREADS = 2,
    TURNS = 12000,
    SUPERPAGE_TURNS = 2000,
    GONE_MEANWHILE = 2000
};

/* A block of the disk: what it holds there, and the frame that caches it; whoever looks has its lock. */
static struct disk_block {
    pthread_mutex_t lock;
    uint64_t on_disk, written; /* numbers of contents */
    uint64_t frame;            /* plus 1; 0: not cached */
    unsigned gone_before;      /* how many blocks had gone when it was written to */
} disk[DISK_BLOCKS];
static struct strata_zone *zone;
static unsigned owner;
static atomic_uint misses, drops, writes, superpages;

static uint64_t word_of(uint64_t block, uint64_t number) { return (block << 32 | number) * UINT64_C(0x9e3779b97f4a7c15); }

static void fill_frame(uint64_t frame, uint64_t block, uint64_t number) {
    uint64_t *words = strata_zone_address(zone, frame);
    for (size_t i = 0; i < page_bytes / 8; i += 64) words[i] = word_of(block, number);
}

static enum strata_zone_answer drop(struct strata_zone *its_zone, uint64_t frame, uint64_t frames, uint64_t token, bool dirty, void *context) {
    struct disk_block *block = &disk[token];
    (void)its_zone, (void)context;
    EXPECT(frames == 1 && token < DISK_BLOCKS);
    if (pthread_mutex_trylock(&block->lock) != 0) return STRATA_ZONE_LATER;
    if (block->frame != frame + 1) { /* not linked yet */
        pthread_mutex_unlock(&block->lock);
        return STRATA_ZONE_LATER;
    }
    bool write = block->written != block->on_disk;
    /* What was written to is not said to be clean, but by a look before that (strata/zone.h): who looked may have had to wait for a CPU since. */
    EXPECT(!write || dirty || atomic_load(&writes) + atomic_load(&drops) - block->gone_before < GONE_MEANWHILE);
    EXPECT(*(uint64_t *)strata_zone_address(zone, frame) == word_of(token, block->written));
    block->on_disk = block->written;
    block->frame = 0;
    atomic_fetch_add(write ? &writes : &drops, 1);
    pthread_mutex_unlock(&block->lock);
    return write ? STRATA_ZONE_WROTE : STRATA_ZONE_YES;
}

/* Half of all uses are of a sixteenth of the blocks. */
static unsigned pick(uint64_t *random) { return (unsigned)(next_random(random) % (next_random(random) % 2 == 0 ? DISK_BLOCKS / 16 : DISK_BLOCKS)); }

static void use(unsigned number, bool write) {
    struct disk_block *block = &disk[number];
    uint64_t frame;
    pthread_mutex_lock(&block->lock);
    if (block->frame == 0) {
        const struct strata_zone_request request = {.frames = 1, .mobility = STRATA_ZONE_RECLAIMABLE, .owner = owner, .token = number};
        atomic_fetch_add(&misses, 1);
        if (strata_zone_alloc_as(zone, &request, &frame) != STRATA_ZONE_OK) { /* all is in use by others */
            pthread_mutex_unlock(&block->lock);
            return;
        }
        block->frame = frame + 1;
        block->written = block->on_disk;
        fill_frame(frame, number, block->on_disk);
    }
    frame = block->frame - 1;
    EXPECT(*(uint64_t *)strata_zone_address(zone, frame) == word_of(number, block->written));
    if (write) {
        fill_frame(frame, number, ++block->written);
        block->gone_before = atomic_load(&writes) + atomic_load(&drops);
    }
    strata_zone_touch(zone, frame, write);
    pthread_mutex_unlock(&block->lock);
}

static void *use_blocks(void *argument) {
    uint64_t random = random_seed((unsigned)(uintptr_t)argument), frame;
    for (unsigned turn = 1; turn <= TURNS; turn++) {
        if (turn % SUPERPAGE_TURNS != 0) {
            use(pick(&random), next_random(&random) % 8 == 0);
            continue;
        }
        if (strata_zone_alloc(zone, 512, STRATA_ZONE_UNMOVABLE, &frame) != STRATA_ZONE_OK) continue;
        memset(strata_zone_address(zone, frame), 0x5a, 512 * page_bytes);
        atomic_fetch_add(&superpages, 1);
        EXPECT(strata_zone_free(zone, frame, 512) == STRATA_ZONE_OK);
    }
    return NULL;
}

static void run(enum strata_zone_backend backend, enum strata_zone_reclaim_policy policy, unsigned effort) {
    const struct strata_zone_config config = {
        .name = "cache", .backend = backend, .bytes = (uint64_t)SUPERPAGES * STRATA_ZONE_SUPERPAGE_BYTES, .frame_bytes = 4096};
    const struct strata_zone_owner program = {.name = "blocks", .reclaim = drop};
    const struct strata_zone_reclaim_config reclaim = {.policy = policy, .min_frames = 64, .low_frames = 128, .high_frames = 256, .thread = true};
    pthread_t threads[THREADS];
    EXPECT(strata_zone_create(&config, &zone) == STRATA_ZONE_OK);
    EXPECT(strata_zone_owner_add(zone, &program, &owner) == STRATA_ZONE_OK);
    EXPECT(strata_zone_set_effort(zone, effort) == STRATA_ZONE_OK);
    EXPECT(strata_zone_reclaim_start(zone, &reclaim) == STRATA_ZONE_OK);
    for (unsigned i = 0; i < DISK_BLOCKS; i++) disk[i].frame = disk[i].on_disk = disk[i].written = 0;
    atomic_store(&misses, 0);
    atomic_store(&superpages, 0);
    for (unsigned t = 0; t < THREADS; t++) EXPECT(pthread_create(&threads[t], NULL, use_blocks, (void *)(uintptr_t)(t + 1)) == 0);
    for (unsigned t = 0; t < THREADS; t++) EXPECT(pthread_join(threads[t], NULL) == 0);
    struct strata_zone_reclaim_stats stats;
    EXPECT(strata_zone_reclaim_stats_get(zone, &stats) == STRATA_ZONE_OK && stats.thread);
    printf("%u misses, %llu unmapped, %llu written, cost %.2f, %llu wakes, %llu direct, %u superpages, %llu captured\n", atomic_load(&misses),
           (unsigned long long)stats.unmapped, (unsigned long long)stats.written, stats.cost, (unsigned long long)stats.wakes,
           (unsigned long long)stats.direct, atomic_load(&superpages), (unsigned long long)stats.captured);
    EXPECT(stats.unmapped > ZONE_FRAMES / 4 && stats.written > 0 && stats.wakes + stats.direct > 0);
    EXPECT(atomic_load(&superpages) > 0);
    EXPECT(strata_zone_reclaim_stop(zone) == STRATA_ZONE_OK);
    const char *broken = strata_zone_check(zone);
    if (broken == NULL) broken = strata_zone_reclaim_check(zone);
    if (broken != NULL) fprintf(stderr, "%s\n", broken);
    EXPECT(broken == NULL);
    EXPECT(strata_zone_destroy(zone) == STRATA_ZONE_OK);
}

/* ------------------------------------------------------------------ one page that is read */

enum { LOOKED_AT = 64, READ = 32, NEIGHBOURS = 15 }; /* these the kernel would map along, behind it */
static uint64_t frame_of[LOOKED_AT];

static enum strata_zone_answer forget(struct strata_zone *its_zone, uint64_t frame, uint64_t frames, uint64_t token, bool dirty, void *context) {
    (void)its_zone, (void)dirty, (void)context;
    EXPECT(frames == 1 && token < LOOKED_AT && frame_of[token] == frame);
    frame_of[token] = UINT64_MAX;
    return STRATA_ZONE_YES;
}

/* A page that was read stays, and its neighbours, which were not, go in their turn, where there is a userfaultfd. */
static void reads_are_told_by_the_page(void) {
    int file = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | 1 /* UFFD_USER_MODE_ONLY */);
    if (file < 0) return;
    EXPECT(close(file) == 0);
    const struct strata_zone_config config = {
        .name = "looks", .backend = STRATA_ZONE_MEMFD, .bytes = STRATA_ZONE_SUPERPAGE_BYTES, .frame_bytes = 4096};
    const struct strata_zone_owner program = {.name = "pages", .reclaim = forget};
    const struct strata_zone_reclaim_config reclaim = {.policy = STRATA_ZONE_RECLAIM_LRU, .high_frames = 1};
    uint64_t had;
    EXPECT(strata_zone_create(&config, &zone) == STRATA_ZONE_OK);
    EXPECT(strata_zone_owner_add(zone, &program, &owner) == STRATA_ZONE_OK);
    EXPECT(strata_zone_reclaim_start(zone, &reclaim) == STRATA_ZONE_OK);
    for (unsigned i = 0; i < LOOKED_AT; i++) {
        const struct strata_zone_request request = {.frames = 1, .mobility = STRATA_ZONE_RECLAIMABLE, .owner = owner, .token = i};
        EXPECT(strata_zone_alloc_as(zone, &request, &frame_of[i]) == STRATA_ZONE_OK);
        *(volatile uint64_t *)strata_zone_address(zone, frame_of[i]) = i;
    }
    EXPECT(strata_zone_reclaim(zone, 1, 0, &had) == STRATA_ZONE_OK && had == 1); /* looks at all of them: none can go before */
    EXPECT(frame_of[READ] != UINT64_MAX);
    EXPECT(*(volatile uint64_t *)strata_zone_address(zone, frame_of[READ]) == READ);
    const unsigned older = READ - 1 + NEIGHBOURS; /* in the order of their age, but for the one that was read: if these had been, younger ones went */
    EXPECT(strata_zone_reclaim(zone, older, 0, &had) == STRATA_ZONE_OK && had == older);
    for (unsigned i = 0; i < LOOKED_AT; i++) EXPECT((frame_of[i] != UINT64_MAX) == (i == READ || i > READ + NEIGHBOURS));
    EXPECT(strata_zone_destroy(zone) == STRATA_ZONE_OK);
}

int main(void) {
    long added;
    page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    if (page_bytes != 4096) return 0; /* superpages are counted in frames of 4 KiB */
    reads_are_told_by_the_page();
    for (unsigned i = 0; i < DISK_BLOCKS; i++) pthread_mutex_init(&disk[i].lock, NULL);
    run(STRATA_ZONE_ANON, STRATA_ZONE_RECLAIM_AREA, STRATA_ZONE_RECLAIM | STRATA_ZONE_RECLAIM_CAPTURES);
    run(STRATA_ZONE_ANON, STRATA_ZONE_RECLAIM_LINEAR, STRATA_ZONE_RECLAIM);
    run(STRATA_ZONE_HEAP, STRATA_ZONE_RECLAIM_AREA, STRATA_ZONE_RECLAIM | STRATA_ZONE_RECLAIM_CAPTURES);
    run(STRATA_ZONE_MEMFD, STRATA_ZONE_RECLAIM_AREA, STRATA_ZONE_RECLAIM);
    if (huge_pool_begin(SUPERPAGES, "reclaim", &added))
        run(STRATA_ZONE_HUGETLB, STRATA_ZONE_RECLAIM_AREA, STRATA_ZONE_RECLAIM | STRATA_ZONE_RECLAIM_CAPTURES);
    huge_pool_end(added);
    return 0;
}
