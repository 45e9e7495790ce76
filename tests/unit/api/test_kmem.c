/*
 * test_kmem.c - kmem's forms: the map of the header is the library's for every size; what is freed by size or cookie is malloc's block; what
 * sleeping promises; where memory is short, and where nothing is cached.
 */
#include "slab_counts.h"
#include "strata/debug.h"
#include "strata/kmem.h"
#include "strata/malloc.h"
#include "strata/strata.h"
#include "unit/api/api_support.h"

/* ------------------------------------------------------------------ the map */

static unsigned class_of(strata_kmem_cookie cookie) {
    assert_int_equal(cookie >> 16, STRATA_KMEM_MAP);
    return SLAB_CACHE_FIRST + (cookie & 0xffff);
}

static void every_size_has_the_cookie_of_its_class(void **state) {
    (void)state;
    assert_true(heap_init());
    for (size_t size = 1; size <= STRATA_KMEM_COOKIE_MAX; size++) {
        unsigned cache = slab_class_of_size(&heap.slabs, size);
        assert_int_equal(class_of(STRATA_KMEM_COOKIE_OF_(size)), cache); /* what the macro is for constants */
        assert_int_equal(class_of(STRATA_KMEM_COOKIE_OF_((int)size)), cache);
        assert_int_equal(class_of(strata_kmem_cookie_of(size)), cache);
    }
    assert_int_equal(strata_kmem_cookie_of(0), 0);
    assert_int_equal(strata_kmem_cookie_of(STRATA_KMEM_COOKIE_MAX + 1), 0);
    assert_int_equal(strata_kmem_cookie_of(SIZE_MAX), 0);
}

/* As programs have them: constants, in static storage. */
struct constant {
    size_t size;
    strata_kmem_cookie cookie;
};
#define AT(size) {size, STRATA_KMEM_COOKIE(size)}
#define ROUND(size) AT((size) - 1), AT(size), AT((size) + 1)
#define DOUBLING(base)                                                                                                                   \
    ROUND((base) + (base) / 8), ROUND((base) + (base) / 4), ROUND((base) + (base) / 8 * 3), ROUND((base) + (base) / 2),                  \
        ROUND((base) + (base) / 8 * 5), ROUND((base) + (base) / 4 * 3), ROUND((base) + (base) / 8 * 7), ROUND((base) + (base) / 64 * 5), \
        ROUND((base) / 64 * 69 / 64 * 64), ROUND((base) + 16), ROUND(base)

static void cookies_of_constants_are_constants(void **state) {
    static const struct constant constants[] = {AT(1),
                                                ROUND(16),
                                                ROUND(32),
                                                ROUND(112),
                                                ROUND(128),
                                                ROUND(144),
                                                ROUND(240),
                                                DOUBLING(256),
                                                DOUBLING(512),
                                                DOUBLING(1024),
                                                DOUBLING(2048),
                                                DOUBLING(4096),
                                                DOUBLING(8192),
                                                DOUBLING(16384),
                                                AT(32767),
                                                AT(32768),
                                                AT(sizeof(struct constant))};
    (void)state;
    for (unsigned i = 0; i < ARRAY_LENGTH(constants); i++) assert_int_equal(constants[i].cookie, strata_kmem_cookie_of(constants[i].size));
}

/* Programs that were compiled for a map must not meet another under its number. */
static void the_map_has_the_number_that_it_was_given(void **state) {
    (void)state;
    static const struct {
        unsigned map;
        uint64_t digest;
    } known = {1, UINT64_C(0xc3e648fda137837)};
    uint64_t digest = UINT64_C(0xcbf29ce484222325);
    for (unsigned n = 0; n < SIZE_CLASS_COUNT; n++) digest = (digest ^ size_class_bytes(n)) * UINT64_C(0x100000001b3);
    assert_int_equal(STRATA_KMEM_MAP, known.map);
    if (digest != known.digest)
        fail_msg("the size classes have changed: STRATA_KMEM_MAP needs a new number, and this table %#llx", (unsigned long long)digest);
}

