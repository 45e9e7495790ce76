/*
 * umem_manual.c - programs as the manual pages of libumem teach them: umem_alloc(3MALLOC), umem_cache_create(3MALLOC), vmem(9). Nothing but <umem.h>
 * and the C library; umem_manual_cxx.cpp compiles the same text as C++.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <umem.h>

#define EXPECT(condition)                                                           \
    do {                                                                            \
        if (!(condition)) {                                                         \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
            abort();                                                                \
        }                                                                           \
    } while (0)

/* ------------------------------------------------------------------ umem_alloc(3MALLOC) */

static void blocks(void) {
    char *buf = (char *)umem_alloc(1024, UMEM_DEFAULT);
    EXPECT(buf != NULL);
    memset(buf, 1, 1024);
    umem_free(buf, 1024);
    for (size_t size = 1; size < 5000000; size = size * 3 / 2 + 1) {
        unsigned char *zeros = (unsigned char *)umem_zalloc(size, UMEM_NOFAIL);
        for (size_t i = 0; i < size; i += size / 100 + 1) EXPECT(zeros[i] == 0);
        memset(zeros, 2, size);
        umem_free(zeros, size);
        for (size_t align = 16; align <= 65536; align *= 8) {
            void *aligned = umem_alloc_align(size, align, UMEM_DEFAULT);
            EXPECT(aligned != NULL && (uintptr_t)aligned % align == 0);
            umem_free_align(aligned, size);
        }
    }
    EXPECT(umem_alloc(0, UMEM_DEFAULT) == NULL && umem_zalloc(0, UMEM_NOFAIL) == NULL && umem_alloc_align(0, 64, UMEM_NOFAIL) == NULL);
    EXPECT(umem_alloc_align(100, 24, UMEM_NOFAIL) == NULL);
    for (size_t size = 1; size < 5000000; size = size * 5 + 1) { /* as blocks are aligned */
        void *aligned = umem_alloc_align(size, 0, UMEM_DEFAULT), *another = umem_alloc_align(size, 0, UMEM_NOFAIL);
        EXPECT(aligned != NULL && (uintptr_t)aligned % 16 == 0 && another != NULL && (uintptr_t)another % 16 == 0);
        umem_free_align(aligned, size);
        umem_free_align(another, size);
    }
    EXPECT(umem_alloc(SIZE_MAX, UMEM_DEFAULT) == NULL && umem_zalloc((size_t)1 << 62, UMEM_DEFAULT) == NULL);
    umem_free(NULL, 0);
    umem_free_align(NULL, 0);
}

/* A thread that can't have its memory ends; others go on. */
static int end_this_thread(void) {
    pthread_exit(NULL);
    return UMEM_CALLBACK_EXIT(1);
}

static void *wants_too_much(void *its_argument) {
    char *buf = (char *)umem_alloc((size_t)1 << 62, UMEM_NOFAIL);
    buf[0] = 0;
    umem_free(buf, (size_t)1 << 62);
    return its_argument;
}

static void threads_that_run_out(void) {
    int argument = 0;
    umem_nofail_callback(end_this_thread);
    for (int i = 0; i < 3; i++) {
        pthread_t thread;
        void *status = &argument;
        EXPECT(pthread_create(&thread, NULL, wants_too_much, &argument) == 0);
        EXPECT(pthread_join(thread, &status) == 0 && status == NULL);
    }
    umem_nofail_callback(NULL);
}

/* ------------------------------------------------------------------ umem_cache_create(3MALLOC) */

typedef struct my_obj {
    pthread_mutex_t my_mutex;
    pthread_cond_t my_cv;
    struct bar *my_barlist;
    unsigned my_refcount;
    long my_data;
} my_obj_t;

static unsigned made, unmade;

static int my_obj_constructor(void *buf, void *ignored, int flags) {
    my_obj_t *myobj = (my_obj_t *)buf;
    EXPECT(ignored == NULL && flags == UMEM_DEFAULT);
    pthread_mutex_init(&myobj->my_mutex, NULL);
    pthread_cond_init(&myobj->my_cv, NULL);
    myobj->my_barlist = NULL;
    myobj->my_refcount = 0;
    made++;
    return 0;
}

static void my_obj_destructor(void *buf, void *ignored) {
    my_obj_t *myobj = (my_obj_t *)buf;
    EXPECT(ignored == NULL && myobj->my_refcount == 0 && myobj->my_barlist == NULL);
    pthread_cond_destroy(&myobj->my_cv);
    pthread_mutex_destroy(&myobj->my_mutex);
    unmade++;
}

