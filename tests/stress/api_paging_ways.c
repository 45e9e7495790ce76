/*
 * api_paging_ways.c - paged blocks where the system lacks, or forbids, what they use at best: userfaultfd, mappings, io_uring, file descriptors.
 *
 * Protects: what stands in for it does the same, within its documented limits, and loses nothing. Each case is a process of its own.
 */
#include <dlfcn.h>
#include <linux/io_uring.h>

#include "forbid.h"
#include "paging_support.h"
#include "sanitizers.h"

#if __has_include(<liburing.h>)
#define BUILT_WITH_LIBURING true
#else
#define BUILT_WITH_LIBURING false
#endif

static void forbidden(void) {
    forbid(SYS_userfaultfd, EPERM);
    unlink(path);
    struct strata_paging_config config = usual();
    config.flags = STRATA_PAGING_NO_SIGNALS;
    refuse(config, STRATA_PAGING_NO_FAULTS, 0);
    EXPECT(access(path, F_OK) != 0);
    config.flags = 0;
    struct strata_paging *paging = open_as(&config);
    EXPECT(stats_of(paging).by_signals && !stats_of(paging).system_calls);
    fill(paging, 9);
    for (unsigned i = 0; i < PAGES; i++) EXPECT(page_of(paging, i)[1] == (char)(i + 9));
    EXPECT(strata_paging_close(paging, STRATA_PAGING_SAVE) == STRATA_PAGING_OK && file_byte(200) == (char)(200 + 9));
}

