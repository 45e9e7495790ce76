/*
 * base.h - the leaf that every layer may include: compiler attributes, integer helpers, bit operations.
 *
 * Nothing here talks to the operating system or holds state. No lock rank: nothing here locks.
 */
#ifndef STRATA_BASE_BASE_H
#define STRATA_BASE_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STRATA_LIKELY(x) __builtin_expect(!!(x), 1)
#define STRATA_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define STRATA_EXPORT __attribute__((visibility("default")))
#define STRATA_NOINLINE __attribute__((noinline))
#define STRATA_COLD __attribute__((noinline, cold))
#define STRATA_RARE __attribute__((noinline, section(".text.unlikely.rare")))  /* as fast as any, but small programs have no use for it */
#define STRATA_SELDOM __attribute__((noinline, cold, section(".text.seldom"))) /* who looks inside, or takes a cache away */
#define STRATA_USUAL __attribute__((hot)) /* for a function that every process needs, in a file of which few need the rest: see cmake/layout.ld */
#define STRATA_USUAL_DATA __attribute__((section(".data.usual"))) /* the same for a variable: near what the loader writes to */
#define STRATA_INLINE static inline __attribute__((always_inline, unused))
#define STRATA_ALIGNED(n) __attribute__((aligned(n)))
#define STRATA_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))

/* The size of a cache line on the machines that we serve; aarch64 parts with 128-byte lines lose only padding. */
#define CACHE_LINE_BYTES 64

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)

STRATA_INLINE bool is_power_of_two(uint64_t x) { return x != 0 && (x & (x - 1)) == 0; }

/* `align` is a power of two; the caller makes sure that x + align - 1 does not wrap. */
STRATA_INLINE uint64_t align_up(uint64_t x, uint64_t align) { return (x + align - 1) & ~(align - 1); }
STRATA_INLINE uint64_t align_down(uint64_t x, uint64_t align) { return x & ~(align - 1); }

/* Position of the lowest or highest set bit; x is not 0. */
STRATA_INLINE unsigned bit_lowest(uint64_t x) { return (unsigned)__builtin_ctzll(x); }
STRATA_INLINE unsigned bit_highest(uint64_t x) { return 63u - (unsigned)__builtin_clzll(x); }
/* The instruction where the target has it; else by halves, as the compiler would call a function with a table. */
STRATA_INLINE unsigned bit_count(uint64_t x) {
#if defined(__POPCNT__) || !defined(__x86_64__)
    return (unsigned)__builtin_popcountll(x);
#else
    x -= x >> 1 & UINT64_C(0x5555555555555555);
    x = (x & UINT64_C(0x3333333333333333)) + (x >> 2 & UINT64_C(0x3333333333333333));
    x = (x + (x >> 4)) & UINT64_C(0x0f0f0f0f0f0f0f0f);
    return (unsigned)(x * UINT64_C(0x0101010101010101) >> 56);
#endif
}

/*
 * Counters that the holder of a lock writes, and others read without the lock by __atomic_load_n: never torn, in no order. These are
 * ordinary loads and stores, no locked instructions.
 */
#define COUNTER_ADD(counter, amount) __atomic_store_n(&(counter), (counter) + (amount), __ATOMIC_RELAXED)
#define COUNTER_SUB(counter, amount) __atomic_store_n(&(counter), (counter) - (amount), __ATOMIC_RELAXED)

STRATA_INLINE uint64_t min_u64(uint64_t a, uint64_t b) { return a < b ? a : b; }
STRATA_INLINE uint64_t max_u64(uint64_t a, uint64_t b) { return a > b ? a : b; }

#define CONTAINER_OF(ptr, type, member) ((type *)(void *)((char *)(ptr) - offsetof(type, member)))
#define ARRAY_LENGTH(a) (sizeof(a) / sizeof((a)[0]))

#endif
