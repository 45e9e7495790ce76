/*
 * test_report.c - the writers of statistics: JSON and XML are read back by Python's parsers, the table is compared word by word, and the
 * buffered writer is tried at its edges.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <strata/strata.h>

#include "api/report.h"
#include "base/check.h"
#include "unit/api/report_support.h"

static int empty_snapshot(void **state) {
    (void)state;
    memset(&snapshot, 0, sizeof snapshot);
    snapshot.pid = 4711;
    snapshot.mode = "rseq-mm_cid";
    snapshot.uptime_ns = UINT64_C(12345678901);
    return 0;
}

static void add_cache(const char *name, uint64_t object_bytes, uint64_t in_use, uint64_t cached, uint64_t total) {
    struct report_cache *cache = &snapshot.caches[snapshot.cache_count++];
    report_name_set(cache->name, name);
    cache->object_bytes = object_bytes;
    cache->slab_bytes = 65536;
    cache->in_use = in_use;
    cache->cached = cached;
    cache->total = total;
    cache->slab_allocs = in_use + cached;
    cache->memory_bytes = total * object_bytes;
    cache->slabs = (cache->memory_bytes + 65535) / 65536;
    cache->magazine_rounds = 64;
}

/* A small heap whose every figure differs. */
static int small_snapshot(void **state) {
    empty_snapshot(state);
    snapshot.heap = (struct report_heap){1001, 2048, 3 * KIB + 512, 640 * GIB, 5 * MIB, 6, 68,      7,  8,  9 * KIB,  10, 11, 12,
                                         78,   79,   8192,          13,        65530,   0, 2 * GIB, 14, 15, 16 * KIB, 17};
    add_cache("malloc-16", 16, 1000, 24, 4096);
    add_cache("malloc-32", 32, 0, 0, 0);
    add_cache("magazine-64", 512, 3, 1, 128);
    snapshot.caches[0].depot_allocs = 123456789;
    snapshot.caches[0].depot_frees = 17;
    snapshot.caches[0].slab_frees = 18;
    snapshot.caches[0].contention = 19;
    snapshot.caches[0].depot_magazines = 20;
    snapshot.arena_count = 2;
    snapshot.arenas[0] = (struct report_arena){
        .name = "heap", .quantum = 2 * MIB, .in_use = 6 * MIB, .total = 640 * GIB, .segments = 21, .allocs = 22, .frees = 23, .failures = 24};
    snapshot.arenas[1] = (struct report_arena){"ports", 1, 2 * KIB, 64512, 41, 42, 43, 44, true, 45, 46, 47, 48, 4096};
    snapshot.group_count = 1;
    snapshot.groups[0] = (struct report_group){"unmovable", 31, 32, 33, 34, 35, 36};
    snapshot.order_count = 1;
    snapshot.orders[0] = (struct report_order){2 * MIB, 51, 52, 53, 54, 5, 1000};
    return 0;
}

/* All arrays full, every number the largest, and names with all that formats have to escape. */
static int hostile_snapshot(void **state) {
    static const char *const names[] = {
        "a\"b\\c/d",
        "<&>'\"",
        "tab\tnl\nnul\x01\x1f\x7f",
        "caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80",
        "bad \x80 \xc3 \xed\xa0\x80 \xf4\x90\x80\x80 \xef\xbf\xbf",
        "overlong \xc0\xaf \xe0\x80\xaf \xf0\x80\x80\xaf",
        "",
        "cut inside a character, \xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9",
    };
    empty_snapshot(state);
    memset(&snapshot, 0xff, sizeof snapshot);
    snapshot.mode = "thread";
    snapshot.cache_count = REPORT_MAX_CACHES;
    snapshot.arena_count = REPORT_MAX_ARENAS;
    snapshot.group_count = REPORT_MAX_GROUPS;
    snapshot.order_count = REPORT_ORDERS;
    for (unsigned i = 0; i < REPORT_MAX_CACHES; i++) {
        report_name_set(snapshot.caches[i].name, names[i % ARRAY_LENGTH(names)]);
        snapshot.caches[i].calls_back = i % 2 != 0;
    }
    for (unsigned i = 0; i < REPORT_MAX_ARENAS; i++) {
        report_name_set(snapshot.arenas[i].name, names[i % ARRAY_LENGTH(names)]);
        snapshot.arenas[i].of_program = i % 2 != 0;
    }
    for (unsigned i = 0; i < REPORT_MAX_GROUPS; i++) report_name_set(snapshot.groups[i].name, names[i % ARRAY_LENGTH(names)]);
    return 0;
}

