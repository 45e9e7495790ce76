/*
 * debug.h - debugging in the heap of the process: rules that say which caches have which features, and malloc's side. Private to api/.
 *
 * Nothing of this exists before the first rule: then struct debug_heap is made, and stays. malloc's slow paths look at heap.debug; its fast paths
 * never see it, as the arrays of a class with features are shut, and a debugged buffer's tag has none (TAG_DEBUG), or its address is outside of the
 * heap.
 */
#ifndef STRATA_API_DEBUG_H
#define STRATA_API_DEBUG_H

#include "api/heap.h"

#define DEBUG_PATTERN_BYTES 64

/* The pattern that was set last, of those that match a cache, counts. */
struct debug_rule {
    struct list link;
    char pattern[DEBUG_PATTERN_BYTES];
    struct debug_features features;
    bool off;
};

/* The name that blocks of more than the largest size class go by. */
#define DEBUG_BLOCKS_NAME "malloc-large"

struct debug_heap {
    struct debug_layer layer;
    struct list rules;                                 /* in the order in which they were set; under layer.lock */
    uint64_t rules_set;                                /* how many were, so far; atomic */
    uint32_t setting;                                  /* somebody is setting features: see debug_setting_try; atomic */
    struct debug_cache *classes[SLAB_CACHE_MAGAZINES]; /* by tag; NULL: never had features. Atomic */
    uint32_t blocks_mtbf;                              /* of blocks, which have no other feature; atomic, as is the next */
    uint64_t blocks_random;
};

STRATA_INLINE struct debug_heap *debug_heap(void) { return __atomic_load_n(&heap.debug, __ATOMIC_ACQUIRE); }
/* The same, made where it is not there yet. NULL: no memory. */
struct debug_heap *debug_heap_make(void);

/* ------------------------------------------------------------------ debug_features.c: text */

/* `who` begins the line that says what is wrong. `off`: no features. */
bool debug_features_parse(const char *who, const char *text, size_t length, struct debug_features *features, bool *off);
/* Sizes of the logs: UINT64_MAX for one that is not named. */
bool debug_logs_parse(const char *who, const char *text, size_t length, uint64_t sizes[DEBUG_LOGS]);
bool debug_pattern_is_valid(const char *who, const char *pattern, size_t length);
/* *: any text; ?: any character. */
bool debug_pattern_matches(const char *pattern, const char *name);
/* Features as debug_features_parse reads them. */
void debug_features_show(const struct debug_features *features, char *text, size_t bytes);

/* ------------------------------------------------------------------ debug_heap.c: malloc's side */

/* One class gets features; NULL: none any more. Setters come one by one. */
bool debug_class_set(struct debug_heap *debug, unsigned tag, const struct debug_features *features);
/* The same for blocks. */
void debug_blocks_set(struct debug_heap *debug, const struct debug_features *features);
/*
 * debug->setting, which one thread has at a time: who sets features, or finds that the last debugged buffer of malloc's is gone. end: kmem's frees
 * trust their callers again where nothing speaks against it.
 */
bool debug_setting_try(struct debug_heap *debug);
void debug_setting_end(struct debug_heap *debug);

#endif
