/*
 * maintenance.c - what keeps the heap small while time passes: by a thread of its own, or inline on slow paths.
 *
 * A tick, every decay_ms: idle CPUs are drained, depots and the lookaside give back what they did not need since the last
 * tick. Idle pages are looked at five times in it. The thread also waits for the system's word that memory is short. It starts lazily, once the heap
 * passes MAINTENANCE_HEAP_BYTES, or where malloc fails beside object caches; after QUIET_TICKS that found nothing to do it sleeps without a timeout,
 * and the next slow path wakes it.
 *
 * That no wake is lost: a slow path changes the heap, counts itself in its line of slow_calls and then reads maintenance_asleep; the thread
 * sets maintenance_asleep and then looks whether all lines together are what they were before its last tick: as none ever goes down, the same sum
 * means that each is the same. All four are sequentially consistent, so that one of the two sees the other.
 *
 * States of maintenance_state: NONE -> STARTING -> RUNNING; a fork's child is NONE again; after FAILED slow paths do the ticks, and start it
 * again when RETRY_NS have gone by, or when a handler is registered.
 */
#include "api/heap.h"

#include "base/check.h"

#define MAINTENANCE_HEAP_BYTES (64 * MIB)
/* Where no thread could be had, slow paths try again after this. */
#define RETRY_NS UINT64_C(10000000000)
/* The steps of growth at which caches are reaped. */
#define GROWTH_GRANULES_MIN 16
#define GROWTH_SHARE 32
#define STEP_SHARE 4 /* small blocks have less than such a share of a step: a reap could give back no more */
/*
 * Ticks in a row without work and without a slow path before them, after which the thread sleeps until it is woken. What is
 * freed now is seen by the next tick, leaves the CPU's cache by the one after it, and goes back by the third.
 */
#define QUIET_TICKS 3
/* Between two looks at whether this is the last thread: once the first thread has ended, and where its end can't be noticed. */
#define LAST_LOOK_NS UINT64_C(100000000)
#define LAST_LOOK_UNWATCHED_NS UINT64_C(2000000000)
/* Slow calls between two looks at the clock. */
#define SLOW_CALLS 61

enum maintenance_state { MAINTENANCE_NONE, MAINTENANCE_STARTING, MAINTENANCE_RUNNING, MAINTENANCE_FAILED };

/* Pages are looked at so many times in a period: one that is wanted again costs a touch, an array that is, many objects and their slabs. */
#define PAGE_LOOKS 5
/* But no more often than at each millisecond, or the thread, which sleeps so long at least, would be late with its ticks. */
static unsigned page_looks(void) { return (unsigned)min_u64(max_u64(heap.options.decay_ms, 1), PAGE_LOOKS); }
static uint64_t look_period_ns(void) { return heap.options.decay_ms * 1000000u / page_looks(); }

/* The next look at pages. Returns whether it is one at caches, too: the caller's tick. */
static bool look_at_pages(void) {
    bool whole = __atomic_add_fetch(&heap.page_looks, 1, __ATOMIC_RELAXED) % page_looks() == 0;
    if (!whole) zone_tick(&heap.zone);
    return whole;
}

/* Returns whether anything went back. */
static bool tick(void) {
    cache_tick(&heap.caches);
    slab_reap(&heap.slabs);
    return zone_tick(&heap.zone) != 0;
}

/* Programs without object caches need none of their code in memory. */
static bool has_object_caches(void) { return __atomic_load_n(&heap.objects.layers, __ATOMIC_ACQUIRE) != NULL; }

/* Whether the program can be asked to free something. */
static bool has_reclaimers(void) { return has_object_caches() || __atomic_load_n(&heap.pressure.first, __ATOMIC_RELAXED) != NULL; }

/* By the maintenance thread alone, never from malloc: it runs destructors and moves of the program. Returns whether there is more to move. */
static bool tick_object_caches(void) {
    object_caches_tick(&heap.objects);
    return object_caches_consolidate_tick(&heap.objects);
}

