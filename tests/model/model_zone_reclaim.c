/*
 * model_zone_reclaim.c - model runner of reclaim in zones: the order in which blocks go, against two plain lists.
 *
 * A zone without memory of 4 superpages with 32 frames each. The reference keeps the active and the inactive list as arrays, oldest first, and a bit
 * "used" and "dirty" for each frame, and predicts each block that reclaim drops, by age, and whether it is dirty. By areas it only follows, and
 * checks that what is dropped was there. Blocks are allocated, used, cut, freed, pinned and moved in between.
 *
 * Blocks that come and go wait in batches before they are listed (page/frames_told.c), until somebody asks for the lists. Of the models one half asks
 * after each operation, so that the order is what the reference says; the other half leaves them waiting, where the order within a batch is not
 * promised: there which blocks stand in each list is predicted, and that all is consistent meanwhile, but not which goes first.
 */
#include "model.h"
#include "strata/zone_compact.h"
#include "strata/zone_reclaim.h"

#define FRAMES 128u
#define FRAME_BYTES (64 * KIB)

static struct strata_zone *zone;
static unsigned owner;
static struct model *model;
static bool batched; /* the lists are not asked for after each operation */

static struct {
    unsigned frames[FRAMES]; /* of the block that begins at a frame; 0: none */
    bool used[FRAMES], dirty[FRAMES], pinned[FRAMES];
    struct ages {
        unsigned count, blocks[FRAMES]; /* the oldest first */
    } lists[2];                         /* inactive, active */
    /* a reclaim under way */
    bool predicted;
    unsigned expected, expected_at, expect[FRAMES];
    bool expect_dirty[FRAMES];
} ref;

/* ------------------------------------------------------------------ the reference */

static void take_out(unsigned block) {
    for (unsigned list = 0; list < 2; list++) {
        struct ages *ages = &ref.lists[list];
        for (unsigned i = 0; i < ages->count; i++) {
            if (ages->blocks[i] != block) continue;
            memmove(&ages->blocks[i], &ages->blocks[i + 1], (--ages->count - i) * sizeof ages->blocks[0]);
            return;
        }
    }
}
static void put_young(unsigned block, unsigned list) { ref.lists[list].blocks[ref.lists[list].count++] = block; }

static bool any(const bool *bits, unsigned block) {
    bool is = false;
    for (unsigned i = 0; i < ref.frames[block]; i++) is |= bits[block + i];
    return is;
}
static bool take_used(unsigned block) {
    bool was = any(ref.used, block);
    memset(&ref.used[block], 0, ref.frames[block]);
    return was;
}

static void end_block(unsigned block) {
    take_out(block);
    memset(&ref.used[block], 0, ref.frames[block]);
    memset(&ref.dirty[block], 0, ref.frames[block]);
    ref.frames[block] = 0;
}

/* What a reclaim of `goal` frames by age will do: the same rules, told once more. */
static unsigned predict(unsigned goal) {
    unsigned dropped = 0;
    struct ages *inactive = &ref.lists[0], *active = &ref.lists[1];
    ref.expected = ref.expected_at = 0;
    unsigned in_vain = 0;
    for (unsigned looks = 4 * (inactive->count + active->count) + 1; looks != 0 && dropped < goal; looks--) {
        if ((active->count > inactive->count || in_vain >= inactive->count) && active->count != 0) {
            unsigned oldest = active->blocks[0];
            take_out(oldest);
            put_young(oldest, take_used(oldest) ? 1 : 0);
        }
        if (inactive->count == 0) continue;
        unsigned oldest = inactive->blocks[0];
        take_out(oldest);
        in_vain++;
        if (take_used(oldest)) {
            put_young(oldest, 1);
        } else if (any(ref.pinned, oldest)) {
            put_young(oldest, 0);
        } else {
            ref.expect[ref.expected] = oldest;
            ref.expect_dirty[ref.expected++] = any(ref.dirty, oldest);
            dropped += ref.frames[oldest];
            end_block(oldest);
            in_vain = 0;
        }
    }
    return dropped;
}

/* ------------------------------------------------------------------ the owner */

