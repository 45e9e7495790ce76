/*
 * api_page_watch_away.c - watches for reads by userfaultfd on the real system, whose pages are away until they are told: threads that read, write and
 * hand pages to system calls while watches begin, are armed again and end, and while the process forks; pages that a child, a device or the shape of
 * mappings holds; a program that closes all files; no address space left.
 *
 * Protects: no byte is lost, by whichever way a page goes and comes back; every access is told before it is done; what can't go by moves goes by
 * access rights. Each case is a process of its own, with and without privilege, and once more with access rights only.
 */
#define _GNU_SOURCE 1
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <linux/userfaultfd.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include <strata/page_watch.h>

#include "forbid.h"
#include "own_process.h"
#include "pages_support.h"

enum { PAGES = 64, THREADS = 4, TURNS = 150, KINDS_BOTH = STRATA_WATCH_READS | STRATA_WATCH_WRITES };

static char *block;
static size_t block_pages;
static volatile unsigned told_reads[PAGES_MAX], told_writes[PAGES_MAX], ended;
static volatile char seen[PAGES_MAX]; /* the second byte of each page, as its handler saw it */
static volatile unsigned nap_us;      /* of the handler */

/* The fault orders what it does with what the thread that met the page does: ThreadSanitizer does not know of that. */
__attribute__((no_sanitize("thread"))) static void tell(const struct strata_watch_event *event, void *argument) {
    size_t page = (size_t)((char *)event->address - block) / page_bytes;
    EXPECT(argument == NULL);
    if (event->kind == STRATA_WATCH_ENDED) {
        __atomic_fetch_add(&ended, 1, __ATOMIC_RELAXED);
        return;
    }
    EXPECT(page < block_pages && event->bytes == page_bytes);
    __atomic_fetch_add(event->kind == STRATA_WATCH_READS ? &told_reads[page] : &told_writes[page], 1, __ATOMIC_RELAXED);
    seen[page] = ((const volatile char *)event->contents)[1];
    if (nap_us != 0) usleep(nap_us);
    char again = ((const volatile char *)event->contents)[1];
    EXPECT(again == seen[page]);
}

static char letter(size_t page) { return (char)('a' + page % 26); }

static void new_block(size_t pages) {
    void *made;
    EXPECT(strata_page_alloc(pages * page_bytes, STRATA_PAGE_ZEROED, &made) == STRATA_PAGE_OK);
    block = made;
    block_pages = pages;
    for (size_t i = 0; i < pages; i++) memset(block + i * page_bytes, letter(i), page_bytes);
}
static void forget(void) {
    for (size_t i = 0; i < PAGES_MAX; i++) told_reads[i] = told_writes[i] = 0, seen[i] = 0;
}
static bool holds(const char *contents, size_t page) { return contents[0] == letter(page) && contents[page_bytes - 1] == letter(page); }
static void check_block(const char *start) {
    for (size_t i = 0; i < block_pages; i++) EXPECT(holds(start + i * page_bytes, i));
}

static bool by_faults(const struct strata_watch *watch) {
    struct strata_watch_info info;
    strata_page_watch_info((struct strata_watch *)watch, &info);
    return info.userfaultfd;
}
/* Whether this is a process that may have it, and a system that moves pages. */
static bool faults_can_be_had(void) {
    struct uffdio_api api = {.api = UFFD_API};
    int file = (int)syscall(SYS_userfaultfd, O_CLOEXEC | 1 /* UFFD_USER_MODE_ONLY */);
    bool can = file >= 0 && ioctl(file, (int)UFFDIO_API, &api) == 0 && (api.features >> 16 & 1) != 0;
    if (file >= 0) close(file);
    return can && strstr(getenv("STRATA_CONF"), "watch:") == NULL;
}
static bool has_ended(struct strata_watch *watch) {
    struct strata_watch_info info;
    strata_page_watch_info(watch, &info);
    return info.ended;
}
static struct strata_watch *watch_block(unsigned kinds) {
    struct strata_watch *watch = NULL;
    EXPECT(strata_page_watch(block, block_pages * page_bytes, kinds, tell, NULL, &watch) == STRATA_WATCH_OK);
    return watch;
}

/* ------------------------------------------------------------------ what is told */

