/*
 * debug_api.c - debugging as programs see it: rules that give features to caches, errors, walks. Reports as text are in debug_text.c.
 *
 * Setters come one by one (debug->setting), with no lock held while they work on a cache, as destructors of the program run then. A cache that is
 * created meanwhile asks for its features by itself: the rules are changed before any cache is, and it asks again where they were while it took them.
 * It can't wait for the setter, whose destructors may create caches.
 */
#include <errno.h>
#include <string.h>

#include "api/debug.h"
#include "api/debug_walk.h"
#include "api/quantum.h"
#include "base/check.h"
#include "strata/debug.h"

const char *strata_debug_status_text(enum strata_debug_status status) {
    switch (status) {
    case STRATA_DEBUG_OK: return "success";
    case STRATA_DEBUG_NO_MEMORY: return "no memory";
    case STRATA_DEBUG_BAD_ARGUMENT: return "bad argument";
    }
    return "unknown status";
}

struct debug_heap *debug_heap_make(void) {
    if (!heap_init()) return NULL;
    platform_lock_acquire(&heap.lock);
    struct debug_heap *debug = heap.debug;
    if (debug == NULL) {
        debug = zone_metadata_alloc(&heap.zone, sizeof *debug);
        if (debug != NULL) {
            debug_layer_init(&debug->layer, &heap.zone);
            debug->layer.goes_on = heap.options.debug_error == OPTION_DEBUG_ERROR_CONTINUE;
            list_init(&debug->rules);
            __atomic_store_n(&heap.debug, debug, __ATOMIC_RELEASE);
        }
    }
    platform_lock_release(&heap.lock);
    return debug;
}

/* ------------------------------------------------------------------ rules; under layer.lock */

static struct debug_rule *rule_of(struct debug_heap *debug, const char *pattern) {
    LIST_FOR_EACH(&debug->rules, node) {
        struct debug_rule *rule = CONTAINER_OF(node, struct debug_rule, link);
        if (strcmp(rule->pattern, pattern) == 0) return rule;
    }
    return NULL;
}

/* The features of a cache by the rules; false: none. */
static bool features_of(struct debug_heap *debug, const char *name, struct debug_features *features) {
    bool any = false;
    platform_lock_acquire(&debug->layer.lock);
    for (struct list *node = debug->rules.prev; node != &debug->rules; node = node->prev) {
        const struct debug_rule *rule = CONTAINER_OF(node, struct debug_rule, link);
        if (!debug_pattern_matches(rule->pattern, name)) continue;
        *features = rule->features;
        any = !rule->off;
        break;
    }
    platform_lock_release(&debug->layer.lock);
    return any;
}

/* Sets a rule; *before is what it was. False: no memory. */
static bool set_rule(struct debug_heap *debug, const char *pattern, const struct debug_rule *wanted) {
    struct debug_rule *fresh = zone_metadata_alloc(&heap.zone, sizeof *fresh);
    if (fresh == NULL) return false;
    *fresh = *wanted;
    platform_lock_acquire(&debug->layer.lock);
    struct debug_rule *old = rule_of(debug, pattern);
    if (old != NULL) list_remove(&old->link);
    list_push_back(&debug->rules, &fresh->link);
    __atomic_fetch_add(&debug->rules_set, 1, __ATOMIC_RELEASE);
    platform_lock_release(&debug->layer.lock);
    if (old != NULL) zone_metadata_free(&heap.zone, old, sizeof *old);
    return true;
}

/* ------------------------------------------------------------------ setting */

struct application {
    struct debug_heap *debug;
    const char *pattern; /* only caches that it matches change */
    bool ok;
};

static void apply_to_cache(struct object_cache *cache, void *argument) {
    struct application *application = argument;
    struct debug_features features;
    if (cache->no_debug || !debug_pattern_matches(application->pattern, cache->name)) return;
    bool any = features_of(application->debug, cache->name, &features);
    application->ok &= object_cache_debug_set(cache, &application->debug->layer, any ? &features : NULL);
}

