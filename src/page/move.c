/*
 * move.c - pages that get another address, by the way that can be had: whole page tables, page by page, or, by the caller then, a copy. Which one is
 * cheaper is in cost.h.
 *
 * Page tables (mremap) are the fastest from a few pages on, but cut mappings, of which a process has a limited number; the heap spends a quarter of
 * them. Page by page (userfaultfd) none stays cut, so that idle pages go so, and all where mappings are used up. The target is registered for the
 * moment of the move only, so that no fault of the program is ever told to anybody, and its own use of userfaultfd is not in the way. What the kernel
 * will not move, as pages that a child shares since a fork, is copied. The file belongs to the process that opened it: a child of fork closes its
 * duplicate, and opens its own when it needs one. Lock: LOCK_RANK_ZONE.
 */
#include "page/zone_internal.h"

/*
 * The file is a process's own, and the child of vfork has its parent's record, but a table of files of its own: what it opened there the parent would
 * never find again, and lose what it had. So it goes without. Where nothing tells of that, a file of another process that is there says the same.
 */
static bool may_have_file(const struct mover *mover, uint32_t process) {
    if (mover->process == process) return true;
    return !platform_cpu_has_left() && (mover->process == 0 || !platform_faults_is_there(&mover->faults));
}

/* Opened at the first need; what the system refuses is not asked for again. */
static bool mover_ready(struct zone *zone) {
    struct mover *mover = &zone->mover;
    uint32_t process = platform_process_id();
    if (!may_have_file(mover, process)) return false;
    if (mover->process != process) {
        mover->process = process;
        (void)platform_faults_open(&mover->faults, PLATFORM_FAULTS_MOVE);
    }
    return mover->faults.file >= 0;
}

/*
 * A page that stays registered holds whoever touches it for ever. Where mappings are used up, a registration may end half way, and can't always be
 * taken back: closing the file takes all of it back, and never fails.
 */
static bool begin_target(struct zone *zone, char *to, size_t bytes) {
    enum platform_faults_status status = platform_faults_register(&zone->mover.faults, to, bytes, true, false);
    if (status == PLATFORM_FAULTS_OK) return true;
    platform_faults_close(&zone->mover.faults);
    if (status != PLATFORM_FAULTS_GONE) zone->mover.process = 0; /* else the program closes what it does not know: it shall not be asked again */
    return false;
}
static void end_target(struct zone *zone, char *to, size_t bytes) {
    if (platform_faults_unregister(&zone->mover.faults, to, bytes, false) == PLATFORM_FAULTS_OK) return;
    platform_faults_close(&zone->mover.faults);
    zone->mover.process = 0;
}

/*
 * Where the system refused, so many targets go without: twice as many after each. It does so for pages that a child of a fork shares, or has shared,
 * until they are written to.
 */
#define PAUSE_MAX 1024

static void pause_targets(struct zone *zone) {
    zone->mover.pause = (uint32_t)min_u64(2 * zone->mover.pause + 1, PAUSE_MAX);
    zone->mover.pause_left = zone->mover.pause;
}

/* A call that the program did not expect may be the end of it. Small heaps, such as those of programs that lock themselves in, do without. */
static bool may_open(const struct zone *zone) {
    if (zone->config.moves != ZONE_MOVES_AUTO) return zone->config.moves == ZONE_MOVES_UFFD;
    return zone->counters.populated >= TARGET_HEAP_GRANULES && !platform_is_filtered();
}

/*
 * What moves interrupts the processors that run the program's other threads, a page by itself each time anew, which is dearer than its copy, or a
 * first touch; and they wait for the lock meanwhile. So after another thread one has to ask so many times in a row.
 */
#define ASKED_ROW 16

bool zone_one_thread_moves(struct zone *zone) {
    struct mover *mover = &zone->mover;
    const uint32_t thread = platform_thread_token();
    if (mover->thread == thread) {
        if (mover->others != 0) mover->others--;
    } else {
        if (mover->thread != 0) mover->others = ASKED_ROW - 1;
        mover->thread = thread;
    }
    return mover->others == 0;
}

bool zone_target_ready(struct zone *zone) {
    struct mover *mover = &zone->mover;
    if (!may_open(zone)) return false;
    if (mover->pause_left != 0) {
        mover->pause_left--;
        return false;
    }
    uint32_t process = platform_process_id();
    return may_have_file(mover, process) && (mover->process != process || mover->faults.file >= 0);
}

bool zone_target_open(struct zone *zone, char *to, size_t bytes) {
    if (mover_ready(zone) && begin_target(zone, to, bytes)) return true;
    pause_targets(zone);
    return false;
}

/*
 * No call goes across a border of mappings, which who moved page tables has left: the half of it may be on this side. What is locked in memory by the
 * program is refused at any size, which costs less than a pause would.
 */
