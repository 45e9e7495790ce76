/*
 * ports.c - the ports of a gateway that translates addresses: single ones, pairs, fixed ones, and customers that wait for one.
 *
 *     cc ports.c -o ports $(pkg-config --cflags --libs strata) -pthread
 *     ./ports
 *
 * A connection needs any port; a media stream needs two that follow each other, the first of them even; a rule of the administrator needs exactly
 * one. When all are taken, the gateway first closes connections that were idle for long (a reclaim function), and only then does a customer wait.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include <strata/arena.h>

#define FIRST 49152
#define END 49280 /* a small gateway: 128 ports */
#define IDLE 3    /* connections that nobody would miss */
#define CUSTOMERS 8

static struct strata_arena *ports;
static uint64_t idle[IDLE];
static unsigned idle_left;

static void expect(const char *what, enum strata_arena_status status, enum strata_arena_status expected) {
    if (status == expected) return;
    fprintf(stderr, "ports: %s: %s\n", what, strata_arena_status_text(status));
    exit(EXIT_FAILURE);
}

/* One idle connection ends for each request that would fail otherwise. */
static int close_idle(void *context, struct strata_arena *arena, uint64_t size) {
    unsigned left = __atomic_load_n(&idle_left, __ATOMIC_ACQUIRE);
    (void)context, (void)size;
    do {
        if (left == 0) return 0;
    } while (!__atomic_compare_exchange_n(&idle_left, &left, left - 1, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE));
    return strata_arena_free(arena, idle[left - 1], 1) == STRATA_ARENA_OK;
}

/* Waits for a port where there is none, uses it, and lets the next one have it. */
static void *be_customer(void *unused) {
    uint64_t port;
    (void)unused;
    expect("waiting for a port", strata_arena_alloc(ports, 1, STRATA_ARENA_SLEEP, &port), STRATA_ARENA_OK);
    expect("giving it back", strata_arena_free(ports, port, 1), STRATA_ARENA_OK);
    return NULL;
}

int main(void) {
    uint64_t rule, pair, port;
    pthread_t customers[CUSTOMERS];
    struct strata_arena_stats stats;
    expect("creating", strata_arena_create("ports", FIRST, END - FIRST, 1, STRATA_ARENA_INSTANT_FIT, &ports), STRATA_ARENA_OK);

    expect("a rule", strata_arena_xalloc(ports, 1, 0, 0, 0, 49200, 49201, 0, &rule), STRATA_ARENA_OK);
    expect("a rule for a port that is taken", strata_arena_xalloc(ports, 1, 0, 0, 0, 49200, 49201, 0, &port), STRATA_ARENA_NO_SPACE);
    expect("a pair", strata_arena_xalloc(ports, 2, 2, 0, 0, 0, 0, 0, &pair), STRATA_ARENA_OK);
    printf("rule: port %llu; stream: ports %llu and %llu\n", (unsigned long long)rule, (unsigned long long)pair, (unsigned long long)pair + 1);
    if (rule != 49200 || pair % 2 != 0) return EXIT_FAILURE;

    /* All others become connections; the last few of them are idle. */
    unsigned connections = 0;
    while (strata_arena_alloc(ports, 1, 0, &port) == STRATA_ARENA_OK) idle[connections++ % IDLE] = port;
    printf("%u connections, then: no port is left\n", connections);
    if (connections != END - FIRST - 3) return EXIT_FAILURE;

    idle_left = IDLE;
    expect("the function", strata_arena_set_reclaim(ports, close_idle, NULL), STRATA_ARENA_OK);
    for (unsigned i = 0; i < IDLE; i++) expect("a port of an idle connection", strata_arena_alloc(ports, 1, 0, &port), STRATA_ARENA_OK);
    expect("one more", strata_arena_alloc(ports, 1, 0, &port), STRATA_ARENA_NO_SPACE);
    printf("%d more from idle connections, then: no port is left\n", IDLE);

    /* Customers wait until the rule is withdrawn: its one port serves them all, one after the other. */
    for (unsigned i = 0; i < CUSTOMERS; i++)
        if (pthread_create(&customers[i], NULL, be_customer, NULL) != 0) return EXIT_FAILURE;
    do {
        expect("figures", strata_arena_stats_get(ports, &stats), STRATA_ARENA_OK);
    } while (stats.waiters != CUSTOMERS);
    expect("withdrawing the rule", strata_arena_xfree(ports, rule, 1), STRATA_ARENA_OK);
    for (unsigned i = 0; i < CUSTOMERS; i++) pthread_join(customers[i], NULL);
    expect("figures", strata_arena_stats_get(ports, &stats), STRATA_ARENA_OK);
    printf("%d customers waited, all were served; %llu ports are free\n", CUSTOMERS, (unsigned long long)stats.free);

    const char *broken = strata_arena_check(ports);
    if (broken != NULL) fprintf(stderr, "ports: %s\n", broken);
    return broken == NULL && stats.free == 1 && stats.waiters == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
