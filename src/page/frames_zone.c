/*
 * frames_zone.c - life of a zone of frames, its owners, its figures. Locks: see frames.h.
 *
 * All that a zone needs stands in one reservation: this struct, slots, superpages, the maps, and the arrays by frames, which take memory page by page
 * as they are written. A process without zones has none of it.
 */
#include "page/frames_backing.h"
#include "page/frames_compact.h"
#include "page/frames_index.h"
#include "page/frames_internal.h"
#include "page/frames_reclaim.h"

#include <string.h>

/* ------------------------------------------------------------------ life */

#define KNOWN_FLAGS ((unsigned)(FRAMES_NO_GROUPING | FRAMES_SCATTER | FRAMES_HUGE_IN_PARTITION | FRAMES_ON_NODE))

enum frames_status frames_config_check(const struct frames_config *config, struct frames_complaint *complaint) {
    size_t page = platform_info()->page_bytes, frame = config->frame_bytes != 0 ? config->frame_bytes : page;
    *complaint = (struct frames_complaint){"name", "not NULL", 0};
    if (config->name == NULL) return FRAMES_BAD_ARGUMENT;
    *complaint = (struct frames_complaint){"backend", "those of strata_zone_backend", config->backend};
    if ((unsigned)config->backend > FRAMES_HEAP) return FRAMES_BAD_ARGUMENT;
    *complaint = (struct frames_complaint){"frame_bytes", "4096, 16384 or 65536, not less than the system's page; or 0", config->frame_bytes};
    if (frame != 4 * KIB && frame != 16 * KIB && frame != 64 * KIB) return FRAMES_BAD_ARGUMENT;
    if (frame < page && config->backend != FRAMES_SIM) return FRAMES_BAD_ARGUMENT;
    *complaint = (struct frames_complaint){"bytes", "a multiple of 2 MiB above 0, of at most 2^31 frames", config->bytes};
    if (config->bytes == 0 || config->bytes % FRAMES_SUPERPAGE_BYTES != 0 || config->bytes / frame > FRAMES_MAX) return FRAMES_BAD_ARGUMENT;
    *complaint = (struct frames_complaint){"reserve_bytes", "at most the zone", config->reserve_bytes};
    if (config->reserve_bytes > config->bytes) return FRAMES_BAD_ARGUMENT;
    *complaint = (struct frames_complaint){"partition_bytes", "at most the zone", config->partition_bytes};
    if (config->partition_bytes > config->bytes) return FRAMES_BAD_ARGUMENT;
    *complaint = (struct frames_complaint){"cpus", "at most 1024", config->cpus};
    if (config->cpus > FRAMES_CPUS_MAX) return FRAMES_BAD_ARGUMENT;
    *complaint = (struct frames_complaint){"flags", "those of strata_zone_flags", config->flags};
    return (config->flags & ~KNOWN_FLAGS) != 0 ? FRAMES_BAD_ARGUMENT : FRAMES_OK;
}

/* bytes: at most a zone's, so that nothing overflows. */
static uint64_t superpages_of(uint64_t bytes) { return (bytes + FRAMES_SUPERPAGE_BYTES - 1) / FRAMES_SUPERPAGE_BYTES; }

/* A part of the reservation; the parts begin with pages, so that they don't share any. */
static size_t part(size_t *total, uint64_t bytes) {
    size_t start = *total;
    *total = align_up(start + bytes, platform_info()->page_bytes);
    return start;
}