size_t zone_target_move(struct zone *zone, char *from, char *to, size_t bytes, size_t least_bytes) {
    size_t moved = 0;
    enum platform_faults_status status = platform_faults_move(&zone->mover.faults, to, from, bytes, &moved);
    while (status == PLATFORM_FAULTS_BAD_RANGE && moved == 0 && bytes > least_bytes) {
        bytes = max_u64(align_down(bytes / 2, least_bytes), least_bytes);
        status = platform_faults_move(&zone->mover.faults, to, from, bytes, &moved);
    }
    if (status == PLATFORM_FAULTS_OK)
        zone->mover.pause = 0;
    else if (status != PLATFORM_FAULTS_BAD_RANGE)
        pause_targets(zone);
    zone->counters.moves += moved != 0;
    return moved;
}

void zone_target_close(struct zone *zone, char *to, size_t bytes) { end_target(zone, to, bytes); }

/* Of a target that is nobody's fault any more. Returns how many bytes of the source can't be given back, and stay present, as zeros. */
static size_t copy_rest(char *from, char *to, size_t bytes) {
    if (bytes == 0) return 0;
    __builtin_memcpy(to, from, bytes);
    if (platform_release(from, bytes)) return 0;
    __builtin_memset(from, 0, bytes);
    return bytes;
}

static bool move_one_by_one(struct zone *zone, char *from, char *to, size_t bytes, size_t *kept_bytes) {
    size_t moved = 0;
    if (!mover_ready(zone) || !begin_target(zone, to, bytes)) return false;
    if (platform_release(to, bytes)) (void)platform_faults_move(&zone->mover.faults, to, from, bytes, &moved);
    end_target(zone, to, bytes);
    if (moved == 0) return false;
    *kept_bytes = copy_rest(from + moved, to + moved, bytes - moved);
    return true;
}

/* Empties targets, some by a call. What is not emptied will not be moved to. */
static void empty_targets(const struct zone_pages_move *moves, size_t count) {
    struct platform_range ranges[ROW_MOVES];
    for (size_t i = 0; i < count; i++) ranges[i] = (struct platform_range){moves[i].to, moves[i].bytes};
    (void)platform_release_all(ranges, count);
}

bool zone_move_one_by_one(struct zone *zone, const struct zone_pages_move *moves, size_t count) {
    char *first = moves->to, *end = first;
    size_t moved[ROW_MOVES];
    for (size_t i = 0; i < count; i++) {
        if (moves[i].to < first) first = moves[i].to;
        if (moves[i].to + moves[i].bytes > end) end = moves[i].to + moves[i].bytes;
    }
    if (!mover_ready(zone) || !begin_target(zone, first, (size_t)(end - first))) return false;
    empty_targets(moves, count);
    for (size_t i = 0; i < count; i++) {
        (void)platform_faults_move(&zone->mover.faults, moves[i].to, moves[i].from, moves[i].bytes, &moved[i]);
        zone->counters.moves += moved[i] != 0;
    }
    end_target(zone, first, (size_t)(end - first));
    /* Both ends are of blocks, whose pages count as present whether they are or not. */
    for (size_t i = 0; i < count; i++) (void)copy_rest(moves[i].from + moved[i], moves[i].to + moved[i], moves[i].bytes - moved[i]);
    return true;
}

static void note_end(struct zone *zone, size_t granule) {
    struct superpage *superpage = &zone->superpages[granule / SUPERPAGE_GRANULES];
    if (superpage->splits == UINT8_MAX) return;
    superpage->splits++;
    zone->counters.mappings++;
}

/* Superpages between which moves happened are reset as a whole when they are idle, which joins their mappings again. */
static void note_moved(struct zone *zone, const char *address, size_t bytes) {
    const struct superpage *last = superpage_of(zone, address + bytes - 1);
    for (struct superpage *superpage = superpage_of(zone, address); superpage <= last; superpage++) superpage->moved = true;
}

void zone_note_cuts(struct zone *zone, const char *address, size_t bytes) {
    note_moved(zone, address, bytes);
    note_end(zone, zone_granule_of(zone, address));
    note_end(zone, zone_granule_of(zone, address + bytes - 1));
}

/* Of the borders of a superpage that many are likely to lie in so many bytes of it. */
static unsigned share_of_cuts(const struct superpage *superpage, size_t bytes) {
    return (unsigned)((superpage->splits * bytes + SUPERPAGE_BYTES / 2) >> SUPERPAGE_SHIFT);
}

static void add_cuts(struct zone *zone, struct superpage *superpage, unsigned cuts) {
    cuts = (unsigned)min_u64(cuts, UINT8_MAX - superpage->splits);
    superpage->splits = (uint8_t)(superpage->splits + cuts);
    zone->counters.mappings += cuts;
}
static void take_cuts(struct zone *zone, struct superpage *superpage, unsigned cuts) {
    superpage->splits = (uint8_t)(superpage->splits - cuts);
    zone->counters.mappings -= cuts;
}