/* Runs a Python program with `output` on its standard input; it ends with 0 where it is content. */
static void assert_python(const char *program) {
    char command[4096];
    assert_true((size_t)snprintf(command, sizeof command, "python3 -c '%s'", program) < sizeof command);
    FILE *pipe = popen(command, "w");
    assert_non_null(pipe);
    assert_int_equal(fwrite(output, 1, output_length, pipe), output_length);
    assert_int_equal(pclose(pipe), 0);
}

/* ------------------------------------------------------------------ JSON */

static void test_json_exact(void **state) {
    (void)state;
    snapshot.cache_count = 1;
    assert_string_equal(
        written(report_json),
        "{\"version\":\"" STRATA_VERSION "\",\"pid\":4711,\"mode\":\"rseq-mm_cid\",\"uptime_ns\":12345678901,"
        "\"heap\":{\"in_use_bytes\":1001,\"populated_bytes\":2048,\"lookaside_bytes\":3584,\"reserved_bytes\":687194767360,"
        "\"metadata_bytes\":5242880,\"huge_bytes\":6,\"heap_huge_bytes\":68,\"resident_bytes\":7,\"large_blocks\":8,\"large_bytes\":9216,\"released_"
        "bytes_total\":10,"
        "\"populated_bytes_total\":11,\"moves\":12,\"compactions\":78,\"block_moves\":79,\"races_lost_bytes\":8192,\"mappings\":13,\"mappings_"
        "limit\":65530,\"soft_limit\":0,"
        "\"hard_limit\":2147483648,\"pressure_"
        "events\":14,\"handler_calls\":15,\"handler_freed_bytes\":16384,\"handler_resident_bytes\":17},"
        "\"caches\":[{\"name\":\"malloc-16\",\"object_bytes\":16,\"slab_bytes\":65536,\"slabs\":1,\"in_use\":1000,\"cached\":24,\"total\":4096,"
        "\"memory_bytes\":65536,\"depot_allocs\":123456789,\"depot_frees\":17,\"slab_allocs\":1024,\"slab_frees\":18,\"magazine_rounds\":64,"
        "\"contention\":19,\"depot_magazines\":20}],"
        "\"arenas\":[{\"name\":\"heap\",\"quantum_bytes\":2097152,\"in_use_bytes\":6291456,\"total_bytes\":687194767360,\"segments\":21,"
        "\"allocs\":22,\"frees\":23,\"failures\":24},"
        "{\"name\":\"ports\",\"quantum\":1,\"in_use\":2048,\"total\":64512,\"segments\":41,\"allocs\":42,\"frees\":43,\"failures\":44,"
        "\"imported\":45,\"imports\":46,\"releases\":47,\"waits\":48,\"metadata_bytes\":4096}],"
        "\"groups\":[{\"name\":\"unmovable\",\"superpages\":31,\"allocated_pages\":32,\"populated_pages\":33,\"free_populated_pages\":34,"
        "\"partial_superpages\":35,\"huge_superpages\":36}],"
        "\"free_blocks\":[{\"block_bytes\":2097152,\"unmovable\":51,\"reclaimable\":52,\"movable\":53,\"unused\":54,"
        "\"unusable_permille\":5,\"fragmentation_permille\":1000}]}\n");
}

static void test_json_all_caches(void **state) {
    (void)state;
    written(report_json);
    assert_python("import json, sys; d = json.load(sys.stdin)\n"
                  "assert [c[\"name\"] for c in d[\"caches\"]] == [\"malloc-16\", \"malloc-32\", \"magazine-64\"]");
}

