/*
 * model_zone_moves_reference.h - the reference of model_zone_moves.c: a list of blocks, and all that must hold of a zone, computed from it frame by
 * frame.
 */
#ifndef STRATA_TESTS_MODEL_ZONE_MOVES_REFERENCE_H
#define STRATA_TESTS_MODEL_ZONE_MOVES_REFERENCE_H

#include "model.h"
#include "page/frames_internal.h"
#include "strata/handle.h"
#include "strata/zone_compact.h"
#include "strata/zone_reclaim.h"

enum { SUPERPAGE_FRAMES = 32, FRAMES_LIMIT = 6 * SUPERPAGE_FRAMES, ORDERS = 9, NONE = FRAMES_LIMIT };
#define FRAME_BYTES (64 * KIB)

enum kind { NO_BLOCK, FIXED, OWNED, HANDLED };
struct block {
    enum kind kind;
    enum strata_zone_mobility mobility;
    uint64_t frame, frames, tag;
    strata_handle handle;
    unsigned pins;           /* by the zone's functions, of the whole block */
    unsigned locks, readers; /* by the handle's */
    bool writing;
    uint64_t never;      /* the operation in which its owner has said so, to one question or both; 0: it hasn't */
    unsigned moves;      /* in this operation */
    unsigned moves_told; /* of a handle, since it was made */
};
static struct {
    struct block blocks[FRAMES_LIMIT];
    unsigned at[FRAMES_LIMIT]; /* the block of a frame, or NONE */
    uint64_t frames, superpages, tags, handle_count;
    struct strata_zone_capture *capture;
    uint64_t capture_first, capture_frames;
    enum strata_zone_mobility capture_mobility;
    enum strata_zone_answer moves, drops; /* what the owner answers now */
    unsigned frees;                       /* a block that goes while another is asked about, or NONE */
    strata_handle freed;                  /* the last one */
    uint64_t lowest_target, highest_source, moved, moved_others, moved_frames;
    bool grouped, freed_meanwhile;
} ref;
static struct strata_zone *zone;
static struct strata_handles *handles;
static struct model *model;
static unsigned owner;

/* ------------------------------------------------------------------ blocks */

static uint64_t *word_of(uint64_t frame, bool last) {
    char *address = strata_zone_address(zone, frame);
    return (uint64_t *)(void *)(last ? address + FRAME_BYTES - sizeof(uint64_t) : address);
}
static void write_contents(struct block *block) {
    block->tag = ++ref.tags;
    for (uint64_t i = 0; i < block->frames; i++) {
        *word_of(block->frame + i, false) = block->tag << 8 | i;
        *word_of(block->frame + i, true) = ~(block->tag << 8 | i);
    }
}
static bool has_contents(const struct block *block) {
    for (uint64_t i = 0; i < block->frames; i++)
        if (*word_of(block->frame + i, false) != (block->tag << 8 | i) || *word_of(block->frame + i, true) != ~(block->tag << 8 | i)) return false;
    return true;
}
static bool is_held(const struct block *block) { return block->pins != 0 || block->locks != 0 || block->readers != 0 || block->writing; }

static unsigned new_block(void) {
    unsigned i = 0;
    while (ref.blocks[i].kind != NO_BLOCK) i++; /* there are as many as frames */
    return i;
}
/* A block from `from` on that is of the kind; NONE: there is none. NO_BLOCK: any. */
static unsigned pick(unsigned from, enum kind kind) {
    for (unsigned i = 0; i < ref.frames; i++) {
        const struct block *block = &ref.blocks[(from + i) % ref.frames];
        if (block->kind != NO_BLOCK && (kind == NO_BLOCK || block->kind == kind)) return (from + i) % (unsigned)ref.frames;
    }
    return NONE;
}

/* A block has been found elsewhere. */
static void note_move(struct block *block, uint64_t to) {
    uint64_t from = block->frame;
    MODEL_EXPECT(model, !is_held(block), "the block at %llu is held, and was moved", (unsigned long long)from);
    ref.moved++;
    ref.moved_others += block->mobility != STRATA_ZONE_MOVABLE;
    ref.moved_frames += block->frames;
    block->moves++;
    ref.highest_source = max_u64(ref.highest_source, from / SUPERPAGE_FRAMES);
    ref.lowest_target = min_u64(ref.lowest_target, to / SUPERPAGE_FRAMES);
    block->frame = to;
}

static void forget(unsigned which) { ref.blocks[which] = (struct block){.kind = NO_BLOCK}; }

/* ------------------------------------------------------------------ from scratch */

