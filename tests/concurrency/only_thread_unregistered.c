/*
 * only_thread_unregistered.c - a thread of whose end strata can't be told, for want of memory, leaves nothing behind that others would look for in
 * it.
 *
 * With caches of threads. The C library takes memory to note a thread's data where the program has more than 31 keys of its own before strata's;
 * this program brings its own pthread_setspecific, which has none. The thread's stack, which holds what is the thread's own, goes with it.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#include "concurrency/concurrency.h"
#include "sanitizers.h"

#define STACK_BYTES ((size_t)1 << 20)
#define BLOCKS 100

#if UNDER_THREAD_SANITIZER /* which needs that function before anything else is there */

int main(void) { return 0; }

#else

const char *strata_conf = "rseq:off";

typedef int set_function(pthread_key_t key, const void *value);
static atomic_bool refuses;
static atomic_uint refused;

int pthread_setspecific(pthread_key_t key, const void *value) {
    static set_function *next;
    if (next == NULL) next = (set_function *)(uintptr_t)dlsym(RTLD_NEXT, "pthread_setspecific");
    if (!atomic_load(&refuses)) return next(key, value);
    atomic_fetch_add(&refused, 1);
    return ENOMEM;
}

static void work(void) {
    void *blocks[BLOCKS];
    for (unsigned i = 0; i < BLOCKS; i++) {
        EXPECT((blocks[i] = strata_malloc(100)) != NULL);
        memset(blocks[i], (int)i, 100);
    }
    for (unsigned i = 0; i < BLOCKS; i++) strata_free(blocks[i]);
}

/* From here on, as sanitizers have data of the thread's, too. */
static void *work_as_thread(void *refusing) {
    atomic_store(&refuses, refusing != NULL);
    work();
    atomic_store(&refuses, false);
    return NULL;
}

int main(void) {
    work(); /* the caller has its caches */
    for (unsigned turn = 0; turn < 20; turn++) {
        pthread_t thread;
        pthread_attr_t attributes;
        void *stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        EXPECT(stack != MAP_FAILED && pthread_attr_init(&attributes) == 0 && pthread_attr_setstack(&attributes, stack, STACK_BYTES) == 0);
        EXPECT(pthread_create(&thread, &attributes, work_as_thread, turn % 2 == 0 ? &thread : NULL) == 0 && pthread_join(thread, NULL) == 0);
        EXPECT(pthread_attr_destroy(&attributes) == 0 && munmap(stack, STACK_BYTES) == 0);
        strata_release(0);
        EXPECT(strata_check() == NULL);
        work();
    }
    EXPECT(atomic_load(&refused) != 0);
    return 0;
}

#endif
