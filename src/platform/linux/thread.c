/*
 * thread.c - threads of our own: detached, with a small stack, deaf to signals.
 *
 * All signals are blocked around the creation, so that the new thread inherits the blocked mask and no handler of the program ever runs on
 * our stack. What the thread shall run is handed over in a mapping of its own, as any number may be about to start: the creation allocates nothing
 * itself (the C library does, through malloc, for the thread's own block).
 */
#define _GNU_SOURCE 1
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/kcmp.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "platform/linux/linux.h"

/* Our own work takes a few KiB; as the last thread of all it also runs what the program has for its exit. */
#define STACK_BYTES (512 * KIB)
#define STACK_BYTES_MAX (8 * MIB)

/* Threads of ours, in the lower half, and the process that they are in, as a forked child has none. Atomic: two may be the first at the same time. */
static uint64_t own_threads;
/* The last process that was found to have memory of its own, so that it may have threads of ours: a child of vfork has not. Atomic; 0: none yet. */
static unsigned own_process;

/* A thread being started. */
struct start {
    void (*body)(void *);
    void *argument;
};

uint32_t platform_thread_self(void) { return (uint32_t)syscall(SYS_gettid); }

uint32_t *platform_thread_asked(void) {
    static __thread uint32_t asked __attribute__((tls_model("initial-exec")));
    return &asked;
}

static void count_thread(void) {
    const uint64_t process = (uint64_t)platform_process_id() << 32;
    uint64_t seen = __atomic_load_n(&own_threads, __ATOMIC_RELAXED), counted;
    do counted = (seen >> 32 << 32 == process ? seen : process) + 1;
    while (!__atomic_compare_exchange_n(&own_threads, &seen, counted, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
}

/* It counts itself, as of one that is counted before it is there, who made it might be taken for it. */
static void *run_thread(void *argument) {
    const struct start start = *(struct start *)argument;
    count_thread();
    munmap(argument, sizeof(struct start));
    prctl(PR_SET_NAME, "strata", 0, 0, 0);
    start.body(start.argument);
    __atomic_fetch_sub(&own_threads, 1, __ATOMIC_RELAXED);
    return NULL;
}

/* EINVAL: too small for the program's thread-local data, which the C library takes from the stack. Then more is tried. */
static int create(struct start *start) {
    pthread_t thread;
    pthread_attr_t attributes;
    int error = pthread_attr_init(&attributes);
    if (error != 0) return error;
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    long least_bytes = sysconf(_SC_THREAD_STACK_MIN);
    size_t bytes = STACK_BYTES;
    while (least_bytes > 0 && bytes < (size_t)least_bytes) bytes *= 2;
    for (error = EINVAL; error == EINVAL && bytes <= STACK_BYTES_MAX; bytes *= 2) {
        error = pthread_attr_setstacksize(&attributes, bytes);
        if (error == 0) error = pthread_create(&thread, &attributes, run_thread, start);
    }
    pthread_attr_destroy(&attributes);
    return error;
}

/*
 * As that of a child of vfork, whose parent sleeps meanwhile, is its parent's. Where the system doesn't say (a filter, or a kernel without the call)
 * such a child is known by the number that it reads (api/vfork.c), which a process that it forks reads for good.
 */
static bool has_memory_of_parent(unsigned process) {
    const int saved = errno;
    const long differs = platform_is_filtered() ? -1 : syscall(SYS_kcmp, process, getppid(), KCMP_VM, 0, 0);
    errno = saved;
    return differs < 0 ? platform_cpu_has_left() : differs == 0;
}

STRATA_SELDOM bool platform_thread_may_start(void) {
    const unsigned process = platform_process_id();
    if (__atomic_load_n(&own_process, __ATOMIC_RELAXED) == process) return true;
    if (has_memory_of_parent(process)) return false;
    __atomic_store_n(&own_process, process, __ATOMIC_RELAXED);
    return true;
}

bool platform_thread_start(void (*body)(void *), void *argument) {
    if (!platform_thread_may_start()) return false;
    struct start *start = linux_map(NULL, sizeof(struct start), PROT_READ | PROT_WRITE, 0);
    if (start == NULL) return false;
    *start = (struct start){.body = body, .argument = argument};
    int saved = errno;
    sigset_t all, before;
    sigfillset(&all);
    bool masked = pthread_sigmask(SIG_SETMASK, &all, &before) == 0;
    int error = masked ? create(start) : EINVAL;
    if (masked) pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error != 0) munmap(start, sizeof(struct start));
    errno = saved;
    return error == 0;
}

/* Threads' own data lie pages apart. */
STRATA_USUAL uint32_t platform_thread_token(void) { return (uint32_t)((uintptr_t)&errno >> 8) | 1; }

/* ------------------------------------------------------------------ the end of the process */

static void (*first_thread_callback)(void);

static void first_thread_exit(void *unused) {
    (void)unused;
    first_thread_callback();
}

STRATA_USUAL bool platform_on_first_thread_exit(void (*callback)(void)) {
    static pthread_key_t key;
    static bool made; /* written by the first caller, before there is a second thread or under the lock of fork's child */
    if (linux_is_elsewhere || syscall(SYS_gettid) != getpid()) return false;
    int saved = errno;
    first_thread_callback = callback;
    if (!made) made = pthread_key_create(&key, first_thread_exit) == 0;
    bool ok = made && pthread_setspecific(key, &made) == 0; /* any value but NULL */
    errno = saved;
    return ok;
}

/* /proc/self/stat: "number (name) state ...", and the number of threads as the 18th field behind the name; the first thread counts until the end. */
bool platform_thread_is_last(bool *known) {
    char text[1024];
    int saved = errno;
    int file = linux_open("/proc/self/stat", O_RDONLY | O_CLOEXEC, 0);
    ssize_t length = file < 0 ? -1 : linux_read(file, text, sizeof text - 1);
    if (file >= 0) linux_close(file);
    errno = saved;
    if (known != NULL) *known = length > 0;
    if (length <= 0) return false;
    text[length] = 0;
    const char *field = strrchr(text, ')');
    if (field == NULL || strncmp(field, ") Z ", 4) != 0) return false;
    for (unsigned i = 0; i < 18 && field != NULL; i++) field = strchr(field + 1, ' ');
    return field != NULL && linux_number(field) <= 1 + (uint64_t)(uint32_t)__atomic_load_n(&own_threads, __ATOMIC_RELAXED);
}