/* ------------------------------------------------------------------ blocks */

static void blocks_are_mallocs(void **state) {
    (void)state;
    for (unsigned round = 0; round < 2; round++)
        for (size_t size = 0; size <= 3 * MIB; size = size * 5 / 4 + 1) {
            char *mine = strata_kmem_alloc(size, 0), *other = strata_kmem_alloc(size, STRATA_KMEM_SLEEP), *zero = strata_kmem_zalloc(size, 0);
            void *plain = strata_malloc(size);
            assert_true(mine != NULL && other != NULL && zero != NULL && plain != NULL && mine != other);
            assert_int_equal((uintptr_t)mine % 16, 0);
            assert_int_equal(strata_malloc_usable_size(mine), strata_malloc_usable_size(plain));
            for (size_t i = 0; i < size; i += size / 64 + 1) assert_int_equal(zero[i], 0);
            memset(mine, 1, size);
            memset(zero, 1, size);
            assert_true(size == 0 || mine[size - 1] == 1);
            strata_kmem_free(mine, size);
            strata_free(other);
            strata_kmem_free(zero, size);
            strata_kmem_free(plain, size);
        }
    strata_kmem_free(NULL, 0);
    strata_kmem_free(NULL, 100);
    strata_kmem_free(NULL, SIZE_MAX);
    assert_null(strata_check());
}

static void a_cookie_goes_to_the_cache_of_its_size(void **state) {
    (void)state;
    for (unsigned round = 0; round < 3; round++)
        for (size_t size = 1; size <= STRATA_KMEM_COOKIE_MAX; size += size / 16 + 1) {
            strata_kmem_cookie cookie = strata_kmem_cookie_of(size);
            void *by_cookie = strata_kmem_cookie_alloc(cookie, 0);
            assert_non_null(by_cookie);
            assert_int_equal(strata_malloc_usable_size(by_cookie), heap.slabs.caches[class_of(cookie)].object_bytes);
            strata_kmem_free(by_cookie, size);
            void *by_size = strata_kmem_alloc(size, 0);
            assert_ptr_equal(by_size, by_cookie); /* from the array that the other went to */
            strata_kmem_cookie_free(cookie, by_size);
            assert_ptr_equal(strata_malloc(size), by_size);
            strata_free(by_size);
        }
    strata_kmem_cookie_free(STRATA_KMEM_COOKIE(100), NULL);
    assert_null(strata_check());
}

/* The calls build the heap where they are the first of the process. */
static void any_of_them_may_be_the_first_call(void **state) {
    (void)state;
    for (unsigned i = 0; i < 5; i++) {
        new_process(NULL, NULL);
        assert_int_equal(heap.small_end, 0);
        void *p = NULL;
        if (i == 0) p = strata_kmem_alloc(100, 0);
        if (i == 1) p = strata_kmem_zalloc(100, 0);
        if (i == 2) p = strata_kmem_cookie_alloc(STRATA_KMEM_COOKIE(100), 0);
        if (i == 3) strata_kmem_free(NULL, 100);
        if (i == 4) strata_kmem_cookie_free(STRATA_KMEM_COOKIE(100), NULL);
        assert_true((p != NULL) == (i < 3));
        strata_kmem_free(p, 100);
        assert_null(strata_check());
    }
}

static void without_arrays_everything_works_too(void **state) {
    (void)state;
    new_process(NULL, "magazine_max:0");
    blocks_are_mallocs(state);
    void *p = strata_kmem_cookie_alloc(STRATA_KMEM_COOKIE(200), 0);
    assert_non_null(p);
    strata_kmem_cookie_free(STRATA_KMEM_COOKIE(200), p);
    assert_int_equal(slab_in_use(&heap.slabs, class_of(STRATA_KMEM_COOKIE(200))), 0); /* nothing is cached */
}

