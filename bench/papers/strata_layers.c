/*
 * strata_layers.c - strata's heap on the simulated machine, with its visits counted: malloc and free as api/malloc.c and api/heap.c have them, step
 * by step. See layers.h and strata_sim.h.
 *
 * Counts of the depot and the slabs are read from their own structures before and after a slow path; maintenance, which the slow path ends with in
 * the library too, comes after that, so that what it moves is not taken for the request's. It empties arrays: those of CPUs that did nothing for a
 * tick, and the caller's before the heap grows. The linker leads these calls here (--wrap), where the arrays that had something are counted as
 * flushes. No locks of its own.
 */
#include <stdio.h>
#include <stdlib.h>

#include "api/heap.h"
#include "cache/cpu_layer_internal.h"
#include "layers.h"
#include "platform/sim/sim.h"
#include "strata_sim.h"

static struct layers_counts totals[LAYERS_SIZES];
static uint64_t in_use;

/* Time passes by operations: steps of all CPUs. Whose visit of which depot, or shelf, takes until when; see strata_sim_hold. */
static uint64_t steps, hold_steps;
static unsigned cpu_count;
static struct {
    uint64_t until;
    unsigned cpu;
} visit_of[SLAB_CACHE_MAGAZINES][DEPOT_HOMES + 1];

static _Noreturn void fail(const char *what) {
    fprintf(stderr, "load failed: %s\n", what);
    exit(2);
}

void strata_sim_start(unsigned cpus, const char *conf) {
    if (!cpus || cpus > SIM_CPUS_MAX) fail("so many CPUs can't be simulated");
    sim_reset(&(struct sim_config){.cpus = cpus});
    cpu_count = cpus;
    sim_env_set("STRATA_CONF", conf);
    if (!heap_init()) fail("the heap can't be built");
    if (sim_output()[0]) fail(sim_output());
}

void strata_sim_hold(unsigned operations) { hold_steps = (uint64_t)operations * cpu_count; }

/* They have had all the room there is; and so much would have to come back for a cycle as never does. */
void strata_sim_stop_growth(void) {
    heap.caches.grown_bytes = UINT64_C(1) << 40;
    for (unsigned tag = SLAB_CACHE_FIRST; tag < SLAB_CACHE_MAGAZINES; tag++) heap.caches.depots[tag].reaps = 31;
}

void strata_sim_tick(void) {
    object_caches_tick(&heap.objects);
    cache_tick(&heap.caches);
    slab_reap(&heap.slabs);
    zone_tick(&heap.zone);
}

void strata_sim_reap(void) { cache_reap(&heap.caches); }

/* In the depot and on all its shelves. */
static unsigned full_magazines_of(unsigned tag) {
    unsigned full = heap.caches.depots[tag].full.count;
    for (unsigned shelf = 0; shelf < DEPOT_HOMES && heap.caches.depots[tag].shelved; shelf++) full += shelf_at(tag, shelf)->full.count;
    return full;
}

/* Shelves count from tick to tick, and then add to the depot. */
static uint64_t contention_of(unsigned tag) {
    uint64_t contention = heap.caches.depots[tag].contention;
    for (unsigned shelf = 0; shelf < DEPOT_HOMES && heap.caches.depots[tag].shelved; shelf++) contention += shelf_at(tag, shelf)->contended;
    return contention;
}

struct strata_sim_depot strata_sim_depot_of(size_t bytes) {
    unsigned tag = slab_class_of_size(&heap.slabs, bytes);
    const struct depot *depot = &heap.caches.depots[tag];
    struct slab_stats slabs;
    slab_stats_get(&heap.slabs, tag, &slabs);
    return (struct strata_sim_depot){.transfer = depot->rounds / 2u,
                                     .full = full_magazines_of(tag),
                                     .slab_allocs = slabs.allocs,
                                     .slab_frees = slabs.frees,
                                     .contention = contention_of(tag)};
}

unsigned strata_sim_lock_rank(const void *lock) { return ((const struct platform_lock *)lock)->rank; }

