/*
 * api_zone_requests.c - threads that ask for superpages of a fragmented zone, which are emptied for them by compaction, while others take and give
 * back small runs of every mobility: no request loses a frame that was emptied for it, no superpage is anybody else's, no block loses its contents.
 *
 * Without memory, and on huge pages of the system's pool, where these can be had.
 *
 * api_zone_requests [TURNS]: the least; all go on until some superpages were had by compaction.
 */
#include <sched.h>
#include <time.h>

#include <strata/zone.h>
#include <strata/zone_compact.h>

#include "concurrency/concurrency.h"
#include "stress/huge_pool.h"

enum { INTRUDERS = 2, DEFAULT_TURNS = 5000, SUPERPAGES = 32, SUPERPAGE_FRAMES = 512, HELD = 16, DONE_MIN = 30, YIELDS = 16, PATIENCE_SECONDS = 150 };
enum { BLOCKS = SUPERPAGES * SUPERPAGE_FRAMES * 3 / 4, BLOCKS_EACH = BLOCKS / INTRUDERS };

struct block {
    pthread_mutex_t lock;
    uint64_t frame;
    bool live;
};
static struct block blocks[BLOCKS];
static struct strata_zone *zone;
static unsigned owner;
static size_t turns = DEFAULT_TURNS;
static bool over; /* atomic: requests are at their end */

static uint64_t word_of(uint64_t token) { return (token + 1) * UINT64_C(0x9e3779b97f4a7c15); }

static enum strata_zone_answer migrate(struct strata_zone *of, uint64_t from, uint64_t to, uint64_t frames, uint64_t token, void *context) {
    (void)context;
    struct block *block = &blocks[token];
    if (pthread_mutex_trylock(&block->lock) != 0) return STRATA_ZONE_LATER;
    bool same = block->live && block->frame == from;
    if (same) {
        EXPECT(strata_zone_copy(of, from, to, frames) == STRATA_ZONE_OK);
        block->frame = to;
    }
    pthread_mutex_unlock(&block->lock);
    if (token % YIELDS == 0) sched_yield(); /* in the middle of a pass, also where there is one CPU */
    return same ? STRATA_ZONE_YES : STRATA_ZONE_LATER;
}

/* Under the block's lock. Most are movable, as in a program that has its pages packed; the others make superpages unfit, now and then. */
static void take(struct block *block, uint64_t token, uint64_t random) {
    const struct strata_zone_request request = {
        .frames = 1, .mobility = STRATA_ZONE_MOVABLE, .owner = owner, .token = token, .flags = STRATA_ZONE_NO_EFFORT};
    uint64_t other;
    enum strata_zone_mobility mobility = random % 2 ? STRATA_ZONE_UNMOVABLE : STRATA_ZONE_RECLAIMABLE;
    if (random % 8 < 2 && strata_zone_alloc(zone, 1, mobility, &other) == STRATA_ZONE_OK) EXPECT(strata_zone_free(zone, other, 1) == STRATA_ZONE_OK);
    if (strata_zone_alloc_as(zone, &request, &block->frame) != STRATA_ZONE_OK) return;
    strata_zone_poke(zone, block->frame, word_of(token));
    block->live = true;
}
static void give(struct block *block, uint64_t token) {
    EXPECT(strata_zone_peek(zone, block->frame) == word_of(token));
    block->live = false; /* a move that comes now answers "later", and leaves the free to its end */
    EXPECT(strata_zone_free(zone, block->frame, 1) == STRATA_ZONE_OK);
}

static void *intrude(void *argument) {
    uint64_t number = (uintptr_t)argument, random = random_seed(number);
    free_block(make_block(&random)); /* with per-thread caches: an id, and so a slot of the zone */
    while (!__atomic_load_n(&over, __ATOMIC_RELAXED)) {
        uint64_t dice = next_random(&random), token = number * BLOCKS_EACH + dice % BLOCKS_EACH;
        struct block *block = &blocks[token];
        pthread_mutex_lock(&block->lock);
        if (block->live)
            give(block, token);
        else
            take(block, token, dice >> 32);
        pthread_mutex_unlock(&block->lock);
    }
    return NULL;
}

static uint64_t done_now(void) {
    struct strata_zone_compact_stats stats;
    EXPECT(strata_zone_compact_stats_get(zone, &stats) == STRATA_ZONE_OK);
    return stats.counts.done;
}