static void first_thread_ended(void) {
    __atomic_store_n(&heap.first_thread_ended, true, __ATOMIC_RELEASE);
    platform_event_wake(&heap.maintenance_event);
}

void maintenance_watch_first_thread(void) { heap.first_thread_watched = platform_on_first_thread_exit(first_thread_ended); }

/* How long the thread may sleep without a look at whether the program's threads have all ended. */
static uint64_t longest_sleep_ns(void) {
    if (__atomic_load_n(&heap.first_thread_ended, __ATOMIC_ACQUIRE)) return LAST_LOOK_NS;
    return heap.first_thread_watched ? UINT64_MAX : LAST_LOOK_UNWATCHED_NS;
}

/* Where nobody can tell whether this is the last thread it must not be one: slow paths do its work from now on. */
static STRATA_COLD void leave_for_good(void) {
    platform_pressure_close();
    __atomic_store_n(&heap.maintenance_retry_ns, UINT64_MAX, __ATOMIC_RELAXED);
    __atomic_store_n(&heap.maintenance_state, MAINTENANCE_FAILED, __ATOMIC_RELEASE);
}

/* When it returns, as the last thread of all, the C library ends the process. */
static STRATA_COLD void maintenance_thread(void *argument) {
    (void)argument;
    bool pressure = platform_pressure_open();
    unsigned quiet = 0;
    uint32_t calls_seen = 0;       /* slow_calls before the last tick */
    uint32_t calls_trimmed = 0;    /* after the last idle reclaim */
    platform_hear_access_faults(); /* of the program's functions: watched pages, and paged blocks */
    for (;;) {
        uint64_t timeout = max_u64(look_period_ns(), 1000000);
        if (quiet >= QUIET_TICKS) {
            __atomic_store_n(&heap.maintenance_asleep, true, __ATOMIC_SEQ_CST);
            if (maintenance_slow_calls() == calls_seen)
                timeout = UINT64_MAX;
            else
                __atomic_store_n(&heap.maintenance_asleep, false, __ATOMIC_SEQ_CST);
        }
        bool woken = false;
        enum platform_pressure level = PLATFORM_PRESSURE_NONE;
        for (;;) { /* in parts, where it must be looked whether this is the last thread */
            uint64_t longest = longest_sleep_ns(), part = min_u64(timeout, longest);
            if (pressure) {
                if (__atomic_load_n(&heap.pressure.first, __ATOMIC_RELAXED) != NULL) platform_pressure_soon(); /* the program wants to know */
                level = platform_pressure_wait(&heap.maintenance_event, part, &woken);
            } else {
                woken = platform_event_wait(&heap.maintenance_event, part);
            }
            bool known = true;
            if (longest != UINT64_MAX && platform_thread_is_last(&known)) return;
            if (!known && __atomic_load_n(&heap.first_thread_ended, __ATOMIC_ACQUIRE)) {
                leave_for_good();
                return;
            }
            if (woken || level != PLATFORM_PRESSURE_NONE || part == timeout) break;
            if (timeout != UINT64_MAX) timeout -= part;
        }
        if (level == PLATFORM_PRESSURE_CRITICAL) {
            __atomic_fetch_add(&heap.pressure_events, 1, __ATOMIC_RELAXED);
            reclaim_on_pressure(true);
            object_caches_reap(&heap.objects);
            heap_release(0);
        } else if (level == PLATFORM_PRESSURE_SOME) {
            __atomic_fetch_add(&heap.pressure_events, 1, __ATOMIC_RELAXED);
            reclaim_on_pressure(false);
            object_caches_tick(&heap.objects);
            cache_tick(&heap.caches);
            slab_reap(&heap.slabs);
            zone_release(&heap.zone, 0);
        }
        if (__atomic_load_n(&heap.malloc_failed, __ATOMIC_RELAXED)) reclaim_for_malloc();
        if (woken) { /* by a slow path: activity again; the tick is due a period from now */
            quiet = 0;
            continue;
        }
        if (!look_at_pages()) continue;
        uint32_t calls = maintenance_slow_calls();
        bool again = has_object_caches() && tick_object_caches();
        bool active = tick() || again || calls != calls_seen;
        if (has_reclaimers()) reclaim_above_limit();
        quiet = active ? 0 : quiet + 1;
        calls_seen = calls;
        /* Once for each time that the program is idle: what it does itself when it is asked does not count. */
        if (quiet == QUIET_TICKS && calls != calls_trimmed) {
            if (has_reclaimers() && reclaim_when_idle()) quiet = 0; /* what has come back goes back to the system by the next ticks */
            calls_trimmed = maintenance_slow_calls();
        }
    }
}