static bool apply(struct debug_heap *debug, const char *pattern) {
    struct application application = {debug, pattern, true};
    struct debug_features of_blocks;
    if (debug_pattern_matches(pattern, DEBUG_BLOCKS_NAME))
        debug_blocks_set(debug, features_of(debug, DEBUG_BLOCKS_NAME, &of_blocks) ? &of_blocks : NULL);
    for (unsigned tag = SLAB_CACHE_FIRST; tag < SLAB_CACHE_MAGAZINES; tag++) {
        const char *name = heap.slabs.caches[tag].name;
        struct debug_features features;
        if (!debug_pattern_matches(pattern, name)) continue;
        bool any = features_of(debug, name, &features);
        application.ok &= debug_class_set(debug, tag, any ? &features : NULL);
    }
    object_caches_debug_each(&heap.objects, apply_to_cache, &application);
    return application.ok;
}

void debug_cache_created(struct object_cache *cache) {
    struct debug_heap *debug = debug_heap();
    struct debug_features features;
    uint64_t before;
    bool ok;
    if (debug == NULL || cache->no_debug) return;
    do {
        before = __atomic_load_n(&debug->rules_set, __ATOMIC_ACQUIRE);
        bool any = features_of(debug, cache->name, &features);
        ok = object_cache_debug_set(cache, &debug->layer, any ? &features : NULL);
    } while (__atomic_load_n(&debug->rules_set, __ATOMIC_ACQUIRE) != before); /* a setter may have given it newer ones first */
    if (!ok) log_line("debug: no memory for the features of cache %s: it has none", cache->name);
}

static enum strata_debug_status set(const char *who, const char *pattern, size_t pattern_length, const char *text, size_t length) {
    struct debug_rule rule = {0};
    if (!debug_pattern_is_valid(who, pattern, pattern_length) || !debug_features_parse(who, text, length, &rule.features, &rule.off))
        return STRATA_DEBUG_BAD_ARGUMENT;
    memcpy(rule.pattern, pattern, pattern_length);
    struct debug_heap *debug = debug_heap();
    if (debug == NULL && rule.off) return STRATA_DEBUG_OK;
    if (debug == NULL) debug = debug_heap_make();
    if (debug == NULL) return STRATA_DEBUG_NO_MEMORY;
    if (rule.features.mtbf != 0 && !rule.features.seeded) {
        rule.features.seed = platform_precise_ns() * UINT64_C(0x9e3779b97f4a7c15) >> 32;
        log_line("debug: mtbf: seed=%llu", (unsigned long long)rule.features.seed);
    }
    while (!debug_setting_try(debug)) platform_word_wait(&debug->setting, 1);
    bool ok = set_rule(debug, rule.pattern, &rule);
    if (ok && !apply(debug, rule.pattern)) { /* then all of them go without: a part would be neither the one nor the other */
        rule.off = true;
        ok = false;
        if (set_rule(debug, rule.pattern, &rule)) apply(debug, rule.pattern);
    }
    debug_setting_end(debug);
    return ok ? STRATA_DEBUG_OK : STRATA_DEBUG_NO_MEMORY;
}

enum strata_debug_status strata_debug_set(const char *pattern, const char *features) {
    if (pattern == NULL || features == NULL) {
        log_line("strata_debug_set(): %s is NULL", pattern == NULL ? "pattern" : "features");
        return STRATA_DEBUG_BAD_ARGUMENT;
    }
    int saved = errno;
    platform_stack_prepare();
    enum strata_debug_status status = set("strata_debug_set()", pattern, strlen(pattern), features, strlen(features));
    errno = saved;
    return status;
}

static enum strata_debug_status set_logs(const char *who, const char *text, size_t length) {
    uint64_t sizes[DEBUG_LOGS];
    if (!debug_logs_parse(who, text, length, sizes)) return STRATA_DEBUG_BAD_ARGUMENT;
    struct debug_heap *debug = debug_heap_make();
    if (debug == NULL) return STRATA_DEBUG_NO_MEMORY;
    for (unsigned i = 0; i < DEBUG_LOGS; i++)
        if (sizes[i] != UINT64_MAX && !debug_log_set(&debug->layer, (enum debug_log_name)i, sizes[i])) return STRATA_DEBUG_NO_MEMORY;
    return STRATA_DEBUG_OK;
}

