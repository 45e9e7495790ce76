/*
 * vmem.c - vmem's names on strata's arenas.
 *
 * A vmem_t is a strata_arena and what its import functions want. Where these are vmem_alloc and vmem_free themselves, the arena imports directly
 * (strata_arena_set_source), and its sleepers are woken by what is freed above; where they are functions of the program, a free above makes their
 * sleepers try again. All arenas that import from one are in its list, as those that import by functions may do so through others.
 * Lock: `importers`, for these lists; strata_arena_wake is called with it, functions of the program never.
 */
#define _GNU_SOURCE
#include "umem_internal.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <strata/arena.h>
#include <strata/debug.h>
#include <strata/kmem.h>

struct vmem {
    const vmem_t *self; /* itself: so what was destroyed is seen, also where debugging has filled it with a pattern */
    struct strata_arena *arena;
    size_t quantum;
    bool identifiers;
    char name[32];
    /* Immutable. */
    vmem_t *source; /* NULL: it doesn't import, or not from an arena */
    vmem_alloc_t *alloc;
    vmem_ximport_t *ximport;
    vmem_free_t *free;
    bool direct; /* its arena imports from that of the source itself */
    /* Guarded by the lock. */
    vmem_t *first_importer, *next_importer, *previous_importer;
    /* Atomic: they are read without it. */
    unsigned importers; /* all that there are */
    unsigned functions; /* importers by a function, from this one or from any below it */
};

static pthread_mutex_t importers = PTHREAD_MUTEX_INITIALIZER;

static void before_fork(void) { pthread_mutex_lock(&importers); }
static void after_fork(void) { pthread_mutex_unlock(&importers); }
static __attribute__((constructor)) void watch_forks(void) { pthread_atfork(before_fork, after_fork, after_fork); }

/* ------------------------------------------------------------------ importing */

static enum strata_arena_status import_alloc(void *context, uint64_t size, unsigned flags, uint64_t *start, uint64_t *got) {
    const vmem_t *vmp = context;
    int vmflag = (flags & STRATA_ARENA_SLEEP) != 0 ? VM_SLEEP : VM_NOSLEEP;
    /* A source deals in its own quanta: all of what it allocates for this becomes a span, instead of a rest that nobody uses. */
    size_t bytes = size, low_bits = vmp->source != NULL ? vmp->source->quantum - 1 : 0;
    if (__builtin_add_overflow(bytes, low_bits, &bytes)) return STRATA_ARENA_NO_SPACE;
    bytes &= ~low_bits;
    void *span = vmp->ximport != NULL ? vmp->ximport(vmp->source, &bytes, vmp->quantum, vmflag) : vmp->alloc(vmp->source, bytes, vmflag);
    if (span == NULL) return STRATA_ARENA_NO_SPACE;
    *start = (uintptr_t)span;
    *got = bytes;
    return STRATA_ARENA_OK;
}
static void import_release(void *context, uint64_t start, uint64_t size) {
    const vmem_t *vmp = context;
    vmp->free(vmp->source, (void *)(uintptr_t)start, size);
}

/* Those that import directly were told by the arena that they import from. */
static void wake(const vmem_t *vmp) {
    for (const vmem_t *importer = vmp->first_importer; importer != NULL; importer = importer->next_importer) {
        if (!importer->direct) strata_arena_wake(importer->arena);
        wake(importer);
    }
}
/*
 * Something was freed or added here, or has gone back from here to a source, which only arenas themselves see: who imports from any of these by a
 * function, or through others, may find something now. Relaxed: an importer that isn't seen has not asked yet when the arena's lock was dropped.
 */
static void wake_importers(const vmem_t *vmp) {
    while (vmp->direct) vmp = vmp->source;
    if (__atomic_load_n(&vmp->functions, __ATOMIC_RELAXED) == 0) return;
    pthread_mutex_lock(&importers);
    wake(vmp);
    pthread_mutex_unlock(&importers);
}

