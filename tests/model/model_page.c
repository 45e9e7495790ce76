/*
 * model_page.c - model runner of page/: a zone on a simulated machine of 4, 16 or 64 KiB pages, with every policy and limit, whole or growing
 * piece by piece, and platform calls that fail on demand.
 *
 * Every operation is compared with the reference: no granule is handed out twice, contents stay, zeros are zeros, what must succeed does
 * (see must_have_run and must_have_block), what fails changes nothing, and the counters say what the reference says.
 */
#include "../unit/below.h"
#include "model.h"
#include "model_page_reference.h"
#include "page/zone_internal.h"

static struct zone zone;
static struct model *model;
static bool limited;       /* the soft limit can be relied on: no release was refused since it was last reached */
static uint64_t failures;  /* injected before the operation under way */
static uint64_t map_limit; /* of mappings: refusals are to be expected where it is low */

static bool call_failed(void) { return sim_failures() != failures; }
static size_t granule_at(const void *address) { return zone_granule_of(&zone, address); }
static uint32_t whole_pages(uint64_t granules) { return (uint32_t)align_up(granules, zone.page_granules); }
static bool within_hard_limit(uint64_t granules) { return ref.allocated + granules <= zone.config.hard_limit_bytes >> GRANULE_SHIFT; }

/* ------------------------------------------------------------------ what must succeed */

/* Refusals are nobody's fault where calls fail, or where address space comes in pieces and mappings are scarce. */
static bool may_refuse(void) { return call_failed() || zone.growing || map_limit != 0; }

static bool is_superpage_free(size_t superpage) {
    return superpage >= zone.extent_bytes >> SUPERPAGE_SHIFT || zone.superpages[superpage].state == SUPERPAGE_FREE;
}

/*
 * A run fits a superpage that is free; or one in use whose longest hole is of a longer list than its own, as there the search need not look
 * further. The first granules of the wanted length may be found elsewhere too, which is better still.
 */
static bool must_have_run(uint32_t granules, uint32_t align) {
    if (may_refuse() || !within_hard_limit(granules)) return false;
    for (size_t i = 0; i < zone.window_bytes >> SUPERPAGE_SHIFT; i++) {
        if (is_superpage_free(i)) return true;
        if (align <= zone.page_granules && zone.superpages[i].state == SUPERPAGE_RUNS && reference_longest_free(i) >= 2u << bit_highest(granules))
            return true;
    }
    return false;
}

/* Superpages side by side that are free, at a fitting place. */
static bool must_have_block(uint64_t granules, uint64_t align_bytes) {
    if (may_refuse() || !within_hard_limit(granules)) return false;
    size_t needed = (granules + SUPERPAGE_GRANULES - 1) / SUPERPAGE_GRANULES, length = 0;
    for (size_t i = 0; i < zone.window_bytes >> SUPERPAGE_SHIFT; i++) {
        length = is_superpage_free(i) ? length + 1 : 0;
        if (length >= needed && (zone.base + ((i + 1 - needed) << SUPERPAGE_SHIFT)) % align_bytes == 0) return true;
    }
    return false;
}

/* ------------------------------------------------------------------ comparisons */

static void compare_counts(void) {
    struct zone_counters counters;
    zone_counters_get(&zone, &counters);
    MODEL_EXPECT(model, counters.allocated == ref.allocated, "%llu granules are allocated, should be %llu", (unsigned long long)counters.allocated,
                 (unsigned long long)ref.allocated);
    MODEL_EXPECT(model, counters.blocks == ref.blocks && counters.block_granules == ref.block_granules,
                 "%llu blocks of %llu granules, should be %llu of %llu", (unsigned long long)counters.blocks,
                 (unsigned long long)counters.block_granules, (unsigned long long)ref.blocks, (unsigned long long)ref.block_granules);
    MODEL_EXPECT(model, counters.populated == counters.allocated + counters.idle, "populated is not allocated + idle");
    MODEL_EXPECT(model, counters.populated_total - counters.released_total >= counters.populated, "more is populated than ever came and did not go");
    MODEL_EXPECT(model, ref.allocated <= zone.config.hard_limit_bytes >> GRANULE_SHIFT, "the hard limit was passed");
    uint64_t soft = zone.config.soft_limit_bytes >> GRANULE_SHIFT;
    bool may_keep_huge = map_limit != 0 && zone.config.thp != ZONE_THP_NEVER; /* to take advice back splits a mapping */
    if (limited && !may_keep_huge)
        MODEL_EXPECT(model, counters.populated <= max_u64(soft, counters.allocated + min_u64(zone.idle_allowed, soft / 16)),
                     "%llu granules are populated and %llu allocated, above the soft limit", (unsigned long long)counters.populated,
                     (unsigned long long)counters.allocated);
    MODEL_EXPECT(model, sim_locks_held() == 0, "a lock is still held");
}

