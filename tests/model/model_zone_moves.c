/*
 * model_zone_moves.c - model runner of everything that moves and drops blocks in a zone: compaction, direct and by call, handles, reclaim and
 * captures, against a list of blocks.
 *
 * A zone of private memory, of 2 to 6 superpages with 32 frames each. The reference knows of each block where it is: its own as their owner is told,
 * those of handles by asking. Nobody predicts where a block goes; what must hold after each operation is computed from the list, frame by frame, by
 * the words of the headers: no frame is two blocks', none is lost, each has its block's contents; what is held stays; a pass moves no block twice,
 * and upwards only; nothing unmovable is in the partition; figures, both indices and the list of each superpage are what a count from scratch says.
 */
#include "model_zone_moves_reference.h"

static void free_now(unsigned which) {
    struct block *block = &ref.blocks[which];
    enum strata_zone_status status = strata_zone_free(zone, block->frame, block->frames);
    MODEL_EXPECT(model, status == STRATA_ZONE_OK, "the block at %llu can't be freed: %d", (unsigned long long)block->frame, status);
    forget(which);
}

/* ------------------------------------------------------------------ the owner */

/* Another block of the owner's goes while it is asked, as programs do. */
static void free_another(unsigned asked) {
    unsigned which = ref.frees;
    ref.frees = NONE;
    if (which == NONE || which == asked || ref.blocks[which].kind != OWNED || is_held(&ref.blocks[which])) return;
    ref.freed_meanwhile = true;
    model_trace(model, "  the block at %llu is freed meanwhile", (unsigned long long)ref.blocks[which].frame);
    free_now(which);
}

static struct block *asked_about(uint64_t frame, uint64_t frames, uint64_t token) {
    struct block *block = token < ref.frames ? &ref.blocks[token] : NULL;
    bool known = block != NULL && block->kind == OWNED && block->frame == frame && block->frames == frames;
    MODEL_EXPECT(model, sim_locks_held() == 0, "the owner is asked with a lock held");
    MODEL_EXPECT(model, known, "the owner is asked about %llu + %llu, which is no block of its", (unsigned long long)frame,
                 (unsigned long long)frames);
    if (!known) return NULL;
    MODEL_EXPECT(model, block->pins == 0, "the owner is asked about a block that is pinned");
    MODEL_EXPECT(model, block->never == 0 || block->never == model->operation, "the owner is asked about a block of which it has said never");
    return block;
}

static enum strata_zone_answer move(struct strata_zone *of, uint64_t from, uint64_t to, uint64_t frames, uint64_t token, void *context) {
    (void)context;
    struct block *block = asked_about(from, frames, token);
    if (block == NULL || model->failed) return STRATA_ZONE_LATER;
    model_trace(model, "  move %llu + %llu to %llu: %d", (unsigned long long)from, (unsigned long long)frames, (unsigned long long)to, ref.moves);
    free_another((unsigned)token);
    if (ref.moves == STRATA_ZONE_NEVER) block->never = model->operation;
    if (block->never != 0) return STRATA_ZONE_NEVER;
    if (ref.moves != STRATA_ZONE_YES) return ref.moves;
    for (unsigned i = 0; i < ref.frames; i++) { /* those of handles tell it later */
        const struct block *other = &ref.blocks[i];
        bool apart = other->frame + other->frames <= to || to + frames <= other->frame;
        MODEL_EXPECT(model, apart || (other->kind != OWNED && other->kind != FIXED), "the place is taken");
    }
    MODEL_EXPECT(model, strata_zone_copy(of, from, to, frames) == STRATA_ZONE_OK, "no copy");
    note_move(block, to);
    return STRATA_ZONE_YES;
}

