/*
 * test_debug.c - debugging as programs see it: every wrong argument with its line, and the whole report of each error.
 *
 * What it protects: an error is seen at the byte where it is, and told with who allocated and freed the buffer, and when.
 */
#include "strata/kmem.h"
#include "unit/api/debug_support.h"

/* ------------------------------------------------------------------ arguments */

static void wrong_text_is_refused(void **state) {
    (void)state;
    static const struct {
        const char *pattern, *features, *line;
    } cases[] = {
        {"*", "", "features = \"\": allowed: off, or of default, audit, frames, contents, guards, verify, firewall, mtbf, seed, joined by +"},
        {"*", "guard",
         "features = \"guard\": allowed: off, or of default, audit, frames, contents, guards, verify, firewall, mtbf, seed, joined by +"},
        {"*", "audit=0", "audit = \"0\": not a number from 1 to 64"},
        {"*", "audit=65", "audit = \"65\": not a number from 1 to 64"},
        {"*", "audit=", "audit = \"\": not a number from 1 to 64"},
        {"*", "frames=33+audit", "frames = \"33\": not a number from 1 to 32"},
        {"*", "contents=4097", "contents = \"4097\": not a number from 1 to 4096"},
        {"*", "guards=1", "guards = \"1\": takes no number"},
        {"*", "firewall=1048577", "firewall = \"1048577\": not a number from 0 to 1048576"},
        {"*", "mtbf", "mtbf = \"\": not a number from 1 to 1000000000"},
        {"*", "mtbf=99999999999999999999999", "mtbf = \"99999999999999999999999\": not a number from 1 to 1000000000"},
        {"*", "guards+seed=3", "features = \"guards+seed=3\": seed goes with mtbf"},
        {"*", "guards+", "features = \"guards+\": ends in +"},
        {"", "guards", "pattern = \"\": 1 to 63 bytes of a name, * and ?"},
        {"0123456789012345678901234567890123456789012345678901234567890123", "off",
         "pattern = \"012345678901234567890123456789012345678901234567890123456789012\": 1 to 63 bytes of a name, * and ?"},
    };
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        char expected[512];
        snprintf(expected, sizeof expected, "strata: strata_debug_set(): %s\n", cases[i].line);
        sim_output_clear();
        assert_int_equal(strata_debug_set(cases[i].pattern, cases[i].features), STRATA_DEBUG_BAD_ARGUMENT);
        assert_string_equal(sim_output(), expected);
    }
    sim_output_clear();
    assert_int_equal(strata_debug_set(NULL, "off"), STRATA_DEBUG_BAD_ARGUMENT);
    assert_int_equal(strata_debug_set("*", NULL), STRATA_DEBUG_BAD_ARGUMENT);
    assert_int_equal(strata_debug_log_set("transaction=2M"), STRATA_DEBUG_BAD_ARGUMENT);
    assert_int_equal(strata_debug_log_set("failures"), STRATA_DEBUG_BAD_ARGUMENT);
    assert_int_equal(strata_debug_log_set("fail=4K+"), STRATA_DEBUG_BAD_ARGUMENT);
    assert_string_equal(sim_output(), "strata: strata_debug_set(): pattern is NULL\n"
                                      "strata: strata_debug_set(): features is NULL\n"
                                      "strata: strata_debug_log_set(): transaction = \"2M\": not a size: 0, or 4K to 1M\n"
                                      "strata: strata_debug_log_set(): logs = \"failures\": allowed: off, or of transaction, fail, joined by +\n"
                                      "strata: strata_debug_log_set(): logs = \"fail=4K+\": ends in +\n");
    assert_null(heap.debug); /* nothing was made for all that */
}

