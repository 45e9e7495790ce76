/*
 * test_cache_callbacks.c - when programs are called back through strata/cache.h: reclaim before an allocation fails or sleeps, at pressure, above
 * limits, when the program is idle, after a failed malloc, and never in malloc; moves by the maintenance thread and on demand; every wrong argument.
 */
#include "strata/cache.h"
#include "strata/malloc.h"
#include "strata/strata.h"
#include "unit/api/api_support.h"

#define MS UINT64_C(1000000)
#define PERIOD_NS (500 * MS)
#define BLOCKS 4096

/* A program's own cache: blocks that it can do without. */
static struct {
    struct strata_cache *cache;
    void *blocks[BLOCKS];
    unsigned count, gives; /* how many it gives back when it is asked */
    unsigned calls, of_need[4];
    size_t wanted;
    bool by_thread; /* the last call came from the maintenance thread */
    bool in_malloc; /* the test is in a malloc */
} store;

static void give_some(void *argument, size_t wanted_bytes, enum strata_cache_need need) {
    assert_ptr_equal(argument, &store);
    assert_int_equal(sim_locks_held(), 0);
    assert_false(store.in_malloc);
    assert_in_range(need, STRATA_CACHE_IDLE, STRATA_CACHE_OUT_OF_MEMORY);
    store.calls++;
    store.of_need[need]++;
    store.wanted = wanted_bytes;
    store.by_thread = sim_thread() != 0;
    for (unsigned i = 0; i < store.gives && store.count != 0; i++) strata_cache_free(store.cache, store.blocks[--store.count]);
}

static void open_store(size_t size, unsigned count, unsigned gives) {
    const struct strata_cache_config config = {.size = size, .argument = &store, .reclaim = give_some};
    memset(&store, 0, sizeof store);
    store.gives = gives;
    assert_int_equal(strata_cache_create("store", &config, &store.cache), STRATA_CACHE_OK);
    for (; store.count < count; store.count++) {
        store.blocks[store.count] = strata_cache_alloc(store.cache, STRATA_CACHE_NO_RECLAIM);
        assert_non_null(store.blocks[store.count]);
    }
}

static void close_store(void) {
    while (store.count != 0) strata_cache_free(store.cache, store.blocks[--store.count]);
    assert_int_equal(strata_cache_destroy(store.cache), STRATA_CACHE_OK);
    assert_null(strata_check());
    assert_string_equal(sim_output(), "");
}

static struct strata_cache_stats store_stats(void) {
    struct strata_cache_stats stats;
    strata_cache_stats_get(store.cache, &stats);
    assert_int_equal(stats.reclaims, store.calls);
    return stats;
}

/* ------------------------------------------------------------------ reclaim by allocations */

/* Fills the cache until no memory is left; each further object is one that was given back for it. */
static void an_allocation_asks_before_it_fails(void **state) {
    (void)state;
    new_heap(NULL, "hard_limit:2M,background:off");
    open_store(4000, 0, 0);
    void *object;
    while ((object = strata_cache_alloc(store.cache, STRATA_CACHE_NO_RECLAIM)) != NULL && store.count < BLOCKS) store.blocks[store.count++] = object;
    assert_in_range(store.count, 100, BLOCKS - 1);
    assert_int_equal(store.calls, 0);
    assert_null(strata_cache_alloc(store.cache, STRATA_CACHE_NO_SLEEP)); /* it gives nothing */
    assert_int_equal(store.calls, 1);
    assert_int_equal(store.of_need[STRATA_CACHE_OUT_OF_MEMORY], 1);
    struct strata_cache_stats stats = store_stats();
    assert_int_equal(stats.reclaimed_bytes, 0);
    assert_int_equal(store.wanted, stats.slab_size);
    store.gives = 1;
    object = strata_cache_alloc(store.cache, STRATA_CACHE_NO_SLEEP);
    assert_non_null(object);
    assert_int_equal(store.calls, 2);
    assert_int_equal(store_stats().reclaimed_bytes, 4000);
    store.blocks[store.count++] = object;
    assert_int_equal(strata_cache_alloc_batch(store.cache, &object, 1), 0); /* never asks */
    assert_int_equal(store.calls, 2);
    close_store();
}