static enum strata_zone_answer drop(struct strata_zone *of, uint64_t frame, uint64_t frames, uint64_t token, bool dirty, void *context) {
    (void)of, (void)context;
    struct block *block = asked_about(frame, frames, token);
    if (block == NULL || model->failed) return STRATA_ZONE_LATER;
    model_trace(model, "  drop %llu + %llu: %d", (unsigned long long)frame, (unsigned long long)frames, ref.drops);
    free_another((unsigned)token);
    if (ref.drops == STRATA_ZONE_NEVER) block->never = model->operation;
    if (block->never != 0) return STRATA_ZONE_NEVER;
    if (ref.drops != STRATA_ZONE_YES) return ref.drops;
    MODEL_EXPECT(model, has_contents(block), "a block is dropped, and its contents were lost before");
    forget((unsigned)token);
    return dirty ? STRATA_ZONE_WROTE : STRATA_ZONE_YES;
}

/* ------------------------------------------------------------------ operations */

/* Each block as often as passes and captures have begun; the owner's answers come from the record. */
static void begin_moves(const struct model_record *record, struct strata_zone_compact_stats *passes, struct strata_zone_stats *stats) {
    unsigned moves = record->byte[6] % 16, drops = record->byte[6] / 16;
    look(); /* so that what is found afterwards is of this operation */
    ref.moves = moves < 12 ? STRATA_ZONE_YES : moves < 14 ? STRATA_ZONE_LATER : moves == 14 ? STRATA_ZONE_WROTE : STRATA_ZONE_NEVER;
    ref.drops = drops < 10 ? STRATA_ZONE_YES : drops < 15 ? STRATA_ZONE_LATER : STRATA_ZONE_NEVER;
    ref.frees = record->byte[7] % 4 == 0 ? record->byte[7] / 4u : NONE;
    ref.moved = ref.moved_others = ref.moved_frames = ref.highest_source = 0;
    ref.lowest_target = UINT64_MAX;
    ref.freed_meanwhile = false;
    for (unsigned i = 0; i < ref.frames; i++) ref.blocks[i].moves = 0;
    MODEL_EXPECT(model, strata_zone_compact_stats_get(zone, passes) == STRATA_ZONE_OK && strata_zone_stats_get(zone, stats) == STRATA_ZONE_OK,
                 "no figures");
}
static void end_moves(const struct strata_zone_compact_stats *passes, const struct strata_zone_stats *stats) {
    struct strata_zone_compact_stats passes_after;
    struct strata_zone_stats stats_after;
    look();
    MODEL_EXPECT(model,
                 strata_zone_compact_stats_get(zone, &passes_after) == STRATA_ZONE_OK && strata_zone_stats_get(zone, &stats_after) == STRATA_ZONE_OK,
                 "no figures");
    uint64_t turns = passes_after.counts.passes - passes->counts.passes + stats_after.captures_begun - stats->captures_begun + (ref.capture != NULL);
    for (unsigned i = 0; i < ref.frames; i++)
        MODEL_EXPECT(model, ref.blocks[i].moves <= turns, "the block at %llu was moved %u times in %llu passes",
                     (unsigned long long)ref.blocks[i].frame, ref.blocks[i].moves, (unsigned long long)turns);
}

static uint64_t usual_align(uint64_t frames) { return is_power_of_two(frames) ? frames : 1; }

/* What is a superpage or aligned to one needs all of it. */
static bool has_room(uint64_t frames, uint64_t align, enum strata_zone_mobility mobility) {
    struct strata_zone_superpage map[FRAMES_LIMIT / SUPERPAGE_FRAMES];
    if (align >= SUPERPAGE_FRAMES) frames = align_up(frames, SUPERPAGE_FRAMES);
    MODEL_EXPECT(model, strata_zone_map_get(zone, 0, ref.superpages, map) == STRATA_ZONE_OK, "no map");
    for (uint64_t first = 0; first + frames <= ref.frames; first += align) {
        if (first / SUPERPAGE_FRAMES != (first + frames - 1) / SUPERPAGE_FRAMES) continue;
        if (mobility == STRATA_ZONE_UNMOVABLE && map[first / SUPERPAGE_FRAMES].partition) continue;
        bool free = true;
        for (uint64_t i = first; i < first + frames; i++) free &= is_free(i);
        if (free) return true;
    }
    return false;
}

