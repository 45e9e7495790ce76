/*
 * umem_vmem.c - vmem's names as its manual pages describe them: fits, constraints, imports by arenas and by functions, quantum caches, walks;
 * and object caches whose slabs come from an arena.
 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <sys/vmem.h>
#include <umem.h>

#include "concurrency/concurrency.h"

#define AT(n) ((void *)(uintptr_t)(n))
#define NUMBER(p) ((uintptr_t)(p))

/* ------------------------------------------------------------------ numbers */

static void identifiers_go_round(void) {
    vmem_t *ids = vmem_create("ids", AT(1), 100, 1, NULL, NULL, NULL, 0, VM_SLEEP | VMC_IDENTIFIER);
    EXPECT(ids != NULL && vmem_size(ids, VMEM_FREE) == 100 && vmem_size(ids, VMEM_ALLOC | VMEM_FREE) == 100);
    for (uintptr_t i = 1; i <= 50; i++) EXPECT(NUMBER(vmem_alloc(ids, 1, VM_SLEEP | VM_NEXTFIT)) == i);
    vmem_free(ids, AT(7), 1);
    EXPECT(NUMBER(vmem_alloc(ids, 1, VM_NOSLEEP | VM_NEXTFIT)) == 51); /* 7 is not used again soon */
    EXPECT(NUMBER(vmem_alloc(ids, 1, VM_NOSLEEP | VM_BESTFIT)) == 7);
    for (uintptr_t i = 52; i <= 100; i++) EXPECT(vmem_alloc(ids, 1, VM_NOSLEEP | VM_FIRSTFIT) != NULL);
    EXPECT(vmem_alloc(ids, 1, VM_NOSLEEP) == NULL && errno == ENOMEM);
    EXPECT(vmem_size(ids, VMEM_ALLOC) == 100 && vmem_size(ids, VMEM_FREE) == 0);
    for (uintptr_t i = 1; i <= 100; i++) vmem_free(ids, AT(i), 1);
    EXPECT(vmem_add(ids, AT(200), 50, VM_SLEEP) == AT(200) && vmem_contains(ids, AT(200), 50) && !vmem_contains(ids, AT(200), 51));
    EXPECT(vmem_add(ids, AT(240), 50, VM_SLEEP) == NULL && errno == EINVAL);
    EXPECT(vmem_add(ids, NULL, 50, VM_SLEEP) == NULL && errno == EINVAL);
    vmem_destroy(ids);
    vmem_destroy(NULL);
}

static void constraints_are_met(void) {
    vmem_t *space = vmem_create("space", AT(4096), 1 << 20, 64, NULL, NULL, NULL, 0, VM_SLEEP);
    void *p = vmem_xalloc(space, 100, 4096, 192, 0, NULL, NULL, VM_SLEEP);
    EXPECT(NUMBER(p) % 4096 == 192);
    void *q = vmem_xalloc(space, 128, 0, 0, 0, AT(65536), AT(65536 + 128), VM_NOSLEEP);
    EXPECT(q == AT(65536));
    EXPECT(vmem_xalloc(space, 128, 0, 0, 0, AT(65536), AT(65536 + 128), VM_NOSLEEP) == NULL);
    void *r = vmem_xalloc(space, 1000, 16, 0, 1024, NULL, NULL, VM_NOSLEEP); /* less than the quantum: any will do */
    EXPECT(NUMBER(r) / 1024 == (NUMBER(r) + 999) / 1024);
    /* What no free can make room for: with VM_NOSLEEP there is none now. */
    EXPECT(vmem_xalloc(space, 128, 0, 0, 0, AT(65536), AT(65536 + 64), VM_NOSLEEP) == NULL && errno == ENOMEM);
    EXPECT(vmem_xalloc(space, 128, 0, 0, 0, AT(8192), AT(4096), VM_NOSLEEP) == NULL);
    EXPECT(vmem_xalloc(space, 128, 0, 0, 0, AT(UINTPTR_MAX - 63), NULL, VM_NOSLEEP) == NULL);
    EXPECT(vmem_xalloc(space, 128, 4096, 0, 0, AT(65536 + 1), AT(65536 + 4096 + 64), VM_NOSLEEP) == NULL && errno == ENOMEM);
    EXPECT(vmem_xalloc(space, 128, 0, 0, 128, AT(65536 + 64), AT(65536 + 192 + 64), VM_NOSLEEP) == AT(65536 + 128)); /* just one */
    vmem_xfree(space, AT(65536 + 128), 128);
    EXPECT(vmem_alloc(space, SIZE_MAX, VM_NOSLEEP) == NULL && vmem_alloc(space, SIZE_MAX - 63, VM_NOSLEEP) == NULL);
    vmem_xfree(space, r, 1000);
    vmem_xfree(space, q, 128);
    vmem_xfree(space, p, 100);
    EXPECT(vmem_size(space, VMEM_ALLOC) == 0);
    vmem_destroy(space);
}

