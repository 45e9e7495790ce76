/*
 * test_linux_pages.c - pages that change places on Linux, what can be learnt of them, and advice on many ranges by one call.
 *
 * An exchange is refused as a whole or done as a whole, over mappings of several kinds, under limits that have come down and where the process has
 * hardly a mapping left. What changes the process is done in a child.
 */
#define _GNU_SOURCE 1
#include <fcntl.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "linux_ranges.h"

static void three_ranges(char **ranges) {
    for (unsigned i = 0; i < 3; i++) assert_non_null(ranges[i] = new_range());
}

/* Every page of `through` is as absent as it was: an exchange must not leave a copy of anything behind. */
static bool is_absent(const char *range) {
    uint8_t pages[PAGES];
    if (!platform_presence(range, range_bytes, pages)) return false;
    for (size_t i = 0; i < PAGES; i++)
        if (pages[i] != PLATFORM_PAGE_ABSENT) return false;
    return true;
}

static void ranges_of_one_mapping_change_places(void **state) {
    (void)state;
    char *ranges[3];
    three_ranges(ranges);
    fill(ranges[0], 1);
    fill(ranges[1], 2);
    errno = 77;
    assert_true(platform_swap(ranges[0], ranges[1], ranges[2], range_bytes));
    assert_int_equal(errno, 77);
    assert_true(holds(ranges[0], 2) && holds(ranges[1], 1));
    assert_true(is_absent(ranges[2]));
    for (unsigned i = 0; i < 3; i++) assert_true(is_writable(ranges[i]));
}

/* Again and again, with new boundaries in each of the three by turns. */
static void ranges_of_several_mappings_change_places(void **state) {
    (void)state;
    char *ranges[3];
    three_ranges(ranges);
    fill(ranges[0], 1);
    fill(ranges[1], 2);
    for (unsigned turn = 0; turn < 9; turn++) {
        split(ranges[turn % 3]);
        assert_true(count_mappings(ranges[turn % 3]) >= 5);
        errno = 77;
        assert_true(platform_swap(ranges[0], ranges[1], ranges[2], range_bytes));
        assert_int_equal(errno, 77);
        assert_true(holds(ranges[turn % 2 == 0], 1) && holds(ranges[turn % 2], 2));
        assert_true(is_absent(ranges[2]));
        for (unsigned i = 0; i < 2; i++) assert_true(is_writable(ranges[i]));
    }
}

/* Holes change places as contents do, and stay holes. */
static void absent_pages_change_places_too(void **state) {
    (void)state;
    char *ranges[3];
    uint8_t pages[PAGES];
    three_ranges(ranges);
    split(ranges[0]);
    fill(ranges[1], 2);
    ranges[0][50 * page_bytes] = 7;
    assert_true(platform_swap(ranges[0], ranges[1], ranges[2], range_bytes));
    assert_true(holds(ranges[0], 2));
    assert_true(platform_presence(ranges[1], range_bytes, pages));
    for (size_t i = 0; i < PAGES; i++) assert_int_equal(pages[i], i == 50 ? PLATFORM_PAGE_PRESENT : PLATFORM_PAGE_ABSENT);
    assert_int_equal(ranges[1][50 * page_bytes], 7);
    ranges[1][50 * page_bytes] = 0;
    assert_true(is_zero(ranges[1]));
}

/* ------------------------------------------------------------------ refusals */

struct limited {
    int resource;
    bool pieces; /* one of the two is several mappings */
};

static void swap_under_limit(void *argument) {
    const struct limited *limited = argument;
    char *a = new_range(), *b = new_range(), *through = new_range();
    EXPECT(a != NULL && b != NULL && through != NULL);
    if (limited->pieces) split(b);
    fill(a, 1);
    fill(b, 2);
    struct rlimit limit, before;
    EXPECT(getrlimit(limited->resource, &before) == 0);
    limit = before;
    limit.rlim_cur = 16 * page_bytes;
    EXPECT(setrlimit(limited->resource, &limit) == 0);
    errno = 77;
    EXPECT(!platform_swap(a, b, through, range_bytes));
    EXPECT(errno == 77);
    EXPECT(holds(a, 1) && holds(b, 2));
    EXPECT(is_absent(through));
    EXPECT(is_writable(a) && is_writable(b));
    EXPECT(setrlimit(limited->resource, &before) == 0);
    EXPECT(platform_swap(a, b, through, range_bytes));
    EXPECT(holds(a, 2) && holds(b, 1));
}

