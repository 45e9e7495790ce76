/*
 * test_options.c - the parser of options: every kind of value, every warning word by word, order, hostile text.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "api/options.h"
#include "base/check.h"

/* What log_line wrote since the last parse, one line after another. */
static char warnings[4096];
static size_t warnings_length;

static void capture(const char *text, size_t bytes) {
    assert_true(warnings_length + bytes < sizeof warnings);
    memcpy(warnings + warnings_length, text, bytes);
    warnings_length += bytes;
    warnings[warnings_length] = 0;
}

static struct options options;

static void parse_more(const char *text) {
    warnings_length = 0;
    warnings[0] = 0;
    options_parse(&options, text, "STRATA_CONF");
}

static void parse(const char *text) {
    options_set_defaults(&options);
    parse_more(text);
}

static void expect_warning(const char *text, const char *warning) {
    parse(text);
    assert_string_equal(warnings, warning);
}

static int setup(void **state) {
    (void)state;
    static const struct check_sink sink = {capture, NULL};
    check_set_sink(&sink);
    return 0;
}

/* ------------------------------------------------------------------ what is accepted */

static void assert_defaults(void) {
    assert_int_equal(options.background, OPTION_BACKGROUND_AUTO);
    assert_int_equal(options.thp, OPTION_THP_AUTO);
    assert_int_equal(options.grouping, OPTION_GROUPING_AUTO);
    assert_int_equal(options.decay_ms, 500);
    assert_int_equal(options.soft_limit_bytes, 0);
    assert_int_equal(options.hard_limit_bytes, 0);
    assert_int_equal(options.rseq, OPTION_RSEQ_AUTO);
    assert_int_equal(options.magazine_max_rounds, 256);
    assert_int_equal(options.stats, OPTION_STATS_OFF);
    assert_string_equal(options.stats_file, "");
    assert_int_equal(options.verify, OPTION_VERIFY_OFF);
    assert_int_equal(options.reserve_bytes, 0);
    assert_int_equal(options.populate_pages, 16);
}

static void test_nothing_given(void **state) {
    (void)state;
    static const char *const nothings[] = {NULL, "", ",", ",,,", "  ", " , \t,\n"};
    for (size_t i = 0; i < ARRAY_LENGTH(nothings); i++) {
        memset(&options, 0xff, sizeof options);
        expect_warning(nothings[i], "");
        assert_defaults();
    }
}

static void test_every_key(void **state) {
    (void)state;
    expect_warning("background:on,thp:never,decay_ms:0,soft_limit:1G,hard_limit:2T,rseq:off,magazine_max:64,stats:json,stats_file:/tmp/x.%p,"
                   "verify:on,reserve:3M,populate_pages:512",
                   "");
    assert_int_equal(options.background, OPTION_BACKGROUND_ON);
    assert_int_equal(options.thp, OPTION_THP_NEVER);
    assert_int_equal(options.decay_ms, 0);
    assert_int_equal(options.soft_limit_bytes, UINT64_C(1) << 30);
    assert_int_equal(options.hard_limit_bytes, UINT64_C(2) << 40);
    assert_int_equal(options.rseq, OPTION_RSEQ_OFF);
    assert_int_equal(options.magazine_max_rounds, 64);
    assert_int_equal(options.stats, OPTION_STATS_JSON);
    assert_string_equal(options.stats_file, "/tmp/x.%p");
    assert_int_equal(options.verify, OPTION_VERIFY_ON);
    assert_int_equal(options.reserve_bytes, 3 * MIB);
    assert_int_equal(options.populate_pages, 512);
}

