/*
 * handle_api.c - handles of movable blocks (strata/handle.h), over strata/zone.h as any program could have them.
 *
 * The table is one reservation: this struct, then an entry a handle, committed as they are used. An entry's state is one word (handle_state.h),
 * changed by compare-and-swap alone; whoever has to wait marks that there and sleeps on `turn`, which the one who takes the mark away changes. frame,
 * frames and moves belong to whoever keeps the others out: they are written by a mover that has WRITER and MOVING, by an allocation before LIVE and
 * by nobody else, and read by whoever holds the block. Locks: handles->lock (LOCK_RANK_HANDLES) guards the free places and what is committed; nothing
 * is called under it but the platform.
 */
#include "strata/handle.h"

#include "api/handle_state.h"
#include "api/zone_public.h"
#include "page/frames.h"
#include "platform/platform.h"

struct entry {
    uint64_t state; /* atomic */
    uint64_t frame; /* of one that is free: the next free place + 1, or 0 */
    uint32_t frames, moves;
    uint32_t turn; /* atomic, a futex */
    uint32_t unused;
};

struct strata_handles {
    struct platform_lock lock;
    struct strata_zone *zone;
    size_t frame_bytes, reserved_bytes, committed_bytes;
    unsigned owner;
    uint64_t entries_max, entries_used; /* places that ever were */
    uint64_t first_free;                /* + 1; 0: none */
    /* atomic */
    uint64_t handles, frames, moves, refused_held, refused_waited, refused_readers;
    struct entry entries[];
};

#define COMMIT_BYTES (64 * KIB)
/* How often a mover looks again for the last reader to leave. */
#define SWITCH_TRIES 64u
/* Between two looks at a block that the zone still counts as on the move, though its mover has given up. */
#define BUSY_NS 20000u

#define HANDLE_PLACE(handle) ((uint32_t)(handle) - 1)
#define HANDLE_OF(generation, place) ((uint64_t)(generation) << 32 | ((place) + 1))

const char *strata_handle_status_text(enum strata_handle_status status) {
    static const char *const texts[] = {[STRATA_HANDLE_OK] = "success",
                                        [STRATA_HANDLE_NO_MEMORY] = "no memory",
                                        [STRATA_HANDLE_BAD_ARGUMENT] = "bad argument",
                                        [STRATA_HANDLE_NO_HANDLE] = "not a handle, or freed",
                                        [STRATA_HANDLE_IN_USE] = "locked, guarded or pinned",
                                        [STRATA_HANDLE_NOT_HELD] = "not held in this way",
                                        [STRATA_HANDLE_TOO_OFTEN] = "held too often, or too many handles",
                                        [STRATA_HANDLE_UNSUPPORTED] = "a zone without memory"};
    return (unsigned)status < ARRAY_LENGTH(texts) ? texts[status] : "unknown status";
}

/* ------------------------------------------------------------------ states */

static void add(uint64_t *counter, uint64_t amount) { __atomic_fetch_add(counter, amount, __ATOMIC_RELAXED); }

