/*
 * api_pool.c - fixed pools on real threads: objects go from thread to thread by a board of places, each with a stamp that says who made it, and are
 * freed by whoever takes them off. For both kinds of local pools, and for transfer sizes that make the global pool busy.
 *
 * Threads end and others begin, with local pools of their own or one that they got from a thread before them; one more thread takes figures all the
 * time. At the end the bounds of Vee and Hsu hold for what really happened: Lemma 2.2 for every local pool, Theorem 2.3 for the pool. api_pool
 * [REQUESTS] makes so many requests a thread.
 */
#include <string.h>

#include <strata/pool.h>

#include "concurrency/concurrency.h"

enum { THREADS = 4, GENERATIONS = 3, BOARD = 512, MINE = 300, DEFAULT_REQUESTS = 20000 };

/* Plain stores: two owners of one object are a data race that the sanitizer sees. */
struct parcel {
    uint64_t maker;
    uint64_t number;
    uint64_t stamp; /* of both and the address */
};

struct setting {
    size_t m, m_alpha, m_beta;
    unsigned flags;
};

static struct strata_pool *pool;
static struct setting setting;
static struct parcel *board[BOARD]; /* exchanged atomically: whoever takes a parcel off owns it */
/* Places of threads: the local pool that stays behind, handed over by the join of the thread that had it, and the requests it has seen. */
static struct seat {
    struct strata_pool_local *local;
    uint64_t requests;
} seats[THREADS];
static unsigned requests_each = DEFAULT_REQUESTS;
static uint64_t requests_of_all; /* atomic */
static uint32_t stop;            /* atomic */

static struct worker {
    unsigned number;
    struct seat *seat;
} workers[THREADS];

static uint64_t stamp_of(const struct parcel *parcel) {
    return (parcel->maker << 40 ^ parcel->number) * UINT64_C(0x9e3779b97f4a7c15) ^ (uintptr_t)parcel;
}

static struct parcel *make(struct strata_pool_local *local, uint64_t maker, uint64_t number) {
    struct parcel *parcel = strata_pool_alloc(local);
    EXPECT(parcel != NULL && (uintptr_t)parcel % 32 == 0);
    parcel->maker = maker;
    parcel->number = number;
    parcel->stamp = stamp_of(parcel);
    return parcel;
}

static void give(struct strata_pool_local *local, struct parcel *parcel) {
    EXPECT(parcel->stamp == stamp_of(parcel));
    memset(parcel, 0x5a, sizeof *parcel);
    EXPECT(strata_pool_free(local, parcel) == STRATA_POOL_OK);
}

/* Lemma 2.2: no more than one access in `apart` requests, and one. */
static void expect_lemma(const struct strata_pool_local *local, uint64_t requests, size_t apart) {
    struct strata_pool_local_stats stats;
    EXPECT(strata_pool_local_stats_get(local, &stats) == STRATA_POOL_OK);
    EXPECT(stats.alpha_short == 0 && stats.alpha_failures == 0);
    EXPECT(apart == 0 || stats.alpha_accesses + stats.beta_accesses <= (requests + apart - 1) / apart);
}

static void *work(void *argument) {
    struct worker *worker = argument;
    uint64_t random = random_seed(worker->number), requests = 0;
    struct parcel *mine[MINE];
    unsigned count = 0;
    struct seat *seat = worker->seat;
    if (seat->local == NULL) EXPECT(strata_pool_local_create(pool, &seat->local) == STRATA_POOL_OK);
    struct strata_pool_local *local = seat->local;
    while (requests < requests_each) {
        /* A burst of one sort, up to the whole of what may be held. */
        unsigned burst = 1 + (unsigned)(next_random(&random) % MINE);
        bool allocate = next_random(&random) % 2 == 0;
        for (; burst != 0; burst--) {
            if (allocate ? count == MINE : count == 0) break;
            requests++;
            if (!allocate) {
                give(local, mine[--count]);
                continue;
            }
            struct parcel *parcel = make(local, worker->number, requests);
            /* One of four goes on the board, and what was there is mine. */
            if (next_random(&random) % 4 == 0) parcel = __atomic_exchange_n(&board[next_random(&random) % BOARD], parcel, __ATOMIC_ACQ_REL);
            if (parcel != NULL) mine[count++] = parcel;
        }
    }
    for (; count != 0; requests++) give(local, mine[--count]);
    seat->requests += requests;
    __atomic_fetch_add(&requests_of_all, requests, __ATOMIC_RELAXED);
    size_t m = setting.m, a = setting.m_alpha, b = setting.m_beta, least = a < b ? a : b, rest = m - (a > b ? a : b);
    expect_lemma(local, seat->requests, least < rest ? least : rest);
    if (worker->number % 2 == 0) return NULL;
    strata_pool_local_destroy(local);
    *seat = (struct seat){0};
    return NULL;
}

