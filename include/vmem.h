/*
 * vmem.h - the names of illumos's vmem, for programs that were written for it: libstrata-umem, on the arenas of <strata/arena.h>.
 *
 * Source-compatible with the manual pages vmem(9), vmem_create(9F), vmem_alloc(9F), vmem_add(9F), vmem_contains(9F) and vmem_walk(9F): same names,
 * types and values of flags. Programs include it as <sys/vmem.h> or <vmem.h>. Valid in C99, C11 and C++. New programs rather use <strata/arena.h>,
 * which takes 0 for an integer like any other and answers by a status.
 *
 * For all functions, where nothing else is said:
 *   - sizes and addresses are in integers of the arena, whatever they stand for; 0 (NULL) is in no arena, as it means failure;
 *   - VM_SLEEP: the call never fails for want of space or memory; it waits until some is freed, for ever if nobody frees. VM_NOSLEEP: NULL instead.
 *     VM_PANIC: where it would return NULL, one line on standard error, and abort();
 *   - a wrong argument of an allocation or a free, such as a segment that isn't allocated with that size, is one line on standard error and abort(),
 *     as it is a panic there. Nothing was changed then. Of allocations these are: size 0; align or nocross no power of two; phase or
 *     nocross no multiple of the quantum; phase not less than align; nocross so narrow that no place meets it. A size that passes 2^64 when rounded,
 * or that [minaddr, maxaddr) can't hold, is NULL with VM_NOSLEEP, and such an end with VM_SLEEP, which would wait for ever;
 *   - threads, fork, signals and cost: as <strata/arena.h> says for what they do.
 *
 * (Bonwick, Adams, "Magazines and Vmem" (2001), section 4.)
 */
#ifndef STRATA_VMEM_H
#define STRATA_VMEM_H

#include <stddef.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Of a request: what to do where there is nothing, and how a free segment is chosen. Other bits mean nothing, and are no mistake, as there. */
#define VM_SLEEP 0x00000000
#define VM_NOSLEEP 0x00000001
#define VM_PANIC 0x00000002
#define VM_PUSHPAGE 0x00000004 /* of kernels: means nothing here */
#define VM_KMFLAGS 0x000000ff
#define VM_INSTANTFIT 0x00000000 /* constant time: a segment from the first list of which every one is large enough */
#define VM_BESTFIT 0x00000100    /* the smallest that is large enough */
#define VM_FIRSTFIT 0x00000200   /* instant fit finds its segment first, and is what this gives */
#define VM_NEXTFIT 0x00000400    /* the one that follows the last allocation */
#define VM_MEMLOAD 0x00000800    /* of kernels, as is the next: mean nothing here */
#define VM_NORELOC 0x00001000
#define VM_ENDALLOC 0x00004000 /* with any of these but the last: the highest place of all; with best fit, of the smallest segments that suffice */
#define VM_FLAGS 0x0000ffff

/* Of an arena. Likewise. */
#define VMC_POPULATOR 0x00010000  /* of kernels: means nothing here */
#define VMC_NO_QCACHE 0x00020000  /* no quantum caches, whatever qcache_max is */
#define VMC_IDENTIFIER 0x00040000 /* integers that are no memory: messages differ, and nothing is written into objects of caches on them */
#define VMC_FLAGS 0xffff0000

/* Of segments. */
#define VMEM_ALLOC 0x01
#define VMEM_FREE 0x02
#define VMEM_SPAN 0x10
#define VMEM_REENTRANT 0x80000000 /* the callback may use the arena: here it always may */

typedef struct vmem vmem_t;
/*
 * An import: `size` integers or none (NULL). The first argument is the source of the arena that imports; where there is one, size is a multiple of
 * its quantum.
 */
typedef void *(vmem_alloc_t)(vmem_t *source, size_t size, int vmflag);
/* Takes back what one import gave. */
typedef void(vmem_free_t)(vmem_t *source, void *start, size_t size);
/* An import that may give more than *size, and says so in it; `align` is the quantum of the arena that imports. */
typedef void *(vmem_ximport_t)(vmem_t *source, size_t *size, size_t align, int vmflag);

