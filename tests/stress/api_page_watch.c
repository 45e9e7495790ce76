/*
 * api_page_watch.c - watched pages (strata/page_watch.h) on the real system, by userfaultfd, by signals, and where a seccomp filter forbids
 * userfaultfd: each page told once, before it changes, by many threads at once; reads; what ends a watch; handlers that touch, unwatch; fork; system
 * calls; the program's own SIGSEGV handler; every wrong argument.
 *
 * Runs itself four times, as the mechanism is chosen at start. api_page_watch [MODE] runs one: auto, protect, signals, forbidden. What userfaultfd's
 * watches for reads have of their own is in api_page_watch_away.c.
 */
#define _GNU_SOURCE 1
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <strata/malloc.h>
#include <strata/page.h>
#include <strata/page_watch.h>
#include <strata/strata.h>

#define PAGES 64
#define THREADS 4
#define ROUNDS 20

#define REQUIRE(condition)                                                                                             \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: mode %s: not true: %s (errno %d)\n", __FILE__, __LINE__, mode, #condition, errno); \
            _exit(1);                                                                                                  \
        }                                                                                                              \
    } while (0)

static const char *mode = "all";
static size_t page_bytes;
static volatile char *block;
static bool expect_faults; /* userfaultfd is to be had */

/* What the handler was told. */
static struct tale {
    unsigned writes[PAGES], reads[PAGES], ends;
    char before[PAGES]; /* the first byte of the page, as the handler saw it */
    pthread_t on;
    bool touches, leaves; /* the handler writes to the next page; unwatches */
} tale;

/* The fault orders what it does with what the thread that met the page does before and after: ThreadSanitizer does not know of that. */
__attribute__((no_sanitize("thread"))) static void told(const struct strata_watch_event *event, void *argument) {
    struct tale *mine = argument;
    size_t index = (size_t)((char *)event->address - (char *)block) / page_bytes;
    mine->on = pthread_self();
    if (event->kind == STRATA_WATCH_ENDED) {
        __atomic_fetch_add(&mine->ends, 1, __ATOMIC_RELEASE);
        return;
    }
    REQUIRE(event->bytes == page_bytes && index < PAGES);
    if (event->kind == STRATA_WATCH_WRITES) {
        mine->before[index] = *(const volatile char *)event->contents;
        REQUIRE(block[index * page_bytes] == mine->before[index]); /* at its own address too, where others may read it then */
        __atomic_fetch_add(&mine->writes[index], 1, __ATOMIC_RELAXED);
    } else {
        __atomic_fetch_add(&mine->reads[index], 1, __ATOMIC_RELAXED);
    }
    if (mine->touches) block[(index + 1) * page_bytes] = 77;
    if (mine->leaves) strata_page_unwatch(event->watch);
    free(malloc(100));
}

static void new_block(void) {
    void *made;
    REQUIRE(strata_page_alloc(PAGES * page_bytes, STRATA_PAGE_ZEROED, &made) == STRATA_PAGE_OK);
    block = made;
    memset(&tale, 0, sizeof tale);
}
static void drop_block(void) { REQUIRE(strata_page_free((void *)block) == STRATA_PAGE_OK); }

static struct strata_watch *watch_all(unsigned kinds) {
    struct strata_watch *watch = NULL;
    enum strata_watch_status status = strata_page_watch((void *)block, PAGES * page_bytes, kinds, told, &tale, &watch);
    if (status != STRATA_WATCH_OK) fprintf(stderr, "%s\n", strata_watch_status_text(status));
    REQUIRE(status == STRATA_WATCH_OK && watch != NULL);
    return watch;
}
static struct strata_watch_info info_of(struct strata_watch *watch) {
    struct strata_watch_info info;
    strata_page_watch_info(watch, &info);
    return info;
}
static void wait_for_ends(unsigned ends) {
    for (unsigned i = 0; i < 5000 && __atomic_load_n(&tale.ends, __ATOMIC_ACQUIRE) != ends; i++) usleep(1000);
    REQUIRE(tale.ends == ends);
}

/* ------------------------------------------------------------------ what is told */

