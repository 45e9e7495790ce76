/*
 * needs_umem_case.c - does one thing that ends, or is told of on standard error: needs_umem_case CASE. See test_umem.py.
 *
 * Where the program is built with INIT, it brings settings of its own, as umem_debug(3MALLOC) lets it.
 */
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <umem.h>
#include <vmem.h>

#include <strata/debug.h>
#include <strata/kmem.h>

#define AT(n) ((void *)(uintptr_t)(n))

static int exit_with_7(void) { return UMEM_CALLBACK_EXIT(7); }
static int nonsense(void) { return 42; }

static void *run_out(void *unused) {
    umem_alloc((size_t)1 << 62, UMEM_NOFAIL);
    return unused;
}
static void run_out_again(void) { run_out(NULL); }
static void say_exit(void) {
    usleep(50000); /* others come by meanwhile */
    puts("exit");
}

static void nofail(const char *how) {
    if (strcmp(how, "7") == 0 || strcmp(how, "threads") == 0) umem_nofail_callback(exit_with_7);
    if (strcmp(how, "nonsense") == 0) umem_nofail_callback(nonsense);
    atexit(say_exit);
    if (strcmp(how, "again") == 0) atexit(run_out_again);
    pthread_t threads[4];
    for (int i = 0; i < 4 && strcmp(how, "threads") == 0; i++) pthread_create(&threads[i], NULL, run_out, NULL);
    run_out(NULL);
}

static void *import(vmem_t *source, size_t size, int vmflag) { return vmem_alloc(source, size, vmflag); }
static void release(vmem_t *source, void *start, size_t size) { vmem_free(source, start, size); }

/* Leaves 17 pages of an arena with quantum caches allocated, by 1, 2, 3 and 11; what was imported for all goes back. */
static void leak_cached(void) {
    vmem_t *source = vmem_create("source", AT(1 << 20), 1 << 24, 4096, NULL, NULL, NULL, 0, VM_SLEEP);
    vmem_t *cached = vmem_create("cached", NULL, 0, 4096, vmem_alloc, vmem_free, source, 5 * 4096, VM_SLEEP);
    void *held[5 * 40];
    for (size_t i = 0; i < 5 * 40; i++) held[i] = vmem_alloc(cached, (1 + i % 5) * 4096, VM_SLEEP);
    for (size_t i = 0; i < 5 * 40; i++)
        if (i < 70 || i > 72) vmem_free(cached, held[i], (1 + i % 5) * 4096); /* 70 to 72 are leaked: 1, 2 and 3 */
    vmem_alloc(cached, 11 * 4096, VM_SLEEP);
    vmem_destroy(cached);
    if (vmem_size(source, VMEM_ALLOC) != 0) printf("%zu did not go back\n", vmem_size(source, VMEM_ALLOC));
    vmem_destroy(source);
}

