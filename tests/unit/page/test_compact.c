/*
 * test_compact.c - superpages emptied for a block that wants them whole: who is asked, what is kept, and what the program may do while it is asked.
 *
 * A zone of eight superpages is filled with blocks of 64 KiB and thinned out, so that no superpage is free although most pages are.
 */
#include "unit/page/page_support.h"

#define SUPERPAGES 8
#define PER_SUPERPAGE 32
#define BLOCKS (SUPERPAGES * PER_SUPERPAGE)
#define BLOCK_BYTES (64 * KIB)
#define BLOCK_GRANULES (BLOCK_BYTES / GRANULE_BYTES)

/* The program: it knows each block by its slot, and its contents by the slot's number. */
static char *slots[BLOCKS];
static unsigned asked;
static char *taken[BLOCKS + 1]; /* by others, meanwhile */
static unsigned taken_count;
static enum {
    OBEYS,
    REFUSES,
    FREES,
    FREES_AND_MOVES,
    GROWS,
    OTHERS_GROW,
    ALLOCATES,
    COMPACTS,
    OTHERS_TAKE,
    GROWS_INTO_REST,
    FORKS,
    FREES_AND_FORKS,
    OTHERS_TAKE_TWO
} manner;
static size_t rest_granules; /* of each block, that nobody asked for */

static const struct zone_block_config whole = {.bytes = SUPERPAGE_BYTES, .mobility = MOBILITY_MOVABLE, .huge = true, .compact = true};

static void fork_here(void) {
    zone_fork_prepare(&zone);
    sim_fork_child();
    zone_fork_child(&zone);
    assert_null(zone_check(&zone));
}

static bool move_slot(void *from, void *to, size_t bytes, void *argument) {
    char **slot = argument;
    asked++;
    assert_int_equal(sim_locks_held(), 0);
    assert_ptr_equal(*slot, from);
    assert_int_equal(bytes, BLOCK_BYTES - rest_granules * GRANULE_BYTES);
    assert_null(zone_check(&zone));
    switch (manner) {
    case OBEYS: break;
    case REFUSES: return false;
    case FREES:
    case FREES_AND_MOVES:
        assert_true(zone_block_free(&zone, from));
        assert_false(zone_block_free(&zone, from)); /* twice is seen */
        *slot = NULL;
        if (manner == FREES) return false;
        return true; /* and `to` is nobody's: the program's own mistake, which loses that block and no more */
    case GROWS:
        assert_null(zone_block_resize(&zone, from, bytes + GRANULE_BYTES, true));
        assert_int_equal(zone_block_join(&zone, from, (char *)from + bytes), ZONE_NO_BLOCK);
        assert_non_null(zone_block_resize(&zone, from, bytes / 2, true));
        assert_non_null(zone_block_resize(&zone, from, bytes / 2, true));
        break;
    case OTHERS_GROW: /* not into what is being emptied; elsewhere as ever */
        for (unsigned i = 0; i < BLOCKS; i++)
            if (slots[i] != NULL && slots[i] != from && zone.superpages[number_of(slots[i])].apart)
                assert_null(zone_block_resize(&zone, slots[i], BLOCK_BYTES + GRANULE_BYTES, false));
        break;
    case GROWS_INTO_REST: /* what the function was told of is all that it copies */
        assert_null(zone_block_resize(&zone, from, bytes + GRANULE_BYTES, false));
        assert_null(zone_block_resize(&zone, from, bytes + 2 * GRANULE_BYTES, false));
        break;
    case ALLOCATES: {
        char *other = zone_block_alloc(&zone, BLOCK_BYTES, 1, NULL);
        assert_non_null(other);
        assert_false(zone.superpages[number_of(other)].apart); /* what is being emptied is nobody else's */
        drop_block(other);
        break;
    }
    case COMPACTS: assert_null(zone_block_create(&zone, &whole, NULL)); break;
    case FORKS: /* the first of them */
        if (asked == 1) fork_here();
        break;
    case FREES_AND_FORKS:
        assert_true(zone_block_free(&zone, from));
        *slot = NULL;
        fork_here();
        return false;
    case OTHERS_TAKE: /* all the room there is */
        while ((taken[taken_count] = zone_block_alloc(&zone, BLOCK_BYTES, 1, NULL)) != NULL) taken_count++;
        break;
    case OTHERS_TAKE_TWO:
        while (taken_count < 2) taken[taken_count++] = must_block(BLOCK_BYTES, 1);
        break;
    }
    memcpy(to, from, bytes);
    *slot = to;
    return true;
}