static void step_alloc(const struct model_record *record) {
    static const uint64_t sizes[] = {1, 1, 1, 2, 3, 4, 8, SUPERPAGE_FRAMES};
    struct strata_zone_compact_stats passes;
    struct strata_zone_stats stats;
    struct strata_zone_request request = {.frames = sizes[record->byte[1] % ARRAY_LENGTH(sizes)],
                                          .mobility = record->byte[2] % STRATA_ZONE_MOBILITIES};
    unsigned which = new_block();
    if (record->byte[3] % 4 != 0) request.flags = STRATA_ZONE_NO_EFFORT;
    if (record->byte[5] % 4 == 1) request.align_frames = record->byte[5] / 4 % 2 != 0 ? 2 * SUPERPAGE_FRAMES : UINT64_C(1) << record->byte[5] / 8 % 6;
    uint64_t align = request.align_frames != 0 ? request.align_frames : usual_align(request.frames);
    if (align < request.frames && request.frames == SUPERPAGE_FRAMES) align = request.frames;
    if (request.mobility != STRATA_ZONE_UNMOVABLE) request.owner = owner, request.token = which;
    sim_cpu_set(record->byte[4] % 2);
    begin_moves(record, &passes, &stats);
    uint64_t frame = NONE;
    ref.blocks[which] = (struct block){.kind = FIXED}; /* of no frames yet: nobody else takes the place in the list */
    enum strata_zone_status status = strata_zone_alloc_as(zone, &request, &frame);
    forget(which);
    model_trace(model, "alloc %llu frames, align %llu, mobility %d, flags %u: %d, frame %llu", (unsigned long long)request.frames,
                (unsigned long long)align, request.mobility, request.flags, status, (unsigned long long)frame);
    end_moves(&passes, &stats);
    bool room = !ref.freed_meanwhile && has_room(request.frames, align, request.mobility);
    MODEL_EXPECT(model, status == STRATA_ZONE_OK || (status == STRATA_ZONE_NO_FRAMES && !room), "status %d, and there %s room", status,
                 room ? "is" : "is no");
    if (status != STRATA_ZONE_OK || model->failed) return;
    MODEL_EXPECT(model, frame % align == 0, "a block is not aligned");
    ref.blocks[which] =
        (struct block){.kind = request.owner != 0 ? OWNED : FIXED, .mobility = request.mobility, .frame = frame, .frames = request.frames};
    for (uint64_t i = frame; i < frame + request.frames; i++) MODEL_EXPECT(model, is_free(i), "frame %llu was given twice", (unsigned long long)i);
    write_contents(&ref.blocks[which]);
}

static void free_one(unsigned which) {
    struct block *block = &ref.blocks[which];
    model_trace(model, "free %llu + %llu%s", (unsigned long long)block->frame, (unsigned long long)block->frames,
                is_held(block) ? ", which is held" : "");
    if (block->kind == HANDLED) {
        enum strata_handle_status status = strata_handle_free(handles, block->handle);
        MODEL_EXPECT(model, status == (is_held(block) ? STRATA_HANDLE_IN_USE : STRATA_HANDLE_OK), "status %d", status);
        if (status != STRATA_HANDLE_OK) return;
        ref.freed = block->handle;
        forget(which);
    } else if (is_held(block)) {
        MODEL_EXPECT(model, strata_zone_free(zone, block->frame, block->frames) == STRATA_ZONE_PINNED, "a pinned block is freed");
    } else {
        free_now(which);
    }
}

/* Up to seven at a time, so that the zone is sparse as often as full. */
static void step_free(const struct model_record *record) {
    for (unsigned i = 1; i <= 1 + record->byte[7] % 7u && !model->failed; i++) {
        unsigned which = pick((record->byte[1] + i * record->byte[2]) % (unsigned)ref.frames, NO_BLOCK);
        if (which != NONE) free_one(which);
    }
}

