/*
 * frames_reclaimer.c - the life of reclaim in a zone: the record, and the thread between the watermarks.
 *
 * The thread begins when free frames have fallen below the low watermark, which an allocation tells (frames_hooks.grew_short), and goes on until they
 * reach the high one, by areas as large as requests have lately wanted; then compaction is woken (section 7.3). Where it can't get that far it tries
 * again after 10 ms, twice as long each time, up to a second. State: NONE -> RUNS by start, -> STOPS by stop, -> NONE by the thread, its last word. A
 * forked child has no thread. Locks: the lists'; zone->hiding, which a fork takes first, while it is begun or ended.
 */
#include "page/frames_compact.h"
#include "page/frames_reclaim_internal.h"

#define RETRY_NS_MIN UINT64_C(10000000)
#define RETRY_NS_MAX UINT64_C(1000000000)

/* ------------------------------------------------------------------ what is told */

static void wake(struct frames_reclaim *reclaim) {
    if (__atomic_load_n(&reclaim->state, __ATOMIC_ACQUIRE) != RECLAIMER_RUNS) return;
    __atomic_store_n(&reclaim->wanted, 1, __ATOMIC_RELEASE);
    platform_event_wake(&reclaim->event);
}

static void grew_short(struct frame_zone *zone, uint64_t free) {
    (void)free;
    wake(frames_reclaim_of(zone));
}

static void set_hooks(struct frame_zone *zone, bool on) {
    frames_told_set(zone, on);
    __atomic_store_n(&zone->hooks.grew_short, on ? grew_short : NULL, __ATOMIC_RELEASE);
}

/* ------------------------------------------------------------------ the thread */

static bool is_short(const struct frame_zone *zone, const struct frames_reclaim *reclaim) {
    return frames_free_now(zone) < reclaim->config.high_frames;
}

/* One round: up to the high watermark, by areas as large as requests have lately wanted. *dropped: frames. */
static enum frames_status run_round(struct frame_zone *zone, struct frames_reclaim *reclaim, uint64_t *dropped) {
    uint64_t none = FRAMES_NONE;
    if (!frames_reclaim_enter(reclaim)) return FRAMES_BUSY;
    uint32_t order = __atomic_exchange_n(&reclaim->order, 0, __ATOMIC_RELAXED);
    const struct frames_reclaim_wish wish = {
        .free_goal = reclaim->config.high_frames, .area = min_u64(UINT64_C(1) << order, zone->superpage_frames), .end = zone->frames};
    COUNT(reclaim, wakes, 1);
    *dropped = frames_reclaim_by_policy(zone, &wish, &none);
    frames_reclaim_leave(reclaim);
    if (is_short(zone, reclaim)) return FRAMES_NO_FRAMES;
    __atomic_store_n(&zone->is_short, 0, __ATOMIC_RELAXED);
    frames_compaction_wake(zone);
    return FRAMES_OK;
}

enum frames_status frames_reclaim_balance(struct frame_zone *zone, uint64_t *dropped) {
    struct frames_reclaim *reclaim = frames_reclaim_of(zone);
    *dropped = 0;
    return frames_free_now(zone) < reclaim->config.low_frames ? run_round(zone, reclaim, dropped) : FRAMES_OK;
}

static void run(void *argument) {
    struct frames_reclaim *reclaim = argument; /* of which the zone may know nothing yet, until something is wanted */
    struct frame_zone *zone = reclaim->zone;
    uint64_t retry_ns = 0; /* 0: nothing is left undone */
    __atomic_store_n(&reclaim->thread, platform_thread_self(), __ATOMIC_RELAXED);
    platform_hear_access_faults(); /* of owners' functions: watched pages, and paged blocks */
    while (__atomic_load_n(&reclaim->state, __ATOMIC_ACQUIRE) == RECLAIMER_RUNS) {
        bool woken = platform_event_wait(&reclaim->event, retry_ns != 0 ? retry_ns : RETRY_NS_MAX);
        if (__atomic_load_n(&reclaim->state, __ATOMIC_ACQUIRE) != RECLAIMER_RUNS) break;
        if (!woken && retry_ns == 0) {
            if (platform_thread_is_last(NULL)) break;
            continue;
        }
        if (__atomic_exchange_n(&reclaim->wanted, 0, __ATOMIC_ACQ_REL) == 0 && retry_ns == 0) continue;
        uint64_t dropped;
        bool balanced = !is_short(zone, reclaim) || run_round(zone, reclaim, &dropped) == FRAMES_OK;
        retry_ns = balanced ? 0 : min_u64(max_u64(2 * retry_ns, RETRY_NS_MIN), RETRY_NS_MAX);
    }
    __atomic_store_n(&reclaim->state, RECLAIMER_NONE, __ATOMIC_RELEASE);
    platform_word_wake(&reclaim->state);
}