/* Another cache lacks memory: this one is asked for it, and all of that is to be had. */
static void other_caches_are_asked(void **state) {
    (void)state;
    new_heap(NULL, "hard_limit:2M,background:off");
    open_store(4000, 0, 0);
    void *object;
    while ((object = strata_cache_alloc(store.cache, STRATA_CACHE_NO_RECLAIM)) != NULL) store.blocks[store.count++] = object;
    struct strata_cache *other;
    assert_int_equal(strata_cache_create("other", &(struct strata_cache_config){.size = 30000}, &other), STRATA_CACHE_OK);
    assert_null(strata_cache_alloc(other, STRATA_CACHE_NO_SLEEP));
    assert_int_equal(store.calls, 1);
    store.gives = BLOCKS;
    object = strata_cache_alloc(other, STRATA_CACHE_NO_SLEEP);
    assert_non_null(object);
    assert_int_equal(store.calls, 2);
    assert_int_equal(store_stats().slabs, 0);
    strata_cache_free(other, object);
    assert_int_equal(strata_cache_destroy(other), STRATA_CACHE_OK);
    close_store();
}

/* The first time that it is asked it has nothing to give. */
static void a_sleeper_asks_each_time(void **state) {
    (void)state;
    new_heap(NULL, "hard_limit:2M,background:off");
    open_store(4000, 0, 0);
    void *object;
    while ((object = strata_cache_alloc(store.cache, STRATA_CACHE_NO_RECLAIM)) != NULL) store.blocks[store.count++] = object;
    struct strata_cache *other;
    static unsigned refusals;
    assert_int_equal(strata_cache_create("other", &(struct strata_cache_config){.size = 30000}, &other), STRATA_CACHE_OK);
    store.gives = 3; /* too few at a time */
    refusals = store.calls;
    uint64_t begun = platform_now_ns();
    object = strata_cache_alloc(other, STRATA_CACHE_SLEEP);
    assert_non_null(object);
    assert_true(store.calls > refusals + 1 && platform_now_ns() > begun);
    strata_cache_free(other, object);
    assert_int_equal(strata_cache_destroy(other), STRATA_CACHE_OK);
    close_store();
}

/* A reclaim function that allocates, with the cache as empty as before: it is not called again within itself. */
static struct strata_cache *hungry;
static unsigned hungry_calls;
static void eat(void *argument, size_t wanted_bytes, enum strata_cache_need need) {
    (void)argument, (void)wanted_bytes, (void)need;
    hungry_calls++;
    assert_null(strata_cache_alloc(hungry, STRATA_CACHE_NO_SLEEP));
}
static void reclaim_is_not_called_within_itself(void **state) {
    (void)state;
    new_heap(NULL, "hard_limit:2M,background:off");
    const struct strata_cache_config config = {.size = 4000, .reclaim = eat};
    static void *objects[BLOCKS];
    unsigned count = 0;
    assert_int_equal(strata_cache_create("hungry", &config, &hungry), STRATA_CACHE_OK);
    hungry_calls = 0;
    while ((objects[count] = strata_cache_alloc(hungry, STRATA_CACHE_NO_SLEEP)) != NULL) count++;
    assert_int_equal(hungry_calls, 1);
    strata_cache_free_batch(hungry, objects, count);
    assert_int_equal(strata_cache_destroy(hungry), STRATA_CACHE_OK);
    assert_null(strata_check());
}

/* ------------------------------------------------------------------ reclaim by the maintenance thread */

static void be_busy(void) {
    for (unsigned i = 0; i < 200; i++) {
        void *blocks[3];
        for (unsigned j = 0; j < 3; j++) assert_non_null(blocks[j] = strata_malloc(40 * KIB));
        for (unsigned j = 0; j < 3; j++) strata_free(blocks[j]);
    }
}

static void pressure_asks(void **state) {
    (void)state;
    new_heap(NULL, "background:on,decay_ms:3600000");
    open_store(4000, 1000, 400);
    be_busy();
    sim_run_threads_for(PERIOD_NS);
    uint64_t memory = store_stats().memory;
    sim_pressure_raise(PLATFORM_PRESSURE_SOME);
    sim_run_threads();
    assert_int_equal(store.of_need[STRATA_CACHE_PRESSURE], 1);
    assert_true(store.by_thread && store.wanted == memory / 8);
    assert_true(store_stats().memory < memory && store_stats().reclaimed_bytes == 400 * 4000);
    memory = store_stats().memory;
    sim_pressure_raise(PLATFORM_PRESSURE_CRITICAL);
    sim_run_threads();
    assert_int_equal(store.of_need[STRATA_CACHE_PRESSURE], 2);
    assert_int_equal(store.wanted, memory / 2);
    assert_int_equal(store.calls, 2);
    close_store();
}

