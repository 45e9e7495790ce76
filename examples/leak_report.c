/*
 * leak_report.c - a long-running program that looks for leaks in itself: features are on for a while, and off again.
 *
 *     cc leak_report.c $(pkg-config --cflags --libs strata)
 *
 * Sessions come and go; each tenth one is forgotten. The cache of sessions is audited for one round of traffic: then its buffers in use, but for
 * those that are expected, are what was lost, with the stack that allocated them. A failed allocation is tried as well.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <strata/cache.h>
#include <strata/debug.h>

enum { SESSIONS = 1000, FORGOTTEN_EACH = 10 };

static struct strata_cache *sessions;

static unsigned traffic(void) {
    unsigned refused = 0;
    for (unsigned i = 0; i < SESSIONS; i++) {
        void *session = strata_cache_alloc(sessions, STRATA_CACHE_NO_SLEEP);
        refused += session == NULL;
        if (i % FORGOTTEN_EACH != 0) strata_cache_free(sessions, session);
    }
    return refused;
}

static bool count(const struct strata_debug_buffer *buffer, void *argument) {
    unsigned *found = argument;
    if (buffer->transactions != 0 && buffer->transaction[0].frames != 0) ++*found;
    return true;
}

static void set(const char *features) {
    if (strata_debug_set("sessions", features) == STRATA_DEBUG_OK) return;
    fprintf(stderr, "leak_report: %s can't be set\n", features);
    exit(1);
}

int main(void) {
    const struct strata_cache_config config = {.size = 200};
    if (strata_cache_create("sessions", &config, &sessions) != STRATA_CACHE_OK) return 1;
    printf("plain   %u refused\n", traffic());
    set("audit=4+guards");
    printf("audited %u refused\n", traffic());
    unsigned found = 0;
    if (!strata_debug_walk("sessions", false, count, &found)) return 1;
    printf("leaks   %u, each with the stack that allocated it\n", found);
    fflush(stdout);
    strata_debug_report_in_use("sessions", STDOUT_FILENO);
    set("mtbf=4+seed=1");
    printf("mtbf    %s\n", traffic() > SESSIONS / 8 ? "about a quarter refused" : "hardly any refused");
    set("off");
    printf("off     %u refused\n", traffic());
    printf("damaged %zu\n", strata_debug_verify(NULL));
    return 0;
}
