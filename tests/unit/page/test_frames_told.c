/*
 * test_frames_told.c - what allocation and free tell the lists of reclaim: batches fill, are settled where their superpage changes hands, where a
 * block is isolated and where somebody looks; and the lists are what the blocks say at each of these moments.
 */
#include "page/frames_reclaim.h"
#include "page/frames_reclaim_internal.h"
#include "unit/page/frames_compact_support.h"

enum { MANY = 2 * SLOT_BATCH + 7 }; /* of one superpage, at whose end a slot settles anyway */

static uint64_t dropped[BLOCKS_MAX];
static unsigned drops;
static void (*meanwhile)(void); /* at the next drop */

static enum frames_answer drop(struct frame_zone *of, const struct frames_owner *self, uint64_t frame, uint64_t frames, uint64_t token, bool dirty) {
    (void)of, (void)self, (void)dirty;
    struct owned *block = &owned[token];
    if (!block->live || block->frame != frame || block->frames != frames) wrong = "the wrong block is dropped";
    block->live = false;
    dropped[drops++] = token;
    void (*now)(void) = meanwhile;
    meanwhile = NULL;
    if (now != NULL) now();
    return FRAMES_YES;
}

static void reclaim_begin(void) {
    const struct frames_reclaim_config config = {.policy = FRAMES_RECLAIM_LRU, .high_frames = 1};
    assert_int_equal(frames_reclaim_start(zone, &config), FRAMES_OK);
}

static void begin(uint64_t superpages) {
    const struct frames_owner description = {.name = "dropped", .migrate = migrate, .reclaim = drop};
    sim_reset(NULL);
    zone_open_with(superpages, 0);
    assert_int_equal(frames_owner_add(zone, &description, &owner), FRAMES_OK);
    drops = 0;
    meanwhile = NULL;
    reclaim_begin();
}

static void sound(void) {
    const char *broken = frames_zone_check(zone);
    if (broken == NULL) broken = frames_reclaim_check(zone);
    if (broken == NULL) broken = wrong;
    if (broken != NULL) fail_msg("%s", broken);
}

static int end(void **state) {
    (void)state;
    sound();
    for (uint64_t i = 0; i < owned_count; i++) owned[i].live = false;
    assert_int_equal(frames_zone_destroy(zone), FRAMES_OK);
    sim_cpu_set(0);
    return 0;
}

static uint64_t listed(void) {
    struct frames_reclaim *reclaim = frames_reclaim_of(zone);
    return frames_lru_count(&reclaim->lru, LRU_ACTIVE) + frames_lru_count(&reclaim->lru, LRU_INACTIVE);
}
static unsigned waiting(void) { return zone->slots[0].waiting + zone->slots[1].waiting; }

static void reclaim_all(uint64_t expected) {
    uint64_t had;
    (void)frames_reclaim(zone, zone->frames, 0, &had);
    assert_int_equal(had, expected);
    assert_int_equal(listed(), 0);
    sound();
}

static void release(uint64_t frame, uint64_t frames) {
    uint64_t at;
    assert_int_equal(frames_free(zone, frame, frames, &at), FRAMES_OK);
}

/* ------------------------------------------------------------------ batches */

static void what_goes_at_once_is_never_listed(void **state) {
    (void)state;
    begin(4);
    for (unsigned i = 0; i < 100 * SLOT_WAITS; i++) {
        assert_true(own(1));
        disown(owned_count - 1);
    }
    assert_int_equal(waiting(), 1);
    assert_int_equal(listed(), 0);
    frames_settle_all(zone);
    assert_int_equal(waiting() + listed(), 0);
}

static void batches_are_listed_in_order(void **state) {
    (void)state;
    begin(4);
    for (unsigned i = 0; i < MANY; i++) {
        assert_true(own(1));
        assert_int_equal(listed() + waiting(), i + 1);
        assert_int_equal(listed(), i / SLOT_BATCH * SLOT_BATCH);
    }
    sound();
    reclaim_all(MANY); /* those that wait, too */
    for (unsigned i = 0; i < MANY; i++) assert_int_equal(dropped[i], i);
}

