/*
 * model_heap.h - what the model runners of api/ share: each run is a new process with a heap of its own.
 */
#ifndef STRATA_TESTS_MODEL_HEAP_H
#define STRATA_TESTS_MODEL_HEAP_H

#include <errno.h>

#include "api/heap.h"
#include "model.h"

#define ERRNO_BEFORE EXDEV /* nothing in here sets it */

static inline void model_new_heap(struct model *model, const struct sim_config *sim, const char *conf) {
    sim_reset(sim);
    sim_env_set("STRATA_CONF", conf);
    heap = (struct heap){.lock = PLATFORM_LOCK_INIT(LOCK_RANK_API)};
    model_trace(model, "pages of %zu, %s%s", sim->page_bytes, conf, sim->thread_mode ? ", thread mode" : "");
    MODEL_EXPECT(model, heap_init(), "no heap");
    errno = ERRNO_BEFORE;
}

#endif