/* Once, when it has been quiet for some ticks; again only after it has done something. */
static void idleness_asks_once(void **state) {
    (void)state;
    new_heap(NULL, "background:on");
    open_store(4000, 1000, 200);
    be_busy();
    for (unsigned tick = 0; tick < 50; tick++) sim_run_threads_for(PERIOD_NS);
    assert_int_equal(store.of_need[STRATA_CACHE_IDLE], 1);
    assert_int_equal(store.calls, 1);
    assert_true(store.by_thread);
    assert_true(store.wanted >= 1000 * 4000 / 16);
    assert_int_equal(store.count, 800);
    uint64_t waits = sim_calls(SIM_PRESSURE_WAIT);
    for (unsigned tick = 0; tick < 50; tick++) sim_run_threads_for(PERIOD_NS);
    assert_int_equal(sim_calls(SIM_PRESSURE_WAIT), waits); /* it sleeps */
    be_busy();
    for (unsigned tick = 0; tick < 50; tick++) sim_run_threads_for(PERIOD_NS);
    assert_int_equal(store.of_need[STRATA_CACHE_IDLE], 2);
    close_store();
}

static void a_passed_limit_asks(void **state) {
    (void)state;
    new_heap(NULL, "background:on,soft_limit:8M");
    open_store(4000, 3000, 500);
    be_busy();
    sim_run_threads_for(PERIOD_NS + MS);
    assert_true(store.of_need[STRATA_CACHE_PRESSURE] >= 1);
    uint64_t above = 3000 * 4096 - (8 << 20);
    assert_in_range(store.wanted, above / 2, above * 2);
    for (unsigned tick = 0; tick < 20; tick++) {
        be_busy();
        sim_run_threads_for(PERIOD_NS + MS);
    }
    unsigned calls = store.calls;
    assert_true((uint64_t)store.count * 4096 <= 8 << 20); /* and no longer than that */
    assert_in_range(calls, 2, 6);
    be_busy();
    sim_run_threads_for(PERIOD_NS + MS);
    assert_int_equal(store.of_need[STRATA_CACHE_PRESSURE] + store.of_need[STRATA_CACHE_IDLE], calls);
    close_store();
}

/* malloc calls nobody back; the thread does, soon after. */
static void a_failed_malloc_leaves_word(void **state) {
    (void)state;
    new_heap(NULL, "background:on,hard_limit:32M,decay_ms:3600000");
    open_store(4000, 4000, 2000);
    store.in_malloc = true;
    assert_null(strata_malloc(30 << 20));
    store.in_malloc = false;
    assert_int_equal(store.calls, 0);
    be_busy(); /* which starts the thread, at the latest */
    sim_run_threads_for(MS);
    store.in_malloc = true;
    assert_null(strata_malloc(30 << 20));
    store.in_malloc = false;
    sim_run_threads_for(MS);
    assert_int_equal(store.of_need[STRATA_CACHE_OUT_OF_MEMORY], store.calls);
    assert_in_range(store.calls, 1, 2);
    assert_true(store.by_thread);
    assert_true(store_stats().reclaimed_bytes >= 2000 * 4000);
    unsigned calls = store.calls;
    static volatile size_t absurd = SIZE_MAX;
    assert_null(strata_malloc(absurd)); /* no lack of memory */
    sim_run_threads_for(MS);
    assert_int_equal(store.calls, calls);
    close_store();
}

/* ------------------------------------------------------------------ moves */

#define NODES 1000
static void *nodes[NODES];
static unsigned node_moves;

static enum strata_cache_move move_node(void *old_object, void *new_object, size_t size, void *argument) {
    assert_int_equal(size, 100);
    assert_ptr_equal(argument, nodes);
    node_moves++;
    for (unsigned i = 0; i < NODES; i++)
        if (nodes[i] == old_object) {
            memcpy(new_object, old_object, size);
            nodes[i] = new_object;
            return STRATA_CACHE_MOVE_YES;
        }
    return STRATA_CACHE_MOVE_DONT_KNOW;
}