static bool start_thread(struct frames_reclaim *reclaim) {
    reclaim->state = RECLAIMER_RUNS;
    if (platform_thread_start(run, reclaim)) return true;
    reclaim->state = RECLAIMER_NONE;
    return false;
}

/* Waits for its end. */
static void stop_thread(struct frames_reclaim *reclaim) {
    for (uint32_t state; (state = __atomic_load_n(&reclaim->state, __ATOMIC_ACQUIRE)) != RECLAIMER_NONE;) {
        if (state == RECLAIMER_STOPS)
            platform_word_wait(&reclaim->state, state);
        else if (__atomic_compare_exchange_n(&reclaim->state, &state, RECLAIMER_STOPS, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
            platform_event_wake(&reclaim->event);
    }
}

/* ------------------------------------------------------------------ start and stop */

enum frames_status frames_reclaim_config_check(struct frame_zone *zone, struct frames_reclaim_config *config, struct frames_complaint *complaint) {
    *complaint = (struct frames_complaint){"policy", "0 lru, 1 linear, 2 area", config->policy};
    if ((unsigned)config->policy >= FRAMES_RECLAIM_POLICIES) return FRAMES_BAD_ARGUMENT;
    if ((config->min_frames | config->low_frames | config->high_frames) == 0) {
        /* Above the reserve (section 2.1), which would be what keeps memory free else, and not for small runs. */
        uint64_t part = zone->frames / 128, reserve = frames_reserve(zone);
        config->min_frames = min_u64(max_u64(reserve, part), zone->frames);
        config->low_frames = min_u64(config->min_frames + part, zone->frames);
        config->high_frames = min_u64(config->low_frames + part, zone->frames);
    }
    *complaint = (struct frames_complaint){"high_frames", "at most the zone's frames", config->high_frames};
    if (config->high_frames > zone->frames) return FRAMES_BAD_ARGUMENT;
    *complaint = (struct frames_complaint){"low_frames", "at most high_frames", config->low_frames};
    if (config->low_frames > config->high_frames) return FRAMES_BAD_ARGUMENT;
    *complaint = (struct frames_complaint){"min_frames", "at most low_frames", config->min_frames};
    return config->min_frames > config->low_frames ? FRAMES_BAD_ARGUMENT : FRAMES_OK;
}

/* Blocks that are there already, in the order of their addresses. */
static void list_all(struct frame_zone *zone, struct frames_reclaim *reclaim) {
    for (uint64_t i = 0; i < zone->superpage_count; i++) {
        struct frames_superpage *superpage = &zone->superpages[i];
        struct frames_slot *slot = frames_lock(zone, superpage);
        for (unsigned at = 0;
             superpage->noted != 0 && (at = frames_bits_next_set(superpage->heads, at, zone->superpage_frames)) < zone->superpage_frames; at++) {
            uint64_t frame = frames_first_of(zone, superpage) + at;
            bool listed = frames_lru_where(&reclaim->lru, frame) != LRU_LISTS;
            if (!listed && frames_can_be_dropped(zone, zone->notes[frame])) frames_lru_put(&reclaim->lru, frame, LRU_INACTIVE);
        }
        frames_unlock(zone, slot);
    }
}

/*
 * In memory that a userfaultfd watches the kernel brings no neighbours along when a page is read (frames_used.c), which would seem used. Nothing is
 * protected, so that no fault is ever told. Where it can't be had, neighbours seem used.
 */
static void watch_memory(const struct frame_zone *zone, struct frames_reclaim *reclaim) {
    reclaim->faults = (struct platform_faults)PLATFORM_FAULTS_CLOSED;
    if (zone->kind != FRAMES_MEMFD || platform_faults_open(&reclaim->faults, PLATFORM_FAULTS_PROTECT) != PLATFORM_FAULTS_OK) return;
    enum platform_faults_status status = platform_faults_register(&reclaim->faults, zone->base, zone->frames << zone->frame_shift, false, true);
    if (status != PLATFORM_FAULTS_OK) platform_faults_close(&reclaim->faults);
}

/* As with compaction. The thread's number stands among the callers while it reclaims. */
void frames_reclaim_fork_child(struct frame_zone *zone, uint32_t before, uint32_t self) {
    struct frames_reclaim *reclaim = frames_reclaim_of(zone);
    if (reclaim == NULL) return;
    for (unsigned i = 0; i < FRAMES_RECLAIM_CALLERS; i++) reclaim->callers[i] = reclaim->callers[i] == before ? self : 0;
    reclaim->process = platform_process_id();
    reclaim->state = RECLAIMER_NONE;
    __atomic_store_n(&zone->low_frames, 0, __ATOMIC_RELAXED);
    platform_faults_close(&reclaim->faults);
    watch_memory(zone, reclaim);
}

/* Both under zone->hiding. */
static void publish(struct frame_zone *zone, struct frames_reclaim *reclaim) {
    set_hooks(zone, true);
    if (zone->kind == FRAMES_MEMFD) platform_presence_keep(true);
    watch_memory(zone, reclaim);
    list_all(zone, reclaim);
}
static void forget(struct frame_zone *zone, struct frames_reclaim *reclaim) {
    set_hooks(zone, false);
    platform_faults_close(&reclaim->faults);
    if (zone->kind == FRAMES_MEMFD) platform_presence_keep(false);
    __atomic_store_n(&zone->low_frames, 0, __ATOMIC_RELAXED);
    (void)frames_direct_set_reclaim(zone, NULL);
    __atomic_store_n(&zone->reclaim, NULL, __ATOMIC_RELEASE);
    platform_unreserve(reclaim, reclaim->bytes);
}

/*
 * The thread is there before the zone knows of any of it: from then on others reclaim, and are told of blocks, so that what they use can't be taken
 * back where no thread is to be had.
 */
enum frames_status frames_reclaim_start(struct frame_zone *zone, const struct frames_reclaim_config *config) {
    size_t page = platform_info()->page_bytes, head = align_up(sizeof(struct frames_reclaim), page);
    size_t lists = align_up(frames_lru_bytes(zone->frames), CACHE_LINE_BYTES);
    size_t bytes = align_up(head + lists + zone->superpage_count * sizeof(uint32_t), page);
    void *none = NULL;
    if (frames_reclaim_of(zone) != NULL) return FRAMES_BUSY;
    char *memory = platform_reserve(NULL, bytes, page);
    if (memory == NULL) return FRAMES_NO_MEMORY;
    struct frames_reclaim *reclaim = (struct frames_reclaim *)(void *)memory;
    bool ready = platform_commit(memory, bytes) && frames_direct_set_reclaim(zone, frames_reclaim_for);
    if (ready) {
        frames_advise_huge(zone, memory, bytes);
        reclaim->config = *config;
        reclaim->zone = zone;
        reclaim->bytes = bytes;
        reclaim->process = platform_process_id();
        frames_lru_init(&reclaim->lru, zone->frames, memory + head);
        reclaim->judged = (uint32_t *)(void *)(memory + head + lists);
        ready = !config->thread || start_thread(reclaim);
    }
    if (ready) {
        platform_lock_acquire(&zone->hiding); /* a fork finds all of it, or nothing */
        ready = __atomic_compare_exchange_n(&zone->reclaim, &none, (void *)reclaim, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
        if (ready) publish(zone, reclaim);
        platform_lock_release(&zone->hiding);
        if (!ready) stop_thread(reclaim); /* another thread's call was first */
    }
    if (!ready) {
        platform_unreserve(memory, bytes);
        return none != NULL ? FRAMES_BUSY : FRAMES_NO_MEMORY;
    }
    if (!config->thread) return FRAMES_OK;
    __atomic_store_n(&zone->low_frames, config->low_frames, __ATOMIC_RELEASE);
    if (frames_free_now(zone) < config->low_frames) wake(reclaim);
    return FRAMES_OK;
}

enum frames_status frames_reclaim_stop(struct frame_zone *zone) {
    struct frames_reclaim *reclaim = frames_reclaim_of(zone);
    if (reclaim == NULL) return FRAMES_OK;
    bool ours = reclaim->process == platform_process_id();
    uint32_t self = platform_thread_self(), state = ours ? __atomic_load_n(&reclaim->state, __ATOMIC_ACQUIRE) : RECLAIMER_NONE;
    uint32_t thread = state != RECLAIMER_NONE ? __atomic_load_n(&reclaim->thread, __ATOMIC_RELAXED) : 0; /* whose entry goes when it ends */
    for (unsigned i = 0; i < FRAMES_RECLAIM_CALLERS; i++) {
        uint32_t caller = __atomic_load_n(&reclaim->callers[i], __ATOMIC_RELAXED);
        if (ours && caller != 0 && (caller != thread || caller == self)) return FRAMES_BUSY;
    }
    if (state != RECLAIMER_NONE && frames_in_program()) return FRAMES_BUSY; /* it may be in such a function, too, and wait for this one */
    __atomic_store_n(&zone->low_frames, 0, __ATOMIC_RELAXED);
    if (state != RECLAIMER_NONE) stop_thread(reclaim);
    platform_lock_acquire(&zone->hiding); /* a fork would have the lists' lock, which goes */
    forget(zone, reclaim);
    platform_lock_release(&zone->hiding);
    return FRAMES_OK;
}

bool frames_reclaim_is_started(const struct frame_zone *zone) { return frames_reclaim_of(zone) != NULL; }

bool frames_reclaim_is_within(const struct frame_zone *zone) {
    struct frames_reclaim *reclaim = frames_reclaim_of(zone);
    uint32_t self = platform_thread_self();
    if (reclaim == NULL || reclaim->process != platform_process_id()) return false;
    for (unsigned i = 0; i < FRAMES_RECLAIM_CALLERS; i++)
        if (__atomic_load_n(&reclaim->callers[i], __ATOMIC_RELAXED) == self) return true;
    return false;
}

bool frames_reclaim_runs(const struct frame_zone *zone) {
    struct frames_reclaim *reclaim = frames_reclaim_of(zone);
    return reclaim != NULL && reclaim->process == platform_process_id() && __atomic_load_n(&reclaim->state, __ATOMIC_ACQUIRE) != RECLAIMER_NONE;
}

bool frames_reclaim_set_policy(struct frame_zone *zone, enum frames_reclaim_policy policy) {
    struct frames_reclaim *reclaim = frames_reclaim_of(zone);
    if (reclaim != NULL) __atomic_store_n(&reclaim->config.policy, policy, __ATOMIC_RELAXED);
    return reclaim != NULL;
}

/* ------------------------------------------------------------------ looking inside */

void frames_reclaim_info_get(struct frame_zone *zone, struct frames_reclaim_info *info) {
    struct frames_reclaim *reclaim = frames_reclaim_of(zone);
    *info = (struct frames_reclaim_info){.running = reclaim != NULL};
    if (reclaim == NULL) return;
    info->config = reclaim->config;
    const uint64_t *from = (const uint64_t *)&reclaim->counts;
    uint64_t *to = (uint64_t *)&info->counts;
    for (size_t i = 0; i < sizeof info->counts / sizeof *to; i++) to[i] = __atomic_load_n(&from[i], __ATOMIC_RELAXED);
    info->thread = reclaim->process == platform_process_id() && __atomic_load_n(&reclaim->state, __ATOMIC_ACQUIRE) == RECLAIMER_RUNS;
    frames_settle_all(zone);
    info->active = frames_lru_count(&reclaim->lru, LRU_ACTIVE);
    info->inactive = frames_lru_count(&reclaim->lru, LRU_INACTIVE);
}

/* log10 without the library of mathematics: digits before the point by division, each after it by the tenth power of what is left. */
static double log10_of(double x) {
    double result = 0, place = 1;
    while (x >= 10) {
        x /= 10;
        result += 1;
    }
    for (unsigned digit = 0; digit < 9; digit++) {
        double square = x * x, fourth = square * square;
        x = fourth * fourth * square;
        place /= 10;
        while (x >= 10) {
            x /= 10;
            result += place;
        }
    }
    return result;
}

double frames_reclaim_cost(const struct frames_reclaim_counts *counts) {
    double sum = (double)counts->scanned + 1e3 * (double)counts->unmapped + 1e6 * (double)counts->written;
    return sum < 1 ? 0 : log10_of(sum);
}

const char *frames_reclaim_check(struct frame_zone *zone) { return frames_reclaim_of(zone) != NULL ? frames_told_check(zone) : NULL; }