/*
 * vmem_create - a new arena, with or without a first span, which may import what it lacks.
 *
 * name: for messages and statistics, copied. base, size: the first span, multiples of the quantum; size 0: none. quantum: a power of two.
 * afunc, ffunc, source: where spans are imported from and given back; vmem_alloc and vmem_free, or functions that do more; NULL: no imports; ffunc
 * NULL: spans stay. qcache_max: quantum caches for multiples of the quantum up to this, at most 16 of them. vmflag: VM_SLEEP or VM_NOSLEEP, VMC_
 * flags. Returns the arena; NULL and errno EINVAL (name NULL, base NULL with a size, no multiples, no power of two, a span that passes the end) or
 * ENOMEM. EINVAL also for imports by vmem_alloc, or given back by vmem_free, without a source, and for a source that was destroyed.
 */
extern vmem_t *vmem_create(const char *name, void *base, size_t size, size_t quantum, vmem_alloc_t *afunc, vmem_free_t *ffunc, vmem_t *source,
                           size_t qcache_max, int vmflag);
/* vmem_xcreate - the same with an import that may give more than was asked for. */
extern vmem_t *vmem_xcreate(const char *name, void *base, size_t size, size_t quantum, vmem_ximport_t *afunc, vmem_free_t *ffunc, vmem_t *source,
                            size_t qcache_max, int vmflag);

/*
 * vmem_destroy - ends an arena. How much is still allocated is said in one line on standard error, and that is freed, so that what was imported goes
 * back. An arena that another one imports from stays as it is, which is said likewise. NULL: does nothing. An arena that was destroyed: one line on
 * standard error and abort(), as long as its memory is nobody else's; so for the other functions, and for NULL where nothing is said of it.
 */
extern void vmem_destroy(vmem_t *vmp);

/* vmem_alloc - a segment of `size` integers, a multiple of the quantum where it begins. NULL: see above. */
extern void *vmem_alloc(vmem_t *vmp, size_t size, int vmflag);
/* vmem_free - gives back what vmem_alloc returned, with its size. */
extern void vmem_free(vmem_t *vmp, void *vaddr, size_t size);

/*
 * vmem_xalloc - a segment that meets constraints; 0 or NULL: none.
 *
 * align: a power of two; the segment starts `phase` behind a multiple of it. nocross: a power of two of which the segment crosses no multiple.
 * minaddr, maxaddr: it lies in [minaddr, maxaddr). Where no place there can ever do, VM_NOSLEEP returns NULL, and who would sleep ends with one line.
 */
extern void *vmem_xalloc(vmem_t *vmp, size_t size, size_t align, size_t phase, size_t nocross, void *minaddr, void *maxaddr, int vmflag);
/* vmem_xfree - gives back what vmem_xalloc returned, with its size. */
extern void vmem_xfree(vmem_t *vmp, void *vaddr, size_t size);

/* vmem_add - adds a span, all free. Returns vaddr; NULL and errno EINVAL (an argument that is NULL, no multiples, overlap) or ENOMEM. */
extern void *vmem_add(vmem_t *vmp, void *vaddr, size_t size, int vmflag);

/* vmem_contains - not 0 where one span holds all of [vaddr, vaddr + size), allocated or not. */
extern int vmem_contains(vmem_t *vmp, void *vaddr, size_t size);

/* vmem_walk - calls func for each segment of the kinds in typemask, in the order of their starts. */
extern void vmem_walk(vmem_t *vmp, int typemask, void (*func)(void *arg, void *vaddr, size_t size), void *arg);

/* vmem_size - how many integers are allocated (VMEM_ALLOC), free (VMEM_FREE), or both. */
extern size_t vmem_size(vmem_t *vmp, int typemask);

#ifdef __cplusplus
}
#endif

#endif