/* What of a range lies in the superpage in which its granule at `done` does. */
static size_t part_at(const char *address, size_t done, size_t bytes) {
    return min_u64(bytes - done, SUPERPAGE_BYTES - ((uintptr_t)(address + done) & (SUPERPAGE_BYTES - 1)));
}

void zone_inherit_cuts(struct zone *zone, const char *from, const char *address, size_t bytes) {
    for (size_t done = 0, part; done < bytes; done += part) {
        struct superpage *superpage = superpage_of(zone, address + done);
        part = part_at(address, done, bytes);
        take_cuts(zone, superpage, share_of_cuts(superpage, part));
    }
    for (size_t done = 0, part; done < bytes; done += part) {
        part = part_at(from, done, bytes);
        add_cuts(zone, superpage_of(zone, address + done), share_of_cuts(superpage_of(zone, from + done), part));
    }
    zone_note_cuts(zone, address, bytes);
}

static STRATA_COLD void forget_end(struct zone *zone, size_t granule) {
    struct superpage *superpage = &zone->superpages[granule / SUPERPAGE_GRANULES];
    if (superpage->splits == 0 || superpage->splits == UINT8_MAX) return; /* of more than are known nothing is taken off */
    superpage->splits--;
    zone->counters.mappings--;
}

void zone_forget_cuts(struct zone *zone, const char *address, size_t bytes) {
    forget_end(zone, zone_granule_of(zone, address));
    forget_end(zone, zone_granule_of(zone, address + bytes - 1));
}

void zone_note_reset(struct zone *zone, struct superpage *superpage) {
    superpage->moved = false;
    zone_note_advice(zone, superpage, 1, false);
    take_cuts(zone, superpage, superpage->splits);
    zone_exchange_forget(zone, superpage_address(zone, superpage), SUPERPAGE_BYTES);
}

void zone_join_absent(struct zone *zone, struct superpage *first, size_t count) {
    for (size_t i = 0, end; i < count; i = end + 1) {
        for (end = i; end < count && first[end].moved && bits_count(first[end].populated) == 0; end++) continue;
        if (end == i || !platform_reset(superpage_address(zone, &first[i]), (end - i) << SUPERPAGE_SHIFT)) continue;
        for (; i < end; i++) zone_note_reset(zone, &first[i]);
    }
}

void zone_join_cut(struct zone *zone, struct superpage *first, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (first[i].splits == 0 || !platform_reset(superpage_address(zone, &first[i]), SUPERPAGE_BYTES)) continue;
        zone_note_reset(zone, &first[i]);
        zone_mark_released(zone, &first[i], 0, SUPERPAGE_GRANULES);
    }
}

bool zone_can_move_tables(const struct zone *zone) {
    return (zone->config.moves == ZONE_MOVES_AUTO || zone->config.moves == ZONE_MOVES_MREMAP) && zone_mappings_left(zone);
}

bool zone_can_move(struct zone *zone) {
    switch (zone->config.moves) {
    case ZONE_MOVES_AUTO: return zone_mappings_left(zone) || mover_ready(zone);
    case ZONE_MOVES_MREMAP: return zone_mappings_left(zone);
    case ZONE_MOVES_UFFD: return mover_ready(zone);
    default: return false;
    }
}

/* Three moves one by one, each for three times what a copy costs, would be no better than copying, and worse to undo. */
bool zone_can_swap(const struct zone *zone) { return zone_can_move_tables(zone); }

/* The advice is the mapping's, and moves along. What is less than a superpage has, by the marks, that of its place. */
static void advice_follows(struct zone *zone, const char *from, const char *to, size_t bytes) {
    if ((((uintptr_t)from | (uintptr_t)to) & (SUPERPAGE_BYTES - 1)) != 0) return;
    const struct superpage *source = superpage_of(zone, from);
    struct superpage *target = superpage_of(zone, to);
    for (size_t i = 0; i < bytes >> SUPERPAGE_SHIFT; i++) zone_note_advice(zone, &target[i], 1, source[i].huge);
}

bool zone_move(struct zone *zone, char *from, char *to, size_t bytes, size_t *kept_bytes) {
    bool one_by_one = zone->config.moves == ZONE_MOVES_AUTO || zone->config.moves == ZONE_MOVES_UFFD;
    *kept_bytes = 0;
    if (zone_can_move_tables(zone) && platform_move(from, to, bytes)) {
        note_moved(zone, from, bytes);
        zone_inherit_cuts(zone, from, to, bytes);
        zone_exchange_forget(zone, from, bytes);
        zone_exchange_forget(zone, to, bytes);
        advice_follows(zone, from, to, bytes);
    } else if (!one_by_one || !move_one_by_one(zone, from, to, bytes, kept_bytes)) {
        return false;
    }
    zone->counters.moves++;
    return true;
}