static void each_page_is_told_once_before_it_changes(void) {
    new_block();
    for (size_t i = 0; i < PAGES / 2; i++) block[i * page_bytes] = (char)(i + 1); /* the others are absent */
    struct strata_watch *watch = watch_all(STRATA_WATCH_WRITES);
    REQUIRE(info_of(watch).userfaultfd == expect_faults);
    for (size_t i = 0; i < PAGES; i++) REQUIRE(block[i * page_bytes] == (i < PAGES / 2 ? (char)(i + 1) : 0)); /* reads are free */
    for (size_t i = 0; i < PAGES; i += 2) block[i * page_bytes] = 99;
    for (size_t i = 0; i < PAGES; i += 2) block[i * page_bytes] = 98;
    for (size_t i = 0; i < PAGES; i++) {
        REQUIRE(tale.writes[i] == (i % 2 == 0) && tale.reads[i] == 0);
        REQUIRE(tale.before[i] == (i % 2 == 0 && i < PAGES / 2 ? (char)(i + 1) : 0));
    }
    REQUIRE(!pthread_equal(tale.on, pthread_self()));
    REQUIRE(strata_page_rearm(watch, (char *)block + 4 * page_bytes, page_bytes) == STRATA_WATCH_OK);
    block[0] = block[4 * page_bytes] = 5;
    REQUIRE(tale.writes[0] == 1 && tale.writes[4] == 2 && tale.before[4] == 98);
    REQUIRE(info_of(watch).writes == PAGES / 2 + 1 && info_of(watch).reads == 0 && !info_of(watch).ended);
    strata_page_unwatch(watch);
    block[page_bytes] = 1;
    REQUIRE(tale.writes[1] == 0);
    drop_block();
}

static void *write_everywhere(void *argument) {
    size_t mine = (size_t)(uintptr_t)argument;
    for (size_t i = 0; i < PAGES; i++) block[((i + mine * 7) % PAGES) * page_bytes + mine] = (char)(mine + 1);
    return NULL;
}

static void threads_write_at_once(void) {
    new_block();
    struct strata_watch *watch = watch_all(STRATA_WATCH_WRITES);
    for (unsigned round = 1; round <= ROUNDS; round++) {
        pthread_t threads[THREADS];
        for (uintptr_t t = 0; t < THREADS; t++) REQUIRE(pthread_create(&threads[t], NULL, write_everywhere, (void *)t) == 0);
        for (unsigned t = 0; t < THREADS; t++) REQUIRE(pthread_join(threads[t], NULL) == 0);
        for (size_t i = 0; i < PAGES; i++) {
            REQUIRE(tale.writes[i] == round);
            for (size_t t = 0; t < THREADS; t++) REQUIRE(block[i * page_bytes + t] == (char)(t + 1));
        }
        REQUIRE(strata_page_rearm(watch, (void *)block, PAGES * page_bytes) == STRATA_WATCH_OK);
    }
    strata_page_unwatch(watch);
    drop_block();
}

static void reads_are_told_and_then_writes(void) {
    new_block();
    block[page_bytes] = 9;
    struct strata_watch *watch = watch_all(STRATA_WATCH_READS | STRATA_WATCH_WRITES);
    REQUIRE(block[0] == 0 && block[page_bytes] == 9 && block[page_bytes + 1] == 0);
    REQUIRE(tale.reads[0] == 1 && tale.reads[1] == 1 && tale.writes[0] == 0 && tale.writes[1] == 0);
    block[page_bytes] = 8;
    block[page_bytes] = 7;
    REQUIRE(tale.reads[1] == 1 && tale.writes[1] == 1 && tale.before[1] == 9);
    strata_page_unwatch(watch);
    memset(&tale, 0, sizeof tale);
    watch = watch_all(STRATA_WATCH_READS);
    REQUIRE(block[page_bytes] == 7);
    block[page_bytes] = 6;
    block[3 * page_bytes] = 3; /* the first access, whatever it is */
    REQUIRE(tale.reads[1] == 1 && tale.writes[1] == 0 && tale.reads[3] + tale.writes[3] == 1);
    strata_page_unwatch(watch);
    REQUIRE(block[page_bytes] == 6 && block[3 * page_bytes] == 3);
    drop_block();
}

/* ------------------------------------------------------------------ what the handler does */

/* ------------------------------------------------------------------ snapshots by another thread */

