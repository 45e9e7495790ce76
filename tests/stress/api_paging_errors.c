/*
 * api_paging_errors.c - paged blocks where something is wrong: rights that are missing, bad arguments one by one, files that are full, cut off,
 * removed or opened in the wrong way, a process that forks, and one that is killed in the middle. All of it by userfaultfd and by signals.
 *
 * Protects: each error has its documented status or signal, and loses nothing that was written to the block.
 */
#define _GNU_SOURCE 1
#include <sched.h>
#include <sys/mount.h>
#include <sys/syscall.h>

#include "paging_support.h"
#include "sanitizers.h"

#if UNDER_THREAD_SANITIZER
/* Threads of a paging that has just been closed may still be on their way out when a test forks, and children start threads of their own. */
const char *__tsan_default_options(void);
const char *__tsan_default_options(void) { return "die_after_fork=0"; }
#endif

/* ------------------------------------------------------------------ arguments */

static void test_bad_arguments(void) {
    struct strata_paging_config config = usual();
    struct strata_paging *paging;
    struct strata_paging_stats stats;
    const struct strata_paging_policy policy = {.argument = NULL};
    EXPECT(strata_paging_open(NULL, &paging) == STRATA_PAGING_BAD_ARGUMENT && strata_paging_open(&config, NULL) == STRATA_PAGING_BAD_ARGUMENT);
#define REFUSE(member, value, status, error) \
    config = usual();                        \
    config.member = (value);                 \
    refuse(config, status, error)
    REFUSE(bytes, 0, STRATA_PAGING_BAD_ARGUMENT, 0);
    REFUSE(bytes, UINT64_MAX, STRATA_PAGING_BAD_ARGUMENT, 0);
    REFUSE(bytes, (uint64_t)1 << 50, STRATA_PAGING_BAD_ARGUMENT, 0);
    REFUSE(resident_limit_bytes, (STRATA_PAGING_PAGES_MIN - 1) * page_bytes, STRATA_PAGING_BAD_ARGUMENT, 0);
    REFUSE(flags, 16, STRATA_PAGING_BAD_ARGUMENT, 0);
    REFUSE(flags, STRATA_PAGING_BY_SIGNALS | STRATA_PAGING_NO_SIGNALS, STRATA_PAGING_BAD_ARGUMENT, 0);
    REFUSE(policy, &policy, STRATA_PAGING_BAD_ARGUMENT, 0);
    REFUSE(path, "/tmp", STRATA_PAGING_FILE_ERROR, EISDIR);
    REFUSE(path, "/nowhere/file", STRATA_PAGING_FILE_ERROR, ENOENT);
    REFUSE(path, "/dev/null", STRATA_PAGING_FILE_ERROR, EINVAL);
    config = usual();
    config.path = NULL;
    config.file = -1;
    refuse(config, STRATA_PAGING_BAD_ARGUMENT, 0);
    config.file = 999;
    refuse(config, STRATA_PAGING_FILE_ERROR, EBADF);
    static const int modes[] = {O_RDONLY, O_WRONLY, O_RDWR | O_APPEND};
    for (unsigned i = 0; i < 3; i++) {
        config.file = open(path, modes[i] | O_CREAT | O_CLOEXEC, 0600);
        refuse(config, STRATA_PAGING_FILE_ERROR, EINVAL);
        close(config.file);
    }

    paging = open_new();
    char *block = strata_paging_address(paging);
    const struct {
        char *address;
        size_t bytes;
    } ranges[] = {{block, 0}, {block - 1, 2}, {block, PAGES * page_bytes + 1}, {block + PAGES * page_bytes, 1}, {block + 1, SIZE_MAX}, {NULL, 1}};
    for (unsigned i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
        EXPECT(strata_paging_sync(paging, ranges[i].address, ranges[i].bytes) == STRATA_PAGING_BAD_ARGUMENT);
        EXPECT(strata_paging_advise(paging, ranges[i].address, ranges[i].bytes, STRATA_PAGING_DONT_NEED) == STRATA_PAGING_BAD_ARGUMENT);
    }
    EXPECT(strata_paging_sync(NULL, NULL, 0) == STRATA_PAGING_BAD_ARGUMENT);
    EXPECT(strata_paging_advise(paging, NULL, 0, (enum strata_paging_advice)7) == STRATA_PAGING_BAD_ARGUMENT);
    EXPECT(strata_paging_stats_get(paging, NULL) == STRATA_PAGING_BAD_ARGUMENT &&
           strata_paging_stats_get(NULL, &stats) == STRATA_PAGING_BAD_ARGUMENT);
    EXPECT(strata_paging_close(paging, (enum strata_paging_end)7) == STRATA_PAGING_BAD_ARGUMENT);
    EXPECT(strata_paging_close(NULL, STRATA_PAGING_SAVE) == STRATA_PAGING_OK && strata_paging_address(NULL) == NULL);
    EXPECT(strcmp(strata_paging_status_text(STRATA_PAGING_FORKED), "the paging is the parent's") == 0);
    EXPECT(strcmp(strata_paging_status_text((enum strata_paging_status)99), "unknown status") == 0);
    discard(paging);
}