/* One try; GONE where the block of that generation is no more. */
static enum handle_step step(struct entry *entry, uint64_t generation, handle_step_function *function, bool *again) {
    uint64_t seen = __atomic_load_n(&entry->state, __ATOMIC_ACQUIRE), next = seen;
    *again = false;
    if ((seen & HANDLE_LIVE) == 0 || handle_generation(seen) != generation) return HANDLE_GONE;
    enum handle_step answer = function(seen, &next);
    if (answer != HANDLE_DONE && answer != HANDLE_WAIT) return answer;
    platform_interleave();
    if (!__atomic_compare_exchange_n(&entry->state, &seen, next, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
        *again = true;
        return answer;
    }
    if ((seen & HANDLE_WAITED) != 0 && (next & HANDLE_WAITED) == 0) {
        __atomic_fetch_add(&entry->turn, 1, __ATOMIC_RELEASE);
        platform_word_wake(&entry->turn);
    }
    return answer;
}

/* Until it is done, or can't be; WAIT is not among the answers. */
static enum handle_step take(struct entry *entry, uint64_t generation, handle_step_function *function) {
    for (bool again;;) {
        uint32_t turn = __atomic_load_n(&entry->turn, __ATOMIC_ACQUIRE); /* before the look: what changes after it ends the sleep */
        enum handle_step answer = step(entry, generation, function, &again);
        if (again) continue;
        if (answer != HANDLE_WAIT) return answer;
        platform_word_wait(&entry->turn, turn);
    }
}

static enum strata_handle_status public_status(enum handle_step answer) {
    static const enum strata_handle_status statuses[] = {[HANDLE_DONE] = STRATA_HANDLE_OK,
                                                         [HANDLE_GONE] = STRATA_HANDLE_NO_HANDLE,
                                                         [HANDLE_FULL] = STRATA_HANDLE_TOO_OFTEN,
                                                         [HANDLE_IDLE] = STRATA_HANDLE_NOT_HELD,
                                                         [HANDLE_HELD] = STRATA_HANDLE_IN_USE};
    return statuses[answer];
}

/* NULL: there never was such a place. */
static struct entry *entry_of(struct strata_handles *handles, strata_handle handle) {
    uint32_t place = HANDLE_PLACE(handle);
    return place < __atomic_load_n(&handles->entries_used, __ATOMIC_ACQUIRE) ? &handles->entries[place] : NULL;
}

static STRATA_COLD enum strata_handle_status misused(struct strata_handles *handles, const char *function, strata_handle handle,
                                                     enum strata_handle_status status) {
    static const char *const texts[] = {[STRATA_HANDLE_NO_HANDLE] = "freed, or never was one; must be of strata_handle_alloc",
                                        [STRATA_HANDLE_IN_USE] = "locked, guarded or pinned; must not be",
                                        [STRATA_HANDLE_NOT_HELD] = "not held in this way; must be",
                                        [STRATA_HANDLE_TOO_OFTEN] = "held as often as can be counted; must be less often"};
    const char *text = status < ARRAY_LENGTH(texts) ? texts[status] : NULL;
    if (text != NULL) (void)zone_bad(zone_of(handles->zone), function, "handle", handle, text);
    return status;
}

static STRATA_COLD enum strata_handle_status null_argument(struct strata_handles *handles, const char *function, const char *argument) {
    if (handles != NULL) (void)zone_null(handles->zone, function, argument);
    return STRATA_HANDLE_BAD_ARGUMENT;
}

static enum strata_handle_status change(struct strata_handles *handles, const char *function, strata_handle handle, handle_step_function *next) {
    if (handles == NULL) return STRATA_HANDLE_BAD_ARGUMENT;
    struct entry *entry = entry_of(handles, handle);
    enum strata_handle_status status = entry == NULL ? STRATA_HANDLE_NO_HANDLE : public_status(take(entry, handle >> 32, next));
    return STRATA_LIKELY(status == STRATA_HANDLE_OK) ? status : misused(handles, function, handle, status);
}

/* Of a block that is held. */
static void *address_of(struct strata_handles *handles, strata_handle handle) {
    return strata_zone_address(handles->zone, handles->entries[HANDLE_PLACE(handle)].frame);
}

/* ------------------------------------------------------------------ the mover */

/* Frame by frame, with a look at who waits. */
static bool copy_frames(struct strata_handles *handles, struct entry *entry, uint64_t from, uint64_t to, uint64_t frames) {
    for (uint64_t i = 0; i < frames; i++) {
        if ((__atomic_load_n(&entry->state, __ATOMIC_RELAXED) & HANDLE_WAITED) != 0) return false;
        if (strata_zone_copy(handles->zone, from + i, to + i, 1) != STRATA_ZONE_OK) return false;
    }
    return true;
}

/* The place changes in the instant in which nobody reads there. DONE, GIVE_UP or HELD. */
static enum handle_step switch_place(struct entry *entry, uint64_t generation, uint64_t to) {
    enum handle_step answer = HANDLE_HELD;
    for (unsigned tries = 0; tries < SWITCH_TRIES && answer == HANDLE_HELD; tries++) {
        bool again = false;
        do answer = step(entry, generation, handle_move_switch, &again);
        while (again);
        if (answer == HANDLE_HELD) platform_interleave();
    }
    if (answer == HANDLE_DONE) {
        entry->frame = to;
        entry->moves++;
    }
    return answer;
}

static enum strata_zone_answer migrate(struct strata_zone *zone, uint64_t from, uint64_t to, uint64_t frames, uint64_t token, void *context) {
    (void)zone;
    struct strata_handles *handles = context;
    struct entry *entry = entry_of(handles, token);
    uint64_t generation = token >> 32;
    if (entry == NULL) return STRATA_ZONE_LATER;
    if (take(entry, generation, handle_move_begin) != HANDLE_DONE) {
        add(&handles->refused_held, 1);
        return STRATA_ZONE_LATER;
    }
    /* MOVING: nobody else writes these two, or frees the block. A block may have been allocated and not be known by its frame yet: then it isn't
     * LIVE. */
    enum handle_step answer = HANDLE_GIVE_UP;
    if (entry->frame == from && entry->frames == frames && copy_frames(handles, entry, from, to, frames))
        answer = switch_place(entry, generation, to);
    (void)take(entry, generation, handle_move_end);
    add(answer == HANDLE_DONE ? &handles->moves : answer == HANDLE_HELD ? &handles->refused_readers : &handles->refused_waited, 1);
    return answer == HANDLE_DONE ? STRATA_ZONE_YES : STRATA_ZONE_LATER;
}

/* ------------------------------------------------------------------ life */

#define CREATE "strata_handles_create"
static enum strata_handle_status no_table(struct strata_zone *zone, uint64_t handles_max) {
    (void)zone_bad(zone_of(zone), CREATE, "handles_max", handles_max, "as many as there is address space and memory for");
    return STRATA_HANDLE_NO_MEMORY;
}

enum strata_handle_status strata_handles_create(struct strata_zone *zone, uint64_t handles_max, struct strata_handles **out) {
    if (zone == NULL || out == NULL) {
        (void)zone_null(zone, CREATE, "handles");
        return STRATA_HANDLE_BAD_ARGUMENT;
    }
    if (handles_max > STRATA_HANDLES_MAX) {
        (void)zone_bad(zone_of(zone), CREATE, "handles_max", handles_max, "at most STRATA_HANDLES_MAX, 2^28");
        return STRATA_HANDLE_BAD_ARGUMENT;
    }
    if (strata_zone_address(zone, 0) == NULL) {
        (void)zone_bad(zone_of(zone), CREATE, "zone", 0, "one with memory");
        return STRATA_HANDLE_UNSUPPORTED;
    }
    if (handles_max == 0) handles_max = min_u64(strata_zone_frames(zone), STRATA_HANDLES_MAX);
    platform_init();
    size_t bytes = align_up(sizeof(struct strata_handles) + handles_max * sizeof(struct entry), COMMIT_BYTES);
    struct strata_handles *handles = platform_reserve(NULL, bytes, COMMIT_BYTES);
    if (handles == NULL) return no_table(zone, handles_max);
    const struct strata_zone_owner owner = {.name = "handles", .migrate = migrate, .context = handles};
    unsigned number;
    bool there = platform_commit(handles, COMMIT_BYTES);
    if (!there || strata_zone_owner_add(zone, &owner, &number) != STRATA_ZONE_OK) {
        platform_unreserve(handles, bytes);
        return there ? STRATA_HANDLE_NO_MEMORY : no_table(zone, handles_max); /* of owners the zone has said it */
    }
    handles->lock = (struct platform_lock)PLATFORM_LOCK_INIT(LOCK_RANK_HANDLES);
    handles->zone = zone;
    handles->frame_bytes = strata_zone_frame_bytes(zone);
    handles->reserved_bytes = bytes;
    handles->committed_bytes = COMMIT_BYTES;
    handles->owner = number;
    handles->entries_max = handles_max;
    *out = handles;
    return STRATA_HANDLE_OK;
}

/* What the zone would say to a free of the block now; one that is held counts as pinned. */
static enum frames_status may_go(struct strata_handles *handles, const struct entry *entry) {
    if ((entry->state & HANDLE_WRITER) != 0 || handle_readers(entry->state) != 0 || handle_pins(entry->state) != 0) return FRAMES_PINNED;
    return frames_may_free(zone_of(handles->zone), entry->frame, entry->frames);
}

enum strata_handle_status strata_handles_destroy(struct strata_handles *handles) {
    if (handles == NULL) return STRATA_HANDLE_OK;
    /* All are looked at before any goes. What is in the way after that was pinned meanwhile, against what is said of other threads: then those that
     * are left stay what they are, as does the owner, which the zone goes on to ask about them. */
    for (unsigned pass = 0; pass < 2; pass++) {
        for (uint64_t i = 0; i < handles->entries_used; i++) {
            const struct entry *entry = &handles->entries[i];
            enum frames_status status = (entry->state & HANDLE_LIVE) != 0 ? may_go(handles, entry) : FRAMES_NOT_ALLOCATED;
            if (status == FRAMES_NOT_ALLOCATED) continue; /* also where the program has freed the frames behind our back */
            strata_handle handle = HANDLE_OF(handle_generation(entry->state), i);
            bool stays = status == FRAMES_PINNED || status == FRAMES_MAPPED;
            if (stays || (pass == 1 && strata_handle_free(handles, handle) != STRATA_HANDLE_OK))
                return misused(handles, "strata_handles_destroy", handle, STRATA_HANDLE_IN_USE);
        }
    }
    frames_owner_remove(zone_of(handles->zone), handles->owner);
    platform_unreserve(handles, handles->reserved_bytes);
    return STRATA_HANDLE_OK;
}

/* A free place, nobody else's from now on. NULL: none, and why. */
static struct entry *take_place(struct strata_handles *handles, enum strata_handle_status *status) {
    struct entry *entry = NULL;
    *status = STRATA_HANDLE_TOO_OFTEN;
    platform_lock_acquire(&handles->lock);
    if (handles->first_free != 0) {
        entry = &handles->entries[handles->first_free - 1];
        handles->first_free = entry->frame;
    } else if (handles->entries_used < handles->entries_max) {
        size_t end = sizeof *handles + (handles->entries_used + 1) * sizeof *entry;
        bool there = end <= handles->committed_bytes || platform_commit((char *)handles + handles->committed_bytes, COMMIT_BYTES);
        *status = STRATA_HANDLE_NO_MEMORY;
        if (there) {
            if (end > handles->committed_bytes) handles->committed_bytes += COMMIT_BYTES;
            entry = &handles->entries[handles->entries_used];
            __atomic_store_n(&handles->entries_used, handles->entries_used + 1, __ATOMIC_RELEASE);
        }
    }
    platform_lock_release(&handles->lock);
    return entry;
}

static void give_place(struct strata_handles *handles, struct entry *entry) {
    platform_lock_acquire(&handles->lock);
    entry->frame = handles->first_free;
    handles->first_free = (uint64_t)(entry - handles->entries) + 1;
    platform_lock_release(&handles->lock);
}

#define ALLOC "strata_handle_alloc"

enum strata_handle_status strata_handle_alloc(struct strata_handles *handles, size_t bytes, strata_handle *handle) {
    enum strata_handle_status status;
    if (handles == NULL || handle == NULL) return null_argument(handles, ALLOC, "handle");
    uint64_t frames = bytes / handles->frame_bytes + (bytes % handles->frame_bytes != 0), frame;
    if (bytes == 0 || frames > strata_zone_frames(handles->zone)) {
        (void)zone_bad(zone_of(handles->zone), ALLOC, "bytes", bytes, "above 0, at most those of the zone");
        return STRATA_HANDLE_BAD_ARGUMENT;
    }
    struct entry *entry = take_place(handles, &status);
    if (entry == NULL) {
        (void)zone_bad(zone_of(handles->zone), ALLOC, "handles", handles->entries_used, "as many as the table has places and memory for");
        return status;
    }
    uint64_t generation = handle_generation(__atomic_load_n(&entry->state, __ATOMIC_RELAXED)),
             named = HANDLE_OF(generation, (uint64_t)(entry - handles->entries));
    const struct strata_zone_request request = {.frames = frames, .mobility = STRATA_ZONE_MOVABLE, .owner = handles->owner, .token = named};
    if (strata_zone_alloc_as(handles->zone, &request, &frame) != STRATA_ZONE_OK) {
        give_place(handles, entry);
        (void)zone_bad(zone_of(handles->zone), ALLOC, "bytes", bytes, "as many as lie free together, after compaction and reclaim as they are set");
        return STRATA_HANDLE_NO_MEMORY;
    }
    entry->frame = frame;
    entry->frames = (uint32_t)frames;
    entry->moves = 0;
    platform_interleave();
    __atomic_store_n(&entry->state, HANDLE_LIVE | generation << HANDLE_GENERATION_SHIFT, __ATOMIC_RELEASE);
    add(&handles->handles, 1);
    add(&handles->frames, frames);
    *handle = named;
    return STRATA_HANDLE_OK;
}

/* Sleeps a little: a mover has given this block up, and is on its way back to the zone. */
static void let_mover_go(void) {
    struct platform_event nobody = {0};
    (void)platform_event_wait(&nobody, BUSY_NS);
}

enum strata_handle_status strata_handle_free(struct strata_handles *handles, strata_handle handle) {
    if (handle == 0) return STRATA_HANDLE_OK;
    enum strata_handle_status status = change(handles, "strata_handle_free", handle, handle_free_begin);
    if (status != STRATA_HANDLE_OK) return status;
    struct entry *entry = &handles->entries[HANDLE_PLACE(handle)];
    uint64_t frames = entry->frames;
    enum strata_zone_status freed;
    while ((freed = strata_zone_free(handles->zone, entry->frame, frames)) == STRATA_ZONE_BUSY) let_mover_go();
    if (freed != STRATA_ZONE_OK) {
        (void)take(entry, handle >> 32, handle_write_end);
        return misused(handles, "strata_handle_free", handle, STRATA_HANDLE_IN_USE);
    }
    (void)take(entry, handle >> 32, handle_free_end);
    give_place(handles, entry);
    add(&handles->handles, UINT64_MAX);
    add(&handles->frames, 0 - frames);
    return STRATA_HANDLE_OK;
}

/* ------------------------------------------------------------------ holding a block */

#define LOCK "strata_handle_lock"
#define UNLOCK "strata_handle_unlock"

enum strata_handle_status strata_handle_lock(struct strata_handles *handles, strata_handle handle, void **address) {
    enum strata_handle_status status = change(handles, LOCK, handle, handle_pin);
    if (status != STRATA_HANDLE_OK) return status;
    struct entry *entry = &handles->entries[HANDLE_PLACE(handle)];
    enum strata_zone_status pinned;
    while ((pinned = strata_zone_pin(handles->zone, entry->frame, entry->frames)) == STRATA_ZONE_BUSY) let_mover_go();
    if (pinned != STRATA_ZONE_OK) {
        (void)take(entry, handle >> 32, handle_unpin);
        return pinned == STRATA_ZONE_PINNED ? misused(handles, LOCK, handle, STRATA_HANDLE_TOO_OFTEN)
                                            : STRATA_HANDLE_NO_MEMORY; /* the zone said why */
    }
    if (address != NULL) *address = address_of(handles, handle);
    return STRATA_HANDLE_OK;
}

enum strata_handle_status strata_handle_unlock(struct strata_handles *handles, strata_handle handle) {
    if (handles == NULL) return STRATA_HANDLE_BAD_ARGUMENT;
    struct entry *entry = entry_of(handles, handle);
    uint64_t state = entry == NULL ? 0 : __atomic_load_n(&entry->state, __ATOMIC_ACQUIRE);
    if ((state & HANDLE_LIVE) == 0 || handle_generation(state) != handle >> 32) return misused(handles, UNLOCK, handle, STRATA_HANDLE_NO_HANDLE);
    if (handle_pins(state) == 0) return misused(handles, UNLOCK, handle, STRATA_HANDLE_NOT_HELD);
    uint64_t frame = entry->frame; /* stays while it is locked */
    /* The zone first: a mover that comes in between finds it locked here; and nobody frees it meanwhile. */
    if (strata_zone_unpin(handles->zone, frame, entry->frames) != STRATA_ZONE_OK) return misused(handles, UNLOCK, handle, STRATA_HANDLE_NOT_HELD);
    return public_status(take(entry, handle >> 32, handle_unpin));
}

enum strata_handle_status strata_handle_read(struct strata_handles *handles, strata_handle handle, const void **address) {
    if (address == NULL) return null_argument(handles, "strata_handle_read", "address");
    enum strata_handle_status status = change(handles, "strata_handle_read", handle, handle_read);
    if (status == STRATA_HANDLE_OK) *address = address_of(handles, handle);
    return status;
}
enum strata_handle_status strata_handle_read_end(struct strata_handles *handles, strata_handle handle) {
    return change(handles, "strata_handle_read_end", handle, handle_read_end);
}

enum strata_handle_status strata_handle_write(struct strata_handles *handles, strata_handle handle, void **address) {
    if (address == NULL) return null_argument(handles, "strata_handle_write", "address");
    enum strata_handle_status status = change(handles, "strata_handle_write", handle, handle_write);
    if (status == STRATA_HANDLE_OK) *address = address_of(handles, handle);
    return status;
}
enum strata_handle_status strata_handle_write_end(struct strata_handles *handles, strata_handle handle) {
    return change(handles, "strata_handle_write_end", handle, handle_write_end);
}

/* ------------------------------------------------------------------ looking inside */

#define QUERY "strata_handle_query"
enum strata_handle_status strata_handle_query(struct strata_handles *handles, strata_handle handle, struct strata_handle_info *info) {
    if (info == NULL) return null_argument(handles, QUERY, "info");
    enum strata_handle_status status = change(handles, QUERY, handle, handle_read); /* so that it stays, as it is told */
    if (status != STRATA_HANDLE_OK) return status;
    const struct entry *entry = &handles->entries[HANDLE_PLACE(handle)];
    uint64_t state = __atomic_load_n(&entry->state, __ATOMIC_RELAXED);
    *info = (struct strata_handle_info){.bytes = entry->frames * handles->frame_bytes,
                                        .frame = entry->frame,
                                        .locks = (unsigned)handle_pins(state),
                                        .readers = (unsigned)handle_readers(state) - 1,
                                        .moving = (state & HANDLE_MOVING) != 0,
                                        .moves = entry->moves};
    return change(handles, QUERY, handle, handle_read_end);
}

enum strata_handle_status strata_handles_stats_get(struct strata_handles *handles, struct strata_handles_stats *stats) {
    if (handles == NULL || stats == NULL) return null_argument(handles, "strata_handles_stats_get", "stats");
    *stats = (struct strata_handles_stats){.handles = __atomic_load_n(&handles->handles, __ATOMIC_RELAXED),
                                           .bytes = __atomic_load_n(&handles->frames, __ATOMIC_RELAXED) * handles->frame_bytes,
                                           .moves = __atomic_load_n(&handles->moves, __ATOMIC_RELAXED),
                                           .refused_held = __atomic_load_n(&handles->refused_held, __ATOMIC_RELAXED),
                                           .refused_waited = __atomic_load_n(&handles->refused_waited, __ATOMIC_RELAXED),
                                           .refused_readers = __atomic_load_n(&handles->refused_readers, __ATOMIC_RELAXED)};
    return STRATA_HANDLE_OK;
}

const char *strata_handles_check(struct strata_handles *handles) {
    if (handles == NULL) return "handles: none";
    uint64_t live = 0, frames = 0, places = 0;
    for (uint64_t i = 0; i < handles->entries_used; i++) {
        const struct entry *entry = &handles->entries[i];
        struct strata_zone_frame_info info;
        if ((entry->state & HANDLE_LIVE) == 0) continue;
        live++;
        frames += entry->frames;
        if (strata_zone_query(handles->zone, entry->frame, &info) != STRATA_ZONE_OK || !info.allocated) return "handles: a block is not allocated";
        if (info.first != entry->frame || info.frames != entry->frames) return "handles: a block has other bounds in the zone";
        if (info.owner != handles->owner || HANDLE_PLACE(info.token) != i) return "handles: a block belongs to another handle";
        if (handle_pins(entry->state) > info.pins) return "handles: a locked block is not pinned";
        if ((entry->state & (HANDLE_MOVING | HANDLE_WAITED)) != 0) return "handles: somebody moves, or waits for, a block";
    }
    for (uint64_t place = handles->first_free; place != 0 && places <= handles->entries_used; place = handles->entries[place - 1].frame) {
        if ((handles->entries[place - 1].state & HANDLE_LIVE) != 0) return "handles: a place is free and in use";
        places++;
    }
    if (live != handles->handles || frames != handles->frames || live + places != handles->entries_used) return "handles: the counters are wrong";
    return NULL;
}
