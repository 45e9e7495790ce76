/*
 * model_pool.c - fixed pools against a naive reference that counts: how many objects are where, and which request must come to the global pool.
 *
 * After every operation: the pool's figures are the reference's; Theorem 2.3 of Vee and Hsu holds, accesses <= floor(S / (phi_min + 1)) + P, and for
 * each local pool Lemma 2.2, accesses <= ceil(S_i / (phi_min + 1)), as long as the global pool could give m_alpha objects each time. An allocation
 * fails only where nothing is left, and never where objects_max is M + P * m (section 2.3.2). Held objects carry a stamp: none is handed out twice.
 *
 * The stage: m, m_alpha, m_beta, P, kind and limit. An operation: what (byte 0), which local pool (1), how many requests (2), and more.
 */
#include "model.h"

#include "cache/cache.h"

#define M_MAX 24
#define LOCALS 6
#define HELD_MAX 1024
#define ZONE_BYTES (32 * MIB)

/* Of one local pool. */
struct reference_local {
    struct pool_local *local;
    uint64_t objects, requests, accesses;
    bool bounded; /* no transfer to it was short */
};

static struct zone zone;
static struct pool_layer pools;
static struct pool *pool;
static struct reference_local locals[LOCALS];
static unsigned locals_count;
static uint64_t m, m_alpha, m_beta, apart, objects_max;
static uint64_t made, global, alpha, alpha_short, alpha_failures, beta, requests, locals_ever, growths;
static uint64_t in_use_max;
static uint64_t *held[HELD_MAX];
static unsigned held_count;
static uint64_t stamp;

/* ------------------------------------------------------------------ what must hold */

static void expect_figures(struct model *model) {
    struct pool_stats stats;
    uint64_t local = 0;
    pool_stats_get(pool, &stats);
    for (unsigned i = 0; i < locals_count; i++) local += locals[i].objects;
    MODEL_EXPECT(model, stats.accesses.alpha == alpha && stats.accesses.beta == beta, "%llu alpha and %llu beta accesses, expected %llu and %llu",
                 (unsigned long long)stats.accesses.alpha, (unsigned long long)stats.accesses.beta, (unsigned long long)alpha,
                 (unsigned long long)beta);
    MODEL_EXPECT(model, stats.accesses.alpha_short == alpha_short && stats.accesses.alpha_failures == alpha_failures,
                 "short transfers or failures differ");
    MODEL_EXPECT(model, stats.objects == made && stats.global == global && stats.local == local && stats.in_use == held_count,
                 "%llu objects, %llu global, %llu local, %llu in use; expected %llu, %llu, %llu, %u", (unsigned long long)stats.objects,
                 (unsigned long long)stats.global, (unsigned long long)stats.local, (unsigned long long)stats.in_use, (unsigned long long)made,
                 (unsigned long long)global, (unsigned long long)local, held_count);
    MODEL_EXPECT(model, stats.locals == locals_count && stats.growths == growths, "local pools or growths differ");
}

static void expect_bounds(struct model *model) {
    if (apart == 0) return;
    for (unsigned i = 0; i < locals_count; i++) {
        const struct reference_local *one = &locals[i];
        if (one->bounded)
            MODEL_EXPECT(model, one->accesses <= (one->requests + apart - 1) / apart,
                         "Lemma 2.2: %llu accesses of local pool %u in %llu requests, %llu apart", (unsigned long long)one->accesses, i,
                         (unsigned long long)one->requests, (unsigned long long)apart);
    }
    if (alpha_short == 0 && alpha_failures == 0)
        MODEL_EXPECT(model, alpha + beta <= requests / apart + locals_ever,
                     "Theorem 2.3: %llu accesses in %llu requests, %llu apart, %llu local pools", (unsigned long long)(alpha + beta),
                     (unsigned long long)requests, (unsigned long long)apart, (unsigned long long)locals_ever);
}

/* ------------------------------------------------------------------ requests */

/* The global pool can't give m_alpha objects: how many there are now is the pool's to say, within what it may do. */
static void follow_growth(struct model *model) {
    uint64_t now = pool->objects;
    MODEL_EXPECT(model, now >= made && now <= objects_max, "grew from %llu to %llu objects", (unsigned long long)made, (unsigned long long)now);
    MODEL_EXPECT(model, global + now - made >= m_alpha || now == objects_max, "grew to %llu objects, too few", (unsigned long long)now);
    growths += now != made;
    global += now - made;
    made = now;
}