static void the_option_takes_several_patterns(void **state) {
    (void)state;
    begin("debug:guards@malloc-6?;audit=3+firewall@x*;nonsense@y,debug_log:fail=4K,debug_error:continue");
    assert_string_equal(sim_output(), "strata: debug: features = \"nonsense\": allowed: off, or of default, audit, frames, contents, guards, verify, "
                                      "firewall, mtbf, seed, joined by +\n");
    struct strata_debug_stats stats;
    strata_debug_stats_get(&stats);
    assert_int_equal(stats.caches, 1); /* malloc-64 */
    assert_int_equal(strata_debug_on_error(STRATA_DEBUG_ABORT), STRATA_DEBUG_CONTINUE);
    struct strata_cache *cache;
    assert_int_equal(strata_cache_create("xyz", &(struct strata_cache_config){.size = 24}, &cache), STRATA_CACHE_OK);
    strata_debug_stats_get(&stats);
    assert_int_equal(stats.caches, 2); /* the one that came later, too */
    struct strata_cache *other;
    assert_int_equal(strata_cache_create("abc", &(struct strata_cache_config){.size = 24}, &other), STRATA_CACHE_OK);
    strata_debug_stats_get(&stats);
    assert_int_equal(stats.caches, 2); /* no pattern says so */
    assert_int_equal(strata_cache_destroy(other), STRATA_CACHE_OK);
    assert_int_equal(strata_cache_destroy(cache), STRATA_CACHE_OK);
    ASSERT_SOUND();
}

static void programs_with_raised_privileges_have_none(void **state) {
    struct sim_config sim = {.secure = true};
    (void)state;
    new_heap(&sim, "debug:default");
    assert_string_equal(sim_output(), "strata: STRATA_CONF: ignored, as this program runs with raised privileges\n");
    assert_null(heap.debug);
}

/* ------------------------------------------------------------------ reports */

static const uintptr_t stack_b[] = {SIM_MODULE_START + 0x20};
static void *unseen(void *p) {
    __asm__("" : "+r"(p));
    return p;
}

/* What the error of `make_it` writes, with %p for the buffer. */
static void *buffer;
static void assert_report(void (*make_it)(void *), const char *expected) {
    char text[4096], address[32];
    size_t length = 0;
    snprintf(address, sizeof address, "%p", buffer);
    for (const char *p = expected; *p != 0; p++) {
        if (p[0] == '%' && p[1] == 'p') {
            length += (size_t)snprintf(text + length, sizeof text - length, "%s", address);
            p++;
        } else {
            text[length++] = *p;
        }
    }
    text[length] = 0;
    sim_output_clear();
    assert_true(sim_dies(make_it, buffer));
    assert_string_equal(sim_output(), text);
}

#define ENDS_HERE "strata: the process ends here, because of the error above (debug_error:continue goes on)\n"
#define BY_A(what, ago)                                        \
    "strata:     " what " by thread 1000, " ago " s before:\n" \
    "strata:       program+0x10\n"                             \
    "strata:       0x99\n"

static void free_it(void *p) { put(p); }
static void verify(void *p) {
    (void)p;
    strata_debug_verify(NULL);
}
static void allocate_all(void *p) {
    (void)p;
    for (unsigned i = 0; i < 1000; i++) assert_non_null(get(50));
}

static void a_byte_after_the_end_is_seen(void **state) {
    (void)state;
    for (size_t bytes = 0; bytes <= 64; bytes++) { /* each remainder of 8, and the whole class */
        begin("debug:guards");
        buffer = get(bytes);
        memset(buffer, 0, bytes);
        put(buffer); /* nothing to complain of */
        buffer = get(bytes);
        assert_int_equal(strata_malloc_usable_size(buffer), bytes);
        ((unsigned char *)buffer)[bytes] = 0x41;
        char expected[512];
        unsigned class_bytes = (unsigned)heap.slabs.caches[slab_class_of_size(&heap.slabs, bytes)].object_bytes;
        uint64_t redzone = STRATA_DEBUG_REDZONE_PATTERN;
        unsigned want = bytes % 8 != 0 ? STRATA_DEBUG_SLACK_BYTE : ((unsigned char *)&redzone)[0];
        snprintf(expected, sizeof expected,
                 "strata: free(): %%p: written after its end (cache malloc-%u)\n"
                 "strata:   buffer %%p of %zu bytes, in use: at offset %zu, expected 0x%02x, found 0x41\n"
                 "strata:     no transactions are kept: audit does\n" ENDS_HERE,
                 class_bytes, bytes, bytes, want);
        assert_report(free_it, expected);
    }
}