enum frames_status frames_zone_create(const struct frames_config *config, struct frame_zone **out) {
    static const struct frames_backend *const backends[] = {[FRAMES_MEMFD] = &frames_backend_memfd,
                                                            [FRAMES_HUGETLB] = &frames_backend_hugetlb,
                                                            [FRAMES_ANON] = &frames_backend_anon,
                                                            [FRAMES_SIM] = &frames_backend_sim,
                                                            [FRAMES_HEAP] = &frames_backend_heap};
    size_t frame_bytes = config->frame_bytes != 0 ? config->frame_bytes : platform_info()->page_bytes, total = 0;
    uint64_t frames = config->bytes / frame_bytes, superpages = superpages_of(config->bytes);
    unsigned cpus = (unsigned)min_u64(config->cpus != 0 ? config->cpus : platform_info()->cpus, FRAMES_CPUS_MAX);
    const struct frames_backend *backend = backends[config->backend];
    size_t zone_at = part(&total, sizeof(struct frame_zone) + cpus * sizeof(struct frames_slot));
    size_t captures_at = part(&total, FRAMES_CAPTURES_MAX * sizeof(struct frames_capture));
    size_t superpages_at = part(&total, superpages * sizeof(struct frames_superpage));
    size_t map_at = part(&total, (2 * (superpages / 64 + 1) + superpages / 4096 + 1) * 8);
    size_t notes_at = part(&total, frames * sizeof(uint32_t)), tokens_at = part(&total, frames * sizeof(uint64_t));
    size_t bits_at = part(&total, (frames / 64 + 1) * 16);
    size_t waits_at = part(&total, superpages * FRAMES_WORDS * sizeof(uint64_t));
    size_t addresses_at = backend->show != NULL ? part(&total, frames * sizeof(uint64_t)) : 0;
    size_t words_at = config->backend == FRAMES_SIM ? part(&total, frames * sizeof(uint64_t)) : 0;
    char *memory = platform_reserve(NULL, total, platform_info()->page_bytes);
    if (memory == NULL) return FRAMES_NO_MEMORY;
    if (!platform_commit(memory, total)) {
        platform_unreserve(memory, total);
        return FRAMES_NO_MEMORY;
    }
    struct frame_zone *zone = (struct frame_zone *)(void *)(memory + zone_at);
    zone->memory = memory;
    zone->memory_bytes = total;
    zone->kind = config->backend;
    zone->backend = backend;
    zone->lender = config->lender;
    zone->flags = config->flags;
    zone->frame_shift = bit_highest(frame_bytes);
    zone->superpage_frames = (unsigned)(FRAMES_SUPERPAGE_BYTES / frame_bytes);
    zone->batch = (unsigned)min_u64(SLOT_BATCH, zone->superpage_frames / 2);
    zone->superpage_shift = bit_highest(zone->superpage_frames);
    zone->frames = frames;
    zone->superpage_count = superpages;
    zone->slot_count = cpus;
    zone->slots = (struct frames_slot *)(void *)(zone + 1);
    zone->captures = (struct frames_capture *)(void *)(memory + captures_at);
    zone->superpages = (struct frames_superpage *)(void *)(memory + superpages_at);
    zone->free_map = (uint64_t *)(void *)(memory + map_at);
    zone->droppable = zone->free_map + superpages / 64 + 1;
    zone->free_summary = zone->droppable + superpages / 64 + 1;
    zone->notes = (uint32_t *)(void *)(memory + notes_at);
    zone->tokens = (uint64_t *)(void *)(memory + tokens_at);
    zone->referenced = (uint64_t *)(void *)(memory + bits_at);
    zone->dirty = zone->referenced + 1;
    zone->waits = (uint64_t(*)[FRAMES_WORDS])(void *)(memory + waits_at);
    if (addresses_at != 0) zone->addresses = (uint64_t *)(void *)(memory + addresses_at);
    if (words_at != 0) zone->words = (uint64_t *)(void *)(memory + words_at);
    frames_advise_huge(zone, memory, total);
    zone->file = -1;
    (void)format_text(zone->name, sizeof zone->name, "%s", config->name);
    zone->lock.rank = LOCK_RANK_FRAMES;
    zone->hiding.rank = LOCK_RANK_FRAMES_HIDING;
    zone->reserve = superpages_of(config->reserve_bytes);
    zone->partition_first = superpages - superpages_of(config->partition_bytes);
    zone->effort = FRAMES_COMPACT | FRAMES_RECLAIM | FRAMES_RECLAIM_CAPTURES;
    enum frames_status status = backend->open(zone, config->node);
    if (status != FRAMES_OK) {
        platform_unreserve(memory, total);
        return status;
    }
    for (unsigned set = 0; set < FRAMES_SETS; set++)
        for (unsigned list = 0; list < FRAMES_LISTS; list++) zone->lists[set][list] = FRAMES_NO_SUPERPAGE;
    for (unsigned s = 0; s < cpus; s++) {
        zone->slots[s].lock.rank = LOCK_RANK_FRAMES_SLOT;
        for (unsigned which = 0; which < ARRAY_LENGTH(zone->slots[s].reserved); which++) zone->slots[s].reserved[which] = FRAMES_NO_SUPERPAGE;
    }
    for (uint64_t i = 0; i < superpages; i++) {
        frames_superpage_init(&zone->superpages[i], zone->superpage_frames);
        zone->superpages[i].partition = i >= zone->partition_first;
        frames_superpage_relink(zone, &zone->superpages[i]);
    }
    zone->free_frames = frames;
    *out = zone;
    return FRAMES_OK;
}

