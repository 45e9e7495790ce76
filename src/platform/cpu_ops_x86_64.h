/*
 * cpu_ops_x86_64.h - the CPU sequences as restartable sequences (rseq) for x86-64. Included by cpu_ops.h only.
 *
 * A sequence: publish its descriptor in the thread's rseq structure, then, between labels 1 and 2, find the area, check,
 * copy, and commit with the store that ends at label 2. When the kernel preempts, migrates or signals the thread between
 * 1 and 2 it resumes at 4 (behind the signature that glibc registered), which starts again from the top. Leaving by a
 * jump in the middle needs no clean-up: the kernel looks at where the thread is, not at what it announced.
 *
 * The top, and a round that was just freed, go from sequence to sequence through memory. Processors that hand a stored word to the next load of it at
 * once do so for words of 32 and 64 bits, at addresses of one register without an index: otherwise a pair of malloc and free takes more than twice
 * the time (docs/decisions.md, 124). Hence the width of the top, and the leaq of single pops and pushes.
 *
 * In thread mode the descriptor's address is what tells others that a sequence may be under way (cpu_ops.h). All but a single push take it back at
 * their end; the kernel would, when it next looked. The descriptors of single pushes, which don't, are known by their place: at an odd multiple of
 * CPU_SEQUENCE_PUSH bytes.
 */
#ifndef STRATA_PLATFORM_CPU_OPS_X86_64_H
#define STRATA_PLATFORM_CPU_OPS_X86_64_H

/* glibc's RSEQ_SIG for x86-64, in the shape of a trapping instruction that disassemblers can follow. */
#define CPU_OPS_BEGIN_AT(place)                \
    ".pushsection __rseq_cs, \"aw\"\n\t"       \
    ".balign 64\n\t" place "3: .long 0, 0\n\t" \
    ".quad 1f, 2f - 1f, 4f\n\t"                \
    ".popsection\n\t"                          \
    "5: leaq 3b(%%rip), %%rax\n\t"             \
    "movq %%rax, %%fs:8(%[rseq])\n\t"          \
    "1: movl %%fs:(%[id]), %%eax\n\t"          \
    "shlq %[shift], %%rax\n\t"                 \
    "addq %[areas], %%rax\n\t"
#define CPU_OPS_BEGIN CPU_OPS_BEGIN_AT("")
#define CPU_OPS_BEGIN_PUSH CPU_OPS_BEGIN_AT(".skip 32\n\t")

#define CPU_OPS_END                           \
    "2:\n\t"                                  \
    ".pushsection __rseq_failure, \"ax\"\n\t" \
    ".byte 0x0f, 0xb9, 0x3d\n\t"              \
    ".long 0x53053053\n\t"                    \
    "4: jmp 5b\n\t"                           \
    ".popsection\n\t"
/* Behind the commit, so that whoever sees the word zero sees what was committed. */
#define CPU_OPS_END_TOLD CPU_OPS_END "movq $0, %%fs:8(%[rseq])\n\t"

#define CPU_OPS_INPUTS                                                                                                         \
    [rseq] "r"(platform_cpu.rseq_offset), [id] "r"(platform_cpu.id_offset), [areas] "rm"(*areas), [shift] "i"(CPU_AREA_SHIFT), \
        [header] "r"((uint64_t)cache)

/* Several off the top: the top in ecx, how many in edx, at most %[count]; who finds none leaves. */
#define CPU_OPS_TAKE_SEVERAL                                               \
    "movl (%%rax,%[header],8), %%ecx\n\t"                                  \
    "movzwl 4(%%rax,%[header],8), %%edx\n\t"                               \
    "subl %%ecx, %%edx\n\t" /* bottom - top: minus the number of rounds */ \
    "jae %l[empty]\n\t"                                                    \
    "negl %%edx\n\t"                                                       \
    "cmpl %[count], %%edx\n\t"                                             \
    "cmoval %[count], %%edx\n\t"

/*
 * Copies edx (>= 1) rounds between the array, at r8, and %[rounds], in pairs but for the first of an odd number; %[done] is how many. Upwards: the
 * uppermost of an array may just have been stored one by one, and a load of two waits until both are in the processor's cache.
 */
