/*
 * api_paging_races.c - paged blocks whose file fails while several threads are at the same page.
 *
 * Protects: a page that had failed and is asked for anew shows nobody anything but its contents, and keeps what is written to it at that moment; and
 * a sync whose handler said RETRY waits for whoever began to write the page meanwhile, and knows what became of that. Each case in every way there
 * is.
 */
#define _GNU_SOURCE 1
#include <pthread.h>
#include <sys/syscall.h>

#include "paging_support.h"

/* ------------------------------------------------------------------ a page that is asked for anew */

enum { FAILING = 64, TOUCHERS = 2, FULL = 0x2b, ROUNDS = 500 };
static char *failing;
static bool stop, broken;
static unsigned long good, wrong, refused;
static _Thread_local sigjmp_buf own_place;
static _Thread_local volatile sig_atomic_t own_expected;

static void on_bus(int signal) {
    if (own_expected) siglongjmp(own_place, signal);
    abort();
}

/* In place of the C library's. */
ssize_t pread(int file, void *to, size_t bytes, off_t offset) {
    if (__atomic_load_n(&broken, __ATOMIC_RELAXED) && (size_t)offset == FAILING * page_bytes) {
        errno = EIO;
        return -1;
    }
    return syscall(SYS_pread64, file, to, bytes, offset);
}

/* One of them counts in the page, too: what it wrote is there, whether the page was in memory all the time or not. */
static void *touch_all_the_time(void *argument) {
    const bool counts = argument != NULL;
    static volatile char count;
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        own_expected = true;
        if (sigsetjmp(own_place, 1) == 0) {
            bool right = *(volatile char *)failing == FULL;
            if (counts) {
                ((volatile char *)failing)[1]++;
                count++;
                right &= ((volatile char *)failing)[1] == count;
            }
            __atomic_fetch_add(right ? &good : &wrong, 1, __ATOMIC_RELAXED);
        } else {
            __atomic_fetch_add(&refused, 1, __ATOMIC_RELAXED);
        }
        own_expected = false;
    }
    return NULL;
}

static void fail_and_mend(struct strata_paging *paging) {
    __atomic_store_n(&broken, true, __ATOMIC_RELAXED);
    while (stats_of(paging).failed == 0) { /* it stays where somebody is quicker */
        EXPECT(strata_paging_advise(paging, failing, page_bytes, STRATA_PAGING_DONT_NEED) == STRATA_PAGING_OK);
        sched_yield();
    }
    __atomic_store_n(&broken, false, __ATOMIC_RELAXED);
    EXPECT(strata_paging_advise(paging, failing, page_bytes, STRATA_PAGING_DONT_NEED) == STRATA_PAGING_OK);
    EXPECT(stats_of(paging).failed == 0);
}

static void test_asked_anew(void) {
    struct strata_paging_config config = usual();
    config.flags |= STRATA_PAGING_NO_READ_AHEAD | STRATA_PAGING_NO_IO_URING;
    unlink(path);
    struct strata_paging *paging = open_as(&config);
    failing = page_of(paging, FAILING);
    failing[0] = FULL;
    struct sigaction action = {.sa_handler = on_bus};
    EXPECT(sigaction(SIGBUS, &action, NULL) == 0);
    pthread_t touchers[TOUCHERS];
    for (int i = 0; i < TOUCHERS; i++) EXPECT(pthread_create(&touchers[i], NULL, touch_all_the_time, i == 0 ? NULL : paging) == 0);
    for (unsigned round = 0; round < ROUNDS && __atomic_load_n(&wrong, __ATOMIC_RELAXED) == 0; round++) fail_and_mend(paging);
    __atomic_store_n(&stop, true, __ATOMIC_RELAXED);
    for (int i = 0; i < TOUCHERS; i++) EXPECT(pthread_join(touchers[i], NULL) == 0);
    EXPECT(wrong == 0 && good != 0 && refused != 0);
    discard(paging);
}

