/*
 * model_frames.c - model runner of zones of frames: a zone without memory against a byte or a word for each frame.
 *
 * Allocations are checked for what they may be given, and where they are refused, for there being nothing; free, pin, unpin, the partition and
 * captures for their status by the definition. An owner moves and drops blocks when captures ask. Each frame has a word of contents that says whose
 * it is. Now and then figures and free blocks by order are counted from scratch, and frames_zone_check is called.
 */
#include "model.h"
#include "page/frames_index.h"
#include "page/frames_internal.h"

#define FRAMES (8 * 512)

enum state { FREE, USED, HELD };
struct cell {
    uint8_t state, mobility, pins;
    bool owned, fixed; /* fixed: a part of a run of several superpages */
    uint64_t word;
};
static struct {
    struct cell cells[FRAMES];
    uint64_t frames, superpages, superpage_frames;
    uint64_t partition_first, reserve; /* superpages */
    uint64_t tokens;
    struct frames_capture *capture;
    uint64_t capture_first, capture_frames;
    bool huge_anywhere; /* unmovable runs of whole superpages may lie in the partition */
    bool refuses;       /* the owner does */
    bool frees;         /* a block, while it is moved */
    uint64_t moves;
} ref;
static struct frame_zone *zone;
static struct model *model;
static unsigned owner;

static uint64_t superpage_of(uint64_t frame) { return frame / ref.superpage_frames; }
static bool is_captured_range(uint64_t frame) {
    return ref.capture != NULL && frame >= ref.capture_first && frame < ref.capture_first + ref.capture_frames;
}

/* ------------------------------------------------------------------ cells */

static void fill(uint64_t first, uint64_t count, enum frames_mobility mobility, bool owned, bool fixed) {
    for (uint64_t i = first; i < first + count; i++) {
        ref.cells[i] = (struct cell){.state = USED, .mobility = (uint8_t)mobility, .owned = owned, .fixed = fixed, .word = ++ref.tokens};
        frames_poke(zone, i, ref.cells[i].word);
    }
}
static void empty(uint64_t first, uint64_t count) {
    for (uint64_t i = first; i < first + count; i++) ref.cells[i] = (struct cell){.state = is_captured_range(i) ? HELD : FREE};
}
/* What a call on a run of allocated frames answers; *at: because of which. */
static enum frames_status status_of_run(uint64_t first, uint64_t count, bool free, uint64_t *at) {
    for (*at = first; *at < first + count; ++*at)
        if (ref.cells[*at].state != USED) return FRAMES_NOT_ALLOCATED;
    for (*at = first; free && *at < first + count; ++*at)
        if (ref.cells[*at].pins != 0) return FRAMES_PINNED;
    return FRAMES_OK;
}

static enum frames_answer migrate(struct frame_zone *of, const struct frames_owner *self, uint64_t from, uint64_t to, uint64_t frames,
                                  uint64_t token) {
    (void)self;
    uint64_t at;
    MODEL_EXPECT(model, sim_locks_held() == 0, "migrate is called with a lock held");
    MODEL_EXPECT(model, of == zone && token == 77, "migrate is called with another token");
    for (uint64_t i = 0; i < frames; i++) {
        const struct cell *cell = &ref.cells[from + i];
        MODEL_EXPECT(model, cell->state == USED && cell->owned && cell->pins == 0 && cell->mobility != FRAMES_UNMOVABLE && !cell->fixed,
                     "frame %llu is moved, which can't be", (unsigned long long)(from + i));
        MODEL_EXPECT(model, ref.cells[to + i].state == FREE, "frame %llu is moved to, which is not free", (unsigned long long)(to + i));
    }
    if (model->failed || ref.refuses) return FRAMES_LATER;
    frames_copy(zone, from, to, frames);
    memcpy(&ref.cells[to], &ref.cells[from], frames * sizeof ref.cells[0]);
    empty(from, frames);
    ref.moves++;
    if (ref.frees) { /* by its new name, which the program knows already */
        MODEL_EXPECT(model, frames_free(zone, to, frames, &at) == FRAMES_OK, "a block that is being moved can't be freed");
        empty(to, frames);
        ref.frees = false;
    }
    return FRAMES_YES;
}