enum frames_status frames_zone_end(struct frame_zone *zone) {
    for (unsigned i = 0; i < FRAMES_CAPTURES_MAX; i++)
        if (zone->captures[i].frames != 0) return FRAMES_BUSY;
    for (uint64_t i = 0; i < zone->superpage_count; i++)
        if (zone->superpages[i].pinned != 0) return FRAMES_PINNED;
    /* Before anything ends: within an owner's function; then blocks that no thread of the zone's has isolated, or a caller's pass. */
    if (frames_compaction_is_within(zone) || frames_reclaim_is_within(zone)) return FRAMES_BUSY;
    bool own_threads = frames_compactor_runs(zone) || frames_reclaim_runs(zone);
    if (own_threads && frames_in_program()) return FRAMES_BUSY; /* of another zone's owner: their end can't be waited for there */
    if (own_threads ? frames_compaction_is_callers(zone) : __atomic_load_n(&zone->moving, __ATOMIC_RELAXED) != 0) return FRAMES_BUSY;
    /* Reclaim first, which says no where a caller is in it; of compaction there is nothing more to say no to. */
    if (frames_reclaim_stop(zone) != FRAMES_OK || frames_compactor_stop(zone) != FRAMES_OK) return FRAMES_BUSY;
    return __atomic_load_n(&zone->moving, __ATOMIC_RELAXED) != 0 ? FRAMES_BUSY : FRAMES_OK;
}

void frames_zone_free(struct frame_zone *zone) {
    frames_compaction_end(zone);
    frames_backings_close(zone);
    frames_windows_close(zone);
    zone->backend->close(zone);
    platform_unreserve(zone->memory, zone->memory_bytes);
}

/* Between two looks at whether an owner is still being asked. */
#define OWNER_NAP_NS UINT64_C(50000)

enum frames_status frames_owner_add(struct frame_zone *zone, const struct frames_owner *owner, unsigned *number) {
    unsigned found = 1;
    platform_lock_acquire(&zone->lock);
    while (found <= FRAMES_OWNERS_MAX && zone->owner_states[found] != OWNER_NONE) found++;
    if (found <= FRAMES_OWNERS_MAX) {
        zone->owners[found] = *owner;
        *number = found;
        if (found > zone->owner_count) __atomic_store_n(&zone->owner_count, found, __ATOMIC_RELEASE);
        __atomic_store_n(&zone->owner_states[found], OWNER_KNOWN, __ATOMIC_RELEASE);
    }
    platform_lock_release(&zone->lock);
    return found <= FRAMES_OWNERS_MAX ? FRAMES_OK : FRAMES_NO_MEMORY;
}

void frames_program_begin(void) { ++*platform_thread_asked(); }
void frames_program_end(void) { --*platform_thread_asked(); }
bool frames_in_program(void) { return *platform_thread_asked() != 0; }

bool frames_owner_is_known(const struct frame_zone *zone, unsigned number) { return frames_owner_is_known_here(zone, number); }

/* Under the lock of the superpage: whether a block of it, or one of those that are isolated, is the owner's. */
static bool has_block_of(const struct frame_zone *zone, const struct frames_superpage *superpage, unsigned number, bool isolated) {
    uint64_t base = frames_first_of(zone, superpage);
    unsigned end = superpage->noted != 0 ? zone->superpage_frames : 0;
    for (unsigned at = 0; (at = frames_bits_next_set(superpage->heads, at, end)) < end; at++) {
        uint32_t note = zone->notes[base + at];
        if (note_owner(note) == number && (!isolated || (note & NOTE_MOVING) != 0)) return true;
    }
    return false;
}
static bool owns_any(struct frame_zone *zone, unsigned number, bool isolated) {
    bool owns = false;
    for (uint64_t i = 0; i < zone->superpage_count && !owns; i++) {
        struct frames_slot *slot = frames_lock(zone, &zone->superpages[i]);
        owns = has_block_of(zone, &zone->superpages[i], number, isolated);
        frames_unlock(zone, slot);
    }
    return owns;
}