static void a_lowered_limit_refuses_and_loses_nothing(void **state) {
    (void)state;
    struct limited cases[] = {{RLIMIT_AS, false}, {RLIMIT_AS, true}, {RLIMIT_DATA, false}, {RLIMIT_DATA, true}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) assert_int_equal(child_status(swap_under_limit, &cases[i]), 0);
}

/* With one mapping more each time, so that every step of an exchange is the one that fails: the first two undo, later ones end by a copy. */
static void swap_with_few_mappings(void *pieces) {
    char *a = new_range(), *b = new_range(), *through = new_range();
    EXPECT(a != NULL && b != NULL && through != NULL);
    if (*(bool *)pieces) split(a);
    fill(a, 1);
    fill(b, 2);
    EXPECT(use_up_mappings());
    bool swapped = false;
    for (unsigned tries = 0; !swapped; tries++) {
        EXPECT(tries < PIECES_MAX);
        errno = 77;
        swapped = platform_swap(a, b, through, range_bytes);
        EXPECT(errno == 77);
        EXPECT(tries != 0 || !swapped); /* or they were not used up */
        EXPECT(holds(a, swapped ? 2 : 1) && holds(b, swapped ? 1 : 2));
        EXPECT(is_absent(through));
        EXPECT(is_writable(a) && is_writable(b));
        EXPECT(give_back_one());
    }
    platform_unreserve(crowd, crowd_bytes);
    EXPECT(platform_swap(a, b, through, range_bytes));
    EXPECT(holds(a, 1) && holds(b, 2));
}

static void an_exchange_without_mappings_loses_nothing(void **state) {
    (void)state;
    for (int pieces = 0; pieces < 2; pieces++) {
        bool argument = pieces != 0;
        assert_int_equal(child_status(swap_with_few_mappings, &argument), 0);
    }
}

/* The same by random steps: pieces are made, mappings come and go, and two contents go round over four ranges. */
static void dance(void *seed) {
    char *ranges[4];
    char contents[4] = {1, 2, 0, 0}; /* 0: no pages */
    uint64_t random = *(unsigned *)seed;
    for (unsigned i = 0; i < 4; i++) EXPECT((ranges[i] = new_range()) != NULL);
    fill(ranges[0], 1);
    fill(ranges[1], 2);
    EXPECT(use_up_mappings());
    unsigned swaps = 0, refusals = 0;
    for (unsigned step = 0; step < 300; step++) {
        random = random * UINT64_C(6364136223846793005) + 1442695040888963407u;
        unsigned dice = (unsigned)(random >> 40), through;
        if (dice % 3 == 0) EXPECT(give_back_one());
        if (dice % 7 == 0)
            madvise(ranges[dice / 7 % 4] + dice / 28 % (PAGES - 4) * page_bytes, 4 * page_bytes, dice % 2 ? MADV_DONTDUMP : MADV_DODUMP);
        if (dice % 41 == 0) /* back to the limit now and then */
            while (mprotect(crowd + 2 * crowd_pairs * page_bytes, page_bytes, PROT_READ) == 0) crowd_pairs++;
        for (through = dice % 4; contents[through] != 0;) through = (through + 1) % 4;
        platform_release(ranges[through], range_bytes); /* zeros that were copied */
        unsigned a = (through + 1 + dice / 64 % 3) % 4, b = (through + 1 + (dice / 64 + 1) % 3) % 4;
        bool swapped = platform_swap(ranges[a], ranges[b], ranges[through], range_bytes);
        if (swapped) {
            char kept = contents[a];
            contents[a] = contents[b];
            contents[b] = kept;
        }
        swaps += swapped;
        refusals += !swapped;
        EXPECT(is_absent(ranges[through]));
        for (unsigned i = 0; i < 4; i++) EXPECT(contents[i] != 0 ? holds(ranges[i], contents[i]) : is_zero(ranges[i]));
    }
    EXPECT(swaps >= 20 && refusals >= 20);
}

static void contents_change_places_unhurt(void **state) {
    (void)state;
    for (unsigned seed = 1; seed <= 4; seed++) assert_int_equal(child_status(dance, &seed), 0);
}

/* ------------------------------------------------------------------ what is there */