static enum strata_zone_answer drop(struct strata_zone *its_zone, uint64_t frame, uint64_t frames, uint64_t token, bool dirty, void *context) {
    (void)its_zone, (void)context;
    model_trace(model, "  dropped: %llu + %llu%s", (unsigned long long)frame, (unsigned long long)frames, dirty ? ", dirty" : "");
    MODEL_EXPECT(model, token == 7, "another block's token");
    if (ref.predicted) {
        MODEL_EXPECT(model, ref.expected_at < ref.expected, "block %llu is one too many", (unsigned long long)frame);
        if (model->failed) return STRATA_ZONE_YES;
        MODEL_EXPECT(model, ref.expect[ref.expected_at] == frame, "block %llu in place of %u", (unsigned long long)frame,
                     ref.expect[ref.expected_at]);
        MODEL_EXPECT(model, ref.expect_dirty[ref.expected_at] == dirty, "block %llu: dirty is %d", (unsigned long long)frame, dirty);
        ref.expected_at++;
    } else {
        MODEL_EXPECT(model, ref.frames[frame] == frames, "a block of %llu frames in place of %u", (unsigned long long)frames, ref.frames[frame]);
        MODEL_EXPECT(model, !any(ref.pinned, (unsigned)frame) && any(ref.dirty, (unsigned)frame) == dirty, "pinned, or not as dirty");
        end_block((unsigned)frame);
    }
    return dirty ? STRATA_ZONE_WROTE : STRATA_ZONE_YES;
}

static enum strata_zone_answer move(struct strata_zone *its_zone, uint64_t from, uint64_t to, uint64_t frames, uint64_t token, void *context) {
    (void)token, (void)context;
    model_trace(model, "  moved: %llu to %llu", (unsigned long long)from, (unsigned long long)to);
    MODEL_EXPECT(model, strata_zone_copy(its_zone, from, to, frames) == STRATA_ZONE_OK, "no copy");
    bool dirty = any(ref.dirty, (unsigned)from);
    for (unsigned list = 0; list < 2; list++)
        for (unsigned i = 0; i < ref.lists[list].count; i++)
            if (ref.lists[list].blocks[i] == from) ref.lists[list].blocks[i] = (unsigned)to;
    memset(&ref.used[from], 0, frames);
    memset(&ref.dirty[from], 0, frames);
    memset(&ref.used[to], 0, frames);
    memset(&ref.dirty[to], dirty, frames);
    ref.frames[to] = ref.frames[from];
    ref.frames[from] = 0;
    return STRATA_ZONE_YES;
}

/* ------------------------------------------------------------------ operations */

/* Any block; FRAMES: there is none. */
static unsigned pick(unsigned from) {
    for (unsigned i = 0; i < FRAMES; i++)
        if (ref.frames[(from + i) % FRAMES] != 0) return (from + i) % FRAMES;
    return FRAMES;
}

static void step_alloc(const struct model_record *record) {
    const struct strata_zone_request request = {.frames = record->byte[1] % 4 == 0 ? 1 + record->byte[2] % 8u : 1,
                                                .mobility = record->byte[3] % 2 == 0 ? STRATA_ZONE_MOVABLE : STRATA_ZONE_RECLAIMABLE,
                                                .owner = owner,
                                                .flags = STRATA_ZONE_NO_EFFORT,
                                                .token = 7};
    uint64_t frame = FRAMES;
    enum strata_zone_status status = strata_zone_alloc_as(zone, &request, &frame);
    model_trace(model, "alloc %llu: %llu", (unsigned long long)request.frames, (unsigned long long)frame);
    if (status != STRATA_ZONE_OK) return;
    ref.frames[frame] = (unsigned)request.frames;
    put_young((unsigned)frame, 0);
}

