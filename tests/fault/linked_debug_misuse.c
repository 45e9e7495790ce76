/*
 * linked_debug_misuse.c - commits one misuse of memory that debugging is to see: linked_debug_misuse CASE. STRATA_CONF says which features are on.
 *
 * Before the misuse it prints the address of the buffer, and of the byte that is touched. Buffers of malloc have 50 bytes, objects 100.
 */
#include "stress/support.h"

#include <strata/cache.h>
#include <strata/debug.h>
#include <strata/kmem.h>
#include <strata/malloc.h>

static void announce(const void *buffer, const void *touched) {
    char line[128];
    int length = snprintf(line, sizeof line, "%#lx\n%#lx\n", (unsigned long)(uintptr_t)buffer, (unsigned long)(uintptr_t)touched);
    REQUIRE(write(STDOUT_FILENO, line, (size_t)length) == length);
}

static int make(void *object, void *argument) {
    (void)argument;
    memset(object, 1, 100);
    return 0;
}
static void unmake(void *object, void *argument) {
    (void)argument;
    REQUIRE(*(char *)object == 1);
}

static struct strata_cache *create(const char *name) {
    const struct strata_cache_config config = {.size = 100, .constructor = make, .destructor = unmake};
    struct strata_cache *cache;
    REQUIRE(strata_cache_create(name, &config, &cache) == STRATA_CACHE_OK);
    return cache;
}

static void of_malloc(const char *which) {
    volatile char *buffer = malloc(50), *touched = buffer;
    bool freed = strncmp(which, "after-free", 10) == 0;
    if (strcmp(which, "over") == 0) touched = buffer + 50;
    if (strcmp(which, "over-page") == 0 || strcmp(which, "read-page") == 0) touched = buffer + 64;
    if (strcmp(which, "under") == 0) touched = buffer - 1;
    if (strcmp(which, "after-free") == 0 || strcmp(which, "after-free-verify") == 0) touched = buffer + 49;
    if (strcmp(which, "inside") == 0) touched = buffer + 16;
    announce((void *)buffer, (void *)touched);
    if (freed) free((void *)buffer);
    if (strncmp(which, "read", 4) == 0) REQUIRE(*touched != 77);
    if (strcmp(which, "after-free-read") == 0) REQUIRE(*touched != 77);
    if (strncmp(which, "over", 4) == 0 || strcmp(which, "under") == 0 || strcmp(which, "after-free") == 0 || strcmp(which, "after-free-verify") == 0)
        *touched = 'A';
    if (strcmp(which, "after-free-verify") == 0) strata_debug_verify(NULL);
    if (strcmp(which, "inside") == 0) free((void *)touched);
    if (strcmp(which, "size") == 0) strata_kmem_free((void *)buffer, 51);
    if (strcmp(which, "size-sized") == 0) strata_free_sized((void *)buffer, 49);
    if (strcmp(which, "after-free") == 0)
        for (unsigned i = 0; i < 10000; i++) REQUIRE(malloc(50) != NULL);
    if (!freed) free((void *)buffer);
    if (strcmp(which, "twice") == 0) free((void *)buffer);
}

static void of_cache(const char *which) {
    struct strata_cache *cache = create("letters"), *other = create("parcels");
    volatile char *object = strata_cache_alloc(cache, 0), *touched = object;
    if (strcmp(which, "cache-over") == 0) touched = object + 100;
    if (strcmp(which, "cache-other") == 0) object = touched = strata_cache_alloc(other, 0);
    announce((void *)object, (void *)touched);
    if (strcmp(which, "cache-over") == 0) *touched = 'A';
    if (strcmp(which, "cache-malloc") == 0) free((void *)object);
    strata_cache_free(cache, (void *)object);
    if (strcmp(which, "cache-after-free") == 0) *touched = 'A';
    if (strcmp(which, "cache-twice") == 0) strata_cache_free(cache, (void *)object);
    for (unsigned i = 0; i < 1000; i++) REQUIRE(strata_cache_alloc(cache, 0) != NULL);
}

int main(int argc, char **argv) {
    REQUIRE(argc == 2);
    if (strncmp(argv[1], "cache", 5) == 0)
        of_cache(argv[1]);
    else
        of_malloc(argv[1]);
    REQUIRE(write(STDOUT_FILENO, "survived\n", 9) == 9);
    return 0;
}
