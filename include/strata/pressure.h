/*
 * strata/pressure.h - the program is told when memory is short, how badly, and how much is wanted, and what it gave back is measured.
 *
 * For memory that strata does not know the use of: a cache of decoded pictures, buffers that can be written out, blocks of pages (strata/page.h) that
 * can be computed again. It should be freed: what strata_page_release gives back helps the system, but counts for strata's own limits as before.
 * Object caches have a function of their own for it (strata/cache.h, reclaim), which is asked at the same moments and with the same levels.
 *
 *     static void give(void *argument, size_t wanted_bytes, enum strata_cache_need need) { drop_pictures(argument, wanted_bytes); }
 *     ...
 *     struct strata_pressure *pictures;
 *     if (strata_pressure_register("pictures", give, &store, &pictures) != STRATA_PRESSURE_OK) ...
 *
 * Valid in C11 and C++. Threads: any may call. fork: the child has all handlers; they run there once its own maintenance thread has started. Signals:
 * not for signal handlers. errno stays as it was. The design follows Douglas, "User Mode Memory Page Allocation" (2011), section 2, 5-i.
 */
#ifndef STRATA_PRESSURE_H
#define STRATA_PRESSURE_H

#include <stddef.h>
#include <stdint.h>

#include <strata/cache.h>
#include <strata/strata.h>

#ifdef __cplusplus
extern "C" {
#endif

struct strata_pressure;

enum strata_pressure_status {
    STRATA_PRESSURE_OK = 0,
    STRATA_PRESSURE_NO_MEMORY,    /* for the registration */
    STRATA_PRESSURE_BAD_ARGUMENT, /* a NULL; a name that is empty or longer than 31 bytes */
    STRATA_PRESSURE_NO_THREAD,    /* nobody would call it: background:off (docs/options.md), or no thread could be started */
};
/* A short English text, never NULL; also for values that are none. */
STRATA_API const char *strata_pressure_status_text(enum strata_pressure_status status) STRATA_NOEXCEPT;

/*
 * strata_pressure_register - a handler for the moments when memory is short.
 *
 * name: copied, 1 to 31 bytes. handler, registration: not NULL. argument: passed to the handler. Starts the maintenance thread where it does not
 * run yet. Errors: all but OK, and then nothing has changed.
 *
 * The handler runs on the maintenance thread, one at a time, in order of registration, with no lock of strata held and never within malloc or another
 * function of strata; all signals but SIGSEGV are blocked there. need and wanted_bytes:
 *   - STRATA_CACHE_IDLE: the program has been idle for some periods of decay_ms, once each time; a sixteenth of the heap;
 *   - STRATA_CACHE_PRESSURE: PSI or a control group's event, an eighth of the heap, or a half where the system calls it critical; or the heap is
 * above soft_limit, or seven eighths of the control group's limit, what is above it;
 *   - STRATA_CACHE_OUT_OF_MEMORY: a malloc, strata_page_alloc or the like has failed a moment ago (hard_limit, or the system has none), a half.
 *
 * How much it gives is its own affair. It may allocate and free, use every function of strata, and unregister itself or others. While it runs,
 * nothing else of the maintenance thread's work is done, so that it should not sleep. Cost: linear in the handlers that there are, some ns each;
 * later two looks at the heap's figures and at /proc for each call.
 */
STRATA_API enum strata_pressure_status strata_pressure_register(const char *name,
                                                                void (*handler)(void *argument, size_t wanted_bytes, enum strata_cache_need need),
                                                                void *argument, struct strata_pressure **registration) STRATA_NOEXCEPT;

/*
 * strata_pressure_unregister - it is not called any more. Waits where it is running, unless it is the handler itself that calls. NULL: nothing. The
 * caller holds no lock that the handler wants. A registration is gone afterwards: strata_pressure_unregister of it a second time is undefined.
 */
STRATA_API void strata_pressure_unregister(struct strata_pressure *registration) STRATA_NOEXCEPT;

struct strata_pressure_stats {
    const char *name; /* of the registration, as long as that exists */
    uint64_t calls;
    uint64_t wanted_bytes; /* of all calls */
    /*
     * What was less after a call than before, of all calls: bytes of the heap in the program's hands, which is what it freed; and bytes of the
     * process that are resident, which is what it released or unmapped. What other threads do meanwhile counts too, for it or against it.
     */
    uint64_t freed_bytes, resident_bytes;
};
/*
 * strata_pressure_stats_get - registration, stats: not NULL. Sums of all handlers, also of those that are gone, are in strata_stats_json
 * (strata/strata.h): handler_calls, handler_freed_bytes and handler_resident_bytes.
 */
STRATA_API void strata_pressure_stats_get(struct strata_pressure *registration, struct strata_pressure_stats *stats) STRATA_NOEXCEPT;

#ifdef __cplusplus
}
#endif

#endif
