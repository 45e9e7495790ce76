/*
 * own_thread.c - where strata's own thread, or what debugging asks for, meets surroundings that few programs make.
 *
 * own_thread files: RLIMIT_NOFILE comes down to 0 under it, so that it can't wait on its files any more; prints the time that the idle process takes.
 *            vfork: a child of vfork is the first to make the heap large; prints how many threads its parent has once it does the same.
 *            fork: the child of a process with one thread makes the heap large; prints how many threads it has then.
 *            vfork-fork: the same of a process that a child of vfork forks.
 *            proc: without /proc; the first thread ends, then the last one, and with it the process.
 *            frames: the program has registered unwind tables, for which the unwinder allocates at its next look.
 */
#include "stress/support.h"

#include <dirent.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

enum { BLOCKS = 2000, BLOCK_BYTES = 60000, IDLE_MS = 1000, FUNCTIONS = 8 };

/* Above what the thread begins at, and down again. */
static void fill_and_empty(void) {
    static void *blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) memset(blocks[i] = malloc(BLOCK_BYTES), 1, BLOCK_BYTES);
    for (int i = 0; i < BLOCKS; i++) free(blocks[i]);
}

static unsigned count_threads(void) {
    unsigned count = 0;
    DIR *folder = opendir("/proc/self/task");
    REQUIRE(folder != NULL);
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) count += entry->d_name[0] != '.';
    closedir(folder);
    return count;
}

static unsigned used_ms(void) {
    struct rusage usage;
    REQUIRE(getrusage(RUSAGE_SELF, &usage) == 0);
    return (unsigned)((usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000 + (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1000);
}

static void files(void) {
    fill_and_empty();
    sleep_ms(IDLE_MS); /* it has opened what it waits on */
    REQUIRE(setrlimit(RLIMIT_NOFILE, &(struct rlimit){0, 0}) == 0);
    const unsigned before = used_ms();
    sleep_ms(IDLE_MS);
    printf("idle_ms=%d used_ms=%u\n", IDLE_MS, used_ms() - before);
}

__attribute__((noinline)) static void make_child(void) {
    free(malloc(100000));
    pid_t pid = vfork();
    if (pid == 0) {
        fill_and_empty();
        _exit(0);
    }
    int status = 1;
    REQUIRE(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
}

static void be_child(void) {
    free(malloc(100));
    pid_t pid = fork();
    if (pid == 0) {
        fill_and_empty();
        printf("threads=%u\n", count_threads());
        return;
    }
    int status = 1;
    REQUIRE(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
}

/* Restartable sequences have left it with its parent's vfork, and its memory is its own all the same. */
__attribute__((noinline)) static void be_grandchild(void) {
    free(malloc(100));
    pid_t pid = vfork();
    if (pid == 0) {
        pid_t own = fork();
        if (own == 0) {
            fill_and_empty();
            printf("threads=%u\n", count_threads());
            exit(0);
        }
        int status = 1;
        _exit(own > 0 && waitpid(own, &status, 0) == own && status == 0 ? 0 : 1);
    }
    int status = 1;
    REQUIRE(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
}

static void *last_thread(void *unused) {
    (void)unused;
    sleep_ms(IDLE_MS);
    return NULL;
}

static void without_proc(const char *folder) {
    pthread_t thread;
    REQUIRE(chroot(folder) == 0 && chdir("/") == 0 && access("/proc/self", F_OK) != 0);
    fill_and_empty();
    REQUIRE(pthread_create(&thread, NULL, last_thread, NULL) == 0);
    pthread_exit(NULL);
}

/* A table of some functions, the last one first, so that it has to be sorted. In the form that GCC makes: a CIE, and an FDE for each. */
extern void __register_frame(void *table);
static unsigned char *put(unsigned char *to, const void *from, size_t bytes) { return (unsigned char *)memcpy(to, from, bytes) + bytes; }
static void register_frames(void) {
    static unsigned char table[1024] __attribute__((aligned(8)));
    static const unsigned char rules[] = {1, 0, 1, 0x78, 16, 0x0c, 7, 8, 0x90, 1, 0, 0, 0, 0, 0, 0}; /* version 1, no augmentation; CFA: rsp + 8 */
    char *code = mmap(NULL, FUNCTIONS * 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(code != MAP_FAILED);
    unsigned char *at = put(table, &(uint32_t){4 + sizeof rules}, 4);
    at = put(put(at, &(uint32_t){0}, 4), rules, sizeof rules);
    for (size_t i = FUNCTIONS; i-- != 0;) {
        at = put(at, &(uint32_t){4 + 8 + 8}, 4);
        at = put(at, &(uint32_t){(uint32_t)(at - table)}, 4); /* back to the CIE */
        at = put(at, &(uintptr_t){(uintptr_t)code + i * 4096}, 8);
        at = put(at, &(uint64_t){4096}, 8);
    }
    put(at, &(uint32_t){0}, 4);
    __register_frame(table);
}

int main(int argc, char **argv) {
    REQUIRE(argc >= 2);
    if (strcmp(argv[1], "files") == 0) {
        files();
    } else if (strcmp(argv[1], "vfork") == 0) {
        make_child();
        fill_and_empty();
        printf("threads=%u\n", count_threads());
    } else if (strcmp(argv[1], "fork") == 0) {
        be_child();
    } else if (strcmp(argv[1], "vfork-fork") == 0) {
        be_grandchild();
    } else if (strcmp(argv[1], "proc") == 0) {
        REQUIRE(argc == 3);
        without_proc(argv[2]);
    } else {
        register_frames();
        for (int i = 0; i < 100; i++) free(malloc(100));
        printf("allocated=100\n");
    }
    return 0;
}
