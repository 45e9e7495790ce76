/*
 * api_zone_fork.c - forks a process while its zones are compacted, reclaimed in and allocated from by other threads: each child finds its zones in
 * order, and can compact, reclaim, capture and take them down, whatever the parent's threads were doing. A child that waits for one of these ends by
 * SIGALRM.
 *
 * On private memory, whose contents the child must have as they were, and on shared memory, part of which a window shows. Last, an owner's function
 * forks, and its block goes on in the child; and one waits for a lock that the thread which forks has, so that the fork must not wait for it for
 * ever. api_zone_fork [FORKS] forks so often.
 */
#include <stdatomic.h>
#include <string.h>

#include <strata/zone.h>
#include <strata/zone_compact.h>
#include <strata/zone_reclaim.h>

#include "sanitizers.h"
#include "stress/api_fork_support.h"

enum { SUPERPAGES = 8, FRAMES = SUPERPAGES * 512, BLOCKS = 3 * FRAMES / 4, SHOWN = 64, WORKERS = 2 };
#define NONE UINT64_MAX

/*
 * ThreadSanitizer ends the child of a process with threads that starts one. AddressSanitizer, as of GCC 12, holds locks of its own allocator over a
 * fork that another thread's allocation had, and a thread that starts allocates by it.
 */
#define MAY_START_THREADS (!UNDER_ADDRESS_SANITIZER && !UNDER_THREAD_SANITIZER)

/* What the program knows of its blocks: the frame of each, by token. */
static struct world {
    struct strata_zone *zone;
    unsigned owner;
    bool private_memory;
    char *window;
    _Atomic uint64_t frame[BLOCKS];
} worlds[2];
static atomic_bool stop, forks_inside, waits;
static atomic_uint inside;
static pthread_mutex_t held_by_the_forking = PTHREAD_MUTEX_INITIALIZER;

static uint64_t word_of(uint64_t token) { return (token + 1) * UINT64_C(0x9e3779b97f4a7c15); }

static enum strata_zone_answer migrate(struct strata_zone *zone, uint64_t from, uint64_t to, uint64_t frames, uint64_t token, void *context) {
    struct world *world = context;
    if (atomic_exchange(&forks_inside, false)) {
        pid_t pid = fork();
        EXPECT(pid >= 0);
        if (pid == 0) {
            alarm(CHILD_SECONDS);
            atomic_store(&inside, 1); /* and returns, in a process of this thread alone */
        } else {
            int status;
            EXPECT(waitpid(pid, &status, 0) == pid && status == 0);
        }
    }
    if (atomic_load(&waits)) {
        atomic_fetch_add(&inside, 1);
        pthread_mutex_lock(&held_by_the_forking);
        pthread_mutex_unlock(&held_by_the_forking);
    }
    if (atomic_load(&world->frame[token]) != from) return STRATA_ZONE_LATER; /* not written yet, or about to be freed */
    EXPECT(strata_zone_copy(zone, from, to, frames) == STRATA_ZONE_OK);
    return atomic_compare_exchange_strong(&world->frame[token], &from, to) ? STRATA_ZONE_YES : STRATA_ZONE_LATER;
}

static enum strata_zone_answer drop(struct strata_zone *zone, uint64_t frame, uint64_t frames, uint64_t token, bool dirty, void *context) {
    struct world *world = context;
    (void)zone, (void)frames, (void)dirty;
    return atomic_compare_exchange_strong(&world->frame[token], &frame, NONE) ? STRATA_ZONE_YES : STRATA_ZONE_LATER;
}

static void make_block(struct world *world, uint64_t token) {
    const struct strata_zone_request request = {.frames = 1, .mobility = STRATA_ZONE_MOVABLE, .owner = world->owner, .token = token};
    uint64_t frame;
    if (strata_zone_alloc_as(world->zone, &request, &frame) != STRATA_ZONE_OK) return;
    *(uint64_t *)strata_zone_address(world->zone, frame) = word_of(token);
    atomic_store(&world->frame[token], frame);
}