static void fill(void) {
    struct zone_config config = plain_config();
    config.reserve_bytes = SUPERPAGES * SUPERPAGE_BYTES;
    begin(NULL, config);
    manner = OBEYS;
    asked = 0;
    rest_granules = 0;
    for (unsigned i = 0; i < BLOCKS; i++) {
        slots[i] = must_block(BLOCK_BYTES, 1);
        mark(slots[i], BLOCK_GRANULES, i + 1);
        assert_int_equal(zone_block_set_move(&zone, slots[i], move_slot, &slots[i]), ZONE_OK);
    }
    assert_null(zone_block_alloc(&zone, BLOCK_BYTES, 1, NULL));
}

static void drop_slot(unsigned i) {
    drop_block(slots[i]);
    slots[i] = NULL;
}

/* Of each superpage `left` blocks stay, at places that differ; of superpage `sparse` half as many. */
static void thin_out(unsigned left, unsigned sparse) {
    for (unsigned s = 0; s < SUPERPAGES; s++)
        for (unsigned i = 0; i < PER_SUPERPAGE; i++)
            if ((i * 7 + s) % PER_SUPERPAGE >= (s == sparse ? left / 2 : left)) drop_slot(s * PER_SUPERPAGE + i);
    ASSERT_SOUND();
}

static void assert_contents(void) {
    for (unsigned i = 0; i < BLOCKS; i++)
        if (slots[i] != NULL) assert_true(is_marked(slots[i], BLOCK_GRANULES, i + 1));
}

static char *must_empty(size_t bytes, unsigned moves) {
    struct zone_block_config config = whole;
    config.bytes = bytes;
    config.compact = false;
    assert_null(zone_block_create(&zone, &config, NULL)); /* no function is called unless that was wanted */
    assert_int_equal(asked, 0);
    config.compact = true;
    char *block = zone_block_create(&zone, &config, NULL);
    assert_non_null(block);
    assert_int_equal(asked, moves);
    memset(block, 0xaa, bytes);
    ASSERT_SOUND();
    assert_contents();
    return block;
}

static void assert_nothing_to_have(unsigned asks) {
    assert_null(zone_block_create(&zone, &whole, NULL));
    assert_int_equal(asked, asks);
    assert_int_equal(counters().compactions, 0);
    assert_int_equal(counters().races_lost, 0);
    ASSERT_SOUND();
    assert_contents();
}

static void the_sparsest_superpage_is_emptied(void **state) {
    (void)state;
    fill();
    thin_out(8, 5);
    char *block = must_empty(SUPERPAGE_BYTES, 4);
    assert_int_equal(number_of(block), 5);
    assert_int_equal(counters().compactions, 1);
    assert_int_equal(counters().block_moves, 4);
    drop_block(block);
    for (unsigned i = 0; i < BLOCKS; i++)
        if (slots[i] != NULL) drop_slot(i);
    assert_empty();
}

static void adjacent_superpages_are_emptied(void **state) {
    (void)state;
    fill();
    thin_out(8, 0);
    char *block = must_empty(4 * SUPERPAGE_BYTES, 4 + 3 * 8);
    assert_int_equal(number_of(block), 0);
    /* What is left has no more room than that. */
    assert_null(zone_block_create(&zone, &(struct zone_block_config){.bytes = 4 * SUPERPAGE_BYTES, .compact = true, .huge = true}, NULL));
    assert_int_equal(counters().compactions, 1);
}

static void an_alignment_is_kept(void **state) {
    (void)state;
    fill();
    thin_out(8, 5);
    size_t align = 2 * SUPERPAGE_BYTES;
    char *block = zone_block_create(
        &zone, &(struct zone_block_config){.bytes = 2 * SUPERPAGE_BYTES, .align = align, .mobility = MOBILITY_MOVABLE, .huge = true, .compact = true},
        NULL);
    assert_non_null(block);
    assert_int_equal((uintptr_t)block % align, 0);
    assert_contents();
    ASSERT_SOUND();
}

static void blocks_that_may_not_move_are_not_asked(void **state) {
    (void)state;
    fill();
    thin_out(8, 5);
    for (unsigned s = 0; s < SUPERPAGES; s++)
        for (unsigned i = 0, found = 0; i < PER_SUPERPAGE && found == 0; i++) {
            if (slots[s * PER_SUPERPAGE + i] == NULL) continue;
            assert_int_equal(zone_block_set_move(&zone, slots[s * PER_SUPERPAGE + i], NULL, NULL), ZONE_OK);
            found = 1;
        }
    assert_nothing_to_have(0);
}

