/*
 * contiguity_highalloc.c - experiments: figures 1, 4 and 6 to 9, and 11, of the contiguity paper. How much of memory can be had as superpages, when
 * and at what cost.
 *
 *     contiguity_highalloc BACKEND MIB highalloc|capability grouped|mixed regular|linear|area compact|still capture|race WARM_S
 *
 * The load of contiguity_load.h runs for WARM_S seconds of its own time on a zone of BACKEND (sim, memfd), files fill what is left of memory, and it
 * runs for half as long again. Then superpages are asked for under load and kept: by highalloc at a constant rate, all of memory in ALL_OF_MEMORY_S;
 * by capability (which runs no updatedb) as many as can be had in bursts. All are given back, memory is filled in the same way again, the load ends,
 * and they are asked for at rest. Reports shares, delays between successes in the load's time, what reclaim did, races, and maps of what the
 * superpages hold. Ends with an error where the zone finds itself wrong, or contents were lost. One thread.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "contiguity_load.h"

#define SEED 11
#define RESERVE_PERCENT 2 /* as in the paper, section 4 */
#define PERSISTENCE 1.5   /* times the time in which all of memory is asked for */
#define FAILURES_AT_REST 64
#define BURST_S 8.0
#define BURST_FAILURES 8
#define COURSE_PERCENT 5
#define DELAYS_MAX 4096

static struct load load;
static struct place *place;
static uint32_t *held;
static uint64_t held_count, superpages;

/* Delays between successes: what they have come to, and their course by how much of memory was had. */
static struct {
    uint64_t count, attempts;
    double last_ns, sum_ms, squares, worst_ms, asking_ms, asking_worst_ms;
    float at_s[DELAYS_MAX], ms[DELAYS_MAX], asked_ms[DELAYS_MAX];
} delays;
static double asking_ms; /* since the last success, within requests */
static struct {
    uint64_t emptied, raced, good;
} areas;

static double mean_of(double sum) { return delays.count ? sum / (double)delays.count : 0; }
static double deviation(void) {
    double mean = mean_of(delays.sum_ms), square = mean_of(delays.squares) - mean * mean;
    return square > 0 ? sqrt(square) : 0;
}

static void print_course(bool first) {
    printf("%s[%.1f, %.4f, %.4f, %.4f]", first ? "" : ", ", 100.0 * (double)held_count / (double)superpages, mean_of(delays.sum_ms), deviation(),
           delays.worst_ms);
}

static void note_delay(void) {
    double ms = (load.now_ns - delays.last_ns) / 1e6;
    delays.last_ns = load.now_ns;
    if (delays.count < DELAYS_MAX) {
        delays.at_s[delays.count] = (float)load_seconds(&load);
        delays.ms[delays.count] = (float)ms;
        delays.asked_ms[delays.count] = (float)asking_ms;
    }
    delays.count++;
    delays.sum_ms += ms;
    delays.squares += ms * ms;
    if (ms > delays.worst_ms) delays.worst_ms = ms;
    delays.asking_ms += asking_ms;
    if (asking_ms > delays.asking_worst_ms) delays.asking_worst_ms = asking_ms;
    asking_ms = 0;
}

static bool request(void) {
    double begun = load.now_ns;
    uint64_t emptied, raced;
    delays.attempts++;
    load_request_begin(&load);
    uint32_t frame = place_alloc_superpage(place);
    load_request_end(&load, &emptied, &raced);
    areas.emptied += emptied;
    areas.raced += raced;
    if (load.owed_ns != 0) { /* what moves cost */
        double owed = load.owed_ns;
        load.owed_ns = 0;
        load_pass(&load, owed);
    }
    asking_ms += (load.now_ns - begun) / 1e6;
    if (frame == PLACE_NONE) return false;
    if (frame % PLACE_SUPERPAGE_FRAMES) load_fail("a superpage does not begin at a multiple of its size");
    areas.good += emptied != 0;
    place_write(place, frame, frame);
    held[held_count++] = frame;
    return true;
}

static void release(void) {
    for (uint64_t i = 0; i < held_count; i++) {
        if (!place_holds(place, held[i], held[i])) load_fail("a superpage does not hold what was written to it");
        place_free(place, held[i], PLACE_SUPERPAGE_ORDER);
    }
    held_count = 0;
}

