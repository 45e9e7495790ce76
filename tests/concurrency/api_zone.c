/*
 * api_zone.c - threads that allocate, pin, read, write and free frames of one zone while others capture superpages in the middle of them, so that
 * blocks are moved and dropped under their hands. For ThreadSanitizer, too: contents are plain words, of whose places only the owner's locks tell.
 *
 * Each block knows its frame under a lock of its own. A move takes that lock, or answers "later". What a capture gets must be nobody's; what a
 * block reads must be what was written; in the end all frames are free, and strata_zone_check has nothing to say. api_zone [TURNS].
 *
 * TURNS is the least: where one thread did all of its own before the others began, all go on until a block was moved and a superpage captured.
 */
#include <string.h>
#include <time.h>

#include <strata/zone.h>

#include "concurrency/concurrency.h"

enum { WORKERS = 3, CAPTURERS = 2, DEFAULT_TURNS = 4000, BLOCKS = 2600, SUPERPAGES = 12, HELD = 4, SUPERPAGE_FRAMES = 512, PATIENCE_SECONDS = 60 };

struct block {
    pthread_mutex_t lock;
    uint64_t frame, frames; /* frames 0: not in use */
    uint64_t word;
    bool pinned;
};
static struct block blocks[BLOCKS];
static struct strata_zone *zone;
static unsigned owner;
static size_t turns = DEFAULT_TURNS;
static uint64_t moves, drops, captures;
static time_t deadline; /* after it, threads end without a move or a capture, and the test fails */

static bool goes_on(size_t turn, size_t least) {
    if (turn < least) return true;
    return (__atomic_load_n(&moves, __ATOMIC_RELAXED) == 0 || __atomic_load_n(&captures, __ATOMIC_RELAXED) == 0) && time(NULL) < deadline;
}

static uint64_t *words(uint64_t frame) { return strata_zone_address(zone, frame); }

static void write_block(struct block *block) {
    for (uint64_t i = 0; i < block->frames; i++) words(block->frame + i)[0] = block->word + i;
}
static void read_block(const struct block *block) {
    for (uint64_t i = 0; i < block->frames; i++) EXPECT(words(block->frame + i)[0] == block->word + i);
}

static enum strata_zone_answer migrate(struct strata_zone *of, uint64_t from, uint64_t to, uint64_t frames, uint64_t token, void *context) {
    struct block *block = &((struct block *)context)[token];
    if (pthread_mutex_trylock(&block->lock) != 0) return STRATA_ZONE_LATER;
    enum strata_zone_answer answer = STRATA_ZONE_LATER; /* freed by now, or used again elsewhere */
    if (block->frames == frames && block->frame == from) {
        EXPECT(!block->pinned);
        EXPECT(strata_zone_copy(of, from, to, frames) == STRATA_ZONE_OK);
        block->frame = to;
        __atomic_fetch_add(&moves, 1, __ATOMIC_RELAXED);
        answer = STRATA_ZONE_YES;
    }
    pthread_mutex_unlock(&block->lock);
    return answer;
}

static enum strata_zone_answer reclaim(struct strata_zone *of, uint64_t frame, uint64_t frames, uint64_t token, bool dirty, void *context) {
    (void)of;
    (void)dirty;
    struct block *block = &((struct block *)context)[token];
    if (pthread_mutex_trylock(&block->lock) != 0) return STRATA_ZONE_LATER;
    bool same = block->frames == frames && block->frame == frame;
    if (same) {
        read_block(block);
        block->frames = 0;
        __atomic_fetch_add(&drops, 1, __ATOMIC_RELAXED);
    }
    pthread_mutex_unlock(&block->lock);
    return same ? STRATA_ZONE_YES : STRATA_ZONE_LATER;
}

static void release(struct block *block) {
    if (block->pinned) EXPECT(strata_zone_unpin(zone, block->frame, 1) == STRATA_ZONE_OK);
    block->pinned = false;
    EXPECT(strata_zone_free(zone, block->frame, block->frames) == STRATA_ZONE_OK);
    block->frames = 0;
}