static enum frames_answer reclaim(struct frame_zone *of, const struct frames_owner *self, uint64_t frame, uint64_t frames, uint64_t token,
                                  bool dirty) {
    (void)of;
    (void)self;
    (void)token;
    MODEL_EXPECT(model, sim_locks_held() == 0, "reclaim is called with a lock held");
    if (ref.refuses) return FRAMES_LATER;
    for (uint64_t i = frame; i < frame + frames; i++)
        MODEL_EXPECT(model, ref.cells[i].state == USED && ref.cells[i].owned && ref.cells[i].pins == 0, "frame %llu is dropped, which can't be",
                     (unsigned long long)i);
    empty(frame, frames);
    return dirty ? FRAMES_WROTE : FRAMES_YES;
}

/* ------------------------------------------------------------------ alloc */

static bool run_is_free(uint64_t first, uint64_t count) {
    for (uint64_t i = first; i < first + count; i++)
        if (ref.cells[i].state != FREE) return false;
    return true;
}
/* count: of the run itself, whatever it is rounded up to. */
static bool may_lie(uint64_t first, uint64_t count, uint64_t room, enum frames_mobility mobility) {
    if (mobility != FRAMES_UNMOVABLE || (ref.huge_anywhere && count >= ref.superpage_frames)) return true;
    return superpage_of(first + room - 1) < ref.partition_first;
}
/* Whether any place would do: the reserve and other groups included. */
static bool has_room(const struct frames_request *request, uint64_t align) {
    bool small = request->frames < ref.superpage_frames && align < ref.superpage_frames;
    uint64_t step = small ? align : max_u64(align, ref.superpage_frames);
    uint64_t room = small ? request->frames : align_up(request->frames, ref.superpage_frames);
    for (uint64_t first = 0; first + room <= ref.frames; first += step) {
        if (small && superpage_of(first) != superpage_of(first + room - 1)) continue;
        if (may_lie(first, request->frames, room, request->mobility) && run_is_free(first, room)) return true;
    }
    return false;
}

static void step_alloc(const struct model_record *record) {
    uint64_t sizes[] = {1,
                        1,
                        1,
                        2,
                        4,
                        1 + record->byte[2] % 16,
                        UINT64_C(1) << record->byte[2] % 10,
                        ref.superpage_frames,
                        ref.superpage_frames * (1 + record->byte[2] % 3),
                        1 + model_bits(record, 2, 2) % (2 * ref.superpage_frames)};
    struct frames_request request = {.frames = sizes[record->byte[1] % ARRAY_LENGTH(sizes)], .mobility = record->byte[4] % 3, .token = 77};
    if (record->byte[5] % 8 == 1) request.align = UINT64_C(1) << record->byte[6] % 11;
    if (record->byte[5] % 8 == 2) request.flags = FRAMES_NO_FALLBACK;
    if (record->byte[5] % 8 == 3) request.flags = FRAMES_NO_RESERVE;
    if (record->byte[5] % 8 == 4) request.flags = FRAMES_HIGH;
    if (request.mobility != FRAMES_UNMOVABLE && record->byte[6] % 4 != 0) request.owner = owner;
    request.frames = min_u64(request.frames, ref.frames);
    uint64_t align = request.align != 0 ? request.align : frames_usual_align(zone, request.frames), frame = FRAMES_NONE;
    sim_cpu_set(record->byte[7] % 2);
    bool room = has_room(&request, align);
    enum frames_status status = frames_alloc(zone, &request, &frame);
    model_trace(model, "alloc %llu frames, align %llu, mobility %d, owner %u, flags %u: %d, frame %lld", (unsigned long long)request.frames,
                (unsigned long long)align, request.mobility, request.owner, request.flags, status, (long long)frame);
    if (status != FRAMES_OK) {
        bool limited = (request.flags & (FRAMES_NO_FALLBACK | FRAMES_NO_RESERVE)) != 0;
        MODEL_EXPECT(model, status == FRAMES_NO_FRAMES && (!room || limited), "an allocation failed (%d), but there is room", status);
        return;
    }
    MODEL_EXPECT(model, frame < ref.frames && request.frames <= ref.frames - frame && frame % align == 0, "frame %llu is no place for this",
                 (unsigned long long)frame);
    if (model->failed) return;
    MODEL_EXPECT(model, run_is_free(frame, request.frames), "frame %llu: the run was not free", (unsigned long long)frame);
    MODEL_EXPECT(model, may_lie(frame, request.frames, request.frames, request.mobility), "unmovable frames are in the partition");
    fill(frame, request.frames, request.mobility, request.owner != 0, request.frames > ref.superpage_frames);
}