static void ask(void) {
    uint64_t held[HELD], random = random_seed(99);
    size_t count = 0;
    time_t deadline = time(NULL) + PATIENCE_SECONDS;
    for (size_t turn = 0; turn < turns || (done_now() < DONE_MIN && time(NULL) < deadline); turn++) {
        uint64_t dice = next_random(&random);
        const struct strata_zone_request request = {.frames = dice % 4 == 0   ? 2 * SUPERPAGE_FRAMES
                                                              : dice % 4 == 1 ? 8
                                                                              : SUPERPAGE_FRAMES,
                                                    .mobility = STRATA_ZONE_UNMOVABLE};
        if (count == HELD) {
            size_t i = (dice >> 8) % HELD;
            struct strata_zone_frame_info info;
            EXPECT(strata_zone_query(zone, held[i], &info) == STRATA_ZONE_OK && info.first == held[i]);
            EXPECT(strata_zone_free(zone, held[i], info.frames) == STRATA_ZONE_OK);
            held[i] = held[--count];
        }
        if (strata_zone_alloc_as(zone, &request, &held[count]) != STRATA_ZONE_OK) continue;
        for (uint64_t i = 0; i < request.frames; i++) strata_zone_poke(zone, held[count] + i, turn); /* were it anybody's, he would miss his */
        count++;
    }
    while (count != 0) {
        struct strata_zone_frame_info info;
        EXPECT(strata_zone_query(zone, held[--count], &info) == STRATA_ZONE_OK && strata_zone_free(zone, held[count], info.frames) == STRATA_ZONE_OK);
    }
}

static void run(enum strata_zone_backend backend) {
    const struct strata_zone_config config = {
        .name = "requests", .backend = backend, .bytes = SUPERPAGES * STRATA_ZONE_SUPERPAGE_BYTES, .frame_bytes = 4096};
    const struct strata_zone_owner description = {.name = "blocks", .migrate = migrate};
    pthread_t threads[INTRUDERS];
    struct strata_zone_compact_stats stats;
    struct strata_zone_stats whole;
    over = false;
    EXPECT(strata_zone_create(&config, &zone) == STRATA_ZONE_OK && strata_zone_owner_add(zone, &description, &owner) == STRATA_ZONE_OK);
    EXPECT(strata_zone_set_effort(zone, STRATA_ZONE_COMPACT) == STRATA_ZONE_OK);
    for (uint64_t i = 0; i < BLOCKS; i++) blocks[i].live = false;
    for (uintptr_t i = 0; i < INTRUDERS; i++) EXPECT(pthread_create(&threads[i], NULL, intrude, (void *)i) == 0);
    ask();
    __atomic_store_n(&over, true, __ATOMIC_RELAXED);
    for (unsigned i = 0; i < INTRUDERS; i++) pthread_join(threads[i], NULL);

    EXPECT(strata_zone_compact_stats_get(zone, &stats) == STRATA_ZONE_OK && strata_zone_stats_get(zone, &whole) == STRATA_ZONE_OK);
    fprintf(stderr, "%llu passes, %llu of them for nothing, %llu blocks moved, %llu ranges lost\n", (unsigned long long)stats.counts.passes,
            (unsigned long long)(stats.counts.passes - stats.counts.done), (unsigned long long)stats.counts.moved,
            (unsigned long long)stats.counts.races_lost);
    EXPECT(stats.counts.done >= DONE_MIN && stats.counts.races_lost == 0 && whole.races_lost == 0);
    EXPECT(whole.captured == 0 && whole.captures == 0 && whole.moving == 0 && strata_zone_check(zone) == NULL);
    for (uint64_t i = 0; i < BLOCKS; i++)
        if (blocks[i].live) give(&blocks[i], i);
    EXPECT(strata_zone_stats_get(zone, &whole) == STRATA_ZONE_OK && whole.free == SUPERPAGES * SUPERPAGE_FRAMES);
    EXPECT(strata_zone_destroy(zone) == STRATA_ZONE_OK);
}

int main(int argc, char **argv) {
    long added;
    if (argc > 1) turns = strtoul(argv[1], NULL, 10);
    for (uint64_t i = 0; i < BLOCKS; i++) EXPECT(pthread_mutex_init(&blocks[i].lock, NULL) == 0);
    run(STRATA_ZONE_SIM);
    if (huge_pool_begin(SUPERPAGES, "requests", &added)) run(STRATA_ZONE_HUGETLB);
    huge_pool_end(added);
    expect_sound();
    return 0;
}