static void fixed_blocks_get_no_function(void **state) {
    (void)state;
    begin(NULL, plain_config());
    char *fixed = zone_block_create(&zone, &(struct zone_block_config){.bytes = BLOCK_BYTES, .mobility = MOBILITY_MOVABLE, .fixed = true}, NULL);
    assert_int_equal(zone_block_set_move(&zone, fixed, move_slot, NULL), ZONE_BAD_RANGE);
    assert_int_equal(zone_block_set_move(&zone, fixed, NULL, NULL), ZONE_OK);
    assert_int_equal(zone_block_set_move(&zone, fixed + GRANULE_BYTES, move_slot, NULL), ZONE_NO_BLOCK);
}

static void without_room_nobody_is_asked(void **state) {
    (void)state;
    fill();
    for (unsigned s = 0; s < SUPERPAGES; s++)
        for (unsigned i = 0; i < 3; i++) drop_slot(s * PER_SUPERPAGE + i); /* 24 places, of which 21 lie elsewhere; 29 to be moved */
    assert_nothing_to_have(0);
}

static void a_refusal_leaves_all_as_it_was(void **state) {
    (void)state;
    fill();
    thin_out(8, 5);
    manner = REFUSES;
    char *before[BLOCKS];
    memcpy(before, slots, sizeof before);
    assert_nothing_to_have(1);
    assert_memory_equal(before, slots, sizeof before);
    for (unsigned i = 0; i < BLOCKS; i++)
        if (slots[i] != NULL) drop_slot(i);
    assert_empty();
}

/* Others have the room, and not what is being emptied. What they took is counted; where nobody takes any, nothing is. */
static void room_may_be_taken_meanwhile(void **state) {
    (void)state;
    fill();
    thin_out(8, 5);
    taken_count = 0;
    manner = OTHERS_TAKE;
    assert_null(zone_block_create(&zone, &whole, NULL));
    assert_int_equal(asked, 1); /* it was moved; the next one has no place */
    assert_int_equal(counters().compactions, 0);
    assert_int_equal(counters().races_lost, taken_count * BLOCK_GRANULES);
    ASSERT_SOUND();
    assert_contents();
    while (taken_count != 0) drop_block(taken[--taken_count]);
    manner = OBEYS;
    assert_non_null(zone_block_create(&zone, &whole, NULL));
    assert_true(counters().races_lost != 0 && counters().compactions == 1);
    manner = ALLOCATES; /* and gives it back: that is no race */
    uint64_t before = counters().races_lost;
    (void)zone_block_create(&zone, &whole, NULL);
    assert_int_equal(counters().races_lost, before);
}

static void blocks_may_be_freed_meanwhile(void **state) {
    (void)state;
    for (manner = FREES; manner <= FREES_AND_MOVES; manner++) {
        unsigned used = manner;
        fill();
        thin_out(8, 5);
        manner = used;
        uint64_t blocks = counters().blocks;
        char *block = must_empty(SUPERPAGE_BYTES, 4);
        assert_int_equal(counters().blocks, blocks + 1 - (manner == FREES ? 4 : 0));
        drop_block(block);
        ASSERT_SOUND();
    }
}

static void sizes_may_change_meanwhile(void **state) {
    (void)state;
    fill();
    thin_out(8, 5);
    manner = GROWS;
    must_empty(SUPERPAGE_BYTES, 4);
}

static void blocks_of_it_do_not_grow_where_they_are(void **state) {
    (void)state;
    fill();
    thin_out(8, 5);
    manner = OTHERS_GROW;
    (void)must_empty(SUPERPAGE_BYTES, 4);
    for (unsigned i = 0; i < BLOCKS; i++)
        if (slots[i] != NULL) drop_slot(i);
    ASSERT_SOUND();
}

static void nobody_gets_a_part_of_what_is_emptied(void **state) {
    (void)state;
    fill();
    thin_out(8, 5);
    manner = ALLOCATES;
    must_empty(SUPERPAGE_BYTES, 4);
}

static void functions_that_want_superpages_themselves_get_none(void **state) {
    (void)state;
    fill();
    thin_out(8, 5);
    manner = COMPACTS;
    must_empty(SUPERPAGE_BYTES, 4);
}

/* The child has both blocks of the move, and can give both back, but for one that was freed while its owner was asked. */
static void the_child_of_a_fork_has_all_blocks(void **state) {
    (void)state;
    for (unsigned freed = 0; freed < 2; freed++) {
        fill();
        thin_out(8, 5);
        uint64_t blocks = counters().blocks, allocated = counters().allocated;
        unsigned slot = slots[0] != NULL ? 0 : 5 * PER_SUPERPAGE;
        zone.compaction.thread = platform_thread_self() + 1;
        zone.compaction.from = slots[slot];
        zone.compaction.at = 5;
        zone.compaction.count = 1;
        zone.superpages[5].apart = true;
        list_remove(&zone.superpages[5].bucket);
        if (freed != 0) {
            assert_true(zone_block_free(&zone, slots[slot]));
            slots[slot] = NULL;
        }
        zone_fork_prepare(&zone);
        sim_fork_child();
        zone_fork_child(&zone);
        ASSERT_SOUND();
        assert_int_equal(counters().blocks, blocks - freed);
        assert_int_equal(counters().allocated, allocated - freed * BLOCK_GRANULES);
        assert_non_null(zone_block_create(&zone, &whole, NULL));
        assert_contents();
    }
}