static void arena(const char *how) {
    vmem_t *space = vmem_create("space", AT(100), 100, 1, NULL, NULL, NULL, 0, VM_SLEEP),
           *ids = vmem_create("ids", AT(1), 9, 1, NULL, NULL, NULL, 0, VMC_IDENTIFIER);
    void *p = vmem_alloc(space, 10, VM_SLEEP);
    if (strcmp(how, "size") == 0) vmem_free(space, p, 11);
    if (strcmp(how, "twice") == 0) vmem_free(space, p, 10);
    if (strcmp(how, "twice") == 0) vmem_free(space, p, 10);
    if (strcmp(how, "foreign") == 0) vmem_xfree(ids, p, 10);
    if (strcmp(how, "of its importer") == 0) {
        vmem_t *child = vmem_create("child", NULL, 0, 1, vmem_alloc, vmem_free, space, 0, VM_SLEEP);
        vmem_free(space, vmem_alloc(child, 10, VM_SLEEP), 10);
    }
    if (strcmp(how, "zero") == 0) vmem_alloc(space, 0, VM_SLEEP);
    if (strcmp(how, "align") == 0) vmem_xalloc(space, 10, 24, 0, 0, NULL, NULL, VM_SLEEP);
    if (strcmp(how, "phase") == 0) vmem_xalloc(space, 10, 16, 16, 0, NULL, NULL, VM_NOSLEEP);
    if (strcmp(how, "window") == 0) vmem_xalloc(space, 10, 0, 0, 0, AT(150), AT(120), VM_SLEEP);
    if (strcmp(how, "window aligned") == 0) vmem_xalloc(space, 10, 64, 0, 0, AT(129), AT(200), VM_SLEEP);
    if (strcmp(how, "window crossed") == 0) vmem_xalloc(space, 10, 0, 0, 16, AT(122), AT(134), VM_SLEEP);
    if (strcmp(how, "window panic") == 0) vmem_xalloc(space, 10, 0, 0, 0, AT(110), AT(119), VM_NOSLEEP | VM_PANIC);
    if (strcmp(how, "huge") == 0) vmem_alloc(vmem_create("wide", AT(16), 16, 16, NULL, NULL, NULL, 0, VM_SLEEP), SIZE_MAX, VM_SLEEP);
    if (strcmp(how, "no function") == 0) vmem_walk(space, VMEM_ALLOC, NULL, NULL);
    if (strcmp(how, "panic") == 0) vmem_alloc(space, 1000, VM_NOSLEEP | VM_PANIC);
    if (strcmp(how, "leak") == 0) {
        vmem_alloc(ids, 3, VM_SLEEP);
        vmem_destroy(space);
        vmem_destroy(ids);
    }
    if (strcmp(how, "busy") == 0 || strcmp(how, "busy by function") == 0) {
        bool direct = strcmp(how, "busy") == 0;
        vmem_t *child = vmem_create("child", NULL, 0, 1, direct ? vmem_alloc : import, direct ? vmem_free : release, space, 0, VM_SLEEP);
        void *q = vmem_alloc(child, 10, VM_SLEEP);
        vmem_free(space, p, 10);
        vmem_destroy(space);
        vmem_free(child, q, 10); /* all is as it was */
        vmem_destroy(child);
        vmem_destroy(space);
    }
    if (strcmp(how, "leak cached") == 0) leak_cached();
    if (strcmp(how, "destroy twice") == 0 || strcmp(how, "destroyed") == 0) {
        vmem_destroy(ids);
        if (strcmp(how, "destroyed") == 0) vmem_alloc(ids, 1, VM_NOSLEEP);
        vmem_destroy(ids);
    }
}

/* Leaks are told of to a pipe that nobody reads, or by a thread that is to be cancelled: it goes on all the same. */
static bool destroyed;
static void *leak_in_thread(void *how) {
    int ends[2];
    if (strcmp(how, "unread") == 0 && (pipe(ends) != 0 || close(ends[0]) != 0 || dup2(ends[1], STDERR_FILENO) < 0)) abort();
    if (strcmp(how, "cancelled") == 0) pthread_cancel(pthread_self());
    arena("leak");
    destroyed = true;
    return NULL;
}
static void tell(char *how) {
    pthread_t thread;
    pthread_create(&thread, NULL, leak_in_thread, how);
    pthread_join(thread, NULL);
    puts(destroyed ? "destroyed" : "ended in the middle");
}

static void ignore(void *arg, void *vaddr, size_t size) { (void)arg, (void)vaddr, (void)size; }
static void null_arguments(const char *function) {
    if (strcmp(function, "vmem_alloc") == 0) vmem_alloc(NULL, 1, VM_NOSLEEP);
    if (strcmp(function, "vmem_xalloc") == 0) vmem_xalloc(NULL, 1, 0, 0, 0, NULL, NULL, VM_NOSLEEP);
    if (strcmp(function, "vmem_free") == 0) vmem_free(NULL, AT(1), 1);
    if (strcmp(function, "vmem_xfree") == 0) vmem_xfree(NULL, AT(1), 1);
    if (strcmp(function, "vmem_add") == 0) vmem_add(NULL, AT(1), 1, VM_NOSLEEP | VM_PANIC);
    if (strcmp(function, "vmem_contains") == 0) vmem_contains(NULL, AT(1), 1);
    if (strcmp(function, "vmem_walk") == 0) vmem_walk(NULL, VMEM_ALLOC, ignore, NULL);
    if (strcmp(function, "vmem_size") == 0) vmem_size(NULL, VMEM_ALLOC);
    if (strcmp(function, "umem_cache_alloc") == 0) umem_cache_alloc(NULL, UMEM_NOFAIL);
    if (strcmp(function, "umem_cache_free") == 0) umem_cache_free(NULL, &ignore);
}

