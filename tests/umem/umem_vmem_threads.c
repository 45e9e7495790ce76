/*
 * umem_vmem_threads.c - arenas that import come and go while other threads use their source, and empty all caches: nobody wakes sleepers of an arena
 * that is gone, and what a quantum cache is about to give back is no leak. For ThreadSanitizer, too.
 */
#include <pthread.h>
#include <stdbool.h>

#include <umem.h>

#include "concurrency/concurrency.h"

enum { ARENAS = 300, HELD = 500, QUANTUM = 16, LARGEST = 8 * QUANTUM };

static bool stop;
static bool is_over(void) { return __atomic_load_n(&stop, __ATOMIC_RELAXED); }

static void *use(void *source) {
    while (!is_over()) {
        void *segment = vmem_alloc(source, 4096, VM_NOSLEEP);
        if (segment != NULL) vmem_free(source, segment, 4096);
    }
    return NULL;
}
static void *empty_caches(void *unused) {
    while (!is_over()) umem_reap();
    return unused;
}

static void *import(vmem_t *source, size_t size, int vmflag) { return vmem_alloc(source, size, vmflag); }
static void release(vmem_t *source, void *start, size_t size) { vmem_free(source, start, size); }

/* It imports directly or by functions, with quantum caches or without. */
static void come_and_go(vmem_t *source, bool direct, size_t qcache_max) {
    void *held[HELD];
    vmem_t *arena =
        vmem_create("passing", NULL, 0, QUANTUM, direct ? vmem_alloc : import, direct ? vmem_free : release, source, qcache_max, VM_SLEEP);
    EXPECT(arena != NULL);
    for (unsigned i = 0; i < HELD; i++) EXPECT((held[i] = vmem_alloc(arena, 1 + i % LARGEST, VM_SLEEP)) != NULL);
    for (unsigned i = 0; i < HELD; i++) vmem_free(arena, held[i], 1 + i % LARGEST);
    vmem_destroy(arena);
}

int main(void) {
    vmem_t *source = vmem_create("source", (void *)4096, 1 << 24, 4096, NULL, NULL, NULL, 0, VM_SLEEP);
    pthread_t user, reaper;
    EXPECT(source != NULL);
    EXPECT(pthread_create(&user, NULL, use, source) == 0 && pthread_create(&reaper, NULL, empty_caches, NULL) == 0);
    for (unsigned n = 0; n < ARENAS; n++) come_and_go(source, n % 2 != 0, n % 4 < 2 ? LARGEST : 0);
    __atomic_store_n(&stop, true, __ATOMIC_RELAXED);
    EXPECT(pthread_join(user, NULL) == 0 && pthread_join(reaper, NULL) == 0);
    EXPECT(vmem_size(source, VMEM_ALLOC) == 0);
    vmem_destroy(source);
    puts("ok");
    return 0;
}