static void step_free(const struct model_record *record) {
    unsigned block = pick(record->byte[1]);
    if (block == FRAMES || any(ref.pinned, block)) return;
    unsigned frames = ref.frames[block], first = record->byte[2] % frames, count = 1 + record->byte[3] % (frames - first);
    if (record->byte[4] % 2 == 0) first = 0, count = frames;
    model_trace(model, "free %u + %u of %u + %u", block + first, count, block, frames);
    MODEL_EXPECT(model, strata_zone_free(zone, block + first, count) == STRATA_ZONE_OK, "it can't be freed");
    take_out(block);
    ref.frames[block] = 0;
    memset(&ref.used[block + first], 0, count);
    memset(&ref.dirty[block + first], 0, count);
    unsigned rest = block + first + count;
    if (first != 0) {
        ref.frames[block] = first;
        put_young(block, 0);
    }
    if (rest < block + frames) {
        ref.frames[rest] = block + frames - rest;
        put_young(rest, 0);
    }
}

static void step_use(const struct model_record *record) {
    unsigned block = pick(record->byte[1]);
    if (block == FRAMES) return;
    unsigned frame = block + record->byte[2] % ref.frames[block];
    bool write = record->byte[3] % 3 == 0;
    model_trace(model, "%s %u", write ? "write" : "read", frame);
    if (write)
        strata_zone_poke(zone, frame, record->byte[4]);
    else
        (void)strata_zone_peek(zone, frame);
    ref.used[frame] = true;
    ref.dirty[frame] |= write;
}

static void step_pin(const struct model_record *record) {
    unsigned block = pick(record->byte[1]);
    if (block == FRAMES) return;
    model_trace(model, "%s %u", ref.pinned[block] ? "unpin" : "pin", block);
    enum strata_zone_status status = ref.pinned[block] ? strata_zone_unpin(zone, block, 1) : strata_zone_pin(zone, block, 1);
    MODEL_EXPECT(model, status == STRATA_ZONE_OK, "status %d", status);
    ref.pinned[block] = !ref.pinned[block];
}

static void step_reclaim(const struct model_record *record) {
    unsigned goal = 1 + record->byte[1] % 24u, order = record->byte[2] % 4 == 0 ? record->byte[3] % 6u : 0;
    enum strata_zone_reclaim_policy policy = order == 0 ? STRATA_ZONE_RECLAIM_LRU : STRATA_ZONE_RECLAIM_LINEAR + record->byte[4] % 2u;
    uint64_t had;
    MODEL_EXPECT(model, strata_zone_reclaim_set_policy(zone, policy) == STRATA_ZONE_OK, "no policy");
    ref.predicted = order == 0 && !batched;
    model_trace(model, "reclaim %u of order %u", goal, order);
    unsigned expected = ref.predicted ? predict(goal) : 0;
    enum strata_zone_status status = strata_zone_reclaim(zone, goal, order, &had);
    MODEL_EXPECT(model, status == (had >= goal ? STRATA_ZONE_OK : STRATA_ZONE_NO_FRAMES), "status %d", status);
    if (ref.predicted) {
        MODEL_EXPECT(model, had == expected && ref.expected_at == ref.expected, "%llu frames in place of %u", (unsigned long long)had, expected);
        return;
    }
    /* The lists were turned as areas went: the next prediction begins with new ones. */
    MODEL_EXPECT(model, strata_zone_reclaim_stop(zone) == STRATA_ZONE_OK, "no stop");
    const struct strata_zone_reclaim_config config = {.high_frames = 1};
    MODEL_EXPECT(model, strata_zone_reclaim_start(zone, &config) == STRATA_ZONE_OK, "no start");
    ref.lists[0].count = ref.lists[1].count = 0;
    for (unsigned frame = 0; frame < FRAMES; frame++)
        if (ref.frames[frame] != 0) put_young(frame, 0);
    for (unsigned frame = 0; frame < FRAMES; frame++) ref.used[frame] = false;
    for (unsigned frame = 0; frame < FRAMES; frame++)
        if (ref.frames[frame] != 0)
            for (unsigned i = 0; i < ref.frames[frame]; i++) strata_zone_touch(zone, frame + i, false), ref.used[frame + i] = true;
}

static void check(void) {
    const char *broken = strata_zone_check(zone);
    if (broken == NULL) broken = strata_zone_reclaim_check(zone);
    MODEL_EXPECT(model, broken == NULL, "%s", broken);
}