/* ------------------------------------------------------------------ no memory */

static void fill_heap(void) {
    while (strata_kmem_alloc(1000, STRATA_KMEM_NO_SLEEP) != NULL) {}
}

static void who_may_not_sleep_is_told(void **state) {
    (void)state;
    new_process(NULL, "hard_limit:4M");
    fill_heap();
    errno = 0;
    assert_null(strata_kmem_alloc(1000, 0));
    assert_int_equal(errno, ENOMEM);
    errno = 0;
    assert_null(strata_kmem_zalloc(1 * MIB * 8, 0));
    assert_int_equal(errno, ENOMEM);
    errno = 0;
    assert_null(strata_kmem_cookie_alloc(STRATA_KMEM_COOKIE(1000), 0));
    assert_int_equal(errno, ENOMEM);
    errno = 0;
    /* What can never be had is not waited for. */
    assert_null(strata_kmem_alloc((size_t)PTRDIFF_MAX + 1, STRATA_KMEM_SLEEP));
    assert_int_equal(errno, ENOMEM);
    assert_null(strata_check());
}

struct sleeper {
    unsigned kind;
    void *reserve, *got;
    uint64_t waited_ns;
    int error;
};

static void sleep_for_memory(void *argument) {
    struct sleeper *sleeper = argument;
    uint64_t begun = platform_now_ns();
    errno = 77;
    if (sleeper->kind == 0) sleeper->got = strata_kmem_alloc(1000, STRATA_KMEM_SLEEP);
    if (sleeper->kind == 1) sleeper->got = strata_kmem_zalloc(1000, STRATA_KMEM_SLEEP);
    if (sleeper->kind == 2) sleeper->got = strata_kmem_cookie_alloc(STRATA_KMEM_COOKIE(1000), STRATA_KMEM_SLEEP);
    sleeper->error = errno;
    sleeper->waited_ns = platform_now_ns() - begun;
}

static void free_later(void *argument) {
    struct platform_event never = {0};
    platform_event_wait(&never, 20000000);
    strata_kmem_free(((struct sleeper *)argument)->reserve, 1000);
}

static void who_may_sleep_gets_it_in_the_end(void **state) {
    (void)state;
    for (unsigned kind = 0; kind < 3; kind++) {
        new_process(NULL, "hard_limit:4M,background:off");
        struct sleeper sleeper = {.kind = kind, .reserve = strata_kmem_alloc(1000, 0)};
        fill_heap();
        sim_thread_start(0, sleep_for_memory, &sleeper);
        sim_thread_start(0, free_later, &sleeper);
        assert_true(sim_run_threads_for(UINT64_C(1000000000)));
        assert_non_null(sleeper.got);
        assert_int_equal(sleeper.error, 77);
        assert_in_range(sleeper.waited_ns, 20000000, 100000000);
        strata_kmem_free(sleeper.got, 1000);
    }
}

/* ------------------------------------------------------------------ misuse */

static void *misused;
static size_t misused_size;
static strata_kmem_cookie misused_cookie;

static void free_by_size(void *argument) {
    (void)argument;
    strata_kmem_free(misused, misused_size);
    strata_release(0); /* whatever is cached reaches its slab */
}
static void free_by_cookie(void *argument) {
    (void)argument;
    strata_kmem_cookie_free(misused_cookie, misused);
    strata_release(0);
}
static void alloc_by_cookie(void *argument) {
    (void)argument;
    strata_kmem_cookie_alloc(misused_cookie, 0);
}

#define ASSERT_DIES(body, ...)                                   \
    do {                                                         \
        char wanted[256];                                        \
        snprintf(wanted, sizeof wanted, "strata: " __VA_ARGS__); \
        sim_output_clear();                                      \
        assert_true(sim_dies(body, NULL));                       \
        assert_string_equal(sim_output(), wanted);               \
    } while (0)

