/*
 * test_linux_memory.c - moves of pages on Linux: over mappings of several kinds, under limits that have come down, and where the process has
 * hardly a mapping left. Whatever the answer is, no contents are lost. What changes the process is done in a child.
 */
#define _GNU_SOURCE 1
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "linux_ranges.h"

static void a_range_of_one_mapping_moves(void **state) {
    (void)state;
    char *from = new_range(), *to = new_range();
    assert_non_null(from);
    assert_non_null(to);
    fill(from, 1);
    fill(to, 2);
    errno = 77;
    assert_true(platform_move(from, to, range_bytes));
    assert_int_equal(errno, 77);
    assert_true(holds(to, 1));
    assert_true(is_zero(from));
    assert_true(is_writable(from) && is_writable(to));
}

/* To and fro, so that each of the two is in pieces by then; not one page may stay behind. */
static void a_range_of_several_mappings_moves(void **state) {
    (void)state;
    char *from = new_range(), *to = new_range();
    assert_non_null(from);
    assert_non_null(to);
    split(from);
    assert_true(count_mappings(from) >= 5);
    for (char turn = 1; turn <= 10; turn++) {
        fill(from, turn);
        errno = 77;
        assert_true(platform_move(from, to, range_bytes));
        assert_int_equal(errno, 77);
        assert_true(holds(to, turn));
        assert_true(is_zero(from));
        assert_true(is_writable(from) && is_writable(to));
        if (turn == 5) split(to);
        char *other = from;
        from = to;
        to = other;
    }
}

/* A part of the source that has no pages is zero at the target. */
static void pages_that_are_not_there_move_too(void **state) {
    (void)state;
    char *from = new_range(), *to = new_range();
    assert_non_null(from);
    assert_non_null(to);
    split(from);
    fill(to, 3);
    from[50 * page_bytes] = 7;
    assert_true(platform_move(from, to, range_bytes));
    assert_int_equal(to[50 * page_bytes], 7);
    to[50 * page_bytes] = 0;
    assert_true(is_zero(to) && is_zero(from));
}

/* ------------------------------------------------------------------ limits below what is in use */

struct limited {
    int resource;
    bool pieces; /* the source is one of several mappings */
};

static void move_under_limit(void *argument) {
    const struct limited *limited = argument;
    char *from = new_range(), *to = new_range();
    EXPECT(from != NULL && to != NULL);
    if (limited->pieces) split(from);
    fill(from, 1);
    fill(to, 2);
    struct rlimit limit, before;
    EXPECT(getrlimit(limited->resource, &before) == 0);
    limit = before;
    limit.rlim_cur = 16 * page_bytes;
    EXPECT(setrlimit(limited->resource, &limit) == 0);
    errno = 77;
    EXPECT(!platform_move(from, to, range_bytes));
    EXPECT(errno == 77);
    EXPECT(holds(from, 1) && holds(to, 2));
    EXPECT(is_writable(from) && is_writable(to));
    EXPECT(setrlimit(limited->resource, &before) == 0);
    EXPECT(platform_move(from, to, range_bytes));
    EXPECT(holds(to, 1) && is_zero(from));
}

static void a_lowered_limit_refuses_and_loses_nothing(void **state) {
    (void)state;
    struct limited cases[] = {{RLIMIT_AS, false}, {RLIMIT_AS, true}, {RLIMIT_DATA, false}, {RLIMIT_DATA, true}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) assert_int_equal(child_status(move_under_limit, &cases[i]), 0);
}

/* ------------------------------------------------------------------ hardly a mapping left */

/* Until one move has gone well: before, each has to leave all at the source, and the target usable. */
static void move_with_few_mappings(void *pieces) {
    char *from = new_range(), *to = new_range();
    EXPECT(from != NULL && to != NULL);
    if (*(bool *)pieces) split(from);
    fill(from, 1);
    fill(to, 2);
    EXPECT(use_up_mappings());
    bool moved = false;
    for (unsigned tries = 0; !moved; tries++) {
        EXPECT(tries < PIECES_MAX);
        errno = 77;
        moved = platform_move(from, to, range_bytes);
        EXPECT(errno == 77);
        EXPECT(tries != 0 || !moved); /* or they were not used up */
        EXPECT(holds(moved ? to : from, 1));
        EXPECT(is_writable(from) && is_writable(to));
        EXPECT(!moved || is_zero(from));
        EXPECT(give_back_one());
    }
    platform_unreserve(crowd, crowd_bytes);
    EXPECT(platform_move(to, from, range_bytes));
    EXPECT(holds(from, 1) && is_zero(to));
}

static void a_move_without_mappings_loses_nothing(void **state) {
    (void)state;
    for (int pieces = 0; pieces < 2; pieces++) {
        bool argument = pieces != 0;
        assert_int_equal(child_status(move_with_few_mappings, &argument), 0);
    }
}