static void step_pin(const struct model_record *record) {
    unsigned which = pick(record->byte[1] % (unsigned)ref.frames, NO_BLOCK);
    if (which == NONE) return;
    struct block *block = &ref.blocks[which];
    bool unpin = record->byte[2] % 4 != 0 && (block->pins != 0 || block->locks == 0);
    enum strata_zone_status status =
        unpin ? strata_zone_unpin(zone, block->frame, block->frames) : strata_zone_pin(zone, block->frame, block->frames);
    model_trace(model, "%s %llu: %d", unpin ? "unpin" : "pin", (unsigned long long)block->frame, status);
    MODEL_EXPECT(model, status == (unpin && block->pins == 0 ? STRATA_ZONE_NOT_PINNED : STRATA_ZONE_OK), "status %d", status);
    if (status == STRATA_ZONE_OK) block->pins += unpin ? -1u : 1u;
}

static void step_handle_alloc(const struct model_record *record) {
    struct strata_zone_compact_stats passes;
    struct strata_zone_stats stats;
    uint64_t frames = 1 + record->byte[1] % 4u;
    unsigned which = new_block();
    strata_handle handle = 0;
    begin_moves(record, &passes, &stats);
    enum strata_handle_status status = strata_handle_alloc(handles, frames * FRAME_BYTES - record->byte[2], &handle);
    model_trace(model, "handle of %llu frames: %d, %llx", (unsigned long long)frames, status, (unsigned long long)handle);
    end_moves(&passes, &stats);
    bool room = !ref.freed_meanwhile && has_room(frames, usual_align(frames), STRATA_ZONE_MOVABLE);
    MODEL_EXPECT(model, status == STRATA_HANDLE_OK || (status == STRATA_HANDLE_NO_MEMORY && !room), "status %d, and there %s room", status,
                 room ? "is" : "is no");
    if (status != STRATA_HANDLE_OK) return;
    struct strata_handle_info info;
    MODEL_EXPECT(model, strata_handle_query(handles, handle, &info) == STRATA_HANDLE_OK && info.moves == 0, "a new handle is none");
    ref.blocks[which] = (struct block){.kind = HANDLED, .mobility = STRATA_ZONE_MOVABLE, .frame = info.frame, .frames = frames, .handle = handle};
    write_contents(&ref.blocks[which]);
}

static void step_hold(const struct model_record *record) {
    unsigned which = pick(record->byte[1] % (unsigned)ref.frames, HANDLED);
    if (which == NONE) return;
    struct block *block = &ref.blocks[which];
    strata_handle handle = block->handle;
    unsigned what = record->byte[2] % 8;
    void *address = NULL;
    const void *read = NULL;
    enum strata_handle_status status = STRATA_HANDLE_OK, expected = STRATA_HANDLE_OK;
    switch (what) {
    case 0: status = strata_handle_lock(handles, handle, &address), block->locks++; break;
    case 1:
        if (block->pins != 0) return; /* the zone does not tell a lock's pins from others */
        status = strata_handle_unlock(handles, handle);
        if (block->locks == 0)
            expected = STRATA_HANDLE_NOT_HELD;
        else
            block->locks--;
        break;
    case 2:
    case 3:
        if (block->writing) return; /* it would wait */
        status = strata_handle_read(handles, handle, &read), block->readers++;
        break;
    case 4:
        status = strata_handle_read_end(handles, handle);
        if (block->readers == 0)
            expected = STRATA_HANDLE_NOT_HELD;
        else
            block->readers--;
        break;
    case 5:
        if (block->writing || block->readers != 0) return;
        status = strata_handle_write(handles, handle, &address), block->writing = true;
        break;
    case 6:
        status = strata_handle_write_end(handles, handle);
        if (!block->writing) expected = STRATA_HANDLE_NOT_HELD;
        block->writing = false;
        break;
    default:
        if (ref.freed == 0) return;
        status = strata_handle_lock(handles, ref.freed, NULL), expected = STRATA_HANDLE_NO_HANDLE;
        break;
    }
    model_trace(model, "hold %llx: %u, status %d", (unsigned long long)handle, what, status);
    MODEL_EXPECT(model, status == expected, "status %d in place of %d", status, expected);
    if (read != NULL) MODEL_EXPECT(model, read == strata_zone_address(zone, block->frame), "another address is read");
    if (address != NULL) MODEL_EXPECT(model, address == strata_zone_address(zone, block->frame), "another address is held");
    if (address != NULL && what == 5) write_contents(block);
}