static bool has_bit(const uint64_t *bits, unsigned at) { return (bits[at / 64] >> at % 64 & 1) != 0; }

static void compare_superpage(size_t number) {
    const struct superpage *superpage = &zone.superpages[number];
    char *address = (char *)zone.base + number * SUPERPAGE_BYTES;
    for (unsigned at = 0; at < SUPERPAGE_GRANULES; at++) {
        bool owned = ref.owner[number * SUPERPAGE_GRANULES + at] != OWNER_NONE;
        if (has_bit(superpage->allocated, at) != owned) {
            model_fail(model, "granule %zu is %s", number * SUPERPAGE_GRANULES + at, owned ? "marked free and owned" : "allocated to nobody");
            return;
        }
    }
    /* Of litter what may hold something may be there. */
    uint64_t known[SUPERPAGE_WORDS];
    for (unsigned w = 0; w < SUPERPAGE_WORDS; w++) known[w] = superpage->populated[w] | (superpage->littered ? superpage->dirty[w] : 0);
    for (unsigned at = bits_next(known, 0, ~UINT64_C(0)); at < SUPERPAGE_GRANULES;) {
        unsigned end = bits_next(known, at, 0);
        MODEL_EXPECT(model, sim_populated_pages(address + at * GRANULE_BYTES, (end - at) * GRANULE_BYTES) == 0,
                     "of granules %u to %u of superpage %zu some are present, and none is marked", at, end, number);
        at = bits_next(known, end, ~UINT64_C(0));
    }
    for (unsigned at = 0; at < SUPERPAGE_GRANULES; at++)
        if (has_bit(superpage->populated, at) && !has_bit(superpage->allocated, at) && !has_bit(superpage->dirty, at))
            MODEL_EXPECT(model, reads_as_zeros(address + at * GRANULE_BYTES, 1), "granule %u of superpage %zu is not zero, and not marked", at,
                         number);
}

/* Also those that its owner does not know of. */
static size_t granules_of_block(const void *address) { return zone_block_bytes(&zone, address) == 0 ? 0 : block_of(&zone, address)->granules; }

static void compare_all(void) {
    const char *wrong = zone_check(&zone);
    MODEL_EXPECT(model, wrong == NULL, "zone_check: %s", wrong);
    for (size_t i = 0; i < zone.extent_bytes >> SUPERPAGE_SHIFT && !model->failed; i++)
        if (arena_contains(&zone.addresses, zone.base + i * SUPERPAGE_BYTES, SUPERPAGE_BYTES)) compare_superpage(i);
    uint32_t longer = 0;
    for (unsigned i = 0; i < THINGS_MAX && !model->failed; i++) {
        const struct thing *thing = &ref.things[i];
        if (thing->address == NULL) continue;
        MODEL_EXPECT(model, stamp_lost(thing, thing->address, thing->granules) < 0, "thing %u lost its granule %lld", i,
                     (long long)stamp_lost(thing, thing->address, thing->granules));
        if (!thing->block) continue;
        MODEL_EXPECT(model, granules_of_block(thing->address) == thing->granules, "thing %u has another size", i);
        longer += thing->granules - (uint32_t)(zone_block_bytes(&zone, thing->address) >> GRANULE_SHIFT);
    }
    if (!model->failed) MODEL_EXPECT(model, longer == zone_longer_granules(&zone), "blocks have %u granules too much", longer);
}