/* The same by random steps: pieces are made, mappings are given back and taken, and contents wander between three ranges. */
static void wander(void *seed) {
    char *ranges[3];
    uint64_t random = *(unsigned *)seed;
    for (unsigned i = 0; i < 3; i++) EXPECT((ranges[i] = new_range()) != NULL);
    fill(ranges[0], 1);
    EXPECT(use_up_mappings());
    unsigned at = 0, moves = 0, refusals = 0;
    for (unsigned step = 0; step < 400; step++) {
        random = random * UINT64_C(6364136223846793005) + 1442695040888963407u;
        unsigned dice = (unsigned)(random >> 40);
        if (dice % 5 == 0) EXPECT(give_back_one());
        if (dice % 7 == 0)
            madvise(ranges[dice / 7 % 3] + dice / 21 % (PAGES - 4) * page_bytes, 4 * page_bytes, dice % 2 ? MADV_DONTDUMP : MADV_DODUMP);
        /* Back to the limit now and then. */
        if (dice % 41 == 0)
            while (mprotect(crowd + 2 * crowd_pairs * page_bytes, page_bytes, PROT_READ) == 0) crowd_pairs++;
        unsigned target = (at + 1 + dice / 64 % 2) % 3;
        if (dice % 3 == 0) fill(ranges[target], 2);
        bool moved = platform_move(ranges[at], ranges[target], range_bytes);
        moves += moved;
        refusals += !moved;
        EXPECT(holds(ranges[moved ? target : at], 1));
        EXPECT(!moved || is_zero(ranges[at]));
        EXPECT(is_writable(ranges[at]) && is_writable(ranges[target]));
        if (moved) at = target;
    }
    EXPECT(moves >= 20 && refusals >= 20);
}

static void contents_wander_unhurt(void **state) {
    (void)state;
    for (unsigned seed = 1; seed <= 4; seed++) assert_int_equal(child_status(wander, &seed), 0);
}

/* As with locked memory before Linux 5.18: what had to be copied behind what moved is cleared, as the system does not let it go. */
static void wander_where_nothing_is_let_go(void *seed) {
    struct sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, MADV_DONTNEED, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 24 /* MADV_DONTNEED_LOCKED */, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
    };
    const struct sock_fprog filter = {sizeof steps / sizeof steps[0], steps};
    char *range = new_range();
    EXPECT(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0);
    EXPECT(range != NULL && !platform_release(range, range_bytes));
    wander(seed);
}

static void contents_wander_unhurt_where_nothing_is_let_go(void **state) {
    (void)state;
    for (unsigned seed = 1; seed <= 2; seed++) assert_int_equal(child_status(wander_where_nothing_is_let_go, &seed), 0);
}

/* ------------------------------------------------------------------ locked pages */

static void locked_pages_go_back(void **state) {
    (void)state;
    char *range = new_range();
    assert_non_null(range);
    fill(range, 1);
    assert_int_equal(mlock(range + 3 * page_bytes, page_bytes), 0);
    errno = 77;
    assert_true(platform_release(range, range_bytes));
    assert_int_equal(errno, 77);
    assert_true(is_zero(range) && is_writable(range));
}

/* ------------------------------------------------------------------ what is committed ahead of need */

#define RESERVED_BYTES ((size_t)1 << 40)

struct right {
    bool privileged;   /* keeps CAP_IPC_LOCK, if it has it */
    rlim_t hard_limit; /* of what may be locked */
    bool unlimited;    /* that is any number */
    bool charged;      /* the system counts what is committed */
};

/* What may be locked is known exactly where mlockall, which would make all of it present, is refused. */
static void commit_by_right(void *argument) {
    const struct right *right = argument;
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];
    EXPECT(setrlimit(RLIMIT_MEMLOCK, &(struct rlimit){MIB, right->hard_limit}) == 0);
    EXPECT(syscall(SYS_capget, &header, data) == 0);
    bool has = (data[CAP_IPC_LOCK / 32].permitted >> CAP_IPC_LOCK % 32 & 1) != 0;
    if (!right->privileged) data[CAP_IPC_LOCK / 32].permitted &= ~(1U << CAP_IPC_LOCK % 32);
    data[CAP_IPC_LOCK / 32].effective &= ~(1U << CAP_IPC_LOCK % 32); /* it could raise it again */
    EXPECT(syscall(SYS_capset, &header, data) == 0);
    char *range = platform_reserve(NULL, RESERVED_BYTES, page_bytes);
    EXPECT(range != NULL);
    errno = 77;
    bool may = platform_may_lock(RESERVED_BYTES);
    EXPECT(platform_commit_is_charged() == right->charged && platform_commit_is_charged() == right->charged);
    EXPECT(errno == 77);
    EXPECT(may == (right->unlimited || (right->privileged && has)));
    EXPECT(platform_may_lock(MIB));                            /* so little may be */
    if (!may) EXPECT(syscall(SYS_mlockall, MCL_CURRENT) != 0); /* past sanitizers, which answer in its place */
}