/* With nothing cached every free is looked at. */
static void a_wrong_size_is_found_by_the_slow_path(void **state) {
    (void)state;
    static const struct {
        size_t asked, freed;
    } cases[] = {{100, 200},     {100, 96},      {100, 0},       {100, 40000},      {33000, 100},
                 {33000, 32768}, {40000, 40961}, {40000, 36864}, {40000, SIZE_MAX}, {3 * MIB, 3 * MIB + 1}};
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        new_process(NULL, "magazine_max:0");
        misused = strata_kmem_alloc(cases[i].asked, 0);
        misused_size = cases[i].freed;
        if (cases[i].asked <= STRATA_KMEM_COOKIE_MAX)
            ASSERT_DIES(free_by_size, "strata_kmem_free(): %p: size is %zu, but this is a block of cache malloc-112\n", misused, misused_size);
        else
            ASSERT_DIES(free_by_size, "strata_kmem_free(): %p: size is %zu, but this is a block of %zu bytes\n", misused, misused_size,
                        (cases[i].asked + 4095) / 4096 * 4096);
    }
}

/* A size of the same class, or of the same pages, is as good. */
static void what_the_class_holds_is_one_size(void **state) {
    (void)state;
    new_process(NULL, "magazine_max:0");
    for (size_t size = 97; size <= 112; size++) strata_kmem_free(strata_kmem_alloc(100, 0), size);
    for (size_t size = 36865; size <= 40960; size++) strata_kmem_free(strata_kmem_alloc(40000, 0), size);
    assert_null(strata_check());
}

/* Also where it got a page more, as somebody else had left it; and when it could not be resized. */
static void what_was_asked_for_is_its_size(void **state) {
    (void)state;
    enum { PAGE = 4096 };
    new_process(NULL, NULL);
    void *former = strata_kmem_alloc(18 * PAGE, 0);
    strata_kmem_free(former, 18 * PAGE);
    void *block = strata_kmem_alloc(17 * PAGE, 0);
    assert_ptr_equal(block, former);
    assert_int_equal(strata_malloc_usable_size(block), 17 * PAGE);
    assert_null(strata_realloc(block, (size_t)1 << 46));
    strata_kmem_free(block, 17 * PAGE);
    assert_null(strata_check());
}

/* In an array it isn't seen; its slab says so at the latest. */
static void a_wrong_size_is_found_by_the_slab(void **state) {
    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        new_process(NULL, NULL);
        strata_kmem_free(strata_kmem_alloc(200, 0), 200); /* arrays are open */
        misused = strata_kmem_alloc(100, 0);
        misused_size = 200;
        misused_cookie = STRATA_KMEM_COOKIE(200);
        sim_output_clear();
        assert_true(sim_dies(i == 0 ? free_by_size : free_by_cookie, NULL));
        /* By the slab of the wrong class; where every free is looked at, by the right one's name. */
        assert_true(strstr(sim_output(), "(cache malloc-208)") != NULL || strstr(sim_output(), "is a block of cache malloc-112") != NULL);
    }
}

/* A debugged block, freed by the size of a class that isn't debugged, and so pays nothing for those that are: no sooner, but no later either. */
static void a_debugged_block_in_the_wrong_class_is_found_by_the_slab(void **state) {
    (void)state;
    static const char *const features[] = {"guards", "firewall"};
    for (unsigned i = 0; i < 4; i++) {
        new_process(NULL, NULL);
        strata_kmem_free(strata_kmem_alloc(200, 0), 200);
        assert_int_equal(strata_debug_set("malloc-112", features[i / 2]), STRATA_DEBUG_OK);
        misused = strata_kmem_alloc(100, 0);
        misused_size = 200;
        misused_cookie = STRATA_KMEM_COOKIE(200);
        sim_output_clear();
        assert_true(sim_dies(i % 2 == 0 ? free_by_size : free_by_cookie, NULL));
        assert_true(strstr(sim_output(), "(cache malloc-208)") != NULL || strstr(sim_output(), "this is a debugged block of 100 bytes") != NULL ||
                    strstr(sim_output(), "not a pointer of this heap") != NULL);
    }
}