static void free_block(struct world *world, uint64_t token) {
    uint64_t frame = atomic_exchange(&world->frame[token], NONE);
    if (frame != NONE) EXPECT(strata_zone_free(world->zone, frame, 1) == STRATA_ZONE_OK);
}

static void begin(struct world *world, enum strata_zone_backend backend) {
    const struct strata_zone_config config = {
        .name = "forked", .backend = backend, .bytes = SUPERPAGES * STRATA_ZONE_SUPERPAGE_BYTES, .frame_bytes = 4096};
    const struct strata_zone_owner owner = {.name = "blocks", .migrate = migrate, .reclaim = drop, .context = world};
    world->private_memory = backend != STRATA_ZONE_MEMFD;
    EXPECT(strata_zone_create(&config, &world->zone) == STRATA_ZONE_OK);
    EXPECT(strata_zone_owner_add(world->zone, &owner, &world->owner) == STRATA_ZONE_OK);
    for (unsigned i = 0; i < BLOCKS; i++) atomic_init(&world->frame[i], NONE);
    if (world->private_memory) return;
    void *address;
    EXPECT(strata_zone_window_open(world->zone, SHOWN * 4096, &address) == STRATA_ZONE_OK);
    world->window = address;
    for (unsigned i = 0; i < SHOWN; i++) {
        uint64_t frame;
        EXPECT(strata_zone_alloc(world->zone, 1, STRATA_ZONE_MOVABLE, &frame) == STRATA_ZONE_OK);
        EXPECT(strata_zone_map(world->zone, frame, 1, world->window + i * 4096) == STRATA_ZONE_OK);
        *(uint64_t *)(void *)(world->window + i * 4096) = word_of(i);
    }
}

static void start_threads(struct world *world) {
    const struct strata_zone_compactor_config compactor = {.order = 9, .unusable = 0.001, .interval_ns = 1000000};
    const struct strata_zone_reclaim_config reclaim = {
        .policy = STRATA_ZONE_RECLAIM_AREA, .min_frames = 64, .low_frames = 512, .high_frames = 1024, .thread = true};
    EXPECT(strata_zone_compactor_start(world->zone, &compactor) == STRATA_ZONE_OK);
    EXPECT(strata_zone_reclaim_start(world->zone, &reclaim) == STRATA_ZONE_OK);
}

static void stop_threads(struct world *world) {
    EXPECT(strata_zone_compactor_stop(world->zone) == STRATA_ZONE_OK);
    EXPECT(strata_zone_reclaim_stop(world->zone) == STRATA_ZONE_OK);
}

/* Each has a part of the tokens; now and then all of a superpage is wanted, so that areas are emptied, with and without capture. */
static void *work(void *argument) {
    unsigned number = (unsigned)(uintptr_t)argument;
    uint64_t random = 88172645463325252u + number;
    for (unsigned turn = 0; !atomic_load(&stop); turn++) {
        struct world *world = &worlds[turn % 2];
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        uint64_t token = random % (BLOCKS / WORKERS) * WORKERS + number, frame;
        if (atomic_load(&world->frame[token]) == NONE)
            make_block(world, token);
        else
            free_block(world, token);
        if (turn % 512 > 1) continue;
        EXPECT(strata_zone_set_effort(world->zone, turn % 1024 < 512 ? STRATA_ZONE_RECLAIM : STRATA_ZONE_RECLAIM | STRATA_ZONE_RECLAIM_CAPTURES) ==
               0);
        if (strata_zone_alloc(world->zone, 512, STRATA_ZONE_UNMOVABLE, &frame) == STRATA_ZONE_OK)
            EXPECT(strata_zone_free(world->zone, frame, 512) == STRATA_ZONE_OK);
        const struct strata_zone_capture_request captured = {.frames = 512};
        if (strata_zone_capture_run(world->zone, &captured, &frame) == STRATA_ZONE_OK)
            EXPECT(strata_zone_free(world->zone, frame, 512) == STRATA_ZONE_OK);
    }
    return argument;
}

