/*
 * vh_methods.h - the allocators of fixed-size blocks that section 4 of the VH paper compares, behind one interface.
 *
 * VH is strata's own pool (include/strata/pool.h); the others are written here from the paper's descriptions, for comparison only. A method serves
 * one block size and threads that are numbered from 0; a block may be released by any thread.
 */
#ifndef STRATA_PAPERS_VH_METHODS_H
#define STRATA_PAPERS_VH_METHODS_H

#include <stddef.h>
#include <stdint.h>

/* Section 4, method VH: the capacity of a local pool. */
#define VH_LOCAL_CAPACITY 512

struct method {
    const char *name;
    void (*start)(unsigned threads, size_t block_bytes); /* before the threads; one method at a time */
    void *(*allocate)(unsigned thread);
    void (*release)(unsigned thread, void *block);
    uint64_t (*blocks_made)(void);     /* taken from the system so far; after the threads */
    uint64_t (*global_accesses)(void); /* requests that came to the global pool; 0 where that is not counted */
    void (*end)(void);
};

/* The method of that name; ends the program where there is none. */
const struct method *method_named(const char *name);

#endif
