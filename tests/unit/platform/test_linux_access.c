/*
 * test_linux_access.c - pages without access rights on the real system: what is nobody's reaches the program's own handler of SIGSEGV as though there
 * were none in front of it, and ours is in place when it is said to be.
 */
#define _GNU_SOURCE 1
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>

#include "linux_test.h"

#define PAGES 4
enum { OWN, FOREIGN, OTHER }; /* pages that are served, and one that is not */

static char *memory; /* without access; shared with the child that is tested: its pages, and behind them what it counts */
static size_t page;
static volatile uint32_t *count;

static bool serve(char *at, bool write) {
    (void)write;
    return (at == memory + OWN * page || at == memory + OTHER * page) && platform_protect(at, page, PLATFORM_ACCESS_ALL);
}
static bool serve_too(char *at, bool write) { return serve(at, write); }

static void begin(void) {
    platform_init();
    page = platform_info()->page_bytes;
    memory = mmap(NULL, (PAGES + 1) * page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    assert_true(platform_protect(memory, PAGES * page, PLATFORM_ACCESS_NONE));
    count = (volatile uint32_t *)(void *)(memory + PAGES * page);
}
static void end(void) { munmap(memory, (PAGES + 1) * page); }

static void set_handler(void (*handler)(int), int flags, int blocked) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    sigemptyset(&action.sa_mask);
    if (blocked != 0) sigaddset(&action.sa_mask, blocked);
    EXPECT(sigaction(SIGSEGV, &action, NULL) == 0);
    EXPECT(platform_on_access_fault(serve));
    alarm(20); /* where nothing else ends it */
}
static void touch(unsigned number) { *(volatile char *)(memory + number * page) = 1; }

static void only_count(int number) {
    (void)number;
    ++*count;
}

/* As reporters of crashes do: the second time, the access ends the process. */
static void met_once(void *unused) {
    (void)unused;
    set_handler(only_count, (int)SA_RESETHAND, 0);
    touch(OWN);
    touch(FOREIGN);
}
static void a_handler_that_is_called_once_is(void **state) {
    (void)state;
    begin();
    const int status = child_status(met_once, NULL);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGSEGV);
    assert_int_equal(*count, 1);
    end();
}

static sigjmp_buf way_out;
static void jump_out(int number) {
    (void)number;
    siglongjmp(way_out, 1);
}
static void jump_twice(void *unused) {
    (void)unused;
    set_handler(jump_out, SA_NODEFER, 0);
    for (volatile unsigned turn = 0; turn < 2; ++turn)
        if (sigsetjmp(way_out, 0) == 0) { /* the thread's mask stays what it is in the handler */
            touch(FOREIGN);
            _exit(250);
        }
    touch(OTHER);
}
static void a_handler_may_jump_out_that_blocks_nothing(void **state) {
    (void)state;
    begin();
    assert_int_equal(child_status(jump_twice, NULL), 0);
    end();
}

static bool is_blocked(int number) {
    sigset_t mask;
    EXPECT(pthread_sigmask(SIG_SETMASK, NULL, &mask) == 0);
    return sigismember(&mask, number) == 1;
}
static void look_at_mask(int number) {
    (void)number;
    EXPECT(is_blocked(SIGUSR1) && is_blocked(SIGSEGV) && !is_blocked(SIGUSR2));
    EXPECT(platform_protect(memory + FOREIGN * page, page, PLATFORM_ACCESS_ALL));
    ++*count;
}
static void meet_with_mask(void *unused) {
    (void)unused;
    set_handler(look_at_mask, 0, SIGUSR1);
    touch(FOREIGN);
    EXPECT(*count == 1 && !is_blocked(SIGUSR1) && !is_blocked(SIGSEGV));
}
static void a_handler_has_the_mask_that_it_wants(void **state) {
    (void)state;
    begin();
    assert_int_equal(child_status(meet_with_mask, NULL), 0);
    end();
}

static void ignore_one(void *unused) {
    (void)unused;
    set_handler(SIG_IGN, 0, 0);
    EXPECT(raise(SIGSEGV) == 0);
    touch(OTHER);
}
static void what_is_sent_to_who_ignores_it_changes_nothing(void **state) {
    (void)state;
    begin();
    assert_int_equal(child_status(ignore_one, NULL), 0);
    end();
}

/* Two begin at the same time. */
static uint32_t ready;
static void *begin_to_serve(void *argument) {
    const bool first = argument != NULL;
    __atomic_fetch_add(&ready, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&ready, __ATOMIC_SEQ_CST) != 2) continue;
    EXPECT(platform_on_access_fault(first ? serve : serve_too));
    touch(first ? OWN : OTHER);
    return NULL;
}
static void begin_at_once(void *unused) {
    pthread_t other;
    (void)unused;
    EXPECT(pthread_create(&other, NULL, begin_to_serve, NULL) == 0);
    begin_to_serve(&other);
    EXPECT(pthread_join(other, NULL) == 0);
}
static void ours_is_in_place_for_both_who_begin_at_once(void **state) {
    (void)state;
    begin();
    for (unsigned turn = 0; turn < 300; turn++) {
        assert_int_equal(child_status(begin_at_once, NULL), 0);
    }
    end();
}

/* What the child of a fork has where another thread of the parent put ours in place while it was made: memory that says so, and no handler. */
static void fork_in_between(void *unused) {
    (void)unused;
    platform_access_fork_prepare();
    EXPECT(platform_on_access_fault(serve));
    EXPECT(signal(SIGSEGV, SIG_DFL) != SIG_ERR);
    platform_access_fork_child();
    EXPECT(platform_on_access_fault(serve));
    touch(OWN);
    /* What was in place before is as the program has it: its handler of later, which asks ours, is not in front of itself. */
    EXPECT(signal(SIGSEGV, SIG_DFL) != SIG_ERR);
    platform_access_fork_prepare();
    platform_access_fork_child();
    EXPECT(platform_on_access_fault(serve));
    EXPECT(signal(SIGSEGV, SIG_DFL) == SIG_DFL);
}
static void what_a_fork_may_have_missed_is_looked_at(void **state) {
    (void)state;
    begin();
    assert_int_equal(child_status(fork_in_between, NULL), 0);
    end();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_handler_that_is_called_once_is),
        cmocka_unit_test(a_handler_may_jump_out_that_blocks_nothing),
        cmocka_unit_test(a_handler_has_the_mask_that_it_wants),
        cmocka_unit_test(what_is_sent_to_who_ignores_it_changes_nothing),
        cmocka_unit_test(ours_is_in_place_for_both_who_begin_at_once),
        cmocka_unit_test(what_a_fork_may_have_missed_is_looked_at),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
