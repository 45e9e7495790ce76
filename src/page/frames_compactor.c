/*
 * frames_compactor.c - the thread that compacts a zone in advance (contiguity paper, section 7.3), and the record of a zone's compaction.
 *
 * It looks at the unusable-free-space index at intervals, and makes a pass where that is above the limit; or at once, whatever the index is, where an
 * allocation of another mobility had to go to a foreign superpage, or reclaim has reached its high watermark. Its passes go through superpages of all
 * groups. After passes that moved nothing, the interval doubles, up to 64 times itself. The paper's condition of success is a slip ("above 0.75
 * after it completes"): here it is that the index was above the limit and is not any more.
 *
 * State: NONE -> RUNS by start (by way of STOPS, so that nobody starts another), -> STOPS by stop, -> NONE by the thread, its last word. A forked
 * child has no thread: there stop only says so. No lock.
 */
#include "page/frames_compact_internal.h"
#include "page/frames_window_move.h"

#define LAST_LOOK_NS UINT64_C(1000000000) /* at whether the program's threads have all ended */
#define BACK_OFF_MAX 6u

/* ------------------------------------------------------------------ the record */

static size_t record_bytes(void) { return align_up(sizeof(struct frames_compaction), platform_info()->page_bytes); }

struct frames_compaction *frames_compaction_get(struct frame_zone *zone) {
    struct frames_compaction *compaction = frames_compaction_peek(zone);
    if (compaction != NULL) return compaction;
    size_t bytes = record_bytes();
    compaction = platform_reserve(NULL, bytes, platform_info()->page_bytes);
    if (compaction == NULL) return NULL;
    void *none = NULL;
    if (!platform_commit(compaction, bytes)) {
        platform_unreserve(compaction, bytes);
        return NULL;
    }
    if (__atomic_compare_exchange_n(&zone->compaction, &none, (void *)compaction, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) return compaction;
    platform_unreserve(compaction, bytes);
    return none;
}

bool frames_compaction_is_within(struct frame_zone *zone) {
    struct frames_compaction *compaction = frames_compaction_peek(zone);
    uint32_t self = platform_thread_self();
    return compaction != NULL && (__atomic_load_n(&compaction->passing, __ATOMIC_RELAXED) == self ||
                                  (__atomic_load_n(&compaction->thread, __ATOMIC_RELAXED) == self && compaction->process == platform_process_id()));
}

bool frames_compaction_is_callers(struct frame_zone *zone) {
    struct frames_compaction *compaction = frames_compaction_peek(zone);
    uint32_t passing = compaction != NULL ? __atomic_load_n(&compaction->passing, __ATOMIC_RELAXED) : 0;
    return passing != 0 && passing != __atomic_load_n(&compaction->thread, __ATOMIC_RELAXED);
}

void frames_compaction_end(struct frame_zone *zone) {
    struct frames_compaction *compaction = frames_compaction_peek(zone);
    if (compaction == NULL) return;
    if (compaction->faults_state == FRAMES_FAULTS_OPEN) platform_faults_close(&compaction->faults);
    frames_window_drop_spare(zone);
    zone->compaction = NULL;
    platform_unreserve(compaction, record_bytes());
}

/* The thread is gone, unless it is the one that forked; and with others whoever made a pass. The file of faults was the parent's. */
void frames_compaction_fork_child(struct frame_zone *zone, uint32_t before, uint32_t self) {
    struct frames_compaction *compaction = frames_compaction_peek(zone);
    if (compaction == NULL) return;
    bool own_thread = compaction->thread == before;
    compaction->passing = compaction->passing == before ? self : 0;
    compaction->thread = own_thread ? self : 0;
    compaction->process = platform_process_id();
    if (!own_thread) compaction->state = COMPACTOR_NONE;
    if (compaction->faults_state == FRAMES_FAULTS_OPEN) platform_faults_close(&compaction->faults);
    compaction->faults_state = FRAMES_FAULTS_NONE;
}

/* ------------------------------------------------------------------ the thread */

static void count(uint64_t *counter) { __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED); }