static void ignore_reclaim(void *unused) { (void)unused; }

/* Caches of objects that no strata_cache can hold, but for two. */
static void caches(const char *how) {
    const size_t size = (size_t)2 << 20;
    vmem_t *memory = vmem_create("memory", AT(1 << 22), 1 << 24, 4096, NULL, NULL, NULL, 0, VM_SLEEP); /* integers, which nobody looks behind */
    umem_cache_t *big = umem_cache_create("big", size, 0, NULL, NULL, NULL, NULL, strcmp(how, "leak from arena") == 0 ? memory : NULL, 0);
    umem_cache_t *same = umem_cache_create("same", size, 0, NULL, NULL, NULL, NULL, NULL, 0);
    umem_cache_t *asked = umem_cache_create("asked", 200, 0, NULL, NULL, ignore_reclaim, NULL, NULL, 0);
    umem_cache_t *small = umem_cache_create("small", 200, 0, NULL, NULL, NULL, NULL, NULL, 0);
    void *objects[3];
    for (int i = 0; i < 3; i++) objects[i] = umem_cache_alloc(big, UMEM_NOFAIL);
    if (strcmp(how, "foreign") == 0) umem_cache_free(big, umem_alloc(size, UMEM_NOFAIL));
    if (strcmp(how, "of another") == 0) umem_cache_free(big, umem_cache_alloc(same, UMEM_NOFAIL));
    umem_cache_free(big, objects[1]);
    if (strcmp(how, "twice") == 0) umem_cache_free(big, objects[1]);
    bool leaks = strncmp(how, "leak", 4) == 0;
    for (int i = 0; i < 3 && !leaks; i += 2) umem_cache_free(big, objects[i]);
    umem_cache_destroy(big);
    if (strcmp(how, "alloc destroyed") == 0) umem_cache_alloc(big, UMEM_DEFAULT);
    if (strcmp(how, "free destroyed") == 0) umem_cache_free(big, objects[0]);
    if (strcmp(how, "destroy destroyed") == 0) umem_cache_destroy(big);
    umem_cache_destroy(small);
    if (strcmp(how, "small alloc destroyed") == 0) umem_cache_alloc(small, UMEM_DEFAULT);
    umem_cache_destroy(asked);
    if (strcmp(how, "asked destroy destroyed") == 0) umem_cache_destroy(asked);
    umem_cache_destroy(same);
    if (vmem_size(memory, VMEM_ALLOC) != 0) puts("the arena has not all back");
    vmem_destroy(memory);
}

/* A reclaim function that destroys its cache; and one that runs on another thread when the process forks: the child's cache does not wait for it. */
static umem_cache_t *reclaimed;
static int told[2], lets_go[2]; /* pipes */
static void destroy_it(void *unused) {
    (void)unused;
    umem_cache_destroy(reclaimed);
}
static void linger(void *unused) {
    char byte = 0;
    (void)unused;
    if (write(told[1], &byte, 1) != 1 || read(lets_go[0], &byte, 1) != 1) abort();
}
static void *reap(void *unused) {
    umem_reap();
    return unused;
}
static void reclaiming(const char *how) {
    bool forks = strcmp(how, "fork") == 0;
    pthread_t thread;
    char byte = 0;
    int status = 1;
    reclaimed = umem_cache_create("reclaimed", 100, 0, NULL, NULL, forks ? linger : destroy_it, NULL, NULL, 0);
    if (!forks) umem_reap();
    if (pipe(told) != 0 || pipe(lets_go) != 0 || pthread_create(&thread, NULL, reap, NULL) != 0 || read(told[0], &byte, 1) != 1) abort();
    umem_reap(); /* it runs already */
    pid_t child = fork();
    if (child == 0) {
        alarm(20);
        umem_cache_destroy(reclaimed);
        umem_reap();
        _exit(0);
    }
    if (waitpid(child, &status, 0) != child || status != 0) printf("the child ended with %d\n", status);
    if (write(lets_go[1], &byte, 1) != 1) abort();
    umem_cache_destroy(reclaimed);
    pthread_join(thread, NULL);
}