static void high_addresses_may_be_preferred(void) {
    vmem_t *space = vmem_create("space", AT(4096), 64 * 4096, 4096, NULL, NULL, NULL, 0, VM_SLEEP);
    const uintptr_t end = 65 * 4096;
    EXPECT(vmem_alloc(space, 4096, VM_SLEEP | VM_ENDALLOC) == AT(end - 4096));
    EXPECT(vmem_alloc(space, 4096, VM_SLEEP) == AT(4096));
    EXPECT(vmem_alloc(space, 8192, VM_NOSLEEP | VM_FIRSTFIT | VM_ENDALLOC) == AT(end - 3 * 4096));
    vmem_free(space, AT(end - 4096), 4096);
    EXPECT(vmem_alloc(space, 8192, VM_NOSLEEP | VM_ENDALLOC) == AT(end - 5 * 4096)); /* the hole above is too small */
    EXPECT(vmem_alloc(space, 4096, VM_NOSLEEP | VM_ENDALLOC) == AT(end - 4096));
    EXPECT(vmem_xalloc(space, 4096, 65536, 8192, 0, NULL, NULL, VM_NOSLEEP | VM_ENDALLOC) == AT(3 * 65536 + 8192));
    EXPECT(vmem_xalloc(space, 4096, 0, 0, 0, NULL, AT(100000), VM_NOSLEEP | VM_ENDALLOC) == AT(23 * 4096));
    EXPECT(vmem_alloc(space, 4096, VM_NOSLEEP | VM_NEXTFIT | VM_ENDALLOC) == AT(2 * 4096)); /* next fit goes on as it does */
    vmem_xfree(space, AT(3 * 65536 + 8192), 4096);
    vmem_xfree(space, AT(23 * 4096), 4096);
    vmem_free(space, AT(4096), 4096);
    EXPECT(vmem_alloc(space, 4096, VM_NOSLEEP | VM_BESTFIT | VM_ENDALLOC) == AT(4096)); /* the smallest, though it lies lowest */
    vmem_free(space, AT(4096), 4096);
    vmem_free(space, AT(2 * 4096), 4096);
    vmem_free(space, AT(end - 3 * 4096), 8192);
    vmem_free(space, AT(end - 5 * 4096), 8192);
    vmem_free(space, AT(end - 4096), 4096);
    EXPECT(vmem_size(space, VMEM_ALLOC) == 0);
    vmem_t *importer = vmem_create("importer", NULL, 0, 1024, vmem_alloc, vmem_free, space, 0, VM_SLEEP);
    void *p = vmem_alloc(importer, 1024, VM_SLEEP | VM_ENDALLOC);
    EXPECT(p != NULL && NUMBER(p) % 4096 == 3072); /* the end of the span that was imported for it */
    vmem_free(importer, p, 1024);
    vmem_destroy(importer);
    vmem_destroy(space);
}

/* illumos has them for its kernel; and looks at none that it doesn't know. */
static void flags_without_a_meaning_are_no_mistake(void) {
    EXPECT(VM_MEMLOAD == 0x800 && VM_NORELOC == 0x1000);
    vmem_t *space = vmem_create("space", AT(4096), 4096, 4096, NULL, NULL, NULL, 0, VM_SLEEP | 0x01000000);
    umem_cache_t *cache = umem_cache_create("cache", 4096, 4096, NULL, NULL, NULL, NULL, space, 0x7);
    EXPECT(space != NULL && cache != NULL);
    umem_cache_destroy(cache);
    EXPECT(vmem_alloc(space, 4096, VM_NOSLEEP | VM_MEMLOAD | VM_NORELOC | 0x8000) == AT(4096));
    EXPECT(vmem_alloc(space, 4096, VM_NOSLEEP | VM_MEMLOAD) == NULL);
    vmem_free(space, AT(4096), 4096);
    vmem_destroy(space);
    void *block = umem_alloc(10, 0x7077);
    EXPECT(block != NULL);
    umem_free(block, 10);
}

