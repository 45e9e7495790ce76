/*
 * linked_cache_misuse.c - commits one misuse of object caches: linked_cache_misuse CASE. The suite expects one line from strata, and SIGABRT.
 *
 * Before the misuse it prints the address that is misused. What is seen when the object reaches the slabs is sent there by strata_cache_reap.
 */
#include "stress/support.h"

#include <strata/cache.h>
#include <strata/malloc.h>

static char in_static_memory[256];

static void announce(const void *p) {
    char line[64];
    int length = snprintf(line, sizeof line, "%#lx\n", (unsigned long)(uintptr_t)p);
    REQUIRE(write(STDOUT_FILENO, line, (size_t)length) == length);
}

static bool visit(void *object, void *argument) {
    (void)object, (void)argument;
    return true;
}

/* Each function on a cache that was destroyed. */
static void use_after_destroy(const char *which, struct strata_cache *cache, void *object) {
    struct strata_cache_stats stats;
    REQUIRE(strata_cache_destroy(cache) == STRATA_CACHE_OK);
    if (strcmp(which, "alloc after destroy") == 0) (void)strata_cache_alloc(cache, 0);
    if (strcmp(which, "zeroed after destroy") == 0) (void)strata_cache_alloc(cache, STRATA_CACHE_ZERO);
    if (strcmp(which, "free after destroy") == 0) strata_cache_free(cache, object);
    if (strcmp(which, "batch after destroy") == 0) (void)strata_cache_alloc_batch(cache, &object, 1);
    if (strcmp(which, "free batch after destroy") == 0) strata_cache_free_batch(cache, &object, 1);
    if (strcmp(which, "reap after destroy") == 0) strata_cache_reap(cache);
    if (strcmp(which, "walk after destroy") == 0) (void)strata_cache_walk(cache, visit, NULL);
    if (strcmp(which, "stats after destroy") == 0) strata_cache_stats_get(cache, &stats);
    if (strcmp(which, "consolidate after destroy") == 0) (void)strata_cache_consolidate(cache);
    if (strcmp(which, "set_move after destroy") == 0) (void)strata_cache_set_move(cache, NULL);
    if (strcmp(which, "destroy after destroy") == 0) (void)strata_cache_destroy(cache);
}

/* Arguments that are NULL or none: each of these ends the process. */
static void bad_argument(const char *which, struct strata_cache *cache, void *object) {
    struct strata_cache_stats stats;
    void *objects[64];
    if (strcmp(which, "alloc of null") == 0) (void)strata_cache_alloc(NULL, 0);
    if (strcmp(which, "zeroed of null") == 0) (void)strata_cache_alloc(NULL, STRATA_CACHE_ZERO);
    if (strcmp(which, "free null of null") == 0) strata_cache_free(NULL, NULL);
    if (strcmp(which, "batch of null") == 0) (void)strata_cache_alloc_batch(NULL, objects, 1);
    if (strcmp(which, "batch into null") == 0) (void)strata_cache_alloc_batch(cache, NULL, 3);
    if (strcmp(which, "free batch of null") == 0) strata_cache_free_batch(NULL, &object, 1);
    if (strcmp(which, "free batch at null") == 0) strata_cache_free_batch(cache, NULL, 3);
    for (unsigned i = 0; i < 64; i++) objects[i] = strata_cache_alloc(cache, 0);
    if (strcmp(which, "first of batch null") == 0) objects[0] = NULL;
    if (strcmp(which, "within batch null") == 0) objects[17] = NULL;
    if (strcmp(which, "last of batch null") == 0) objects[63] = NULL;
    if (strstr(which, "batch null") != NULL) strata_cache_free_batch(cache, objects, 64);
    if (strcmp(which, "walk of null") == 0) (void)strata_cache_walk(NULL, visit, NULL);
    if (strcmp(which, "walk to null") == 0) (void)strata_cache_walk(cache, NULL, NULL);
    if (strcmp(which, "stats of null") == 0) strata_cache_stats_get(NULL, &stats);
    if (strcmp(which, "stats into null") == 0) strata_cache_stats_get(cache, NULL);
    if (strcmp(which, "unknown flags") == 0) (void)strata_cache_alloc(cache, 0xff00);
    if (strcmp(which, "unknown flag and zero") == 0) (void)strata_cache_alloc(cache, STRATA_CACHE_ZERO | 8);
}

/* What is no mistake, though it looks like one. */
static void allowed(struct strata_cache *cache) {
    const unsigned all = STRATA_CACHE_SLEEP | STRATA_CACHE_ZERO | STRATA_CACHE_NO_RECLAIM;
    REQUIRE(strata_cache_alloc_batch(cache, NULL, 0) == 0);
    strata_cache_free_batch(cache, NULL, 0);
    strata_cache_free(cache, NULL);
    for (unsigned flags = 0; flags <= all; flags++) strata_cache_free(cache, strata_cache_alloc(cache, flags));
    REQUIRE(strata_cache_destroy(NULL) == STRATA_CACHE_OK);
}

static struct strata_cache *create(const char *name, size_t size) {
    const struct strata_cache_config config = {.size = size};
    struct strata_cache *cache;
    REQUIRE(strata_cache_create(name, &config, &cache) == STRATA_CACHE_OK);
    return cache;
}

int main(int argc, char **argv) {
    REQUIRE(argc == 2);
    const char *which = argv[1];
    struct strata_cache *cache = create("letters", 100), *other = create("parcels", 100);
    char *object = strata_cache_alloc(cache, 0), *misused = object;
    REQUIRE(object != NULL);
    if (strcmp(which, "left") == 0) { /* no end of the process */
        REQUIRE(strata_cache_alloc(cache, 0) != NULL);
        REQUIRE(strata_cache_destroy(cache) == STRATA_CACHE_IN_USE);
        REQUIRE(strata_cache_destroy(other) == STRATA_CACHE_OK);
        return 0;
    }
    if (strcmp(which, "allowed") == 0) {
        allowed(cache);
        strata_cache_free(cache, object);
        REQUIRE(strata_cache_destroy(cache) == STRATA_CACHE_OK);
        return 0;
    }
    if (strstr(which, " after destroy") != NULL) {
        announce(misused);
        strata_cache_free(cache, object);
        use_after_destroy(which, cache, object);
        return 0;
    }
    if (strcmp(which, "foreign") == 0) misused = in_static_memory;
    if (strcmp(which, "malloc") == 0) misused = strata_malloc(100);
    if (strcmp(which, "inside") == 0) misused = object + 16;
    if (strcmp(which, "other") == 0) misused = strata_cache_alloc(other, 0);
    announce(misused);
    if (strcmp(which, "null") == 0) strata_cache_free(NULL, object);
    if (strcmp(which, "free") == 0) strata_free(object);
    bad_argument(which, cache, object);
    strata_cache_free(cache, misused);
    if (strcmp(which, "twice") == 0) strata_cache_free(cache, object);
    strata_cache_reap(cache);
    REQUIRE(write(STDOUT_FILENO, "survived\n", 9) == 9);
    return 0;
}