static void presence_is_told_page_by_page(void **state) {
    (void)state;
    enum { MANY = 1500 }; /* more than are read at once */
    static uint8_t pages[MANY];
    char *range = platform_reserve(NULL, MANY * page_bytes, page_bytes);
    assert_non_null(range);
    assert_true(platform_commit(range, MANY * page_bytes));
    platform_advise_huge(range, MANY * page_bytes, false);
    for (size_t i = 0; i < MANY; i += 7) range[i * page_bytes] = 1;
    errno = 77;
    assert_true(platform_presence(range, MANY * page_bytes, pages));
    for (size_t i = 0; i < MANY; i++) assert_int_equal(pages[i], i % 7 == 0 ? PLATFORM_PAGE_PRESENT : PLATFORM_PAGE_ABSENT);
    assert_true(platform_release(range + 7 * page_bytes, 700 * page_bytes));
    assert_true(platform_presence(range + 6 * page_bytes, 710 * page_bytes, pages));
    for (size_t i = 0; i < 710; i++) assert_int_equal(pages[i], i >= 701 && (i + 6) % 7 == 0 ? PLATFORM_PAGE_PRESENT : PLATFORM_PAGE_ABSENT);
    assert_int_equal(errno, 77);
    platform_unreserve(range, MANY * page_bytes);
}

/* The number of the file that is kept for looks; -1: none is. */
static int kept_file(void) {
    char path[64], name[64];
    for (int number = 0; number < 1024; number++) {
        (void)snprintf(path, sizeof path, "/proc/self/fd/%d", number);
        ssize_t length = readlink(path, name, sizeof name - 1);
        name[length > 0 ? length : 0] = 0;
        if (strstr(name, "/pagemap") != NULL) return number;
    }
    return -1;
}

/* One page is there; the next is not. */
static bool looks_right(char *range) {
    uint8_t pages[PAGES];
    range[0] = 1;
    return platform_presence(range, range_bytes, pages) && pages[0] == PLATFORM_PAGE_PRESENT && pages[1] == PLATFORM_PAGE_ABSENT;
}

