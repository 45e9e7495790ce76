/*
 * trace_recorder.c - a library for LD_PRELOAD that records the allocations of each process in TRACE_DIR/PID.trace, in the format of trace.h.
 *
 * The C library's malloc serves the program. Its blocks are recorded when they have been given and before they are taken back, so that no address
 * is in use twice. A child of fork is not recorded until it executes a program, as it would write its parent's buffer a second time.
 * One lock round the buffer; nothing in here allocates.
 */
#include "trace.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define BUFFER_BYTES ((size_t)1 << 16)
#define EVENT_BYTES_MAX 40
/* Above the files that programs number themselves. */
#define FILE_NUMBER_MIN 500

/* The C library's own names for its functions. */
extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_realloc(void *block, size_t bytes);
extern void *__libc_memalign(size_t align, size_t bytes);
extern void __libc_free(void *block);

static struct {
    atomic_flag lock;
    int file; /* 0: nothing is recorded */
    uint64_t last_us;
    uint64_t last_unit;
    size_t length;
    unsigned char buffer[BUFFER_BYTES];
} trace = {.lock = ATOMIC_FLAG_INIT};

static uint64_t now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

/* A trace with a hole in it would be replayed as something that never happened. */
static void give_up(void) {
    static const char text[] = "trace_recorder: can't write the trace\n";
    if (write(STDERR_FILENO, text, sizeof text - 1) < 0) _exit(3);
    _exit(2);
}

static void flush(void) {
    for (size_t done = 0; done < trace.length;) {
        ssize_t count = write(trace.file, trace.buffer + done, trace.length - done);
        if (count < 0 && errno != EINTR) give_up();
        if (count > 0) done += (size_t)count;
    }
    trace.length = 0;
}

static void put_number(uint64_t number) {
    for (; number >= 0x80; number >>= 7) trace.buffer[trace.length++] = (unsigned char)(number | 0x80);
    trace.buffer[trace.length++] = (unsigned char)number;
}

static void put_address(const void *block) {
    uint64_t unit = (uintptr_t)block / 16, difference = unit - trace.last_unit;
    put_number(difference << 1 ^ -(difference >> 63));
    trace.last_unit = unit;
}

static void record(enum trace_kind kind, size_t bytes, const void *block, const void *second) {
    int saved = errno;
    while (atomic_flag_test_and_set_explicit(&trace.lock, memory_order_acquire)) {}
    if (trace.file) {
        uint64_t us = now_us();
        if (trace.length > BUFFER_BYTES - 2 * EVENT_BYTES_MAX) flush();
        if (us != trace.last_us) put_number((us - trace.last_us) << 2 | TRACE_TIME);
        trace.last_us = us;
        put_number((uint64_t)bytes << 2 | kind);
        put_address(block);
        if (second) put_address(second);
    }
    atomic_flag_clear_explicit(&trace.lock, memory_order_release);
    errno = saved;
}

static void in_child(void) {
    trace.file = 0;
    atomic_flag_clear(&trace.lock);
}

__attribute__((constructor)) static void begin(void) {
    const char *folder = getenv("TRACE_DIR");
    char path[512];
    if (!folder || snprintf(path, sizeof path, "%s/%d.trace", folder, getpid()) >= (int)sizeof path) return;
    struct trace_head head = {.magic = TRACE_MAGIC, .start_us = now_us()};
    strncpy(head.name, program_invocation_short_name, sizeof head.name - 1);
    /* A process that executes another program in its place goes on under its number: the longer life counts, the rest is lost. */
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    int high = file < 0 ? -1 : fcntl(file, F_DUPFD_CLOEXEC, FILE_NUMBER_MIN);
    if (high < 0 || close(file) || write(high, &head, sizeof head) != sizeof head || pthread_atfork(NULL, NULL, in_child)) give_up();
    trace.last_us = head.start_us;
    trace.file = high;
}

/* With the time of the end, to which the memory of the process was in use. */
__attribute__((destructor)) static void end(void) {
    if (!trace.file) return;
    while (atomic_flag_test_and_set_explicit(&trace.lock, memory_order_acquire)) {}
    put_number((now_us() - trace.last_us) << 2 | TRACE_TIME);
    flush();
    close(trace.file);
    trace.file = 0;
    atomic_flag_clear_explicit(&trace.lock, memory_order_release);
}

static void *recorded(void *block, size_t bytes) {
    if (block) record(TRACE_ALLOC, bytes, block, NULL);
    return block;
}

EXPORT void *malloc(size_t bytes) { return recorded(__libc_malloc(bytes), bytes); }
EXPORT void *calloc(size_t count, size_t bytes) { return recorded(__libc_calloc(count, bytes), count * bytes); }
EXPORT void *memalign(size_t align, size_t bytes) { return recorded(__libc_memalign(align, bytes), bytes); }
EXPORT void *aligned_alloc(size_t align, size_t bytes) { return recorded(__libc_memalign(align, bytes), bytes); }
EXPORT int posix_memalign(void **block, size_t align, size_t bytes) {
    if (align % sizeof(void *) || align & (align - 1) || !align) return EINVAL;
    void *got = memalign(align, bytes);
    if (!got) return ENOMEM;
    *block = got;
    return 0;
}

EXPORT void free(void *block) {
    if (block) record(TRACE_FREE, 0, block, NULL);
    __libc_free(block);
}

EXPORT void *realloc(void *block, size_t bytes) {
    if (!block) return malloc(bytes);
    if (!bytes) {
        free(block);
        return NULL;
    }
    void *moved = __libc_realloc(block, bytes);
    if (moved) record(TRACE_RESIZE, bytes, block, moved);
    return moved;
}