/* Nothing waits from here on. */
static void check_lists(void) {
    struct strata_zone_reclaim_stats stats;
    MODEL_EXPECT(model, strata_zone_reclaim_stats_get(zone, &stats) == STRATA_ZONE_OK, "no statistics");
    const uint64_t count[2] = {stats.inactive, stats.active};
    for (unsigned list = 0; list < 2; list++)
        MODEL_EXPECT(model, count[list] == ref.lists[list].count, "list %u has %llu blocks in place of %u", list, (unsigned long long)count[list],
                     ref.lists[list].count);
}

static void step(struct model *m, const struct model_record *record) {
    model = m;
    switch (record->byte[0] % 16) {
    case 0: return;
    case 1:
    case 2:
    case 3:
    case 4:
    case 5: step_alloc(record); break;
    case 6:
    case 7: step_free(record); break;
    case 8:
    case 9:
    case 10:
    case 11: step_use(record); break;
    case 12: step_pin(record); break;
    case 13:
        model_trace(model, "compact");
        MODEL_EXPECT(model, strata_zone_compact(zone, 5, NULL) == STRATA_ZONE_OK, "no pass");
        break;
    default: step_reclaim(record); break;
    }
    if (!model->long_run || model->operation % 16 == 0) check();
    if (!batched || record->byte[7] % 16 == 0) check_lists();
}

static void begin(struct model *m, const struct model_record *stage) {
    model = m;
    memset(&ref, 0, sizeof ref);
    batched = stage->byte[2] % 2 != 0;
    const struct strata_zone_config config = {.name = "model",
                                              .backend = STRATA_ZONE_SIM,
                                              .bytes = FRAMES * FRAME_BYTES,
                                              .frame_bytes = FRAME_BYTES,
                                              .cpus = 1 + stage->byte[0] % 2u,
                                              .flags = stage->byte[1] % 4 == 0 ? STRATA_ZONE_NO_GROUPING : 0};
    const struct strata_zone_owner program = {.name = "model", .migrate = move, .reclaim = drop};
    const struct strata_zone_reclaim_config reclaim = {.high_frames = 1};
    MODEL_EXPECT(model, strata_zone_create(&config, &zone) == STRATA_ZONE_OK, "no zone");
    MODEL_EXPECT(model, strata_zone_owner_add(zone, &program, &owner) == STRATA_ZONE_OK, "no owner");
    MODEL_EXPECT(model, strata_zone_reclaim_start(zone, &reclaim) == STRATA_ZONE_OK, "no reclaim");
}

/* All that is not pinned can be had back. */
static void end(struct model *m) {
    model = m;
    uint64_t had, left = 0;
    check();
    check_lists();
    ref.predicted = !batched;
    (void)strata_zone_reclaim_set_policy(zone, STRATA_ZONE_RECLAIM_LRU);
    for (unsigned turn = 0; turn < 4; turn++) { /* what was used, and what is pinned, takes looks */
        unsigned expected = ref.predicted ? predict(FRAMES) : 0;
        (void)strata_zone_reclaim(zone, FRAMES, 0, &had);
        MODEL_EXPECT(model, !ref.predicted || had == expected, "%llu frames in the end in place of %u", (unsigned long long)had, expected);
    }
    for (unsigned frame = 0; frame < FRAMES; frame++) {
        left += ref.frames[frame];
        MODEL_EXPECT(model, ref.frames[frame] == 0 || any(ref.pinned, frame), "block %u stays", frame);
        if (ref.pinned[frame]) MODEL_EXPECT(model, strata_zone_unpin(zone, frame, 1) == STRATA_ZONE_OK, "no unpin");
    }
    struct strata_zone_stats stats;
    MODEL_EXPECT(model, strata_zone_stats_get(zone, &stats) == STRATA_ZONE_OK && stats.free == FRAMES - left, "frames are lost");
    MODEL_EXPECT(model, strata_zone_destroy(zone) == STRATA_ZONE_OK, "no end");
}

static const struct model_layer zone_reclaim_layer = {.begin = begin, .step = step, .end = end};
MODEL_EXPORT(zone_reclaim, &zone_reclaim_layer);