static void test_every_choice(void **state) {
    (void)state;
#define CHOICE_IS(key, text, value)    \
    expect_warning(#key ":" text, ""); \
    assert_int_equal(options.key, value)
    CHOICE_IS(background, "auto", OPTION_BACKGROUND_AUTO);
    CHOICE_IS(background, "off", OPTION_BACKGROUND_OFF);
    CHOICE_IS(grouping, "on", OPTION_GROUPING_ON);
    CHOICE_IS(grouping, "auto", OPTION_GROUPING_AUTO);
    CHOICE_IS(grouping, "off", OPTION_GROUPING_OFF);
    CHOICE_IS(thp, "auto", OPTION_THP_AUTO);
    CHOICE_IS(thp, "always", OPTION_THP_ALWAYS);
    CHOICE_IS(rseq, "auto", OPTION_RSEQ_AUTO);
    CHOICE_IS(stats, "off", OPTION_STATS_OFF);
    CHOICE_IS(stats, "table", OPTION_STATS_TABLE);
    CHOICE_IS(verify, "off", OPTION_VERIFY_OFF);
}

static void test_sizes(void **state) {
    (void)state;
    static const struct {
        const char *text;
        uint64_t bytes;
    } sizes[] = {
        {"soft_limit:0", 0},
        {"soft_limit:4097", 4097},
        {"soft_limit:64K", 64 * KIB},
        {"soft_limit:64k", 64 * KIB},
        {"soft_limit:64KiB", 64 * KIB},
        {"soft_limit:7M", 7 * MIB},
        {"soft_limit:7miB", 7 * MIB},
        {"soft_limit:5G", 5 * GIB},
        {"soft_limit:128T", UINT64_C(1) << 47},
        {"soft_limit:131072G", UINT64_C(1) << 47},
        {"soft_limit:140737488355328", UINT64_C(1) << 47},
        {"soft_limit:0T", 0},
        {"soft_limit:0000000000000000000000001K", KIB},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(sizes); i++) {
        expect_warning(sizes[i].text, "");
        assert_int_equal(options.soft_limit_bytes, sizes[i].bytes);
    }
}

static void test_space_and_order(void **state) {
    (void)state;
    expect_warning("  thp : always ,\n\tdecay_ms:\t7 ,, decay_ms:8,", "");
    assert_int_equal(options.thp, OPTION_THP_ALWAYS);
    assert_int_equal(options.decay_ms, 8);
    parse_more("decay_ms:9");
    assert_int_equal(options.decay_ms, 9);
    assert_int_equal(options.thp, OPTION_THP_ALWAYS);
}

static void test_paths(void **state) {
    (void)state;
    expect_warning("stats_file:/a b/c:d", "");
    assert_string_equal(options.stats_file, "/a b/c:d");
    /* The text need not outlive the call. */
    char text[] = "stats_file:out";
    parse(text);
    memset(text, 'x', sizeof text - 1);
    assert_string_equal(options.stats_file, "out");
    /* The longest path that is allowed, and one byte more. */
    static char item[OPTIONS_PATH_BYTES + 16] = "stats_file:";
    size_t start = strlen(item);
    memset(item + start, 'p', OPTIONS_PATH_BYTES - 1);
    expect_warning(item, "");
    assert_int_equal(strlen(options.stats_file), OPTIONS_PATH_BYTES - 1);
    item[start + OPTIONS_PATH_BYTES - 1] = 'p';
    parse(item);
    assert_non_null(strstr(warnings, "...: too long (allowed: a path of 1 to 4095 bytes)\n"));
    assert_string_equal(options.stats_file, "");
    assert_int_equal(options.verify, OPTION_VERIFY_OFF); /* what stands behind the path in the struct */
}

/* ------------------------------------------------------------------ warnings */

static void test_bad_numbers(void **state) {
    (void)state;
    expect_warning("decay_ms:abc", "strata: STRATA_CONF: decay_ms:abc: not a number (allowed: 0 to 3600000)\n");
    expect_warning("decay_ms:", "strata: STRATA_CONF: decay_ms:: not a number (allowed: 0 to 3600000)\n");
    expect_warning("decay_ms:-1", "strata: STRATA_CONF: decay_ms:-1: not a number (allowed: 0 to 3600000)\n");
    expect_warning("decay_ms:+1", "strata: STRATA_CONF: decay_ms:+1: not a number (allowed: 0 to 3600000)\n");
    expect_warning("decay_ms:0x10", "strata: STRATA_CONF: decay_ms:0x10: not a number (allowed: 0 to 3600000)\n");
    expect_warning("decay_ms:1.5", "strata: STRATA_CONF: decay_ms:1.5: not a number (allowed: 0 to 3600000)\n");
    expect_warning("decay_ms:1 2", "strata: STRATA_CONF: decay_ms:1 2: not a number (allowed: 0 to 3600000)\n");
    expect_warning("decay_ms:5K", "strata: STRATA_CONF: decay_ms:5K: not a number (allowed: 0 to 3600000)\n");
    expect_warning("decay_ms:3600001", "strata: STRATA_CONF: decay_ms:3600001: too large (allowed: 0 to 3600000)\n");
    assert_defaults();
    expect_warning("populate_pages:0", "strata: STRATA_CONF: populate_pages:0: too small (allowed: 1 to 512)\n");
    expect_warning("populate_pages:513", "strata: STRATA_CONF: populate_pages:513: too large (allowed: 1 to 512)\n");
    expect_warning("magazine_max:257", "strata: STRATA_CONF: magazine_max:257: too large (allowed: 0 to 256)\n");
    assert_defaults();
}

static void test_overflow(void **state) {
    (void)state;
    /* Each would be small and allowed modulo 2^64. */
    static const char *const numbers[] = {"18446744073709551617", "18446744073709551616", "184467440737095516160", "36893488147419103233"};
    for (size_t i = 0; i < ARRAY_LENGTH(numbers); i++) {
        char item[64];
        format_text(item, sizeof item, "decay_ms:%s", numbers[i]);
        parse(item);
        assert_non_null(strstr(warnings, ": too large (allowed: 0 to 3600000)\n"));
        format_text(item, sizeof item, "hard_limit:%s", numbers[i]);
        parse(item);
        assert_non_null(strstr(warnings, ": too large (allowed: 0 to 128T, suffixes K M G T)\n"));
        assert_defaults();
    }
    static const char *const sizes[] = {"140737488355329", "129T", "16777216T", "16777217T", "18014398509481985K", "18446744073709551615T"};
    for (size_t i = 0; i < ARRAY_LENGTH(sizes); i++) {
        char item[64], warning[160];
        format_text(item, sizeof item, "hard_limit:%s", sizes[i]);
        format_text(warning, sizeof warning, "strata: STRATA_CONF: %s: too large (allowed: 0 to 128T, suffixes K M G T)\n", item);
        expect_warning(item, warning);
        assert_defaults();
    }
}

static void test_bad_sizes(void **state) {
    (void)state;
    static const char *const sizes[] = {"", "K", "x", "1P", "1KB", "1Ki", "1KiBs", "1KK", "1 K", "-1", "iB", "1iB"};
    for (size_t i = 0; i < ARRAY_LENGTH(sizes); i++) {
        char item[64], warning[160];
        format_text(item, sizeof item, "reserve:%s", sizes[i]);
        format_text(warning, sizeof warning, "strata: STRATA_CONF: %s: not a size (allowed: 0 to 128T, suffixes K M G T)\n", item);
        expect_warning(item, warning);
        assert_defaults();
    }
}

static void test_bad_choices(void **state) {
    (void)state;
    expect_warning("thp:sometimes", "strata: STRATA_CONF: thp:sometimes: not a choice (allowed: auto, always, never)\n");
    expect_warning("thp:", "strata: STRATA_CONF: thp:: not a choice (allowed: auto, always, never)\n");
    expect_warning("thp:aut", "strata: STRATA_CONF: thp:aut: not a choice (allowed: auto, always, never)\n");
    expect_warning("thp:autos", "strata: STRATA_CONF: thp:autos: not a choice (allowed: auto, always, never)\n");
    expect_warning("rseq:on", "strata: STRATA_CONF: rseq:on: not a choice (allowed: auto, off)\n");
    expect_warning("stats:xml", "strata: STRATA_CONF: stats:xml: not a choice (allowed: off, table, json)\n");
    expect_warning("verify:1", "strata: STRATA_CONF: verify:1: not a choice (allowed: off, on)\n");
    expect_warning("background:OFF", "strata: STRATA_CONF: background:OFF: not a choice (allowed: auto, on, off)\n");
    expect_warning("stats_file:", "strata: STRATA_CONF: stats_file:: empty (allowed: a path of 1 to 4095 bytes)\n");
    assert_defaults();
}

#define KNOWN                                                                                                                                        \
    "unknown option (known: background, thp, grouping, decay_ms, soft_limit, hard_limit, rseq, watch, page_moves, magazine_max, stats, stats_file, " \
    "verify, reserve, populate_pages, debug, debug_log, debug_error)\n"

static void test_unknown_keys(void **state) {
    (void)state;
    expect_warning("decay:5", "strata: STRATA_CONF: decay: " KNOWN);
    expect_warning("thp2:auto", "strata: STRATA_CONF: thp2: " KNOWN);
    expect_warning(":auto", "strata: STRATA_CONF: : " KNOWN);
    expect_warning("thp", "strata: STRATA_CONF: thp: no value (write key:value,key:value)\n");
    expect_warning("thp=never", "strata: STRATA_CONF: thp=never: no value (write key:value,key:value)\n");
    assert_defaults();
}

static void test_one_warning_each_and_the_rest_applies(void **state) {
    (void)state;
    expect_warning("thp:never,decay_ms:x,nokey:1,populate_pages:4", "strata: STRATA_CONF: decay_ms:x: not a number (allowed: 0 to 3600000)\n"
                                                                    "strata: STRATA_CONF: nokey: " KNOWN);
    assert_int_equal(options.thp, OPTION_THP_NEVER);
    assert_int_equal(options.populate_pages, 4);
    /* A bad value leaves what was set before. */
    parse_more("thp:foo,populate_pages:0,decay_ms:99999999999");
    assert_int_equal(options.thp, OPTION_THP_NEVER);
    assert_int_equal(options.populate_pages, 4);
    assert_int_equal(options.decay_ms, 500);
}

static void test_source_name(void **state) {
    (void)state;
    options_set_defaults(&options);
    warnings_length = 0;
    options_parse(&options, "thp:1", "strata_conf");
    assert_string_equal(warnings, "strata: strata_conf: thp:1: not a choice (allowed: auto, always, never)\n");
}

/* Long and hostile text: warnings stay one clean line each. */
static void test_hostile_text(void **state) {
    (void)state;
    expect_warning("decay_ms:\x1b[2J\x7f\r1", "strata: STRATA_CONF: decay_ms:?[2J??1: not a number (allowed: 0 to 3600000)\n");
    char text[1000];
    memset(text, 'k', sizeof text - 1);
    text[sizeof text - 1] = 0;
    parse(text);
    assert_true(warnings_length < 200);
    assert_non_null(strstr(warnings, "kkk...: no value"));
    text[500] = ':';
    parse(text);
    assert_non_null(strstr(warnings, "kkk...: " KNOWN));
    /* Exactly as much as a warning repeats, and one more. */
    char item[96] = "thp:";
    memset(item + 4, 'v', 63);
    parse(item);
    assert_null(strstr(warnings, "..."));
    item[4 + 63] = 'v';
    parse(item);
    assert_non_null(strstr(warnings, "vvv...: not a choice"));
    /* Every byte, alone and after a key. */
    for (int c = 1; c < 256; c++) {
        char one[] = {(char)c, 0}, value[] = {'t', 'h', 'p', ':', (char)c, 0};
        parse(one);
        assert_defaults();
        parse(value);
        assert_defaults();
    }
}

/* ------------------------------------------------------------------ paths with %p */

static void test_path_expand(void **state) {
    (void)state;
    char out[16];
    assert_true(options_path_expand(out, sizeof out, "a.%p.b", 4711));
    assert_string_equal(out, "a.4711.b");
    assert_true(options_path_expand(out, sizeof out, "%p%p", 12));
    assert_string_equal(out, "1212");
    assert_true(options_path_expand(out, sizeof out, "100%%p%x%", 12));
    assert_string_equal(out, "100%p%x%");
    assert_true(options_path_expand(out, sizeof out, "123456789012345", 1));
    assert_string_equal(out, "123456789012345");
    assert_false(options_path_expand(out, sizeof out, "1234567890123456", 1));
    assert_string_equal(out, "");
    assert_true(options_path_expand(out, sizeof out, "1234567890123%p", 42));
    assert_false(options_path_expand(out, sizeof out, "12345678901234%p", 42));
    assert_string_equal(out, "");
    assert_false(options_path_expand(out, 1, "x", 1));
    assert_true(options_path_expand(out, 1, "", 1));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_given), cmocka_unit_test(test_every_key),       cmocka_unit_test(test_every_choice),
        cmocka_unit_test(test_sizes),         cmocka_unit_test(test_space_and_order), cmocka_unit_test(test_paths),
        cmocka_unit_test(test_bad_numbers),   cmocka_unit_test(test_overflow),        cmocka_unit_test(test_bad_sizes),
        cmocka_unit_test(test_bad_choices),   cmocka_unit_test(test_unknown_keys),    cmocka_unit_test(test_one_warning_each_and_the_rest_applies),
        cmocka_unit_test(test_source_name),   cmocka_unit_test(test_hostile_text),    cmocka_unit_test(test_path_expand),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