/* ------------------------------------------------------------------ free and pins */

/* A frame by a record: mostly one that is used. */
static uint64_t pick(uint64_t random) {
    uint64_t start = random % ref.frames;
    for (uint64_t i = 0; i < ref.frames && random % 16 != 0; i++) {
        uint64_t frame = (start + i) % ref.frames;
        if (ref.cells[frame].state == USED) return frame;
    }
    return start;
}

static void step_run(const struct model_record *record, unsigned what) {
    uint64_t first = pick(model_bits(record, 1, 2)), count = 1, at = FRAMES_NONE, wrong;
    struct frames_info info;
    MODEL_EXPECT(model, frames_query(zone, first, &info) == FRAMES_OK, "query failed");
    if (record->byte[4] % 4 != 0) { /* the whole block, else a piece of whatever is there */
        first = info.first;
        count = info.frames;
    } else
        count = min_u64(1 + record->byte[5] % 64, ref.frames - first);
    enum frames_status expected = status_of_run(first, count, what == 0, &wrong), status = FRAMES_OK;
    for (uint64_t i = first; i < first + count && what == 2 && expected == FRAMES_OK; i++)
        if (ref.cells[i].pins == 0) expected = FRAMES_NOT_PINNED;
    for (uint64_t i = first; i < first + count && what == 1 && expected == FRAMES_OK; i++)
        if (ref.cells[i].pins == 200) return;
    for (uint64_t i = first; i < first + count && what == 0 && expected == FRAMES_OK; i++)
        MODEL_EXPECT(model, frames_peek(zone, i) == ref.cells[i].word, "frame %llu has other contents", (unsigned long long)i);
    if (what == 0) status = frames_free(zone, first, count, &at);
    if (what == 1) status = frames_pin(zone, first, count, &at);
    if (what == 2) status = frames_unpin(zone, first, count, &at);
    model_trace(model, "%s %llu frames at %llu: %d",
                what == 0   ? "free"
                : what == 1 ? "pin"
                            : "unpin",
                (unsigned long long)count, (unsigned long long)first, status);
    /* A run of several superpages is looked at superpage by superpage. */
    bool several = superpage_of(first) != superpage_of(first + count - 1);
    MODEL_EXPECT(model,
                 status == expected || (several && status != FRAMES_OK && expected != FRAMES_OK) ||
                     (what == 2 && status != FRAMES_OK && expected != FRAMES_OK),
                 "status %d, expected %d", status, expected);
    MODEL_EXPECT(model, status == FRAMES_OK || (at >= first && at < first + count), "the wrong frame is told");
    if (status != FRAMES_OK) return;
    if (what == 0) empty(first, count);
    for (uint64_t i = first; i < first + count && what != 0; i++) ref.cells[i].pins = (uint8_t)(ref.cells[i].pins + (what == 1 ? 1 : -1));
}