/* ------------------------------------------------------------------ operations */

static struct thing *empty_thing(unsigned *number) {
    for (*number = 0; *number < THINGS_MAX; ++*number)
        if (ref.things[*number].address == NULL) return &ref.things[*number];
    return NULL;
}

static struct thing *pick_thing(const struct model_record *record, unsigned *number) {
    *number = record->byte[1] % THINGS_MAX;
    for (unsigned i = 0; i < THINGS_MAX; i++, *number = (*number + 1) % THINGS_MAX)
        if (ref.things[*number].address != NULL) return &ref.things[*number];
    return NULL;
}

/* Notes what a thing got, having verified that nobody has it. */
static void adopt_thing(unsigned number, char *address, uint32_t granules, bool block, bool zeroed) {
    struct thing *thing = &ref.things[number];
    size_t bytes = (size_t)granules << GRANULE_SHIFT;
    MODEL_EXPECT(model, zone_contains(&zone, address) && zone_contains(&zone, address + bytes - 1), "what was handed out is not of the zone");
    MODEL_EXPECT(model, ((uintptr_t)address & (((size_t)zone.page_granules << GRANULE_SHIFT) - 1)) == 0, "what was handed out is not whole pages");
    if (model->failed) return;
    MODEL_EXPECT(model, reference_set(granule_at(address), granules, OWNER_NONE, (uint8_t)(number + 1)), "what was handed out has an owner already");
    if (model->failed) return;
    *thing = (struct thing){address, granules, ++ref.next_id, block};
    ref.allocated += granules;
    ref.blocks += block;
    ref.block_granules += block ? granules : 0;
    if (zeroed) MODEL_EXPECT(model, reads_as_zeros(address, granules), "said to be zeros, and is not");
    stamp(thing);
}

static void step_run(const struct model_record *record) {
    unsigned number, align = record->byte[4] % 4 == 1 ? 1u << record->byte[5] % 10 : 1;
    unsigned granules = record->byte[2] % 8 == 7 ? 1 + (unsigned)model_bits(record, 2, 2) / 8 % 512 : 1 + record->byte[3] % 24u;
    enum mobility mobility = record->byte[6] % MOBILITY_GROUPS;
    struct zone_run run = {0};
    if (empty_thing(&number) == NULL) return;
    bool must = must_have_run(whole_pages(granules), align);
    bool ok = zone_run_alloc(&zone, granules, align, mobility, &run);
    model_trace(model, "thing %u: run of %u at a multiple of %u, mobility %u: %s %p, %u fresh%s", number, granules, align, mobility, ok ? "at" : "no",
                run.address, run.fresh, run.zeroed ? ", zeros" : "");
    if (!ok) {
        MODEL_EXPECT(model, call_failed() || !must, "no run, though there is room");
        return;
    }
    MODEL_EXPECT(model, run.granules == whole_pages(granules) && run.fresh <= run.granules, "the run is of %u granules, %u fresh", run.granules,
                 run.fresh);
    MODEL_EXPECT(model, granule_at(run.address) % align == 0, "the run is not aligned");
    MODEL_EXPECT(model, granule_at(run.address) % SUPERPAGE_GRANULES + run.granules <= SUPERPAGE_GRANULES, "the run crosses superpages");
    adopt_thing(number, run.address, run.granules, false, run.zeroed);
}

static size_t block_bytes_of(const struct model_record *record) {
    switch (record->byte[2] % 8) {
    case 0: return model_bits(record, 3, 2) % (4 * SUPERPAGE_GRANULES) * GRANULE_BYTES + 1;
    case 1: return model_bits(record, 3, 2) % 300 * GRANULE_BYTES;
    case 2: return model_bits(record, 3, 3) % (2 * MIB);
    default: return model_bits(record, 3, 2) % (40 * GRANULE_BYTES / 4) * 4;
    }
}