static void *import_nothing(vmem_t *source, size_t size, int vmflag) {
    (void)source, (void)size, (void)vmflag;
    return NULL;
}

static void wrong_arenas_are_refused(void) {
    EXPECT(vmem_create(NULL, AT(1), 10, 1, NULL, NULL, NULL, 0, VM_SLEEP) == NULL && errno == EINVAL);
    EXPECT(vmem_create("x", NULL, 10, 1, NULL, NULL, NULL, 0, VM_SLEEP) == NULL && errno == EINVAL); /* 0 is no integer of arenas */
    EXPECT(vmem_create("x", NULL, 0, 1, vmem_alloc, vmem_free, NULL, 0, VM_SLEEP) == NULL && errno == EINVAL);
    EXPECT(vmem_create("x", NULL, 0, 1, vmem_alloc, NULL, NULL, 0, VM_NOSLEEP) == NULL && errno == EINVAL);
    EXPECT(vmem_create("x", NULL, 0, 1, import_nothing, vmem_free, NULL, 0, VM_SLEEP) == NULL && errno == EINVAL);
    vmem_t *ends = vmem_create("x", AT(1), 10, 1, NULL, vmem_free, NULL, 0, VM_SLEEP);
    EXPECT(ends != NULL);
    vmem_destroy(ends);
    EXPECT(vmem_xcreate(NULL, AT(1), 10, 1, NULL, NULL, NULL, 0, VM_SLEEP) == NULL && errno == EINVAL);
    EXPECT(vmem_add(NULL, AT(1), 10, VM_NOSLEEP) == NULL && errno == EINVAL);
    EXPECT(vmem_create("x", AT(1), 10, 3, NULL, NULL, NULL, 0, VM_SLEEP) == NULL && errno == EINVAL);
    EXPECT(vmem_create("x", AT(1), 10, 0, NULL, NULL, NULL, 0, VM_SLEEP) == NULL && errno == EINVAL);
    EXPECT(vmem_create("x", AT(1), 16, 16, NULL, NULL, NULL, 0, VM_SLEEP) == NULL && errno == EINVAL);
    EXPECT(vmem_create("x", AT(32), SIZE_MAX - 15, 16, NULL, NULL, NULL, 0, VM_SLEEP) == NULL && errno == EINVAL);
}

struct seen {
    unsigned count;
    uintptr_t start[8];
    size_t size[8];
    vmem_t *arena;
};
static void note(void *arg, void *vaddr, size_t size) {
    struct seen *seen = arg;
    EXPECT(seen->count < 8);
    seen->start[seen->count] = NUMBER(vaddr);
    seen->size[seen->count++] = size;
    if (seen->arena != NULL) vmem_free(seen->arena, vaddr, size); /* the callback may change the arena */
}

static void walks_show_segments_in_order(void) {
    vmem_t *space = vmem_create("walk", AT(100), 100, 1, NULL, NULL, NULL, 0, VM_SLEEP);
    struct seen seen = {0};
    EXPECT(vmem_xalloc(space, 10, 0, 0, 0, AT(120), AT(130), VM_SLEEP) == AT(120));
    EXPECT(vmem_xalloc(space, 20, 0, 0, 0, AT(150), AT(170), VM_SLEEP) == AT(150));
    vmem_walk(space, VMEM_ALLOC, note, &seen);
    EXPECT(seen.count == 2 && seen.start[0] == 120 && seen.size[0] == 10 && seen.start[1] == 150 && seen.size[1] == 20);
    seen.count = 0;
    vmem_walk(space, VMEM_FREE, note, &seen);
    EXPECT(seen.count == 3 && seen.start[0] == 100 && seen.size[0] == 20 && seen.start[2] == 170 && seen.size[2] == 30);
    seen = (struct seen){.arena = space};
    vmem_walk(space, (int)(VMEM_ALLOC | VMEM_REENTRANT), note, &seen);
    EXPECT(seen.count == 2 && vmem_size(space, VMEM_ALLOC) == 0);
    vmem_destroy(space);
}