/* A cache of large objects that the program can do without, and memory that ends: it is asked for them, by whatever thread. */
static pthread_mutex_t spares_lock = PTHREAD_MUTEX_INITIALIZER;
static umem_cache_t *roomy;
static void *spares[100];
static unsigned spare_count;
static void give_spares(void *unused) {
    (void)unused;
    pthread_mutex_lock(&spares_lock);
    while (spare_count != 0) umem_cache_free(roomy, spares[--spare_count]);
    pthread_mutex_unlock(&spares_lock);
}
static unsigned keep_spares(void) {
    void *object = umem_cache_alloc(roomy, UMEM_DEFAULT);
    pthread_mutex_lock(&spares_lock);
    if (object != NULL) spares[spare_count++] = object;
    unsigned kept = spare_count;
    pthread_mutex_unlock(&spares_lock);
    return object != NULL ? kept : 0;
}
static void ask_for_large(const char *waits) {
    unsigned most = 0, kept;
    roomy = umem_cache_create("roomy", (size_t)2 << 20, 0, NULL, NULL, give_spares, NULL, NULL, 0);
    while ((kept = keep_spares()) != 0) most = kept;
    for (int i = atoi(waits); i > 0 && (kept = keep_spares()) == 0; i--) usleep(10000);
    puts(most < 20 ? "memory did not end" : kept == 0 ? "nobody was asked" : "served");
    give_spares(NULL);
    umem_cache_destroy(roomy);
}

static int count_entries(enum strata_debug_log log);
static bool count_entry(const struct strata_debug_transaction *transaction, void *argument) {
    (void)transaction;
    ++*(int *)argument;
    return true;
}
static int count_entries(enum strata_debug_log log) {
    int count = 0;
    strata_debug_log_walk(log, count_entry, &count);
    return count;
}

static const char *in_words(int failed) { return failed == 0 ? "none" : failed == 1000 ? "all" : "some"; }

/* How many of 1000 allocations failed, out of each kind of cache; and of blocks that come from none. */
static void count_failures(umem_cache_t *cache, umem_cache_t *alone) {
    int failed[4] = {0};
    for (int i = 0; i < 1000; i++) {
        void *block = umem_alloc(100, UMEM_DEFAULT), *object = umem_cache_alloc(cache, UMEM_DEFAULT), *spared = umem_cache_alloc(alone, UMEM_DEFAULT);
        failed[0] += block == NULL;
        failed[1] += object == NULL;
        void *large = umem_alloc(40000, UMEM_DEFAULT);
        failed[2] += spared == NULL;
        failed[3] += large == NULL;
        umem_free(block, 100);
        umem_free(large, 40000);
        umem_cache_free(cache, object);
        umem_cache_free(alone, spared);
    }
    fprintf(stdout, "failed %s %s %s %d\n", in_words(failed[0]), in_words(failed[1]), in_words(failed[3]), failed[2]);
}

/* What must not fail doesn't, by whichever function, of whatever size. */
static void allocate_what_must_be(umem_cache_t *cache) {
    umem_cache_t *large = umem_cache_create("large", 2 << 20, 0, NULL, NULL, NULL, NULL, NULL, 0);
    umem_setmtbf(1);
    for (size_t size = 64; size < 200000; size *= 5) {
        umem_free(umem_alloc(size, UMEM_NOFAIL), size);
        umem_free(umem_zalloc(size, UMEM_NOFAIL), size);
        umem_free_align(umem_alloc_align(size, 64, UMEM_NOFAIL), size);
        strata_kmem_free(strata_kmem_alloc(size, STRATA_KMEM_SLEEP), size);
    }
    umem_cache_free(cache, umem_cache_alloc(cache, UMEM_NOFAIL));
    umem_cache_free(large, umem_cache_alloc(large, UMEM_NOFAIL));
    void *block = umem_alloc(64, UMEM_DEFAULT);
    umem_setmtbf(0);
    puts(block == NULL ? "only what may fail" : "nothing");
    umem_cache_destroy(large);
}

