/*
 * contiguity_tlb.c - experiment: section 1 of the contiguity paper. What superpages save in translations: random reads over superpages of a zone.
 *
 *     contiguity_tlb super|base MIB READS
 *
 * MIB of superpages are taken from a zone of anonymous memory, for which the system is asked for huge pages, or for none. Then READS reads of random
 * cache lines, each of which waits for the one before it. Reports ns a read, ns to make a page of 4 KiB present, and the share of the memory that is
 * in huge pages. One thread.
 */
#include <inttypes.h>
#include <stdio.h>
#include <sys/mman.h>

#include <strata/zone.h>

#include "load.h"

#define SEED 3

/* Of [address, address + bytes), in huge pages. */
static uint64_t huge_bytes(const char *address, uint64_t bytes) {
    FILE *file = fopen("/proc/self/smaps", "r");
    if (!file) load_fail("/proc/self/smaps can't be read");
    char line[512];
    uint64_t found = 0, begin, end, kib;
    bool inside = false;
    while (fgets(line, sizeof line, file)) {
        if (sscanf(line, "%" SCNx64 "-%" SCNx64 " ", &begin, &end) == 2)
            inside = begin < (uintptr_t)address + bytes && end > (uintptr_t)address;
        else if (inside && sscanf(line, "AnonHugePages: %" SCNu64, &kib) == 1)
            found += kib * KIB;
    }
    fclose(file);
    return found;
}

int main(int argc, char **argv) {
    bool super = argc == 4 && strcmp(argv[1], "super") == 0;
    uint64_t mib = argc == 4 ? strtoul(argv[2], NULL, 10) : 0, reads = argc == 4 ? strtoul(argv[3], NULL, 10) : 0;
    if ((!super && (argc != 4 || strcmp(argv[1], "base") != 0)) || mib < 2 || mib % 2 || !reads) {
        load_fail("usage: contiguity_tlb super|base MIB READS; MIB even");
    }
    struct strata_zone *zone;
    const struct strata_zone_config config = {.name = "tlb", .backend = STRATA_ZONE_ANON, .bytes = mib * MIB};
    if (strata_zone_create(&config, &zone) != STRATA_ZONE_OK) load_fail("no zone");
    uint64_t superpages = mib / 2, frames = STRATA_ZONE_SUPERPAGE_BYTES / strata_zone_frame_bytes(zone);
    char **at = calloc(superpages, sizeof *at), *all = strata_zone_address(zone, 0);
    if (!at || !all) load_fail("no memory");
    if (madvise(all, mib * MIB, super ? MADV_HUGEPAGE : MADV_NOHUGEPAGE) != 0) load_fail("madvise was refused");

    uint64_t begun = load_clock_ns();
    for (uint64_t i = 0; i < superpages; i++) {
        uint64_t frame;
        if (strata_zone_alloc(zone, frames, STRATA_ZONE_UNMOVABLE, &frame) != STRATA_ZONE_OK || frame % frames != 0)
            load_fail("a superpage is missing");
        at[i] = strata_zone_address(zone, frame);
        for (size_t offset = 0; offset < STRATA_ZONE_SUPERPAGE_BYTES; offset += CACHE_LINE_BYTES) *(uint64_t *)(void *)(at[i] + offset) = i + offset;
    }
    double present_ns = (double)(load_clock_ns() - begun) / (double)(mib * MIB / 4096);
    uint64_t huge = huge_bytes(all, mib * MIB);

    struct rng rng = rng_seed(SEED);
    uint64_t lines = STRATA_ZONE_SUPERPAGE_BYTES / CACHE_LINE_BYTES, wrong = 0, word = 0;
    begun = load_clock_ns();
    for (uint64_t i = 0; i < reads; i++) {
        rng.state ^= word & 1; /* what was read decides what is read next */
        uint64_t superpage = rng_below(&rng, superpages), offset = rng_below(&rng, lines) * CACHE_LINE_BYTES;
        word = *(const uint64_t *)(const void *)(at[superpage] + offset);
        wrong += word != superpage + offset;
    }
    double read_ns = (double)(load_clock_ns() - begun) / (double)reads;
    if (wrong) load_fail("a line does not hold what was written to it");
    printf("{\"read_ns\": %.3f, \"present_ns\": %.1f, \"huge_share\": %.4f}\n", read_ns, present_ns, (double)huge / (double)(mib * MIB));
    if (strata_zone_destroy(zone) != STRATA_ZONE_OK) load_fail("the zone can't be destroyed");
    free(at);
    return fflush(stdout) ? 2 : 0;
}
