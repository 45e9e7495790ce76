/*
 * clock.c - the clocks, asked where the kernel keeps them: in the object that it maps into each process.
 *
 * The C library's clock_gettime does just that, but lies in a window of its code (64 KiB, as the kernel maps the pages of a file) that many programs
 * come to for nothing else. By a system call it would be dearer, and a program may have locked itself into a few of these by the time it is asked. So
 * the function is looked up in that object, by its hash table (GNU's; the ABI is in the kernel's Documentation/ABI/stable/vdso), once; where there is
 * none (valgrind hides it) the C library is asked. No locks.
 */
#define _GNU_SOURCE 1
#include <errno.h>
#include <link.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "platform/linux/linux.h"

#ifdef __x86_64__
#define CLOCK_NAME "__vdso_clock_gettime"
#else
#define CLOCK_NAME "__kernel_clock_gettime"
#endif

typedef int clock_function(clockid_t clock, struct timespec *now);

/* What an object's dynamic section says. */
struct vdso {
    uintptr_t bias;
    const ElfW(Sym) * symbols;
    const char *names;
    const uint32_t *hash;
};

static bool is_name(const char *name, const char *wanted) {
    while (*wanted != 0 && *name == *wanted) name++, wanted++;
    return *name == *wanted;
}

static bool read_vdso(uintptr_t start, struct vdso *vdso) {
    const ElfW(Ehdr) *header = (const ElfW(Ehdr) *)start;                      /* NOLINT: the kernel gives addresses as numbers */
    const ElfW(Phdr) *segment = (const ElfW(Phdr) *)(start + header->e_phoff); /* NOLINT */
    const ElfW(Dyn) *entry = NULL;
    bool loaded = false;
    for (unsigned i = 0; i < header->e_phnum; i++, segment++) {
        if (segment->p_type == PT_LOAD && !loaded) {
            vdso->bias = start + segment->p_offset - segment->p_vaddr;
            loaded = true;
        } else if (segment->p_type == PT_DYNAMIC) {
            entry = (const ElfW(Dyn) *)(start + segment->p_offset); /* NOLINT */
        }
    }
    if (!loaded || entry == NULL) return false;
    for (; entry->d_tag != DT_NULL; entry++) {
        const uintptr_t address = vdso->bias + entry->d_un.d_ptr;
        if (entry->d_tag == DT_SYMTAB) vdso->symbols = (const ElfW(Sym) *)address; /* NOLINT */
        if (entry->d_tag == DT_STRTAB) vdso->names = (const char *)address;        /* NOLINT */
        if (entry->d_tag == DT_GNU_HASH) vdso->hash = (const uint32_t *)address;   /* NOLINT */
    }
    return vdso->symbols != NULL && vdso->names != NULL && vdso->hash != NULL;
}

static clock_function *look_up(const struct vdso *vdso, const char *name) {
    const uint32_t buckets = vdso->hash[0], first = vdso->hash[1], filter_words = vdso->hash[2];
    const uint32_t *bucket = vdso->hash + 4 + filter_words * (sizeof(ElfW(Addr)) / sizeof(uint32_t)), *chain = bucket + buckets;
    uint32_t hash = 5381;
    for (const char *c = name; *c != 0; c++) hash = hash * 33 + (unsigned char)*c;
    uint32_t at = buckets != 0 ? bucket[hash % buckets] : 0;
    if (at < first) return NULL;
    for (;; at++) {
        const uint32_t seen = chain[at - first];
        const ElfW(Sym) *symbol = &vdso->symbols[at];
        if ((seen | 1) == (hash | 1) && symbol->st_shndx != SHN_UNDEF && is_name(vdso->names + symbol->st_name, name))
            return (clock_function *)(vdso->bias + symbol->st_value); /* NOLINT */
        if ((seen & 1) != 0) return NULL;
    }
}

static STRATA_NOINLINE clock_function *find_clock(void) {
    struct vdso vdso = {0};
    const uintptr_t start = getauxval(AT_SYSINFO_EHDR);
    clock_function *found = start != 0 && read_vdso(start, &vdso) ? look_up(&vdso, CLOCK_NAME) : NULL;
    return found != NULL ? found : clock_gettime;
}

static uint64_t read_clock(clockid_t clock) {
    static clock_function *function; /* a benign race: all find the same */
    clock_function *ask = __atomic_load_n(&function, __ATOMIC_RELAXED);
    if (STRATA_UNLIKELY(ask == NULL)) __atomic_store_n(&function, ask = find_clock(), __ATOMIC_RELAXED);
    struct timespec now;
    /* Unlike the C library's it says by its result what it can't do, and sets no errno. */
    if (STRATA_UNLIKELY(ask(clock, &now) != 0)) clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

uint64_t platform_now_ns(void) { return read_clock(CLOCK_MONOTONIC_COARSE); }
uint64_t platform_precise_ns(void) { return read_clock(CLOCK_MONOTONIC); }

/* By a call, for the one look that every process takes: it needs nothing else, and no filter of the program's is there yet that may forbid it. */
uint64_t platform_first_ns(void) {
    int saved = errno;
    struct timespec now;
    bool ok = syscall(SYS_clock_gettime, CLOCK_MONOTONIC_COARSE, &now) == 0;
    errno = saved;
    return ok ? (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec : platform_now_ns();
}