/* ------------------------------------------------------------------ files */

/* A size that is no multiple of a page, over a descriptor that the program closes: the file has just these bytes. */
static void test_odd_size(void) {
    struct strata_paging_config config = usual();
    struct stat status;
    unlink(path);
    config.path = NULL;
    config.file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    config.bytes = 40 * page_bytes + 100;
    struct strata_paging *paging = open_as(&config);
    close(config.file);
    memset(strata_paging_address(paging), 'x', config.bytes);
    EXPECT(strata_paging_close(paging, STRATA_PAGING_SAVE) == STRATA_PAGING_OK);
    EXPECT(stat(path, &status) == 0 && status.st_size == (off_t)config.bytes && file_byte(40) == 'x');
    config.path = path;
    paging = open_as(&config);
    EXPECT(page_of(paging, 40)[99] == 'x' && page_of(paging, 40)[100] == 0);
    discard(paging);
}

struct told {
    enum strata_paging_decision decision;
    unsigned reads, writes; /* atomic, as are the others */
    int error;
    uint64_t offset_bytes;
    unsigned retries; /* before the decision */
};
static enum strata_paging_decision tell(const struct strata_paging_error *error, void *argument) {
    struct told *told = argument;
    __atomic_store_n(&told->error, error->error, __ATOMIC_RELAXED);
    __atomic_store_n(&told->offset_bytes, error->offset_bytes, __ATOMIC_RELAXED);
    unsigned count = __atomic_add_fetch(error->write ? &told->writes : &told->reads, 1, __ATOMIC_RELAXED);
    return count <= told->retries ? STRATA_PAGING_RETRY : told->decision;
}

/* The file can't grow: RLIMIT_FSIZE ends writes behind the 16th page, as a full disk does. Nothing is lost, and all is written when there is room
 * again. */