static void a_report_tells_all_that_is_known(void **state) {
    (void)state;
    begin("debug:audit=3+contents=4+guards");
    buffer = get(50);
    memcpy(buffer, "abcdefgh", 8);
    sim_clock_advance(1500000000);
    sim_stack_set(stack_b, 1);
    put(buffer);
    sim_clock_advance(2000);
    ((char *)buffer)[49] = 'x';
    assert_report(verify,
                  "strata: strata_debug_verify(): %p: written after it was freed (cache malloc-64)\n"
                  "strata:   buffer %p of 50 bytes, not in use: at offset 49, expected 0xbe, found 0x78\n"
                  "strata:     freed by thread 1000, 0.000002 s before:\n"
                  "strata:       program+0x20\n" BY_A("allocated", "1.500002") "strata:     contents when it was freed: 61 62 63 64\n"
                                                                               "strata:     contents when it was allocated: ef be ad de\n" ENDS_HERE);
}

static void each_error_is_seen(void **state) {
    (void)state;
    begin("debug:audit+guards");
    buffer = get(50);
    ((char *)buffer)[-1] = 7;
    assert_report(free_it,
                  "strata: free(): %p: written in front of it (cache malloc-64)\n"
                  "strata:   buffer %p of 50 bytes, in use: at offset -1, expected 0xfe, found 0x07\n" BY_A("allocated", "0.000000") ENDS_HERE);
    begin("debug:audit+guards");
    buffer = get(50);
    put(buffer);
    assert_report(free_it, "strata: free(): %p: double free (cache malloc-64)\n"
                           "strata:   buffer %p of 50 bytes, not in use\n" BY_A("freed", "0.000000") BY_A("allocated", "0.000000") ENDS_HERE);
    begin("debug:audit+guards");
    buffer = get(50);
    put(buffer);
    ((char *)buffer)[0] = 1;
    assert_report(allocate_all, "strata: malloc(): %p: written after it was freed (cache malloc-64)\n"
                                "strata:   buffer %p of 50 bytes, not in use: at offset 0, expected 0xef, found 0x01\n" BY_A("freed", "0.000000")
                                    BY_A("allocated", "0.000000") ENDS_HERE);
}

static void ask_its_size(void *p) { (void)strata_malloc_usable_size(p); }
static void resize_it(void *p) { assert_null(strata_realloc(p, 60)); }

/* Only who frees frees twice. */
static void a_freed_buffer_is_named_as_such(void **state) {
    (void)state;
    begin("debug:guards");
    put(buffer = get(50));
    assert_report(ask_its_size, "strata: malloc_usable_size(): %p: already freed (cache malloc-64)\n"
                                "strata:   buffer %p of 50 bytes, not in use\nstrata:     no transactions are kept: audit does\n" ENDS_HERE);
    begin("debug:guards");
    put(buffer = get(50));
    assert_report(resize_it, "strata: realloc(): %p: double free (cache malloc-64)\n"
                             "strata:   buffer %p of 50 bytes, not in use\nstrata:     no transactions are kept: audit does\n" ENDS_HERE);
}

/* The features of a buffer are those that it was allocated with. */
static void a_free_is_kept_after_audit_went(void **state) {
    (void)state;
    static const char *const then[] = {"off", "guards", "audit+frames=1+guards"};
    for (unsigned i = 0; i < ARRAY_LENGTH(then); i++) {
        begin("background:off");
        assert_int_equal(strata_debug_set("malloc-64", "audit+guards"), STRATA_DEBUG_OK);
        assert_non_null(get(50)); /* keeps the slab */
        buffer = get(50);
        assert_int_equal(strata_debug_set("malloc-64", then[i]), STRATA_DEBUG_OK);
        put(buffer);
        assert_report(free_it, "strata: free(): %p: double free (cache malloc-64)\n"
                               "strata:   buffer %p of 50 bytes, not in use\n" BY_A("freed", "0.000000") BY_A("allocated", "0.000000") ENDS_HERE);
    }
}