static void allocate(struct model *model, struct reference_local *one) {
    bool grew = false;
    if (held_count == HELD_MAX || (held_count != 0 && made + m_alpha > 100000)) return;
    uint64_t *object = pool_pop(one->local);
    if (object == NULL) object = pool_alloc_slow(one->local, &grew);
    requests++;
    one->requests++;
    in_use_max = max_u64(in_use_max, held_count + 1);
    if (one->objects == 0) {
        if (global < m_alpha) follow_growth(model);
        uint64_t got = min_u64(global, m_alpha);
        if (got == 0) {
            alpha_failures++;
            one->bounded = false;
            MODEL_EXPECT(model, object == NULL, "an object out of nothing");
            MODEL_EXPECT(model, objects_max < in_use_max + locals_count * m, "no object of %llu, with %llu in use at most and %u local pools",
                         (unsigned long long)objects_max, (unsigned long long)in_use_max, locals_count);
            return;
        }
        alpha++;
        alpha_short += got < m_alpha;
        one->bounded &= got == m_alpha;
        one->accesses++;
        global -= got;
        one->objects = got;
    }
    one->objects--;
    MODEL_EXPECT(model, object != NULL, "no object, although there is one");
    if (object == NULL) return;
    MODEL_EXPECT(model, (uintptr_t)object % pool->alignment == 0, "%p is not aligned", (void *)object);
    MODEL_EXPECT(model, pool_owns(pool, object), "%p is not an object of the pool", (void *)object);
    for (unsigned i = 0; i < held_count; i++) MODEL_EXPECT(model, held[i] != object, "%p was handed out twice", (void *)object);
    object[0] = object[1] = stamp ^ (uintptr_t)object;
    held[held_count++] = object;
}

static void release(struct model *model, struct reference_local *one, uint64_t which) {
    if (held_count == 0) return;
    unsigned at = (unsigned)(which % held_count);
    uint64_t *object = held[at];
    held[at] = held[--held_count];
    MODEL_EXPECT(model, object[0] == (stamp ^ (uintptr_t)object) && object[1] == object[0], "%p changed while it was held", (void *)object);
    object[0] = object[1] = 0;
    if (!pool_push(one->local, object)) pool_free_slow(one->local, object);
    requests++;
    one->requests++;
    if (one->objects == m) {
        beta++;
        one->accesses++;
        one->objects -= m_beta;
        global += m_beta;
    }
    one->objects++;
}

/* Whichever way the next global access is nearer. */
static void defy(struct model *model, struct reference_local *one) {
    if (one->objects + 1 <= m - one->objects + 1)
        allocate(model, one);
    else
        release(model, one, 0);
}

/* ------------------------------------------------------------------ the rest */

static void new_local(struct model *model, struct reference_local *one) {
    *one = (struct reference_local){.local = pool_local_create(pool), .bounded = true};
    locals_ever++;
    MODEL_EXPECT(model, one->local != NULL, "no local pool");
}

static void renew_local(struct model *model, struct reference_local *one) {
    global += one->objects;
    pool_local_destroy(one->local);
    new_local(model, one);
}

static void expect_foreign(struct model *model, uint64_t at) {
    static uint64_t outside[2];
    MODEL_EXPECT(model, !pool_owns(pool, NULL) && !pool_owns(pool, outside) && !pool_owns(pool, pool), "a foreign address is taken for an object");
    if (held_count == 0) return;
    char *object = (char *)held[at % held_count];
    for (unsigned shift = 0; (1u << shift) < pool->object_bytes; shift++)
        MODEL_EXPECT(model, !pool_owns(pool, object + (1u << shift)), "the inside of an object is taken for one");
}

static void expect_busy(struct model *model) {
    uint64_t in_use = 0;
    MODEL_EXPECT(model, pool_destroy(pool, &in_use) == POOL_BUSY && in_use == held_count, "a pool in use was destroyed, or counted wrong");
}

