/*
 * test_interleave_zone_fork.c - a zone that is to be destroyed, and stays, while another thread forks, in every order that few switches allow around
 * locks: the fork puts it in order as any other, as the child may go on with it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "api/zone_fork.h"
#include "api/zone_public.h"
#include "page/frames_internal.h"
#include "platform/sim/sim.h"

static struct strata_zone *zone;
static const char *wrong;

static void destroy(void *unused) {
    (void)unused;
    if (strata_zone_destroy(zone) != STRATA_ZONE_PINNED) wrong = "a zone goes with a pinned frame";
}

static void forks(void *unused) {
    (void)unused;
    zones_fork_settle();
    zones_fork_prepare();
    if (zone_of(zone)->gate != platform_thread_self()) wrong = "a fork does not know the zone";
    zones_fork_parent();
}

static const char *run(void *unused) {
    (void)unused;
    const struct strata_zone_config config = {.name = "test", .backend = STRATA_ZONE_SIM, .bytes = STRATA_ZONE_SUPERPAGE_BYTES, .cpus = 2};
    uint64_t frame;
    sim_reset(NULL);
    sim_explore_ignore(true);
    wrong = NULL;
    if (strata_zone_create(&config, &zone) != STRATA_ZONE_OK || strata_zone_alloc(zone, 1, STRATA_ZONE_MOVABLE, &frame) != STRATA_ZONE_OK ||
        strata_zone_pin(zone, frame, 1) != STRATA_ZONE_OK)
        return "no zone";
    sim_thread_start(0, destroy, NULL);
    sim_thread_start(1, forks, NULL);
    sim_explore_ignore(false);
    if (!sim_run_threads()) wrong = "a thread waits for ever";
    sim_explore_ignore(true);
    if (strata_zone_unpin(zone, frame, 1) != STRATA_ZONE_OK || strata_zone_destroy(zone) != STRATA_ZONE_OK) wrong = "the zone can't be destroyed";
    return wrong;
}

static void a_zone_that_stays_is_known_to_forks(void **state) {
    (void)state;
    struct sim_exploration exploration = {.scenario = run, .deviations = 2};
    if (!sim_explore(&exploration)) fail_msg("%s", exploration.failure);
    if (exploration.runs < 20) fail_msg("%llu runs only", (unsigned long long)exploration.runs);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_zone_that_stays_is_known_to_forks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
