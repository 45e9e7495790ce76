/*
 * support.h - what the helper programs of the stress and fault suites share: random numbers, checked contents, failure, resident
 * memory, and the door to strata's own check.
 *
 * The programs are plain C without a link to strata, so that the same binary also runs under another malloc; strata's functions are
 * looked up by name, and have to be there when the suite says so (EXPECT_STRATA). Nothing here allocates but that look-up.
 */
#ifndef STRATA_TESTS_SUPPORT_H
#define STRATA_TESTS_SUPPORT_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

/* Says why and ends the process at once: no exit handlers, no stdio. */
__attribute__((noreturn, format(printf, 1, 2))) static inline void fail(const char *format, ...) {
    char line[512];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof line - 1, format, arguments);
    va_end(arguments);
    if (length < 0) length = 0;
    if (length > (int)sizeof line - 2) length = (int)sizeof line - 2;
    line[length] = '\n';
    ssize_t written = write(STDERR_FILENO, line, (size_t)length + 1);
    (void)written;
    _exit(1);
}

#define REQUIRE(condition)                                                                               \
    do {                                                                                                 \
        if (!(condition)) fail("%s:%d: not true: %s (errno %d)", __FILE__, __LINE__, #condition, errno); \
    } while (0)

/* xorshift64*: any state but 0. */
static inline uint64_t rng_next(uint64_t *state) {
    uint64_t x = *state;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    *state = x;
    return x * UINT64_C(2685821657736338717);
}

static inline size_t rng_between(uint64_t *state, size_t low, size_t high) { return low + (size_t)(rng_next(state) % (high - low + 1)); }

static inline uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline void sleep_ms(unsigned ms) {
    struct timespec pause = {ms / 1000, (long)(ms % 1000) * 1000000};
    while (nanosleep(&pause, &pause) != 0 && errno == EINTR) continue;
}

/* A field of /proc/self/status in KiB ("RssAnon", "VmRSS"), read without stdio or malloc. */
static inline size_t status_kib(const char *field) {
    char text[8192];
    int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    if (fd < 0) fail("cannot open /proc/self/status: errno %d", errno);
    size_t length = 0;
    for (ssize_t n; length < sizeof text - 1 && (n = read(fd, text + length, sizeof text - 1 - length)) > 0;) length += (size_t)n;
    close(fd);
    text[length] = 0;
    const char *found = strstr(text, field);
    if (found == NULL) fail("no %s in /proc/self/status", field);
    return (size_t)strtoul(found + strlen(field) + 1, NULL, 10);
}

/* Contents that depend on the block, its size and a seed, so that two blocks that overlap can't both be right. */
static inline uint64_t pattern_word(const void *block, size_t bytes, uint64_t seed) {
    return ((uint64_t)(uintptr_t)block * UINT64_C(0x9e3779b97f4a7c15)) ^ (bytes * UINT64_C(0xc2b2ae3d27d4eb4f)) ^ seed;
}

/* `identity` stands for the block: its own address, or something that stays when the block moves. */
static inline void pattern_fill_as(void *block, const void *identity, size_t bytes, uint64_t seed) {
    unsigned char *out = (unsigned char *)block;
    uint64_t word = pattern_word(identity, bytes, seed);
    size_t i = 0;
    for (; i + 8 <= bytes; i += 8, word += UINT64_C(0x0101010101010101)) memcpy(out + i, &word, 8);
    memcpy(out + i, &word, bytes - i);
}

/* Checks the first `checked` of `bytes` bytes. */
static inline void pattern_check_as(const void *block, const void *identity, size_t bytes, size_t checked, uint64_t seed, const char *who) {
    const unsigned char *in = (const unsigned char *)block;
    uint64_t word = pattern_word(identity, bytes, seed);
    size_t i = 0;
    for (; i + 8 <= checked; i += 8, word += UINT64_C(0x0101010101010101))
        if (memcmp(in + i, &word, 8) != 0) fail("%s: block %p of %zu bytes has changed at offset %zu", who, block, bytes, i);
    if (memcmp(in + i, &word, checked - i) != 0) fail("%s: block %p of %zu bytes has changed at its end", who, block, bytes);
}

static inline void pattern_fill(void *block, size_t bytes, uint64_t seed) { pattern_fill_as(block, block, bytes, seed); }

static inline void pattern_check(const void *block, size_t bytes, uint64_t seed, const char *who) {
    pattern_check_as(block, block, bytes, bytes, seed, who);
}

/* malloc that must succeed, filled. */
static inline void *block_new(size_t bytes, uint64_t seed, const char *who) {
    void *block = malloc(bytes);
    if (block == NULL) fail("%s: malloc(%zu) gave NULL, errno %d", who, bytes, errno);
    pattern_fill(block, bytes, seed);
    return block;
}

static inline void block_delete(void *block, size_t bytes, uint64_t seed, const char *who) {
    pattern_check(block, bytes, seed, who);
    free(block);
}

/* ------------------------------------------------------------------ strata, where it is loaded */

static inline int strata_expected(void) { return getenv("EXPECT_STRATA") != NULL; }

/* A function of strata by name: NULL under another malloc, a failure where strata should be there. */
static inline void *strata_function(const char *name) {
    void *function = dlsym(RTLD_DEFAULT, name);
    if (function == NULL && strata_expected()) fail("%s is not in this process: strata is not loaded", name);
    return function;
}

/* Every layer's invariants. */
static inline void heap_check(const char *when) {
    void *function = strata_function("strata_check");
    if (function == NULL) return;
    const char *(*check)(void);
    memcpy(&check, &function, sizeof check);
    const char *broken = check();
    if (broken != NULL) fail("strata_check %s: %s", when, broken);
}

/* The statistics of now as JSON into a new file. */
static inline void stats_write(const char *path) {
    void *function = strata_function("strata_stats_json");
    if (function == NULL) return;
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0) fail("cannot write %s: errno %d", path, errno);
    int (*stats)(int);
    memcpy(&stats, &function, sizeof stats);
    if (stats(fd) != 0) fail("strata_stats_json could not write %s", path);
    close(fd);
}

/* An argument as a number, with a default. */
static inline size_t argument_number(int argc, char **argv, int index, size_t otherwise) {
    return index < argc ? (size_t)strtoull(argv[index], NULL, 10) : otherwise;
}

#endif
