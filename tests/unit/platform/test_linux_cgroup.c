/*
 * test_linux_cgroup.c - finding memory control groups and their limits, on made-up /proc files and directories in place of cgroup mounts.
 */
#define _GNU_SOURCE 1
#include "platform/linux/cgroup.h"

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "linux_test.h"

static char top[64];

static int make_top(void **state) {
    (void)state;
    strcpy(top, "/tmp/strata-cgroup-XXXXXX");
    return mkdtemp(top) == NULL;
}

static int remove_one(const char *path, const struct stat *status, int type, struct FTW *where) {
    (void)status, (void)type, (void)where;
    return remove(path);
}

static int remove_top(void **state) {
    (void)state;
    return nftw(top, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* Writes a file below top, and the directories on the way to it; "%" in the text stands for top. */
static void put_file(const char *name, const char *text) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", top, name);
    for (char *slash = strchr(path + strlen(top) + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdir(path, 0700);
        *slash = '/';
    }
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (; *text != 0; text++) {
        if (*text == '%')
            fputs(top, file);
        else
            fputc(*text, file);
    }
    fclose(file);
}

static void assert_found(unsigned version, const char *wanted) {
    struct cgroup group;
    char path[512];
    snprintf(path, sizeof path, "%s/%s", top, wanted);
    errno = 77;
    assert_true(cgroup_find(&group, version, top));
    assert_int_equal(errno, 77);
    assert_int_equal(group.version, version);
    assert_string_equal(group.path, path);
}

static void version_2_is_found_and_climbed(void **state) {
    (void)state;
    put_file("cgroup", "0::/a.slice/b.scope\n");
    put_file("mountinfo", "22 1 0:20 / /proc rw,nosuid shared:5 - proc proc rw\n"
                          "30 1 0:26 / %/fs rw,nosuid shared:9 master:3 - cgroup2 cgroup2 rw,nsdelegate\n");
    put_file("fs/a.slice/b.scope/memory.max", "max\n");
    put_file("fs/a.slice/b.scope/memory.high", "3000000\n");
    put_file("fs/a.slice/memory.max", "2000000\n");
    assert_found(2, "fs/a.slice/b.scope");
    struct cgroup group;
    assert_false(cgroup_find(&group, 1, top));
    assert_true(cgroup_find(&group, 2, top));
    assert_int_equal(cgroup_limit_bytes(&group), 3000000);
    assert_true(cgroup_parent(&group));
    assert_int_equal(cgroup_limit_bytes(&group), 2000000);
    assert_true(cgroup_parent(&group));
    assert_true(cgroup_limit_bytes(&group) == UINT64_MAX);
    assert_false(cgroup_parent(&group));
    assert_int_equal(cgroup_tightest_bytes(top), 2000000);
}

static void version_1_needs_the_memory_controller(void **state) {
    (void)state;
    put_file("cgroup", "9:cpu,cpuacct:/x\n4:hugetlb,memory:/jobs/7\n1:name=memory:/wrong\n0::/\n");
    put_file("mountinfo", "31 1 0:27 / %/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
                          "32 1 0:28 / %/mem rw - cgroup cgroup rw,memory,hugetlb\n"
                          "33 1 0:29 / %/uni rw - cgroup2 cgroup2 rw\n");
    put_file("mem/jobs/7/memory.limit_in_bytes", "9223372036854771712\n");
    put_file("mem/jobs/memory.limit_in_bytes", "5000000\n");
    put_file("uni/memory.max", "6000000\n");
    assert_found(1, "mem/jobs/7");
    assert_found(2, "uni");
    assert_int_equal(cgroup_tightest_bytes(top), 5000000);
    put_file("uni/memory.max", "4000000\n"); /* of no controller: that is in the other hierarchy */
    assert_int_equal(cgroup_tightest_bytes(top), 5000000);
}

static void a_container_sees_its_part_only(void **state) {
    (void)state;
    put_file("cgroup", "0::/docker/abc/inner\n");
    put_file("mountinfo", "30 1 0:26 /docker/abc %/part rw - cgroup2 cgroup2 rw\n");
    put_file("part/inner/memory.max", "7\n");
    assert_found(2, "part/inner");
    put_file("cgroup", "0::/docker/abc\n");
    assert_found(2, "part");
    put_file("cgroup", "0::/docker/abcdef\n"); /* another container's: what we can see stands for it */
    assert_found(2, "part");
    put_file("mountinfo", "30 1 0:26 / %/part rw - cgroup2 cgroup2 rw\n");
    put_file("cgroup", "0::/../outside\n"); /* outside of our namespace */
    assert_found(2, "part");
    put_file("cgroup", "0::/\n");
    assert_found(2, "part");
}

static void odd_lines_do_no_harm(void **state) {
    (void)state;
    char *lines = calloc(1, 32 * KIB);
    assert_non_null(lines);
    strcpy(lines, "\n\nshort\n40 1 0:30 / /\n30 1 0:26 / /nowhere rw - cgroup2 cgroup2 rw\n22 1 0:20 / /var rw - overlay overlay rw,lowerdir=");
    memset(lines + strlen(lines), 'x', 20 * KIB);
    strcat(lines, "\n31 1 0:26 / %/a\\040b\\134c rw - cgroup2 cgroup2 rw");
    put_file("mountinfo", lines);
    free(lines);
    put_file("cgroup", "\nno colon\n0:\n5:memory\n0::/g");
    put_file("a b\\c/g/memory.max", "12 34\n");
    assert_found(2, "a b\\c/g");
    assert_int_equal(cgroup_tightest_bytes(top), 12);
    put_file("a b\\c/g/memory.max", "");
    put_file("a b\\c/g/memory.high", "none");
    assert_true(cgroup_tightest_bytes(top) == UINT64_MAX);
}

static void nothing_is_found_where_nothing_is(void **state) {
    (void)state;
    struct cgroup group;
    assert_false(cgroup_find(&group, 2, top)); /* no files at all */
    assert_true(cgroup_tightest_bytes(top) == UINT64_MAX);
    put_file("cgroup", "0::/a\n");
    assert_false(cgroup_find(&group, 2, top));
    put_file("mountinfo", "30 1 0:26 / %/gone rw - cgroup2 cgroup2 rw\n");
    assert_false(cgroup_find(&group, 2, top));
}

static void limits_of_this_system_are_readable(void **state) {
    (void)state;
    errno = 77;
    assert_true(platform_memory_limit_bytes() > 0);
    assert_int_equal(errno, 77);
}

static void events_are_parsed(void **state) {
    (void)state;
    uint64_t high, urgent;
    cgroup_parse_events("low 1\nhigh 22\nmax 303\noom 4\noom_kill 50\noom_group_kill 60\n", &high, &urgent);
    assert_int_equal(high, 22);
    assert_int_equal(urgent, 307);
    cgroup_parse_events("max 1\nhigh\n\nhigher 7\n highest 8\nsock_throttled 9", &high, &urgent);
    assert_int_equal(high, 0);
    assert_int_equal(urgent, 1);
    cgroup_parse_events("", &high, &urgent);
    assert_int_equal(high + urgent, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(version_2_is_found_and_climbed, make_top, remove_top),
        cmocka_unit_test_setup_teardown(version_1_needs_the_memory_controller, make_top, remove_top),
        cmocka_unit_test_setup_teardown(a_container_sees_its_part_only, make_top, remove_top),
        cmocka_unit_test_setup_teardown(odd_lines_do_no_harm, make_top, remove_top),
        cmocka_unit_test_setup_teardown(nothing_is_found_where_nothing_is, make_top, remove_top),
        cmocka_unit_test(limits_of_this_system_are_readable),
        cmocka_unit_test(events_are_parsed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
