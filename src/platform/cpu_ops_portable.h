/*
 * cpu_ops_portable.h - the CPU sequences in C. Included by cpu_ops.h only.
 *
 * For thread mode on machines without our assembly (each thread owns its area), for builds with
 * STRATA_NO_RSEQ, and for `sim`, where CPU_OPS_STORE stands before every store: there the script may run other virtual
 * CPUs and then abort the sequence, just as the kernel would.
 */
#ifndef STRATA_PLATFORM_CPU_OPS_PORTABLE_H
#define STRATA_PLATFORM_CPU_OPS_PORTABLE_H

#ifdef STRATA_SIM
/* True: the virtual CPU was preempted here, the sequence starts again. */
bool sim_preempt_point(void);
uint32_t sim_cpu_id(void);
#define CPU_OPS_STORE(again)                 \
    do {                                     \
        if (sim_preempt_point()) goto again; \
    } while (0)
/* Between the reads of top and of the bounds, too, as a processor may take its time there without the kernel seeing it. */
#define CPU_OPS_LOAD(again) CPU_OPS_STORE(again)
STRATA_INLINE uint32_t cpu_id(void) { return sim_cpu_id(); }
uint64_t *sim_thread_sequence(void);
STRATA_INLINE uint64_t *cpu_sequence_word(void) { return sim_thread_sequence(); }
#else
#define CPU_OPS_STORE(again)   \
    do {                       \
        if (false) goto again; \
    } while (0)
#define CPU_OPS_LOAD(again) CPU_OPS_STORE(again)
/* This thread's id: 0 until cache/ gives it one. */
extern __thread uint32_t platform_portable_thread_id __attribute__((visibility("hidden"), tls_model("initial-exec")));
STRATA_INLINE uint32_t cpu_id(void) { return platform_portable_thread_id; }
/* This thread's word: see cpu_ops.h. */
extern __thread uint64_t platform_portable_sequence __attribute__((visibility("hidden"), tls_model("initial-exec")));
STRATA_INLINE uint64_t *cpu_sequence_word(void) { return &platform_portable_sequence; }
#endif

/*
 * The processor may read a header before others see the word: the fence of whoever waits for it is what orders the two, and here the compiler is
 * told to keep them apart. Release at the end: whoever sees the word zero sees what was committed, and has nothing taken from under a read.
 */
STRATA_INLINE void cpu_sequence_begin(void) {
    __atomic_store_n(cpu_sequence_word(), 1, __ATOMIC_RELAXED);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
}
STRATA_INLINE void cpu_sequence_end(void) { __atomic_store_n(cpu_sequence_word(), 0, __ATOMIC_RELEASE); }

/* Others look at headers while the owner runs, for statistics and checks: no lock, but no tearing either. */
#define CPU_OPS_READ(word) __atomic_load_n((word), __ATOMIC_RELAXED)
#define CPU_OPS_WRITE(word, value) __atomic_store_n((word), (value), __ATOMIC_RELAXED)

/* The number of this CPU's area at this moment. */
STRATA_INLINE uint32_t cpu_current_id(void) { return cpu_id(); }
STRATA_INLINE char *cpu_area(char *const *areas) { return *areas + ((size_t)cpu_id() << CPU_AREA_SHIFT); }
STRATA_INLINE void **cpu_area_slots(char *area) { return (void **)(void *)area; }

STRATA_INLINE void *cpu_pop_in(char *const *areas, unsigned cache) {
    void *round;
    cpu_sequence_begin();
again:
    round = NULL;
    char *area = cpu_area(areas);
    struct cpu_header *header = cpu_area_header(area, cache);
    unsigned top = CPU_OPS_READ(&header->top);
    CPU_OPS_LOAD(again);
    if (STRATA_LIKELY(top > CPU_OPS_READ(&header->bottom))) {
        round = cpu_area_slots(area)[top - 1];
        CPU_OPS_STORE(again);
        CPU_OPS_WRITE(&header->top, top - 1);
    }
    cpu_sequence_end();
    return round;
}