/* While another has the lists a CPU goes on, and tries again now and then; once its slot is full it waits. */
static void whoever_has_the_lists_is_not_waited_for(void **state) {
    (void)state;
    enum { RETRY = SLOT_RETRY(SLOT_BATCH) };
    static const unsigned until[] = {SLOT_BATCH + 1, SLOT_BATCH + RETRY, SLOT_WAITS};
    begin(1);
    for (unsigned k = 0; k < ARRAY_LENGTH(until); k++) {
        assert_int_equal(frames_zone_destroy(zone), FRAMES_OK);
        begin(1);
        struct platform_lock *lists = &frames_reclaim_of(zone)->lru.lock;
        platform_fork_begin();
        platform_lock_hold(lists); /* as around a fork: nobody has it by trying */
        while (owned_count < until[k]) assert_true(own(1));
        assert_int_equal(waiting(), until[k]);
        platform_lock_unhold(lists);
        platform_fork_end();
        while ((waiting() - SLOT_BATCH) % RETRY != 0) assert_true(own(1));
        assert_int_equal(listed(), 0);
        assert_true(own(1));
        assert_int_equal(waiting(), 1);
        assert_int_equal(listed(), owned_count - 1);
        sound();
        reclaim_all(owned_count);
        for (unsigned i = 0; i < owned_count; i++) assert_int_equal(dropped[i], i);
    }
}

/* Half a superpage's frames, where they are large. */
static void batches_of_large_frames_are_small(void **state) {
    (void)state;
    const struct frames_config config = {.name = "large", .backend = FRAMES_SIM, .bytes = 2 * FRAMES_SUPERPAGE_BYTES, .frame_bytes = 64 << 10};
    const struct frames_owner description = {.name = "dropped", .migrate = migrate, .reclaim = drop};
    sim_reset(NULL);
    owned_count = 0;
    assert_int_equal(frames_zone_create(&config, &zone), FRAMES_OK);
    assert_int_equal(frames_owner_add(zone, &description, &owner), FRAMES_OK);
    frames_set_effort(zone, 0);
    reclaim_begin();
    for (unsigned i = 0; i < 17; i++) assert_true(own(1));
    assert_int_equal(listed(), 16);
}

static void statistics_count_what_waits(void **state) {
    (void)state;
    struct frames_reclaim_info info;
    begin(4);
    for (unsigned i = 0; i < MANY; i++) assert_true(own(1));
    for (unsigned i = 0; i < MANY; i += 3) disown(i);
    frames_reclaim_info_get(zone, &info);
    assert_int_equal(info.inactive, MANY - (MANY + 2) / 3);
    assert_int_equal(info.active, 0);
}

/* A listed block goes, and another comes to its place, before the lists hear of either: it is the youngest, and not an old one. */
static void another_block_in_the_same_place_is_young(void **state) {
    (void)state;
    begin(4);
    for (unsigned i = 0; i < 10; i++) assert_true(own(1));
    frames_settle_all(zone);
    disown(0);
    assert_true(own(1));
    assert_int_equal(owned[10].frame, owned[0].frame);
    sound();
    reclaim_all(10);
    for (unsigned i = 0; i < 10; i++) assert_int_equal(dropped[i], i + 1);
}

/* A block is cut at each fill of the batch: its parts are told of one after the other, and the batch may be settled between them. */
static void parts_are_told_of_at_any_fill(void **state) {
    (void)state;
    static const struct {
        unsigned first, count, blocks;
    } cuts[] = {{0, 8, 0}, {0, 3, 1}, {5, 3, 1}, {2, 3, 2}};
    for (unsigned cut = 0; cut < ARRAY_LENGTH(cuts); cut++)
        for (unsigned fill = 0; fill <= SLOT_WAITS; fill++)
            for (unsigned is_listed = 0; is_listed < 2; is_listed++) {
                begin(4);
                assert_true(own(8));
                if (is_listed) frames_settle_all(zone);
                for (unsigned i = 0; i < fill; i++) assert_true(own(1));
                owned[0].live = false;
                release(owned[0].frame + cuts[cut].first, cuts[cut].count);
                sound();
                frames_settle_all(zone);
                sound();
                assert_int_equal(listed(), fill + cuts[cut].blocks);
                assert_int_equal(frames_zone_destroy(zone), FRAMES_OK);
            }
    begin(1);
}