static uint32_t granules_of(size_t bytes) { return whole_pages(bytes == 0 ? 1 : (bytes + GRANULE_BYTES - 1) / GRANULE_BYTES); }

/* One that this CPU has kept. */
static bool step_cached(unsigned number, size_t bytes, size_t align, uint32_t granules) {
    const struct run_cache *cache = &zone.run_caches[sim_cpu_id() % RUN_CACHES];
    const uint32_t sparse_before = zone.run_caches_used > sim_cpu_id() % RUN_CACHES ? cache->kinds[1].count : 0;
    const unsigned shift_before = zone.longer.shift;
    char *block = zone_block_cached(&zone, bytes, align, false);
    if (block == NULL) return false;
    const bool sparse = cache->kinds[1].count != sparse_before;
    const size_t got = granules_of_block(block);
    model_trace(model, "thing %u: kept block of %zu bytes at a multiple of %zu: %p, %zu granules", number, bytes, align, (void *)block, got);
    MODEL_EXPECT(model, ((uintptr_t)block & (align - 1)) == 0, "the block is not aligned");
    /* Twice as long where hardly any of it was present when it was freed, as far as the zone knew then. */
    const size_t most = granules + (sparse ? granules : granules >> shift_before);
    MODEL_EXPECT(model, got >= granules && got <= most, "the block is of %zu granules", got);
    MODEL_EXPECT(model, zone_block_bytes(&zone, block) == (size_t)granules << GRANULE_SHIFT, "%zu bytes were asked for",
                 zone_block_bytes(&zone, block));
    adopt_thing(number, block, (uint32_t)got, true, false);
    return true;
}

static void step_block(const struct model_record *record) {
    unsigned number;
    size_t bytes = block_bytes_of(record), align = record->byte[5] % 4 == 1 ? (size_t)1 << record->byte[6] % 24 : 1;
    bool zeroed = false;
    if (empty_thing(&number) == NULL) return;
    uint32_t granules = granules_of(bytes);
    sim_cpu_set(record->byte[7] % 2);
    if (record->byte[7] % 4 >= 2 && step_cached(number, bytes, align, granules)) return;
    bool as_run = granules <= SUPERPAGE_GRANULES / 2 && align <= 1 * MIB;
    bool must = as_run ? must_have_run(granules, (uint32_t)(align >> GRANULE_SHIFT)) : must_have_block(granules, align);
    char *block = zone_block_alloc(&zone, bytes, align, &zeroed);
    model_trace(model, "thing %u: block of %zu bytes at a multiple of %zu: %p%s", number, bytes, align, (void *)block, zeroed ? ", zeros" : "");
    if (block == NULL) {
        MODEL_EXPECT(model, call_failed() || !must, "no block, though there is room");
        return;
    }
    MODEL_EXPECT(model, ((uintptr_t)block & (align - 1)) == 0, "the block is not aligned");
    MODEL_EXPECT(model, zone_block_bytes(&zone, block) == (size_t)granules << GRANULE_SHIFT, "the block is of %zu bytes",
                 zone_block_bytes(&zone, block));
    adopt_thing(number, block, granules, true, zeroed);
}

static void free_thing(unsigned number) {
    struct thing *thing = &ref.things[number];
    model_trace(model, "thing %u goes", number);
    MODEL_EXPECT(model, stamp_lost(thing, thing->address, thing->granules) < 0, "thing %u lost its granule %lld", number,
                 (long long)stamp_lost(thing, thing->address, thing->granules));
    MODEL_EXPECT(model, reference_set(granule_at(thing->address), thing->granules, (uint8_t)(number + 1), OWNER_NONE), "thing %u: not its own",
                 number);
    ref.allocated -= thing->granules;
    ref.blocks -= thing->block;
    ref.block_granules -= thing->block ? thing->granules : 0;
    if (thing->block)
        MODEL_EXPECT(model, zone_block_free(&zone, thing->address), "the block is not taken back");
    else
        zone_run_free(&zone, thing->address, thing->granules);
    thing->address = NULL;
}