#define SNAPSHOT_PAGE 3
static unsigned held, let_go;
static void tell_and_hold(const struct strata_watch_event *event, void *argument) {
    told(event, argument);
    if (event->kind == STRATA_WATCH_ENDED) return;
    REQUIRE(((const volatile char *)event->address)[1] == 'a'); /* looks at it where it is, too */
    __atomic_fetch_add(&held, 1, __ATOMIC_RELEASE);
    while (__atomic_load_n(&let_go, __ATOMIC_ACQUIRE) == 0) usleep(100);
}

static void *write_one(void *argument) {
    (void)argument;
    block[SNAPSHOT_PAGE * page_bytes] = 'b';
    return NULL;
}

/* Who rearms and copies while a write is being told has the page as it was; the write is then told again, as it belongs to the next copy. */
static void a_write_under_way_is_told_again_after_a_rearm(unsigned kinds) {
    struct strata_watch *watch;
    pthread_t writer;
    new_block();
    for (size_t i = 0; i < PAGES * page_bytes; i++) block[i] = 'a';
    memset(&tale, 0, sizeof tale);
    held = let_go = 0;
    REQUIRE(strata_page_watch((void *)block, PAGES * page_bytes, kinds, tell_and_hold, &tale, &watch) == STRATA_WATCH_OK);
    REQUIRE(pthread_create(&writer, NULL, write_one, NULL) == 0);
    while (__atomic_load_n(&held, __ATOMIC_ACQUIRE) == 0) usleep(100);
    REQUIRE(strata_page_rearm(watch, (void *)block, PAGES * page_bytes) == STRATA_WATCH_OK);
    __atomic_store_n(&let_go, 1, __ATOMIC_RELEASE);
    REQUIRE(pthread_join(writer, NULL) == 0);
    REQUIRE(tale.writes[SNAPSHOT_PAGE] == 2 && block[SNAPSHOT_PAGE * page_bytes] == 'b');
    strata_page_unwatch(watch);
    drop_block();
}

static void a_handler_may_touch_and_unwatch(void) {
    for (unsigned kinds = STRATA_WATCH_WRITES; kinds <= (STRATA_WATCH_WRITES | STRATA_WATCH_READS); kinds++) {
        new_block();
        struct strata_watch *watch = watch_all(kinds);
        tale.touches = true;
        block[0] = 1;
        REQUIRE(block[0] == 1 && block[page_bytes] == 77);
        block[page_bytes] = 2; /* counts as told */
        REQUIRE(tale.writes[1] + tale.reads[1] == 0);
        tale.touches = false;
        tale.leaves = true;
        block[2 * page_bytes] = 3;
        block[3 * page_bytes] = 4;
        REQUIRE(tale.writes[2] + tale.reads[2] == 1 && tale.writes[3] + tale.reads[3] == 0 && block[2 * page_bytes] == 3);
        (void)watch; /* gone */
        drop_block();
    }
}

static uint32_t stop;
static void *write_on(void *argument) {
    for (size_t i = 0; __atomic_load_n(&stop, __ATOMIC_RELAXED) == 0; i++) block[i % PAGES * page_bytes + (size_t)(uintptr_t)argument] = 1;
    return NULL;
}