static void quantum_caches_serve_small_sizes(void) {
    for (int flags = 0; flags < 2; flags++) {
        vmem_t *cached = vmem_create("cached", AT(4096), 1 << 24, 4096, NULL, NULL, NULL, 10000, VM_SLEEP | (flags ? VMC_NO_QCACHE : 0));
        void *held[100];
        for (int round = 0; round < 10; round++) {
            for (int i = 0; i < 100; i++) EXPECT((held[i] = vmem_alloc(cached, (size_t)(1 + i % 4) * 4096, VM_NOSLEEP)) != NULL);
            for (int i = 0; i < 100; i++) vmem_free(cached, held[i], (size_t)(1 + i % 4) * 4096);
            EXPECT((held[0] = vmem_alloc(cached, 4096, VM_SLEEP | VM_ENDALLOC)) != NULL); /* which caches take for nothing special */
            vmem_free(cached, held[0], 4096);
        }
        EXPECT((vmem_size(cached, VMEM_ALLOC) != 0) == (flags == 0)); /* slabs are allocated, as far as the arena knows */
        vmem_destroy(cached);
    }
}

/* ------------------------------------------------------------------ imports */

/* They end at 2^60. */
static void a_quantum_may_be_too_large_for_them(void) {
    for (unsigned shift = 57; shift < 64; shift++) {
        const size_t quantum = (size_t)1 << shift;
        vmem_t *coarse = vmem_create("coarse", AT(quantum), quantum, quantum, NULL, NULL, NULL, quantum, VM_SLEEP);
        EXPECT(coarse != NULL && vmem_alloc(coarse, 1, VM_NOSLEEP) == AT(quantum));
        vmem_free(coarse, AT(quantum), quantum);
        vmem_destroy(coarse);
    }
}

static void empty_spans_go_back(void) {
    vmem_t *source = vmem_create("source", AT(65536), 1 << 20, 4096, NULL, NULL, NULL, 0, VM_SLEEP);
    vmem_t *arena = vmem_create("arena", NULL, 0, 64, vmem_alloc, vmem_free, source, 0, VM_SLEEP);
    void *p = vmem_alloc(arena, 100, VM_SLEEP), *q = vmem_alloc(arena, 5000, VM_SLEEP);
    EXPECT(NUMBER(p) % 64 == 0 && NUMBER(q) % 64 == 0 && vmem_contains(source, p, 100));
    EXPECT(vmem_size(source, VMEM_ALLOC) >= 8192 && vmem_size(arena, VMEM_ALLOC) == 128 + 5056);
    vmem_free(arena, p, 100);
    vmem_free(arena, q, 5000);
    EXPECT(vmem_size(source, VMEM_ALLOC) == 0 && vmem_size(arena, VMEM_ALLOC | VMEM_FREE) == 0);
    /* What is leaked goes back, too. */
    EXPECT(vmem_alloc(arena, 100, VM_SLEEP) != NULL);
    vmem_destroy(arena);
    EXPECT(vmem_size(source, VMEM_ALLOC) == 0);
    vmem_destroy(source);
}

static unsigned imports, releases;
static int last_flag;
static size_t last_size;

/* An arena that ends is not looked for among all that import from the same source: by a clock, with much to spare. */
static void importers_go_without_a_search(void) {
    enum { COUNT = 8000 };
    static vmem_t *importers[COUNT];
    vmem_t *source = vmem_create("source", AT(4096), 1 << 20, 4096, NULL, NULL, NULL, 0, VM_SLEEP);
    const clock_t start = clock();
    for (unsigned i = 0; i < COUNT; i++) {
        importers[i] = vmem_create("importer", NULL, 0, 64, vmem_alloc, vmem_free, source, 0, VM_SLEEP);
        EXPECT(importers[i] != NULL);
    }
    const clock_t created = clock();
    for (unsigned i = 1; i < COUNT; i += 2) vmem_destroy(importers[i]);
    void *p = vmem_alloc(importers[0], 64, VM_SLEEP); /* who is left is among them still */
    vmem_free(importers[0], p, 64);
    for (unsigned i = 0; i < COUNT; i += 2) vmem_destroy(importers[i]);
    EXPECT(clock() - created <= 4 * (created - start));
    vmem_destroy(source);
}