static void step_free(const struct model_record *record) {
    unsigned number, count = record->byte[2] % 16 == 1 ? record->byte[3] % 32 : 1;
    sim_cpu_set(record->byte[7] % 2);
    while (count-- != 0 && pick_thing(record, &number) != NULL && !model->failed) free_thing(number);
}

static void step_resize(const struct model_record *record) {
    unsigned number;
    struct thing *thing = pick_thing(record, &number);
    if (thing == NULL || !thing->block) return;
    size_t bytes = block_bytes_of(record);
    uint32_t old = thing->granules, granules = granules_of(bytes);
    bool may_move = record->byte[5] % 4 != 0;
    size_t first = granule_at(thing->address), in_superpage = first % SUPERPAGE_GRANULES;
    const bool is_run = zone.superpages[first / SUPERPAGE_GRANULES].state == SUPERPAGE_RUNS;
    const size_t asked = zone_block_bytes(&zone, thing->address) >> GRANULE_SHIFT;
    /* Into the free granules behind a run. A block of superpages, which starts with one, may not find its own where others can't either. */
    bool must = granules <= old || (is_run && in_superpage + granules <= SUPERPAGE_GRANULES && reference_is_free(first + old, granules - old) &&
                                    within_hard_limit(granules - old));
    char *now = zone_block_resize(&zone, thing->address, bytes, may_move);
    model_trace(model, "thing %u: %u to %u granules%s: %p to %p", number, old, granules, may_move ? ", may move" : "", (void *)thing->address,
                (void *)now);
    if (now == NULL) {
        MODEL_EXPECT(model, !must || (call_failed() && granules != old), "not resized, though there is room");
        MODEL_EXPECT(model, granules_of_block(thing->address) == old, "a refused resize changed the size");
        MODEL_EXPECT(model, stamp_lost(thing, thing->address, old) < 0, "a refused resize changed the contents");
        return;
    }
    MODEL_EXPECT(model, now == thing->address || (may_move && granules > old), "moved without leave");
    MODEL_EXPECT(model, now == thing->address || !must, "moved, though there is room in place");
    MODEL_EXPECT(model, zone_block_bytes(&zone, now) == (size_t)granules << GRANULE_SHIFT, "resized to %zu bytes", zone_block_bytes(&zone, now));
    MODEL_EXPECT(model, now == thing->address || zone_block_bytes(&zone, thing->address) == 0, "the former place is still a block");
    uint32_t kept = granules < old ? granules : old;
    MODEL_EXPECT(model, stamp_lost(thing, now, kept) < 0, "granule %lld was lost on the way", (long long)stamp_lost(thing, now, kept));
    (void)reference_set(first, old, (uint8_t)(number + 1), OWNER_NONE);
    ref.allocated -= old;
    ref.blocks--;
    ref.block_granules -= old;
    adopt_thing(number, now, is_run && granules > asked && granules < old ? old : granules, true, false); /* growth into what it had too much */
}

/* What is no block is not taken for one. */
static void step_misuse(const struct model_record *record) {
    size_t granule = model_bits(record, 1, 3) % (zone.extent_bytes / GRANULE_BYTES + 8);
    char *address = (char *)zone.base + granule * GRANULE_BYTES + (record->byte[4] % 4 == 1 ? record->byte[5] : 0);
    for (unsigned i = 0; i < THINGS_MAX; i++)
        if (ref.things[i].block && ref.things[i].address == address) return;
    model_trace(model, "free of %p, which is no block", (void *)address);
    MODEL_EXPECT(model, zone_block_bytes(&zone, address) == 0, "%p has a size, and is no block", (void *)address);
    MODEL_EXPECT(model, !zone_block_free(&zone, address), "%p was freed, and is no block", (void *)address);
}