static void store_double(uint64_t *to, double value) {
    uint64_t bits;
    __builtin_memcpy(&bits, &value, sizeof bits);
    __atomic_store_n(to, bits, __ATOMIC_RELAXED);
}
static double load_double(const uint64_t *from) {
    uint64_t bits = __atomic_load_n(from, __ATOMIC_RELAXED);
    double value;
    __builtin_memcpy(&value, &bits, sizeof value);
    return value;
}

static double unusable_now(struct frame_zone *zone, unsigned order) {
    struct frames_free free;
    frames_free_get(zone, 0, false, &free);
    /* Without anything free the index is 1, and there is nowhere to move to. */
    return frames_free_total(&free) == 0 ? 0 : frames_unusable_index(&free, order);
}

/* True: it moved something. */
static bool look(struct frame_zone *zone, struct frames_compaction *compaction, bool unconditional) {
    const struct frames_compactor_config *config = &compaction->config;
    const struct frames_compact_goal goal = {.order = config->order};
    struct frames_compact_counts counts = {0};
    count(&compaction->looks);
    double before = unusable_now(zone, config->order);
    if (!unconditional && before <= config->unusable) return true;
    if (frames_compact(zone, &goal, &counts, NULL) != FRAMES_COMPACT_MET) return true; /* another's pass: the next look sees what it did */
    double after = unusable_now(zone, config->order);
    count(&compaction->passes);
    store_double(&compaction->unusable_before, before);
    store_double(&compaction->unusable_after, after);
    if (before > config->unusable && after <= config->unusable) count(&compaction->successes);
    return counts.moved != 0;
}

/* Whoever stops it waits for that. */
static void set_state(struct frames_compaction *compaction, enum frames_compactor_state state) {
    __atomic_store_n(&compaction->state, state, __ATOMIC_RELEASE);
    platform_word_wake(&compaction->state);
}

static void run(void *argument) {
    struct frame_zone *zone = argument;
    struct frames_compaction *compaction = frames_compaction_peek(zone);
    unsigned back_off = 0;
    uint64_t slept = 0;
    __atomic_store_n(&compaction->thread, platform_thread_self(), __ATOMIC_RELAXED);
    platform_hear_access_faults(); /* of owners' functions: watched pages, and paged blocks */
    while (__atomic_load_n(&compaction->state, __ATOMIC_ACQUIRE) == COMPACTOR_RUNS) {
        uint64_t interval = compaction->config.interval_ns << back_off, piece = min_u64(interval - slept, LAST_LOOK_NS);
        bool woken = platform_event_wait(&compaction->event, piece);
        if (!woken && platform_thread_is_last(NULL)) break;
        if (__atomic_load_n(&compaction->state, __ATOMIC_ACQUIRE) != COMPACTOR_RUNS) break;
        bool wanted = __atomic_exchange_n(&compaction->wanted, 0, __ATOMIC_ACQ_REL) != 0;
        slept += woken ? 0 : piece;
        if (!wanted && slept < interval) continue;
        slept = 0;
        if (look(zone, compaction, wanted))
            back_off = 0;
        else if (back_off < BACK_OFF_MAX)
            back_off++;
    }
    __atomic_store_n(&compaction->thread, 0, __ATOMIC_RELAXED);
    set_state(compaction, COMPACTOR_NONE);
}

static void wake(struct frames_compaction *compaction) {
    if (__atomic_load_n(&compaction->state, __ATOMIC_ACQUIRE) != COMPACTOR_RUNS) return;
    __atomic_store_n(&compaction->wanted, 1, __ATOMIC_RELEASE);
    platform_event_wake(&compaction->event);
}