static void reads_and_writes(void) {
    new_block(PAGES);
    struct strata_watch *watch = watch_block(KINDS_BOTH);
    EXPECT(by_faults(watch) == faults_can_be_had());
    for (unsigned turn = 1; turn <= 3; turn++) {
        for (size_t i = 0; i < PAGES; i++) {
            char *page = block + i * page_bytes;
            EXPECT(holds(page, i) && told_reads[i] == (i % 2 == 0 ? turn : 1) && seen[i] == letter(i)); /* odd ones stay as they are */
            if (i % 2 == 0) *(volatile char *)page = letter(i);
            EXPECT(told_writes[i] == (i % 2 == 0 ? turn : 0));
        }
        for (size_t i = 0; i < PAGES; i += 2) EXPECT(strata_page_rearm(watch, block + i * page_bytes, page_bytes) == STRATA_WATCH_OK);
    }
    EXPECT(strata_page_rearm(watch, block, PAGES * page_bytes) == STRATA_WATCH_OK); /* away, and such as can be read only */
    strata_page_unwatch(watch);
    check_block(block);
}

static void system_calls(void) {
    struct strata_watch_info info;
    new_block(PAGES);
    struct strata_watch *watch = watch_block(KINDS_BOTH);
    strata_page_watch_info(watch, &info);
    int file = memfd_create("contents", MFD_CLOEXEC);
    size_t bytes = PAGES * page_bytes;
    ssize_t written = pwrite(file, block, bytes, 0);
    if (!info.in_kernel) {
        EXPECT(written < 0 && errno == EFAULT && told_reads[0] == 0);
        check_block(block); /* touched, and handed over then */
        written = pwrite(file, block, bytes, 0);
    }
    EXPECT(written == (ssize_t)bytes);
    char *copy = malloc(bytes);
    EXPECT(pread(file, copy, bytes, 0) == (ssize_t)bytes);
    check_block(copy);
    for (size_t i = 0; i < PAGES; i++) EXPECT(told_reads[i] == 1 && told_writes[i] == 0 && seen[i] == letter(i));
    EXPECT(strata_page_rearm(watch, block, bytes) == STRATA_WATCH_OK);
    if (info.in_kernel) {
        EXPECT(pread(file, block, bytes, 0) == (ssize_t)bytes);
        for (size_t i = 0; i < PAGES; i++) EXPECT(told_reads[i] == 1 && told_writes[i] == 1);
    }
    check_block(block);
    strata_page_unwatch(watch);
    EXPECT(pread(file, block, bytes, 0) == (ssize_t)bytes);
    check_block(block);
    free(copy);
    close(file);
}

/* ------------------------------------------------------------------ threads, and children */

/* Each thread has a word in every page, which counts up; `counts` says how far. A child may see one step more. */
static uint64_t counts[THREADS][PAGES];
static uint32_t stop;

static volatile uint64_t *word_of(size_t page, size_t thread) { return (volatile uint64_t *)(void *)(block + page * page_bytes) + 1 + thread; }

__attribute__((no_sanitize("thread"))) static void *count_up(void *argument) {
    size_t mine = (size_t)(uintptr_t)argument;
    uint64_t random = random_seed(mine);
    int file = memfd_create("word", MFD_CLOEXEC);
    while (__atomic_load_n(&stop, __ATOMIC_RELAXED) == 0) {
        size_t page = next_random(&random) % PAGES;
        uint64_t *count = &counts[mine][page], next = *count + 1, read_back = 0;
        volatile uint64_t *word = word_of(page, mine);
        switch (next_random(&random) % 4) {
        case 0: EXPECT(*word == *count); break;
        case 1:
            if (pwrite(file, (const void *)word, sizeof *word, 0) != sizeof *word) break; /* EFAULT: nobody waits for handlers there */
            EXPECT(pread(file, &read_back, sizeof read_back, 0) == sizeof read_back && read_back == *count);
            break;
        case 2:
            EXPECT(pwrite(file, &next, sizeof next, 0) == sizeof next);
            if (pread(file, (void *)word, sizeof *word, 0) == sizeof *word) *count = next;
            break;
        default: *word = next, *count = next;
        }
    }
    close(file);
    return NULL;
}

__attribute__((no_sanitize("thread"))) static void check_words(unsigned steps) {
    for (size_t page = 0; page < PAGES; page++)
        for (size_t thread = 0; thread < THREADS; thread++) {
            uint64_t word = *word_of(page, thread);
            EXPECT(word >= counts[thread][page] && word - counts[thread][page] <= steps);
        }
}