static void wrong_arguments_of_set_move(void **state) {
    (void)state;
    new_heap(NULL, "background:off");
    struct strata_cache *cache;
    assert_int_equal(strata_cache_create("nodes", &(struct strata_cache_config){.size = 100}, &cache), STRATA_CACHE_OK);
    assert_int_equal(strata_cache_set_move(cache, NULL), STRATA_CACHE_BAD_ARGUMENT);
    assert_int_equal(strata_cache_consolidate(cache), 0); /* it has none */
    sim_fail_call(1, SIM_FOREVER);
    enum strata_cache_status status = strata_cache_set_move(cache, move_node); /* from metadata that is there, or not at all */
    sim_fail_call(0, 1);
    assert_true(status == STRATA_CACHE_OK || status == STRATA_CACHE_NO_MEMORY);
    if (status == STRATA_CACHE_NO_MEMORY) assert_int_equal(strata_cache_set_move(cache, move_node), STRATA_CACHE_OK);
    assert_int_equal(strata_cache_set_move(cache, move_node), STRATA_CACHE_TOO_LATE);
    assert_int_equal(strata_cache_destroy(cache), STRATA_CACHE_OK);
    assert_int_equal(strata_cache_create("used", &(struct strata_cache_config){.size = 100}, &cache), STRATA_CACHE_OK);
    strata_cache_free(cache, strata_cache_alloc(cache, 0));
    strata_cache_reap(cache);
    assert_int_equal(strata_cache_set_move(cache, move_node), STRATA_CACHE_TOO_LATE); /* although it is empty again */
    assert_int_equal(strata_cache_destroy(cache), STRATA_CACHE_OK);
}

static struct strata_cache *open_nodes(void) {
    struct strata_cache *cache;
    assert_int_equal(strata_cache_create("nodes", &(struct strata_cache_config){.size = 100, .argument = nodes}, &cache), STRATA_CACHE_OK);
    assert_int_equal(strata_cache_set_move(cache, move_node), STRATA_CACHE_OK);
    node_moves = 0;
    for (unsigned i = 0; i < NODES; i++) {
        nodes[i] = strata_cache_alloc(cache, 0);
        assert_non_null(nodes[i]);
        memset(nodes[i], (int)(i % 251), 100);
    }
    for (unsigned i = 0; i < NODES; i++)
        if (i % 10 != 0) {
            strata_cache_free(cache, nodes[i]);
            nodes[i] = NULL;
        }
    return cache;
}

static void close_nodes(struct strata_cache *cache) {
    for (unsigned i = 0; i < NODES; i += 10) {
        for (unsigned k = 0; k < 100; k++) assert_int_equal(((unsigned char *)nodes[i])[k], i % 251);
        strata_cache_free(cache, nodes[i]);
    }
    assert_int_equal(strata_cache_destroy(cache), STRATA_CACHE_OK);
    assert_null(strata_check());
}

static void moves_on_demand(void **state) {
    (void)state;
    new_heap(NULL, "background:off");
    struct strata_cache *cache = open_nodes();
    struct strata_cache_stats before, after;
    strata_cache_stats_get(cache, &before);
    size_t freed = strata_cache_consolidate(cache);
    strata_cache_stats_get(cache, &after);
    assert_true(freed == before.memory - after.memory && freed != 0);
    assert_int_equal(after.slabs, (100 + after.total / after.slabs - 1) / (after.total / after.slabs));
    assert_true(after.moves == node_moves && after.moves_yes != 0 && after.slabs_emptied != 0 && after.in_use == 100);
    assert_int_equal(after.moves, after.moves_yes + after.moves_no + after.moves_later + after.moves_dont_need + after.moves_dont_know);
    close_nodes(cache);
}

/* What a report of this kind says of all caches. */
static const char *report(const char *name, int (*write)(int file)) {
    int file = platform_file_create(name);
    assert_true(file >= 0);
    assert_int_equal(write(file), 0);
    platform_file_close(file);
    return sim_file_text(name, NULL);
}