static struct strata_cache *things, *others;
static void free_thing(void *p) { strata_cache_free(things, p); }
static void free_middle(void *p) { strata_cache_free(things, (char *)p + 16); }

static void objects_go_back_where_they_belong(void **state) {
    (void)state;
    const struct strata_cache_config config = {.size = 40};
    begin("debug:guards");
    assert_int_equal(strata_cache_create("things", &config, &things), STRATA_CACHE_OK);
    assert_int_equal(strata_cache_create("others", &config, &others), STRATA_CACHE_OK);
    buffer = strata_cache_alloc(others, 0);
    assert_report(free_thing, "strata: strata_cache_free(): %p: an object of another cache than was said (cache others)\n"
                              "strata:   buffer %p of 40 bytes, in use\nstrata:     no transactions are kept: audit does\n" ENDS_HERE);
    begin("debug:guards");
    assert_int_equal(strata_cache_create("things", &config, &things), STRATA_CACHE_OK);
    buffer = strata_cache_alloc(things, 0);
    assert_report(free_it, "strata: free(): %p: an object of a cache, which strata_cache_free takes back (cache things)\n"
                           "strata:   buffer %p of 40 bytes, in use\nstrata:     no transactions are kept: audit does\n" ENDS_HERE);
    begin("debug:guards");
    assert_int_equal(strata_cache_create("things", &config, &things), STRATA_CACHE_OK);
    buffer = strata_cache_alloc(things, 0);
    sim_output_clear();
    assert_true(sim_dies(free_middle, buffer));
    assert_non_null(strstr(sim_output(), ": not the start of a buffer (cache things)\nstrata:   buffer "));
}

static bool nobody_sees(const struct strata_debug_buffer *seen, void *argument) {
    (void)argument;
    return seen == NULL;
}
static void walk_to_null(void *p) {
    (void)p;
    (void)strata_debug_walk(NULL, false, NULL, NULL);
}
static void find_to_null(void *p) { (void)strata_debug_find(p, NULL, NULL); }
static void log_walk_to_null(void *p) {
    (void)p;
    (void)strata_debug_log_walk(STRATA_DEBUG_LOG_FAIL, NULL, NULL);
}

/* With features or without: a program that forgot its visitor learns of it at once. */
static void a_visitor_must_be_there(void **state) {
    (void)state;
    static const struct {
        void (*call)(void *p);
        const char *name;
    } cases[] = {{walk_to_null, "walk"}, {find_to_null, "find"}, {log_walk_to_null, "log_walk"}};
    for (unsigned i = 0; i < 2 * ARRAY_LENGTH(cases); i++) {
        char expected[128];
        begin(i % 2 == 0 ? "debug:default" : "background:off");
        buffer = get(50);
        assert_true(strata_debug_walk(NULL, false, nobody_sees, NULL));
        snprintf(expected, sizeof expected, "strata: strata_debug_%s(): visit is NULL\n", cases[i / 2].name);
        sim_output_clear();
        assert_true(sim_dies(cases[i / 2].call, buffer));
        assert_string_equal(sim_output(), expected);
    }
}

static char of_source[1 << 20] __attribute__((aligned(1 << 16)));
static size_t source_used;
static void *source_allocate(void *context, size_t bytes, size_t align) {
    (void)context;
    size_t at = align_up(source_used, align);
    if (align > sizeof of_source / 16 || bytes > sizeof of_source - at) return NULL;
    source_used = at + bytes;
    return of_source + at;
}
static void source_release(void *context, void *memory, size_t bytes) { (void)context, (void)memory, (void)bytes; }

