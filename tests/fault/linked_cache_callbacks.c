/*
 * linked_cache_callbacks.c - commits one mistake in a function that an object cache calls back: linked_cache_callbacks CASE. The suite expects one
 * line from strata, and SIGABRT.
 */
#include "stress/support.h"

#include <strata/cache.h>

enum { OBJECTS = 2000 };

static struct strata_cache *cache;
static void *objects[OBJECTS];
static const char *mistake;

static bool is(const char *which) { return strcmp(mistake, which) == 0; }

static void announce(const void *p) {
    char line[64];
    int length = snprintf(line, sizeof line, "%#lx\n", (unsigned long)(uintptr_t)p);
    REQUIRE(write(STDOUT_FILENO, line, (size_t)length) == length);
}

static enum strata_cache_move move(void *old_object, void *new_object, size_t size, void *argument) {
    (void)new_object, (void)size, (void)argument;
    announce(old_object);
    if (is("destroy in move")) strata_cache_destroy(cache);
    if (is("no answer")) return (enum strata_cache_move)5;
    strata_cache_free(cache, old_object); /* and it has been answered for, too */
    strata_cache_reap(cache);
    return is("moved and freed") ? STRATA_CACHE_MOVE_YES : STRATA_CACHE_MOVE_DONT_NEED;
}

static void reclaim(void *argument, size_t wanted_bytes, enum strata_cache_need need) {
    (void)argument, (void)wanted_bytes, (void)need;
    announce(NULL);
    strata_cache_destroy(cache);
}

int main(int argc, char **argv) {
    REQUIRE(argc == 2);
    mistake = argv[1];
    const struct strata_cache_config config = {.size = 1000, .reclaim = is("destroy in reclaim") ? reclaim : NULL};
    REQUIRE(strata_cache_create("letters", &config, &cache) == STRATA_CACHE_OK);
    if (is("set_move of none")) strata_cache_set_move(NULL, move);
    if (is("consolidate none")) strata_cache_consolidate(NULL);
    REQUIRE(strata_cache_set_move(cache, move) == STRATA_CACHE_OK);
    for (unsigned i = 0; i < OBJECTS; i++) REQUIRE((objects[i] = strata_cache_alloc(cache, 0)) != NULL);
    for (unsigned i = 0; i < OBJECTS; i++)
        if (i % 5 != 0) strata_cache_free(cache, objects[i]);
    if (!is("destroy in reclaim")) strata_cache_consolidate(cache);
    while (is("destroy in reclaim")) REQUIRE(strata_cache_alloc(cache, 0) != NULL); /* until there is no memory */
    REQUIRE(write(STDOUT_FILENO, "survived\n", 9) == 9);
    return 0;
}