static void objects_with_a_mutex(void) {
    char name[] = "my_obj";
    umem_cache_t *my_obj_cache = umem_cache_create(name, sizeof(my_obj_t), 0, my_obj_constructor, my_obj_destructor, NULL, NULL, NULL, 0);
    EXPECT(my_obj_cache != NULL);
    for (int round = 0; round < 1000; round++) {
        my_obj_t *cur = (my_obj_t *)umem_cache_alloc(my_obj_cache, round % 2 == 0 ? UMEM_DEFAULT : UMEM_NOFAIL);
        EXPECT(cur != NULL && cur->my_refcount == 0);
        cur->my_data = 0;
        EXPECT(pthread_mutex_lock(&cur->my_mutex) == 0 && pthread_mutex_unlock(&cur->my_mutex) == 0);
        umem_cache_free(my_obj_cache, cur);
    }
    EXPECT(made > 0 && made < 1000); /* they stayed constructed */
    umem_reap();
    umem_cache_destroy(my_obj_cache);
    EXPECT(made == unmade);
}

/* With a buffer behind each, and one pair of callbacks for two sizes. */
typedef struct big_obj {
    char *my_buffer;
    size_t my_size;
} big_obj_t;

static int big_obj_constructor(void *buf, void *arg, int flags) {
    size_t sz = (size_t)(uintptr_t)arg;
    big_obj_t *myobj = (big_obj_t *)buf;
    EXPECT(flags == UMEM_DEFAULT); /* whatever the allocation has */
    if ((myobj->my_buffer = (char *)umem_alloc(sz, flags)) == NULL) return 1;
    myobj->my_size = sz;
    return 0;
}

static void big_obj_destructor(void *buf, void *arg) {
    big_obj_t *myobj = (big_obj_t *)buf;
    EXPECT((size_t)(uintptr_t)arg == myobj->my_size);
    umem_free(myobj->my_buffer, myobj->my_size);
}

static void objects_with_a_buffer(void) {
    umem_cache_t *caches[3];
    caches[0] = umem_cache_create("my_obj_4k", sizeof(big_obj_t), 0, big_obj_constructor, big_obj_destructor, NULL, (void *)4096, NULL, 0);
    caches[1] = umem_cache_create("my_obj_8k", sizeof(big_obj_t), 64, big_obj_constructor, big_obj_destructor, NULL, (void *)8192, NULL, UMC_NODEBUG);
    caches[2] = umem_cache_create("my_obj_1", sizeof(big_obj_t), 0, big_obj_constructor, big_obj_destructor, NULL, (void *)1, NULL, UMC_NOMAGAZINE);
    for (int round = 0; round < 300; round++)
        for (unsigned i = 0; i < 3; i++) {
            int flags = round % 2 == 0 ? UMEM_DEFAULT : UMEM_NOFAIL;
            big_obj_t *first = (big_obj_t *)umem_cache_alloc(caches[i], flags);
            big_obj_t *second = (big_obj_t *)umem_cache_alloc(caches[i], flags);
            EXPECT(first != NULL && second != NULL && first != second && first->my_buffer != second->my_buffer);
            first->my_buffer[first->my_size - 1] = 1;
            umem_cache_free(caches[i], first);
            umem_cache_free(caches[i], second);
        }
    for (unsigned i = 0; i < 3; i++) umem_cache_destroy(caches[i]);
}

/* A constructor that can't yet: who may fail is told, who may not asks its callback, and tries again. */
static unsigned refusals, asked;
static int refusing_constructor(void *buf, void *ignored, int flags) {
    (void)buf, (void)ignored, (void)flags;
    return refusals != 0 ? (refusals--, 1) : 0;
}
static int try_again(void) {
    refusals = asked++ < 3 ? 1000 : 0;
    return UMEM_CALLBACK_RETRY;
}

static void constructors_that_refuse(void) {
    umem_cache_t *cache = umem_cache_create("refusing", 200, 0, refusing_constructor, NULL, NULL, NULL, NULL, 0);
    refusals = 1000;
    EXPECT(umem_cache_alloc(cache, UMEM_DEFAULT) == NULL);
    umem_nofail_callback(try_again);
    refusals = 1000;
    void *object = umem_cache_alloc(cache, UMEM_NOFAIL);
    EXPECT(object != NULL && asked == 4);
    umem_nofail_callback(NULL);
    umem_cache_free(cache, object);
    umem_cache_destroy(cache);
}

/*
 * A constructor that passes its flags on, where the buffers behind objects run out. Callbacks that don't come back are called where no object is half
 * made: all that are made are there for later allocations, and are unmade in the end.
 */
static unsigned buffers, left; /* how many more there are */
static bool constructs;
static jmp_buf way_out;