/* What can't be had is said, and only where it was asked for; guards are there all the same. */
static void a_source_has_no_firewall(void **state) {
    (void)state;
    static const struct strata_cache_source source = {source_allocate, source_release, NULL};
    const struct strata_cache_config own = {.size = 40, .source = &source}, usual = {.size = 40};
    static const char line[] = "strata: debug: cache things has a source of its own: no firewall\n";
    source_used = 0;
    begin("background:off");
    assert_int_equal(strata_cache_create("things", &own, &things), STRATA_CACHE_OK);
    assert_int_equal(strata_cache_create("others", &usual, &others), STRATA_CACHE_OK);
    sim_output_clear();
    assert_int_equal(strata_debug_set("things", "firewall=41"), STRATA_DEBUG_OK);
    assert_int_equal(strata_debug_set("things", "guards"), STRATA_DEBUG_OK);
    assert_int_equal(strata_debug_set("others", "firewall"), STRATA_DEBUG_OK);
    assert_string_equal(sim_output(), "");
    assert_int_equal(strata_debug_set("things", "firewall=40+guards"), STRATA_DEBUG_OK);
    assert_string_equal(sim_output(), line);
    char *thing = strata_cache_alloc(things, 0);
    assert_true(thing >= of_source && thing < of_source + sizeof of_source);
    thing[40] = 1;
    sim_output_clear();
    assert_true(sim_dies(free_thing, thing));
    assert_non_null(strstr(sim_output(), ": written after its end (cache things)\n"));
    begin("debug:firewall+guards@t*"); /* for those that come later, too */
    source_used = 0;
    sim_output_clear();
    assert_int_equal(strata_cache_create("things", &own, &things), STRATA_CACHE_OK);
    assert_string_equal(sim_output(), line);
}

/* Objects that no debugged slab has room for don't keep the others from their features. */
static void what_finds_no_room_is_left_out(void **state) {
    (void)state;
    const struct strata_cache_config large = {.size = 1 << 20, .align = 1 << 20}, usual = {.size = 40};
    static const char line[] = "strata: debug: cache things: no slab has room for its objects and what would be round them: no features\n";
    assert_int_equal(strata_cache_create("things", &large, &things), STRATA_CACHE_OK);
    assert_int_equal(strata_cache_create("others", &usual, &others), STRATA_CACHE_OK);
    void *ordinary = strata_cache_alloc(things, 0);
    assert_int_equal(strata_debug_set("*", "audit"), STRATA_DEBUG_OK); /* with nothing round them they fit */
    assert_string_equal(sim_output(), "");
    void *debugged = strata_cache_alloc(things, 0);
    struct strata_debug_stats stats;
    static const char *const features[] = {"default", "firewall"};
    for (unsigned i = 0; i < 2; i++) {
        sim_output_clear();
        assert_int_equal(strata_debug_set("*", features[i]), STRATA_DEBUG_OK);
        assert_string_equal(sim_output(), line);
        strata_debug_stats_get(&stats);
        assert_int_equal(stats.caches, SIZE_CLASS_COUNT + 1);
    }
    strata_debug_stats_get(&stats);
    assert_int_equal(stats.in_use, 1);
    strata_cache_free(things, ordinary), strata_cache_free(things, debugged);
    strata_cache_free(things, strata_cache_alloc(things, 0));
    strata_debug_stats_get(&stats);
    assert_true(stats.in_use == 0 && stats.allocs == 1 && stats.plain == 0);
    assert_int_equal(strata_cache_destroy(things), STRATA_CACHE_OK);
    sim_output_clear();
    assert_int_equal(strata_cache_create("things", &large, &things), STRATA_CACHE_OK); /* those that come later, too */
    assert_string_equal(sim_output(), line);
    assert_int_equal(strata_cache_destroy(things), STRATA_CACHE_OK);
    assert_int_equal(strata_cache_destroy(others), STRATA_CACHE_OK);
    ASSERT_SOUND();
}

