/*
 * odd_ends.c - processes that leave main, their files or a crash behind, and go on.
 *
 *   odd_ends leave self|child   main ends by pthread_exit while a detached thread goes on for a moment; child: the same in the child of a
 *                               fork by a thread, whose first thread is the one that forked
 *   odd_ends close              closes all files but the standard ones, as daemons do, and has its own under the same numbers
 *   odd_ends abort fork|trim|jump   has it found that a small object was freed twice; its handler of SIGABRT forks, trims, or jumps out
 *
 * In the first two strata's maintenance thread is there, which must not keep the process alive nor touch the program's files.
 */
#include "stress/support.h"

#include <malloc.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/eventfd.h>
#include <sys/wait.h>

enum { FILL_BLOCKS = 130000, FILL_BYTES = 600 };

/* Past the 64 MiB at which the maintenance thread starts by itself, and back. */
static void fill_heap(void) {
    static void *blocks[FILL_BLOCKS];
    for (size_t i = 0; i < FILL_BLOCKS; i++) blocks[i] = block_new(FILL_BYTES, i, "fill");
    for (size_t i = 0; i < FILL_BLOCKS; i++) block_delete(blocks[i], FILL_BYTES, i, "fill");
}

/* Without strata's thread, nothing would be tested. */
static void expect_threads(size_t count) {
    if (strata_expected() && status_kib("Threads:") != count) fail("%zu threads, not %zu", status_kib("Threads:"), count);
}

/* ------------------------------------------------------------------ main ends first */

static void *linger(void *argument) {
    sleep_ms(200);
    fill_heap();
    return argument;
}

__attribute__((noreturn)) static void leave_by_exit_of_thread(size_t threads) {
    pthread_t thread;
    fill_heap();
    expect_threads(threads);
    REQUIRE(pthread_create(&thread, NULL, linger, NULL) == 0);
    REQUIRE(pthread_detach(thread) == 0);
    pthread_exit(NULL);
}

static void *fork_and_wait(void *argument) {
    fill_heap();
    pid_t pid = fork();
    REQUIRE(pid >= 0);
    if (pid == 0) leave_by_exit_of_thread(2);
    int status = 0;
    REQUIRE(waitpid(pid, &status, 0) == pid);
    if (status != 0) fail("the child ended with status %#x", (unsigned)status);
    return argument;
}

static int leave(const char *who) {
    if (strcmp(who, "self") == 0) leave_by_exit_of_thread(2);
    pthread_t thread;
    REQUIRE(pthread_create(&thread, NULL, fork_and_wait, NULL) == 0);
    REQUIRE(pthread_join(thread, NULL) == 0);
    puts("the child has ended");
    return 0;
}

/* ------------------------------------------------------------------ all files closed */

static int close_all(void) {
    enum { NUMBERS = 1024, OWN = 300 };
    int files[OWN], highest = -1;
    size_t closed = 0;
    fill_heap();
    expect_threads(2);
    sleep_ms(100); /* until the thread has opened its files */
    for (int number = 3; number < NUMBERS; number++)
        if (close(number) == 0) {
            closed++;
            highest = number;
        }
    for (int i = 0; i < OWN; i++) {
        files[i] = eventfd((unsigned)i + 1, EFD_NONBLOCK | EFD_CLOEXEC);
        REQUIRE(files[i] >= 0);
    }
    /* Files that have been reopened since lie above. */
    if (highest > files[OWN - 1]) fail("own files end at %d, strata's at %d: nothing is tested", files[OWN - 1], highest);
    for (int turn = 0; turn < 2; turn++) {
        fill_heap();
        sleep_ms(600);
    }
    for (int i = 0; i < OWN; i++) {
        uint64_t count = 0;
        errno = 0;
        ssize_t length = read(files[i], &count, sizeof count);
        if (length != (ssize_t)sizeof count || count != (uint64_t)i + 1)
            fail("eventfd %d: read gave %zd, count %llu and not %d, errno %d", files[i], length, (unsigned long long)count, i + 1, errno);
        REQUIRE(close(files[i]) == 0);
    }
    printf("closed=%zu\n", closed);
    return 0;
}