static int constructed;
static int count_one(void *object, void *data, int flags) {
    (void)object, (void)data, (void)flags;
    constructed++;
    return 0;
}
/* One object, allocated and freed so often; what its cache constructed for that. */
static void constructions(const char *times) {
    umem_cache_t *cache = umem_cache_create("counted", 96, 0, count_one, NULL, NULL, NULL, NULL, 0);
    umem_cache_free(cache, umem_cache_alloc(cache, UMEM_DEFAULT)); /* the first one makes the array, with others in it */
    constructed = 0;
    for (int i = atoi(times); i > 0; i--) umem_cache_free(cache, umem_cache_alloc(cache, UMEM_DEFAULT));
    printf("%d\n", constructed);
    umem_cache_destroy(cache);
    exit(0);
}

/* By every way that is allowed. */
static void free_all_sizes(void) {
    for (size_t size = 0; size < 100000; size += 1 + size / 30) {
        umem_free(umem_alloc(size, UMEM_NOFAIL), size);
        umem_free(umem_zalloc(size, UMEM_NOFAIL), size);
        strata_kmem_free(strata_kmem_alloc(size, STRATA_KMEM_SLEEP), size);
        strata_kmem_free(malloc(size), size);
        strata_kmem_free(calloc(size, 3), 3 * size);
    }
    strata_kmem_free(strata_kmem_cookie_alloc(STRATA_KMEM_COOKIE(100), STRATA_KMEM_SLEEP), 100);
    strata_kmem_cookie_free(STRATA_KMEM_COOKIE(100), strata_kmem_alloc(104, STRATA_KMEM_SLEEP));
    strata_kmem_cookie_free(STRATA_KMEM_COOKIE(100), strata_kmem_alloc(112, STRATA_KMEM_SLEEP));
}

/* A cache that debugging shall leave alone is that one cache, whatever its name would match, and whoever has the name later. */
static void spared_names(const char *which) {
    umem_cache_t *spared = umem_cache_create(strcmp(which, "star") == 0 ? "*" : "letters", 96, 0, NULL, NULL, NULL, NULL, NULL, UMC_NODEBUG);
    char *object = umem_cache_alloc(spared, UMEM_DEFAULT);
    object[96] = 1; /* it has room for that, and nobody looks */
    umem_cache_free(spared, object);
    umem_cache_destroy(spared);
    umem_cache_t *cache = umem_cache_create("letters", 96, 0, NULL, NULL, NULL, NULL, NULL, 0);
    object = umem_cache_alloc(cache, UMEM_DEFAULT);
    object[96] = 1;
    umem_cache_free(cache, object);
}

/* One class is debugged, and the size that a free names is of another, which is not. */
static void free_by_another_size(const char *how) {
    strata_debug_set(strcmp(how, "other cache") == 0 ? "letters" : "malloc-112", "guards");
    void *block = strata_kmem_alloc(100, STRATA_KMEM_SLEEP);
    strata_kmem_free(block, strcmp(how, "debugged") == 0 ? 1000 : 100);
    void *large = strata_kmem_alloc(1000, STRATA_KMEM_SLEEP);
    puts(large == block ? "the same block" : "another block");
    strata_kmem_free(large, 1000);
}

static bool print_failure(const struct strata_debug_transaction *transaction, void *argument) {
    (void)argument;
    printf("%s %zu%s\n", transaction->cache, transaction->bytes, transaction->frames != 0 ? "" : " without a stack");
    return true;
}
static int refuse(void *object, void *data, int flags) {
    (void)object, (void)data, (void)flags;
    return 1;
}

/* One failure of each kind. */
static void fail(void) {
    static const int cflags[] = {0, UMC_NODEBUG};
    for (int i = 0; i < 2; i++) umem_cache_alloc(umem_cache_create("letters", 96, 0, refuse, NULL, NULL, NULL, NULL, cflags[i]), UMEM_DEFAULT);
    umem_cache_alloc(umem_cache_create("big", 2 << 20, 0, refuse, NULL, NULL, NULL, NULL, 0), UMEM_DEFAULT);
    umem_alloc((size_t)1 << 62, UMEM_DEFAULT);
    vmem_t *numbers = vmem_create("numbers", (void *)1, 10, 1, NULL, NULL, NULL, 0, VM_SLEEP | VMC_IDENTIFIER);
    vmem_alloc(numbers, 11, VM_NOSLEEP);
    vmem_xalloc(numbers, 5, 0, 0, 0, (void *)8, NULL, VM_NOSLEEP);
    strata_debug_log_walk(STRATA_DEBUG_LOG_FAIL, print_failure, NULL);
}