void frames_owner_remove(struct frame_zone *zone, unsigned number) {
    struct frames_owner *owner = &zone->owners[number];
    struct platform_event nobody = {0};
    platform_lock_acquire(&zone->lock);
    __atomic_store_n(&zone->owner_states[number], OWNER_GONE, __ATOMIC_RELEASE); /* so that no more frames come to it while they are looked for */
    platform_lock_release(&zone->lock);
    /* Whoever isolated a block that was freed since may be about to ask the owner about it, and frees it then. */
    while (owns_any(zone, number, true)) (void)platform_event_wait(&nobody, OWNER_NAP_NS);
    platform_lock_acquire(&zone->lock);
    owner->migrate = NULL;
    owner->reclaim = NULL;
    bool used = __atomic_load_n(&owner->backing, __ATOMIC_ACQUIRE) != NULL;
    for (unsigned i = 0; i < FRAMES_CAPTURES_MAX; i++) used |= zone->captures[i].frames != 0 && zone->captures[i].owner == number;
    platform_lock_release(&zone->lock);
    if (!used && !owns_any(zone, number, false)) __atomic_store_n(&zone->owner_states[number], OWNER_NONE, __ATOMIC_RELEASE);
}

struct frame_zone **frames_zone_next(struct frame_zone *zone) { return &zone->next_zone; }

/* ------------------------------------------------------------------ settings */

static uint64_t zone_bytes(const struct frame_zone *zone) { return zone->frames << zone->frame_shift; }

enum frames_status frames_set_reserve(struct frame_zone *zone, uint64_t bytes) {
    if (bytes > zone_bytes(zone)) return FRAMES_BAD_ARGUMENT;
    platform_lock_acquire(&zone->lock);
    zone->reserve = superpages_of(bytes);
    platform_lock_release(&zone->lock);
    return FRAMES_OK;
}
uint64_t frames_reserve(struct frame_zone *zone) {
    platform_lock_acquire(&zone->lock);
    uint64_t superpages = zone->reserve;
    platform_lock_release(&zone->lock);
    return superpages << zone->superpage_shift;
}
void frames_set_effort(struct frame_zone *zone, unsigned effort) { __atomic_store_n(&zone->effort, effort, __ATOMIC_RELAXED); }

/* Takes the zone's lock, with no superpage in a slot that lies between the partition's first, which it returns, and `first`. */
static uint64_t lock_between(struct frame_zone *zone, uint64_t first) {
    for (;;) {
        const uint64_t seen = __atomic_load_n(&zone->partition_first, __ATOMIC_RELAXED);
        if (seen == first)
            platform_lock_acquire(&zone->lock);
        else
            frames_lock_range(zone, min_u64(first, seen), max_u64(first, seen) - 1);
        if (zone->partition_first == seen) return seen;
        platform_lock_release(&zone->lock); /* another thread has resized it meanwhile */
    }
}

enum frames_status frames_partition_resize(struct frame_zone *zone, uint64_t bytes) {
    if (bytes > zone_bytes(zone)) return FRAMES_BAD_ARGUMENT;
    uint64_t first = zone->superpage_count - superpages_of(bytes);
    enum frames_status status = FRAMES_OK;
    frames_slots_drain(zone); /* else a slot may hold a superpage that is free, or of the wrong group */
    const uint64_t before = lock_between(zone, first), end = max_u64(first, before);
    for (uint64_t i = first; i < before && status == FRAMES_OK; i++) {
        const struct frames_superpage *superpage = &zone->superpages[i];
        bool wanted = superpage->capture != 0 && zone->captures[superpage->capture - 1].mobility == FRAMES_UNMOVABLE;
        if (superpage->used[FRAMES_UNMOVABLE] != 0 || wanted) status = FRAMES_BUSY;
    }
    for (uint64_t i = min_u64(first, before); i < end && status == FRAMES_OK; i++) {
        struct frames_superpage *superpage = &zone->superpages[i];
        superpage->partition = i >= first;
        if (superpage->partition && superpage->group == FRAMES_UNMOVABLE) superpage->group = FRAMES_MOVABLE;
        frames_superpage_relink(zone, superpage);
    }
    if (status == FRAMES_OK) __atomic_store_n(&zone->partition_first, first, __ATOMIC_RELAXED); /* also looked at without the lock */
    platform_lock_release(&zone->lock);
    return status;
}

/* ------------------------------------------------------------------ looking inside */

void frames_complain(struct frame_zone *zone, const char *function, const struct frames_complaint *complaint) {
    platform_lock_acquire(&zone->lock);
    zone->complaint_function = function;
    zone->complaint = *complaint;
    platform_lock_release(&zone->lock);
}
const char *frames_recall(struct frame_zone *zone, struct frames_complaint *complaint) {
    platform_lock_acquire(&zone->lock);
    const char *function = zone->complaint_function;
    *complaint = zone->complaint;
    platform_lock_release(&zone->lock);
    return function;
}