/* ------------------------------------------------------------------ crashes */

enum { KEPT = 64, AFTER = 100 };
static sigjmp_buf way_out;
static const char *handling;
static void *kept[KEPT];

/* By write, as the handler may have interrupted stdio. */
static void say(const char *text) { REQUIRE(write(STDOUT_FILENO, text, strlen(text)) == (ssize_t)strlen(text)); }

static size_t kept_bytes(size_t i) { return 1 + i * i * 20; }

/* What a crash reporter may do: blocks of before are read, changed in size and freed; new ones come. */
static void work_on(void) {
    for (size_t i = 0; i < KEPT; i++) {
        pattern_check_as(kept[i], &kept[i], kept_bytes(i), kept_bytes(i), i, "after the misuse");
        kept[i] = realloc(kept[i], kept_bytes(i) * 2);
        REQUIRE(kept[i] != NULL);
        pattern_check_as(kept[i], &kept[i], kept_bytes(i), kept_bytes(i), i, "realloc after the misuse");
        free(kept[i]);
    }
    for (size_t i = 0; i < AFTER; i++) block_delete(block_new(1 + i * 1000, i, "after"), 1 + i * 1000, i, "after");
}

static void fork_and_work(void) {
    pid_t pid = fork();
    REQUIRE(pid >= 0);
    if (pid == 0) {
        work_on();
        _exit(0);
    }
    int status = -1;
    REQUIRE(waitpid(pid, &status, 0) == pid);
    if (status != 0) fail("the handler's child ended with status %#x", (unsigned)status);
}

static void on_abort(int number) {
    (void)number;
    if (strcmp(handling, "jump") == 0) siglongjmp(way_out, 1);
    if (strcmp(handling, "fork") == 0)
        fork_and_work();
    else
        malloc_trim(0);
    work_on();
    say("handled\n");
}

static void *allocate(void *argument) {
    free(argument);
    return malloc(10000);
}

static int go_on(void) {
    pthread_t thread;
    void *got;
    fork_and_work();
    work_on();
    malloc_trim(0);
    REQUIRE(pthread_create(&thread, NULL, allocate, malloc(100)) == 0);
    REQUIRE(pthread_join(thread, &got) == 0);
    free(got);
    say("went on\n");
    return 0;
}

/* A cache takes the object back unseen. */
static void *free_twice(void *argument) {
    void *volatile object = malloc(64);
    free(object);
    free(object);
    return argument;
}

/*
 * Found while locks are held: by malloc_trim where caches belong to CPUs, else at the end of the thread whose cache it is. One that jumps back
 * into main has to be there.
 */
static int crash(const char *how) {
    handling = how;
    for (size_t i = 0; i < KEPT; i++) {
        kept[i] = malloc(kept_bytes(i));
        REQUIRE(kept[i] != NULL);
        pattern_fill_as(kept[i], &kept[i], kept_bytes(i), i);
    }
    struct sigaction action = {.sa_handler = on_abort};
    REQUIRE(sigaction(SIGABRT, &action, NULL) == 0);
    if (sigsetjmp(way_out, 1) != 0) return go_on();
    pthread_t thread;
    if (strcmp(how, "jump") == 0) {
        free_twice(NULL);
    } else {
        REQUIRE(pthread_create(&thread, NULL, free_twice, NULL) == 0);
        REQUIRE(pthread_join(thread, NULL) == 0);
    }
    malloc_trim(0);
    say("survived\n");
    return 0;
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    if (strcmp(what, "leave") == 0 && argc == 3) return leave(argv[2]);
    if (strcmp(what, "close") == 0) return close_all();
    if (strcmp(what, "abort") == 0 && argc == 3) return crash(argv[2]);
    fail("odd_ends: nothing to do for %s", what);
}
