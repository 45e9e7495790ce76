/*
 * sim_vma.c - which mappings the simulated address space consists of, counted as Linux counts them.
 *
 * A sorted array of disjoint mappings. Invariants: neighbours that touch differ in an attribute, so that the length of the array is
 * the process's map count; and it never exceeds sim_config.map_count_limit, but for unmapping, which must always succeed.
 *
 * Every change rewrites the mappings around a range into `scratch`, merging as it goes, and puts them in place only when the
 * count allows: a refused change leaves no trace.
 */
#include <string.h>

#include "platform/sim/sim_internal.h"

#define VMAS_MAX ((uint64_t)1 << 20)

static struct sim_vma *vmas;    /* the mappings */
static struct sim_vma *scratch; /* of the change under way */
static struct sim_vma *moved;   /* pieces on their way to another address */
static uint64_t count;
static uint64_t scratch_count;

void sim_vma_reset(void) {
    if (vmas == NULL) {
        vmas = sim_table_map(VMAS_MAX * sizeof *vmas);
        scratch = sim_table_map(VMAS_MAX * sizeof *scratch);
        moved = sim_table_map(VMAS_MAX * sizeof *moved);
    }
    count = 0;
}

const struct sim_vma *sim_vma_at(uint64_t i) { return i < count ? &vmas[i] : NULL; }
uint64_t sim_mappings(void) { return count; }