static void add_superpage(const struct frame_zone *zone, const struct frames_superpage *superpage, struct frames_stats *stats) {
    stats->free += superpage->free;
    stats->pinned += superpage->pinned;
    stats->captured += superpage->captured_frames;
    stats->partition_superpages += superpage->partition ? 1u : 0u;
    for (unsigned m = 0; m < FRAMES_MOBILITIES; m++) stats->used[m] += superpage->used[m];
    if (superpage->free == zone->superpage_frames) {
        stats->free_superpages++;
        return;
    }
    stats->group_superpages[superpage->group]++;
    unsigned own = 0u + superpage->used[superpage->group] + superpage->free + superpage->captured_frames;
    stats->mixed_superpages += own != zone->superpage_frames ? 1u : 0u;
}

void frames_stats_get(struct frame_zone *zone, struct frames_stats *stats) {
    struct frames_free_scan scan = {.superpage_frames = zone->superpage_frames};
    *stats = (struct frames_stats){.backend = zone->kind,
                                   .frame_bytes = (size_t)1 << zone->frame_shift,
                                   .frames = zone->frames,
                                   .superpages = zone->superpage_count,
                                   .superpage_frames = zone->superpage_frames,
                                   .moving = __atomic_load_n(&zone->moving, __ATOMIC_RELAXED),
                                   .races_lost = __atomic_load_n(&zone->races_lost, __ATOMIC_RELAXED),
                                   .metadata_bytes = zone->memory_bytes};
    /* Before what they are taken from, which is counted first. */
    uint64_t again = __atomic_load_n(&zone->again, __ATOMIC_ACQUIRE), not_failed = __atomic_load_n(&zone->not_failed, __ATOMIC_ACQUIRE);
    memcpy(stats->name, zone->name, sizeof stats->name);
    for (uint64_t i = 0; i < zone->superpage_count; i++) {
        struct frames_superpage *superpage = &zone->superpages[i];
        struct frames_slot *slot = frames_lock(zone, superpage);
        struct frames_superpage copy = *superpage;
        frames_unlock(zone, slot);
        add_superpage(zone, &copy, stats);
        if (copy.free == 0) continue;
        for (unsigned w = 0; w < FRAMES_WORDS; w++) copy.allocated[w] = ~copy.allocated[w];
        frames_free_count_superpage(&scan, i, copy.allocated);
    }
    frames_free_end(&scan);
    _Static_assert(FRAMES_ORDERS == FRAMES_INDEX_ORDERS, "the same orders");
    memcpy(stats->free_blocks, scan.free.blocks, sizeof stats->free_blocks);
    for (unsigned s = 0; s < zone->slot_count; s++) stats->allocs += __atomic_load_n(&zone->slots[s].allocs, __ATOMIC_RELAXED);
    platform_lock_acquire(&zone->lock);
    stats->allocs += zone->whole_allocs - again;
    stats->reserve_superpages = zone->reserve;
    stats->mapped = zone->mapped;
    stats->failures = zone->failures - not_failed;
    stats->fallbacks = zone->fallbacks;
    stats->retypes = zone->retypes;
    stats->reserve_uses = zone->reserve_uses;
    stats->captures_begun = zone->captures_begun;
    stats->captures_done = zone->captures_done;
    stats->captures_lost = zone->captures_lost;
    stats->captures_given_up = zone->captures_given_up;
    for (unsigned i = 0; i < FRAMES_CAPTURES_MAX; i++) stats->captures += zone->captures[i].frames != 0;
    platform_lock_release(&zone->lock);
}

enum frames_status frames_map_get(struct frame_zone *zone, uint64_t first, uint64_t count, struct frames_superpage_info *out) {
    if (first > zone->superpage_count || count > zone->superpage_count - first) return FRAMES_BAD_ARGUMENT;
    for (uint64_t i = 0; i < count; i++) {
        struct frames_superpage *superpage = &zone->superpages[first + i];
        struct frames_slot *slot = frames_lock(zone, superpage);
        out[i] = (struct frames_superpage_info){.group = superpage->free == zone->superpage_frames ? FRAMES_MOBILITIES
                                                                                                   : (enum frames_mobility)superpage->group,
                                                .free = superpage->free,
                                                .used = {superpage->used[0], superpage->used[1], superpage->used[2]},
                                                .pinned = superpage->pinned,
                                                .captured = superpage->captured_frames,
                                                .partition = superpage->partition};
        frames_unlock(zone, slot);
    }
    return FRAMES_OK;
}