static void fell_back(struct frame_zone *zone) {
    struct frames_compaction *compaction = frames_compaction_peek(zone);
    count(&compaction->fallbacks);
    wake(compaction);
}

enum frames_status frames_compactor_start(struct frame_zone *zone, const struct frames_compactor_config *config) {
    struct frames_compaction *compaction = frames_compaction_get(zone);
    uint32_t none = COMPACTOR_NONE;
    if (compaction == NULL) return FRAMES_NO_MEMORY;
    if (!__atomic_compare_exchange_n(&compaction->state, &none, COMPACTOR_STOPS, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) return FRAMES_BUSY;
    compaction->config = *config;
    compaction->event = (struct platform_event){0};
    compaction->wanted = 0;
    compaction->process = platform_process_id();
    platform_interleave();
    set_state(compaction, COMPACTOR_RUNS);
    if (!platform_thread_start(run, zone)) {
        set_state(compaction, COMPACTOR_NONE);
        return FRAMES_NO_MEMORY;
    }
    __atomic_store_n(&zone->hooks.fell_back, fell_back, __ATOMIC_RELEASE);
    return FRAMES_OK;
}

bool frames_compactor_runs(struct frame_zone *zone) {
    struct frames_compaction *compaction = frames_compaction_peek(zone);
    return compaction != NULL && compaction->process == platform_process_id() &&
           __atomic_load_n(&compaction->state, __ATOMIC_ACQUIRE) != COMPACTOR_NONE;
}

enum frames_status frames_compactor_stop(struct frame_zone *zone) {
    struct frames_compaction *compaction = frames_compaction_peek(zone);
    if (compaction == NULL) return FRAMES_OK;
    if (compaction->process != platform_process_id()) __atomic_store_n(&compaction->state, COMPACTOR_NONE, __ATOMIC_RELAXED);
    if (__atomic_load_n(&compaction->state, __ATOMIC_ACQUIRE) == COMPACTOR_NONE) return FRAMES_OK;
    /* The thread may be waiting for this one's pass, or for what this one will do when the function that it is in has returned. */
    if (frames_in_program() || frames_compaction_is_within(zone)) return FRAMES_BUSY;
    while (__atomic_load_n(&compaction->state, __ATOMIC_ACQUIRE) != COMPACTOR_NONE) {
        uint32_t runs = COMPACTOR_RUNS;
        if (__atomic_compare_exchange_n(&compaction->state, &runs, COMPACTOR_STOPS, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
            platform_event_wake(&compaction->event);
        platform_word_wait(&compaction->state, COMPACTOR_STOPS); /* by this call, by another, or by a start that is not through */
    }
    return FRAMES_OK;
}

void frames_compaction_wake(struct frame_zone *zone) {
    struct frames_compaction *compaction = frames_compaction_peek(zone);
    if (compaction == NULL) return;
    count(&compaction->wakes);
    wake(compaction);
}

void frames_compactor_counts_get(struct frame_zone *zone, struct frames_compactor_counts *counts) {
    struct frames_compaction *compaction = frames_compaction_peek(zone);
    *counts = (struct frames_compactor_counts){0};
    if (compaction == NULL) return;
    *counts = (struct frames_compactor_counts){.running = __atomic_load_n(&compaction->state, __ATOMIC_RELAXED) == COMPACTOR_RUNS,
                                               .looks = __atomic_load_n(&compaction->looks, __ATOMIC_RELAXED),
                                               .wakes = __atomic_load_n(&compaction->wakes, __ATOMIC_RELAXED),
                                               .fallbacks = __atomic_load_n(&compaction->fallbacks, __ATOMIC_RELAXED),
                                               .passes = __atomic_load_n(&compaction->passes, __ATOMIC_RELAXED),
                                               .successes = __atomic_load_n(&compaction->successes, __ATOMIC_RELAXED),
                                               .unusable_before = load_double(&compaction->unusable_before),
                                               .unusable_after = load_double(&compaction->unusable_after)};
}