/* more: 1, or -1U where one goes. */
static void count_function(const vmem_t *vmp, unsigned more) {
    for (vmem_t *above = vmp->source; above != NULL && !vmp->direct; above = above->source)
        __atomic_fetch_add(&above->functions, more, __ATOMIC_RELAXED);
}
static void list_importer(vmem_t *vmp) {
    pthread_mutex_lock(&importers);
    vmem_t *next = vmp->source->first_importer;
    if (next != NULL) next->previous_importer = vmp;
    vmp->next_importer = next;
    vmp->previous_importer = NULL;
    vmp->source->first_importer = vmp;
    count_function(vmp, 1);
    pthread_mutex_unlock(&importers);
}
static void unlist_importer(vmem_t *vmp) {
    pthread_mutex_lock(&importers);
    vmem_t *next = vmp->next_importer, *previous = vmp->previous_importer;
    if (next != NULL) next->previous_importer = previous;
    *(previous != NULL ? &previous->next_importer : &vmp->source->first_importer) = next;
    count_function(vmp, -1U);
    pthread_mutex_unlock(&importers);
}

bool umem_has_identifiers(const vmem_t *vmp) {
    while (!vmp->identifiers && vmp->source != NULL && vmp->alloc == vmem_alloc) vmp = vmp->source;
    return vmp->identifiers;
}

size_t umem_quantum(const vmem_t *vmp) { return vmp->quantum; }

static enum strata_arena_status set_import(vmem_t *vmp) {
    if (vmp->alloc == NULL && vmp->ximport == NULL) return STRATA_ARENA_OK;
    if (vmp->source != NULL && vmp->alloc == vmem_alloc && vmp->free == vmem_free) {
        enum strata_arena_status status = strata_arena_set_source(vmp->arena, vmp->source->arena);
        vmp->direct = status == STRATA_ARENA_OK;
        if (status != STRATA_ARENA_BAD_ARGUMENT) return status;
        /* The source deals in smaller pieces than this arena: its segments may not fit, which import_alloc's caller finds out one by one. */
    }
    return strata_arena_set_import(vmp->arena, import_alloc, vmp->free != NULL ? import_release : NULL, vmp);
}

/* ------------------------------------------------------------------ life */

static bool is_none(const vmem_t *vmp) { return vmp == NULL || vmp->self != vmp; }

/* Ends the process where this is no arena. */
static void must_be(const vmem_t *vmp, const char *function) {
    if (__builtin_expect(is_none(vmp), 0)) umem_die("%s(): %s", function, vmp == NULL ? "the arena is NULL" : "the arena was destroyed");
}

/* Not by the C library's function: a thread that is cancelled would end there, with an arena half made. */
static void doze(void) { (void)syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &(struct timespec){.tv_nsec = 10000000}, NULL); }

/* At most as many quantum caches as an arena may have, and for sizes that it may have them for: with a larger quantum none. */
static enum strata_arena_status set_quantum_caches(vmem_t *vmp, size_t qcache_max, int vmflag) {
    const uint64_t most = ((uint64_t)1 << 60) / vmp->quantum;
    if (qcache_max == 0 || most == 0 || (vmflag & VMC_NO_QCACHE) != 0) return STRATA_ARENA_OK;
    size_t count = (qcache_max - 1) / vmp->quantum + 1;
    if (count > STRATA_ARENA_QUANTUM_CACHES_MAX) count = STRATA_ARENA_QUANTUM_CACHES_MAX;
    if (count > most) count = most;
    return strata_arena_set_quantum_caches(vmp->arena, count * vmp->quantum);
}

/* *vmp is filled but for the arena. */
static enum strata_arena_status try_create(vmem_t *vmp, const char *name, void *base, size_t size, size_t qcache_max, int vmflag) {
    enum strata_arena_status status = strata_arena_create(name, (uintptr_t)base, size, vmp->quantum, STRATA_ARENA_INSTANT_FIT, &vmp->arena);
    if (status != STRATA_ARENA_OK) return status;
    status = set_quantum_caches(vmp, qcache_max, vmflag);
    if (status == STRATA_ARENA_OK) status = set_import(vmp);
    if (status != STRATA_ARENA_OK) strata_arena_destroy(vmp->arena);
    return status;
}