/* One pass: no block twice, all sources below all targets, and as many as it says. */
static void step_compact(const struct model_record *record) {
    struct strata_zone_compact_stats passes;
    struct strata_zone_stats stats;
    struct strata_zone_compact_counts counts;
    unsigned order = record->byte[1] % 6u;
    begin_moves(record, &passes, &stats);
    MODEL_EXPECT(model, strata_zone_compact(zone, order, &counts) == STRATA_ZONE_OK && counts.passes == 1, "no pass");
    model_trace(model, "compact for order %u: %llu moved", order, (unsigned long long)counts.moved);
    end_moves(&passes, &stats);
    MODEL_EXPECT(model, counts.moved == ref.moved && counts.moved_frames == ref.moved_frames, "%llu blocks were moved, %llu are told",
                 (unsigned long long)ref.moved, (unsigned long long)counts.moved);
    MODEL_EXPECT(model, ref.moved_others == 0, "what is not movable was moved");
    MODEL_EXPECT(model, ref.moved == 0 || ref.highest_source < ref.lowest_target, "blocks went from superpage %llu, and to %llu in the same pass",
                 (unsigned long long)ref.highest_source, (unsigned long long)ref.lowest_target);
}

static void step_reclaim(const struct model_record *record) {
    struct strata_zone_compact_stats passes;
    struct strata_zone_stats stats;
    uint64_t had = 0, before[2] = {0};
    begin_moves(record, &passes, &stats);
    for (unsigned i = 0; i < ref.frames; i++) before[0] += ref.blocks[i].kind != NO_BLOCK ? ref.blocks[i].frames : 0;
    ref.frees = NONE;
    MODEL_EXPECT(model, strata_zone_reclaim_set_policy(zone, record->byte[1] % STRATA_ZONE_RECLAIM_POLICIES) == STRATA_ZONE_OK, "no policy");
    enum strata_zone_status status = strata_zone_reclaim(zone, 1 + record->byte[2] % 16u, record->byte[3] % 6u, &had);
    model_trace(model, "reclaim: %d, %llu frames", status, (unsigned long long)had);
    for (unsigned i = 0; i < ref.frames; i++) before[1] += ref.blocks[i].kind != NO_BLOCK ? ref.blocks[i].frames : 0;
    MODEL_EXPECT(model, before[0] - before[1] == had, "%llu frames were dropped, %llu are told", (unsigned long long)(before[0] - before[1]),
                 (unsigned long long)had);
    end_moves(&passes, &stats);
}