/* The report shows what strata_cache_stats_get says of this cache, or (NULL) says nothing of calls. */
static void assert_reported(const char *name, const struct strata_cache_stats *stats) {
    char wanted[256];
    const char *json = report("/callbacks.json", strata_stats_json), *table = report("/callbacks.table", strata_stats_table);
    snprintf(wanted, sizeof wanted, "{\"name\":\"%s\"", name);
    const char *row = strstr(json, wanted), *calls = row != NULL ? strstr(row, "\"reclaims\"") : NULL;
    assert_non_null(row);
    const char *section = strstr(table, "  reclaimed  ");
    if (stats == NULL) {
        assert_true(calls == NULL || calls > strchr(row, '}'));
        assert_true(section == NULL || strstr(section, name) == NULL || strstr(section, name) > strstr(section, "\n\n"));
        return;
    }
    snprintf(wanted, sizeof wanted, "\"reclaims\":%llu,\"reclaimed_bytes\":%llu,\"moves\":%llu,\"moves_yes\":%llu,\"slabs_emptied\":%llu}",
             (unsigned long long)stats->reclaims, (unsigned long long)stats->reclaimed_bytes, (unsigned long long)stats->moves,
             (unsigned long long)stats->moves_yes, (unsigned long long)stats->slabs_emptied);
    assert_non_null(calls);
    assert_memory_equal(calls, wanted, strlen(wanted));
    assert_non_null(section);
    const char *line = strstr(section, name);
    unsigned long long reclaims, moves, yes, emptied;
    assert_non_null(line);
    assert_int_equal(sscanf(line + strlen(name), "%llu %*s %llu %llu %llu", &reclaims, &moves, &yes, &emptied), 4);
    assert_true(reclaims == stats->reclaims && moves == stats->moves && yes == stats->moves_yes && emptied == stats->slabs_emptied);
}

static void reports_count_the_calls(void **state) {
    (void)state;
    new_heap(NULL, "hard_limit:2M,background:off");
    struct strata_cache_stats stats;
    struct strata_cache *plain, *cache = open_nodes();
    assert_int_equal(strata_cache_create("plain", &(struct strata_cache_config){.size = 300}, &plain), STRATA_CACHE_OK);
    strata_cache_free(plain, strata_cache_alloc(plain, 0));
    assert_reported("plain", NULL);
    strata_cache_consolidate(cache);
    strata_cache_stats_get(cache, &stats);
    assert_true(stats.moves != 0 && stats.reclaims == 0);
    assert_reported("nodes", &stats);
    close_nodes(cache);
    open_store(4000, 0, 16);
    for (unsigned i = 0; i < BLOCKS && store.calls == 0; i++) { /* up to the limit */
        void *block = strata_cache_alloc(store.cache, 0);
        if (block != NULL) store.blocks[store.count++] = block;
    }
    stats = store_stats();
    assert_true(stats.reclaims != 0 && stats.moves == 0);
    assert_reported("store", &stats);
    assert_reported("plain", NULL);
}

/* The thread does it by itself where the cache is fragmented, and sleeps when it is done. */
static void moves_by_time(void **state) {
    (void)state;
    new_heap(NULL, "background:on");
    struct strata_cache *cache = open_nodes();
    be_busy();
    strata_cache_reap(cache);
    for (unsigned tick = 0; tick < 20; tick++) sim_run_threads_for(PERIOD_NS);
    struct strata_cache_stats stats;
    strata_cache_stats_get(cache, &stats);
    assert_true(stats.slabs_emptied != 0 && stats.in_use == 100);
    assert_true(stats.slabs * 7 * (stats.total / stats.slabs) <= 8 * 100 + 7 * (stats.total / stats.slabs)); /* less than an eighth could go now */
    uint64_t waits = sim_calls(SIM_PRESSURE_WAIT);
    for (unsigned tick = 0; tick < 20; tick++) sim_run_threads_for(PERIOD_NS);
    assert_int_equal(sim_calls(SIM_PRESSURE_WAIT), waits);
    close_nodes(cache);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_allocation_asks_before_it_fails),
        cmocka_unit_test(other_caches_are_asked),
        cmocka_unit_test(a_sleeper_asks_each_time),
        cmocka_unit_test(reclaim_is_not_called_within_itself),
        cmocka_unit_test(pressure_asks),
        cmocka_unit_test(idleness_asks_once),
        cmocka_unit_test(a_passed_limit_asks),
        cmocka_unit_test(a_failed_malloc_leaves_word),
        cmocka_unit_test(wrong_arguments_of_set_move),
        cmocka_unit_test(moves_on_demand),
        cmocka_unit_test(reports_count_the_calls),
        cmocka_unit_test(moves_by_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