/* Mappings of one page each, in address space of many, until the process may have no more. */
#define MAPPED_PAGES ((size_t)1 << 20)
static char *use_up_mappings(void) {
    char *mappings = mmap(NULL, MAPPED_PAGES * page_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    EXPECT(mappings != MAP_FAILED);
    size_t taken = 0;
    while (taken < MAPPED_PAGES && mprotect(mappings + taken * page_bytes, page_bytes, PROT_READ) == 0) taken += 2;
    EXPECT(taken < MAPPED_PAGES);
    (void)mprotect(mappings + (MAPPED_PAGES - 1) * page_bytes, page_bytes, PROT_READ); /* each took two, this at the end takes one */
    return mappings;
}

/*
 * By signals, in a process that has used up its mappings: borders between pages that can be had go, and nothing else does. And a resident limit that
 * would take more mappings than there are is lowered.
 */
static void few_mappings(void) {
    struct strata_paging_config config = usual();
    config.bytes = config.resident_limit_bytes = (size_t)1 << 34;
    struct strata_paging *paging = open_as(&config);
    EXPECT(stats_of(paging).resident_limit < (1 << 20) && stats_of(paging).resident_limit >= LIMIT);
    EXPECT(strata_paging_close(paging, STRATA_PAGING_DISCARD) == STRATA_PAGING_OK);
    paging = open_new();
    fill(paging, 1);
    char *mappings = use_up_mappings();
    /*
     * Ten are left, for five pages at a time where the limit is more. Not two, which one needs: a runtime, as a sanitizer's, may take one meanwhile,
     * and without a mapping to be had a page in the middle can't be either.
     */
    EXPECT(mprotect(mappings, 10 * page_bytes, PROT_NONE) == 0);
    unsigned bad = 0;
    for (unsigned round = 2; round < 4; round++) {
        fill(paging, (char)round);
        for (unsigned i = PAGES; i-- != 0;) bad += page_of(paging, i)[1] != (char)(i + round);
    }
    munmap(mappings, MAPPED_PAGES * page_bytes);
    EXPECT(bad == 0);
    discard(paging);
}

/* All of a block can be written to, as one mapping, and no other is to be had: to take the rights of all of it away takes none. */
static void no_mapping_left(void) {
    struct strata_paging_config config = usual();
    const unsigned pages = LIMIT / 2; /* so few are not written before they are to be */
    config.bytes = pages * page_bytes;
    config.dirty_limit_bytes = LIMIT * page_bytes;
    unlink(path);
    struct strata_paging *paging = open_as(&config);
    for (unsigned i = 0; i < pages; i++) memset(page_of(paging, i), (char)i, page_bytes);
    char *mappings = use_up_mappings();
    enum strata_paging_status status = strata_paging_sync(paging, NULL, 0);
    munmap(mappings, MAPPED_PAGES * page_bytes);
    EXPECT(status == STRATA_PAGING_OK && file_byte(pages - 1) == (char)(pages - 1));
    for (unsigned i = 0; i < pages; i++) EXPECT(page_of(paging, i)[1] == (char)i);
    discard(paging);
}

/* What the program locks in memory leaves it all the same, and what it locks in advance does not come in at once. */
static void locked(void) {
    struct strata_paging *paging = open_new();
    (void)mlock(page_of(paging, 0), 4 * page_bytes); /* the system may have no way to bring the pages; locked they are */
    fill(paging, 2);
    for (unsigned i = 0; i < PAGES; i++) EXPECT(page_of(paging, i)[1] == (char)(i + 2));
    discard(paging);
    if (geteuid() != 0 || mlockall(MCL_FUTURE) != 0) return; /* for others there is a limit */
    paging = open_new();
    unsigned char present[PAGES];
    EXPECT(mincore(page_of(paging, 0), PAGES * page_bytes, present) == 0);
    for (unsigned i = 0; i < PAGES; i++) EXPECT((present[i] & 1) == 0);
    fill(paging, 3);
    for (unsigned i = 0; i < PAGES; i++) EXPECT(page_of(paging, i)[1] == (char)(i + 3));
    discard(paging);
}

/* As below, by signals: nobody notices at once, but the calls have an error, and what is not in memory can't be had. */
static void descriptors_closed_by_signals(void) {
    struct strata_paging *paging = open_new();
    fill(paging, 1);
    for (int file = 3; file < 1024; file++) syscall(SYS_close, file); /* which ThreadSanitizer does not take for a race */
    unsigned failed = 0;
    for (unsigned i = 0; i < PAGES; i++) failed += touch(page_of(paging, i)) == SIGBUS;
    EXPECT(failed > 0 && failed == stats_of(paging).failed);
    errno = 0;
    EXPECT(strata_paging_sync(paging, NULL, 0) == STRATA_PAGING_FILE_ERROR && errno == EBADF);
    EXPECT(strata_paging_close(paging, STRATA_PAGING_DISCARD) == STRATA_PAGING_OK);
}

static bool uses_ring(void) {
    struct strata_paging *paging = open_new();
    bool uses = stats_of(paging).by_io_uring;
    discard(paging);
    return uses;
}

/* Where there is all that a ring takes it is used, unless the program says otherwise: what is tested below would pass without. */
static void ring_is_used_where_it_can_be(void) {
    void *library = dlopen("liburing.so.2", RTLD_NOW);
    struct io_uring_params params = {0};
    int ring = (int)syscall(SYS_io_uring_setup, 8, &params);
    bool fits = library != NULL && dlsym(library, "io_uring_get_events") != NULL; /* of 2.3 */
    if (prctl(PR_GET_SECCOMP, 0, 0, 0, 0) != 0 || !BUILT_WITH_LIBURING || !fits || ring < 0 ||
        (params.features & IORING_FEAT_RW_CUR_POS) == 0 /* of Linux 5.6 */)
        return;
    close(ring);
    EXPECT(uses_ring());
}

static void works_without_ring(void) {
    EXPECT(!uses_ring());
    struct strata_paging *paging = open_new();
    fill(paging, 4);
    for (unsigned k = 0; k < PAGES; k++) EXPECT(page_of(paging, k)[1] == (char)(k + 4));
    EXPECT(strata_paging_close(paging, STRATA_PAGING_SAVE) == STRATA_PAGING_OK && file_byte(100) == 104);
}

/* A process whose system calls are filtered has none: a filter that does not expect these might end it. */
static void no_io_uring(void) {
    forbid(SYS_io_uring_setup, EPERM);
    works_without_ring();
}

/* Where the loader finds no liburing that it can use: this program anew. */
static void no_liburing(void) {
    char directory[] = "/tmp/api_paging_ways.XXXXXX", file[64];
    EXPECT(mkdtemp(directory) != NULL);
    snprintf(file, sizeof file, "%s/liburing.so.2", directory);
    FILE *out = fopen(file, "w");
    EXPECT(out != NULL && fputs("no library", out) >= 0 && fclose(out) == 0);
    pid_t child = fork();
    EXPECT(child >= 0);
    if (child == 0) {
        setenv("LD_LIBRARY_PATH", directory, 1);
        execl("/proc/self/exe", "api_paging_ways", "no-liburing", (char *)NULL);
        _exit(127);
    }
    int status;
    EXPECT(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    EXPECT(unlink(file) == 0 && rmdir(directory) == 0);
}

/* The ring stops in the middle: each submission fails. What was read ahead and written behind by it goes the other way. */
static void io_uring_fails(void) {
    struct strata_paging *paging = open_new();
    fill(paging, 1);
    forbid_to_all_threads(SYS_io_uring_enter, EAGAIN);
    fill(paging, 6);
    for (unsigned i = 0; i < PAGES; i++) EXPECT(page_of(paging, i)[1] == (char)(i + 6));
    EXPECT(strata_paging_sync(paging, NULL, 0) == STRATA_PAGING_OK && file_byte(100) == 106);
    EXPECT(stats_of(paging).write_errors == 0 && stats_of(paging).read_errors == 0);
    discard(paging);
}

/* A fault that is nobody's still is the program's, as is one that it sends itself. */
static void foreign_faults(void) {
    struct strata_paging *paging = open_new();
    char *none = mmap(NULL, page_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT(none != MAP_FAILED && touch(none) == SIGSEGV && touch((volatile char *)16) == SIGSEGV);
    EXPECT(touch(page_of(paging, 3)) == 0);
    discard(paging);
    EXPECT(touch(none) == SIGSEGV);
}

int main(int argc, char **argv) {
    (void)argv;
    page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    snprintf(path, sizeof path, "/tmp/api_paging_ways.%d", (int)getpid());
    expect_signals();
    if (argc > 1) {
        works_without_ring();
        unlink(path);
        return 0;
    }
    in_child(ring_is_used_where_it_can_be);
    in_child(forbidden);
    in_child(no_io_uring);
    in_child(no_liburing);
    in_child(io_uring_fails);
    in_child(locked);
    way = STRATA_PAGING_NO_IO_URING;
    in_child(works_without_ring);
    way = STRATA_PAGING_BY_SIGNALS;
    in_child(descriptors_closed_by_signals);
    in_child(few_mappings);
    if (!UNDER_ADDRESS_SANITIZER && !UNDER_THREAD_SANITIZER) in_child(no_mapping_left); /* whose runtime takes mappings itself */
    in_child(locked);
    in_child(foreign_faults);
    unlink(path);
    return 0;
}