static void *work(void *argument) {
    uint64_t random = random_seed((uintptr_t)argument);
    free_block(make_block(&random)); /* with per-thread caches: an id, and so a slot of the zone */
    for (size_t turn = 0; goes_on(turn, turns); turn++) {
        uint64_t dice = next_random(&random), token = dice % BLOCKS;
        struct block *block = &blocks[token];
        pthread_mutex_lock(&block->lock);
        if (block->frames == 0) {
            struct strata_zone_request request = {.frames = dice >> 32 & 7 ? 1 : UINT64_C(1) << (dice >> 40) % 6,
                                                  .mobility = (dice >> 48) % 8 ? STRATA_ZONE_MOVABLE : STRATA_ZONE_RECLAIMABLE};
            request.owner = owner;
            request.token = token;
            request.flags = STRATA_ZONE_NO_EFFORT;
            /* The block is known only when it is written: until then a move finds no frames, and answers "later". */
            uint64_t frame;
            if (strata_zone_alloc_as(zone, &request, &frame) == STRATA_ZONE_OK) {
                block->frame = frame;
                block->frames = request.frames;
                block->word = dice;
                write_block(block);
            }
        } else if (dice >> 32 & 3 && !block->pinned) {
            read_block(block);
            block->word = dice;
            write_block(block);
            if ((dice >> 40) % 512 == 0) block->pinned = strata_zone_pin(zone, block->frame, 1) == STRATA_ZONE_OK;
        } else
            release(block);
        pthread_mutex_unlock(&block->lock);
    }
    return NULL;
}

static void *capture(void *argument) {
    uint64_t random = random_seed((uintptr_t)argument);
    free_block(make_block(&random));
    uint64_t held[HELD];
    size_t count = 0;
    for (size_t turn = 0; goes_on(turn, turns / 20 + 1) || count != 0; turn++) {
        const struct strata_zone_capture_request request = {.frames = SUPERPAGE_FRAMES, .mobility = STRATA_ZONE_UNMOVABLE};
        uint64_t frame;
        bool gives = count == HELD || !goes_on(turn, turns / 20 + 1) || (count != 0 && next_random(&random) % 8 == 0);
        if (gives) { /* what was written is there: nobody else had it */
            frame = held[--count];
            for (uint64_t i = 0; i < SUPERPAGE_FRAMES; i++) EXPECT(words(frame + i)[0] == i);
            EXPECT(strata_zone_free(zone, frame, SUPERPAGE_FRAMES) == STRATA_ZONE_OK);
        } else if (strata_zone_capture_run(zone, &request, &frame) == STRATA_ZONE_OK) {
            for (uint64_t i = 0; i < SUPERPAGE_FRAMES; i++) words(frame + i)[0] = i;
            held[count++] = frame;
            __atomic_fetch_add(&captures, 1, __ATOMIC_RELAXED);
        }
    }
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t threads[WORKERS + CAPTURERS];
    if (argc > 1) turns = strtoul(argv[1], NULL, 10);
    const struct strata_zone_config config = {
        .name = "stress", .backend = STRATA_ZONE_MEMFD, .bytes = SUPERPAGES * STRATA_ZONE_SUPERPAGE_BYTES, .frame_bytes = 4096, .cpus = 4};
    const struct strata_zone_owner program = {.name = "blocks", .migrate = migrate, .reclaim = reclaim, .context = blocks};
    EXPECT(strata_zone_create(&config, &zone) == STRATA_ZONE_OK);
    EXPECT(strata_zone_owner_add(zone, &program, &owner) == STRATA_ZONE_OK);
    deadline = time(NULL) + PATIENCE_SECONDS;
    for (size_t i = 0; i < BLOCKS; i++) pthread_mutex_init(&blocks[i].lock, NULL);
    for (uintptr_t i = 0; i < WORKERS + CAPTURERS; i++) EXPECT(pthread_create(&threads[i], NULL, i < WORKERS ? work : capture, (void *)i) == 0);
    for (size_t i = 0; i < WORKERS + CAPTURERS; i++) EXPECT(pthread_join(threads[i], NULL) == 0);
    const char *broken = strata_zone_check(zone);
    if (broken != NULL) fprintf(stderr, "strata_zone_check: %s\n", broken);
    EXPECT(broken == NULL);
    for (size_t i = 0; i < BLOCKS; i++) {
        if (blocks[i].frames == 0) continue;
        read_block(&blocks[i]);
        release(&blocks[i]);
    }
    struct strata_zone_stats stats;
    EXPECT(strata_zone_stats_get(zone, &stats) == STRATA_ZONE_OK);
    EXPECT(stats.free == stats.frames && stats.free_superpages == SUPERPAGES && stats.pinned == 0 && stats.moving == 0 && stats.captures == 0);
    EXPECT(stats.races_lost == 0);
    EXPECT(moves != 0 && captures != 0);
    EXPECT(strata_zone_check(zone) == NULL && strata_zone_destroy(zone) == STRATA_ZONE_OK);
    printf("moves=%llu drops=%llu captures=%llu\n", (unsigned long long)moves, (unsigned long long)drops, (unsigned long long)captures);
    expect_sound();
    return 0;
}