#define CPU_OPS_COPY(from, to)                   \
    "xorl %k[done], %k[done]\n\t"                \
    "testb $1, %%dl\n\t"                         \
    "jz 6f\n\t"                                  \
    "movq (" from "), %%xmm0\n\t"                \
    "movq %%xmm0, (" to ")\n\t"                  \
    "incl %k[done]\n\t"                          \
    "cmpl %%edx, %k[done]\n\t"                   \
    "je 7f\n\t"                                  \
    "6: movups (" from ",%[done],8), %%xmm0\n\t" \
    "movups %%xmm0, (" to ",%[done],8)\n\t"      \
    "addl $2, %k[done]\n\t"                      \
    "cmpl %%edx, %k[done]\n\t"                   \
    "jb 6b\n\t"                                  \
    "7:\n\t"
#define CPU_OPS_COPY_OUT CPU_OPS_COPY("%%r8", "%[rounds]")
#define CPU_OPS_COPY_IN CPU_OPS_COPY("%[rounds]", "%%r8")

_Static_assert(sizeof(struct cpu_header) == 8, "the scale of the index in the sequences");

/* Where a sequence leaves in its middle. */
STRATA_INLINE void cpu_sequence_left(void) { __asm__ volatile("movq $0, %%fs:8(%[rseq])" : : [rseq] "r"(platform_cpu.rseq_offset) : "memory"); }

/* Takes the last round of `cache`; NULL when the array is empty or closed. */
STRATA_INLINE void *cpu_pop_in(char *const *areas, unsigned cache) {
    void *round;
    __asm__ goto(CPU_OPS_BEGIN "leaq (%%rax,%[header],8), %%r11\n\t"
                               "movl (%%r11), %%ecx\n\t"
                               "cmpw 4(%%r11), %%cx\n\t"
                               "jbe %l[empty]\n\t"
                               "decl %%ecx\n\t"
                               "leaq (%%rax,%%rcx,8), %[round]\n\t"
                               "movq (%[round]), %[round]\n\t"
                               "movl %%ecx, (%%r11)\n\t" CPU_OPS_END_TOLD
                 : [round] "=&a"(round)
                 : CPU_OPS_INPUTS
                 : "rcx", "r11", "cc", "memory"
                 : empty);
    if (round == NULL) __builtin_unreachable(); /* no round is NULL: spares the caller's test */
    return round;
empty:
    cpu_sequence_left();
    return NULL;
}

/* Puts a round on top; false when the array is full or closed. Its word stays. */
STRATA_INLINE bool cpu_push_in(char *const *areas, unsigned cache, void *round) {
    __asm__ goto(CPU_OPS_BEGIN_PUSH "leaq (%%rax,%[header],8), %%r11\n\t"
                                    "movl (%%r11), %%ecx\n\t"
                                    "cmpw 6(%%r11), %%cx\n\t"
                                    "jae %l[full]\n\t"
                                    "leaq (%%rax,%%rcx,8), %%rax\n\t"
                                    "movq %[round], (%%rax)\n\t"
                                    "incl %%ecx\n\t"
                                    "movl %%ecx, (%%r11)\n\t" CPU_OPS_END
                 :
                 : CPU_OPS_INPUTS, [round] "r"(round)
                 : "rax", "rcx", "r11", "cc", "memory"
                 : full);
    return true;
full:
    return false;
}

/* Takes up to `count` (>= 1) rounds into `out`, the top one first; returns how many. */
static inline unsigned cpu_pop_batch_in(char *const *areas, unsigned cache, void **out, unsigned count) {
    uint64_t taken;
    __asm__ goto(CPU_OPS_BEGIN CPU_OPS_TAKE_SEVERAL "xorl %k[taken], %k[taken]\n\t"
                                                    "6: movq -8(%%rax,%%rcx,8), %%r8\n\t"
                                                    "movq %%r8, (%[out],%[taken],8)\n\t"
                                                    "decl %%ecx\n\t"
                                                    "incl %k[taken]\n\t"
                                                    "cmpl %%edx, %k[taken]\n\t"
                                                    "jb 6b\n\t"
                                                    "movl %%ecx, (%%rax,%[header],8)\n\t" CPU_OPS_END_TOLD
                 : [taken] "=&r"(taken)
                 : CPU_OPS_INPUTS, [out] "r"(out), [count] "r"(count)
                 : "rax", "rcx", "rdx", "r8", "cc", "memory"
                 : empty);
    return (unsigned)taken;
empty:
    cpu_sequence_left();
    return 0;
}

