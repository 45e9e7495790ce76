/*
 * contiguity_large.c - experiment: a zone of up to terabytes, without memory behind its frames: what its metadata cost, and how long its calls take.
 *
 *     contiguity_large GIB
 *
 * Low fill: a sixteenth of the zone is allocated page by page, of all mobilities mixed, and three of four pages at random freed again; then the
 * indices are computed, superpages and runs of 1 GiB asked for, and one pass compacts. Full: all that is left is filled by movable blocks of 64
 * frames, of which one in each superpage is freed again, and superpages are captured until none can be had any more: each has to be chosen among all,
 * and emptied into the holes of others, so that at best all that is free becomes superpages. Reports what each step took of the processor. Ends with
 * an error where the zone finds itself wrong or a page or block does not hold its word. One thread.
 */
#include <inttypes.h>
#include <stdio.h>
#include <strata/zone.h>
#include <strata/zone_compact.h>
#include <time.h>

#include "load.h"

#define SEED 23
#define FRAMES_A_GIB (UINT64_C(1) << 18)
#define FILL_SHARE 16u
#define SUPERPAGE_FRAMES 512u
#define BLOCK_FRAMES 64u
#define GONE UINT32_MAX
#define SUPERPAGES_ASKED 64u
#define RUNS_ASKED 4u
#define FIRST_CAPTURES 16u /* while almost all ranges will do */

static struct strata_zone *zone;
static uint32_t *frame_of; /* of pages, then of blocks, by token */

static uint64_t word_of(uint64_t token) { return (token + 1) * UINT64_C(0x9e3779b97f4a7c15); }

static enum strata_zone_answer migrate(struct strata_zone *of, uint64_t from, uint64_t to, uint64_t frames, uint64_t token, void *context) {
    (void)context;
    if (frame_of[token] != from || strata_zone_copy(of, from, to, frames) != STRATA_ZONE_OK) load_fail("a page can't be moved");
    frame_of[token] = (uint32_t)to;
    return STRATA_ZONE_YES;
}

static void must(enum strata_zone_status status, const char *what) {
    if (status != STRATA_ZONE_OK) load_fail(what);
}

static void make(uint64_t token, unsigned frames, enum strata_zone_mobility mobility, unsigned owner) {
    const struct strata_zone_request request = {.frames = frames,
                                                .mobility = mobility,
                                                .owner = mobility == STRATA_ZONE_UNMOVABLE ? 0 : owner,
                                                .flags = STRATA_ZONE_NO_EFFORT,
                                                .token = token};
    uint64_t frame;
    frame_of[token] = GONE;
    if (strata_zone_alloc_as(zone, &request, &frame) != STRATA_ZONE_OK) return;
    frame_of[token] = (uint32_t)frame;
    strata_zone_poke(zone, frame, word_of(token));
}

static void drop(uint64_t token, unsigned frames) {
    if (strata_zone_peek(zone, frame_of[token]) != word_of(token)) load_fail("a page does not hold its word");
    must(strata_zone_free(zone, frame_of[token], frames), "strata_zone_free");
    frame_of[token] = GONE;
}

/* What a step took of the processor, since the last call: ns for each of so many. */
static double lap_ns(uint64_t count) {
    static uint64_t last;
    struct timespec clock;
    if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &clock) != 0) load_fail("no clock");
    uint64_t now = (uint64_t)clock.tv_sec * 1000000000u + (uint64_t)clock.tv_nsec, took = now - last;
    last = now;
    return (double)took / (double)(count != 0 ? count : 1);
}

/* Runs of so many frames, which are given back. Returns how many were had. */
static unsigned ask(uint64_t frames, unsigned count) {
    uint64_t had[SUPERPAGES_ASKED];
    unsigned got = 0;
    while (got < count && strata_zone_alloc(zone, frames, STRATA_ZONE_UNMOVABLE, &had[got]) == STRATA_ZONE_OK) got++;
    for (unsigned i = 0; i < got; i++) must(strata_zone_free(zone, had[i], frames), "strata_zone_free");
    return got;
}