/* ------------------------------------------------------------------ a sync, and another who writes */

/* In turn: the worker's write of the first page fails; its handler waits until the server has begun to write it; that fails, too, some time later. */
enum { CALM, SYNCING, FAILED, OTHER_WRITES, OTHER_FAILED };
static int stage;
static pid_t worker;

static bool stage_is(int wanted) { return __atomic_load_n(&stage, __ATOMIC_ACQUIRE) == wanted; }
static void stage_set(int next) { __atomic_store_n(&stage, next, __ATOMIC_RELEASE); }
/* Or a later one, where the machine is so busy that it is over when one looks. */
static void wait_for_stage(int wanted) {
    for (int i = 0; i < 20000 && __atomic_load_n(&stage, __ATOMIC_ACQUIRE) < wanted; i++) usleep(1000);
    EXPECT(__atomic_load_n(&stage, __ATOMIC_ACQUIRE) >= wanted);
}

ssize_t pwrite(int file, const void *from, size_t bytes, off_t offset) {
    if (offset == 0 && stage_is(SYNCING)) {
        worker = gettid();
        stage_set(FAILED);
        errno = EIO;
        return -1;
    }
    if (offset == 0 && stage_is(FAILED) && gettid() != worker) {
        stage_set(OTHER_WRITES);
        usleep(50000);
        stage_set(OTHER_FAILED);
        errno = EIO;
        return -1;
    }
    return syscall(SYS_pwrite64, file, from, bytes, offset);
}

static enum strata_paging_decision wait_and_retry(const struct strata_paging_error *error, void *argument) {
    (void)argument;
    if (gettid() == worker && stage_is(FAILED)) wait_for_stage(OTHER_WRITES);
    return error->write ? STRATA_PAGING_RETRY : STRATA_PAGING_GIVE_UP;
}

/* The first page, time and again. */
static enum strata_paging_action always_first(uint64_t *page, void *argument) {
    static unsigned turn;
    (void)argument;
    turn++;
    *page = turn % 2 == 0 ? 0 : turn / 2 % PAGES;
    return STRATA_PAGING_EVICT;
}

static void *want_room(void *argument) {
    while (!stage_is(FAILED)) usleep(100);
    for (unsigned i = LIMIT; i < PAGES && stage_is(FAILED); i++) (void)*(volatile char *)page_of(argument, i);
    return NULL;
}

static void test_other_writes(void) {
    static const struct strata_paging_policy policy = {.next = always_first};
    struct strata_paging_config config = usual();
    config.flags |= STRATA_PAGING_NO_READ_AHEAD | STRATA_PAGING_NO_IO_URING;
    config.policy = &policy;
    config.handler = wait_and_retry;
    config.resident_limit_bytes = config.dirty_limit_bytes = LIMIT / 2 * page_bytes;
    unlink(path);
    struct strata_paging *paging = open_as(&config);
    for (unsigned i = 1; i < LIMIT / 2; i++) (void)*(volatile char *)page_of(paging, i);
    page_of(paging, 0)[5] = 'x';
    pthread_t other;
    EXPECT(pthread_create(&other, NULL, want_room, paging) == 0);
    stage_set(SYNCING);
    EXPECT(strata_paging_sync(paging, NULL, 0) == STRATA_PAGING_OK);
    EXPECT(stage_is(OTHER_FAILED) && file_byte(0) == 'x');
    EXPECT(pthread_join(other, NULL) == 0);
    stage_set(CALM);
    discard(paging);
}

int main(void) {
    page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    snprintf(path, sizeof path, "/tmp/api_paging_races.%d", (int)getpid());
    static const unsigned ways[] = {0, STRATA_PAGING_BY_SIGNALS};
    for (unsigned i = 0; i < sizeof ways / sizeof *ways; i++) {
        way = ways[i];
        in_child(test_asked_anew);
        in_child(test_other_writes);
    }
    unlink(path);
    return 0;
}