/* At a constant rate, whether they succeed or not, until the time is over or everything was had. */
static void ask_at_rate(void) {
    double period = ALL_OF_MEMORY_S * 1e9 / (double)superpages, end = load.now_ns + PERSISTENCE * ALL_OF_MEMORY_S * 1e9, next = load.now_ns;
    uint64_t step = superpages * COURSE_PERCENT / 100 + 1;
    delays.last_ns = load.now_ns;
    bool first = true;
    printf(", \"course\": [");
    while (held_count < superpages && load.now_ns < end) {
        if (load.now_ns < next) load_run(&load, (next - load.now_ns) / 1e9);
        if (request()) {
            note_delay();
            if (held_count % step == 0) {
                print_course(first);
                first = false;
            }
        }
        next += period;
        if (next < load.now_ns) next = load.now_ns;
    }
    if (delays.count != 0 && held_count % step != 0) print_course(first);
    printf("]");
}

/* As much as can be had at once, again and again. */
static void ask_in_bursts(void) {
    double end = load.now_ns + PERSISTENCE * ALL_OF_MEMORY_S * 1e9;
    delays.last_ns = load.now_ns;
    while (held_count < superpages && load.now_ns < end) {
        for (unsigned failures = 0; failures < BURST_FAILURES && held_count < superpages;) {
            if (request())
                note_delay();
            else
                failures++;
        }
        load_run(&load, BURST_S);
    }
}

static void ask_at_rest(void) {
    for (unsigned failures = 0; failures < FAILURES_AT_REST && held_count < superpages;) failures = request() ? 0 : failures + 1;
}

/* A letter for each superpage: S that was had, else capital where one mobility has it for itself, small where movable pages are mixed with others,
 * '.' free, '#' mixed without. */
static void print_map(const char *name) {
    bool *had = calloc(superpages, sizeof *had);
    if (!had) load_fail("no memory");
    for (uint64_t i = 0; i < held_count; i++) had[held[i] >> PLACE_SUPERPAGE_ORDER] = true;
    printf(", \"%s\": \"", name);
    for (uint64_t i = 0; i < superpages; i++) {
        struct place_mix mix = place_superpage(place, i);
        bool unmovable = mix.allocated[PLACE_UNMOVABLE] != 0, reclaimable = mix.allocated[PLACE_RECLAIMABLE] != 0;
        bool movable = mix.allocated[PLACE_MOVABLE] != 0;
        char letter = '.';
        if (had[i])
            letter = 'S';
        else if (unmovable)
            letter = movable ? 'u' : reclaimable ? '#' : 'U';
        else if (reclaimable)
            letter = movable ? 'r' : 'R';
        else if (movable)
            letter = 'M';
        putchar(letter);
    }
    printf("\"");
    free(had);
}

static bool choose(const char *given, const char *yes, const char *no, bool *right) {
    bool is = strcmp(given, yes) == 0;
    if (!is && strcmp(given, no) != 0) *right = false;
    return is;
}