enum strata_debug_status strata_debug_log_set(const char *logs) {
    if (logs != NULL) {
        platform_stack_prepare();
        return set_logs("strata_debug_log_set()", logs, strlen(logs));
    }
    log_line("strata_debug_log_set(): logs is NULL");
    return STRATA_DEBUG_BAD_ARGUMENT;
}

void strata_debug_failed(const char *name, size_t bytes) {
    struct debug_heap *debug = debug_heap();
    if (quantum_is_hushed(NULL)) return; /* of a request that asked nobody, as what it is wanted for has not failed yet */
    if (debug != NULL && name != NULL) debug_note_failure_of(&debug->layer, name, bytes);
}

bool strata_debug_spare(bool spared) { return debug_spare(spared); }

/* FEATURES[@PATTERN], several separated by ; */
void debug_start(void) {
    struct options_text text = heap.options.debug, logs = heap.options.debug_log;
    if (logs.length != 0) set_logs("debug_log", logs.start, logs.length);
    while (text.length != 0) {
        size_t length = 0, features = 0;
        while (length < text.length && text.start[length] != ';') length++;
        while (features < length && text.start[features] != '@') features++;
        const char *pattern = features < length ? text.start + features + 1 : "*";
        size_t pattern_length = features < length ? length - features - 1 : 1;
        if (length != 0 && set("debug", pattern, pattern_length, text.start, features) == STRATA_DEBUG_NO_MEMORY) log_line("debug: no memory");
        if (length < text.length) length++;
        text = (struct options_text){text.start + length, text.length - length};
    }
}

enum strata_debug_action strata_debug_on_error(enum strata_debug_action action) {
    struct debug_heap *debug = debug_heap_make();
    if (debug == NULL) return STRATA_DEBUG_ABORT;
    bool before = action == STRATA_DEBUG_ABORT || action == STRATA_DEBUG_CONTINUE
                      ? __atomic_exchange_n(&debug->layer.goes_on, action == STRATA_DEBUG_CONTINUE, __ATOMIC_RELAXED)
                      : __atomic_load_n(&debug->layer.goes_on, __ATOMIC_RELAXED);
    return before ? STRATA_DEBUG_CONTINUE : STRATA_DEBUG_ABORT;
}

/* ------------------------------------------------------------------ looking */

struct verification {
    const char *pattern;
    uint64_t damaged;
};

static void verify_cache(struct debug_cache *cache, void *argument) {
    struct verification *verification = argument;
    if (debug_match(cache, (void *)(uintptr_t)verification->pattern)) verification->damaged += debug_cache_verify(cache, "strata_debug_verify");
}

size_t strata_debug_verify(const char *pattern) {
    struct verification verification = {.pattern = pattern};
    struct debug_heap *debug = debug_heap();
    if (debug != NULL) debug_each(&debug->layer, verify_cache, &verification);
    return verification.damaged;
}

static void add_stats(struct debug_cache *cache, void *argument) {
    struct strata_debug_stats *stats = argument;
    platform_lock_acquire(&cache->lock);
    stats->caches += cache->active;
    stats->in_use += cache->in_use;
    stats->freed += cache->free;
    stats->memory += cache->memory_bytes;
    stats->metadata += cache->described_bytes;
    platform_lock_release(&cache->lock);
}

void strata_debug_stats_get(struct strata_debug_stats *stats) {
    if (stats == NULL) return;
    struct debug_heap *debug = debug_heap();
    *stats = (struct strata_debug_stats){0};
    if (debug == NULL) return;
    struct debug_layer *layer = &debug->layer;
    debug_each(layer, add_stats, stats);
    stats->allocs = __atomic_load_n(&layer->allocs, __ATOMIC_RELAXED);
    stats->frees = __atomic_load_n(&layer->frees, __ATOMIC_RELAXED);
    stats->plain = __atomic_load_n(&layer->plain, __ATOMIC_RELAXED);
    stats->injected = __atomic_load_n(&layer->injected, __ATOMIC_RELAXED);
    stats->failed = __atomic_load_n(&layer->failed, __ATOMIC_RELAXED);
    stats->errors = __atomic_load_n(&layer->errors, __ATOMIC_RELAXED);
    stats->logged_transactions = debug_log_written(layer, DEBUG_LOG_TRANSACTION);
    stats->logged_failures = debug_log_written(layer, DEBUG_LOG_FAIL);
}