static void watches_come_and_go_while_threads_write(void) {
    pthread_t threads[THREADS];
    new_block();
    stop = 0;
    for (uintptr_t t = 0; t < THREADS; t++) REQUIRE(pthread_create(&threads[t], NULL, write_on, (void *)t) == 0);
    for (unsigned round = 0; round < 10 * ROUNDS; round++) {
        struct strata_watch *watch = watch_all(round % 2 == 0 ? STRATA_WATCH_WRITES : STRATA_WATCH_READS | STRATA_WATCH_WRITES);
        usleep(round % 5 * 100);
        if (round % 3 == 0) REQUIRE(strata_page_rearm(watch, (void *)block, PAGES * page_bytes) == STRATA_WATCH_OK);
        strata_page_unwatch(watch);
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    for (unsigned t = 0; t < THREADS; t++) REQUIRE(pthread_join(threads[t], NULL) == 0);
    drop_block();
}

/* ------------------------------------------------------------------ ends */

static void what_goes_elsewhere_is_not_watched_any_more(void) {
    for (unsigned kinds = STRATA_WATCH_WRITES; kinds <= (STRATA_WATCH_WRITES | STRATA_WATCH_READS); kinds++) {
        for (int way = 0; way < 8; way++) {
            void *other = NULL, *moved;
            new_block();
            moved = (void *)block;
            REQUIRE(strata_page_alloc(PAGES * page_bytes, STRATA_PAGE_ZEROED, &other) == STRATA_PAGE_OK);
            memset((void *)block, 3, PAGES * page_bytes);
            memset(other, 4, PAGES * page_bytes);
            struct strata_watch *watch = watch_all(kinds);
            switch (way) {
            case 0: REQUIRE(strata_page_free(moved) == STRATA_PAGE_OK); break;
            case 1: REQUIRE(strata_page_realloc(&moved, 64 * PAGES * page_bytes, 0) == STRATA_PAGE_OK); break;
            case 2: REQUIRE(strata_page_realloc(&moved, page_bytes, 0) == STRATA_PAGE_OK); break;
            case 3: REQUIRE(strata_page_release((char *)moved + page_bytes, page_bytes) == STRATA_PAGE_OK); break;
            case 4: REQUIRE(strata_page_swap(other, moved, PAGES * page_bytes) == STRATA_PAGE_OK); break;
            case 5: REQUIRE(strata_page_move(moved, other, PAGES * page_bytes) == STRATA_PAGE_OK); break;
            case 6: REQUIRE(strata_page_move(other, moved, 2 * page_bytes) == STRATA_PAGE_OK); break;
            default: strata_free(moved); break;
            }
            REQUIRE(info_of(watch).ended);
            wait_for_ends(1);
            REQUIRE(strata_page_rearm(watch, (void *)block, page_bytes) == STRATA_WATCH_GONE);
            if (way != 0 && way != 7) {
                memset(moved, 5, page_bytes); /* of whom it is now */
                REQUIRE(strata_page_free(moved) == STRATA_PAGE_OK);
            }
            strata_page_unwatch(watch);
            for (size_t i = 0; i < PAGES; i++) REQUIRE(tale.writes[i] + tale.reads[i] == 0);
            memset(other, 6, PAGES * page_bytes);
            REQUIRE(strata_page_free(other) == STRATA_PAGE_OK);
            REQUIRE(strata_check() == NULL);
        }
    }
}

static void splitting_and_joining_leave_it(void) {
    void *second;
    new_block();
    struct strata_watch *watch = watch_all(STRATA_WATCH_WRITES);
    REQUIRE(strata_page_split((void *)block, 8 * page_bytes, &second) == STRATA_PAGE_OK);
    block[0] = block[8 * page_bytes] = 1;
    REQUIRE(tale.writes[0] == 1 && tale.writes[8] == 1);
    REQUIRE(strata_page_free(second) == STRATA_PAGE_OK); /* the whole watch ends */
    wait_for_ends(1);
    strata_page_unwatch(watch);
    drop_block();
}

static void a_child_is_not_watched(void) {
    new_block();
    struct strata_watch *watch = watch_all(STRATA_WATCH_WRITES);
    struct strata_watch *reads = NULL;
    void *other;
    REQUIRE(strata_page_alloc(page_bytes, 0, &other) == STRATA_PAGE_OK);
    REQUIRE(strata_page_watch(other, page_bytes, STRATA_WATCH_READS | STRATA_WATCH_WRITES, told, &tale, &reads) == STRATA_WATCH_OK);
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        alarm(20);
        block[0] = 1;
        *(volatile char *)other = 1;
        REQUIRE(tale.writes[0] == 0 && info_of(watch).ended && info_of(reads).ended);
        strata_page_unwatch(watch);
        strata_page_unwatch(reads);
#ifndef __SANITIZE_THREAD__                     /* which starts no thread in the child of a process of many */
        watch = watch_all(STRATA_WATCH_WRITES); /* of its own */
        block[page_bytes] = 1;
        REQUIRE(tale.writes[1] == 1 && tale.ends == 0);
        strata_page_unwatch(watch);
#endif
        _exit(0);
    }
    int status;
    REQUIRE(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    block[0] = 2;
    REQUIRE(tale.writes[0] == 1 && tale.writes[1] == 0); /* the parent's goes on */
    strata_page_unwatch(reads);
    strata_page_unwatch(watch);
    REQUIRE(strata_page_free(other) == STRATA_PAGE_OK);
    drop_block();
}

/* ------------------------------------------------------------------ the system's side */

static void a_system_call_waits_or_fails(void) {
    int ends[2];
    new_block();
    block[0] = 1;
    struct strata_watch *watch = watch_all(STRATA_WATCH_WRITES);
    REQUIRE(pipe(ends) == 0 && write(ends[1], "x", 1) == 1);
    if (info_of(watch).in_kernel) {
        REQUIRE(read(ends[0], (void *)block, 1) == 1 && block[0] == 'x' && tale.writes[0] == 1 && tale.before[0] == 1);
    } else {
        REQUIRE(read(ends[0], (void *)block, 1) == -1 && errno == EFAULT && tale.writes[0] == 0);
        block[0] = 1;
        REQUIRE(read(ends[0], (void *)block, 1) == 1 && block[0] == 'x' && tale.writes[0] == 1);
    }
    close(ends[0]);
    close(ends[1]);
    REQUIRE(strata_page_commit((void *)block, PAGES * page_bytes) == STRATA_PAGE_OK); /* a write to each page */
    for (size_t i = 0; i < PAGES; i++) REQUIRE(tale.writes[i] == 1);
    strata_page_unwatch(watch);
    drop_block();
}

static sigjmp_buf back;
static unsigned own_signals;
static void own_handler(int number, siginfo_t *info, void *context) {
    (void)number, (void)context;
    REQUIRE(info->si_addr != NULL);
    own_signals++;
    siglongjmp(back, 1);
}

/* Installed before the first watch; what is not ours is its own. */
static void the_programs_own_signals_reach_it(void) {
    new_block();
    struct strata_watch *watch = watch_all(STRATA_WATCH_WRITES | STRATA_WATCH_READS);
    own_signals = 0;
    if (sigsetjmp(back, 1) == 0) *(volatile char *)(uintptr_t)page_bytes = 1; /* an address that nobody has */
    REQUIRE(own_signals == 1);
    block[0] = 1;
    REQUIRE(own_signals == 1 && tale.writes[0] == 1);
    strata_page_unwatch(watch);
    drop_block();
}

static void wrong_arguments_are_told(void) {
    struct strata_watch *watch = NULL, *second = NULL;
    char *start;
    void *small = strata_malloc(100);
    new_block();
    start = (char *)block;
    REQUIRE(strata_page_watch(start, page_bytes, STRATA_WATCH_WRITES, NULL, NULL, &watch) == STRATA_WATCH_BAD_ARGUMENT);
    REQUIRE(strata_page_watch(start, page_bytes, STRATA_WATCH_WRITES, told, NULL, NULL) == STRATA_WATCH_BAD_ARGUMENT);
    REQUIRE(strata_page_watch(start, page_bytes, 0, told, NULL, &watch) == STRATA_WATCH_BAD_ARGUMENT);
    REQUIRE(strata_page_watch(start, page_bytes, STRATA_WATCH_ENDED, told, NULL, &watch) == STRATA_WATCH_BAD_ARGUMENT);
    REQUIRE(strata_page_watch(start, 0, STRATA_WATCH_WRITES, told, NULL, &watch) == STRATA_WATCH_BAD_ARGUMENT);
    REQUIRE(strata_page_watch(start, 100, STRATA_WATCH_WRITES, told, NULL, &watch) == STRATA_WATCH_BAD_ARGUMENT);
    REQUIRE(strata_page_watch(start + 1, page_bytes, STRATA_WATCH_WRITES, told, NULL, &watch) == STRATA_WATCH_BAD_ARGUMENT);
    REQUIRE(strata_page_watch(start, (PAGES + 1) * page_bytes, STRATA_WATCH_WRITES, told, NULL, &watch) == STRATA_WATCH_NO_BLOCK);
    REQUIRE(strata_page_watch((void *)((uintptr_t)small & ~(uintptr_t)(page_bytes - 1)), page_bytes, STRATA_WATCH_WRITES, told, NULL, &watch) ==
            STRATA_WATCH_NO_BLOCK);
    REQUIRE(watch == NULL);
    watch = watch_all(STRATA_WATCH_WRITES);
    REQUIRE(strata_page_watch(start, page_bytes, STRATA_WATCH_WRITES, told, NULL, &second) == STRATA_WATCH_TAKEN);
    REQUIRE(strata_page_watch(start, page_bytes, STRATA_WATCH_READS, told, NULL, &second) == STRATA_WATCH_TAKEN);
    REQUIRE(second == NULL);
    REQUIRE(strata_page_rearm(NULL, start, page_bytes) == STRATA_WATCH_BAD_ARGUMENT);
    REQUIRE(strata_page_rearm(watch, start, 0) == STRATA_WATCH_BAD_ARGUMENT);
    REQUIRE(strata_page_rearm(watch, start + 8, page_bytes) == STRATA_WATCH_BAD_ARGUMENT);
    REQUIRE(strata_page_rearm(watch, start - page_bytes, page_bytes) == STRATA_WATCH_BAD_ARGUMENT);
    REQUIRE(strata_page_rearm(watch, start + page_bytes, PAGES * page_bytes) == STRATA_WATCH_BAD_ARGUMENT);
    REQUIRE(strata_page_rearm(watch, start, SIZE_MAX & ~(page_bytes - 1)) == STRATA_WATCH_BAD_ARGUMENT);
    strata_page_unwatch(watch);
    strata_page_unwatch(NULL);
    for (int i = 0; i <= STRATA_WATCH_GONE; i++) REQUIRE(strcmp(strata_watch_status_text((enum strata_watch_status)i), "unknown status") != 0);
    REQUIRE(strcmp(strata_watch_status_text((enum strata_watch_status) - 1), "unknown status") == 0);
    strata_free(small);
    drop_block();
}

/* ------------------------------------------------------------------ the modes */

/* userfaultfd fails with EPERM from here on, also in programs that this one becomes. */
static void forbid_userfaultfd(void) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_userfaultfd, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {sizeof filter / sizeof filter[0], filter};
    REQUIRE(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

static void run_mode(void) {
    struct sigaction own = {.sa_flags = SA_SIGINFO};
    own.sa_sigaction = own_handler;
    REQUIRE(sigaction(SIGSEGV, &own, NULL) == 0);
    page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    int file = (int)syscall(SYS_userfaultfd, 1 /* UFFD_USER_MODE_ONLY */);
    expect_faults = file >= 0 && strcmp(mode, "signals") != 0;
    if (file >= 0) close(file);
    REQUIRE(strcmp(mode, "forbidden") != 0 || !expect_faults);
    alarm(200);
    each_page_is_told_once_before_it_changes();
    threads_write_at_once();
    reads_are_told_and_then_writes();
    a_write_under_way_is_told_again_after_a_rearm(STRATA_WATCH_WRITES);
    a_write_under_way_is_told_again_after_a_rearm(STRATA_WATCH_WRITES | STRATA_WATCH_READS);
    a_handler_may_touch_and_unwatch();
    watches_come_and_go_while_threads_write();
    what_goes_elsewhere_is_not_watched_any_more();
    splitting_and_joining_leave_it();
    a_child_is_not_watched();
    a_system_call_waits_or_fails();
    the_programs_own_signals_reach_it();
    wrong_arguments_are_told();
    REQUIRE(strata_check() == NULL);
}

int main(int count, char **arguments) {
    if (count > 1) {
        mode = arguments[1];
        run_mode();
        return 0;
    }
    static const char *const modes[] = {"auto", "protect", "signals", "forbidden"};
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        pid_t child = fork();
        REQUIRE(child >= 0);
        if (child == 0) {
            if (strcmp(modes[i], "protect") == 0) setenv("STRATA_CONF", "watch:protect", 1);
            if (strcmp(modes[i], "signals") == 0) setenv("STRATA_CONF", "watch:signals", 1);
            if (strcmp(modes[i], "forbidden") == 0) forbid_userfaultfd();
            execl("/proc/self/exe", arguments[0], modes[i], (char *)NULL);
            _exit(127);
        }
        int status;
        REQUIRE(waitpid(child, &status, 0) == child);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
            fprintf(stderr, "mode %s: status %#x\n", modes[i], (unsigned)status);
            return 1;
        }
    }
    return 0;
}