static void pointers_that_are_no_blocks_are_found(void **state) {
    (void)state;
    static char foreign[64] __attribute__((aligned(16)));
    new_process(NULL, "magazine_max:0");
    char *block = strata_kmem_alloc(100, 0), *large = strata_kmem_alloc(40000, 0);
    misused_size = 100;
    misused = foreign;
    ASSERT_DIES(free_by_size, "strata_kmem_free(): %p: not a pointer of this heap\n", misused);
    new_process(NULL, NULL); /* the first call of the process */
    ASSERT_DIES(free_by_size, "strata_kmem_free(): %p: not a pointer of this heap\n", misused);
    new_process(NULL, "magazine_max:0");
    block = strata_kmem_alloc(100, 0), large = strata_kmem_alloc(40000, 0);
    misused = block + 1;
    ASSERT_DIES(free_by_size, "strata_kmem_free(): %p: not a pointer of this heap\n", misused);
    new_process(NULL, "magazine_max:0");
    block = strata_kmem_alloc(100, 0);
    misused = block + 16;
    ASSERT_DIES(free_by_size, "strata_kmem_free(): %p: not the start of an object (cache malloc-112)\n", misused);
    new_process(NULL, "magazine_max:0");
    large = strata_kmem_alloc(40000, 0);
    misused = large + 4096;
    misused_size = 40000;
    ASSERT_DIES(free_by_size, "strata_kmem_free(): %p: not the start of a block (4096 bytes inside the block at %p)\n", misused, (void *)large);
    new_process(NULL, "magazine_max:0");
    misused = strata_kmem_alloc(40000, 0);
    strata_kmem_free(misused, 40000);
    ASSERT_DIES(free_by_size, "strata_kmem_free(): %p: not an allocated block (double free, or never allocated by malloc)\n", misused);
    new_process(NULL, "magazine_max:0");
    misused = strata_kmem_alloc(100, 0);
    misused_cookie = STRATA_KMEM_COOKIE(120);
    ASSERT_DIES(free_by_cookie, "strata_kmem_cookie_free(): %p: size is 128, but this is a block of cache malloc-112\n", misused);
}

static unsigned misused_flags;
static void alloc_with_flags(void *unused) {
    (void)unused;
    (void)strata_kmem_alloc(100, misused_flags);
}
static void zalloc_with_flags(void *unused) {
    (void)unused;
    (void)strata_kmem_zalloc(40000, misused_flags);
}
static void cookie_alloc_with_flags(void *unused) {
    (void)unused;
    (void)strata_kmem_cookie_alloc(STRATA_KMEM_COOKIE(100), misused_flags);
}

static void unknown_flags_end_the_process(void **state) {
    (void)state;
    static const unsigned unknown[] = {2, 3, 0x100, ~0u};
    for (unsigned i = 0; i < 2 * ARRAY_LENGTH(unknown); i++) {
        misused_flags = unknown[i / 2];
        for (unsigned k = 0; k < 3; k++) {
            new_process(NULL, NULL);
            if (i % 2 == 1) strata_kmem_free(strata_kmem_alloc(100, 0), 100); /* also where there is one in the array */
            if (k == 0) ASSERT_DIES(alloc_with_flags, "strata_kmem_alloc(): flags are 0x%x: allowed are 0 and 1\n", misused_flags);
            if (k == 1) ASSERT_DIES(zalloc_with_flags, "strata_kmem_zalloc(): flags are 0x%x: allowed are 0 and 1\n", misused_flags);
            if (k == 2) ASSERT_DIES(cookie_alloc_with_flags, "strata_kmem_cookie_alloc(): flags are 0x%x: allowed are 0 and 1\n", misused_flags);
        }
    }
}