static void test_json_empty(void **state) {
    (void)state;
    written(report_json);
    assert_python("import json, sys; d = json.load(sys.stdin)\n"
                  "assert d[\"caches\"] == d[\"arenas\"] == d[\"groups\"] == d[\"free_blocks\"] == [] and len(d[\"heap\"]) == 24");
}

static void test_json_hostile(void **state) {
    (void)state;
    written(report_json);
    assert_python("import json, sys\n"
                  "d = json.loads(sys.stdin.buffer.read().decode(\"utf-8\", \"strict\"))\n"
                  "n = [c[\"name\"] for c in d[\"caches\"]]\n"
                  "assert len(n) == 256 and len(d[\"arenas\"]) == 64 and len(d[\"groups\"]) == 4 and len(d[\"free_blocks\"]) == 10\n"
                  "assert n[0] == \"a\\\"b\\\\c/d\", n[0]\n"
                  "assert n[1] == \"<&>\\x27\\\"\", n[1]\n"
                  "assert n[2] == \"tab\\tnl\\nnul\\x01\\x1f\\x7f\", n[2]\n"
                  "assert n[3] == \"caf\\u00e9 \\u20ac \\U0001f600\", n[3]\n"
                  "assert n[4] == \"bad ? ? ??? ???? ???\", n[4]\n"
                  "assert n[5] == \"overlong ?? ??? ????\", n[5]\n"
                  "assert n[6] == \"\"\n"
                  "assert n[7] == \"cut inside a character, \\u00e9\\u00e9\\u00e9?\", n[7]\n"
                  "assert set(v for c in d[\"caches\"] for k, v in c.items() if k != \"name\") == {2**64 - 1}\n"
                  "assert set(d[\"heap\"].values()) == {2**64 - 1}\n");
}

/* ------------------------------------------------------------------ the table */

static void test_table_exact(void **state) {
    (void)state;
    assert_string_equal(written(report_table), /* malloc-32 was never used */
                        "strata " STRATA_VERSION ", process 4711, mode rseq-mm_cid, up 12.345 s\n"
                        "\n"
                        "cache        object  objects  objects  objects              allocs      allocs         magazine       depot\n"
                        "name           size   in use   cached    total  memory  from depot  from slabs  slabs      size  contention\n"
                        "-----------  ------  -------  -------  -------  ------  ----------  ----------  -----  --------  ----------\n"
                        "malloc-16        16     1000       24     4096   64.0K   123456789        1024      1        64          19\n"
                        "magazine-64     512        3        1      128   64.0K           0           4      1        64           0\n"
                        "\n"
                        "arena                                                   allocs\n"
                        "name   quantum  in use  total  segments  allocs  frees  failed\n"
                        "-----  -------  ------  -----  --------  ------  -----  ------\n"
                        "heap      2.0M    6.0M   640G        21      22     23      24\n"
                        "ports        1    2048  64512        41      42     43      44\n"
                        "\n"
                        "mobility   superpages   superpages  superpages      pages      pages  of these\n"
                        "group           total  partly free        huge  allocated  populated      free\n"
                        "---------  ----------  -----------  ----------  ---------  ---------  --------\n"
                        "unmovable          31           35          36         32         33        34\n"
                        "\n"
                        "free                                                free memory  fragmentation\n"
                        "blocks of  unmovable  reclaimable  movable  unused     unusable          index\n"
                        "---------  ---------  -----------  -------  ------  -----------  -------------\n"
                        "2.0M              51           52       53      54         0.5%          1.000\n"
                        "\n"
                        "heap\n"
                        "total                       amount\n"
                        "---------------------  -----------\n"
                        "in use                        1001\n"
                        "populated                     2.0K\n"
                        "idle, populated               3.5K\n"
                        "metadata                      5.0M\n"
                        "address space                 640G\n"
                        "large blocks                     8\n"
                        "in large blocks               9.0K\n"
                        "process, resident                7\n"
                        "process, huge pages              6\n"
                        "heap, huge pages                68\n"
                        "taken from the system           11\n"
                        "handed back                     10\n"
                        "page moves                      12\n"
                        "mappings               13 of 65530\n"
                        "pressure events                 14\n"
                        "freed by handlers            16.0K\n"
                        "soft limit                    none\n"
                        "hard limit                    2.0G\n");
}

