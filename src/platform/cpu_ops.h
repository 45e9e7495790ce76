/*
 * cpu_ops.h - the sequences of the CPU layer: pop and push of rounds on the cache of the CPU that one runs on.
 *
 * Each CPU (concurrency id, or thread in thread mode) has an area of CPU_AREA_BYTES: first a header of one 64-bit word
 * per cache, then slots of 8 bytes. A header holds slot numbers within the area:
 *
 *     top     the slot above the last round            32 bits
 *     bottom  the first slot of this cache's array     16 bits
 *     limit   the slot above the last usable slot      16 bits
 *
 * Invariant of an open header: bottom <= top <= limit. A closed header (bottom = CPU_CLOSED) looks empty to a pop, and its limit, which is no higher
 * than its top, makes it look full to a push; the top stays what it was. A drained one (CPU_DRAINED) looks the same to both, and has no rounds below
 * its limit. A header of zeros, as fresh memory has it, is empty and full too: this is how a mode that must see every operation, an area
 * that was never used, and a process that isn't initialised all cost the fast path nothing.
 *
 * Only the owner writes `top`; it does so with one store at the end of its sequence, after the rounds are in place, so
 * that a sequence that is aborted in front of it has done nothing. Everyone else may write only the upper half, and
 * may rely on it only after platform_fence_cpus(). A sequence reads top before the bounds, as a word of its own; so
 * whoever has changed the top of a closed header must leave the opening to its owner, on whose CPU no sequence can be
 * between the two reads.
 *
 * Thread mode: nothing restarts a sequence, so one that read an open header may commit long after a fence. A word of each thread
 * (platform_thread_sequence) tells whether one is under way: not 0 from the first instruction of a sequence, and 0 again behind its
 * commit. Of a single push it stays as it is, which saves `free` a store: a push that is still under way adds one round at the top
 * and disturbs nobody who takes the rounds below it. So in thread mode `top` stays its owner's for good; who takes rounds from a closed
 * header says so in its limit: rounds below that slot are gone (0: all are there). The owner puts both in order, under the lock of drains, when it
 * opens the header again.
 */
#ifndef STRATA_PLATFORM_CPU_OPS_H
#define STRATA_PLATFORM_CPU_OPS_H

#include "base/check.h"
#include "platform/platform.h"

#define CPU_AREA_SHIFT 16
#define CPU_AREA_BYTES ((size_t)1 << CPU_AREA_SHIFT)
#define CPU_AREA_SLOTS (CPU_AREA_BYTES / 8)

/* The bottom of a closed header: by someone who may be about to take its rounds, and when they are gone and the owner may open it again. */
#define CPU_CLOSED UINT32_C(0xffff)
#define CPU_DRAINED UINT32_C(0xfffe)

struct cpu_header {
    uint32_t top;
    uint16_t bottom;
    uint16_t limit;
} STRATA_ALIGNED(8);
typedef uint64_t __attribute__((may_alias)) cpu_header_bits;
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the top is the lower half");
/* What an upper half says: bottom and limit. */
STRATA_INLINE uint32_t cpu_header_upper(struct cpu_header header) { return header.bottom | (uint32_t)header.limit << 16; }
STRATA_INLINE bool cpu_upper_closed(uint32_t upper) { return (upper & 0xffff) == CPU_CLOSED; }
STRATA_INLINE bool cpu_upper_drained(uint32_t upper) { return (upper & 0xffff) == CPU_DRAINED; }
/* Neither closed nor drained, nor never used. */
STRATA_INLINE bool cpu_upper_open(uint32_t upper) { return upper != 0 && !cpu_upper_closed(upper) && !cpu_upper_drained(upper); }
/* Of a closed or drained header: rounds below this slot are gone. */
STRATA_INLINE unsigned cpu_upper_taken(uint32_t upper) { return cpu_upper_open(upper) ? 0 : upper >> 16; }

/* In the word of a single push; in no other that is not 0. */
#define CPU_SEQUENCE_PUSH UINT64_C(32)
/* Whether the thread with this word is surely in no sequence but a single push. */
STRATA_INLINE bool cpu_sequence_ended(uint64_t word) { return word == 0 || (word & CPU_SEQUENCE_PUSH) != 0; }

STRATA_INLINE uint64_t cpu_header_pack(unsigned top, unsigned bottom, unsigned limit) {
    return (uint64_t)top | (uint64_t)bottom << 32 | (uint64_t)limit << 48;
}

/*
 * How a thread finds its area. Written once by platform_init (areas: by cache/), before any other thread can allocate.
 * The two offsets are from the thread pointer: to the rseq structure, and to the id within it. In thread mode they lead
 * to a block of ours with the same shape, so the same instructions serve both.
 */
struct platform_cpu {
    ptrdiff_t rseq_offset;
    ptrdiff_t id_offset;
    char *areas;
};
extern struct platform_cpu platform_cpu __attribute__((visibility("hidden")));

/* The area with this number. */
STRATA_INLINE char *cpu_area_at(uint32_t id) { return platform_cpu.areas + ((size_t)id << CPU_AREA_SHIFT); }
STRATA_INLINE struct cpu_header *cpu_area_header(char *area, unsigned cache) { return (struct cpu_header *)(void *)area + cache; }

#if defined(__x86_64__) && !defined(STRATA_NO_RSEQ) && !defined(STRATA_SIM)
#include "platform/cpu_ops_x86_64.h"
#else
#include "platform/cpu_ops_portable.h"
#endif

/* The sequences on the areas of malloc's caches. Those with _in take the place where the first of all CPUs' areas stands. */
STRATA_INLINE void *cpu_pop(unsigned cache) { return cpu_pop_in(&platform_cpu.areas, cache); }
STRATA_INLINE bool cpu_push(unsigned cache, void *round) { return cpu_push_in(&platform_cpu.areas, cache, round); }
STRATA_INLINE unsigned cpu_pop_batch(unsigned cache, void **out, unsigned count) { return cpu_pop_batch_in(&platform_cpu.areas, cache, out, count); }
STRATA_INLINE unsigned cpu_push_batch(unsigned cache, void *const *in, unsigned count) {
    return cpu_push_batch_in(&platform_cpu.areas, cache, in, count);
}

#endif