/* ------------------------------------------------------------------ superpages that change hands */

static void a_slot_settles_before_its_superpage_goes(void **state) {
    (void)state;
    begin(2);
    for (unsigned i = 0; i < 20; i++) assert_true(own(1));
    assert_int_equal(waiting(), 20);
    for (unsigned i = 0; i < 5; i++) disown(i);
    frames_slots_drain(zone);
    assert_int_equal(waiting(), 0);
    assert_int_equal(listed(), 15);
    sound();
    disown(5); /* under the zone's lock: at once */
    assert_int_equal(listed(), 14);
    release(owned[6].frame, 1);
    owned[6].live = false;
    assert_int_equal(listed() + waiting(), 13);
}

/* Another CPU frees what the first one's slot has: it waits there. */
static void another_cpu_frees(void **state) {
    (void)state;
    begin(4);
    for (unsigned i = 0; i < 10; i++) assert_true(own(1));
    frames_settle_all(zone);
    sim_cpu_set(1);
    for (unsigned i = 0; i < 4; i++) assert_true(own(1));
    disown(3);
    disown(12);
    assert_int_equal(zone->slots[0].waiting, 1);
    assert_int_equal(zone->slots[1].waiting, 4);
    sound();
    assert_int_equal(listed(), 10);
    reclaim_all(12);
}

/* A superpage as a block, which goes back to the slot, and fills of the zone, which hand superpages round. */
static void superpages_and_fills(void **state) {
    (void)state;
    begin(3);
    for (unsigned round = 0; round < 10; round++) {
        assert_true(own(SUPERPAGE_FRAMES));
        disown(owned_count - 1);
    }
    assert_int_equal(listed(), 0);
    while (own(1)) continue;
    sound();
    for (uint64_t i = 0; i < owned_count; i++)
        if (owned[i].live && i % 5 != 0) disown(i);
    sound();
    reclaim_all(live_frames());
}

static void replace_block_3(void) {
    sim_cpu_set(1);
    disown(3);
    assert_true(own(1));
    assert_int_equal(owned[6].frame, owned[3].frame);
    frames_used_forget(zone, owned[6].frame, 1);
    sim_cpu_set(0);
}
/* While somebody reclaims: what stands at the old end is another block by now, and young. */
static void what_waits_is_passed_over(void **state) {
    (void)state;
    uint64_t had;
    begin(4);
    for (unsigned i = 0; i < 6; i++) {
        sim_cpu_set(i / 3);
        assert_true(own(1));
        frames_used_forget(zone, owned[i].frame, 1);
    }
    sim_cpu_set(0);
    frames_settle_all(zone);
    meanwhile = replace_block_3;
    assert_int_equal(frames_reclaim(zone, 5, 0, &had), FRAMES_OK);
    for (unsigned i = 0; i < 5; i++) assert_int_equal(dropped[i], i < 3 ? i : i + 1);
    assert_true(owned[6].live);
}

/* ------------------------------------------------------------------ isolation and moves */

static void an_isolated_block_does_not_wait(void **state) {
    (void)state;
    begin(4);
    struct frames_block block;
    for (unsigned i = 0; i < 3; i++) assert_true(own(1));
    assert_int_equal(frames_isolate(zone, owned[1].frame, &block), FRAMES_OK);
    assert_int_equal(waiting(), 0);
    assert_int_equal(listed(), 3);
    sound();
    release(owned[1].frame, 1); /* marks it */
    owned[1].live = false;
    assert_int_equal(waiting(), 0);
    frames_put_back(zone, &block, false);
    assert_int_equal(waiting(), 0);
    assert_int_equal(listed(), 2);
    sound();
}