static int buffered_constructor(void *buf, void *ignored, int flags) {
    (void)ignored;
    constructs = true;
    size_t size = buffers != 0 ? 100 : (size_t)1 << 62;
    void *buffer = umem_alloc(size, flags);
    constructs = false;
    if (buffer == NULL) return 1;
    buffers--;
    made++;
    *(void **)buf = buffer;
    return 0;
}
static void buffered_destructor(void *buf, void *ignored) {
    (void)ignored;
    umem_free(*(void **)buf, 100);
    unmade++;
}
static int leave_by_longjmp(void) {
    EXPECT(!constructs);
    left++;
    longjmp(way_out, 1);
}
static int leave_by_the_end(void) {
    EXPECT(!constructs);
    left++;
    return end_this_thread();
}
static void *wants_an_object(void *cache) { return umem_cache_alloc((umem_cache_t *)cache, UMEM_NOFAIL); }

static void buffers_that_run_out(size_t size, int cflags) {
    umem_cache_t *cache = umem_cache_create("buffered", size, 0, buffered_constructor, buffered_destructor, NULL, NULL, NULL, cflags);
    made = unmade = left = 0;
    umem_nofail_callback(leave_by_longjmp);
    buffers = 2; /* enough for one object, whatever else the cache would like to have */
    void *volatile object = umem_cache_alloc(cache, UMEM_NOFAIL);
    EXPECT(object != NULL && left == 0 && made > 0);
    umem_cache_free(cache, object);
    umem_reap();
    EXPECT(made == unmade);

    buffers = 0;
    if (setjmp(way_out) == 0) EXPECT(umem_cache_alloc(cache, UMEM_NOFAIL) == NULL); /* it does not return */
    EXPECT(left == 1);
    umem_nofail_callback(leave_by_the_end);
    pthread_t thread;
    void *status = &thread;
    EXPECT(pthread_create(&thread, NULL, wants_an_object, cache) == 0 && pthread_join(thread, &status) == 0 && status == NULL && left == 2);
    umem_nofail_callback(NULL);

    buffers = 1000;
    void *objects[100];
    for (unsigned i = 0; i < 100; i++) EXPECT((objects[i] = umem_cache_alloc(cache, UMEM_NOFAIL)) != NULL);
    for (unsigned i = 0; i < 100; i++) umem_cache_free(cache, objects[i]);
    umem_cache_destroy(cache);
    EXPECT(made == unmade && left == 2);
}

/* Of several megabytes, as file systems have them. */
static void large_objects(void) {
    size_t size = (size_t)3 << 20;
    made = unmade = 0;
    umem_cache_t *cache = umem_cache_create("large", size, 4096, my_obj_constructor, my_obj_destructor, NULL, NULL, NULL, 0);
    void *object = umem_cache_alloc(cache, UMEM_NOFAIL);
    EXPECT(object != NULL && (uintptr_t)object % 4096 == 0 && made == 1);
    memset((char *)object + sizeof(my_obj_t), 1, size - sizeof(my_obj_t));
    umem_cache_free(cache, object);
    EXPECT(unmade == 1);
    umem_cache_destroy(cache);
    EXPECT(umem_cache_create("wrong", 0, 0, NULL, NULL, NULL, NULL, NULL, 0) == NULL);
    EXPECT(umem_cache_create("wrong", 8, 3, NULL, NULL, NULL, NULL, NULL, 0) == NULL);
    EXPECT(umem_cache_create("wrong", 8, 1 << 20, NULL, NULL, NULL, NULL, NULL, 0) == NULL);
    errno = 0;
    EXPECT(umem_cache_create("wrong", SIZE_MAX, 0, NULL, NULL, NULL, NULL, NULL, 0) == NULL && errno == ENOMEM);
    EXPECT(umem_cache_create(NULL, 8, 0, NULL, NULL, NULL, NULL, NULL, 0) == NULL);
    umem_cache_destroy(NULL);
}

/* Asked for what it can spare, when memory is gone. */
static void *spares[64];
static umem_cache_t *sparing;
static unsigned asked_for_spares;
static void give_spares(void *callback_data) {
    EXPECT(callback_data == spares);
    asked_for_spares++;
    for (unsigned i = 0; i < 64; i++) {
        if (spares[i] != NULL) umem_cache_free(sparing, spares[i]);
        spares[i] = NULL;
    }
}