static void step_capture(const struct model_record *record) {
    struct strata_zone_compact_stats passes;
    struct strata_zone_stats stats;
    uint64_t left, frame;
    if (ref.capture == NULL) {
        const struct strata_zone_capture_request request = {.frames = UINT64_C(1) << (2 + record->byte[1] % 4u), .mobility = record->byte[2] % 3};
        if (strata_zone_capture_begin(zone, &request, &ref.capture) != STRATA_ZONE_OK) ref.capture = NULL;
        if (ref.capture == NULL) return;
        (void)strata_zone_capture_poll(ref.capture, &ref.capture_first, &left);
        ref.capture_frames = request.frames;
        ref.capture_mobility = request.mobility;
        model_trace(model, "capture %llu + %llu", (unsigned long long)ref.capture_first, (unsigned long long)request.frames);
        return;
    }
    begin_moves(record, &passes, &stats);
    (void)strata_zone_capture_push(ref.capture, record->byte[1]);
    end_moves(&passes, &stats);
    if (record->byte[2] % 4 == 0) {
        model_trace(model, "give up");
        strata_zone_capture_give_up(ref.capture);
        ref.capture = NULL;
        return;
    }
    uint64_t missing = 0;
    for (uint64_t i = ref.capture_first; i < ref.capture_first + ref.capture_frames; i++) missing += ref.at[i] != NONE;
    enum strata_zone_status status = strata_zone_capture_end(ref.capture, &frame);
    model_trace(model, "capture: %d, %llu missing", status, (unsigned long long)missing);
    MODEL_EXPECT(model, (status == STRATA_ZONE_OK) == (missing == 0), "status %d, and %llu frames are missing", status, (unsigned long long)missing);
    if (status != STRATA_ZONE_OK) return;
    ref.capture = NULL;
    unsigned which = new_block();
    ref.blocks[which] = (struct block){.kind = FIXED, .mobility = ref.capture_mobility, .frame = ref.capture_first, .frames = ref.capture_frames};
    MODEL_EXPECT(model, frame == ref.capture_first, "another range");
    write_contents(&ref.blocks[which]);
}

static void step_settings(const struct model_record *record) {
    uint64_t superpages = record->byte[1] % (ref.superpages + 2), bytes = superpages * STRATA_ZONE_SUPERPAGE_BYTES;
    if (record->byte[2] % 3 == 0) {
        unsigned effort = record->byte[3] % 8;
        MODEL_EXPECT(model, strata_zone_set_effort(zone, effort) == STRATA_ZONE_OK, "no effort");
        model_trace(model, "effort %u", effort);
    } else if (record->byte[2] % 3 == 1) {
        enum strata_zone_status status = strata_zone_set_reserve(zone, bytes);
        model_trace(model, "reserve of %llu", (unsigned long long)superpages);
        MODEL_EXPECT(model, status == (superpages > ref.superpages ? STRATA_ZONE_BAD_ARGUMENT : STRATA_ZONE_OK), "reserve: %d", status);
    } else {
        enum strata_zone_status expected = superpages > ref.superpages ? STRATA_ZONE_BAD_ARGUMENT : STRATA_ZONE_OK;
        for (uint64_t i = (ref.superpages - superpages) * SUPERPAGE_FRAMES; expected == STRATA_ZONE_OK && i < ref.frames; i++)
            if (ref.at[i] != NONE && ref.blocks[ref.at[i]].mobility == STRATA_ZONE_UNMOVABLE) expected = STRATA_ZONE_BUSY;
        bool wanted = ref.capture != NULL && ref.capture_mobility == STRATA_ZONE_UNMOVABLE; /* whose superpage may be anywhere */
        enum strata_zone_status status = strata_zone_partition_resize(zone, bytes);
        model_trace(model, "partition of %llu: %d", (unsigned long long)superpages, status);
        MODEL_EXPECT(model, status == expected || (wanted && status == STRATA_ZONE_BUSY), "partition: %d in place of %d", status, expected);
    }
}

static void step(struct model *of, const struct model_record *record) {
    model = of;
    look();
    switch (record->byte[0] % 32) {
    case 0: return;
    case 1 ... 8: step_alloc(record); break;
    case 9 ... 14: step_free(record); break;
    case 15 ... 18: step_handle_alloc(record); break;
    case 19 ... 22: step_hold(record); break;
    case 23: step_pin(record); break;
    case 24 ... 27: step_compact(record); break;
    case 28: step_reclaim(record); break;
    case 29: step_settings(record); break;
    default: step_capture(record); break;
    }
    if (!model->failed && (!model->long_run || model->operation % 16 == 0)) check_all();
}