static void test_full_file(struct told *told) {
    struct strata_paging_config config = usual();
    unlink(path);
    if (told != NULL) config.handler = tell;
    config.handler_argument = told;
    struct strata_paging *paging = open_as(&config);
    struct rlimit before, limit;
    EXPECT(getrlimit(RLIMIT_FSIZE, &before) == 0);
    limit = before;
    limit.rlim_cur = 16 * page_bytes;
    EXPECT(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    bool gives_up = told != NULL && told->decision == STRATA_PAGING_GIVE_UP;
    unsigned written = 0;
    for (; written < PAGES && touch(page_of(paging, written)) == 0; written++)
        memset(page_of(paging, written), (int)('a' + written % 26), page_bytes);
    EXPECT(gives_up ? written >= LIMIT && written < PAGES : written == PAGES);
    errno = 0;
    EXPECT(strata_paging_sync(paging, NULL, 0) == STRATA_PAGING_FILE_ERROR && errno == EFBIG);
    EXPECT(strata_paging_close(paging, STRATA_PAGING_SAVE) == STRATA_PAGING_FILE_ERROR);
    struct strata_paging_stats stats = stats_of(paging);
    EXPECT(stats.write_errors > 0 && stats.dirty > 0);
    EXPECT(gives_up ? stats.beyond_limit == 0 && stats.resident <= LIMIT && stats.failed == 1 : stats.beyond_limit > 0 && stats.failed == 0);
    if (told != NULL) EXPECT(told->writes > told->retries && told->error == EFBIG && told->offset_bytes + 32 * page_bytes > 16 * page_bytes);
    EXPECT(setrlimit(RLIMIT_FSIZE, &before) == 0);
    EXPECT(strata_paging_sync(paging, NULL, 0) == STRATA_PAGING_OK);
    EXPECT(strata_paging_advise(paging, NULL, 0, STRATA_PAGING_DONT_NEED) == STRATA_PAGING_OK);
    stats = stats_of(paging);
    EXPECT(stats.resident == 0 && stats.dirty == 0 && stats.failed == 0);
    for (unsigned i = 0; i < written; i++) EXPECT(page_of(paging, i)[7] == (char)('a' + i % 26));
    EXPECT(touch(page_of(paging, PAGES - 1)) == 0);
    discard(paging);
}

/* False: nobody may mount here. */
static bool mount_small(const char *folder) {
    char options[32];
    snprintf(options, sizeof options, "size=%zu", PAGES / 2 * page_bytes);
    return unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 && mount("none", folder, "tmpfs", 0, options) == 0;
}
/*
 * A disk that is full: a file system of half the block's size, in a mount namespace of its own. Nothing is lost, and all is written when there is
 * room again.
 */
static void full_disk(void) {
    char folder[] = "/tmp/api_paging_disk.XXXXXX";
    EXPECT(mkdtemp(folder) != NULL);
    bool mounted = mount_small(folder);
    if (mounted) {
        struct told told = {.decision = STRATA_PAGING_GO_ON};
        struct strata_paging_config config = usual();
        snprintf(path, sizeof path, "%s/file", folder);
        config.handler = tell;
        config.handler_argument = &told;
        struct strata_paging *paging = open_as(&config);
        fill(paging, 2);
        errno = 0;
        EXPECT(strata_paging_sync(paging, NULL, 0) == STRATA_PAGING_FILE_ERROR && errno == ENOSPC);
        EXPECT(told.writes > 0 && told.error == ENOSPC && stats_of(paging).dirty > 0);
        for (unsigned i = 0; i < PAGES; i++) EXPECT(page_of(paging, i)[1] == (char)(i + 2));
        EXPECT(mount("none", folder, NULL, MS_REMOUNT, "size=100%") == 0);
        EXPECT(strata_paging_sync(paging, NULL, 0) == STRATA_PAGING_OK && stats_of(paging).dirty == 0);
        for (unsigned i = 0; i < PAGES; i++) EXPECT(file_byte(i) == (char)(i + 2));
        EXPECT(strata_paging_close(paging, STRATA_PAGING_SAVE) == STRATA_PAGING_OK);
        EXPECT(umount2(folder, MNT_DETACH) == 0);
    } else {
        printf("no disk can be mounted here: only RLIMIT_FSIZE was tested\n");
    }
    rmdir(folder);
}

/* Opening can't grow the file beyond the limit, and raises no signal for it. */
static void test_no_room_to_open(void) {
    struct rlimit before, limit;
    unlink(path);
    EXPECT(getrlimit(RLIMIT_FSIZE, &before) == 0);
    limit = before;
    limit.rlim_cur = 16 * page_bytes;
    EXPECT(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    refuse(usual(), STRATA_PAGING_FILE_ERROR, EFBIG);
    EXPECT(setrlimit(RLIMIT_FSIZE, &before) == 0);
}

/* Somebody makes the file shorter: what lay behind can't be read. */
static void test_truncated_file(struct told *told) {
    struct strata_paging_config config = usual();
    if (told != NULL) config.handler = tell;
    config.handler_argument = told;
    config.flags |= STRATA_PAGING_NO_READ_AHEAD;
    unlink(path);
    struct strata_paging *paging = open_as(&config);
    fill(paging, 1);
    EXPECT(strata_paging_advise(paging, NULL, 0, STRATA_PAGING_DONT_NEED) == STRATA_PAGING_OK);
    EXPECT(truncate(path, (off_t)(100 * page_bytes)) == 0);
    EXPECT(page_of(paging, 99)[0] == 100);
    bool zeros = told != NULL && told->decision == STRATA_PAGING_GO_ON;
    EXPECT(touch(page_of(paging, 100)) == (zeros ? 0 : SIGBUS));
    EXPECT(touch(page_of(paging, 100)) == (zeros ? 0 : SIGBUS));
    EXPECT(!zeros || page_of(paging, 100)[0] == 0);
    EXPECT(stats_of(paging).failed == (zeros ? 0 : 1) && stats_of(paging).read_errors > 0);
    if (told != NULL) EXPECT(told->reads == told->retries + 1 && told->error == ENODATA && told->offset_bytes == 100 * page_bytes);
    /* It grows again, and the page may be had again. */
    EXPECT(truncate(path, (off_t)(PAGES * page_bytes)) == 0);
    EXPECT(touch(page_of(paging, 101)) == 0);
    EXPECT(strata_paging_advise(paging, page_of(paging, 100), 1, STRATA_PAGING_DONT_NEED) == STRATA_PAGING_OK);
    EXPECT(touch(page_of(paging, 100)) == 0 && stats_of(paging).failed == 0);
    page_of(paging, 100)[5] = 'y';
    EXPECT(strata_paging_sync(paging, NULL, 0) == STRATA_PAGING_OK && file_byte(100) == 'y');
    discard(paging);
}

/* Read ahead over the end of a file that was cut off: only who touches what is missing has the error. */
static void test_truncated_ahead(void) {
    struct strata_paging *paging = open_new();
    fill(paging, 1);
    EXPECT(strata_paging_advise(paging, NULL, 0, STRATA_PAGING_DONT_NEED) == STRATA_PAGING_OK);
    EXPECT(truncate(path, (off_t)(100 * page_bytes)) == 0);
    for (unsigned i = 0; i < 100; i++) EXPECT(page_of(paging, i)[9] == (char)(i + 1));
    EXPECT(stats_of(paging).failed == 0 && touch(page_of(paging, 100)) == SIGBUS);
    discard(paging);
}

/* A file without a name is a file. */
static void test_removed_file(void) {
    struct strata_paging *paging = open_new();
    unlink(path);
    fill(paging, 3);
    for (unsigned i = 0; i < PAGES; i++) EXPECT(page_of(paging, i)[1] == (char)(i + 3));
    EXPECT(strata_paging_close(paging, STRATA_PAGING_SAVE) == STRATA_PAGING_OK);
    EXPECT(access(path, F_OK) != 0);
}

static void test_discard_keeps_what_was_synced(void) {
    struct strata_paging *paging = open_new();
    page_of(paging, 1)[5] = 'a';
    EXPECT(strata_paging_sync(paging, page_of(paging, 1), 1) == STRATA_PAGING_OK && stats_of(paging).dirty == 0);
    page_of(paging, 1)[5] = 'b';
    page_of(paging, 20)[5] = 'b';
    EXPECT(strata_paging_sync(paging, page_of(paging, 20), page_bytes) == STRATA_PAGING_OK && stats_of(paging).dirty == 1);
    discard(paging);
    EXPECT(file_byte(1) == 'a' && file_byte(20) == 'b');
}

/* ------------------------------------------------------------------ processes */

static void test_fork(void) {
    struct strata_paging *paging = open_new();
    struct strata_paging_stats stats;
    fill(paging, 5);
    pid_t child = fork();
    if (child == 0) {
        EXPECT(touch(page_of(paging, 0)) == SIGSEGV);
        EXPECT(strata_paging_sync(paging, NULL, 0) == STRATA_PAGING_FORKED);
        EXPECT(strata_paging_advise(paging, NULL, 0, STRATA_PAGING_DONT_NEED) == STRATA_PAGING_FORKED);
        EXPECT(strata_paging_stats_get(paging, &stats) == STRATA_PAGING_FORKED);
        EXPECT(strata_paging_close(paging, STRATA_PAGING_SAVE) == STRATA_PAGING_OK);
        _exit(7);
    }
    int status = 0;
    EXPECT(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
    for (unsigned i = 0; i < PAGES; i++) EXPECT(page_of(paging, i)[1] == (char)(i + 5));
    EXPECT(strata_paging_close(paging, STRATA_PAGING_SAVE) == STRATA_PAGING_OK && file_byte(200) == (char)(200 + 5));
}

/*
 * A process writes generation after generation, each with a sync behind it, and is killed in the middle: no page is older than the last sync that it
 * has told of, none newer than the generation it had begun, and none mixed of two.
 */
static void test_kill(void) {
    int told[2];
    unlink(path);
    EXPECT(pipe(told) == 0);
    pid_t child = fork();
    if (child == 0) {
        struct strata_paging_config config = usual();
        struct strata_paging *paging = open_as(&config);
        for (unsigned char generation = 1;; generation++) {
            for (unsigned i = 0; i < PAGES; i++) memset(page_of(paging, i), generation, page_bytes);
            EXPECT(strata_paging_sync(paging, NULL, 0) == STRATA_PAGING_OK && write(told[1], &generation, 1) == 1);
        }
    }
    close(told[1]);
    unsigned char generation = 0, next;
    while (generation < 3) EXPECT(read(told[0], &generation, 1) == 1);
    usleep(3000);
    EXPECT(child > 0 && kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
    while (read(told[0], &next, 1) == 1) generation = next;
    close(told[0]);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    unsigned char *page = malloc(page_bytes);
    EXPECT(file >= 0 && page != NULL);
    for (unsigned i = 0; i < PAGES; i++) {
        EXPECT(pread(file, page, page_bytes, (off_t)(i * page_bytes)) == (ssize_t)page_bytes);
        for (size_t k = 0; k < page_bytes; k++) EXPECT(page[k] == generation || page[k] == generation + 1);
    }
    free(page);
    close(file);
}

/* ------------------------------------------------------------------ rights and descriptors */

/* Without privilege faults of the program's own code are served; what system calls meet is as the figures say. */
static void unprivileged(void) {
    unlink(path);
    if (geteuid() == 0) EXPECT(setgid(65534) == 0 && setuid(65534) == 0);
    struct strata_paging_config config = usual();
    struct strata_paging *paging = open_as(&config);
    int zeros = open("/dev/zero", O_RDONLY | O_CLOEXEC);
    fill(paging, 9);
    for (unsigned i = 0; i < PAGES; i++) EXPECT(page_of(paging, i)[1] == (char)(i + 9));
    EXPECT(strata_paging_advise(paging, NULL, 0, STRATA_PAGING_DONT_NEED) == STRATA_PAGING_OK);
    errno = 0;
    ssize_t got = read(zeros, page_of(paging, 3), 10);
    EXPECT(stats_of(paging).system_calls ? got == 10 : got < 0 && errno == EFAULT);
    page_of(paging, 3)[0] = 1;
    EXPECT(read(zeros, page_of(paging, 3), 10) == 10 && page_of(paging, 3)[0] == 0);
    EXPECT(strata_paging_close(paging, STRATA_PAGING_SAVE) == STRATA_PAGING_OK);
}

/* A program that closes what it does not know: the block goes out of reach, the calls have an error, and a file of its own under our number is left
 * alone. */
static void descriptors_closed(void) {
    struct strata_paging *paging = open_new();
    fill(paging, 1);
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    dup2(null, STDERR_FILENO); /* it is told there */

    for (int file = 3; file < 1024; file++) syscall(SYS_close, file); /* which ThreadSanitizer does not take for a race */
    int other = open("/dev/null", O_RDWR | O_CLOEXEC);
    char template[] = "/tmp/api_paging_other.XXXXXX";
    int mine = mkstemp(template);
    unlink(template);
    for (int file = 200; file < 300; file++) EXPECT(dup2(mine, file) == file);
    for (unsigned tries = 0; touch(page_of(paging, tries % PAGES)) != SIGSEGV; tries++) {
        EXPECT(tries < 4000);
        usleep(1000);
    }
    EXPECT(strata_paging_sync(paging, NULL, 0) == STRATA_PAGING_FILE_ERROR);
    EXPECT(strata_paging_close(paging, STRATA_PAGING_DISCARD) == STRATA_PAGING_OK);
    EXPECT(other >= 0 && lseek(mine, 0, SEEK_END) == 0 && fcntl(200, F_GETFD) >= 0);
}

static void test_all(void) {
    test_bad_arguments();
    test_odd_size();
    test_full_file(NULL);
    test_full_file(&(struct told){.decision = STRATA_PAGING_GO_ON, .retries = 2});
    test_full_file(&(struct told){.decision = STRATA_PAGING_GIVE_UP});
    test_no_room_to_open();
    test_truncated_file(NULL);
    test_truncated_file(&(struct told){.decision = STRATA_PAGING_GO_ON});
    test_truncated_file(&(struct told){.decision = STRATA_PAGING_GIVE_UP, .retries = 3});
    test_truncated_ahead();
    test_removed_file();
    test_discard_keeps_what_was_synced();
    test_fork();
    test_kill();
    in_child(full_disk);
    in_child(unprivileged);
}

int main(void) {
    page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    snprintf(path, sizeof path, "/tmp/api_paging_errors.%d", (int)getpid());
    expect_signals();
    test_all();
    in_child(descriptors_closed);
    way = STRATA_PAGING_BY_SIGNALS;
    test_all();
    way = STRATA_PAGING_NO_IO_URING;
    test_all();
    in_child(descriptors_closed);
    unlink(path);
    return 0;
}