static void create_without_memory(void) {
    struct block {
        struct block *next;
        size_t size;
    } *first = NULL, *block;
    for (size_t size = 1 << 20; size >= sizeof *block; size = size > 2048 ? size / 2 : size - 16)
        while ((block = umem_alloc(size, UMEM_DEFAULT)) != NULL) {
            *block = (struct block){first, size};
            first = block;
        }
    umem_cache_t *none = umem_cache_create("none", 96, 0, NULL, NULL, NULL, NULL, NULL, 0);
    int why = errno;
    umem_cache_t *no_large = umem_cache_create("none", 2 << 20, 0, NULL, NULL, NULL, NULL, NULL, 0);
    int why_large = errno;
    for (; first != NULL; first = block) {
        block = first->next;
        umem_free(first, first->size);
    }
    printf("%s %s\n", none == NULL && why == EAGAIN ? "EAGAIN" : "else", no_large == NULL && why_large == EAGAIN ? "EAGAIN" : "else");
}

/* What the library has for itself: mtbf is for objects and blocks of the program's. */
static void create_with_failures(void) {
    static char room[8 << 20] __attribute__((aligned(4096)));
    umem_setmtbf(1);
    vmem_t *space = vmem_create("space", room, sizeof room, 4096, NULL, NULL, NULL, 0, VM_NOSLEEP);
    umem_cache_t *small = umem_cache_create("small", 96, 0, NULL, NULL, NULL, NULL, NULL, 0);
    umem_cache_t *large = umem_cache_create("large", 2 << 20, 0, NULL, NULL, NULL, NULL, NULL, 0);
    umem_cache_t *elsewhere = umem_cache_create("elsewhere", 2 << 20, 0, NULL, NULL, NULL, NULL, space, 0);
    umem_cache_t *alone = umem_cache_create("alone", 2 << 20, 0, NULL, NULL, NULL, NULL, NULL, UMC_NODEBUG);
    if (space == NULL || small == NULL || large == NULL || elsewhere == NULL || alone == NULL) {
        puts("something is not created");
        return;
    }
    void *object = umem_cache_alloc(elsewhere, UMEM_DEFAULT); /* an arena's, which mtbf leaves alone */
    void *lone = umem_cache_alloc(alone, UMEM_DEFAULT);
    int failed = 0;
    umem_setmtbf(10);
    for (int i = 0; i < 1000; i++) {
        void *one = umem_cache_alloc(large, UMEM_DEFAULT);
        failed += one == NULL;
        umem_cache_free(large, one);
    }
    umem_setmtbf(0);
    printf("%s %s\n", object != NULL && lone != NULL ? "objects" : "none", failed > 60 && failed < 140 ? "a tenth" : "another share");
    umem_cache_free(elsewhere, object);
    umem_cache_free(alone, lone);
    umem_cache_destroy(alone), umem_cache_destroy(elsewhere), umem_cache_destroy(large), umem_cache_destroy(small);
    vmem_destroy(space);
}