/* ------------------------------------------------------------------ the child */

static void check_blocks(struct world *world) {
    struct strata_zone_stats stats;
    EXPECT(strata_zone_stats_get(world->zone, &stats) == STRATA_ZONE_OK);
    EXPECT(stats.moving == 0 && stats.captured == 0 && stats.captures == 0);
    for (uint64_t token = 0; token < BLOCKS; token++) {
        uint64_t frame = atomic_load(&world->frame[token]);
        struct strata_zone_frame_info info;
        if (frame == NONE) continue;
        EXPECT(strata_zone_query(world->zone, frame, &info) == STRATA_ZONE_OK);
        EXPECT(info.allocated && !info.pinned && info.owner == world->owner && info.token == token);
        if (world->private_memory) EXPECT(*(uint64_t *)strata_zone_address(world->zone, frame) == word_of(token));
    }
}

/* A zone that nobody else uses: the program's table of it is right, and all that it is for goes on. */
static void use_alone(struct world *world) {
    const char *broken = strata_zone_check(world->zone);
    if (broken == NULL) broken = strata_zone_reclaim_check(world->zone);
    if (broken != NULL) dprintf(STDERR_FILENO, "%s\n", broken);
    EXPECT(broken == NULL);
    check_blocks(world);
    uint64_t frame, dropped;
    struct strata_zone_compact_counts counts;
    EXPECT(strata_zone_compact(world->zone, 9, &counts) == STRATA_ZONE_OK);
    EXPECT(counts.passes == 1);
    EXPECT(strata_zone_reclaim(world->zone, 8, 0, &dropped) != STRATA_ZONE_BUSY);
    for (uint64_t token = 0; token < 100; token++) free_block(world, token), make_block(world, token);
    const struct strata_zone_capture_request captured = {.frames = 512};
    EXPECT(strata_zone_capture_run(world->zone, &captured, &frame) == STRATA_ZONE_OK);
    EXPECT(strata_zone_free(world->zone, frame, 512) == STRATA_ZONE_OK);
    check_blocks(world);
    stop_threads(world);
    if (MAY_START_THREADS) {
        start_threads(world);
        stop_threads(world);
    }
    EXPECT(strata_zone_check(world->zone) == NULL);
    EXPECT(strata_zone_destroy(world->zone) == STRATA_ZONE_OK);
}

/* Shared memory is the parent's, who goes on with it: only what is known of it is the child's own, and that is looked at. */
static void look_only(struct world *world) {
    struct strata_zone_indices indices;
    EXPECT(strata_zone_check(world->zone) == NULL && strata_zone_reclaim_check(world->zone) == NULL);
    check_blocks(world);
    EXPECT(strata_zone_indices_get(world->zone, 9, &indices) == STRATA_ZONE_OK);
    for (unsigned i = 0; i < SHOWN; i++) {
        uint64_t frame;
        struct strata_zone_frame_info info;
        EXPECT(strata_zone_frame_at(world->zone, world->window + i * 4096, &frame) == STRATA_ZONE_OK);
        EXPECT(strata_zone_query(world->zone, frame, &info) == STRATA_ZONE_OK && info.mapped && info.allocated && !info.pinned);
    }
    EXPECT(strata_zone_destroy(world->zone) == STRATA_ZONE_OK);
}

static void child(unsigned number, unsigned generations) {
    (void)number;
    if (generations > 1) return; /* whose own child does the rest */
    use_alone(&worlds[0]);
    look_only(&worlds[1]);
}

/* ------------------------------------------------------------------ owners that fork, or wait */