static void step_query(const struct model_record *record) {
    uint64_t frame = model_bits(record, 1, 2) % ref.frames;
    const struct cell *cell = &ref.cells[frame];
    struct frames_info info;
    MODEL_EXPECT(model, frames_query(zone, frame, &info) == FRAMES_OK, "query failed");
    MODEL_EXPECT(model, info.allocated == (cell->state == USED) && info.captured == (cell->state == HELD) && info.pins == cell->pins && !info.moving,
                 "query of frame %llu", (unsigned long long)frame);
    MODEL_EXPECT(model, frame >= info.first && frame < info.first + info.frames, "a frame is not in its block");
    for (uint64_t i = info.first; i < info.first + info.frames && info.allocated; i++)
        MODEL_EXPECT(model, ref.cells[i].state == USED && ref.cells[i].mobility == info.mobility && ref.cells[i].owned == (info.owner != 0),
                     "the block of frame %llu has frames of another kind", (unsigned long long)frame);
}

/* ------------------------------------------------------------------ settings */

static void step_settings(const struct model_record *record) {
    uint64_t superpages = record->byte[2] % (ref.superpages + 2), bytes = superpages * FRAMES_SUPERPAGE_BYTES;
    if (superpages > ref.superpages && record->byte[3] % 2 == 0) bytes = UINT64_MAX - record->byte[4]; /* rounded up it would be none */
    enum frames_status expected = superpages > ref.superpages ? FRAMES_BAD_ARGUMENT : FRAMES_OK, status;
    if (record->byte[1] % 2 == 0) {
        status = frames_set_reserve(zone, bytes);
        if (status == FRAMES_OK) ref.reserve = superpages;
    } else {
        uint64_t first = ref.superpages - superpages;
        for (uint64_t i = first * ref.superpage_frames; expected == FRAMES_OK && i < ref.partition_first * ref.superpage_frames; i++)
            if (ref.cells[i].state == USED && ref.cells[i].mobility == FRAMES_UNMOVABLE) expected = FRAMES_BUSY;
        for (uint64_t i = first; expected == FRAMES_OK && ref.capture != NULL && i < ref.partition_first; i++)
            if (ref.capture->mobility == FRAMES_UNMOVABLE && i >= superpage_of(ref.capture_first) &&
                i <= superpage_of(ref.capture_first + ref.capture_frames - 1))
                expected = FRAMES_BUSY;
        status = frames_partition_resize(zone, bytes);
        if (status == FRAMES_OK) ref.partition_first = first;
    }
    model_trace(model, "%s of %llu bytes: %d", record->byte[1] % 2 == 0 ? "reserve" : "partition", (unsigned long long)bytes, status);
    MODEL_EXPECT(model, status == expected, "settings: status %d, expected %d", status, expected);
}

/* ------------------------------------------------------------------ captures */

static uint64_t not_held(void) {
    uint64_t left = 0;
    for (uint64_t i = ref.capture_first; i < ref.capture_first + ref.capture_frames; i++) left += ref.cells[i].state != HELD;
    return left;
}

static void capture_begin(const struct model_record *record) {
    struct frames_capture_request request = {
        .frames = ref.superpage_frames * (1 + record->byte[2] % 2), .mobility = record->byte[3] % 3, .token = 77};
    struct frames_complaint complaint;
    if (record->byte[4] % 3 == 0) request.frames = UINT64_C(1) << record->byte[5] % 5;
    if (record->byte[4] % 2 == 0) {
        request.flags = FRAMES_CAPTURE_AT;
        request.at = model_bits(record, 6, 2) % ref.frames / request.frames * request.frames;
    }
    if (frames_capture_check(zone, &request, &complaint) != FRAMES_OK) return;
    enum frames_status status = frames_capture_begin(zone, &request, &ref.capture);
    model_trace(model, "capture of %llu frames: %d", (unsigned long long)request.frames, status);
    if (status != FRAMES_OK) {
        ref.capture = NULL;
        MODEL_EXPECT(model, status == FRAMES_NO_FRAMES, "capture: status %d", status);
        return;
    }
    ref.capture_first = ref.capture->first;
    ref.capture_frames = ref.capture->frames;
    for (uint64_t i = ref.capture_first; i < ref.capture_first + ref.capture_frames; i++)
        if (ref.cells[i].state == FREE) ref.cells[i].state = HELD;
    MODEL_EXPECT(model, request.mobility != FRAMES_UNMOVABLE || may_lie(ref.capture_first, ref.capture_frames, ref.capture_frames, request.mobility),
                 "an unmovable run is captured in the partition");
}