const char *strata_sim_rank_name(unsigned rank) {
    switch (rank) {
    case LOCK_RANK_DEPOT: return "depot";
    case LOCK_RANK_SLAB: return "slab";
    case LOCK_RANK_ZONE: return "zone";
    case LOCK_RANK_API: return "api";
    default: return "other";
    }
}

static void start(unsigned cpus) { strata_sim_start(cpus, "background:off"); }

/* What lies below the CPU's array of one class. */
struct below {
    uint64_t visits, allocs, frees, slabs;
};

/* Of the depot and of its shelves, which count anew from each tick on: none falls into a slow path. */
static uint64_t visits_of(unsigned tag) {
    uint64_t visits = heap.caches.depots[tag].visits;
    for (unsigned shelf = 0; shelf < DEPOT_HOMES && heap.caches.depots[tag].shelved; shelf++) visits += shelf_at(tag, shelf)->visits;
    return visits;
}

static struct below below_of(unsigned tag) {
    struct slab_stats slabs;
    slab_stats_get(&heap.slabs, tag, &slabs);
    return (struct below){.visits = visits_of(tag), .allocs = slabs.allocs, .frees = slabs.frees, .slabs = slabs.slabs};
}

/* Where a CPU's magazines of a cache are: its shelf's number, or DEPOT_HOMES for the depot. */
static unsigned place_of(unsigned tag, unsigned cpu) {
    return depot_shelf(&heap.caches, &heap.caches.depots[tag]) != 0 ? shelf_number(slab_home_of_cpu(cpu)) : DEPOT_HOMES;
}
static struct platform_lock *lock_of(unsigned tag, unsigned place) {
    return place == DEPOT_HOMES ? &heap.caches.depots[tag].lock : &shelf_at(tag, place)->lock;
}

/* Around a slow path: the lock there is found taken once where the visit of another CPU is not over. Returns where. */
static unsigned meet(unsigned tag, unsigned cpu) {
    const unsigned place = place_of(tag, cpu);
    if (visit_of[tag][place].until > steps && visit_of[tag][place].cpu != cpu) sim_contend_lock(lock_of(tag, place), 1);
    return place;
}
static void part(unsigned tag, unsigned cpu, unsigned place, int visited) {
    if (!hold_steps) return;
    sim_contend_lock(lock_of(tag, place), 0); /* it may not have been wanted */
    if (!visited) return;
    visit_of[tag][place].until = steps + hold_steps;
    visit_of[tag][place].cpu = cpu;
}

static unsigned size_of_tag(unsigned tag) { return layers_size_index(heap.slabs.caches[tag].object_bytes); }

void *strata_sim_alloc(unsigned cpu, size_t bytes) {
    sim_cpu_set(cpu);
    unsigned tag = slab_class_of_size(&heap.slabs, bytes);
    struct layers_way *way = &totals[layers_size_index(bytes)].alloc;
    way->requests++;
    in_use++;
    steps++;
    void *object = cpu_pop(tag);
    if (object) return object;
    struct below before = below_of(tag);
    const unsigned place = meet(tag, cpu);
    object = cache_alloc_slow(&heap.caches, tag);
    if (!object) fail("no memory");
    struct below after = below_of(tag);
    part(tag, cpu, place, after.visits != before.visits);
    way->global += after.visits != before.visits;
    way->coalescing += after.allocs != before.allocs;
    if (after.slabs > before.slabs) way->pages += after.slabs - before.slabs;
    maintenance_slow_call(true);
    return object;
}

void strata_sim_free(unsigned cpu, void *object) {
    sim_cpu_set(cpu);
    unsigned tag = heap.zone.tags[zone_granule_of(&heap.zone, object)] & 0xff;
    struct layers_way *way = &totals[size_of_tag(tag)].free;
    way->requests++;
    in_use--;
    steps++;
    if (cpu_push(tag, object)) return;
    struct below before = below_of(tag);
    const unsigned place = meet(tag, cpu);
    cache_free_slow(&heap.caches, tag, object);
    struct below after = below_of(tag);
    part(tag, cpu, place, after.visits != before.visits);
    way->global += after.visits != before.visits;
    way->coalescing += after.frees != before.frees;
    if (after.slabs < before.slabs) way->pages += before.slabs - after.slabs;
    maintenance_slow_call(false);
}