static void cookies_of_another_map_are_told_apart(void **state) {
    (void)state;
    for (unsigned i = 0; i < 2; i++) { /* also as the first call of the process */
        static const strata_kmem_cookie no_cookies[] = {0, STRATA_KMEM_COOKIE(32768) + 1, STRATA_KMEM_COOKIE(1) + 0xffff};
        for (unsigned k = 0; k < ARRAY_LENGTH(no_cookies); k++) {
            new_process(NULL, NULL);
            misused = i == 0 ? NULL : strata_kmem_alloc(1, 0);
            misused_cookie = no_cookies[k];
            ASSERT_DIES(alloc_by_cookie, "strata_kmem_cookie_alloc(): cookie is 0x%x, which is none of STRATA_KMEM_COOKIE\n", misused_cookie);
            new_process(NULL, NULL);
            misused = i == 0 ? NULL : strata_kmem_alloc(1, 0);
            ASSERT_DIES(free_by_cookie, "strata_kmem_cookie_free(): cookie is 0x%x, which is none of STRATA_KMEM_COOKIE\n", misused_cookie);
        }
        new_process(NULL, NULL);
        misused_cookie = STRATA_KMEM_COOKIE(100) + (7u << 16);
        ASSERT_DIES(
            alloc_by_cookie,
            "strata_kmem_cookie_alloc(): cookie is 0x%x, of version 8 of the class map; this library has version 1: compile the program anew\n",
            misused_cookie);
    }
}

/* As in a handler that interrupted who has the lock, and frees what is inside a block: the report says less, but it comes. */
static void free_while_the_zone_is_locked(void *unused) {
    platform_lock_hold(&heap.zone.lock);
    free_by_size(unused);
}

static void a_report_does_not_wait_for_the_zone(void **state) {
    (void)state;
    new_process(NULL, "magazine_max:0");
    misused = (char *)strata_kmem_alloc(40000, 0) + 4096;
    misused_size = 40000;
    ASSERT_DIES(free_while_the_zone_is_locked, "strata_kmem_free(): %p: not an allocated block (double free, or inside a block)\n", misused);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(every_size_has_the_cookie_of_its_class, fresh_process),
        cmocka_unit_test_setup(cookies_of_constants_are_constants, fresh_process),
        cmocka_unit_test_setup(the_map_has_the_number_that_it_was_given, fresh_process),
        cmocka_unit_test_setup(blocks_are_mallocs, fresh_process),
        cmocka_unit_test_setup(a_cookie_goes_to_the_cache_of_its_size, fresh_process),
        cmocka_unit_test_setup(any_of_them_may_be_the_first_call, fresh_process),
        cmocka_unit_test_setup(without_arrays_everything_works_too, fresh_process),
        cmocka_unit_test_setup(who_may_not_sleep_is_told, fresh_process),
        cmocka_unit_test_setup(who_may_sleep_gets_it_in_the_end, fresh_process),
        cmocka_unit_test_setup(a_wrong_size_is_found_by_the_slow_path, fresh_process),
        cmocka_unit_test_setup(what_the_class_holds_is_one_size, fresh_process),
        cmocka_unit_test_setup(what_was_asked_for_is_its_size, fresh_process),
        cmocka_unit_test_setup(a_wrong_size_is_found_by_the_slab, fresh_process),
        cmocka_unit_test_setup(a_debugged_block_in_the_wrong_class_is_found_by_the_slab, fresh_process),
        cmocka_unit_test_setup(pointers_that_are_no_blocks_are_found, fresh_process),
        cmocka_unit_test_setup(a_report_does_not_wait_for_the_zone, fresh_process),
        cmocka_unit_test_setup(unknown_flags_end_the_process, fresh_process),
        cmocka_unit_test_setup(cookies_of_another_map_are_told_apart, fresh_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