static vmem_t *create(const char *name, void *base, size_t size, size_t quantum, vmem_alloc_t *alloc, vmem_ximport_t *ximport, vmem_free_t *ffunc,
                      vmem_t *source, size_t qcache_max, int vmflag) {
    umem_start();
    /* These two can't do without a source; an ffunc that has nothing to give back is let pass, as there. */
    bool imports = alloc != NULL || ximport != NULL, sourceless = source == NULL && imports && (alloc == vmem_alloc || ffunc == vmem_free);
    if (name == NULL || (base == NULL && size != 0) || quantum == 0 || sourceless || (source != NULL && is_none(source))) {
        errno = EINVAL;
        return NULL;
    }
    vmem_t *vmp = (vmflag & VM_NOSLEEP) != 0 ? umem_own_alloc(sizeof *vmp) : strata_kmem_zalloc(sizeof *vmp, STRATA_KMEM_SLEEP);
    if (vmp == NULL) return NULL;
    *vmp = (vmem_t){.self = vmp,
                    .quantum = quantum,
                    .identifiers = (vmflag & VMC_IDENTIFIER) != 0,
                    .source = imports ? source : NULL,
                    .alloc = alloc,
                    .ximport = ximport,
                    .free = ffunc};
    strncpy(vmp->name, name, sizeof vmp->name - 1);
    enum strata_arena_status status;
    while ((status = try_create(vmp, name, base, size, qcache_max, vmflag)) == STRATA_ARENA_NO_MEMORY && (vmflag & VM_NOSLEEP) == 0) doze();
    if (status == STRATA_ARENA_OK) {
        if (vmp->source != NULL) {
            __atomic_fetch_add(&vmp->source->importers, 1, __ATOMIC_RELAXED);
            list_importer(vmp);
        }
        return vmp;
    }
    strata_kmem_free(vmp, sizeof *vmp);
    errno = status == STRATA_ARENA_NO_MEMORY ? ENOMEM : EINVAL;
    return NULL;
}

vmem_t *vmem_create(const char *name, void *base, size_t size, size_t quantum, vmem_alloc_t *afunc, vmem_free_t *ffunc, vmem_t *source,
                    size_t qcache_max, int vmflag) {
    return create(name, base, size, quantum, afunc, NULL, ffunc, source, qcache_max, vmflag);
}

vmem_t *vmem_xcreate(const char *name, void *base, size_t size, size_t quantum, vmem_ximport_t *afunc, vmem_free_t *ffunc, vmem_t *source,
                     size_t qcache_max, int vmflag) {
    return create(name, base, size, quantum, NULL, afunc, ffunc, source, qcache_max, vmflag);
}

struct leak {
    const vmem_t *vmp;
    size_t size;
};

/* Slabs of quantum caches are refused, and stay. */
static int free_segment(const struct strata_arena_segment *segment, void *context) {
    struct leak *leak = context;
    if (strata_arena_xfree(leak->vmp->arena, segment->start, segment->size) == STRATA_ARENA_OK) leak->size += segment->size;
    return 1;
}

/* Of a slab, at most some hundred quanta: whatever the program still has of it, in sizes that the arena knows and we find out. */
static int free_objects(const struct strata_arena_segment *segment, void *context) {
    struct leak *leak = context;
    const size_t quantum = leak->vmp->quantum;
    for (uint64_t at = 0; at < segment->size; at += quantum) {
        enum strata_arena_status status = STRATA_ARENA_SIZE_MISMATCH;
        for (size_t quanta = 1; quanta <= STRATA_ARENA_QUANTUM_CACHES_MAX && status == STRATA_ARENA_SIZE_MISMATCH; quanta++) {
            status = strata_arena_free(leak->vmp->arena, segment->start + at, quanta * quantum);
            if (status == STRATA_ARENA_OK) leak->size += quanta * quantum;
        }
    }
    return 1;
}

/* Takes the arena down with what the program left allocated, and says how much that was. */
static enum strata_arena_status destroy_arena(const vmem_t *vmp) {
    enum strata_arena_status status = strata_arena_destroy(vmp->arena);
    struct leak leak = {.vmp = vmp};
    if (status == STRATA_ARENA_BUSY) {
        strata_arena_walk(vmp->arena, STRATA_ARENA_ALLOCATED, free_segment, &leak);
        status = strata_arena_destroy(vmp->arena); /* empties quantum caches first: those of which nothing was leaked are gone then */
    }
    if (status == STRATA_ARENA_BUSY) {
        strata_arena_walk(vmp->arena, STRATA_ARENA_ALLOCATED, free_objects, &leak);
        status = strata_arena_destroy(vmp->arena);
    }
    if (leak.size != 0) umem_line("vmem_destroy(%s): leaked %zu %s", vmp->name, leak.size, vmp->identifiers ? "identifiers" : "bytes");
    return status;
}