/* To a place at which a block has just gone, of which the lists have not heard. The one that moves stays as old as it was. */
static void moves_take_their_places_along(void **state) {
    (void)state;
    begin(4);
    for (unsigned i = 0; i < 6; i++) assert_true(own(1));
    frames_used_forget(zone, owned[0].frame, 6); /* so that they go by age alone */
    frames_settle_all(zone);
    struct frames_block block;
    uint64_t to, superpage = owned[5].frame / SUPERPAGE_FRAMES;
    disown(0); /* the lowest frame: where the next one goes */
    assert_int_equal(frames_isolate(zone, owned[1].frame, &block), FRAMES_OK);
    disown(5);
    assert_true(frames_take_in(zone, superpage, 1, 1, &to));
    assert_int_equal(to, owned[0].frame);
    frames_give_back(zone, to, 1);
    assert_true(own(1)); /* and goes again, so that it waits */
    disown(6);
    assert_true(frames_take_in(zone, superpage, 1, 1, &to));
    assert_true(waiting() != 0);
    owned[1].moves = 0;
    uint64_t from = owned[1].frame;
    wrong = NULL;
    answer = FRAMES_YES;
    assert_int_equal(frames_move(zone, &block, to), FRAMES_YES);
    wrong = NULL; /* it went down, as no pass does */
    assert_int_equal(owned[1].frame, to);
    assert_int_not_equal(from, to);
    sound();
    reclaim_all(4);
    for (unsigned i = 0; i < 4; i++) assert_int_equal(dropped[i], i + 1);
}

/* ------------------------------------------------------------------ start and stop */

static void stop_forgets_what_waits(void **state) {
    (void)state;
    begin(4);
    for (unsigned i = 0; i < 10; i++) assert_true(own(1));
    disown(4);
    assert_int_equal(frames_reclaim_stop(zone), FRAMES_OK);
    assert_int_equal(waiting(), 0);
    disown(5);
    assert_true(own(1));
    reclaim_begin();
    assert_int_equal(listed(), 9);
    sound();
    reclaim_all(9);
    for (unsigned i = 1; i < 9; i++) assert_true(owned[dropped[i - 1]].frame < owned[dropped[i]].frame);
}

/* ------------------------------------------------------------------ what the check finds */

static void the_check_finds_what_is_wrong(void **state) {
    (void)state;
    begin(4);
    for (unsigned i = 0; i < 10; i++) assert_true(own(1));
    struct frames_slot *slot = zone->slots[0].waiting != 0 ? &zone->slots[0] : &zone->slots[1];
    assert_int_equal(slot->waiting, 10);
    slot->waiting = 9; /* one is lost */
    assert_string_equal(frames_reclaim_check(zone), "reclaim: a block has a bit, and waits nowhere");
    slot->waiting = 10;
    uint32_t kept = slot->waits[3];
    slot->waits[3] = slot->waits[2];
    assert_string_equal(frames_reclaim_check(zone), "reclaim: a block waits twice");
    slot->waits[3] = SUPERPAGE_FRAMES - 1 + (kept < SUPERPAGE_FRAMES ? SUPERPAGE_FRAMES : 0);
    assert_string_equal(frames_reclaim_check(zone), "reclaim: a block waits that has no bit");
    slot->waits[3] = kept;
    sound();
    frames_settle_all(zone);
    assert_true(frames_lru_remove(&frames_reclaim_of(zone)->lru, owned[0].frame));
    assert_string_equal(frames_reclaim_check(zone), "reclaim: a block that could be dropped is in no list");
    frames_lru_put(&frames_reclaim_of(zone)->lru, owned[0].frame, LRU_ACTIVE);
    sound();
    frames_lru_put(&frames_reclaim_of(zone)->lru, zone->frames / 2, LRU_ACTIVE);
    assert_string_equal(frames_reclaim_check(zone), "reclaim: a frame is listed at which no block begins");
    assert_true(frames_lru_remove(&frames_reclaim_of(zone)->lru, zone->frames / 2));
}

#define TEST(name) cmocka_unit_test_teardown(name, end)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(what_goes_at_once_is_never_listed),
        TEST(batches_are_listed_in_order),
        TEST(whoever_has_the_lists_is_not_waited_for),
        TEST(batches_of_large_frames_are_small),
        TEST(statistics_count_what_waits),
        TEST(another_block_in_the_same_place_is_young),
        TEST(parts_are_told_of_at_any_fill),
        TEST(a_slot_settles_before_its_superpage_goes),
        TEST(another_cpu_frees),
        TEST(superpages_and_fills),
        TEST(what_waits_is_passed_over),
        TEST(an_isolated_block_does_not_wait),
        TEST(moves_take_their_places_along),
        TEST(stop_forgets_what_waits),
        TEST(the_check_finds_what_is_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