static void step_give_back(const struct model_record *record) {
    struct zone_counters before, after;
    size_t keep = record->byte[1] % 4 == 1 ? model_bits(record, 2, 2) * GRANULE_BYTES : 0, released;
    zone_counters_get(&zone, &before);
    if (record->byte[1] % 4 < 2) {
        released = zone_release(&zone, keep);
        model_trace(model, "release but %zu: %zu bytes", keep, released);
        zone_counters_get(&zone, &after);
        MODEL_EXPECT(model, call_failed() || after.idle * GRANULE_BYTES <= keep, "%llu granules are still idle", (unsigned long long)after.idle);
        if (!call_failed() && keep == 0) limited = true;
    } else {
        released = zone_tick(&zone);
        model_trace(model, "tick: %zu bytes", released);
        zone_counters_get(&zone, &after);
    }
    /* Litter that the system refuses to take counts from then on. */
    const uint64_t found = after.populated_total - before.populated_total, gone = before.populated + found - after.populated;
    MODEL_EXPECT(model, found == 0 || call_failed(), "%llu granules are populated that were not before", (unsigned long long)found);
    MODEL_EXPECT(model, gone == released / GRANULE_BYTES, "%zu bytes are said to be released, and %llu granules were", released,
                 (unsigned long long)gone);
    MODEL_EXPECT(model, after.released_total - before.released_total == released / GRANULE_BYTES, "released_total is wrong");
}

static void step_soft_limit(const struct model_record *record) {
    uint64_t bytes = record->byte[1] % 2 == 0 ? UINT64_MAX : model_bits(record, 2, 2) * GRANULE_BYTES;
    zone_set_soft_limit(&zone, bytes);
    model_trace(model, "soft limit %llu", (unsigned long long)bytes);
    MODEL_EXPECT(model, zone_soft_limit(&zone) == (bytes == UINT64_MAX ? 0 : bytes), "the limit is %llu", (unsigned long long)zone_soft_limit(&zone));
    limited = bytes == UINT64_MAX; /* the next release to nothing brings it into force */
}

static void step_failures(const struct model_record *record) {
    static const uint64_t masks[] = {SIM_FAIL_ALL,
                                     SIM_FAIL_ALL,
                                     UINT64_C(1) << SIM_MOVE,
                                     UINT64_C(1) << SIM_RELEASE,
                                     UINT64_C(1) << SIM_RESERVE_AT,
                                     UINT64_C(1) << SIM_COMMIT,
                                     UINT64_C(1) << SIM_ADVISE_HUGE,
                                     UINT64_C(1) << SIM_RESET};
    uint64_t n = record->byte[1] % 4 == 0 ? 0 : 1 + record->byte[2] % 8u;
    sim_fail_only(masks[record->byte[3] % ARRAY_LENGTH(masks)]);
    sim_fail_call(n, 1 + record->byte[4] % 4u);
    failures = 0; /* sim_fail_call counts anew */
    model_trace(model, "call %llu fails, %u times, of mask 0x%llx", (unsigned long long)n, 1 + record->byte[4] % 4u,
                (unsigned long long)masks[record->byte[3] % ARRAY_LENGTH(masks)]);
}

/* ------------------------------------------------------------------ the run */

/* Under a limit on address space. */
static bool begin_growing(const struct sim_config *sim, const struct zone_config *config, unsigned choice) {
    static const uint64_t others[] = {6 * MIB, 20 * MIB, 50 * MIB};
    struct sim_config limited_sim = *sim;
    limited_sim.address_limit_bytes = BELOW_LIMIT;
    limited_sim.map_count_limit = 0; /* of what keeps the room there are many; as many as were asked for from then on */
    sim_reset(&limited_sim);
    if (!below_keep(BELOW_BYTES, BELOW_APART) || !zone_init(&zone, config)) return false;
    below_leave(BELOW_BYTES, BELOW_APART);
    if (sim->map_count_limit != 0) sim_set_map_count_limit(sim->map_count_limit);
    for (unsigned i = 0; i < choice % 4; i++) /* others are in the way */
        if (!platform_reserve_at((char *)zone.base + others[i], 64 * KIB) ||
            !reference_set(others[i] >> GRANULE_SHIFT, 16, OWNER_NONE, OWNER_FOREIGN))
            return false;
    sim_set_address_limit(sim_reserved_bytes() + 80 * MIB);
    return true;
}

