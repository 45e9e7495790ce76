/*
 * cpu.c - which processor am I on: glibc's rseq registration where there is one, else per-thread ids.
 *
 * The thread block below mirrors the kernel's struct rseq in the two fields that the sequences use, so that thread mode
 * runs the same instructions: the descriptor store goes to a word that only drains of other threads' caches read. It is the library's only
 * thread-local object, 32 bytes, within what glibc keeps free for libraries loaded late.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <unistd.h>
#ifdef __GLIBC__
#include <link.h>
#endif

#include "platform/cpu_ops.h"
#include "platform/linux/linux.h"

#ifndef AT_RSEQ_FEATURE_SIZE
#define AT_RSEQ_FEATURE_SIZE 27 /* Linux 6.3 */
#endif

/* Offsets in the kernel's struct rseq (include/uapi/linux/rseq.h). */
#define RSEQ_CPU_ID_OFFSET 4
#define RSEQ_MM_CID_OFFSET 24
#define RSEQ_MM_CID_END 28

struct platform_cpu platform_cpu;

static enum platform_cpu_mode mode = PLATFORM_CPU_THREAD;
static void (*exit_callback)(uint32_t id);
static pthread_key_t exit_key;
static bool exit_key_made;

#if defined(__x86_64__) && !defined(STRATA_NO_RSEQ)

struct thread_block {
    uint32_t cpu_id_start;
    uint32_t cpu_id;
    uint64_t rseq_cs;
    uint32_t flags;
    uint32_t frees;        /* the node in the kernel's: made without an id */
    uint32_t mm_cid;       /* the thread's id */
    uint32_t before_vfork; /* the kernel's id of the CPU */
};
static __thread struct thread_block thread_block __attribute__((tls_model("initial-exec")));

/* From glibc 2.35 on; absent in musl and older glibc. */
extern const ptrdiff_t __rseq_offset __attribute__((weak));
extern const unsigned int __rseq_size __attribute__((weak));

static ptrdiff_t thread_pointer_offset(const void *object) {
    const char *thread_pointer;
    __asm__("movq %%fs:0, %0" : "=r"(thread_pointer));
    return (const char *)object - thread_pointer;
}

static void use_thread_block(void) {
    mode = PLATFORM_CPU_THREAD;
    platform_cpu.rseq_offset = thread_pointer_offset(&thread_block);
    platform_cpu.id_offset = platform_cpu.rseq_offset + RSEQ_MM_CID_OFFSET;
}

void linux_cpu_init(void) {
    use_thread_block();
    if (&__rseq_size == NULL || __rseq_size == 0) return;
    /* A tool that emulates system calls may register without ever filling the structure: the CPU number tells. */
    const char *thread_pointer;
    __asm__("movq %%fs:0, %0" : "=r"(thread_pointer));
    int32_t cpu_id = *(const volatile int32_t *)(const void *)(thread_pointer + __rseq_offset + RSEQ_CPU_ID_OFFSET);
    if (cpu_id < 0) return;
    if (syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_RSEQ, 0, 0) != 0) return;
    bool dense = getauxval(AT_RSEQ_FEATURE_SIZE) >= RSEQ_MM_CID_END;
    mode = dense ? PLATFORM_CPU_RSEQ_MM_CID : PLATFORM_CPU_RSEQ_CPU_ID;
    platform_cpu.rseq_offset = __rseq_offset;
    platform_cpu.id_offset = __rseq_offset + (dense ? RSEQ_MM_CID_OFFSET : RSEQ_CPU_ID_OFFSET);
}

/*
 * What the kernel wrote is changed by the child, who shares it and sleeps in no vfork itself, and put back by the parent: unless the kernel has
 * written it anew meanwhile, which it does where the parent was moved, and in most versions whenever it has slept. One instruction, as the kernel may
 * do so at any time.
 */