static void debug(const char *how) {
    struct strata_debug_stats stats;
    umem_cache_t *cache = umem_cache_create("letters", 96, 0, NULL, NULL, NULL, NULL, NULL, 0);
    umem_cache_t *alone = umem_cache_create("alone", 96, 0, NULL, NULL, NULL, NULL, NULL, UMC_NODEBUG);
    char *object = umem_cache_alloc(cache, UMEM_DEFAULT), *block = umem_alloc(100, UMEM_DEFAULT), *spared = umem_cache_alloc(alone, UMEM_DEFAULT);
    if (strcmp(how, "fresh") == 0)
        printf("%02x%02x %02x%02x %d\n", object[0] & 0xff, object[1] & 0xff, block[0] & 0xff, block[1] & 0xff, spared[0] == object[0]);
    if (strcmp(how, "past") == 0) object[96] = 1;
    if (strcmp(how, "past block") == 0) block[100] = 1;
    if (strcmp(how, "size") == 0) umem_free(block, 1000);
    if (strcmp(how, "size in class") == 0) umem_free(block, 104);
    if (strcmp(how, "size below all of a class") == 0) umem_free(umem_alloc(112, UMEM_DEFAULT), 111);
    if (strcmp(how, "size beside a cookie") == 0) umem_free(strata_kmem_cookie_alloc(STRATA_KMEM_COOKIE(100), STRATA_KMEM_SLEEP), 96);
    if (strcmp(how, "sizes") == 0) free_all_sizes();
    fflush(stdout);
    umem_cache_free(cache, object);
    umem_free(block, 100);
    if (strcmp(how, "after") == 0) {
        object[5] = 1;
        for (int i = 0; i < 1000; i++) umem_cache_alloc(cache, UMEM_DEFAULT);
    }
    umem_cache_free(alone, spared);
    if (strcmp(how, "mtbf") == 0) {
        count_failures(cache, alone);
        umem_setmtbf(1);
        count_failures(cache, alone);
        umem_setmtbf(10);
        count_failures(cache, alone);
        umem_setmtbf(0);
        count_failures(cache, alone);
    }
    if (strcmp(how, "must") == 0) allocate_what_must_be(cache);
    if (strcmp(how, "create") == 0) create_without_memory();
    if (strcmp(how, "spared") == 0) create_with_failures();
    strata_debug_stats_get(&stats);
    if (strcmp(how, "stats") == 0)
        printf("%s %d %d\n", stats.caches != 0 ? "debugged" : "plain", count_entries(STRATA_DEBUG_LOG_TRANSACTION) != 0,
               count_entries(STRATA_DEBUG_LOG_FAIL) != 0);
}

/* No byte of what a cache has from such an arena is read or written; a plain arena of integers says so by UMC_NOTOUCH. */
static void identifiers(const char *how) {
    bool plain = strcmp(how, "plain") == 0;
    vmem_t *ids = vmem_create("ids", (void *)4096, 1 << 20, 4096, NULL, NULL, NULL, 0, VM_SLEEP | (plain ? 0 : VMC_IDENTIFIER));
    vmem_t *above = strcmp(how, "importer") == 0 ? vmem_create("above", NULL, 0, 4096, vmem_alloc, vmem_free, ids, 0, VM_SLEEP) : NULL;
    umem_cache_t *cache = umem_cache_create("pids", 16, 0, NULL, NULL, NULL, NULL, above != NULL ? above : ids, plain ? UMC_NOTOUCH : 0);
    void *objects[1000];
    for (int i = 0; i < 1000; i++) objects[i] = umem_cache_alloc(cache, UMEM_DEFAULT);
    for (int i = 0; i < 1000; i++) {
        if ((uintptr_t)objects[i] < 4096 || (uintptr_t)objects[i] >= 4096 + (1 << 20)) abort();
        umem_cache_free(cache, objects[i]);
    }
    umem_cache_destroy(cache);
    if (above != NULL) vmem_destroy(above);
    vmem_destroy(ids);
    puts("all");
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    setvbuf(stdout, NULL, _IOFBF, 512);
    if (strcmp(argv[1], "nofail") == 0) nofail(argv[2]);
    if (strcmp(argv[1], "arena") == 0) arena(argv[2]);
    if (strcmp(argv[1], "told") == 0) tell(argv[2]);
    if (strcmp(argv[1], "cache") == 0) caches(argv[2]);
    if (strcmp(argv[1], "reclaiming") == 0) reclaiming(argv[2]);
    if (strcmp(argv[1], "ask for large") == 0) ask_for_large(argv[2]);
    if (strcmp(argv[1], "null") == 0) null_arguments(argv[2]);
    if (strcmp(argv[1], "debug") == 0) debug(argv[2]);
    if (strcmp(argv[1], "fail") == 0) fail();
    if (strcmp(argv[1], "identifiers") == 0) identifiers(argv[2]);
    if (strcmp(argv[1], "spared") == 0) spared_names(argv[2]);
    if (strcmp(argv[1], "wrong size") == 0) free_by_another_size(argv[2]);
    if (strcmp(argv[1], "constructions") == 0) constructions(argv[2]);
    if (strcmp(argv[1], "leak") == 0) {
        umem_cache_t *cache = umem_cache_create("letters", 96, 0, NULL, NULL, NULL, NULL, NULL, 0);
        umem_cache_alloc(cache, UMEM_DEFAULT);
        umem_cache_destroy(cache);
    }
    puts("went on");
    return 0;
}
