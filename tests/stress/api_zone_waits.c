/*
 * api_zone_waits.c - real threads that want the same of a zone at the same moment: a request made with a lock that an owner's function takes ends
 * within bounds, owners that allocate in each other's zones do not wait in a circle, a compactor is not stopped from within, and while there is room
 * for all at any moment nobody is told that there is none.
 *
 * api_zone_waits [TURNS]
 */
#include <signal.h>
#include <unistd.h>

#include <strata/zone.h>
#include <strata/zone_compact.h>

#include "concurrency/concurrency.h"

enum { SUPERPAGES = 8, SUPERPAGE_FRAMES = 512, FRAMES = SUPERPAGES * SUPERPAGE_FRAMES, TAKERS = 4, TAKEN_MAX = 16, DEFAULT_TURNS = 200000 };
enum { HANG_SECONDS = 120 };

static struct of_zone {
    struct strata_zone *zone;
    unsigned owner;
    uint64_t frames[FRAMES]; /* by token; of the thread whose pass it is */
    bool in_pass;            /* atomic */
} zones[2];
static void (*within)(struct of_zone *of); /* in migrate, before the block's place changes */
static size_t turns = DEFAULT_TURNS;

static enum strata_zone_answer migrate(struct strata_zone *zone, uint64_t from, uint64_t to, uint64_t frames, uint64_t token, void *context) {
    struct of_zone *of = context;
    within(of);
    if (of->frames[token] != from || strata_zone_copy(zone, from, to, frames) != STRATA_ZONE_OK) return STRATA_ZONE_LATER;
    of->frames[token] = to;
    return STRATA_ZONE_YES;
}

static struct strata_zone *create(uint64_t superpages) {
    const struct strata_zone_config config = {
        .name = "waits", .backend = STRATA_ZONE_SIM, .bytes = superpages * STRATA_ZONE_SUPERPAGE_BYTES, .frame_bytes = 4096, .cpus = TAKERS};
    struct strata_zone *zone;
    EXPECT(strata_zone_create(&config, &zone) == STRATA_ZONE_OK);
    return zone;
}

/* Two zones in pieces. */
static void open_zones(void (*in_migrate)(struct of_zone *of)) {
    within = in_migrate;
    for (unsigned z = 0; z < 2; z++) {
        struct of_zone *of = &zones[z];
        const struct strata_zone_owner description = {.name = "owner", .migrate = migrate, .context = of};
        of->zone = create(SUPERPAGES);
        of->in_pass = false;
        EXPECT(strata_zone_owner_add(of->zone, &description, &of->owner) == STRATA_ZONE_OK);
        for (uint64_t i = 0; i < FRAMES; i++) {
            const struct strata_zone_request request = {.frames = 1, .mobility = STRATA_ZONE_MOVABLE, .owner = of->owner, .token = i};
            EXPECT(strata_zone_alloc_as(of->zone, &request, &of->frames[i]) == STRATA_ZONE_OK);
        }
        for (uint64_t i = 0; i < FRAMES; i++)
            if (i % 3 != 0) EXPECT(strata_zone_free(of->zone, of->frames[i], 1) == STRATA_ZONE_OK);
    }
}
static void close_zones(void) {
    for (unsigned z = 0; z < 2; z++) EXPECT(strata_zone_check(zones[z].zone) == NULL && strata_zone_destroy(zones[z].zone) == STRATA_ZONE_OK);
}

static void await(const bool *flag) {
    while (!__atomic_load_n(flag, __ATOMIC_ACQUIRE)) usleep(100);
}
static void *compact(void *of) {
    EXPECT(strata_zone_compact(((struct of_zone *)of)->zone, 9, NULL) == STRATA_ZONE_OK);
    return NULL;
}

/* ------------------------------------------------------------------ a lock that the owner takes */

static pthread_mutex_t table = PTHREAD_MUTEX_INITIALIZER;

static void take_table(struct of_zone *of) {
    __atomic_store_n(&of->in_pass, true, __ATOMIC_RELEASE);
    pthread_mutex_lock(&table);
    pthread_mutex_unlock(&table);
}

