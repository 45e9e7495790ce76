/*
 * load.h - what every load program shares: arguments, clock, random numbers, blocks that are checked, the report.
 *
 * A load does a fixed amount of work from fixed seeds, so that its result (the checksum) is the same under every allocator and on every run; only
 * the time and the memory differ. It knows nothing of the allocator: it calls malloc and free as any program does, and LD_PRELOAD picks who answers.
 *
 * Blocks carry a tag in their first eight bytes, one byte in every further 4096, and one in their last byte. The tag is checked before the block is
 * freed, so memory that was handed out twice, lost its contents in realloc, or came back dirty from calloc ends the program with a message.
 *
 * Valid in C11 and C++17.
 *
 * Invariants: no block is smaller than BLOCK_MIN_BYTES; each thread has its own struct rng and its own struct tally. No locks.
 */
#ifndef STRATA_BENCH_LOAD_H
#define STRATA_BENCH_LOAD_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifdef __cplusplus
#define LOAD_NORETURN [[noreturn]]
extern "C" {
#else
#define LOAD_NORETURN _Noreturn
#endif

#define BLOCK_MIN_BYTES sizeof(uint64_t)
#define TOUCH_STEP_BYTES ((size_t)4096)
#define KIB ((size_t)1024)
#define MIB (KIB * KIB)
#define CACHE_LINE_BYTES 64

struct load_args {
    const char *mode;       /* a load's own variant, or "" */
    unsigned threads;       /* 0: the load's own choice */
    unsigned scale_percent; /* amount of work; 100 is what is published */
};

/* What a thread has done: operations (one malloc, realloc or hand-over each) and a sum over what it read back from its blocks. */
struct tally {
    uint64_t operations;
    uint64_t checksum;
};

struct rng {
    uint64_t state;
};

struct block {
    void *memory;
    size_t size_bytes;
    uint64_t tag;
};

struct load_args load_arguments(int argc, char **argv);
LOAD_NORETURN void load_fail(const char *what);
uint64_t load_clock_ns(void);
void load_report(const char *name, const struct load_args *args, const struct tally *total, uint64_t elapsed_ns);

/* Runs body(index, context, tally) in `threads` threads (in the caller's where it is one) and returns the sum of their tallies. */
struct tally load_threads(unsigned threads, void (*body)(unsigned index, void *context, struct tally *tally), void *context);

/* `amount` scaled by --scale, at least 1. */
static inline uint64_t load_scaled(const struct load_args *args, uint64_t amount) {
    uint64_t scaled = amount * args->scale_percent / 100;
    return scaled ? scaled : 1;
}

static inline struct rng rng_seed(uint64_t seed) {
    struct rng rng = {(seed + 1) * UINT64_C(0x9e3779b97f4a7c15)};
    return rng;
}

/* xorshift with a final multiplication: a few cycles, so that the generator does not hide the allocator. */
static inline uint64_t rng_next(struct rng *rng) {
    uint64_t state = rng->state;
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    rng->state = state;
    return state * UINT64_C(0x2545f4914f6cdd1d);
}

static inline uint64_t rng_below(struct rng *rng, uint64_t bound) { return ((rng_next(rng) >> 32) * bound) >> 32; }

static inline size_t rng_between(struct rng *rng, size_t low, size_t high) { return low + (size_t)rng_below(rng, high - low + 1); }

/* Log-uniform between two powers of two: every doubling is as likely as the next, as sizes of buffers in programs are. */
static inline size_t rng_doubling(struct rng *rng, unsigned low_shift, unsigned high_shift) {
    size_t base = (size_t)1 << (low_shift + (unsigned)rng_below(rng, high_shift - low_shift));
    return base + (size_t)rng_below(rng, base);
}

static inline unsigned char touch_byte(uint64_t tag, size_t offset) { return (unsigned char)(tag ^ (offset / TOUCH_STEP_BYTES)); }

static inline void block_write(void *memory, size_t size_bytes, uint64_t tag) {
    unsigned char *bytes = (unsigned char *)memory;
    memcpy(bytes, &tag, sizeof tag);
    for (size_t offset = TOUCH_STEP_BYTES; offset < size_bytes; offset += TOUCH_STEP_BYTES) bytes[offset] = touch_byte(tag, offset);
    if (size_bytes > sizeof tag) bytes[size_bytes - 1] = touch_byte(tag, size_bytes - 1);
}

/* Checks what block_write wrote, and returns the tag as it was read from memory. */
static inline uint64_t block_read(const void *memory, size_t size_bytes, uint64_t tag) {
    const unsigned char *bytes = (const unsigned char *)memory;
    uint64_t found;
    memcpy(&found, bytes, sizeof found);
    unsigned bad = found != tag;
    for (size_t offset = TOUCH_STEP_BYTES; offset + 1 < size_bytes; offset += TOUCH_STEP_BYTES) bad |= bytes[offset] != touch_byte(tag, offset);
    if (size_bytes > sizeof tag) bad |= bytes[size_bytes - 1] != touch_byte(tag, size_bytes - 1);
    if (bad) load_fail("a block does not hold what was written to it");
    return found;
}

static inline struct block block_take(size_t size_bytes, uint64_t tag) {
    struct block block = {malloc(size_bytes), size_bytes, tag};
    if (!block.memory) load_fail("malloc returned NULL");
    block_write(block.memory, size_bytes, tag);
    return block;
}

static inline void block_drop(struct block *block, struct tally *tally) {
    tally->operations++;
    tally->checksum += block_read(block->memory, block->size_bytes, block->tag) ^ block->size_bytes;
    free(block->memory);
    block->memory = NULL;
}

#ifdef __cplusplus
}
#endif

#endif