int main(int argc, char **argv) {
    bool right = argc == 9;
    struct place_config config = {.backend = right ? argv[1] : ""};
    uint64_t mib = right ? strtoul(argv[2], NULL, 10) : 0;
    double warm_s = right ? strtod(argv[8], NULL) : 0;
    bool highalloc = right && choose(argv[3], "highalloc", "capability", &right);
    config.grouping = right && choose(argv[4], "grouped", "mixed", &right);
    static const char *const policies[PLACE_RECLAIMS] = {"regular", "linear", "area"};
    unsigned policy = 0;
    while (right && policy < PLACE_RECLAIMS && strcmp(policies[policy], argv[5]) != 0) policy++;
    config.reclaim = (enum place_reclaim)policy;
    config.compaction = right && choose(argv[6], "compact", "still", &right);
    config.capture = right && choose(argv[7], "capture", "race", &right);
    right = right && policy < PLACE_RECLAIMS && mib >= 64 && mib % 2 == 0 && warm_s >= 0 &&
            (strcmp(config.backend, "sim") == 0 || strcmp(config.backend, "memfd") == 0);
    if (!right) {
        load_fail("usage: contiguity_highalloc sim|memfd MIB highalloc|capability grouped|mixed regular|linear|area compact|still capture|race "
                  "WARM_S; MIB even, "
                  "at least 64");
    }

    config.frames = mib * MIB / PLACE_FRAME_BYTES;
    superpages = config.frames / PLACE_SUPERPAGE_FRAMES;
    config.reserve_superpages = (unsigned)(superpages * RESERVE_PERCENT / 100);
    held = calloc(superpages, sizeof *held);
    if (!held) load_fail("no memory");
    uint64_t begun = load_clock_ns();
    place = place_open(&config, &load_events, &load);
    load_begin(&load, place, config.frames, highalloc, SEED);

    printf("{\"superpages\": %" PRIu64, superpages);
    load_run(&load, warm_s);
    load_fill(&load);
    load_run(&load, warm_s / 2);
    place_check(place);
    print_map("map_before");
    struct place_counters before = place_count(place);
    if (highalloc)
        ask_at_rate();
    else
        ask_in_bursts();
    struct place_counters after = place_count(place);
    uint64_t under_load = held_count;
    place_check(place);
    release();

    load_run(&load, warm_s);
    load_fill(&load);
    load_run(&load, warm_s / 2);
    print_map("map_loaded");
    load_rest(&load);
    double at_rest_from = load.now_ns;
    ask_at_rest();
    uint64_t at_rest = held_count;
    print_map("map_rest");
    place_check(place);
    uint64_t verified = load_verify(&load);
    release();
    load_end(&load);
    place_check(place);
    struct place_counters end = place_count(place);
    if (end.free_frames != config.frames) load_fail("frames were lost");
    place_close(place);

    printf(", \"under_load\": %" PRIu64 ", \"at_rest\": %" PRIu64 ", \"attempts\": %" PRIu64 ", \"rest_s\": %.3f", under_load, at_rest,
           delays.attempts, (load.now_ns - at_rest_from) / 1e9);
    printf(", \"mean_ms\": %.4f, \"deviation_ms\": %.4f, \"worst_ms\": %.4f, \"asking_ms\": %.4f, \"asking_worst_ms\": %.4f", mean_of(delays.sum_ms),
           deviation(), delays.worst_ms, mean_of(delays.asking_ms), delays.asking_worst_ms);
    printf(", \"scanned\": %" PRIu64 ", \"unmapped\": %" PRIu64 ", \"written\": %" PRIu64 ", \"moved\": %" PRIu64 ", \"not_moved\": %" PRIu64,
           after.scanned - before.scanned, after.unmapped - before.unmapped, after.written - before.written, after.moved - before.moved,
           after.move_failed - before.move_failed);
    printf(", \"fallbacks\": %" PRIu64 ", \"retyped\": %" PRIu64 ", \"unusable_3\": %.4f, \"unusable_9\": %.4f", after.fallbacks, after.retyped,
           before.unusable_order_3, before.unusable_order_9);
    printf(", \"areas_good\": %" PRIu64 ", \"areas_emptied\": %" PRIu64 ", \"areas_raced\": %" PRIu64, areas.good, areas.emptied, areas.raced);
    printf(", \"captured\": %" PRIu64 ", \"races_lost\": %" PRIu64 ", \"frames_lost\": %" PRIu64, end.captured, end.races_lost, load.totals.lost);
    printf(", \"steps\": %" PRIu64 ", \"allocations\": %" PRIu64 ", \"failures\": %" PRIu64 ", \"killed\": %" PRIu64 ", \"swapped_out\": %" PRIu64,
           load.totals.steps, load.totals.allocations, load.totals.failures, load.totals.killed, load.totals.swapped_out);
    printf(", \"pages_moved\": %" PRIu64, load.totals.moved);
    printf(", \"dropped\": %" PRIu64 ", \"busy\": %" PRIu64 ", \"verified\": %" PRIu64 ", \"at_end\": %" PRIu64, load.totals.dropped,
           load.totals.busy, load.totals.verified, verified);
    printf(", \"delays\": [");
    for (uint64_t i = 0; i < delays.count && i < DELAYS_MAX; i++)
        printf("%s[%.3f, %.4f, %.4f]", i ? ", " : "", (double)delays.at_s[i], (double)delays.ms[i], (double)delays.asked_ms[i]);
    printf("], \"wall_s\": %.2f}\n", (double)(load_clock_ns() - begun) / 1e9);
    free(held);
    return fflush(stdout) ? 2 : 0;
}