void vmem_destroy(vmem_t *vmp) {
    if (vmp == NULL) return;
    must_be(vmp, "vmem_destroy");
    if (__atomic_load_n(&vmp->importers, __ATOMIC_RELAXED) != 0) { /* what is allocated may be theirs */
        umem_line("vmem_destroy(%s): another arena imports from it: it stays", vmp->name);
        return;
    }
    if (vmp->source != NULL) unlist_importer(vmp); /* first: who frees in the source wakes what is in its list */
    enum strata_arena_status status = destroy_arena(vmp);
    if (vmp->direct) wake_importers(vmp->source); /* what it had imported has gone back */
    if (status != STRATA_ARENA_OK) {
        if (vmp->source != NULL) list_importer(vmp);
        umem_line("vmem_destroy(%s): %s: it stays", vmp->name, strata_arena_status_text(status));
        return;
    }
    if (vmp->source != NULL) __atomic_fetch_sub(&vmp->source->importers, 1, __ATOMIC_RELAXED);
    vmp->self = NULL;
    strata_kmem_free(vmp, sizeof *vmp);
}

void *vmem_add(vmem_t *vmp, void *vaddr, size_t size, int vmflag) {
    if (vmp == NULL) {
        if ((vmflag & VM_PANIC) != 0) umem_die("vmem_add(): the arena is NULL");
        errno = EINVAL;
        return NULL;
    }
    must_be(vmp, "vmem_add");
    enum strata_arena_status status = STRATA_ARENA_BAD_ARGUMENT;
    while (vaddr != NULL && (status = strata_arena_add(vmp->arena, (uintptr_t)vaddr, size)) == STRATA_ARENA_NO_MEMORY && (vmflag & VM_NOSLEEP) == 0)
        doze();
    if (status == STRATA_ARENA_OK) {
        wake_importers(vmp);
        return vaddr;
    }
    if ((vmflag & VM_PANIC) != 0) umem_die("vmem_add(%s): %p, %zu: %s", vmp->name, vaddr, size, strata_arena_status_text(status));
    errno = status == STRATA_ARENA_NO_MEMORY ? ENOMEM : EINVAL;
    return NULL;
}

/* ------------------------------------------------------------------ segments */

static unsigned flags_of(int vmflag) {
    unsigned flags = (vmflag & VM_BESTFIT) != 0   ? STRATA_ARENA_BEST_FIT
                     : (vmflag & VM_NEXTFIT) != 0 ? STRATA_ARENA_NEXT_FIT
                                                  : STRATA_ARENA_INSTANT_FIT;
    if ((vmflag & VM_ENDALLOC) != 0) flags |= STRATA_ARENA_FROM_TOP;
    return (vmflag & VM_NOSLEEP) != 0 ? flags : flags | STRATA_ARENA_SLEEP;
}

/* What is asked for of a segment, as vmem_xalloc is told; max 0 is 2^64. */
struct wish {
    size_t size, align, phase, nocross;
    uintptr_t min, max;
};

/*
 * Whether nothing in [min, max) can ever be such a segment, whatever is freed, though the constraints would do elsewhere. Those that would not, and
 * size 0, are another mistake.
 */
static bool is_never(const vmem_t *vmp, const struct wish *wish) {
    const size_t low_bits = vmp->quantum - 1, align = wish->align != 0 ? wish->align : vmp->quantum, nocross = wish->nocross;
    const uintptr_t last = wish->max - 1;
    size_t size;
    if (wish->size == 0) return false;
    if (__builtin_add_overflow(wish->size, low_bits, &size)) return true;
    size &= ~low_bits;
    if (wish->min > last || last - wish->min < size - 1) return true;
    if (((align | wish->phase | nocross) & low_bits) != 0 || (align & (align - 1)) != 0 || (nocross & (nocross - 1)) != 0) return false;
    if (wish->phase >= align || (nocross != 0 && (size > nocross || (wish->phase & (nocross - 1)) > nocross - size))) return false;
    uintptr_t start, end;
    if (__builtin_add_overflow(wish->min, (wish->phase - wish->min) & (align - 1), &start) || __builtin_add_overflow(start, size - 1, &end))
        return true;
    if (nocross != 0 && ((start ^ end) & ~(nocross - 1)) != 0) { /* the next place is behind the boundary that this one crosses */
        start = end & ~(nocross - 1);
        if (__builtin_add_overflow(start, (wish->phase - start) & (align - 1), &start) || __builtin_add_overflow(start, size - 1, &end)) return true;
    }
    return end > last;
}

/*
 * What an allocation returns. A lack of space or memory is not the caller's mistake, nor is, with VM_NOSLEEP, a window that has no place for it:
 * illumos searches, finds nothing, and returns NULL. With VM_SLEEP it waits there for what can't come, and here ends.
 */