int main(int argc, char **argv) {
    uint64_t gib = argc == 2 ? strtoul(argv[1], NULL, 10) : 0, frames = gib * FRAMES_A_GIB;
    if (gib == 0 || gib > 4096) load_fail("usage: contiguity_large GIB; 1 to 4096");
    const struct strata_zone_config config = {.name = "large", .backend = STRATA_ZONE_SIM, .bytes = gib << 30, .frame_bytes = 4096, .cpus = 1};
    const struct strata_zone_owner program = {.name = "load", .migrate = migrate};
    struct rng rng = rng_seed(SEED);
    uint64_t pages = frames / FILL_SHARE, kept = 0;
    unsigned owner;
    frame_of = malloc((frames / BLOCK_FRAMES > pages ? frames / BLOCK_FRAMES : pages) * sizeof *frame_of);
    if (!frame_of) load_fail("no memory");

    (void)lap_ns(1);
    must(strata_zone_create(&config, &zone), "strata_zone_create");
    printf("{\"create_ms\": %.3f", lap_ns(1000000));
    must(strata_zone_owner_add(zone, &program, &owner), "strata_zone_owner_add");
    for (uint64_t page = 0; page < pages; page++) {
        uint64_t kind = rng_below(&rng, 100);
        make(page, 1, kind < 4 ? STRATA_ZONE_UNMOVABLE : kind < 10 ? STRATA_ZONE_RECLAIMABLE : STRATA_ZONE_MOVABLE, owner);
    }
    printf(", \"alloc_ns\": %.1f", lap_ns(pages));
    for (uint64_t page = 0; page < pages; page++) {
        if (rng_below(&rng, 4) != 0)
            drop(page, 1);
        else
            kept++;
    }
    printf(", \"free_ns\": %.1f", lap_ns(pages - kept));

    struct strata_zone_indices before, after;
    struct strata_zone_stats stats;
    must(strata_zone_indices_get(zone, 9, &before), "strata_zone_indices_get");
    printf(", \"indices_ms\": %.3f", lap_ns(1000000));
    unsigned superpages = ask(SUPERPAGE_FRAMES, SUPERPAGES_ASKED);
    printf(", \"superpages\": %u, \"superpage_us\": %.2f", superpages, lap_ns(UINT64_C(1000) * SUPERPAGES_ASKED));
    unsigned runs = ask(FRAMES_A_GIB, gib / 2 < RUNS_ASKED ? (unsigned)(gib / 2) : RUNS_ASKED);
    printf(", \"runs\": %u, \"run_us\": %.2f", runs, lap_ns(UINT64_C(1000) * (runs != 0 ? runs : 1)));
    must(strata_zone_compact(zone, 9, NULL), "strata_zone_compact");
    double compact_ms = lap_ns(1000000);
    struct strata_zone_compact_stats compact;
    must(strata_zone_compact_stats_get(zone, &compact), "strata_zone_compact_stats_get");
    must(strata_zone_indices_get(zone, 9, &after), "strata_zone_indices_get");
    must(strata_zone_stats_get(zone, &stats), "strata_zone_stats_get");
    printf(", \"kept\": %" PRIu64 ", \"moved\": %" PRIu64 ", \"compact_ms\": %.1f, \"unusable\": [%.5f, %.5f]", kept, compact.counts.moved,
           compact_ms, before.unusable, after.unusable);
    printf(", \"metadata_bytes_a_frame\": %.2f, \"free_superpages\": %" PRIu64, (double)stats.metadata_bytes / (double)frames, stats.free_superpages);
    const char *wrong = strata_zone_check(zone);
    if (wrong) load_fail(wrong);
    for (uint64_t page = 0; page < pages; page++)
        if (frame_of[page] != GONE) drop(page, 1);

    uint64_t blocks = frames / BLOCK_FRAMES, a_superpage = SUPERPAGE_FRAMES / BLOCK_FRAMES;
    for (uint64_t block = 0; block < blocks; block++) make(block, BLOCK_FRAMES, STRATA_ZONE_MOVABLE, owner);
    for (uint64_t first = 0; first < blocks; first += a_superpage) drop(first + rng_below(&rng, a_superpage), BLOCK_FRAMES);
    must(strata_zone_stats_get(zone, &stats), "strata_zone_stats_get");
    (void)lap_ns(1);
    uint64_t possible = stats.free / SUPERPAGE_FRAMES, captures = 0;
    double first_us = 0;
    for (uint64_t frame;; captures++) {
        const struct strata_zone_capture_request request = {.frames = SUPERPAGE_FRAMES, .mobility = STRATA_ZONE_UNMOVABLE};
        enum strata_zone_status status = strata_zone_capture_run(zone, &request, &frame);
        if (status == STRATA_ZONE_NO_FRAMES) break;
        must(status, "strata_zone_capture_run");
        if (captures + 1 == FIRST_CAPTURES) first_us = lap_ns(UINT64_C(1000) * FIRST_CAPTURES);
    }
    double rest_us = lap_ns(1000 * (captures > FIRST_CAPTURES ? captures - FIRST_CAPTURES : 1));
    wrong = strata_zone_check(zone);
    if (wrong) load_fail(wrong);
    uint64_t checked = 0;
    for (uint64_t block = 0; block < blocks; block++) {
        if (frame_of[block] == GONE) continue;
        if (strata_zone_peek(zone, frame_of[block]) != word_of(block)) load_fail("a block does not hold its word");
        checked++;
    }
    printf(", \"possible\": %" PRIu64 ", \"captures\": %" PRIu64 ", \"capture_us\": %.1f, \"capture_rest_us\": %.1f, \"checked\": %" PRIu64 "}\n",
           possible, captures, first_us, rest_us, checked);
    must(strata_zone_destroy(zone), "strata_zone_destroy");
    free(frame_of);
    return fflush(stdout) ? 2 : 0;
}