static void step_capture(const struct model_record *record) {
    uint64_t first, left, frame;
    if (ref.capture == NULL) {
        capture_begin(record);
        return;
    }
    enum frames_mobility mobility = ref.capture->mobility;
    bool fixed = ref.capture_frames > ref.superpage_frames;
    ref.refuses = record->byte[1] % 4 == 0;
    ref.frees = record->byte[1] % 8 == 1;
    enum frames_status pushed = frames_capture_push(ref.capture, record->byte[2]);
    enum frames_status status = frames_capture_poll(ref.capture, &first, &left);
    model_trace(model, "push: %d, poll: %d, %llu left", pushed, status, (unsigned long long)left);
    MODEL_EXPECT(model, first == ref.capture_first && left == not_held(), "poll says %llu are left, which are %llu", (unsigned long long)left,
                 (unsigned long long)not_held());
    MODEL_EXPECT(model, (status == FRAMES_OK) == (left == 0), "poll: status %d", status);
    if (record->byte[3] % 4 == 0 && left != 0) {
        frames_capture_give_up(ref.capture);
        model_trace(model, "given up");
        ref.capture = NULL;
        for (uint64_t i = ref.capture_first; i < ref.capture_first + ref.capture_frames; i++)
            if (ref.cells[i].state == HELD) ref.cells[i].state = FREE;
        return;
    }
    status = frames_capture_end(ref.capture, &frame);
    MODEL_EXPECT(model, (status == FRAMES_OK) == (left == 0), "end: status %d with %llu left", status, (unsigned long long)left);
    if (status != FRAMES_OK) return;
    model_trace(model, "captured %llu frames at %llu", (unsigned long long)ref.capture_frames, (unsigned long long)frame);
    ref.capture = NULL;
    fill(frame, ref.capture_frames, mobility, false, fixed);
}

/* ------------------------------------------------------------------ the whole */

static void compare_all(void) {
    struct frames_stats stats;
    uint64_t free = 0, used[FRAMES_MOBILITIES] = {0}, pinned = 0, held = 0, blocks[FRAMES_ORDERS] = {0};
    frames_stats_get(zone, &stats);
    for (uint64_t i = 0; i < ref.frames; i++) {
        const struct cell *cell = &ref.cells[i];
        free += cell->state == FREE;
        held += cell->state == HELD;
        pinned += cell->pins != 0;
        if (cell->state == USED) used[cell->mobility]++;
        if (cell->state == USED) MODEL_EXPECT(model, frames_peek(zone, i) == cell->word, "frame %llu has other contents", (unsigned long long)i);
    }
    for (uint64_t i = 0; i < ref.frames;) { /* the largest aligned block of free frames that begins here */
        unsigned order = 0;
        if (!run_is_free(i, 1)) {
            i++;
            continue;
        }
        while (i % (UINT64_C(2) << order) == 0 && i + (UINT64_C(2) << order) <= ref.frames && run_is_free(i, UINT64_C(2) << order)) order++;
        blocks[order]++;
        i += UINT64_C(1) << order;
    }
    MODEL_EXPECT(model, stats.free == free && frames_free_now(zone) == free, "%llu frames are free, not %llu", (unsigned long long)free,
                 (unsigned long long)stats.free);
    MODEL_EXPECT(model, stats.captured == held && stats.pinned == pinned && stats.moving == 0, "figures of captured or pinned frames");
    for (unsigned m = 0; m < FRAMES_MOBILITIES; m++)
        MODEL_EXPECT(model, stats.used[m] == used[m], "%llu frames are of mobility %u, not %llu", (unsigned long long)used[m], m,
                     (unsigned long long)stats.used[m]);
    for (unsigned order = 0; order < FRAMES_ORDERS; order++)
        MODEL_EXPECT(model, stats.free_blocks[order] == blocks[order], "%llu free blocks are of order %u, not %llu",
                     (unsigned long long)blocks[order], order, (unsigned long long)stats.free_blocks[order]);
    const char *check = frames_zone_check(zone);
    MODEL_EXPECT(model, check == NULL, "%s", check);
}