/* The thread that empties superpages goes on in the child, where its function forks; so does what it knows of the block in question. */
static void a_function_that_forks_goes_on_in_the_child(void **state) {
    (void)state;
    for (unsigned frees = 0; frees < 2; frees++) {
        fill();
        thin_out(8, 5);
        uint64_t blocks = counters().blocks;
        manner = frees != 0 ? FREES_AND_FORKS : FORKS;
        must_empty(SUPERPAGE_BYTES, 4);
        assert_int_equal(counters().blocks, frees != 0 ? blocks - 4 + 1 : blocks + 1);
        assert_int_equal(zone.compaction.thread, 0);
    }
}

/* Blocks out of a run cache have more than was asked for, into which they don't grow while they move either. */
static void blocks_that_move_do_not_grow_into_what_nobody_asked_for(void **state) {
    (void)state;
    fill();
    thin_out(8, 5);
    manner = GROWS_INTO_REST;
    rest_granules = 2;
    for (unsigned i = 0; i < BLOCKS; i++)
        if (slots[i] != NULL) {
            block_of(&zone, slots[i])->longer = (uint32_t)rest_granules;
            zone.longer_granules += (uint32_t)rest_granules;
        }
    ASSERT_SOUND();
    assert_non_null(zone_block_create(&zone, &whole, NULL));
    assert_int_equal(asked, 4);
    for (unsigned i = 0; i < BLOCKS; i++)
        if (slots[i] != NULL) {
            assert_int_equal(zone_block_bytes(&zone, slots[i]), BLOCK_BYTES - rest_granules * GRANULE_BYTES);
            assert_ptr_equal(zone_block_resize(&zone, slots[i], BLOCK_BYTES, false), slots[i]);
        }
    ASSERT_SOUND();
}

static void a_limit_holds_while_blocks_move(void **state) {
    (void)state;
    fill();
    thin_out(8, 5);
    zone.config.hard_limit_bytes = (counters().allocated + SUPERPAGE_GRANULES) << GRANULE_SHIFT;
    must_empty(SUPERPAGE_BYTES, 4);
    assert_int_equal(counters().allocated << GRANULE_SHIFT, zone.config.hard_limit_bytes);
}

/* What others allocate while functions of the program are called counts, too. */
static void a_limit_holds_for_what_is_allocated_meanwhile(void **state) {
    (void)state;
    fill();
    thin_out(8, 5);
    manner = OTHERS_TAKE_TWO;
    taken_count = 0;
    const uint64_t before = counters().allocated;
    zone.config.hard_limit_bytes = (before + SUPERPAGE_GRANULES + BLOCK_GRANULES) << GRANULE_SHIFT;
    assert_null(zone_block_create(&zone, &whole, NULL));
    assert_int_equal(counters().allocated, before + 2 * BLOCK_GRANULES);
    ASSERT_SOUND();
    assert_contents();
    drop_block(taken[--taken_count]);
    assert_non_null(zone_block_create(&zone, &whole, NULL)); /* what was emptied is there still */
    ASSERT_SOUND();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_sparsest_superpage_is_emptied),
        cmocka_unit_test(adjacent_superpages_are_emptied),
        cmocka_unit_test(an_alignment_is_kept),
        cmocka_unit_test(blocks_that_may_not_move_are_not_asked),
        cmocka_unit_test(fixed_blocks_get_no_function),
        cmocka_unit_test(without_room_nobody_is_asked),
        cmocka_unit_test(a_refusal_leaves_all_as_it_was),
        cmocka_unit_test(room_may_be_taken_meanwhile),
        cmocka_unit_test(blocks_may_be_freed_meanwhile),
        cmocka_unit_test(sizes_may_change_meanwhile),
        cmocka_unit_test(blocks_of_it_do_not_grow_where_they_are),
        cmocka_unit_test(nobody_gets_a_part_of_what_is_emptied),
        cmocka_unit_test(functions_that_want_superpages_themselves_get_none),
        cmocka_unit_test(the_child_of_a_fork_has_all_blocks),
        cmocka_unit_test(a_function_that_forks_goes_on_in_the_child),
        cmocka_unit_test(blocks_that_move_do_not_grow_into_what_nobody_asked_for),
        cmocka_unit_test(a_limit_holds_while_blocks_move),
        cmocka_unit_test(a_limit_holds_for_what_is_allocated_meanwhile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