static void errors_can_be_survived(void **state) {
    (void)state;
    begin("debug:guards,debug_error:continue");
    char *p = get(20), *q = get(20);
    p[20] = 1;
    q[-3] = 1;
    assert_int_equal(strata_debug_verify("malloc-48"), 0);
    assert_int_equal(strata_debug_verify("malloc-32"), 2);
    assert_int_equal(strata_debug_verify(NULL), 0); /* mended */
    put(q);
    put(q);
    q[3] = 1;
    assert_int_equal(strata_debug_verify(NULL), 1);
    assert_null(strata_realloc(unseen(q), 30));
    assert_int_equal(strata_malloc_usable_size(unseen(q)), 0);
    struct strata_debug_stats stats;
    strata_debug_stats_get(&stats);
    assert_int_equal(stats.errors, 6);
    assert_int_equal(stats.in_use, 1);
    put(p);
    ASSERT_SOUND();
}

static void free_as_21(void *p) { strata_kmem_free(p, 21); }
static void free_sized_as_21(void *p) { strata_free_sized(unseen(p), 21); }

/* Of each form that names a size, as any other error: told whole, and survived where that was asked for. What is freed so stays as it is. */
static void a_wrong_size_is_an_error_like_others(void **state) {
    (void)state;
    static const char *const functions[] = {"strata_kmem_free", "free_sized"};
    for (unsigned i = 0; i < 2; i++) {
        char expected[512];
        begin("debug:audit+guards");
        buffer = get(20);
        snprintf(expected, sizeof expected,
                 "strata: %s(): %%p: size is 21, but this is a debugged block of 20 bytes (cache malloc-32)\n"
                 "strata:   buffer %%p of 20 bytes, in use\n" BY_A("allocated", "0.000000") ENDS_HERE,
                 functions[i]);
        assert_report(i == 0 ? free_as_21 : free_sized_as_21, expected);
    }
    begin("debug:audit+guards,debug_error:continue");
    void *block = get(20), *aligned = strata_aligned_alloc(64, 100), *of_class = strata_kmem_cookie_alloc(STRATA_KMEM_COOKIE(100), 0);
    strata_kmem_free(block, 21), strata_kmem_free(block, 400), strata_kmem_free(block, 100000), strata_kmem_free(block, 0);
    strata_kmem_cookie_free(STRATA_KMEM_COOKIE(33), block);
    strata_free_sized(unseen(block), 19), strata_free_sized(unseen(block), SIZE_MAX);
    strata_free_aligned_sized(unseen(aligned), 64, 101);
    strata_free_sized(unseen(of_class), 96);
    struct strata_debug_stats stats;
    strata_debug_stats_get(&stats);
    assert_true(stats.errors == 9 && stats.in_use == 3);
    strata_kmem_free(unseen(block), 20), strata_free_aligned_sized(unseen(aligned), 64, 100), strata_free_sized(unseen(of_class), 97);
    strata_free_sized(NULL, 5);
    strata_debug_stats_get(&stats);
    assert_true(stats.errors == 9 && stats.in_use == 0);
    strata_kmem_free(unseen(block), 20); /* told once, and by its own name */
    strata_debug_stats_get(&stats);
    assert_int_equal(stats.errors, 10);
    const char *twice = strstr(sim_output(), "strata: strata_kmem_free(): ");
    for (const char *next = twice; next != NULL; next = strstr(next + 1, "strata: strata_kmem_free(): ")) twice = next;
    assert_non_null(strstr(twice, ": double free (cache malloc-32)\n"));
    ASSERT_SOUND();
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup(name, debug_heap)
    const struct CMUnitTest tests[] = {
        TEST(wrong_text_is_refused),
        TEST(the_option_takes_several_patterns),
        TEST(programs_with_raised_privileges_have_none),
        TEST(a_byte_after_the_end_is_seen),
        TEST(a_report_tells_all_that_is_known),
        TEST(each_error_is_seen),
        TEST(a_freed_buffer_is_named_as_such),
        TEST(a_free_is_kept_after_audit_went),
        TEST(objects_go_back_where_they_belong),
        TEST(a_visitor_must_be_there),
        TEST(a_source_has_no_firewall),
        TEST(what_finds_no_room_is_left_out),
        TEST(errors_can_be_survived),
        TEST(a_wrong_size_is_an_error_like_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