/* The blocks of handles where they are now, and the map of frames. */
static void look(void) {
    for (uint64_t i = 0; i < ref.frames; i++) ref.at[i] = NONE;
    for (unsigned which = 0; which < ref.frames && !model->failed; which++) {
        struct block *block = &ref.blocks[which];
        struct strata_handle_info info;
        if (block->kind == HANDLED && !block->writing) { /* which would wait for itself */
            MODEL_EXPECT(model, strata_handle_query(handles, block->handle, &info) == STRATA_HANDLE_OK, "a handle is lost");
            MODEL_EXPECT(model,
                         info.bytes == block->frames * FRAME_BYTES && info.locks == block->locks && info.readers == block->readers && !info.moving,
                         "a handle's block has other bounds or holders");
            unsigned more = info.moves - block->moves_told;
            MODEL_EXPECT(model, more != 0 || info.frame == block->frame, "a handle's block has gone elsewhere, and was not moved");
            for (; block->moves_told != info.moves; block->moves_told++) note_move(block, info.frame);
        }
        for (uint64_t i = block->frame; block->kind != NO_BLOCK && i < block->frame + block->frames; i++) {
            MODEL_EXPECT(model, i < ref.frames && ref.at[i] == NONE, "frame %llu is two blocks'", (unsigned long long)i);
            if (i < ref.frames) ref.at[i] = which;
        }
        if (block->kind != NO_BLOCK)
            MODEL_EXPECT(model, has_contents(block), "the block at %llu has other contents", (unsigned long long)block->frame);
    }
}

static bool is_captured(uint64_t frame) {
    return ref.capture != NULL && ref.at[frame] == NONE && frame >= ref.capture_first && frame < ref.capture_first + ref.capture_frames;
}
static bool is_free(uint64_t frame) { return ref.at[frame] == NONE && !is_captured(frame); }

static void check_frames(void) {
    for (uint64_t frame = 0; frame < ref.frames && !model->failed; frame++) {
        const struct block *block = ref.at[frame] != NONE ? &ref.blocks[ref.at[frame]] : NULL;
        struct strata_zone_frame_info info;
        MODEL_EXPECT(model, strata_zone_query(zone, frame, &info) == STRATA_ZONE_OK && !info.moving, "query");
        MODEL_EXPECT(model, info.allocated == (block != NULL) && info.captured == is_captured(frame),
                     "frame %llu is free, used or captured, and should not be", (unsigned long long)frame);
        if (block == NULL || model->failed) continue;
        MODEL_EXPECT(model, info.first == block->frame && info.frames == block->frames && info.mobility == block->mobility,
                     "the block of frame %llu is %llu + %llu of mobility %d", (unsigned long long)frame, (unsigned long long)info.first,
                     (unsigned long long)info.frames, info.mobility);
        MODEL_EXPECT(model, info.pins == block->pins + block->locks, "frame %llu has %u pins", (unsigned long long)frame, info.pins);
    }
}

/* Free frames of superpages that count, as the largest aligned blocks. */
static uint64_t count_blocks(const bool *counts, uint64_t blocks[ORDERS]) {
    uint64_t total = 0;
    memset(blocks, 0, ORDERS * sizeof *blocks);
    for (uint64_t frame = 0; frame < ref.frames;) {
        unsigned order = ORDERS;
        for (bool fits = false; !fits && order-- != 0;) {
            uint64_t size = UINT64_C(1) << order;
            fits = frame % size == 0 && frame + size <= ref.frames;
            for (uint64_t i = frame; fits && i < frame + size; i++) fits = is_free(i) && counts[i / SUPERPAGE_FRAMES];
            if (!fits && order == 0) break;
        }
        bool free = is_free(frame) && counts[frame / SUPERPAGE_FRAMES];
        if (free) blocks[order]++, total += UINT64_C(1) << order;
        frame += free ? UINT64_C(1) << order : 1;
    }
    return total;
}
static double fragmentation(const uint64_t blocks[ORDERS], uint64_t total, unsigned order) {
    uint64_t all = 0;
    for (unsigned i = 0; i < ORDERS; i++) all += blocks[i];
    return all == 0 ? 0 : 1 - ((double)total / (double)(1u << order)) / (double)all;
}
static double unusable(const uint64_t blocks[ORDERS], uint64_t total, unsigned order) {
    uint64_t usable = 0;
    for (unsigned i = order; i < ORDERS; i++) usable += blocks[i] << i;
    return total == 0 ? 1 : (double)(total - usable) / (double)total;
}
static bool near(double a, double b) { return a - b < 1e-9 && b - a < 1e-9; }