/* Characters, not bytes, as a terminal counts them. */
static size_t line_width(const char *line, const char *end) {
    size_t width = 0;
    for (; line < end; line++) width += ((unsigned char)*line & 0xc0) != 0x80;
    return width;
}

static void test_table_hostile(void **state) {
    (void)state;
    written(report_table);
    size_t sections = 0, rule_width = 0, rows = 0;
    for (const char *line = output; *line != 0;) {
        const char *end = strchr(line, '\n');
        assert_non_null(end);
        for (const char *c = line; c < end; c++) assert_true((unsigned char)*c >= 0x20 && *c != 0x7f);
        size_t width = line_width(line, end);
        if (line[0] == '-' && line[1] == '-') {
            sections++;
            rule_width = width;
        } else if (width == 0) {
            rule_width = 0;
        } else if (rule_width != 0) {
            assert_int_equal(width, rule_width); /* rows end where their rule ends */
            rows++;
        }
        line = end + 1;
    }
    assert_int_equal(sections, 6);
    assert_int_equal(rows, 2 * REPORT_MAX_CACHES + REPORT_MAX_ARENAS + REPORT_MAX_GROUPS + REPORT_ORDERS + 18);
    assert_non_null(strstr(output, "caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80 "));
    assert_non_null(strstr(output, "tab?nl?nul??? "));
    assert_non_null(strstr(output, " 15.9E "));
}

static void test_table_empty(void **state) {
    (void)state;
    add_cache("unused", 16, 0, 0, 0);
    written(report_table);
    assert_null(strstr(output, "unused"));
    assert_null(strstr(output, "cache"));
    assert_null(strstr(output, "mobility"));
    assert_non_null(strstr(output, "in use"));
}

static void test_table_sizes(void **state) {
    (void)state;
    static const struct {
        uint64_t bytes;
        const char *text;
    } sizes[] = {
        {0, "0"},       {1023, "1023"},    {1024, "1.0K"},   {1126, "1.0K"}, /* rounded down */
        {1127, "1.1K"}, {102399, "99.9K"}, {102400, "100K"}, {MIB - 1, "1023K"}, {MIB, "1.0M"}, {UINT64_C(5) << 60, "5.0E"}, {UINT64_MAX, "15.9E"},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(sizes); i++) {
        char line[64];
        snapshot.heap.in_use_bytes = sizes[i].bytes;
        snprintf(line, sizeof line, " %s\npopulated ", sizes[i].text);
        assert_non_null(strstr(written(report_table), line));
    }
}

/* ------------------------------------------------------------------ XML */

static void test_xml_exact(void **state) {
    (void)state;
    assert_string_equal(written(report_xml), "<malloc version=\"strata-1\">\n"
                                             "<heap nr=\"0\">\n"
                                             "<sizes>\n"
                                             "  <size name=\"malloc-16\" from=\"16\" to=\"16\" total=\"49536\" count=\"3096\"/>\n"
                                             "  <size name=\"magazine-64\" from=\"512\" to=\"512\" total=\"64000\" count=\"125\"/>\n"
                                             "</sizes>\n"
                                             "<total type=\"fast\" count=\"25\" size=\"896\"/>\n"
                                             "<total type=\"rest\" count=\"3196\" size=\"116224\"/>\n"
                                             "<system type=\"current\" size=\"2048\"/>\n"
                                             "<aspace type=\"total\" size=\"687194767360\"/>\n"
                                             "</heap>\n"
                                             "<total type=\"fast\" count=\"25\" size=\"896\"/>\n"
                                             "<total type=\"rest\" count=\"3196\" size=\"116224\"/>\n"
                                             "<total type=\"mmap\" count=\"8\" size=\"9216\"/>\n"
                                             "<system type=\"current\" size=\"2048\"/>\n"
                                             "<aspace type=\"total\" size=\"687194767360\"/>\n"
                                             "<superpages huge_bytes=\"68\" compactions=\"78\" block_moves=\"79\" races_lost_bytes=\"8192\">\n"
                                             "  <group name=\"unmovable\" count=\"31\" partial=\"35\" huge=\"36\" pages=\"32\"/>\n"
                                             "  <free size=\"2097152\" count=\"210\" unusable=\"5\" fragmentation=\"1000\"/>\n"
                                             "</superpages>\n"
                                             "</malloc>\n");
}