STRATA_COLD uint32_t maintenance_slow_calls(void) {
    uint32_t calls = 0;
    for (unsigned line = 0; line < HEAP_CALL_LINES; line++) calls += __atomic_load_n(&heap.slow_calls[line].count, __ATOMIC_SEQ_CST);
    return calls;
}

/* Where the state is `from`: NONE or FAILED. */
static STRATA_COLD void start_thread(uint32_t from) {
    /* A program of one thread that has locked itself in may end for the calls that make another: slow paths do its work. */
    if (platform_thread_is_alone() && platform_is_locked_in()) {
        __atomic_store_n(&heap.maintenance_retry_ns, UINT64_MAX, __ATOMIC_RELAXED);
        __atomic_store_n(&heap.maintenance_state, MAINTENANCE_FAILED, __ATOMIC_RELEASE);
        return;
    }
    if (!platform_thread_may_start()) return;
    if (!__atomic_compare_exchange_n(&heap.maintenance_state, &from, MAINTENANCE_STARTING, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) return;
    bool started = platform_thread_start(maintenance_thread, NULL);
    if (!started) __atomic_store_n(&heap.maintenance_retry_ns, platform_now_ns() + RETRY_NS, __ATOMIC_RELAXED);
    __atomic_store_n(&heap.maintenance_state, started ? MAINTENANCE_RUNNING : MAINTENANCE_FAILED, __ATOMIC_RELEASE);
    platform_word_wake(&heap.maintenance_state);
}

/* Tries at once, also where a start has failed before; of one that another thread has under way it waits for the end. */
STRATA_SELDOM bool maintenance_start(void) {
    if (heap.options.background == OPTION_BACKGROUND_OFF) return false;
    uint32_t state = __atomic_load_n(&heap.maintenance_state, __ATOMIC_ACQUIRE);
    if (state == MAINTENANCE_NONE || state == MAINTENANCE_FAILED) start_thread(state);
    while ((state = __atomic_load_n(&heap.maintenance_state, __ATOMIC_ACQUIRE)) == MAINTENANCE_STARTING)
        platform_word_wait(&heap.maintenance_state, state);
    return state == MAINTENANCE_RUNNING;
}

static bool wants_thread(void) {
    if (__atomic_load_n(&heap.pressure.first, __ATOMIC_RELAXED) != NULL) return true; /* in the child of a fork */
    switch (heap.options.background) {
    case OPTION_BACKGROUND_OFF: return false;
    case OPTION_BACKGROUND_ON: return true;
    default: break;
    }
    if (__atomic_load_n(&heap.malloc_failed, __ATOMIC_RELAXED)) return true; /* for what has to run out of malloc */
    return __atomic_load_n(&heap.zone.counters.populated, __ATOMIC_RELAXED) << GRANULE_SHIFT > MAINTENANCE_HEAP_BYTES;
}

/* Returns whether a start was tried, by this thread or another. */
static STRATA_NOINLINE bool start_where_wanted(uint32_t state) {
    if (state == MAINTENANCE_FAILED && platform_now_ns() < __atomic_load_n(&heap.maintenance_retry_ns, __ATOMIC_RELAXED)) return false;
    if ((state != MAINTENANCE_NONE && state != MAINTENANCE_FAILED) || !wants_thread()) return false;
    start_thread(state);
    return true;
}

static STRATA_NOINLINE void look_at_clock(bool may_start_thread) {
    uint32_t state = __atomic_load_n(&heap.maintenance_state, __ATOMIC_ACQUIRE);
    if (may_start_thread && start_where_wanted(state)) return;
    if (state == MAINTENANCE_RUNNING) return; /* it looks at the clock itself */
    uint64_t now = platform_now_ns(), due = __atomic_load_n(&heap.next_tick_ns, __ATOMIC_RELAXED);
    if (now < due) return;
    /* One thread wins the tick; the others go on. */
    if (!__atomic_compare_exchange_n(&heap.next_tick_ns, &due, now + look_period_ns(), false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) return;
    if (state == MAINTENANCE_STARTING || due == 0 || !look_at_pages()) return;
    tick();
    __atomic_add_fetch(&heap.object_ticks, 1, __ATOMIC_RELAXED); /* of object caches destructors may have to run, not out of malloc */
}

/*
 * In a control group with a memory limit, nothing stays idle above seven eighths of it: the kernel would reclaim or kill there.
 * Read late, as it takes files to find out, some 200 us: when the zone has idle pages that a limit would be about, or asks for huge pages, which many
 * programs that only grow never have. A soft limit of the user's counts where it is lower.
 */
static STRATA_COLD void adopt_cgroup_limit(void) {
    uint32_t wanted = ZONE_LIMIT_WANTED; /* one thread reads it */
    if (!__atomic_compare_exchange_n(&heap.zone.limit_state, &wanted, ZONE_LIMIT_KNOWN, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) return;
    if (platform_is_locked_in()) return;
    uint64_t limit = platform_memory_limit_bytes();
    if (limit == UINT64_MAX) return;
    limit -= limit / 8;
    uint64_t own = zone_soft_limit(&heap.zone);
    if (own == 0 || limit < own) zone_set_soft_limit(&heap.zone, limit);
}

/*
 * The heap is about to be larger than it was, by `coming` granules if all of them are fresh: before it grows by another thirty-second, what caches
 * hold and nobody uses goes back to the slabs, so that the pages of sizes that are out of fashion can serve those that are in. Paid once for each
 * step, which costs some ten times more in first touches. What a reap has made idle is a part of the next step, and where slabs have become fewer by
 * as much as a step, the next reap is due at once: what is left of them is held by few objects then, many of which are in caches. A heap whose small
 * blocks give way to large ones and come back would grow by a step in each cycle else (docs/decisions.md, 144). Beside large blocks that grow, small
 * ones may be too few for it to matter (154).
 */
static STRATA_NOINLINE void reap_on_growth(uint64_t coming) {
    const uint64_t populated = __atomic_load_n(&heap.zone.counters.populated, __ATOMIC_RELAXED),
                   step = max_u64(populated / GROWTH_SHARE, GROWTH_GRANULES_MIN);
    const uint64_t reap_at = __atomic_load_n(&heap.reap_at_granules, __ATOMIC_RELAXED);
    uint64_t look_at = __atomic_load_n(&heap.look_at_granules, __ATOMIC_RELAXED);
    const bool grown = populated >= reap_at && zone_runs_granules(&heap.zone) >= step / STEP_SHARE,
               due = grown || zone_runs_fewer(&heap.zone) >= step;
    uint64_t next = due ? UINT64_MAX : populated + GROWTH_GRANULES_MIN;
    if (!due && populated < reap_at) next = min_u64(next, reap_at);
    if (populated + coming < look_at || next == look_at) return;
    if (!__atomic_compare_exchange_n(&heap.look_at_granules, &look_at, next, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED) || !due) return;
    const uint64_t idle = zone_idle_granules(&heap.zone);
    cache_reap(&heap.caches);
    if (__atomic_load_n(&heap.objects.layers, __ATOMIC_ACQUIRE) != NULL)
        object_caches_reap_silent(&heap.objects); /* of others by those who may call the program's functions */
    const uint64_t idle_now = zone_idle_granules(&heap.zone), now = __atomic_load_n(&heap.zone.counters.populated, __ATOMIC_RELAXED);
    const uint64_t left = step - min_u64(step, idle_now - min_u64(idle, idle_now));
    zone_runs_restart(&heap.zone);
    __atomic_store_n(&heap.reap_at_granules, now + max_u64(GROWTH_GRANULES_MIN, left), __ATOMIC_RELAXED);
    __atomic_store_n(&heap.look_at_granules, now + GROWTH_GRANULES_MIN, __ATOMIC_RELAXED);
}

/* Its pages may all be fresh ones, however many are idle elsewhere. */
void maintenance_large_coming(uint64_t granules) {
    slab_reap_for(&heap.slabs, granules);
    if (__atomic_load_n(&heap.zone.counters.populated, __ATOMIC_RELAXED) + granules >= __atomic_load_n(&heap.look_at_granules, __ATOMIC_RELAXED))
        reap_on_growth(granules);
}

STRATA_SELDOM void maintenance_make_up(void) {
    if (__atomic_load_n(&heap.maintenance_state, __ATOMIC_ACQUIRE) == MAINTENANCE_RUNNING ||
        !__atomic_exchange_n(&heap.malloc_failed, false, __ATOMIC_RELAXED))
        return;
    object_caches_reap(&heap.objects);
    heap_release(0);
}

void maintenance_large_call(void) { (void)start_where_wanted(__atomic_load_n(&heap.maintenance_state, __ATOMIC_ACQUIRE)); }

void maintenance_slow_call(bool may_start_thread) {
    uint64_t populated = __atomic_load_n(&heap.zone.counters.populated, __ATOMIC_RELAXED);
    if (STRATA_UNLIKELY(populated >= __atomic_load_n(&heap.look_at_granules, __ATOMIC_RELAXED))) reap_on_growth(0);
    if (STRATA_UNLIKELY(__atomic_load_n(&heap.zone.limit_state, __ATOMIC_RELAXED) == ZONE_LIMIT_WANTED)) adopt_cgroup_limit();
    uint32_t *count = &heap.slow_calls[0].count, calls;
    if (platform_thread_is_alone()) { /* so there is nobody to wake */
        calls = __atomic_load_n(count, __ATOMIC_RELAXED) + 1;
        __atomic_store_n(count, calls, __ATOMIC_RELAXED);
    } else {
        count = &heap.slow_calls[cpu_current_id() % HEAP_CALL_LINES].count;
        calls = __atomic_add_fetch(count, 1, __ATOMIC_SEQ_CST);
    }
    if (STRATA_UNLIKELY(__atomic_load_n(&heap.maintenance_asleep, __ATOMIC_SEQ_CST)) &&
        __atomic_exchange_n(&heap.maintenance_asleep, false, __ATOMIC_SEQ_CST))
        platform_event_wake(&heap.maintenance_event);
    if (STRATA_UNLIKELY(calls % SLOW_CALLS == 0)) look_at_clock(may_start_thread);
}

STRATA_COLD void maintenance_fork_child(void) {
    if (heap.maintenance_state == MAINTENANCE_RUNNING || heap.maintenance_state == MAINTENANCE_STARTING) platform_pressure_close();
    heap.maintenance_state = MAINTENANCE_NONE;
    heap.maintenance_asleep = heap.malloc_failed = false;
    heap.maintenance_event = (struct platform_event){0};
    heap.first_thread_ended = false;
    if (heap.look_at_granules == UINT64_MAX) heap.look_at_granules = 0; /* who was reaping is not here */
    maintenance_watch_first_thread();                                   /* the thread that forked is the child's first */
}