static void whether_committed_memory_costs_is_known(void **state) {
    (void)state;
    int mode = '2';
    FILE *file = fopen("/proc/sys/vm/overcommit_memory", "r");
    if (file != NULL) {
        mode = fgetc(file);
        fclose(file);
    }
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_MEMLOCK, &limit), 0);
    struct right rights[] = {{false, 2 * MIB, false, mode == '2'}, {true, 2 * MIB, false, mode == '2'}, {false, RLIM_INFINITY, true, mode == '2'}};
    size_t count = limit.rlim_max == RLIM_INFINITY ? 3 : 2; /* or the limit can't be lifted */
    for (size_t i = 0; i < count; i++) assert_int_equal(child_status(commit_by_right, &rights[i]), 0);
}

/* *data_bytes: of what a limit on data counts, and the stack. */
static uint64_t mapped_gib(uint64_t *data_bytes) {
    unsigned long pages = 0, data_pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    EXPECT(file != NULL && fscanf(file, "%lu %*u %*u %*u %*u %lu", &pages, &data_pages) == 2);
    fclose(file);
    *data_bytes = (uint64_t)data_pages * page_bytes;
    return (uint64_t)pages * page_bytes >> 30;
}

/* In a process that has not asked. What the question leaves would be address space of no use for as long as the process lives. */
static void ask_and_tidy(void *argument) {
    uint64_t data_bytes, ignored, before = mapped_gib(&data_bytes);
    bool charged = platform_commit_is_charged();
    EXPECT(mapped_gib(&ignored) > before || charged);
    EXPECT(setrlimit(RLIMIT_DATA, &(struct rlimit){data_bytes + GIB, RLIM_INFINITY}) == 0);
    void *other = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT(other != MAP_FAILED && munmap(other, MIB) == 0);
    errno = 77;
    platform_commit_asked();
    EXPECT(mapped_gib(&ignored) == before && errno == 77);
    EXPECT(platform_commit_is_charged() == charged);
    platform_commit_asked();
    EXPECT(mapped_gib(&ignored) == before && argument == NULL);
}

static void what_a_question_leaves_goes_back(void **state) {
    (void)state;
    assert_int_equal(child_status(ask_and_tidy, NULL), 0);
}

/* What is mostly present is cleared and stays; what is mostly absent is dropped, and nothing is made present. */
static void zeroing_makes_nothing_present(void **state) {
    (void)state;
    enum { STEP = 512, STEPS = 20 };
    size_t bytes = STEP * STEPS * page_bytes, count = 0;
    unsigned char *present = malloc(STEP * STEPS);
    char *range = platform_reserve(NULL, bytes, page_bytes);
    assert_non_null(present);
    assert_non_null(range);
    assert_true(platform_commit(range, bytes));
    platform_advise_huge(range, bytes, false);
    for (size_t step = 0; step < STEPS; step += 3) /* in every third step a few pages, in every sixth nearly all */
        for (size_t i = 0; i < STEP; i += step % 2 == 0 ? 1 : 100) range[(step * STEP + i) * page_bytes + 7] = 1;
    errno = 77;
    platform_zero(range, bytes);
    assert_int_equal(errno, 77);
    assert_int_equal(mincore(range, bytes, present), 0);
    for (size_t i = 0; i < STEP * STEPS; i++) {
        bool dense = i / STEP % 6 == 0;
        assert_int_equal(present[i] & 1, dense);
        count += dense;
    }
    assert_true(count != 0);
    for (size_t i = 0; i < bytes; i++)
        if (range[i] != 0) fail_msg("byte %zu is not zero", i);
    platform_unreserve(range, bytes);
    free(present);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_range_of_one_mapping_moves),
        cmocka_unit_test(zeroing_makes_nothing_present),
        cmocka_unit_test(a_range_of_several_mappings_moves),
        cmocka_unit_test(pages_that_are_not_there_move_too),
        cmocka_unit_test(a_lowered_limit_refuses_and_loses_nothing),
        cmocka_unit_test(a_move_without_mappings_loses_nothing),
        cmocka_unit_test(contents_wander_unhurt),
        cmocka_unit_test(contents_wander_unhurt_where_nothing_is_let_go),
        cmocka_unit_test(locked_pages_go_back),
        cmocka_unit_test(whether_committed_memory_costs_is_known),
        cmocka_unit_test(what_a_question_leaves_goes_back),
    };
    ranges_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