static void fork_within_an_owner(struct world *world) {
    unsigned before = atomic_load(&inside);
    for (uint64_t token = 0; token < BLOCKS; token++) free_block(world, token);
    for (uint64_t token = 0; token < BLOCKS; token++) make_block(world, token);
    for (uint64_t token = 0; token < BLOCKS; token += 3) free_block(world, token);
    atomic_store(&forks_inside, true);
    EXPECT(strata_zone_compact(world->zone, 9, NULL) == STRATA_ZONE_OK && !atomic_load(&forks_inside));
    check_blocks(world);
    EXPECT(strata_zone_check(world->zone) == NULL);
    if (atomic_load(&inside) == before) return;
    use_alone(world); /* the child, whose pass has come to its end as well */
    _exit(0);
}

static void *compact_once(void *argument) {
    struct world *world = argument;
    EXPECT(strata_zone_compact(world->zone, 9, NULL) == STRATA_ZONE_OK);
    return NULL;
}

static void alone_in_the_end(unsigned number, unsigned generations) {
    (void)number, (void)generations;
    struct world *world = &worlds[0];
    struct strata_zone_stats stats;
    uint64_t frame;
    EXPECT(strata_zone_check(world->zone) == NULL);
    EXPECT(strata_zone_stats_get(world->zone, &stats) == STRATA_ZONE_OK && stats.moving == 0);
    atomic_store(&waits, false);
    EXPECT(strata_zone_compact(world->zone, 9, NULL) == STRATA_ZONE_OK);
    EXPECT(strata_zone_alloc(world->zone, 512, STRATA_ZONE_UNMOVABLE, &frame) == STRATA_ZONE_OK);
    EXPECT(strata_zone_destroy(world->zone) == STRATA_ZONE_OK);
}

static void fork_while_an_owner_waits_for_us(struct world *world) {
    pthread_t thread;
    for (uint64_t token = 0; token < BLOCKS; token++) make_block(world, token);
    for (uint64_t token = 0; token < BLOCKS; token += 2) free_block(world, token);
    atomic_store(&inside, 0);
    atomic_store(&waits, true);
    pthread_mutex_lock(&held_by_the_forking);
    EXPECT(pthread_create(&thread, NULL, compact_once, world) == 0);
    while (atomic_load(&inside) == 0) usleep(1000);
    fork_and_wait(0, 1, alone_in_the_end);
    pthread_mutex_unlock(&held_by_the_forking);
    EXPECT(pthread_join(thread, NULL) == 0);
    EXPECT(strata_zone_check(world->zone) == NULL);
}

int main(int argc, char **argv) {
    unsigned forks = fork_count(argc, argv);
    pthread_t threads[WORKERS];
    begin(&worlds[0], STRATA_ZONE_HEAP);
    begin(&worlds[1], STRATA_ZONE_MEMFD);
    for (unsigned w = 0; w < 2; w++) start_threads(&worlds[w]);
    for (unsigned i = 0; i < WORKERS; i++) EXPECT(pthread_create(&threads[i], NULL, work, (void *)(uintptr_t)i) == 0);
    for (unsigned i = 0; i < forks; i++) fork_and_wait(i, 1 + i % 2, child);
    atomic_store(&stop, true);
    for (unsigned i = 0; i < WORKERS; i++) EXPECT(pthread_join(threads[i], NULL) == 0);
    for (unsigned w = 0; w < 2; w++) {
        struct strata_zone_compact_stats compacted;
        EXPECT(strata_zone_compact_stats_get(worlds[w].zone, &compacted) == STRATA_ZONE_OK && compacted.counts.moved > 0);
        stop_threads(&worlds[w]);
        EXPECT(strata_zone_check(worlds[w].zone) == NULL);
        for (unsigned i = 0; worlds[w].private_memory ? false : i < SHOWN; i++)
            EXPECT(*(uint64_t *)(void *)(worlds[w].window + i * 4096) == word_of(i));
    }
    fork_within_an_owner(&worlds[0]);
    fork_while_an_owner_waits_for_us(&worlds[0]);
    for (unsigned w = 0; w < 2; w++) EXPECT(strata_zone_destroy(worlds[w].zone) == STRATA_ZONE_OK);
    return 0;
}