static void begin(struct model *model, const struct model_record *stage) {
    const struct zone_config zone_config = {
        .reserve_bytes = ZONE_BYTES, .thp = ZONE_THP_NEVER, .populate_granules = 1, .hard_limit_bytes = UINT64_MAX, .soft_limit_bytes = UINT64_MAX};
    static const unsigned sizes[] = {16, 1, 24, 100, 4096, 40};
    const struct sim_config sim = {.cpus = 2, .arena_bytes = 256 * MIB};
    sim_reset(&sim);
    zone = (struct zone){0};
    m = 1 + stage->byte[0] % M_MAX;
    m_alpha = 1 + stage->byte[1] % m;
    m_beta = 1 + stage->byte[2] % m;
    locals_count = 1 + stage->byte[3] % LOCALS;
    bool stacks = stage->byte[4] & 1, limited = stage->byte[4] & 2;
    objects_max = limited ? m_alpha + stage->byte[5] % 64 : UINT64_MAX;
    apart = min_u64(min_u64(m_alpha, m_beta), min_u64(m - m_alpha, m - m_beta));
    struct pool_config config = {.name = "model",
                                 .object_bytes = sizes[stage->byte[6] % ARRAY_LENGTH(sizes)],
                                 .alignment = (size_t)16 << stage->byte[7] % 4,
                                 .m = m,
                                 .m_alpha = m_alpha,
                                 .m_beta = m_beta,
                                 .objects_grow = stage->byte[5] % 32,
                                 .objects_max = limited ? objects_max : 0,
                                 .flags = stacks ? POOL_STACKS : 0};
    made = global = alpha = alpha_short = alpha_failures = beta = requests = locals_ever = growths = in_use_max = 0;
    held_count = 0;
    stamp = 0x5354414d50000000u;
    pool = NULL;
    pool_layer_init(&pools, &zone);
    MODEL_EXPECT(model, zone_init(&zone, &zone_config) && pool_create(&pools, &config, &pool) == POOL_OK, "no pool");
    for (unsigned i = 0; i < locals_count && !model->failed; i++) new_local(model, &locals[i]);
    model_trace(model, "m %llu, m_alpha %llu, m_beta %llu, %u local pools, %s, objects_max %llu", (unsigned long long)m, (unsigned long long)m_alpha,
                (unsigned long long)m_beta, locals_count, stacks ? "stacks" : "rounds", (unsigned long long)objects_max);
}

static void step(struct model *model, const struct model_record *record) {
    enum { NOTHING, ALLOCATE, RELEASE, BACK_AND_FORTH, DEFY, PASS, RENEW, FOREIGN, BUSY, CHECK_POOL, OPERATIONS };
    static const char *const names[] = {"nothing", "allocate", "release", "back and forth", "defy", "pass on", "renew", "foreign", "busy", "check"};
    unsigned operation = record->byte[0] % 32, at = record->byte[1] % locals_count, other = record->byte[3] % locals_count;
    unsigned count = 1 + record->byte[2] % (2 * M_MAX);
    uint64_t which = model_bits(record, 4, 4);
    struct reference_local *one = &locals[at];
    operation = operation < OPERATIONS ? operation : ALLOCATE + operation % (PASS - ALLOCATE + 1); /* mostly requests */
    model_trace(model, "%s, local pool %u, %u times, %u, %llu", names[operation], at, count, other, (unsigned long long)which);
    for (unsigned i = 0; i < count && !model->failed; i++) {
        if (operation == ALLOCATE || (operation == BACK_AND_FORTH && i % 2 == 0)) allocate(model, one);
        if (operation == RELEASE || (operation == BACK_AND_FORTH && i % 2 == 1)) release(model, one, which + i);
        if (operation == DEFY) defy(model, one);
        if (operation == PASS) {
            allocate(model, one);
            release(model, &locals[other], which + i);
        }
        expect_bounds(model);
    }
    if (operation == RENEW) renew_local(model, one);
    if (operation == FOREIGN) expect_foreign(model, which);
    if (operation == BUSY) expect_busy(model);
    if (model->failed) return;
    expect_figures(model);
    if (model->long_run && record->byte[7] % 16 != 0 && operation != CHECK_POOL) return;
    const char *broken = pool_check(pool);
    MODEL_EXPECT(model, broken == NULL, "%s", broken);
}

static void end(struct model *model) {
    uint64_t in_use = 0;
    while (held_count != 0 && !model->failed) release(model, &locals[held_count % locals_count], 0);
    expect_bounds(model);
    expect_figures(model);
    const char *broken = pool_check(pool);
    MODEL_EXPECT(model, broken == NULL, "%s", broken);
    for (unsigned i = 0; i < locals_count; i++) {
        global += locals[i].objects;
        pool_local_destroy(locals[i].local);
    }
    MODEL_EXPECT(model, global == made, "%llu objects came back of %llu", (unsigned long long)global, (unsigned long long)made);
    MODEL_EXPECT(model, pool_check(pool) == NULL, "unsound at the end");
    MODEL_EXPECT(model, pool_destroy(pool, &in_use) == POOL_OK && in_use == 0, "can't be destroyed");
    struct zone_counters counters;
    zone_counters_get(&zone, &counters);
    MODEL_EXPECT(model, counters.allocated == 0, "memory is left behind");
    broken = zone_check(&zone);
    MODEL_EXPECT(model, broken == NULL, "%s", broken);
}

static const struct model_layer pool_layer = {begin, step, end};

MODEL_EXPORT(pool, &pool_layer);