static void *import_some(vmem_t *source, size_t size, int vmflag) {
    imports++;
    last_flag = vmflag;
    last_size = size;
    return vmem_alloc(source, size, VM_NOSLEEP);
}
static void *import_plenty(vmem_t *source, size_t *size, size_t align, int vmflag) {
    EXPECT(align == 16);
    if (*size < 4096) *size = 4096;
    return import_some(source, *size, vmflag);
}
static void release(vmem_t *source, void *start, size_t size) {
    releases++;
    vmem_free(source, start, size);
}

static void functions_may_import(void) {
    vmem_t *source = vmem_create("source", AT(4096), 1 << 16, 16, NULL, NULL, NULL, 0, VM_SLEEP);
    vmem_t *some = vmem_create("some", NULL, 0, 16, import_some, release, source, 0, VM_SLEEP);
    vmem_t *plenty = vmem_xcreate("plenty", NULL, 0, 16, import_plenty, release, source, 0, VM_SLEEP);
    vmem_t *kept = vmem_create("kept", NULL, 0, 16, import_some, NULL, source, 0, VM_SLEEP);
    void *p = vmem_alloc(some, 16, VM_NOSLEEP);
    EXPECT(p != NULL && imports == 1 && last_flag == VM_NOSLEEP);
    vmem_free(some, p, 16);
    EXPECT(releases == 1 && vmem_size(source, VMEM_ALLOC) == 0);
    p = vmem_alloc(plenty, 16, VM_SLEEP);
    void *q = vmem_alloc(plenty, 1000, VM_SLEEP);
    EXPECT(p != NULL && q != NULL && imports == 2 && last_flag == VM_SLEEP && vmem_size(plenty, VMEM_FREE) == 4096 - 16 - 1008);
    vmem_free(plenty, p, 16);
    vmem_free(plenty, q, 1000);
    EXPECT(releases == 2 && vmem_size(source, VMEM_ALLOC) == 0);
    p = vmem_alloc(kept, 512, VM_SLEEP);
    vmem_free(kept, p, 512);
    EXPECT(releases == 2 && vmem_size(kept, VMEM_FREE) == 512);
    EXPECT(vmem_alloc(some, 1 << 20, VM_NOSLEEP) == NULL);
    vmem_destroy(kept);
    vmem_free(source, p, 512); /* nobody else gives it back */
    vmem_destroy(plenty);
    vmem_destroy(some);
    vmem_destroy(source);
}

/* What an import asks for, gets and gives back is in quanta of the source, and all of it is there to be used. */
static void imports_are_in_quanta_of_the_source(void) {
    vmem_t *source = vmem_create("source", AT(4096), 1 << 16, 4096, NULL, NULL, NULL, 0, VM_SLEEP);
    vmem_t *arena = vmem_create("arena", NULL, 0, 64, import_some, release, source, 0, VM_SLEEP);
    void *held[64];
    imports = releases = 0;
    for (unsigned i = 0; i < 64; i++) EXPECT((held[i] = vmem_alloc(arena, 64, VM_SLEEP)) != NULL);
    EXPECT(imports == 1 && last_size == 4096 && vmem_size(source, VMEM_ALLOC) == 4096 && vmem_size(arena, VMEM_ALLOC) == 4096);
    for (unsigned i = 0; i < 64; i++) vmem_free(arena, held[i], 64);
    EXPECT(releases == 1 && vmem_size(source, VMEM_ALLOC) == 0);
    held[0] = vmem_alloc(arena, 4097, VM_NOSLEEP);
    EXPECT(held[0] != NULL && last_size == 8192 && vmem_size(arena, VMEM_FREE) == 8192 - 4160);
    vmem_free(arena, held[0], 4097);
    EXPECT(vmem_alloc(arena, SIZE_MAX - 63, VM_NOSLEEP) == NULL); /* it passes 2^64 in the source's quanta */
    vmem_destroy(arena);
    vmem_t *plenty = vmem_xcreate("plenty", NULL, 0, 16, import_plenty, release, source, 0, VM_SLEEP);
    held[0] = vmem_alloc(plenty, 5000, VM_SLEEP);
    EXPECT(held[0] != NULL && last_size == 8192);
    vmem_free(plenty, held[0], 5000);
    vmem_destroy(plenty);
    EXPECT(vmem_size(source, VMEM_ALLOC) == 0);
    vmem_destroy(source);
}

