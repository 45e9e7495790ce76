/*
 * umem_vmem_sleep.c - what wakes those who sleep in arenas that import, directly and by functions, from arenas that import themselves. There are no
 * caches in this process: where there are some, sleepers look by themselves now and then, as these might hold what they wait for.
 */
#include <pthread.h>
#include <stdint.h>
#include <unistd.h>

#include <umem.h>

#include "concurrency/concurrency.h"

#define AT(n) ((void *)(uintptr_t)(n))

static void *import(vmem_t *source, size_t size, int vmflag) {
    (void)vmflag;
    return vmem_alloc(source, size, VM_NOSLEEP);
}
static void release(vmem_t *source, void *start, size_t size) { vmem_free(source, start, size); }

struct sleeper {
    vmem_t *arena;
    size_t size;
    void *got;
    int done;
};
static void *sleep_for_space(void *argument) {
    struct sleeper *sleeper = argument;
    sleeper->got = vmem_alloc(sleeper->arena, sleeper->size, VM_SLEEP);
    __atomic_store_n(&sleeper->done, 1, __ATOMIC_RELEASE);
    return NULL;
}

static void fall_asleep(struct sleeper *sleeper, pthread_t *thread) {
    EXPECT(pthread_create(thread, NULL, sleep_for_space, sleeper) == 0);
    usleep(50000);
    EXPECT(__atomic_load_n(&sleeper->done, __ATOMIC_ACQUIRE) == 0);
}
static void wake_up(struct sleeper *sleeper, pthread_t thread) {
    EXPECT(pthread_join(thread, NULL) == 0 && sleeper->got != NULL);
    vmem_free(sleeper->arena, sleeper->got, sleeper->size);
}

static vmem_t *importer_of(vmem_t *source, bool direct) {
    return vmem_create("importer", NULL, 0, 16, direct ? vmem_alloc : import, direct ? vmem_free : release, source, 0, VM_SLEEP);
}

/* Freed in the arena itself, or added to it; in the one that it imports from, directly or by functions; and in that one's source. */
static void sleepers_are_woken(void) {
    for (unsigned kind = 0; kind < 24; kind++) {
        unsigned levels = kind / 8;
        bool adds = (kind & 4) != 0;
        vmem_t *chain[3] = {vmem_create("source", AT(4096), 4096, 16, NULL, NULL, NULL, 0, VM_SLEEP)};
        for (unsigned i = 0; i < levels; i++) chain[i + 1] = importer_of(chain[i], (kind >> i & 1) != 0);
        void *all = vmem_alloc(chain[0], 4096, VM_SLEEP);
        struct sleeper sleeper = {.arena = chain[levels], .size = 64};
        pthread_t thread;
        fall_asleep(&sleeper, &thread);
        if (adds)
            EXPECT(vmem_add(chain[0], AT(65536), 4096, VM_SLEEP) == AT(65536));
        else
            vmem_free(chain[0], all, 4096);
        wake_up(&sleeper, thread);
        if (adds) vmem_free(chain[0], all, 4096);
        while (levels != 0) vmem_destroy(chain[levels--]);
        vmem_destroy(chain[0]);
    }
}

/* What one importer has no more use for goes back to the source, and may serve another one; also where it goes itself, with what was leaked. */
static void sleepers_beside_are_woken(void) {
    for (unsigned kind = 0; kind < 8; kind++) {
        vmem_t *source = vmem_create("source", AT(4096), 4096, 16, NULL, NULL, NULL, 0, VM_SLEEP);
        vmem_t *owner = importer_of(source, (kind & 1) != 0), *beside = importer_of(source, (kind & 2) != 0);
        void *all = vmem_alloc(owner, 4096, VM_SLEEP);
        struct sleeper sleeper = {.arena = beside, .size = 64};
        pthread_t thread;
        fall_asleep(&sleeper, &thread);
        if (kind < 4) vmem_free(owner, all, 4096);
        vmem_destroy(owner);
        wake_up(&sleeper, thread);
        vmem_destroy(beside);
        vmem_destroy(source);
    }
}

int main(void) {
    sleepers_are_woken();
    sleepers_beside_are_woken();
    puts("ok");
    return 0;
}