/* The first mapping that ends above `page`. */
static uint64_t first_ending_above(uint64_t page) {
    uint64_t low = 0, high = count;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (vmas[middle].end_page > page)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

bool sim_vma_covers(uint64_t start_page, uint64_t end_page, bool committed) {
    for (uint64_t i = first_ending_above(start_page); start_page < end_page; i++) {
        if (i == count || vmas[i].start_page > start_page) return false;
        if (committed && !vmas[i].committed) return false;
        start_page = vmas[i].end_page;
    }
    return true;
}

bool sim_vma_is_one(uint64_t start_page, uint64_t end_page) {
    uint64_t i = first_ending_above(start_page);
    return i != count && vmas[i].start_page <= start_page && end_page <= vmas[i].end_page;
}

bool sim_vma_free(uint64_t start_page, uint64_t end_page) {
    uint64_t i = first_ending_above(start_page);
    return i == count || vmas[i].start_page >= end_page;
}

uint64_t sim_vma_find(uint64_t pages, uint64_t align_pages, uint64_t phase_pages, uint64_t limit_page) {
    uint64_t low = 0;
    for (uint64_t i = 0;; i++) {
        uint64_t high = i < count ? vmas[i].start_page : limit_page;
        uint64_t at = low <= phase_pages ? phase_pages : align_up(low - phase_pages, align_pages) + phase_pages;
        if (at < high && high - at >= pages) return at;
        if (i == count) return UINT64_MAX;
        low = vmas[i].end_page;
    }
}

/* ------------------------------------------------------------------ rewriting */

static bool merges(const struct sim_vma *low, const struct sim_vma *high) {
    return low->end_page == high->start_page && low->origin_pages == high->origin_pages && low->committed == high->committed &&
           low->huge == high->huge;
}

static void put(struct sim_vma vma) {
    if (vma.start_page == vma.end_page) return;
    if (scratch_count != 0 && merges(&scratch[scratch_count - 1], &vma)) {
        scratch[scratch_count - 1].end_page = vma.end_page;
        return;
    }
    if (scratch_count == VMAS_MAX) fatal("sim: more than %llu mappings in one change", (unsigned long long)VMAS_MAX);
    scratch[scratch_count++] = vma;
}

static struct sim_vma clip(struct sim_vma vma, uint64_t start_page, uint64_t end_page) {
    vma.start_page = max_u64(vma.start_page, start_page);
    vma.end_page = min_u64(vma.end_page, end_page);
    if (vma.start_page > vma.end_page) vma.end_page = vma.start_page;
    return vma;
}

/* What of the old mappings takes part in a change of a range: those that overlap or touch it. */
struct affected {
    uint64_t first;
    uint64_t end;
};

static struct affected begin_change(uint64_t start_page, uint64_t end_page) {
    struct affected affected;
    scratch_count = 0;
    affected.first = start_page == 0 ? 0 : first_ending_above(start_page - 1);
    affected.end = affected.first;
    while (affected.end < count && vmas[affected.end].start_page <= end_page) affected.end++;
    return affected;
}

static void put_below(struct affected affected, uint64_t start_page) {
    for (uint64_t i = affected.first; i < affected.end; i++) put(clip(vmas[i], 0, start_page));
}

static void put_above(struct affected affected, uint64_t end_page) {
    for (uint64_t i = affected.first; i < affected.end; i++) put(clip(vmas[i], end_page, UINT64_MAX));
}

static bool finish_change(struct affected affected, bool always) {
    uint64_t new_count = count - (affected.end - affected.first) + scratch_count;
    if (new_count > sim_config.map_count_limit && new_count > count && !always) return false;
    if (new_count > VMAS_MAX) fatal("sim: more than %llu mappings", (unsigned long long)VMAS_MAX);
    memmove(&vmas[affected.first + scratch_count], &vmas[affected.end], (count - affected.end) * sizeof *vmas);
    memcpy(&vmas[affected.first], scratch, scratch_count * sizeof *vmas);
    count = new_count;
    return true;
}

/* ------------------------------------------------------------------ the changes */

bool sim_vma_map(uint64_t start_page, uint64_t end_page) {
    struct affected affected = begin_change(start_page, end_page);
    put_below(affected, start_page);
    put((struct sim_vma){.start_page = start_page, .end_page = end_page});
    put_above(affected, end_page);
    return finish_change(affected, false);
}

void sim_vma_unmap(uint64_t start_page, uint64_t end_page) {
    struct affected affected = begin_change(start_page, end_page);
    put_below(affected, start_page);
    put_above(affected, end_page);
    finish_change(affected, true);
}

bool sim_vma_change(uint64_t start_page, uint64_t end_page, enum sim_vma_change change) {
    struct affected affected = begin_change(start_page, end_page);
    put_below(affected, start_page);
    for (uint64_t i = affected.first; i < affected.end; i++) {
        struct sim_vma vma = clip(vmas[i], start_page, end_page);
        switch (change) {
        case SIM_VMA_COMMIT: vma.committed = true; break;
        case SIM_VMA_HUGE_ON: vma.huge = 1; break;
        case SIM_VMA_HUGE_OFF: vma.huge = -1; break;
        }
        put(vma);
    }
    put_above(affected, end_page);
    return finish_change(affected, false);
}

bool sim_vma_restore(uint64_t start_page, uint64_t end_page) {
    struct affected affected = begin_change(start_page, end_page);
    put_below(affected, start_page);
    put((struct sim_vma){.start_page = start_page, .end_page = end_page, .committed = true});
    put_above(affected, end_page);
    return finish_change(affected, false);
}

bool sim_vma_move(uint64_t from_page, uint64_t to_page, uint64_t pages) {
    uint64_t pieces = 0;
    for (uint64_t i = first_ending_above(from_page); i < count && vmas[i].start_page < from_page + pages; i++) {
        struct sim_vma piece = clip(vmas[i], from_page, from_page + pages);
        piece.origin_pages += (int64_t)(from_page - to_page);
        piece.start_page += to_page - from_page;
        piece.end_page += to_page - from_page;
        moved[pieces++] = piece;
    }
    struct affected affected = begin_change(to_page, to_page + pages);
    put_below(affected, to_page);
    for (uint64_t i = 0; i < pieces; i++) put(moved[i]);
    put_above(affected, to_page + pages);
    return finish_change(affected, false);
}
