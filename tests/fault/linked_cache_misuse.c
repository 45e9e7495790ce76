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
    if (strcmp(which, "foreign") == 0) misused = in_static_memory;
    if (strcmp(which, "malloc") == 0) misused = strata_malloc(100);
    if (strcmp(which, "inside") == 0) misused = object + 16;
    if (strcmp(which, "other") == 0) misused = strata_cache_alloc(other, 0);
    announce(misused);
    if (strcmp(which, "null") == 0) strata_cache_free(NULL, object);
    if (strcmp(which, "free") == 0) strata_free(object);
    strata_cache_free(cache, misused);
    if (strcmp(which, "twice") == 0) strata_cache_free(cache, object);
    strata_cache_reap(cache);
    REQUIRE(write(STDOUT_FILENO, "survived\n", 9) == 9);
    return 0;
}
