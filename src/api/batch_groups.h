/*
 * batch_groups.h - a window of elements of a batch, served together. Private to api/.
 */
#ifndef STRATA_API_BATCH_GROUPS_H
#define STRATA_API_BATCH_GROUPS_H

#include "api/batch_api.h"

#define BATCH_WINDOW 64

/* All by the number of an element in the window. */
struct batch_window {
    unsigned count;
    unsigned flags; /* STRATA_BATCH_CONSTANT_TIME where all have it: sorted groups go by it */
    size_t succeeded;
    struct batch_request requests[BATCH_WINDOW]; /* of frees and of nothing: bytes 0 */
    void **addresses[BATCH_WINDOW];
    size_t *sizes[BATCH_WINDOW];
    size_t *reserves[BATCH_WINDOW]; /* NULL: nobody wants to know */
    int *errors[BATCH_WINDOW];      /* likewise */
};

/* True: each element has to be served by the functions of malloc, as buffers are debugged, or the process is being ended. */
STRATA_INLINE bool batch_singly(void) { return heap_is_debugged() || __atomic_load_n(&heap.dying, __ATOMIC_RELAXED); }

/* Serves what is in the window, adds to `succeeded`, and empties it. The heap stands. */
void batch_window_serve(struct batch_window *window);

#endif