static void begin(struct model *of, const struct model_record *stage) {
    static const size_t pages[] = {4 * KIB, 4 * KIB, 16 * KIB, 64 * KIB};
    static const unsigned populate[] = {1, 16, 512, 64};
    static const uint64_t reserves[] = {32 * MIB, 64 * MIB, 16 * MIB};
    static const uint64_t hard[] = {UINT64_MAX, UINT64_MAX, 12 * MIB, 30 * MIB}, soft[] = {UINT64_MAX, UINT64_MAX, 8 * MIB, 1 * MIB};
    struct sim_config sim = {.page_bytes = pages[stage->byte[0] % 4], .no_huge_pages = stage->byte[6] % 8 == 1};
    struct zone_config config = {.reserve_bytes = reserves[stage->byte[2] % 3],
                                 .thp = stage->byte[1] % 3,
                                 .huge_block_superpages = 4,
                                 .huge_heap_granules = 32 * MIB / GRANULE_BYTES,
                                 .populate_granules = populate[stage->byte[3] % 4],
                                 .hard_limit_bytes = hard[stage->byte[4] % 4],
                                 .soft_limit_bytes = soft[stage->byte[4] / 4 % 4]};
    bool growing = stage->byte[5] % 4 == 1;
    model = of;
    map_limit = stage->byte[6] / 8 % 4 == 1 ? 150 : 0;
    reference_reset();
    limited = true;
    failures = 0;
    sim.map_count_limit = map_limit;
    model_trace(model, "pages of %zu, reserve %llu%s, thp %u, populate %u, hard %llu, soft %llu, mappings %llu", sim.page_bytes,
                (unsigned long long)config.reserve_bytes, growing ? " growing" : "", config.thp, config.populate_granules,
                (unsigned long long)config.hard_limit_bytes, (unsigned long long)config.soft_limit_bytes, (unsigned long long)map_limit);
    if (growing) {
        MODEL_EXPECT(model, begin_growing(&sim, &config, stage->byte[7]), "no zone that grows");
        return;
    }
    sim_reset(&sim);
    MODEL_EXPECT(model, zone_init(&zone, &config), "no zone");
}

static void step(struct model *of, const struct model_record *record) {
    (void)of;
    failures = sim_failures();
    switch (record->byte[0] % 32) {
    case 0: break;
    case 1 ... 7: step_run(record); break;
    case 8 ... 12: step_block(record); break;
    case 13 ... 21: step_free(record); break;
    case 22 ... 25: step_resize(record); break;
    case 26 ... 27: step_give_back(record); break;
    case 28: step_misuse(record); break;
    case 29: step_soft_limit(record); break;
    case 30: step_failures(record); break;
    default:
        if (!model->long_run || model->operation % 64 == 0) compare_all();
        break;
    }
    /* A release that was refused leaves more than the limit until one to nothing works. */
    if (call_failed()) limited = zone.config.soft_limit_bytes == UINT64_MAX;
    if (record->byte[7] / 4 % 4 == 0) compare_counts(); /* not each time: the look wakes what rests or is kept, which is to be met, too */
    if (!model->long_run && model->operation % 8 == 0) compare_all();
}

static void end(struct model *of) {
    (void)of;
    sim_fail_call(0, 0);
    failures = 0;
    compare_all();
    for (unsigned i = 0; i < THINGS_MAX && !model->failed; i++)
        if (ref.things[i].address != NULL) free_thing(i);
    compare_counts();
    zone_release(&zone, 0);
    struct zone_counters counters;
    zone_counters_get(&zone, &counters);
    MODEL_EXPECT(model, counters.populated == 0 && counters.idle == 0, "%llu granules are left populated", (unsigned long long)counters.populated);
    MODEL_EXPECT(model, arena_size(&zone.addresses, ARENA_ALLOCATED) == 0, "address space was lost");
    if (!model->failed) compare_all();
}

static const struct model_layer page_layer = {begin, step, end};

MODEL_EXPORT(page, &page_layer);
