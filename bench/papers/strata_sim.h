/*
 * strata_sim.h - strata's heap on the simulated machine, for experiments with more CPUs than there are, or with a clock of their own.
 *
 * The library's own code above platform/; only the program is on the other side of what a CPU is. One heap a process. No locks.
 */
#ifndef STRATA_PAPERS_STRATA_SIM_H
#define STRATA_PAPERS_STRATA_SIM_H

#include <stddef.h>
#include <stdint.h>

/* A machine of so many CPUs, and the heap on it; `conf` as the environment variable STRATA_CONF. Ends the program where it can't. */
void strata_sim_start(unsigned cpus, const char *conf);

/* malloc and free of at most LAYERS_BYTES_MAX bytes on that CPU. */
void *strata_sim_alloc(unsigned cpu, size_t bytes);
void strata_sim_free(unsigned cpu, void *object);

/*
 * From now on a visit of a depot keeps its lock for as long as a CPU needs for so many operations (each alloc and free is one step, and in as many
 * steps as there are CPUs each has made one): another CPU that comes to it in that time finds the lock taken, and waits no longer. 0, as at the
 * start: visits take no time.
 */
void strata_sim_hold(unsigned operations);

/* From now on arrays grow by contention alone, as the magazines paper has it (3.4), not because they are found empty often, nor where objects
 * cycle. Holds until an interval without a visit. */
void strata_sim_stop_growth(void);

/* One tick, as the maintenance thread makes it; the clock stands still. */
void strata_sim_tick(void);
/* Memory is short: depots, and the arrays of the CPU that called last, are emptied. */
void strata_sim_reap(void);

/* The depot of the class that serves requests of so many bytes. */
struct strata_sim_depot {
    unsigned transfer;                /* rounds of a magazine: m/2 */
    unsigned full;                    /* full magazines that wait */
    uint64_t slab_allocs, slab_frees; /* objects, so far, that came from slabs and went to them */
    uint64_t contention;              /* how often its lock was found taken, so far */
};
struct strata_sim_depot strata_sim_depot_of(size_t bytes);

/* Of a lock of the library's, as platform.h ranks them; and the layer that has locks of that rank. */
unsigned strata_sim_lock_rank(const void *lock);
const char *strata_sim_rank_name(unsigned rank);

#endif
