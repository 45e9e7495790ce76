/*
 * needs_umem_case.c - does one thing that ends, or is told of on standard error: needs_umem_case CASE. See test_umem.py.
 *
 * Where the program is built with INIT, it brings settings of its own, as umem_debug(3MALLOC) lets it.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <umem.h>
#include <vmem.h>

#include <strata/debug.h>

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

static void arena(const char *how) {
    vmem_t *space = vmem_create("space", AT(100), 100, 1, NULL, NULL, NULL, 0, VM_SLEEP),
           *ids = vmem_create("ids", AT(1), 9, 1, NULL, NULL, NULL, 0, VMC_IDENTIFIER);
    void *p = vmem_alloc(space, 10, VM_SLEEP);
    if (strcmp(how, "size") == 0) vmem_free(space, p, 11);
    if (strcmp(how, "twice") == 0) vmem_free(space, p, 10);
    if (strcmp(how, "twice") == 0) vmem_free(space, p, 10);
    if (strcmp(how, "foreign") == 0) vmem_xfree(ids, p, 10);
    if (strcmp(how, "zero") == 0) vmem_alloc(space, 0, VM_SLEEP);
    if (strcmp(how, "align") == 0) vmem_xalloc(space, 10, 24, 0, 0, NULL, NULL, VM_SLEEP);
    if (strcmp(how, "phase") == 0) vmem_xalloc(space, 10, 16, 16, 0, NULL, NULL, VM_NOSLEEP);
    if (strcmp(how, "window") == 0) vmem_xalloc(space, 10, 0, 0, 0, AT(150), AT(120), VM_SLEEP);
    if (strcmp(how, "panic") == 0) vmem_alloc(space, 1000, VM_NOSLEEP | VM_PANIC);
    if (strcmp(how, "leak") == 0) {
        vmem_alloc(ids, 3, VM_SLEEP);
        vmem_destroy(space);
        vmem_destroy(ids);
    }
    if (strcmp(how, "busy") == 0) {
        vmem_create("child", NULL, 0, 1, vmem_alloc, vmem_free, space, 0, VM_SLEEP);
        vmem_free(space, p, 10);
        vmem_destroy(space);
    }
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

/* How many of 1000 allocations failed, out of each kind of cache. */
static void count_failures(umem_cache_t *cache, umem_cache_t *alone) {
    int failed[3] = {0};
    for (int i = 0; i < 1000; i++) {
        void *block = umem_alloc(100, UMEM_DEFAULT), *object = umem_cache_alloc(cache, UMEM_DEFAULT), *spared = umem_cache_alloc(alone, UMEM_DEFAULT);
        failed[0] += block == NULL;
        failed[1] += object == NULL;
        failed[2] += spared == NULL;
        umem_free(block, 100);
        umem_cache_free(cache, object);
        umem_cache_free(alone, spared);
    }
    fprintf(stdout, "failed %s %s %d\n",
            failed[0] == 0      ? "none"
            : failed[0] == 1000 ? "all"
                                : "some",
            failed[1] == 0      ? "none"
            : failed[1] == 1000 ? "all"
                                : "some",
            failed[2]);
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
    strata_debug_stats_get(&stats);
    if (strcmp(how, "stats") == 0)
        printf("%s %d %d\n", stats.caches != 0 ? "debugged" : "plain", count_entries(STRATA_DEBUG_LOG_TRANSACTION) != 0,
               count_entries(STRATA_DEBUG_LOG_FAIL) != 0);
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    setvbuf(stdout, NULL, _IOFBF, 512);
    if (strcmp(argv[1], "nofail") == 0) nofail(argv[2]);
    if (strcmp(argv[1], "arena") == 0) arena(argv[2]);
    if (strcmp(argv[1], "debug") == 0) debug(argv[2]);
    if (strcmp(argv[1], "constructions") == 0) constructions(argv[2]);
    if (strcmp(argv[1], "leak") == 0) {
        umem_cache_t *cache = umem_cache_create("letters", 96, 0, NULL, NULL, NULL, NULL, NULL, 0);
        umem_cache_alloc(cache, UMEM_DEFAULT);
        umem_cache_destroy(cache);
    }
    puts("went on");
    return 0;
}