/* The program closes the file, has its own under the same number, and forks; no look is wrong, and nobody else's file is closed. */
static void keep_a_file(void *unused) {
    (void)unused;
    char *range = new_range();
    EXPECT(looks_right(range) && kept_file() == -1);
    platform_presence_keep(true);
    platform_presence_keep(true);
    EXPECT(looks_right(range));
    int number = kept_file();
    EXPECT(number >= 40 && (fcntl(number, F_GETFD) & FD_CLOEXEC) != 0);
    EXPECT(looks_right(range) && kept_file() == number);
    EXPECT(close(number) == 0 && looks_right(range));
    number = kept_file();
    int zeros = open("/dev/zero", O_RDONLY);
    EXPECT(zeros >= 0 && dup2(zeros, number) == number && looks_right(range));
    char byte = 1;
    EXPECT(read(number, &byte, 1) == 1 && byte == 0 && close(number) == 0);
    EXPECT(looks_right(range) && kept_file() >= 0);
    range[page_bytes] = 1; /* there in the parent only */
    pid_t child = fork();
    if (child == 0) {
        (void)platform_release(range, 2 * page_bytes);
        _exit(looks_right(range) && kept_file() >= 0 ? 0 : 1);
    }
    int status = -1;
    EXPECT(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    (void)platform_release(range, 2 * page_bytes);
    EXPECT(looks_right(range));
    platform_presence_keep(false);
    EXPECT(kept_file() >= 0);
    platform_presence_keep(false);
    EXPECT(kept_file() == -1 && looks_right(range) && kept_file() == -1);
}

static void a_file_is_kept_for_who_looks_often(void **state) {
    (void)state;
    assert_int_equal(child_status(keep_a_file, NULL), 0);
}

/* A process that has no descriptor left can't look: it says so. */
static void look_without_descriptors(void *unused) {
    uint8_t pages[PAGES];
    uint64_t huge_bytes;
    struct rlimit none = {0, 0};
    (void)unused;
    char *range = new_range();
    EXPECT(range != NULL && setrlimit(RLIMIT_NOFILE, &none) == 0);
    errno = 77;
    EXPECT(!platform_presence(range, range_bytes, pages));
    EXPECT(!platform_huge_in(range, range_bytes, &huge_bytes) && huge_bytes == 0);
    EXPECT(errno == 77);
}

static void what_cannot_be_found_out_is_said(void **state) {
    (void)state;
    assert_int_equal(child_status(look_without_descriptors, NULL), 0);
}

/* As /proc/self/smaps has it, which counts the same pages by another way. */
static uint64_t huge_bytes_by_smaps(const char *range) {
    char line[512];
    bool inside = false;
    uint64_t bytes = 0;
    FILE *smaps = fopen("/proc/self/smaps", "re");
    assert_non_null(smaps);
    while (fgets(line, sizeof line, smaps) != NULL) {
        uintptr_t start, end;
        unsigned long kib;
        if (sscanf(line, "%lx-%lx ", &start, &end) == 2 && strchr(line, '-') < strchr(line, ' '))
            inside = start <= (uintptr_t)range && (uintptr_t)range < end;
        else if (inside && sscanf(line, "AnonHugePages: %lu kB", &kib) == 1)
            bytes += (uint64_t)kib << 10;
    }
    fclose(smaps);
    return bytes;
}

static void huge_pages_are_counted(void **state) {
    (void)state;
    size_t superpage = (size_t)2 << 20, bytes = 4 * superpage;
    uint64_t huge_bytes = 77;
    char *range = platform_reserve(NULL, bytes, superpage);
    assert_non_null(range);
    assert_true(platform_commit(range, bytes));
    errno = 77;
    if (!platform_huge_in(range, bytes, &huge_bytes)) { /* before Linux 6.7 */
        assert_int_equal(huge_bytes, 0);
        return;
    }
    assert_int_equal(errno, 77);
    assert_int_equal(huge_bytes, 0);
    platform_advise_huge(range, bytes, true);
    for (size_t i = 0; i < 2; i++) range[2 * i * superpage] = 1;
    assert_true(platform_huge_in(range, bytes, &huge_bytes));
    assert_int_equal(huge_bytes, huge_bytes_by_smaps(range));
    if (huge_bytes != 0) { /* of a part: what is in that part */
        uint64_t part;
        assert_true(platform_huge_in(range + superpage, superpage, &part));
        assert_int_equal(part, 0);
    }
    platform_unreserve(range, bytes);
}

/* ------------------------------------------------------------------ many ranges at once */

enum { RANGES = 600 }; /* more than go by one call */

static size_t many_ranges(char *start, struct platform_range *ranges) {
    for (size_t i = 0; i < RANGES; i++) ranges[i] = (struct platform_range){start + 3 * i * page_bytes, 2 * page_bytes};
    return (size_t)RANGES * 3 * page_bytes;
}

/* Exactly the pages of the ranges come and go; where the kernel has no such call, nothing is said to be done that is not. */
static void many_ranges_come_and_go(void **state) {
    (void)state;
    static struct platform_range ranges[RANGES];
    static uint8_t pages[3 * RANGES];
    char *start = platform_reserve(NULL, (size_t)RANGES * 3 * page_bytes, page_bytes);
    assert_non_null(start);
    size_t bytes = many_ranges(start, ranges);
    assert_true(platform_commit(start, bytes));
    platform_advise_huge(start, bytes, false);
    errno = 77;
    if (platform_populate_all(ranges, RANGES)) {
        assert_true(platform_presence(start, bytes, pages));
        for (size_t i = 0; i < 3 * (size_t)RANGES; i++) assert_int_equal(pages[i], i % 3 == 2 ? PLATFORM_PAGE_ABSENT : PLATFORM_PAGE_PRESENT);
    }
    assert_int_equal(errno, 77);
    memset(start, 5, bytes);
    bool released = platform_release_all(ranges, RANGES);
    assert_int_equal(errno, 77);
    for (size_t i = 0; i < 3 * (size_t)RANGES; i++)
        if (released || i % 3 == 2) assert_int_equal(start[i * page_bytes + 9], i % 3 == 2 ? 5 : 0);
    platform_unreserve(start, bytes);
}

/* One range goes by the older call, which every kernel has; none at all is no mistake. */
static void one_range_needs_no_newer_call(void **state) {
    (void)state;
    uint8_t pages[PAGES];
    char *range = new_range();
    assert_non_null(range);
    const struct platform_range one = {range, range_bytes};
    fill(range, 3);
    assert_true(platform_release_all(&one, 1));
    assert_true(is_absent(range));
    if (platform_populate_all(&one, 1)) {
        assert_true(platform_presence(range, range_bytes, pages));
        for (size_t i = 0; i < PAGES; i++) assert_int_equal(pages[i], PLATFORM_PAGE_PRESENT);
    }
    assert_true(is_zero(range));
}

/* A hole in the address space in the middle: it must be told that not all was done, and what is not in the ranges stays. */
static void a_failure_in_the_middle_is_told(void **state) {
    (void)state;
    static struct platform_range ranges[RANGES];
    char *start = platform_reserve(NULL, (size_t)RANGES * 3 * page_bytes, page_bytes);
    assert_non_null(start);
    size_t bytes = many_ranges(start, ranges), hole = RANGES / 2;
    assert_true(platform_commit(start, bytes));
    memset(start, 5, bytes);
    assert_int_equal(munmap(ranges[hole].address, page_bytes), 0);
    errno = 77;
    assert_false(platform_release_all(ranges, RANGES));
    for (size_t i = 0; i < RANGES; i++)
        if (i != hole) assert_int_equal(*(char *)ranges[i].address, 0);
    assert_false(platform_populate_all(ranges, RANGES));
    assert_int_equal(errno, 77);
    for (size_t i = 2; i < 3 * (size_t)RANGES; i += 3) assert_int_equal(start[i * page_bytes], 5);
    platform_unreserve(start, bytes);
}

/* Whether the kernel knows who asks, or refuses and each range has its own call: what is said to be released is, and nothing beside it. */
static void advise_without_descriptors(void *unused) {
    struct rlimit none = {0, 0};
    (void)unused;
    char *range = new_range();
    EXPECT(range != NULL && setrlimit(RLIMIT_NOFILE, &none) == 0);
    memset(range, 1, 4 * page_bytes);
    const struct platform_range two[2] = {{range, page_bytes}, {range + 2 * page_bytes, page_bytes}};
    errno = 77;
    EXPECT(platform_release_all(two, 2));
    EXPECT(errno == 77);
    EXPECT(range[page_bytes] == 1 && range[3 * page_bytes] == 1);
    EXPECT(range[0] == 0 && range[2 * page_bytes] == 0);
    (void)platform_populate_all(two, 2);
    EXPECT(errno == 77);
}

/* Bytes are 0 or 1, whatever else the system says; what is no memory can't be found out. */
static void what_is_resident_is_told_without_a_file(void **state) {
    (void)state;
    char *range = new_range();
    uint8_t pages[PAGES];
    for (size_t i = 0; i < PAGES; i += 3) range[i * page_bytes] = 1;
    errno = 77;
    assert_true(platform_resident(range, range_bytes, pages));
    for (size_t i = 0; i < PAGES; i++) assert_int_equal(pages[i], i % 3 == 0);
    assert_true(platform_release(range, range_bytes / 2));
    assert_true(platform_resident(range, range_bytes, pages));
    for (size_t i = 0; i < PAGES; i++) assert_int_equal(pages[i], i % 3 == 0 && i >= PAGES / 2);
    assert_int_equal(munmap(range, page_bytes), 0);
    assert_false(platform_resident(range, range_bytes, pages));
    assert_int_equal(errno, 77);
}

static void a_process_without_descriptors_is_served(void **state) {
    (void)state;
    assert_int_equal(child_status(advise_without_descriptors, NULL), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges_of_one_mapping_change_places),
        cmocka_unit_test(ranges_of_several_mappings_change_places),
        cmocka_unit_test(absent_pages_change_places_too),
        cmocka_unit_test(a_lowered_limit_refuses_and_loses_nothing),
        cmocka_unit_test(an_exchange_without_mappings_loses_nothing),
        cmocka_unit_test(contents_change_places_unhurt),
        cmocka_unit_test(presence_is_told_page_by_page),
        cmocka_unit_test(what_cannot_be_found_out_is_said),
        cmocka_unit_test(a_file_is_kept_for_who_looks_often),
        cmocka_unit_test(what_is_resident_is_told_without_a_file),
        cmocka_unit_test(huge_pages_are_counted),
        cmocka_unit_test(many_ranges_come_and_go),
        cmocka_unit_test(one_range_needs_no_newer_call),
        cmocka_unit_test(a_failure_in_the_middle_is_told),
        cmocka_unit_test(a_process_without_descriptors_is_served),
    };
    ranges_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