/* ------------------------------------------------------------------ caches on arenas */

static void slabs_may_come_from_an_arena(void) {
    static char region[4 << 20] __attribute__((aligned(65536)));
    vmem_t *memory = vmem_create("region", region, sizeof region, 4096, NULL, NULL, NULL, 0, VM_SLEEP);
    size_t sizes[] = {100, 5000, 2 << 20};
    for (int i = 0; i < 3; i++) {
        umem_cache_t *cache = umem_cache_create("in region", sizes[i], 64, NULL, NULL, NULL, NULL, memory, 0);
        char *objects[50], *first = umem_cache_alloc(cache, UMEM_DEFAULT);
        int count = 0;
        EXPECT(first >= region && first + sizes[i] <= region + sizeof region && NUMBER(first) % 64 == 0);
        while (count < 50 && (objects[count] = umem_cache_alloc(cache, UMEM_DEFAULT)) != NULL) {
            EXPECT(objects[count] >= region && objects[count] + sizes[i] <= region + sizeof region);
            memset(objects[count++], 1, sizes[i]);
        }
        EXPECT(count == (i == 2 ? 1 : 50) && vmem_size(memory, VMEM_ALLOC) >= (size_t)(count + 1) * sizes[i]);
        while (count > 0) umem_cache_free(cache, objects[--count]);
        umem_cache_free(cache, first);
        umem_cache_destroy(cache);
        EXPECT(vmem_size(memory, VMEM_ALLOC) == 0);
    }
    vmem_destroy(memory);
}

/* How many objects a cache can have out of such an arena. */
static unsigned objects_in(size_t base, size_t size, size_t quantum, size_t object) {
    vmem_t *ids = vmem_create("ids", AT(base), size, quantum, NULL, NULL, NULL, 0, VM_SLEEP | VMC_IDENTIFIER);
    umem_cache_t *cache = umem_cache_create("of ids", object, object, NULL, NULL, NULL, NULL, ids, UMC_NOTOUCH);
    static void *objects[1000];
    unsigned count = 0;
    while (count < 1000 && (objects[count] = umem_cache_alloc(cache, UMEM_DEFAULT)) != NULL) count++;
    for (unsigned i = 0; i < count; i++) {
        EXPECT(NUMBER(objects[i]) >= base && NUMBER(objects[i]) + object <= base + size && NUMBER(objects[i]) % object == 0);
        umem_cache_free(cache, objects[i]);
    }
    umem_cache_destroy(cache);
    EXPECT(vmem_size(ids, VMEM_ALLOC) == 0);
    vmem_destroy(ids);
    return count;
}
static void slabs_are_in_quanta_of_the_arena(void) {
    EXPECT(objects_in(1, 999, 1, 1) == 992); /* all but the seven in front of the first slab of eight */
    EXPECT(objects_in(65536, 1 << 20, 65536, 4096) == 256);
    EXPECT(objects_in(4096, 65536, 4096, 512) == 128);
}

int main(void) {
    identifiers_go_round();
    constraints_are_met();
    high_addresses_may_be_preferred();
    flags_without_a_meaning_are_no_mistake();
    wrong_arenas_are_refused();
    walks_show_segments_in_order();
    quantum_caches_serve_small_sizes();
    a_quantum_may_be_too_large_for_them();
    empty_spans_go_back();
    importers_go_without_a_search();
    functions_may_import();
    imports_are_in_quanta_of_the_source();
    slabs_may_come_from_an_arena();
    slabs_are_in_quanta_of_the_arena();
    puts("as the manual says");
    return 0;
}
