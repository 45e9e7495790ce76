/*
 * test_statistics_free.c - what the figures say of free blocks and of fragmentation, read from the JSON of strata_stats_json before and after blocks
 * whose places are known.
 */
#include "unit/api/look.h"

/* Base pages, and nothing that happens by itself. */
#define STILL "thp:never,grouping:on,background:off,decay_ms:3600000"

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
    new_heap(NULL, STILL);
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