static void *answer(const char *function, const vmem_t *vmp, const struct wish *wish, int vmflag, enum strata_arena_status status, uint64_t start) {
    if (status == STRATA_ARENA_OK) return (void *)(uintptr_t)start;
    bool never = is_never(vmp, wish);
    const char *text = never ? "more than there can ever be between minaddr and maxaddr" : strata_arena_status_text(status);
    bool lacks = status == STRATA_ARENA_NO_SPACE || status == STRATA_ARENA_NO_MEMORY || (never && (vmflag & VM_NOSLEEP) != 0);
    if (!lacks || (vmflag & VM_PANIC) != 0) umem_die("%s(%s): size %zu: %s", function, vmp->name, wish->size, text);
    strata_debug_failed(vmp->name, wish->size);
    errno = ENOMEM;
    return NULL;
}

void *vmem_alloc(vmem_t *vmp, size_t size, int vmflag) {
    must_be(vmp, "vmem_alloc");
    uint64_t start = 0;
    enum strata_arena_status status = strata_arena_alloc(vmp->arena, size, flags_of(vmflag), &start);
    return answer("vmem_alloc", vmp, &(struct wish){.size = size}, vmflag, status, start);
}

void *vmem_xalloc(vmem_t *vmp, size_t size, size_t align, size_t phase, size_t nocross, void *minaddr, void *maxaddr, int vmflag) {
    must_be(vmp, "vmem_xalloc");
    uint64_t start = 0;
    if (align <= vmp->quantum && (align & (align - 1)) == 0) align = 0; /* every segment is */
    enum strata_arena_status status =
        strata_arena_xalloc(vmp->arena, size, align, phase, nocross, (uintptr_t)minaddr, (uintptr_t)maxaddr, flags_of(vmflag), &start);
    const struct wish wish = {size, align, phase, nocross, (uintptr_t)minaddr, (uintptr_t)maxaddr};
    return answer("vmem_xalloc", vmp, &wish, vmflag, status, start);
}

static void freed(const char *function, const vmem_t *vmp, void *vaddr, size_t size, enum strata_arena_status status) {
    if (status != STRATA_ARENA_OK) umem_die("%s(%s): %p, size %zu: %s", function, vmp->name, vaddr, size, strata_arena_status_text(status));
    wake_importers(vmp);
}

void vmem_free(vmem_t *vmp, void *vaddr, size_t size) {
    must_be(vmp, "vmem_free");
    freed("vmem_free", vmp, vaddr, size, strata_arena_free(vmp->arena, (uintptr_t)vaddr, size));
}
void vmem_xfree(vmem_t *vmp, void *vaddr, size_t size) {
    must_be(vmp, "vmem_xfree");
    freed("vmem_xfree", vmp, vaddr, size, strata_arena_xfree(vmp->arena, (uintptr_t)vaddr, size));
}

/* ------------------------------------------------------------------ looking inside */

static unsigned kinds_of(int typemask) {
    unsigned kinds = (typemask & VMEM_ALLOC) != 0 ? STRATA_ARENA_ALLOCATED : 0;
    if ((typemask & VMEM_FREE) != 0) kinds |= STRATA_ARENA_FREE;
    return (typemask & VMEM_SPAN) != 0 ? kinds | STRATA_ARENA_SPAN : kinds;
}

int vmem_contains(vmem_t *vmp, void *vaddr, size_t size) {
    must_be(vmp, "vmem_contains");
    return strata_arena_contains(vmp->arena, (uintptr_t)vaddr, size);
}

struct walk {
    void (*func)(void *arg, void *vaddr, size_t size);
    void *arg;
};
static int visit(const struct strata_arena_segment *segment, void *context) {
    const struct walk *walk = context;
    walk->func(walk->arg, (void *)(uintptr_t)segment->start, segment->size);
    return 1;
}

void vmem_walk(vmem_t *vmp, int typemask, void (*func)(void *arg, void *vaddr, size_t size), void *arg) {
    must_be(vmp, "vmem_walk");
    if (func == NULL) umem_die("vmem_walk(%s): the function is NULL", vmp->name);
    struct walk walk = {.func = func, .arg = arg};
    if (kinds_of(typemask) != 0) strata_arena_walk(vmp->arena, kinds_of(typemask), visit, &walk);
}

size_t vmem_size(vmem_t *vmp, int typemask) {
    uint64_t size = 0;
    must_be(vmp, "vmem_size");
    if (kinds_of(typemask) != 0) strata_arena_size(vmp->arena, kinds_of(typemask), &size);
    return size;
}