static void test_xml_hostile(void **state) {
    (void)state;
    for (unsigned i = 0; i < REPORT_MAX_CACHES; i++) snapshot.caches[i].in_use = 0; /* so that each has a row */
    written(report_xml);
    assert_python("import sys, xml.etree.ElementTree as e\n"
                  "r = e.fromstring(sys.stdin.buffer.read())\n"
                  "assert r.tag == \"malloc\" and r.get(\"version\") == \"strata-1\"\n"
                  "n = [s.get(\"name\") for s in r.findall(\"heap/sizes/size\")]\n"
                  "assert len(n) == 256\n"
                  "assert n[:4] == [\"a\\\"b\\\\c/d\", \"<&>\\x27\\\"\", \"tab?nl?nul???\", \"caf\\u00e9 \\u20ac \\U0001f600\"], n[:4]\n"
                  "assert n[4] == \"bad ? ? ??? ???? ???\", n[4]\n");
}

/* Counters are read while the program runs: what is in use may exceed the total for a moment. */
static void test_xml_never_below_zero(void **state) {
    (void)state;
    add_cache("racing", 16, 10, 5, 8);
    written(report_xml);
    assert_null(strstr(output, "racing"));
    assert_non_null(strstr(output, "type=\"rest\" count=\"0\" size=\"0\""));
}

/* ------------------------------------------------------------------ the writer */

static void test_writer_edges(void **state) {
    (void)state;
    struct report_writer writer;
    static char expected[8192];
    /* Pieces of every length around the buffer's end keep their order, whether put or formatted. */
    for (size_t start = sizeof writer.buffer - 3; start <= sizeof writer.buffer + 3; start++)
        for (size_t piece = 0; piece < 6; piece++) {
            memset(expected, 'a', start);
            memcpy(expected + start, "01234", piece);
            memcpy(expected + start + piece, "01234", piece);
            expected[start + 2 * piece] = 0;
            char text[8] = "01234";
            text[piece] = 0;
            writer_start(&writer);
            report_put(&writer, expected, start);
            report_put(&writer, text, piece);
            report_format(&writer, "%s", text);
            assert_true(report_writer_flush(&writer));
            assert_string_equal(output, expected);
        }
    /* A put longer than several buffers. */
    for (size_t i = 0; i < sizeof expected - 1; i++) expected[i] = (char)('a' + i % 23);
    expected[sizeof expected - 1] = 0;
    writer_start(&writer);
    report_put(&writer, expected, sizeof expected - 1);
    assert_true(report_writer_flush(&writer));
    assert_string_equal(output, expected);
    /* The longest text of one format: all of the buffer but its NUL, also where something waits in front of it. */
    expected[sizeof writer.buffer - 1] = 0;
    writer_start(&writer);
    report_put(&writer, "x", 1);
    report_format(&writer, "%s", expected);
    assert_true(report_writer_flush(&writer));
    assert_int_equal(output[0], 'x');
    assert_string_equal(output + 1, expected);
    /* Nothing to write is no write. */
    writer_start(&writer);
    assert_true(report_writer_flush(&writer));
    assert_int_equal(writes, 0);
}

static void test_writer_failure(void **state) {
    (void)state;
    for (unsigned i = 0; i < REPORT_MAX_CACHES; i++) snapshot.caches[i].in_use = 0; /* so that the XML is long, too */
    static bool (*const reports[])(const struct report_snapshot *, struct report_writer *) = {report_json, report_table, report_xml};
    for (size_t r = 0; r < ARRAY_LENGTH(reports); r++) {
        written(reports[r]);
        unsigned needed = writes;
        assert_true(needed > 1);
        for (unsigned allowed = 0; allowed < needed; allowed++) {
            struct report_writer writer;
            writer_start(&writer);
            writes_allowed = allowed;
            assert_false(reports[r](&snapshot, &writer));
            assert_int_equal(writes, allowed + 1); /* none after the failure */
            assert_false(report_writer_flush(&writer));
        }
    }
}

