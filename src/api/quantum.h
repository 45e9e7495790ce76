/*
 * quantum.h - the quantum caches of arenas: object caches whose objects are integers and whose slabs are segments. Private to api/.
 */
#ifndef STRATA_API_QUANTUM_H
#define STRATA_API_QUANTUM_H

#include "arena/arena.h"

extern const struct arena_qcache_ops quantum_ops; /* its context is not used */
/* How many integers the slabs of all quantum caches of an arena hold. */
uint64_t quantum_slabs_size(const struct arena *arena);

#endif
