/*
 * deepbind.c - libraries that are opened with RTLD_DEEPBIND get our malloc, too.
 *
 * Such a library finds names in itself and in what it needs before those of the process, so its malloc and free are the C library's, and the first
 * block of ours that it frees ends the process (PHP loads every extension so). The flag is there to keep apart what has the same name, and stays:
 * the C library's own entries for the malloc family come to lead to the functions that all others in the process use, before the library is
 * looked at. A library that brings a malloc of its own keeps that.
 *
 * dlopen asks who called it, for the paths that it searches, so ours is a jump to the next one and not a call. In libstrata.so only.
 */
#define _GNU_SOURCE
#include "api/also_as.h"

#if !defined(STRATA_NO_OVERRIDE) && PLATFORM_HAS_LIBC_NAMES && (defined(__x86_64__) || defined(__aarch64__))

#include <dlfcn.h>
#include <search.h>
#include <string.h>

#include "api/heap.h"
#include "base/check.h"

typedef void *dlopen_function(const char *file, int mode);

#define NAMES_MAX 32
/* One text: a table of pointers would be relocated in every process. */
static const char family[] =
    "malloc\0calloc\0realloc\0reallocarray\0free\0free_sized\0free_aligned_sized\0cfree\0aligned_alloc\0memalign\0"
    "posix_memalign\0valloc\0pvalloc\0malloc_usable_size\0malloc_trim\0mallinfo\0mallinfo2\0malloc_info\0malloc_stats\0mallopt\0"
    "__libc_malloc\0__libc_calloc\0__libc_realloc\0__libc_free\0__libc_memalign\0__libc_valloc\0__libc_pvalloc\0__posix_memalign\0";

/*
 * Whether what the C library allocates for itself comes from here: not so in a plugin that has strata for itself, or in a program with a malloc of
 * its own. Asked by a table of hsearch, of which the address can be seen and which the C library frees itself, as addresses of functions say nothing
 * (introspect.c).
 */
static STRATA_SELDOM bool libc_allocates_here(void) {
    __typeof__(hcreate_r) *create = (__typeof__(hcreate_r) *)(uintptr_t)dlsym(RTLD_NEXT, "hcreate_r");
    __typeof__(hdestroy_r) *destroy = (__typeof__(hdestroy_r) *)(uintptr_t)dlsym(RTLD_NEXT, "hdestroy_r");
    struct hsearch_data table = {0};
    if (create == NULL || destroy == NULL) return false;
    if (create(1, &table) == 0) return true; /* no memory; platform_libc_lead looks once more */
    const bool here = heap_owns(table.table);
    destroy(&table);
    return here;
}

/* To the functions that all others find: ours, or those of a wrapper in front of us. */
static STRATA_SELDOM void lead_libc_here(void) {
    static bool said;
    struct platform_name names[NAMES_MAX];
    unsigned count = 0;
    if (!libc_allocates_here()) return;
    for (const char *name = family; *name != 0; name += strlen(name) + 1) {
        CHECK(count < NAMES_MAX);
        names[count++] = (struct platform_name){name, (uintptr_t)dlsym(RTLD_DEFAULT, name)};
    }
    if (platform_libc_lead(names, count) || __atomic_exchange_n(&said, true, __ATOMIC_RELAXED)) return;
    log_line("dlopen(): the C library's malloc could not be led to strata's, for libraries that are opened with RTLD_DEEPBIND");
}

static STRATA_SELDOM void *no_dlopen(const char *file, int mode) {
    (void)file, (void)mode;
    return NULL;
}

/*
 * What `dlopen` below goes on to. Where nothing is behind us the C library stands in front, and who comes here found this one by a handle, or is in
 * this library. Not static, as its use is in assembler.
 */
dlopen_function *deepbind_before_dlopen(int mode);
STRATA_SELDOM dlopen_function *deepbind_before_dlopen(int mode) {
    if ((mode & RTLD_DEEPBIND) != 0) lead_libc_here();
    uintptr_t next = (uintptr_t)dlsym(RTLD_NEXT, "dlopen"); /* at each call, as that costs nothing beside it */
    if (next == 0) next = (uintptr_t)dlsym(RTLD_DEFAULT, "dlopen");
    return next != 0 && next != (uintptr_t)dlopen ? (dlopen_function *)next : no_dlopen;
}

/* Arguments and return address are what they were where the next dlopen begins. */
__asm__(".pushsection .text.seldom, \"ax\", %progbits\n"
        ".p2align 4\n"
        ".globl dlopen\n"
        ".type dlopen, %function\n"
        "dlopen:\n"
        ".cfi_startproc\n"
#if defined(__x86_64__)
        "endbr64\n"
        "push %rdi\n"
        ".cfi_adjust_cfa_offset 8\n"
        "push %rsi\n"
        ".cfi_adjust_cfa_offset 8\n"
        "sub $8, %rsp\n"
        ".cfi_adjust_cfa_offset 8\n"
        "mov %esi, %edi\n"
        "call deepbind_before_dlopen\n"
        "add $8, %rsp\n"
        ".cfi_adjust_cfa_offset -8\n"
        "pop %rsi\n"
        ".cfi_adjust_cfa_offset -8\n"
        "pop %rdi\n"
        ".cfi_adjust_cfa_offset -8\n"
        "jmp *%rax\n"
#else
        "hint #34\n" /* bti c */
        "stp x29, x30, [sp, #-32]!\n"
        ".cfi_adjust_cfa_offset 32\n"
        ".cfi_offset x29, -32\n"
        ".cfi_offset x30, -24\n"
        "stp x0, x1, [sp, #16]\n"
        "mov w0, w1\n"
        "bl deepbind_before_dlopen\n"
        "mov x16, x0\n"
        "ldp x0, x1, [sp, #16]\n"
        "ldp x29, x30, [sp], #32\n"
        ".cfi_adjust_cfa_offset -32\n"
        ".cfi_restore x29\n"
        ".cfi_restore x30\n"
        "br x16\n"
#endif
        ".cfi_endproc\n"
        ".size dlopen, . - dlopen\n"
        ".popsection\n");

#endif
