/*
 * test_statistics_free.c - what the figures say of free blocks and of fragmentation, read from the JSON of strata_stats_json before and after blocks
 * whose places are known.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "api/heap.h"
#include "platform/sim/sim.h"
#include "strata/malloc.h"
#include "strata/strata.h"

/* Base pages, and nothing that happens by itself. */
#define STILL "thp:never,background:off,decay_ms:3600000"

int pthread_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void)) { /* this process builds many heaps */
    (void)prepare, (void)parent, (void)child;
    return 0;
}

/* The figures of one moment. */
struct look {
    char json[64 * KIB];
};
static struct look before, after;

static void take(struct look *look) {
    size_t bytes;
    int file = platform_file_create("/look.json");
    assert_true(file >= 0);
    assert_int_equal(strata_stats_json(file), 0);
    platform_file_close(file);
    const char *text = sim_file_text("/look.json", &bytes);
    assert_true(bytes < sizeof look->json);
    memcpy(look->json, text, bytes + 1);
}

/* From the start of the object of that name in a list of the document; of "heap", and of the document itself (NULL), there is one. */
static const char *object_in(const char *json, const char *list, const char *name) {
    char wanted[64];
    if (list == NULL) return json;
    snprintf(wanted, sizeof wanted, "\"%s\":", list);
    const char *at = strstr(json, wanted);
    assert_non_null(at);
    if (name == NULL) return at + strlen(wanted);
    snprintf(wanted, sizeof wanted, "{\"name\":\"%s\"", name);
    at = strstr(at, wanted);
    if (at == NULL) fail_msg("there is no %s in %s", name, list);
    return at;
}

static void new_process(const struct sim_config *sim, const char *conf) {
    sim_reset(sim);
    sim_env_set("STRATA_CONF", conf);
    heap = (struct heap){.lock = PLATFORM_LOCK_INIT(LOCK_RANK_API)};
    assert_true(heap_init());
}

/* A block with all its pages present, as though written to. */
static void *hold(size_t bytes) {
    void *block = strata_malloc(bytes);
    assert_non_null(block);
    sim_touch(block, bytes);
    return block;
}

static int sound(void **state) {
    (void)state;
    const char *broken = heap_check();
    if (broken != NULL) fail_msg("%s", broken);
    assert_string_equal(sim_output(), "");
    return 0;
}

/* Of the row of this size. */
static uint64_t free_figure(const struct look *look, size_t block_bytes, const char *key) {
    char wanted[64];
    snprintf(wanted, sizeof wanted, "{\"block_bytes\":%zu,", block_bytes);
    const char *row = strstr(object_in(look->json, "free_blocks", NULL), wanted);
    assert_non_null(row);
    snprintf(wanted, sizeof wanted, "\"%s\":", key);
    const char *at = strstr(row, wanted);
    assert_true(at != NULL && at < strchr(row, '}'));
    return strtoull(at + strlen(wanted), NULL, 10);
}

/* Blocks of 4 KiB .. 2 MiB in aligned places: what is free beside two of 512 and 64 KiB, at the start of a superpage. */
static void free_blocks_by_size(void **state) {
    (void)state;
    new_process(NULL, STILL);
    take(&before);
    void *first = hold(512 * KIB), *second = hold(64 * KIB);
    take(&after);
    for (size_t bytes = 4 * KIB, movable; bytes <= 2 * MIB; bytes *= 2) {
        movable = bytes >= 64 * KIB && bytes <= MIB && bytes != 512 * KIB; /* 576 KiB are used: 64 + 128 + 256 KiB and 1 MiB are left */
        assert_int_equal(free_figure(&after, bytes, "movable") - free_figure(&before, bytes, "movable"), movable);
        assert_int_equal(free_figure(&after, bytes, "unused") - free_figure(&before, bytes, "unused"), 0);
    }
    strata_free(second);
    uint64_t free_pages = 0, blocks = 0, large = 0;
    take(&after);
    static const char *const groups[] = {"unmovable", "reclaimable", "movable", "unused"};
    for (unsigned order = 0; order < 10; order++)
        for (unsigned g = 0; g < ARRAY_LENGTH(groups); g++) {
            uint64_t count = free_figure(&after, 4 * KIB << order, groups[g]);
            free_pages += count << order;
            blocks += count;
            if (order >= 7) large += count << order;
        }
    assert_int_equal(free_figure(&after, 512 * KIB, "unusable_permille"), (free_pages - large) * 1000 / free_pages);
    uint64_t fragmentation = free_figure(&after, 2 * MIB, "fragmentation_permille"), expected = 1000 - free_pages * 1000 / 512 / blocks;
    assert_true(fragmentation > 0 && fragmentation <= expected && fragmentation + 1 >= expected);
    /* A superpage whose pages are idle is nobody's, and free as a whole. */
    before = after;
    strata_free(first);
    take(&after);
    assert_int_equal(free_figure(&after, 2 * MIB, "unused") - free_figure(&before, 2 * MIB, "unused"), 1);
    assert_int_equal(free_figure(&after, 2 * MIB, "movable"), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test_teardown(free_blocks_by_size, sound)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