static void a_request_under_the_owners_lock(void) {
    pthread_t thread;
    uint64_t frame;
    open_zones(take_table);
    pthread_mutex_lock(&table);
    EXPECT(pthread_create(&thread, NULL, compact, &zones[0]) == 0);
    await(&zones[0].in_pass);
    EXPECT(strata_zone_alloc(zones[0].zone, SUPERPAGE_FRAMES, STRATA_ZONE_UNMOVABLE, &frame) == STRATA_ZONE_NO_FRAMES);
    EXPECT(strata_zone_compact(zones[0].zone, 9, NULL) == STRATA_ZONE_BUSY);
    pthread_mutex_unlock(&table);
    pthread_join(thread, NULL);
    EXPECT(strata_zone_alloc(zones[0].zone, SUPERPAGE_FRAMES, STRATA_ZONE_UNMOVABLE, &frame) == STRATA_ZONE_OK);
    close_zones();
}

/* ------------------------------------------------------------------ owners in each other's zones */

static void ask_other(struct of_zone *of) {
    struct of_zone *other = &zones[1 - (of - zones)];
    uint64_t frame;
    if (!__atomic_exchange_n(&of->in_pass, true, __ATOMIC_ACQ_REL)) await(&other->in_pass);
    if (strata_zone_alloc(other->zone, SUPERPAGE_FRAMES, STRATA_ZONE_UNMOVABLE, &frame) == STRATA_ZONE_OK)
        EXPECT(strata_zone_free(other->zone, frame, SUPERPAGE_FRAMES) == STRATA_ZONE_OK);
}

static void owners_ask_each_others_zones(void) {
    pthread_t threads[2];
    open_zones(ask_other);
    for (unsigned z = 0; z < 2; z++) EXPECT(pthread_create(&threads[z], NULL, compact, &zones[z]) == 0);
    for (unsigned z = 0; z < 2; z++) pthread_join(threads[z], NULL);
    close_zones();
}

/* ------------------------------------------------------------------ a compactor that waits for the pass */

static void stop(struct of_zone *of) {
    if (__atomic_exchange_n(&of->in_pass, true, __ATOMIC_ACQ_REL)) return;
    EXPECT(strata_zone_compactor_wake(of->zone) == STRATA_ZONE_OK);
    usleep(20000);
    EXPECT(strata_zone_compactor_stop(of->zone) == STRATA_ZONE_BUSY);
}

static void a_compactor_stopped_from_within(void) {
    const struct strata_zone_compactor_config config = {.interval_ns = UINT64_C(3600000000000)};
    open_zones(stop);
    EXPECT(strata_zone_compactor_start(zones[0].zone, &config) == STRATA_ZONE_OK);
    (void)compact(&zones[0]);
    EXPECT(strata_zone_compactor_stop(zones[0].zone) == STRATA_ZONE_OK);
    close_zones();
}

/* ------------------------------------------------------------------ room for all */

struct taker {
    struct strata_zone *zone;
    uint64_t frames;
    enum strata_zone_mobility mobility;
};

static void *take(void *argument) {
    const struct taker *taker = argument;
    uint64_t frame;
    for (size_t i = 0; i < turns; i++) {
        EXPECT(strata_zone_alloc(taker->zone, taker->frames, taker->mobility, &frame) == STRATA_ZONE_OK);
        EXPECT(strata_zone_free(taker->zone, frame, taker->frames) == STRATA_ZONE_OK);
    }
    return NULL;
}

/* mobilities: how many. In one superpage small runs of all are never in each other's way, however they lie; whole ones want one for each thread. */
static void there_is_room(uint64_t superpages, uint64_t frames, unsigned mobilities) {
    struct strata_zone *zone = create(superpages);
    struct taker takers[TAKERS];
    pthread_t threads[TAKERS];
    for (unsigned i = 0; i < TAKERS; i++) {
        takers[i] = (struct taker){.zone = zone, .frames = frames, .mobility = (enum strata_zone_mobility)(i % mobilities)};
        EXPECT(pthread_create(&threads[i], NULL, take, &takers[i]) == 0);
    }
    for (unsigned i = 0; i < TAKERS; i++) pthread_join(threads[i], NULL);
    EXPECT(strata_zone_check(zone) == NULL && strata_zone_destroy(zone) == STRATA_ZONE_OK);
}

int main(int argc, char **argv) {
    if (argc > 1) turns = strtoul(argv[1], NULL, 10);
    alarm(HANG_SECONDS);
    a_request_under_the_owners_lock();
    owners_ask_each_others_zones();
    a_compactor_stopped_from_within();
    there_is_room(1, 1, 3);
    there_is_room(1, TAKEN_MAX, 1);
    there_is_room(TAKERS, SUPERPAGE_FRAMES, 2);
    expect_sound();
    return 0;
}