/* ------------------------------------------------------------------ flushes */

void __wrap_cpu_layer_drain(struct cache_layer *caches, bool idle_only);
void __real_cpu_layer_drain(struct cache_layer *caches, bool idle_only);
void __wrap_cpu_layer_drain_own(struct cache_layer *caches);
void __real_cpu_layer_drain_own(struct cache_layer *caches);

/* Which arrays have something. */
static bool filled[SIM_CPUS_MAX][SLAB_CACHE_MAGAZINES];

static bool is_filled(unsigned cpu, unsigned tag) { return area_used(&heap.caches, cpu) && rounds_at(&heap.caches, cpu, tag) != 0; }

static void look_at_arrays(void) {
    for (unsigned cpu = 0; cpu < cpu_count; cpu++)
        for (unsigned tag = SLAB_CACHE_FIRST; tag < SLAB_CACHE_MAGAZINES; tag++) filled[cpu][tag] = is_filled(cpu, tag);
}

static void count_flushes(void) {
    for (unsigned cpu = 0; cpu < cpu_count; cpu++) {
        for (unsigned tag = SLAB_CACHE_FIRST; tag < SLAB_CACHE_MAGAZINES; tag++) {
            if (!filled[cpu][tag] || is_filled(cpu, tag)) continue;
            struct layers_counts *counts = &totals[size_of_tag(tag)]; /* larger classes are never asked for */
            counts->flushes++;
            counts->free.global++;
        }
    }
}

void __wrap_cpu_layer_drain(struct cache_layer *caches, bool idle_only) {
    if (caches == &heap.caches) look_at_arrays();
    __real_cpu_layer_drain(caches, idle_only);
    if (caches == &heap.caches) count_flushes();
}

void __wrap_cpu_layer_drain_own(struct cache_layer *caches) {
    if (caches == &heap.caches) look_at_arrays();
    __real_cpu_layer_drain_own(caches);
    if (caches == &heap.caches) count_flushes();
}

static void advance(uint64_t now_us) {
    uint64_t now_ns = platform_now_ns(), wanted_ns = heap.started_ns + now_us * 1000;
    if (wanted_ns > now_ns) sim_clock_advance(wanted_ns - now_ns);
}

static void read_counts(struct layers_counts counts[LAYERS_SIZES]) {
    for (unsigned size = 0; size < LAYERS_SIZES; size++) counts[size] = totals[size];
}

static void read_memory(struct layers_memory memory[LAYERS_SIZES]) {
    for (unsigned size = 0; size < LAYERS_SIZES; size++) memory[size] = (struct layers_memory){0};
    for (unsigned tag = SLAB_CACHE_FIRST; tag < SLAB_CACHE_MAGAZINES; tag++) {
        struct slab_stats slabs;
        slab_stats_get(&heap.slabs, tag, &slabs);
        if (slabs.object_bytes > LAYERS_BYTES_MAX) continue;
        struct layers_memory *row = &memory[size_of_tag(tag)];
        row->pages_bytes += slabs.memory_bytes;
        row->waste_bytes += slabs.memory_bytes - slabs.in_use * slabs.object_bytes;
    }
}

static void check_empty(void) {
    if (in_use) fail("blocks are in use");
    const char *broken = heap_check();
    if (broken) fail(broken);
    cache_drain(&heap.caches);
    for (unsigned tag = SLAB_CACHE_FIRST; tag < SLAB_CACHE_MAGAZINES; tag++) {
        struct slab_stats slabs;
        slab_stats_get(&heap.slabs, tag, &slabs);
        if (slabs.in_use) fail("objects were lost");
    }
}

const struct layers strata_layers = {
    .name = "strata",
    .start = start,
    .alloc = strata_sim_alloc,
    .free = strata_sim_free,
    .advance = advance,
    .counts = read_counts,
    .memory = read_memory,
    .check_empty = check_empty,
};
