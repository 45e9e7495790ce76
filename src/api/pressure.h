/*
 * pressure.h - the program's handlers for shortage of memory: what the maintenance thread and fork need of pressure.c. Private to api/.
 */
#ifndef STRATA_API_PRESSURE_H
#define STRATA_API_PRESSURE_H

#include "base/base.h"

/*
 * On the maintenance thread, with no lock: all handlers are called, for wanted_bytes, or where that is 0 for one in 2^shift of the heap. Returns
 * whether there was one. need: enum strata_cache_need.
 */
bool pressure_call_handlers(uint64_t wanted_bytes, unsigned shift, unsigned need);
/* Under heap.lock, which fork holds. */
void pressure_fork_prepare(void);
void pressure_fork_child(void);

#endif