/* Of a superpage that no CPU has reserved: the list that its free frames put it into; FRAMES_NO_LIST. */
static unsigned list_of(uint64_t superpage) {
    unsigned free = 0, largest = 0;
    for (uint64_t i = superpage * SUPERPAGE_FRAMES; i < (superpage + 1) * SUPERPAGE_FRAMES; i++) free += is_free(i);
    if (free == 0 || free == SUPERPAGE_FRAMES) return FRAMES_NO_LIST;
    for (unsigned order = 0; 1u << order < SUPERPAGE_FRAMES; order++)
        for (unsigned first = 0; first < SUPERPAGE_FRAMES; first += 1u << order) {
            bool all = true;
            for (unsigned i = first; i < first + (1u << order); i++) all &= is_free(superpage * SUPERPAGE_FRAMES + i);
            if (all) largest = order;
        }
    unsigned sixth = (free * 6 - 1) / SUPERPAGE_FRAMES; /* 0: up to a sixth is free */
    return sixth * 10 + largest;
}
static void check_lists(void) {
    const struct frame_zone *inner = (struct frame_zone *)(void *)zone;
    unsigned found[FRAMES_LIMIT / SUPERPAGE_FRAMES], seen = 0;
    for (uint64_t s = 0; s < ref.superpages; s++) found[s] = FRAMES_NO_LIST;
    for (unsigned set = 0; set < FRAMES_SETS; set++)
        for (unsigned list = 0; list < FRAMES_LISTS; list++)
            for (uint32_t s = inner->lists[set][list]; s != FRAMES_NO_SUPERPAGE && seen++ < FRAMES_LIMIT; s = inner->superpages[s].next)
                found[s] = list;
    for (uint64_t s = 0; s < ref.superpages; s++) {
        unsigned expected = inner->superpages[s].slot != FRAMES_NO_SLOT ? FRAMES_NO_LIST : list_of(s);
        MODEL_EXPECT(model, found[s] == expected, "superpage %llu is in list %u in place of %u", (unsigned long long)s, found[s], expected);
    }
}

static void check_figures(void) {
    struct strata_zone_stats stats;
    struct strata_zone_superpage map[FRAMES_LIMIT / SUPERPAGE_FRAMES];
    bool all[FRAMES_LIMIT / SUPERPAGE_FRAMES], movable[FRAMES_LIMIT / SUPERPAGE_FRAMES];
    uint64_t used[STRATA_ZONE_MOBILITIES] = {0}, pinned = 0, captured = 0, blocks[ORDERS], movable_blocks[ORDERS];
    MODEL_EXPECT(model, strata_zone_stats_get(zone, &stats) == STRATA_ZONE_OK, "no figures");
    MODEL_EXPECT(model, strata_zone_map_get(zone, 0, ref.superpages, map) == STRATA_ZONE_OK, "no map");
    for (uint64_t frame = 0; frame < ref.frames; frame++) {
        const struct block *block = ref.at[frame] != NONE ? &ref.blocks[ref.at[frame]] : NULL;
        captured += is_captured(frame);
        if (block == NULL) continue;
        used[block->mobility]++;
        pinned += block->pins + block->locks != 0;
        MODEL_EXPECT(model, block->mobility != STRATA_ZONE_UNMOVABLE || !map[frame / SUPERPAGE_FRAMES].partition,
                     "frame %llu is unmovable, in the partition", (unsigned long long)frame);
    }
    for (uint64_t s = 0; s < ref.superpages; s++) {
        all[s] = true;
        movable[s] = !ref.grouped || map[s].group == STRATA_ZONE_MOVABLE || map[s].group == STRATA_ZONE_MOBILITIES;
    }
    uint64_t free = count_blocks(all, blocks), movable_free = count_blocks(movable, movable_blocks);
    MODEL_EXPECT(model, stats.free == free && stats.captured == captured && stats.pinned == pinned && stats.moving == 0, "frames are miscounted");
    MODEL_EXPECT(model, free + captured + used[0] + used[1] + used[2] == ref.frames, "frames are lost");
    for (unsigned m = 0; m < STRATA_ZONE_MOBILITIES; m++) MODEL_EXPECT(model, stats.used[m] == used[m], "frames of mobility %u are miscounted", m);
    for (unsigned order = 0; order < ORDERS; order++) {
        struct strata_zone_indices indices;
        MODEL_EXPECT(model, stats.free_blocks[order] == blocks[order], "free blocks of order %u: %llu in place of %llu", order,
                     (unsigned long long)stats.free_blocks[order], (unsigned long long)blocks[order]);
        MODEL_EXPECT(model, strata_zone_indices_get(zone, order, &indices) == STRATA_ZONE_OK, "no indices");
        MODEL_EXPECT(model,
                     near(indices.fragmentation, fragmentation(blocks, free, order)) && near(indices.unusable, unusable(blocks, free, order)) &&
                         near(indices.movable_fragmentation, fragmentation(movable_blocks, movable_free, order)),
                     "order %u: the indices are not their definitions", order);
    }
}

static void check_all(void) {
    look();
    check_frames();
    if (!model->failed) check_figures();
    if (!model->failed) check_lists();
    const char *broken = strata_zone_check(zone);
    if (broken == NULL) broken = strata_handles_check(handles);
    if (broken == NULL) broken = strata_zone_reclaim_check(zone);
    MODEL_EXPECT(model, broken == NULL, "%s", broken);
}

#endif