/* No word tells of it, and nobody waits for it; release, as the round may be taken by whoever sees the top. */
STRATA_INLINE bool cpu_push_in(char *const *areas, unsigned cache, void *round) {
again:;
    char *area = cpu_area(areas);
    struct cpu_header *header = cpu_area_header(area, cache);
    unsigned top = CPU_OPS_READ(&header->top);
    CPU_OPS_LOAD(again);
    if (STRATA_UNLIKELY(top >= CPU_OPS_READ(&header->limit))) return false;
    CPU_OPS_STORE(again);
    cpu_area_slots(area)[top] = round;
    CPU_OPS_STORE(again);
    __atomic_store_n(&header->top, top + 1, __ATOMIC_RELEASE);
    return true;
}

/* Both orders of taking several. */
static inline unsigned cpu_pop_several(char *const *areas, unsigned cache, void **out, unsigned count, bool top_first) {
    unsigned taken;
    CHECK(count != 0); /* the sequences in assembly count on it */
    cpu_sequence_begin();
again:
    taken = 0;
    char *area = cpu_area(areas);
    struct cpu_header *header = cpu_area_header(area, cache);
    unsigned top = CPU_OPS_READ(&header->top);
    CPU_OPS_LOAD(again);
    unsigned bottom = CPU_OPS_READ(&header->bottom);
    if (top > bottom) {
        taken = (unsigned)min_u64(count, top - bottom);
        for (unsigned i = 0; i < taken; i++) out[top_first ? i : taken - 1 - i] = cpu_area_slots(area)[top - 1 - i];
        CPU_OPS_STORE(again);
        CPU_OPS_WRITE(&header->top, top - taken);
    }
    cpu_sequence_end();
    return taken;
}
static inline unsigned cpu_pop_batch_in(char *const *areas, unsigned cache, void **out, unsigned count) {
    return cpu_pop_several(areas, cache, out, count, true);
}
static inline unsigned cpu_pop_upper_in(char *const *areas, unsigned cache, void **out, unsigned count) {
    return cpu_pop_several(areas, cache, out, count, false);
}

static inline unsigned cpu_push_batch_in(char *const *areas, unsigned cache, void *const *in, unsigned count) {
    unsigned put;
    CHECK(count != 0);
    cpu_sequence_begin();
again:
    put = 0;
    char *area = cpu_area(areas);
    struct cpu_header *header = cpu_area_header(area, cache);
    unsigned top = CPU_OPS_READ(&header->top);
    CPU_OPS_LOAD(again);
    unsigned limit = CPU_OPS_READ(&header->limit);
    if (top < limit) {
        put = (unsigned)min_u64(count, limit - top);
        for (unsigned i = 0; i < put; i++) {
            CPU_OPS_STORE(again);
            cpu_area_slots(area)[top + i] = in[i];
        }
        CPU_OPS_STORE(again);
        CPU_OPS_WRITE(&header->top, top + put);
    }
    cpu_sequence_end();
    return put;
}

STRATA_INLINE uint64_t cpu_header_word(const struct cpu_header *header) { return CPU_OPS_READ((const cpu_header_bits *)(const void *)header); }

STRATA_INLINE uint64_t cpu_header_read(char *const *areas, unsigned cache) { return cpu_header_word(cpu_area_header(cpu_area(areas), cache)); }

static inline bool cpu_header_replace(char *const *areas, const char *area, unsigned cache, uint64_t expected, uint64_t wanted) {
    bool same;
    cpu_sequence_begin();
again:
    same = false;
    if (cpu_area(areas) == area) {
        struct cpu_header *header = cpu_area_header(cpu_area(areas), cache);
        same = cpu_header_word(header) == expected;
        if (same) {
            CPU_OPS_STORE(again);
            __atomic_store_n((cpu_header_bits *)(void *)header, wanted, __ATOMIC_RELEASE); /* pairs with whoever looks where its array lies */
        }
    }
    cpu_sequence_end();
    return same;
}

#endif