static void reclaim(void) {
    vmem_t *small = vmem_create("small", (void *)4096, 16 * 4096, 4096, NULL, NULL, NULL, 0, VM_SLEEP | VMC_IDENTIFIER);
    /* Its objects are integers; nobody looks behind them. */
    sparing = umem_cache_create("sparing", 2048, 0, NULL, NULL, give_spares, spares, small, UMC_NOTOUCH | UMC_NODEBUG);
    unsigned count = 0;
    for (; count < 64 && asked_for_spares == 0; count++) EXPECT((spares[count] = umem_cache_alloc(sparing, UMEM_DEFAULT)) != NULL);
    EXPECT(count > 16 && asked_for_spares == 1 && spares[0] == NULL && spares[count - 1] != NULL); /* it got one of those that were given back */
    umem_cache_free(sparing, spares[count - 1]);
    umem_cache_destroy(sparing);
    vmem_destroy(small);
}

/* umem_reap asks each cache first, so that what is given back leaves, too; one that reaps for itself asks nobody. */
static umem_cache_t *asking[2]; /* the second one's objects are large */
static void *spared[2][8];
static unsigned given;
static void give_and_reap(unsigned which) {
    given++;
    for (unsigned i = 0; i < 8; i++) {
        umem_cache_free(asking[which], spared[which][i]);
        spared[which][i] = NULL;
    }
    umem_reap();
}
static void give_small(void *ignored) {
    (void)ignored;
    give_and_reap(0);
}
static void give_large(void *ignored) {
    (void)ignored;
    give_and_reap(1);
}

static void reap(void) {
    made = unmade = 0;
    for (unsigned which = 0; which < 2; which++) {
        asking[which] = umem_cache_create("asking", which == 0 ? sizeof(my_obj_t) : (size_t)2 << 20, 0, my_obj_constructor, my_obj_destructor,
                                          which == 0 ? give_small : give_large, NULL, NULL, 0);
        for (unsigned i = 0; i < 8; i++) EXPECT((spared[which][i] = umem_cache_alloc(asking[which], UMEM_DEFAULT)) != NULL);
    }
    umem_reap();
    EXPECT(given == 2 && made >= 16 && made == unmade);
    umem_cache_destroy(asking[0]);
    umem_reap();
    EXPECT(given == 3); /* an empty cache, too */
    umem_cache_destroy(asking[1]);
    umem_reap();
    EXPECT(given == 3);
}

/* Caches that come and go while others reap: destroyed in the middle of their callbacks, and never called afterwards. */
static bool others_reap; /* atomic, as all that these threads share */
static unsigned callbacks_begun;
static void *reap_on(void *nothing) {
    while (__atomic_load_n(&others_reap, __ATOMIC_ACQUIRE)) umem_reap();
    return nothing;
}
static void look_at_its_cache(void *callback_data) {
    bool *exists = (bool *)callback_data;
    EXPECT(__atomic_load_n(exists, __ATOMIC_ACQUIRE));
    __atomic_fetch_add(&callbacks_begun, 1, __ATOMIC_ACQ_REL);
    for (int i = 0; i < 20; i++) sched_yield();
    EXPECT(__atomic_load_n(exists, __ATOMIC_ACQUIRE));
}

static void reap_while_caches_go(void) {
    pthread_t threads[2];
    static bool exists[300];
    __atomic_store_n(&others_reap, true, __ATOMIC_RELEASE);
    for (int i = 0; i < 2; i++) EXPECT(pthread_create(&threads[i], NULL, reap_on, NULL) == 0);
    for (unsigned round = 0; round < 300; round++) {
        __atomic_store_n(&exists[round], true, __ATOMIC_RELEASE);
        unsigned before = __atomic_load_n(&callbacks_begun, __ATOMIC_ACQUIRE);
        umem_cache_t *cache = umem_cache_create("passing", 100, 0, NULL, NULL, look_at_its_cache, &exists[round], NULL, 0);
        EXPECT(cache != NULL);
        while (round % 3 != 0 && __atomic_load_n(&callbacks_begun, __ATOMIC_ACQUIRE) == before) sched_yield();
        umem_cache_destroy(cache);
        __atomic_store_n(&exists[round], false, __ATOMIC_RELEASE);
    }
    __atomic_store_n(&others_reap, false, __ATOMIC_RELEASE);
    for (int i = 0; i < 2; i++) EXPECT(pthread_join(threads[i], NULL) == 0);
}

int main(void) {
    reap(); /* first: it counts calls, and once the heap has been large the library asks caches by itself, where the program is idle */
    blocks();
    threads_that_run_out();
    objects_with_a_mutex();
    objects_with_a_buffer();
    constructors_that_refuse();
    buffers_that_run_out(48, 0);
    buffers_that_run_out(48, UMC_NOMAGAZINE);
    buffers_that_run_out((size_t)2 << 20, 0);
    large_objects();
    reclaim();
    reap_while_caches_go();
    puts("as the manual says");
    return 0;
}
