/*
 * vh_bound.c - experiment: section 2.3 of the VH paper. For one m and all transfer sizes m_alpha, m_beta: how often do requests come to the global
 * pool, at worst?
 *
 *     vh_bound M
 *
 * Four programs, each with the same number of requests, try to come there as often as they can, on strata's pools with P local pools:
 *   allocations: nothing else (case 1 of the paper's Lemma 2.4);
 *   frees: nothing else, of what was allocated before (case 4);
 *   swings: allocates until that came to the global pool, frees until that did, and so on (cases 2 and 3);
 *   nearest: always goes the shorter way to the next access.
 * They know what their local pool holds because they count with the algorithm; in the end the pool's own counts must be the same. Blocks are
 * tagged and checked. One thread, no locks.
 */
#include <inttypes.h>
#include <stdio.h>

#include <strata/pool.h>

#include "load.h"

#define LOCALS 2
/* Requests of each local pool that are counted, in units of m. All programs that free have as many objects to begin with. */
#define REQUESTS_PER_M 64
#define M_MAX 1024

/* One local pool and who uses it. */
struct user {
    struct strata_pool_local *local;
    unsigned m, m_alpha, m_beta;
    unsigned cached; /* what the local pool holds, as the algorithm has it */
    uint64_t accesses;
    uint64_t requests;
    uint64_t in_use;
    uint64_t *objects[2 * REQUESTS_PER_M * M_MAX];
};

static void allocate(struct user *user) {
    uint64_t *object = strata_pool_alloc(user->local);
    if (!object) load_fail("no memory");
    *object = (uint64_t)(uintptr_t)object ^ user->in_use;
    user->objects[user->in_use++] = object;
    if (!user->cached) {
        user->accesses++;
        user->cached = user->m_alpha;
    }
    user->cached--;
    user->requests++;
}

static void release(struct user *user) {
    uint64_t *object = user->objects[--user->in_use];
    if (*object != ((uint64_t)(uintptr_t)object ^ user->in_use)) load_fail("an object does not hold what was written to it");
    if (strata_pool_free(user->local, object) != STRATA_POOL_OK) load_fail("strata_pool_free refused an object");
    if (user->cached == user->m) {
        user->accesses++;
        user->cached -= user->m_beta;
    }
    user->cached++;
    user->requests++;
}

static void play_allocations(struct user *user, uint64_t requests) {
    while (user->requests < requests) allocate(user);
}

static void play_frees(struct user *user, uint64_t requests) {
    while (user->requests < requests) release(user);
}

static void play_swings(struct user *user, uint64_t requests) {
    while (user->requests < requests) {
        uint64_t accesses = user->accesses;
        while (user->accesses == accesses && user->requests < requests) allocate(user);
        while (user->accesses == accesses + 1 && user->requests < requests) release(user);
    }
}

static void play_nearest(struct user *user, uint64_t requests) {
    while (user->requests < requests) {
        unsigned to_alpha = user->cached + 1, to_beta = user->m - user->cached + 1;
        uint64_t accesses = user->accesses;
        int frees = to_beta < to_alpha;
        while (user->accesses == accesses && user->requests < requests) (frees ? release : allocate)(user);
    }
}

enum { ALLOCATIONS, FREES, SWINGS, NEAREST, PROGRAMS };

/* The accesses to the global pool that one program makes of all local pools together. */
static uint64_t play(int program, unsigned m, unsigned m_alpha, unsigned m_beta, uint64_t requests) {
    static void (*const programs[PROGRAMS])(struct user *, uint64_t) = {play_allocations, play_frees, play_swings, play_nearest};
    static struct user users[LOCALS];
    struct strata_pool_config config = {.name = "bound",
                                        .object_bytes = sizeof(uint64_t),
                                        .m = m,
                                        .m_alpha = m_alpha,
                                        .m_beta = m_beta,
                                        /* The global pool must never be short: the algorithm's counts assume that. */
                                        .objects_start = LOCALS * (2 * requests + 2 * m)};
    struct strata_pool *pool;
    if (strata_pool_create(&config, &pool) != STRATA_POOL_OK) load_fail("strata_pool_create failed");
    uint64_t counted = 0, all = 0;
    for (unsigned i = 0; i < LOCALS; i++) {
        struct user *user = &users[i];
        user->m = m, user->m_alpha = m_alpha, user->m_beta = m_beta;
        user->cached = 0;
        user->accesses = user->in_use = 0;
        if (strata_pool_local_create(pool, &user->local) != STRATA_POOL_OK) load_fail("strata_pool_local_create failed");
        for (uint64_t n = program == ALLOCATIONS ? 0 : requests; n; n--) allocate(user);
        uint64_t before = user->accesses;
        user->requests = 0;
        programs[program](user, requests);
        if (user->requests != requests) load_fail("the number of requests is not as planned");
        counted += user->accesses - before;
        while (user->in_use) release(user);
        all += user->accesses;
    }
    struct strata_pool_stats stats;
    if (strata_pool_stats_get(pool, &stats) != STRATA_POOL_OK || stats.alpha_accesses + stats.beta_accesses != all || stats.alpha_short)
        load_fail("the pool's counts are not those of the algorithm");
    const char *fault = strata_pool_check(pool);
    if (fault) load_fail(fault);
    for (unsigned i = 0; i < LOCALS; i++) strata_pool_local_destroy(users[i].local);
    if (strata_pool_destroy(pool, NULL) != STRATA_POOL_OK) load_fail("objects were lost");
    return counted;
}

int main(int argc, char **argv) {
    unsigned m = argc == 2 ? (unsigned)strtoul(argv[1], NULL, 10) : 0;
    if (m < 2 || m > M_MAX) load_fail("usage: vh_bound M, of 2 to 1024");
    uint64_t requests = (uint64_t)REQUESTS_PER_M * m;
    const char *comma = "";

    printf("{\"m\": %u, \"requests\": %" PRIu64 ", \"locals\": %u, \"pairs\": [", m, LOCALS * requests, LOCALS);
    for (unsigned m_alpha = 1; m_alpha <= m; m_alpha++)
        for (unsigned m_beta = 1; m_beta <= m; m_beta++) {
            printf("%s[%u, %u", comma, m_alpha, m_beta);
            for (int program = 0; program < PROGRAMS; program++) printf(", %" PRIu64, play(program, m, m_alpha, m_beta, requests));
            printf("]");
            comma = ", ";
        }
    printf("]}\n");
    return fflush(stdout) ? 2 : 0;
}