static uint32_t *id_word(void) {
    char *thread_pointer;
    __asm__("movq %%fs:0, %0" : "=r"(thread_pointer));
    return (uint32_t *)(void *)(thread_pointer + platform_cpu.id_offset);
}
STRATA_RARE bool platform_cpu_has_left(void) {
    return mode != PLATFORM_CPU_THREAD && __atomic_load_n(id_word(), __ATOMIC_RELAXED) == platform_info()->cpus;
}
STRATA_SELDOM void platform_cpu_leave(void) {
    if (mode == PLATFORM_CPU_THREAD || platform_cpu_has_left()) return;
    thread_block.before_vfork = __atomic_load_n(id_word(), __ATOMIC_RELAXED);
    __atomic_store_n(id_word(), platform_info()->cpus, __ATOMIC_RELAXED);
}
STRATA_SELDOM void platform_cpu_return(void) {
    uint32_t left = platform_info()->cpus;
    if (mode != PLATFORM_CPU_THREAD)
        __atomic_compare_exchange_n(id_word(), &left, thread_block.before_vfork, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

static void set_id(uint32_t id) { thread_block.mm_cid = id; }
static void set_ended(void) { thread_block.flags = 1; }
bool platform_thread_ended(void) { return thread_block.flags != 0; }
STRATA_SELDOM uint32_t platform_thread_count_free(void) { return ++thread_block.frees; }
uint32_t platform_thread_id(void) { return thread_block.mm_cid; }
static const uint64_t *own_sequence(void) { return &thread_block.rseq_cs; }

#else

__thread uint32_t platform_portable_thread_id;
__thread uint64_t platform_portable_sequence;
static __thread bool thread_ended __attribute__((tls_model("initial-exec")));
static __thread uint32_t thread_frees __attribute__((tls_model("initial-exec")));
static void set_ended(void) { thread_ended = true; }
bool platform_thread_ended(void) { return thread_ended; }
uint32_t platform_thread_count_free(void) { return ++thread_frees; }

static void use_thread_block(void) { mode = PLATFORM_CPU_THREAD; }
void linux_cpu_init(void) { use_thread_block(); }
static void set_id(uint32_t id) { platform_portable_thread_id = id; }
uint32_t platform_thread_id(void) { return platform_portable_thread_id; }
static const uint64_t *own_sequence(void) { return &platform_portable_sequence; }

#endif

bool linux_is_elsewhere;

#ifdef __GLIBC__ /* others have no namespaces */
/* Weak, so that a wholly static program, which has no list of libraries, doesn't get the dynamic linker in it. */
#pragma weak _r_debug
extern ElfW(Dyn) _DYNAMIC[] __attribute__((weak, visibility("hidden"))); /* of this library */

/* The list is that of the first namespace. Nobody changes it while constructors run. */
__attribute__((constructor(101))) static void note_namespace(void) {
    const struct link_map *map = &_r_debug != NULL ? _r_debug.r_map : NULL;
    if (map == NULL || _DYNAMIC == NULL) return;
    while (map != NULL && map->l_ld != _DYNAMIC) map = map->l_next;
    linux_is_elsewhere = map == NULL;
}
#endif

enum platform_cpu_mode platform_cpu_mode(void) { return mode; }
STRATA_COLD void platform_cpu_force_thread_mode(void) { use_thread_block(); }

/*
 * pthread keys are destroyed in an unknown order and up to four rounds; frees that come later find id 0 and are served uncached. The value only says
 * that there is one: a library in another namespace may have put its own in its place (linux_is_elsewhere).
 */
static STRATA_RARE void thread_exit(void *value) {
    const uint32_t id = platform_thread_id();
    (void)value;
    set_id(0);
    set_ended();
    if (id != 0 && exit_callback != NULL) exit_callback(id);
}

static bool membarrier(int command) {
    int saved = errno;
    bool ok = syscall(SYS_membarrier, command, 0, 0) == 0;
    errno = saved;
    return ok;
}

/* The fence is registered here, while there is one thread in most processes: later that takes milliseconds. */
void platform_on_thread_exit(void (*callback)(uint32_t id)) {
    exit_callback = callback;
    if (mode != PLATFORM_CPU_THREAD || exit_key_made) return;
    exit_key_made = !linux_is_elsewhere && pthread_key_create(&exit_key, thread_exit) == 0;
    (void)membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
}

STRATA_COLD void platform_thread_set_id(uint32_t id) {
    set_id(id);
    if (id == 0 || !exit_key_made) return;
    int saved = errno;
    /* May allocate: the id is already usable for that. Without memory nobody would hear of the thread's end, and what it had would stay for ever. */
    if (pthread_setspecific(exit_key, (void *)(uintptr_t)id) != 0) {
        set_id(0);
        exit_callback(id);
    }
    errno = saved;
}

/* Without the callback nobody would hear that the word's memory is gone. */
const uint64_t *platform_thread_sequence(void) { return exit_key_made ? own_sequence() : NULL; }

/* Registered long ago; the second try is for where that has been forgotten. */
STRATA_RARE bool platform_fence_threads(void) {
    if (membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED)) return true;
    return membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) && membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
}

bool platform_fence_cpus(void) { return mode != PLATFORM_CPU_THREAD && membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ); }