static void look_as_a_child(void) {
    int status;
    pid_t child = fork();
    if (child == 0) {
        alarm(30);
        check_words(1);
        for (size_t page = 0; page < PAGES; page++) *word_of(page, THREADS) = 9;
        check_words(1);
        _exit(7);
    }
    EXPECT(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
}

static void threads_use_it_while_watches_come_and_go(void) {
    pthread_t threads[THREADS];
    uint64_t random = random_seed(77);
    new_block(PAGES);
    memset(block, 0, PAGES * page_bytes);
    for (uintptr_t i = 0; i < THREADS; i++) EXPECT(pthread_create(&threads[i], NULL, count_up, (void *)i) == 0);
    for (unsigned turn = 0; turn < TURNS; turn++) {
        size_t first = next_random(&random) % PAGES, pages = 1 + next_random(&random) % (PAGES - first);
        struct strata_watch *watch;
        unsigned kinds = turn % 3 == 0 ? STRATA_WATCH_READS : KINDS_BOTH;
        EXPECT(strata_page_watch(block + first * page_bytes, pages * page_bytes, kinds, tell, NULL, &watch) == STRATA_WATCH_OK);
        for (unsigned i = 0; i < next_random(&random) % 4; i++) {
            usleep((useconds_t)(next_random(&random) % 300));
            enum strata_watch_status again = strata_page_rearm(watch, block + first * page_bytes, pages * page_bytes);
            EXPECT(again == STRATA_WATCH_OK || again == STRATA_WATCH_NO_MEMORY || again == STRATA_WATCH_GONE);
            if (turn % 8 == 0) look_as_a_child();
        }
        strata_page_unwatch(watch);
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    for (unsigned i = 0; i < THREADS; i++) EXPECT(pthread_join(threads[i], NULL) == 0);
    check_words(0);
    EXPECT(ended == 0);
}

static void *look_at_all(void *argument) {
    size_t from = (size_t)(uintptr_t)argument;
    for (size_t i = 0; i < PAGES; i++) EXPECT(holds(block + (from + i) % PAGES * page_bytes, (from + i) % PAGES));
    return NULL;
}

/* Nobody waits for ever, nor finds anything but what was there. */
static void it_ends_while_threads_wait(void) {
    enum { UNWATCHED, ARMED_AGAIN, SPLIT_AND_FREED, SHRUNK, WAYS };
    for (unsigned way = 0; way < WAYS; way++) {
        pthread_t threads[THREADS];
        void *rest = NULL, *start;
        new_block(PAGES + 8); /* the last ones nobody looks at */
        start = block;
        struct strata_watch *watch = watch_block(way % 2 == 0 ? KINDS_BOTH : STRATA_WATCH_READS);
        nap_us = 20000;
        for (uintptr_t i = 0; i < THREADS; i++) EXPECT(pthread_create(&threads[i], NULL, look_at_all, (void *)(i * 13)) == 0);
        usleep(30000);
        if (way == UNWATCHED) strata_page_unwatch(watch);
        if (way == ARMED_AGAIN) EXPECT(strata_page_rearm(watch, block, block_pages * page_bytes) == STRATA_WATCH_OK);
        if (way == SPLIT_AND_FREED) EXPECT(strata_page_split(block, PAGES * page_bytes, &rest) == STRATA_PAGE_OK);
        if (way == SPLIT_AND_FREED) EXPECT(strata_page_free(rest) == STRATA_PAGE_OK && has_ended(watch));
        if (way == SHRUNK) EXPECT(strata_page_realloc(&start, PAGES * page_bytes, 0) == STRATA_PAGE_OK && start == block && has_ended(watch));
        nap_us = 0;
        for (unsigned i = 0; i < THREADS; i++) EXPECT(pthread_join(threads[i], NULL) == 0);
        if (way != UNWATCHED) strata_page_unwatch(watch);
        block_pages = PAGES;
        check_block(block);
        EXPECT(strata_page_free(block) == STRATA_PAGE_OK);
    }
}

/* ------------------------------------------------------------------ what holds pages */

/* The kernel moves no page that a child has as well. */
static void pages_that_a_child_has_too(void) {
    new_block(PAGES);
    for (unsigned turn = 0; turn < 4; turn++) {
        forget();
        struct strata_watch *watch = NULL;
        if (turn % 2 == 0) watch = watch_block(KINDS_BOTH);
        if (turn == 0) EXPECT(holds(block, 0)); /* one that can be read only */
        pid_t child = fork();
        if (child == 0) {
            for (;;) pause();
        }
        EXPECT(child > 0);
        if (turn % 2 != 0) watch = watch_block(KINDS_BOTH);
        for (size_t i = 0; i < PAGES; i += 2) EXPECT(holds(block + i * page_bytes, i));
        EXPECT(strata_page_rearm(watch, block, PAGES * page_bytes) == STRATA_WATCH_OK);
        for (size_t i = 0; i < PAGES; i += 4) EXPECT(holds(block + i * page_bytes, i) && told_reads[i] == 2);
        EXPECT(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
        EXPECT(strata_page_rearm(watch, block, PAGES * page_bytes) == STRATA_WATCH_OK);
        strata_page_unwatch(watch);
        check_block(block);
    }
}

/* A page that a device may write to stays where it is: the watch goes by rights. */
static void pages_that_are_pinned(void) {
    new_block(PAGES);
    struct io_uring_params parameters = {0};
    int ring = (int)syscall(SYS_io_uring_setup, 2, &parameters);
    struct iovec buffer = {block + 5 * page_bytes, page_bytes};
    if (ring < 0 || syscall(SYS_io_uring_register, ring, IORING_REGISTER_BUFFERS, &buffer, 1) != 0) {
        printf("no io_uring: nothing can be pinned\n");
        return;
    }
    struct strata_watch *watch = watch_block(KINDS_BOTH);
    EXPECT(!by_faults(watch));
    check_block(block);
    EXPECT(told_reads[5] == 1);
    strata_page_unwatch(watch);
    EXPECT(syscall(SYS_io_uring_register, ring, IORING_UNREGISTER_BUFFERS, NULL, 0) == 0);
    close(ring);
    check_block(block);
}

/* What has changed places lies in mappings of its own, within each of which pages move. */
static void pages_in_several_mappings(void) {
    void *other;
    new_block(PAGES);
    EXPECT(strata_page_alloc(PAGES * page_bytes, STRATA_PAGE_PREFAULT, &other) == STRATA_PAGE_OK);
    for (size_t at = 3; at < PAGES - 20; at += 20) {
        EXPECT(strata_page_swap(block + at * page_bytes, (char *)other + at * page_bytes, 11 * page_bytes) == STRATA_PAGE_OK);
        for (size_t i = at; i < at + 11; i++) memset(block + i * page_bytes, letter(i), page_bytes);
    }
    struct strata_watch *watch = watch_block(KINDS_BOTH);
    check_block(block);
    EXPECT(strata_page_rearm(watch, block, PAGES * page_bytes) == STRATA_WATCH_OK);
    EXPECT(holds(block + 7 * page_bytes, 7));
    strata_page_unwatch(watch);
    check_block(block);
}

/* With huge pages where the system gives them; from and to places that are not of superpages. */
static void a_large_range(void) {
    size_t pages = (8u << 20) / page_bytes;
    new_block(pages < PAGES_MAX ? pages : PAGES_MAX);
    struct strata_watch *watch = NULL;
    char *all = block;
    size_t all_pages = block_pages;
    block += page_bytes, block_pages -= 3;
    for (size_t i = 0; i < block_pages; i++) memset(block + i * page_bytes, letter(i), page_bytes);
    watch = watch_block(KINDS_BOTH);
    EXPECT(holds(block + 600 % block_pages * page_bytes, 600 % block_pages));
    int status;
    pid_t child = fork();
    if (child == 0) {
        alarm(30);
        check_block(block);
        _exit(7);
    }
    EXPECT(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
    EXPECT(strata_page_rearm(watch, block, block_pages * page_bytes) == STRATA_WATCH_OK);
    struct strata_page_info info;
    EXPECT(strata_page_query(all, &info) == STRATA_PAGE_OK && (!info.presence_known || info.present_bytes == all_pages * page_bytes));
    strata_page_unwatch(watch);
    check_block(block);
    EXPECT(strata_page_free(all) == STRATA_PAGE_OK);
}

/* ------------------------------------------------------------------ the program's side */

static uint32_t files_closed;

static void *look_later(void *argument) {
    while (__atomic_load_n(&files_closed, __ATOMIC_ACQUIRE) == 0) usleep(1000);
    return look_at_all(argument);
}

/* As daemons do. Whoever waits finds what was there, not zeros. */
static void all_files_are_closed(void) {
    for (unsigned way = 0; way < 3; way++) {
        pthread_t threads[THREADS];
        new_block(PAGES);
        forget();
        struct strata_watch *watch = watch_block(KINDS_BOTH);
        bool faults = by_faults(watch);
        EXPECT(holds(block, 0));
        __atomic_store_n(&files_closed, 0, __ATOMIC_RELAXED);
        for (uintptr_t i = 0; i < THREADS; i++) EXPECT(pthread_create(&threads[i], NULL, look_later, (void *)(i * 13)) == 0);
        for (int file = 3; file < 1024; file++) syscall(SYS_close, file); /* which ThreadSanitizer does not take for a race */
        if (way == 0) EXPECT(strata_page_rearm(watch, block, page_bytes) == (faults ? STRATA_WATCH_NO_MEMORY : STRATA_WATCH_OK));
        if (way == 1) strata_page_unwatch(watch);
        __atomic_store_n(&files_closed, 1, __ATOMIC_RELEASE);
        for (unsigned i = 0; i < THREADS; i++) EXPECT(pthread_join(threads[i], NULL) == 0);
        if (way != 1) EXPECT(!faults || has_ended(watch));
        if (way != 1) strata_page_unwatch(watch);
        check_block(block);
        forget();
        watch = watch_block(KINDS_BOTH); /* by a new file */
        EXPECT(by_faults(watch) == faults);
        EXPECT(holds(block, 0) && told_reads[0] == 1);
        strata_page_unwatch(watch);
        EXPECT(strata_page_free(block) == STRATA_PAGE_OK);
    }
}

static size_t space_in_use(void) {
    char text[64] = {0};
    int file = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    EXPECT(file >= 0 && read(file, text, sizeof text - 1) > 0);
    close(file);
    return strtoull(text, NULL, 10) * page_bytes;
}

static void no_address_space_is_left(void) {
    struct rlimit before, limit;
    if (!HAS_ROOM_FOR_LIMITS) return;
    new_block(PAGES);
    strata_page_unwatch(watch_block(KINDS_BOTH)); /* its threads are there */
    struct strata_watch *early = NULL;
    EXPECT(strata_page_watch(block, page_bytes, KINDS_BOTH, tell, NULL, &early) == STRATA_WATCH_OK);
    EXPECT(getrlimit(RLIMIT_AS, &before) == 0);
    limit = before;
    limit.rlim_cur = space_in_use() + page_bytes;
    EXPECT(setrlimit(RLIMIT_AS, &limit) == 0);
    struct strata_watch *watch = NULL;
    EXPECT(strata_page_watch(block + page_bytes, (PAGES - 1) * page_bytes, KINDS_BOTH, tell, NULL, &watch) == STRATA_WATCH_OK);
    EXPECT(!by_faults(watch));
    check_block(block);
    EXPECT(strata_page_rearm(early, block, page_bytes) == STRATA_WATCH_OK);
    strata_page_unwatch(early); /* a way back takes none */
    strata_page_unwatch(watch);
    check_block(block);
    EXPECT(setrlimit(RLIMIT_AS, &before) == 0);
}

/* ------------------------------------------------------------------ the cases */

/* Then userfaultfd is for user code only, unless the system allows more. */
static void become_nobody(const void *context) {
    (void)context;
    drop_privilege();
}

static const struct test {
    const char *name;
    void (*body)(void);
} tests[] = {
    {"reads-and-writes", reads_and_writes},
    {"system-calls", system_calls},
    {"threads", threads_use_it_while_watches_come_and_go},
    {"ends", it_ends_while_threads_wait},
    {"children", pages_that_a_child_has_too},
    {"pinned", pages_that_are_pinned},
    {"mappings", pages_in_several_mappings},
    {"large", a_large_range},
    {"files", all_files_are_closed},
    {"space", no_address_space_is_left},
};

int main(int argc, char **argv) {
    page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    for (unsigned i = 0; i < sizeof tests / sizeof tests[0]; i++) {
        if (argc == 1) {
            run_in_own_process(tests[i].name, "", NULL, NULL);
            run_in_own_process(tests[i].name, "", become_nobody, NULL);
            run_in_own_process(tests[i].name, "watch:protect", NULL, NULL);
        } else if (strcmp(argv[1], tests[i].name) == 0) {
            alarm(100);
            tests[i].body();
            expect_sound();
            return 0;
        }
    }
    EXPECT(argc == 1);
    printf("%zu cases of pages that are away\n", sizeof tests / sizeof tests[0]);
    return 0;
}
