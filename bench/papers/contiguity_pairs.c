/*
 * contiguity_pairs.c - experiment: what an allocation of frames and its free cost in a zone: single frames or superpages, on one thread or several.
 *
 *     contiguity_pairs FRAMES THREADS PAIRS unmovable|reclaimable|movable bare|owned|reclaim [HELD]
 *
 * FRAMES: 1 to 512. bare: runs are nobody's; owned: an owner's that could move and drop them, with a token; reclaim: the same with reclaim started,
 * its thread included, so that each run is one that may stand in a list. Each thread takes HELD runs of that mobility (1 where nothing is said, up to
 * 256), gives them back in the same order, and so on, PAIRS times. Reports ns of the slowest thread for each pair by the clock, which goes on while
 * a thread waits for a lock, and beside them ns of its processor time, which tell how much of the clock's a busy machine took. Ends with an error
 * where a run can't be had.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <time.h>

#include <strata/zone_reclaim.h>

#include "load.h"

#define FRAMES_MAX 512
#define THREADS_MAX 64
#define HELD_MAX 256
#define SUPERPAGES 512 /* of the zone */

enum form { BARE, OWNED, RECLAIM, FORMS };

static struct strata_zone *zone;
static uint64_t frames, pairs, held = 1;
static struct strata_zone_request request; /* of all threads */
static struct took {
    double clock_ns, cpu_ns;
} took[THREADS_MAX];
static pthread_barrier_t start;

static double cpu_ns(void) {
    struct timespec now;
    if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) != 0) load_fail("no clock");
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

/* Nobody wants room, so that the owner is never asked. */
static enum strata_zone_answer stays(struct strata_zone *of, uint64_t from, uint64_t to, uint64_t count, uint64_t token, void *context) {
    (void)of, (void)from, (void)to, (void)count, (void)token, (void)context;
    return STRATA_ZONE_NEVER;
}
static enum strata_zone_answer keeps(struct strata_zone *of, uint64_t frame, uint64_t count, uint64_t token, bool dirty, void *context) {
    (void)of, (void)frame, (void)count, (void)token, (void)dirty, (void)context;
    return STRATA_ZONE_NEVER;
}

static void *run(void *argument) {
    struct took *mine = argument;
    pthread_barrier_wait(&start);
    double begun = cpu_ns();
    uint64_t begun_ns = load_clock_ns();
    uint64_t run_of[HELD_MAX];
    for (uint64_t done = 0; done < pairs; done += held) {
        for (uint64_t i = 0; i < held; i++)
            if (strata_zone_alloc_as(zone, &request, &run_of[i]) != STRATA_ZONE_OK) load_fail("a run is missing");
        for (uint64_t i = 0; i < held; i++)
            if (strata_zone_free(zone, run_of[i], frames) != STRATA_ZONE_OK) load_fail("a run can't be freed");
    }
    mine->clock_ns = (double)(load_clock_ns() - begun_ns) / (double)pairs;
    mine->cpu_ns = (cpu_ns() - begun) / (double)pairs;
    return NULL;
}

int main(int argc, char **argv) {
    static const char *const names[STRATA_ZONE_MOBILITIES] = {"unmovable", "reclaimable", "movable"};
    static const char *const forms[FORMS] = {"bare", "owned", "reclaim"};
    bool right = argc == 6 || argc == 7;
    unsigned threads = right ? (unsigned)strtoul(argv[2], NULL, 10) : 0, kind = 0, form = 0;
    frames = right ? strtoul(argv[1], NULL, 10) : 0;
    pairs = right ? strtoul(argv[3], NULL, 10) : 0;
    if (argc == 7) held = strtoul(argv[6], NULL, 10);
    while (right && kind < STRATA_ZONE_MOBILITIES && strcmp(names[kind], argv[4]) != 0) kind++;
    while (right && form < FORMS && strcmp(forms[form], argv[5]) != 0) form++;
    right = right && kind < STRATA_ZONE_MOBILITIES && form < FORMS;
    if (!right || frames == 0 || frames > FRAMES_MAX || threads == 0 || threads > THREADS_MAX || held == 0 || held > HELD_MAX || pairs < held) {
        load_fail("usage: contiguity_pairs FRAMES THREADS PAIRS unmovable|reclaimable|movable bare|owned|reclaim [HELD]; up to 512 frames, up to "
                  "64 threads, up to 256 runs held, at most PAIRS");
    }
    request = (struct strata_zone_request){.frames = frames, .mobility = (enum strata_zone_mobility)kind, .token = 1};
    const struct strata_zone_config config = {
        .name = "pairs", .backend = STRATA_ZONE_SIM, .bytes = SUPERPAGES * STRATA_ZONE_SUPERPAGE_BYTES, .frame_bytes = 4096};
    if (strata_zone_create(&config, &zone) != STRATA_ZONE_OK) load_fail("no zone");
    const struct strata_zone_owner owner = {.name = "pairs", .migrate = stays, .reclaim = keeps};
    const struct strata_zone_reclaim_config reclaim = {
        .policy = STRATA_ZONE_RECLAIM_AREA, .min_frames = 1, .low_frames = 1, .high_frames = 1, .thread = true};
    if (form != BARE && strata_zone_owner_add(zone, &owner, &request.owner) != STRATA_ZONE_OK) load_fail("no owner");
    if (form == RECLAIM && strata_zone_reclaim_start(zone, &reclaim) != STRATA_ZONE_OK) load_fail("no reclaim");
    pthread_t ids[THREADS_MAX];
    struct took slowest = {0, 0};
    pthread_barrier_init(&start, NULL, threads);
    for (unsigned i = 0; i < threads; i++)
        if (pthread_create(&ids[i], NULL, run, &took[i]) != 0) load_fail("no thread");
    for (unsigned i = 0; i < threads; i++) {
        pthread_join(ids[i], NULL);
        if (took[i].clock_ns > slowest.clock_ns) slowest.clock_ns = took[i].clock_ns;
        if (took[i].cpu_ns > slowest.cpu_ns) slowest.cpu_ns = took[i].cpu_ns;
    }
    pthread_barrier_destroy(&start);
    const char *wrong = strata_zone_check(zone);
    if (wrong) load_fail(wrong);
    if (strata_zone_destroy(zone) != STRATA_ZONE_OK) load_fail("the zone can't be destroyed");
    printf("{\"ns_per_pair\": %.2f, \"cpu_ns_per_pair\": %.2f}\n", slowest.clock_ns, slowest.cpu_ns);
    return fflush(stdout) ? 2 : 0;
}