static void begin(struct model *of, const struct model_record *stage) {
    static const size_t frame_bytes[] = {64 * KIB, 16 * KIB, 64 * KIB, 4 * KIB};
    model = of;
    memset(&ref, 0, sizeof ref);
    struct frames_config config = {.name = "model", .backend = FRAMES_SIM, .cpus = 2, .frame_bytes = frame_bytes[stage->byte[0] % 4]};
    config.bytes = (2 + stage->byte[1] % 7) * FRAMES_SUPERPAGE_BYTES;
    config.flags = stage->byte[2] % 4 == 1 ? FRAMES_NO_GROUPING : stage->byte[2] % 4 == 2 ? FRAMES_NO_GROUPING | FRAMES_SCATTER : 0;
    config.partition_bytes = stage->byte[3] % 4 == 1 ? FRAMES_SUPERPAGE_BYTES : stage->byte[3] % 4 == 2 ? config.bytes : 0;
    ref.huge_anywhere = stage->byte[5] % 2 != 0;
    if (ref.huge_anywhere) config.flags |= FRAMES_HUGE_IN_PARTITION;
    ref.frames = config.bytes / config.frame_bytes;
    ref.superpages = config.bytes / FRAMES_SUPERPAGE_BYTES;
    ref.superpage_frames = FRAMES_SUPERPAGE_BYTES / config.frame_bytes;
    ref.partition_first = ref.superpages - config.partition_bytes / FRAMES_SUPERPAGE_BYTES;
    const struct frames_owner program = {.name = "model", .migrate = migrate, .reclaim = stage->byte[4] % 2 == 0 ? reclaim : NULL};
    MODEL_EXPECT(model, frames_zone_create(&config, &zone) == FRAMES_OK, "create failed");
    MODEL_EXPECT(model, frames_owner_add(zone, &program, &owner) == FRAMES_OK && owner == 1, "no owner");
    model_trace(model, "%llu frames in %llu superpages, flags %u, partition from %llu", (unsigned long long)ref.frames,
                (unsigned long long)ref.superpages, config.flags, (unsigned long long)ref.partition_first);
}

static void step(struct model *of, const struct model_record *record) {
    (void)of;
    switch (record->byte[0] % 32) {
    case 0: break;
    case 1 ... 12: step_alloc(record); break;
    case 13 ... 21: step_run(record, 0); break;
    case 22: step_run(record, 1); break;
    case 23 ... 24: step_run(record, 2); break;
    case 25: step_query(record); break;
    case 26: step_settings(record); break;
    case 27 ... 30: step_capture(record); break;
    default: compare_all(); break;
    }
    if (!model->long_run) compare_all();
}

static void end(struct model *of) {
    uint64_t at;
    (void)of;
    if (ref.capture != NULL) {
        frames_capture_give_up(ref.capture);
        ref.capture = NULL;
        for (uint64_t i = 0; i < ref.frames; i++)
            if (ref.cells[i].state == HELD) ref.cells[i].state = FREE;
    }
    compare_all();
    for (uint64_t i = 0; i < ref.frames && !model->failed; i++) {
        for (; ref.cells[i].pins != 0; ref.cells[i].pins--)
            MODEL_EXPECT(model, frames_unpin(zone, i, 1, &at) == FRAMES_OK, "frame %llu can't be unpinned", (unsigned long long)i);
        if (ref.cells[i].state == USED)
            MODEL_EXPECT(model, frames_free(zone, i, 1, &at) == FRAMES_OK, "frame %llu can't be freed", (unsigned long long)i);
        empty(i, 1);
    }
    if (!model->failed) compare_all();
    if (model->failed) return;
    MODEL_EXPECT(model, frames_zone_end(zone) == FRAMES_OK, "end failed");
    if (!model->failed) frames_zone_free(zone);
}

static const struct model_layer frames_layer = {begin, step, end};

MODEL_EXPORT(frames, &frames_layer);