static void *observe(void *argument) {
    struct strata_pool_stats stats;
    uint64_t accesses = 0;
    while (__atomic_load_n(&stop, __ATOMIC_ACQUIRE) == 0) {
        EXPECT(strata_pool_stats_get(pool, &stats) == STRATA_POOL_OK);
        EXPECT(stats.alpha_accesses + stats.beta_accesses >= accesses);
        EXPECT(stats.objects_global + stats.objects_local <= stats.objects + THREADS * stats.m && stats.locals <= THREADS);
        accesses = stats.alpha_accesses + stats.beta_accesses;
        size_t in_use;
        struct strata_pool *other;
        struct strata_pool_config config = {0};
        config.name = "beside", config.object_bytes = 100, config.m = 4;
        EXPECT(strata_pool_create(&config, &other) == STRATA_POOL_OK);
        EXPECT(strata_pool_destroy(other, &in_use) == STRATA_POOL_OK && in_use == 0);
    }
    return argument;
}

static void run(const struct setting *with) {
    struct strata_pool_config config = {0};
    struct strata_pool_stats stats;
    struct strata_pool_local *last;
    pthread_t observer, threads[THREADS];
    unsigned locals_ever = 0, left = 0, number = 0;
    setting = *with;
    config.name = "parcels";
    config.object_bytes = sizeof(struct parcel);
    config.alignment = 32;
    config.m = with->m, config.m_alpha = with->m_alpha, config.m_beta = with->m_beta, config.flags = with->flags;
    EXPECT(strata_pool_create(&config, &pool) == STRATA_POOL_OK);
    stop = 0;
    requests_of_all = 0;
    EXPECT(pthread_create(&observer, NULL, observe, NULL) == 0);
    for (unsigned generation = 0; generation < GENERATIONS; generation++) {
        for (unsigned i = 0; i < THREADS; i++) {
            locals_ever += seats[i].local == NULL;
            workers[i] = (struct worker){++number, &seats[(i + generation) % THREADS]}; /* odd and even numbers take turns in a seat */
        }
        for (unsigned i = 0; i < THREADS; i++) EXPECT(pthread_create(&threads[i], NULL, work, &workers[i]) == 0);
        for (unsigned i = 0; i < THREADS; i++) EXPECT(pthread_join(threads[i], NULL) == 0);
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
    EXPECT(pthread_join(observer, NULL) == 0);

    EXPECT(strata_pool_local_create(pool, &last) == STRATA_POOL_OK);
    for (unsigned i = 0; i < BOARD; i++) {
        if (board[i] == NULL) continue;
        give(last, board[i]);
        board[i] = NULL;
        left++;
    }
    EXPECT(left > BOARD / 2);
    EXPECT(strata_pool_stats_get(pool, &stats) == STRATA_POOL_OK);
    EXPECT(stats.objects_in_use == 0 && stats.alpha_short == 0 && stats.alpha_failures == 0);
    uint64_t accesses = stats.alpha_accesses + stats.beta_accesses, requests = requests_of_all + left;
    EXPECT(stats.requests_apart == 0 || accesses <= requests / stats.requests_apart + locals_ever + 1);
    EXPECT(accesses > 100);
    EXPECT(strata_pool_check(pool) == NULL);
    strata_pool_local_destroy(last);
    for (unsigned i = 0; i < THREADS; i++) {
        strata_pool_local_destroy(seats[i].local);
        seats[i] = (struct seat){0};
    }
    EXPECT(strata_pool_check(pool) == NULL);
    EXPECT(strata_pool_destroy(pool, NULL) == STRATA_POOL_OK);
    expect_sound();
    printf("%s: m %zu, m_alpha %zu, m_beta %zu: %llu requests, %llu global accesses, lock held %llu times\n", with->flags == 0 ? "rounds" : "stacks",
           with->m, with->m_alpha, with->m_beta, (unsigned long long)requests, (unsigned long long)accesses, (unsigned long long)stats.contention);
}

int main(int argc, char **argv) {
    static const struct setting settings[] = {{64, 32, 32, 0}, {64, 32, 32, STRATA_POOL_STACKS}, {8, 4, 4, 0},   {8, 4, 4, STRATA_POOL_STACKS},
                                              {1, 1, 1, 0},    {1, 1, 1, STRATA_POOL_STACKS},    {30, 7, 22, 0}, {30, 7, 22, STRATA_POOL_STACKS},
                                              {30, 20, 9, 0},  {30, 20, 9, STRATA_POOL_STACKS}};
    if (argc > 1) requests_each = (unsigned)strtoul(argv[1], NULL, 10);
    EXPECT(requests_each > 0);
    for (unsigned i = 0; i < sizeof settings / sizeof settings[0]; i++) run(&settings[i]);
    return 0;
}
