/*
 * cpu_ops_portable.h - the CPU sequences in C. Included by cpu_ops.h only.
 *
 * For thread mode on machines without our assembly (each thread owns its area, nobody interferes), for builds with
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
#else
#define CPU_OPS_STORE(again)   \
    do {                       \
        if (false) goto again; \
    } while (0)
#define CPU_OPS_LOAD(again) CPU_OPS_STORE(again)
/* This thread's id: 0 until cache/ gives it one. */
extern __thread uint32_t platform_portable_thread_id __attribute__((visibility("hidden"), tls_model("initial-exec")));
STRATA_INLINE uint32_t cpu_id(void) { return platform_portable_thread_id; }
#endif

/* Others look at headers while the owner runs, for statistics and checks: no lock, but no tearing either. */
#define CPU_OPS_READ(word) __atomic_load_n((word), __ATOMIC_RELAXED)
#define CPU_OPS_WRITE(word, value) __atomic_store_n((word), (value), __ATOMIC_RELAXED)
typedef uint64_t __attribute__((may_alias)) cpu_header_bits;

/* The number of this CPU's area at this moment. */
STRATA_INLINE uint32_t cpu_current_id(void) { return cpu_id(); }
STRATA_INLINE char *cpu_area(char *const *areas) { return *areas + ((size_t)cpu_id() << CPU_AREA_SHIFT); }
STRATA_INLINE void **cpu_area_slots(char *area) { return (void **)(void *)area; }

STRATA_INLINE void *cpu_pop_in(char *const *areas, unsigned cache) {
again:;
    char *area = cpu_area(areas);
    struct cpu_header *header = cpu_area_header(area, cache);
    unsigned top = CPU_OPS_READ(&header->top);
    CPU_OPS_LOAD(again);
    if (STRATA_UNLIKELY(top <= CPU_OPS_READ(&header->bottom))) return NULL;
    void *round = cpu_area_slots(area)[top - 1];
    CPU_OPS_STORE(again);
    CPU_OPS_WRITE(&header->top, (uint16_t)(top - 1));
    return round;
}

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
    CPU_OPS_WRITE(&header->top, (uint16_t)(top + 1));
    return true;
}

static inline unsigned cpu_pop_batch_in(char *const *areas, unsigned cache, void **out, unsigned count) {
again:;
    char *area = cpu_area(areas);
    struct cpu_header *header = cpu_area_header(area, cache);
    unsigned top = CPU_OPS_READ(&header->top);
    CPU_OPS_LOAD(again);
    unsigned bottom = CPU_OPS_READ(&header->bottom);
    if (top <= bottom) return 0;
    unsigned taken = (unsigned)min_u64(count, top - bottom);
    for (unsigned i = 0; i < taken; i++) out[i] = cpu_area_slots(area)[top - 1 - i];
    CPU_OPS_STORE(again);
    CPU_OPS_WRITE(&header->top, (uint16_t)(top - taken));
    return taken;
}

static inline unsigned cpu_push_batch_in(char *const *areas, unsigned cache, void *const *in, unsigned count) {
again:;
    char *area = cpu_area(areas);
    struct cpu_header *header = cpu_area_header(area, cache);
    unsigned top = CPU_OPS_READ(&header->top);
    CPU_OPS_LOAD(again);
    unsigned limit = CPU_OPS_READ(&header->limit);
    if (top >= limit) return 0;
    unsigned put = (unsigned)min_u64(count, limit - top);
    for (unsigned i = 0; i < put; i++) {
        CPU_OPS_STORE(again);
        cpu_area_slots(area)[top + i] = in[i];
    }
    CPU_OPS_STORE(again);
    CPU_OPS_WRITE(&header->top, (uint16_t)(top + put));
    return put;
}

STRATA_INLINE uint64_t cpu_header_word(const struct cpu_header *header) { return CPU_OPS_READ((const cpu_header_bits *)(const void *)header); }

STRATA_INLINE uint64_t cpu_header_read(char *const *areas, unsigned cache) { return cpu_header_word(cpu_area_header(cpu_area(areas), cache)); }

static inline bool cpu_header_replace(char *const *areas, const char *area, unsigned cache, uint64_t expected, uint64_t wanted) {
again:
    if (cpu_area(areas) != area) return false;
    struct cpu_header *header = cpu_area_header(cpu_area(areas), cache);
    if (cpu_header_word(header) != expected) return false;
    CPU_OPS_STORE(again);
    CPU_OPS_WRITE((cpu_header_bits *)(void *)header, wanted);
    return true;
}

#endif
