/*
 * umem.c - umem_alloc and its kind on strata_kmem_alloc, and what happens when an allocation that must not fail does.
 *
 * No locks: the callback is one word, and so is the thread that calls exit.
 */
#define _GNU_SOURCE
#include "umem_internal.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <strata/cache.h>
#include <strata/debug.h>
#include <strata/kmem.h>
#include <strata/malloc.h>

/* ------------------------------------------------------------------ messages */

/*
 * As strata's own lines are: no thread is cancelled here, in the middle of what the line is about; and where nobody reads, or a file may become no
 * larger, that ends no program. The signal for it is held back and taken, unless one was pending before, which is the program's.
 */
static void write_all(const char *text, size_t bytes) {
    sigset_t ours, before, pending;
    sigemptyset(&ours);
    sigaddset(&ours, SIGPIPE);
    sigaddset(&ours, SIGXFSZ);
    sigemptyset(&pending);
    const bool held = pthread_sigmask(SIG_BLOCK, &ours, &before) == 0; /* false: a filter of system calls forbids it */
    if (held && (sigismember(&before, SIGPIPE) == 1 || sigismember(&before, SIGXFSZ) == 1)) sigpending(&pending);
    long written;
    do written = syscall(SYS_write, STDERR_FILENO, text, bytes);
    while (written < 0 && errno == EINTR);
    const int number = written >= 0 || !held ? 0 : errno == EPIPE ? SIGPIPE : errno == EFBIG ? SIGXFSZ : 0;
    if (number != 0 && sigismember(&pending, number) == 0) {
        const uint64_t set = UINT64_C(1) << (number - 1); /* as the kernel has it */
        (void)syscall(SYS_rt_sigtimedwait, &set, NULL, &(struct timespec){0}, sizeof set);
    }
    if (held) pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static __attribute__((format(printf, 1, 0))) void write_line(const char *format, va_list args) {
    char line[256] = "umem: ";
    int head = 6, length = vsnprintf(line + head, sizeof line - (size_t)head - 1, format, args);
    size_t bytes = (size_t)head + (length < 0 ? 0 : (size_t)length);
    if (bytes > sizeof line - 2) bytes = sizeof line - 2;
    for (size_t i = (size_t)head; i < bytes; i++)
        if ((unsigned char)line[i] < 0x20 || line[i] == 0x7f) line[i] = '?'; /* of names */
    line[bytes++] = '\n';
    write_all(line, bytes);
}

void umem_line(const char *format, ...) {
    int saved = errno;
    va_list args;
    va_start(args, format);
    write_line(format, args);
    va_end(args);
    errno = saved;
}

void umem_die(const char *format, ...) {
    va_list args;
    va_start(args, format);
    write_line(format, args);
    va_end(args);
    abort();
}

/* ------------------------------------------------------------------ UMEM_NOFAIL */

static umem_nofail_callback_t *nofail_callback; /* atomic */
static uintptr_t exiting;                       /* the thread that calls exit; atomic */

void umem_nofail_callback(umem_nofail_callback_t *callback) { __atomic_store_n(&nofail_callback, callback, __ATOMIC_RELEASE); }

/* exit by one thread; others wait until it has ended them. */
static _Noreturn void leave(int status) {
    uintptr_t nobody = 0, self = (uintptr_t)pthread_self();
    if (__atomic_compare_exchange_n(&exiting, &nobody, self, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) exit(status);
    if (nobody == self) umem_die("no memory for an allocation with UMEM_NOFAIL, in a handler of exit");
    for (;;) pause();
}

/* Returns where it is to be tried again. */
static void ask_callback(void) {
    umem_nofail_callback_t *callback = __atomic_load_n(&nofail_callback, __ATOMIC_ACQUIRE);
    int answer = callback != NULL ? callback() : UMEM_CALLBACK_EXIT(255);
    if (answer == UMEM_CALLBACK_RETRY) return;
    if ((answer & ~0xff) != 0x100) {
        umem_line("the callback of umem_nofail_callback returned 0x%x, which is neither UMEM_CALLBACK_RETRY nor UMEM_CALLBACK_EXIT",
                  (unsigned)answer);
        answer = UMEM_CALLBACK_EXIT(255);
    }
    leave(answer & 0xff);
}

__attribute__((cold)) void *umem_insist(void *(*try)(const struct umem_request *request), const struct umem_request *request) {
    for (;; ask_callback()) {
        bool before = strata_debug_spare(true);
        void *object = try(request);
        strata_debug_spare(before);
        if (object != NULL) return object;
    }
}

void *umem_own_alloc(size_t size) {
    bool before = strata_debug_spare(true);
    void *memory = strata_kmem_zalloc(size, STRATA_KMEM_NO_SLEEP);
    strata_debug_spare(before);
    return memory;
}

/* ------------------------------------------------------------------ blocks */

static void *try_alloc(const struct umem_request *request) { return strata_kmem_alloc(request->size, STRATA_KMEM_NO_SLEEP); }
static void *try_zalloc(const struct umem_request *request) { return strata_kmem_zalloc(request->size, STRATA_KMEM_NO_SLEEP); }
static void *try_aligned(const struct umem_request *request) { return strata_aligned_alloc(request->align, request->size); }

void *umem_alloc(size_t size, int flags) {
    if (size == 0) return NULL;
    void *block = strata_kmem_alloc(size, STRATA_KMEM_NO_SLEEP);
    if (block != NULL || (flags & UMEM_NOFAIL) == 0) return block;
    return umem_insist(try_alloc, &(struct umem_request){.size = size});
}

void *umem_zalloc(size_t size, int flags) {
    if (size == 0) return NULL;
    void *block = strata_kmem_zalloc(size, STRATA_KMEM_NO_SLEEP);
    if (block != NULL || (flags & UMEM_NOFAIL) == 0) return block;
    return umem_insist(try_zalloc, &(struct umem_request){.size = size});
}

void umem_free(void *buf, size_t size) { strata_kmem_free(buf, size); }

void *umem_alloc_align(size_t size, size_t align, int flags) {
    if ((align & (align - 1)) != 0) {
        errno = EINVAL; /* which no callback mends */
        return NULL;
    }
    if (size == 0) return NULL;
    if (align == 0) align = 16; /* as every block has it */
    void *block = strata_aligned_alloc(align, size);
    if (block != NULL || (flags & UMEM_NOFAIL) == 0) return block;
    return umem_insist(try_aligned, &(struct umem_request){.size = size, .align = align});
}

/* The size says nothing of the alignment, and so not where the block came from. */
void umem_free_align(void *buf, size_t size) {
    (void)size;
    strata_free(buf);
}

void umem_reap(void) {
    umem_reclaim_all();
    strata_cache_reap(NULL);
    strata_release(0);
}