/* The same, in the order of the array: the top one last. */
static inline unsigned cpu_pop_upper_in(char *const *areas, unsigned cache, void **out, unsigned count) {
    uint64_t taken;
    __asm__ goto(CPU_OPS_BEGIN CPU_OPS_TAKE_SEVERAL "subl %%edx, %%ecx\n\t"
                                                    "leaq (%%rax,%%rcx,8), %%r8\n\t" CPU_OPS_COPY_OUT
                                                    "movl %%ecx, (%%rax,%[header],8)\n\t" CPU_OPS_END_TOLD
                 : [done] "=&r"(taken)
                 : CPU_OPS_INPUTS, [rounds] "r"(out), [count] "r"(count)
                 : "rax", "rcx", "rdx", "r8", "xmm0", "cc", "memory"
                 : empty);
    return (unsigned)taken;
empty:
    cpu_sequence_left();
    return 0;
}

/* Puts up to `count` (>= 1) rounds of `in` on top, in order; returns how many found room. */
static inline unsigned cpu_push_batch_in(char *const *areas, unsigned cache, void *const *in, unsigned count) {
    uint64_t put;
    __asm__ goto(CPU_OPS_BEGIN "movl (%%rax,%[header],8), %%ecx\n\t"
                               "movzwl 6(%%rax,%[header],8), %%edx\n\t"
                               "subl %%ecx, %%edx\n\t" /* limit - top: the room */
                               "jbe %l[full]\n\t"
                               "cmpl %[count], %%edx\n\t"
                               "cmoval %[count], %%edx\n\t"
                               "leaq (%%rax,%%rcx,8), %%r8\n\t"
                               "addl %%edx, %%ecx\n\t" CPU_OPS_COPY_IN "movl %%ecx, (%%rax,%[header],8)\n\t" CPU_OPS_END_TOLD
                 : [done] "=&r"(put)
                 : CPU_OPS_INPUTS, [rounds] "r"(in), [count] "r"(count)
                 : "rax", "rcx", "rdx", "r8", "xmm0", "cc", "memory"
                 : full);
    return (unsigned)put;
full:
    cpu_sequence_left();
    return 0;
}

/* The number of this CPU's area at this moment. */
STRATA_INLINE uint32_t cpu_current_id(void) {
    uint32_t id;
    __asm__ volatile("movl %%fs:(%[offset]), %[id]" : [id] "=r"(id) : [offset] "r"(platform_cpu.id_offset));
    return id;
}

/*
 * The header of `cache` on the CPU of this moment, as one word, but read in halves: the top is often just stored, and a wider load would wait until
 * that is in the processor's cache. Halves of two moments do no harm, as cpu_header_replace compares the whole.
 */
STRATA_INLINE uint64_t cpu_header_read(char *const *areas, unsigned cache) {
    uint64_t header;
    __asm__ volatile("movl %%fs:(%[id]), %%eax\n\t"
                     "shlq %[shift], %%rax\n\t"
                     "addq %[areas], %%rax\n\t"
                     "movl (%%rax,%[offset]), %k[header]\n\t"
                     "movl 4(%%rax,%[offset]), %%eax\n\t"
                     "shlq $32, %%rax\n\t"
                     "orq %%rax, %[header]\n\t"
                     : [header] "=&r"(header)
                     : [id] "r"(platform_cpu.id_offset), [areas] "rm"(*areas), [shift] "i"(CPU_AREA_SHIFT),
                       [offset] "r"((uint64_t)cache * sizeof(struct cpu_header))
                     : "rax", "cc", "memory");
    return header;
}

/* Replaces the header of `cache` on this CPU where its area is `area` and the header still is `expected`. */
static inline bool cpu_header_replace(char *const *areas, const char *area, unsigned cache, uint64_t expected, uint64_t wanted) {
    __asm__ goto(CPU_OPS_BEGIN "cmpq %[area], %%rax\n\t"
                               "jne %l[changed]\n\t"
                               "cmpq %[expected], (%%rax,%[header],8)\n\t"
                               "jne %l[changed]\n\t"
                               "movq %[wanted], (%%rax,%[header],8)\n\t" CPU_OPS_END_TOLD
                 :
                 : CPU_OPS_INPUTS, [area] "r"(area), [expected] "r"(expected), [wanted] "r"(wanted)
                 : "rax", "cc", "memory"
                 : changed);
    return true;
changed:
    cpu_sequence_left();
    return false;
}

#endif