/* A piece that the buffer can't hold is an error of ours and says so. */
static jmp_buf died;
static char last_words[512];
static void words_write(const char *text, size_t bytes) {
    memcpy(last_words, text, bytes);
    last_words[bytes] = 0;
}
static void words_die(void) { longjmp(died, 1); }

static void test_writer_too_long(void **state) {
    (void)state;
    static const struct check_sink sink = {words_write, words_die};
    check_set_sink(&sink);
    static char text[2048];
    static struct report_writer writer;
    memset(text, 'a', sizeof writer.buffer);
    writer_start(&writer);
    if (setjmp(died) == 0) {
        report_format(&writer, "%s", text);
        fail_msg("came back");
    }
    assert_string_equal(last_words, "strata: internal error: one piece of a report exceeds 1024 bytes (format \"%s\")\n");
}

static void test_names_are_cut(void **state) {
    (void)state;
    char name[REPORT_NAME_BYTES];
    report_name_set(name, "1234567890123456789012345678901");
    assert_string_equal(name, "1234567890123456789012345678901");
    report_name_set(name, "12345678901234567890123456789012");
    assert_string_equal(name, "1234567890123456789012345678901");
    report_name_set(name, "%s");
    assert_string_equal(name, "%s");
}

static void test_utf8(void **state) {
    (void)state;
    static const struct {
        const char *text;
        size_t length;
    } texts[] = {
        {"a", 1},
        {"\xc2\x80", 2},
        {"\xdf\xbf", 2},
        {"\xe0\xa0\x80", 3},
        {"\xed\x9f\xbf", 3},
        {"\xee\x80\x80", 3},
        {"\xef\xbf\xbd", 3},
        {"\xf0\x90\x80\x80", 4},
        {"\xf4\x8f\xbf\xbd", 4},
        {"\x80", 0},
        {"\xbf", 0},
        {"\xc1\xbf", 0},
        {"\xc2", 0},
        {"\xc2z", 0},
        {"\xe0\x9f\xbf", 0},
        {"\xe1\x80", 0},
        {"\xed\xa0\x80", 0},
        {"\xed\xbf\xbf", 0},
        {"\xef\xbf\xbe", 0},
        {"\xf0\x8f\xbf\xbf", 0},
        {"\xf1\x80\x80", 0},
        {"\xf4\x90\x80\x80", 0},
        {"\xf5\x80\x80\x80", 0},
        {"\xff", 0},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(texts); i++) {
        /* On the heap at its exact size, so that a sanitizer sees a read past the end. */
        char *copy = strdup(texts[i].text);
        assert_non_null(copy);
        assert_int_equal(report_utf8_length(copy), texts[i].length);
        free(copy);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_json_exact, small_snapshot),
        cmocka_unit_test_setup(test_json_all_caches, small_snapshot),
        cmocka_unit_test_setup(test_json_empty, empty_snapshot),
        cmocka_unit_test_setup(test_json_hostile, hostile_snapshot),
        cmocka_unit_test_setup(test_table_exact, small_snapshot),
        cmocka_unit_test_setup(test_table_hostile, hostile_snapshot),
        cmocka_unit_test_setup(test_table_empty, empty_snapshot),
        cmocka_unit_test_setup(test_table_sizes, empty_snapshot),
        cmocka_unit_test_setup(test_xml_exact, small_snapshot),
        cmocka_unit_test_setup(test_xml_hostile, hostile_snapshot),
        cmocka_unit_test_setup(test_xml_never_below_zero, empty_snapshot),
        cmocka_unit_test(test_writer_edges),
        cmocka_unit_test_setup(test_writer_failure, hostile_snapshot),
        cmocka_unit_test(test_writer_too_long),
        cmocka_unit_test(test_names_are_cut),
        cmocka_unit_test(test_utf8),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