/* ------------------------------------------------------------------ begin and end */

static void begin(struct model *of, const struct model_record *stage) {
    model = of;
    memset(&ref, 0, sizeof ref);
    ref.superpages = 2 + stage->byte[0] % 5u;
    ref.frames = ref.superpages * SUPERPAGE_FRAMES;
    ref.grouped = stage->byte[1] % 4 != 1;
    ref.frees = NONE;
    const struct strata_zone_config config = {.name = "model",
                                              .backend = STRATA_ZONE_ANON,
                                              .bytes = ref.superpages * STRATA_ZONE_SUPERPAGE_BYTES,
                                              .frame_bytes = FRAME_BYTES,
                                              .cpus = 2,
                                              .partition_bytes = stage->byte[2] % 2 * STRATA_ZONE_SUPERPAGE_BYTES,
                                              .flags = ref.grouped ? 0 : STRATA_ZONE_NO_GROUPING};
    const struct strata_zone_owner program = {.name = "model", .migrate = move, .reclaim = drop};
    const struct strata_zone_reclaim_config reclaim = {.policy = STRATA_ZONE_RECLAIM_AREA, .min_frames = 1, .low_frames = 1, .high_frames = 1};
    MODEL_EXPECT(model, strata_zone_create(&config, &zone) == STRATA_ZONE_OK, "no zone");
    MODEL_EXPECT(model, strata_zone_owner_add(zone, &program, &owner) == STRATA_ZONE_OK, "no owner");
    MODEL_EXPECT(model, strata_handles_create(zone, 0, &handles) == STRATA_HANDLE_OK, "no handles");
    MODEL_EXPECT(model, strata_zone_reclaim_start(zone, &reclaim) == STRATA_ZONE_OK, "no reclaim");
    if (stage->byte[3] % 2 != 0) MODEL_EXPECT(model, strata_zone_set_effort(zone, 7) == STRATA_ZONE_OK, "no effort");
    model_trace(model, "%llu superpages, %s", (unsigned long long)ref.superpages, ref.grouped ? "in groups" : "without groups");
}

/* All is let go of and freed: nothing is left anywhere. */
static void end(struct model *of) {
    struct strata_zone_stats stats;
    model = of;
    check_all();
    if (ref.capture != NULL) strata_zone_capture_give_up(ref.capture);
    ref.capture = NULL;
    for (unsigned which = 0; which < ref.frames && !model->failed; which++) {
        struct block *block = &ref.blocks[which];
        for (; block->pins != 0; block->pins--)
            MODEL_EXPECT(model, strata_zone_unpin(zone, block->frame, block->frames) == STRATA_ZONE_OK, "no unpin");
        for (; block->locks != 0; block->locks--) MODEL_EXPECT(model, strata_handle_unlock(handles, block->handle) == STRATA_HANDLE_OK, "no unlock");
        for (; block->readers != 0; block->readers--)
            MODEL_EXPECT(model, strata_handle_read_end(handles, block->handle) == STRATA_HANDLE_OK, "no end");
        if (block->writing) MODEL_EXPECT(model, strata_handle_write_end(handles, block->handle) == STRATA_HANDLE_OK, "no end");
        if (block->kind == FIXED || block->kind == OWNED) free_now(which);
    }
    if (model->failed) return;
    MODEL_EXPECT(model, strata_handles_destroy(handles) == STRATA_HANDLE_OK, "the handles can't be destroyed");
    MODEL_EXPECT(model, strata_zone_stats_get(zone, &stats) == STRATA_ZONE_OK && stats.free == ref.frames, "frames are lost in the end");
    MODEL_EXPECT(model, strata_zone_destroy(zone) == STRATA_ZONE_OK, "the zone can't be destroyed");
}

static const struct model_layer zone_moves_layer = {.begin = begin, .step = step, .end = end};
MODEL_EXPORT(zone_moves, &zone_moves_layer);
