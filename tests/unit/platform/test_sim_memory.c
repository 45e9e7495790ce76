/*
 * test_sim_memory.c - the simulated address space: contents, populated pages, mappings and limits, misuse.
 */
#include "sim_test.h"

#define PAGE ((size_t)4096)

static char *committed(size_t pages) {
    char *address = platform_reserve(NULL, pages * PAGE, PAGE);
    assert_non_null(address);
    assert_true(platform_commit(address, pages * PAGE));
    return address;
}

static bool all_zero(const char *address, size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
        if (address[i] != 0) return false;
    return true;
}

/* ------------------------------------------------------------------ reserving */

static void reserve_is_aligned_and_disjoint(void **state) {
    (void)state;
    sim_reset(NULL);
    for (size_t align = PAGE; align <= 4 * GIB; align *= 2) {
        char *address = platform_reserve(NULL, 3 * PAGE, align);
        assert_non_null(address);
        assert_int_equal((uintptr_t)address % align, 0);
        assert_false(platform_reserve_at(address, PAGE));
        assert_false(platform_reserve_at(address + 2 * PAGE, 8 * PAGE));
    }
    assert_int_equal(sim_reserved_bytes(), 21 * 3 * PAGE);
    assert_int_equal(sim_committed_bytes(), 0);
}

static void reserve_follows_a_free_hint_only(void **state) {
    (void)state;
    sim_reset(NULL);
    char *base = sim_arena_base();
    assert_ptr_equal(platform_reserve(base + MIB, MIB, PAGE), base + MIB);
    char *elsewhere = platform_reserve(base + MIB, MIB, PAGE);
    assert_non_null(elsewhere);
    assert_ptr_not_equal(elsewhere, base + MIB);
    char *aligned = platform_reserve(base + 8 * MIB + PAGE, MIB, MIB);
    assert_int_equal((uintptr_t)aligned % MIB, 0);
    assert_non_null(platform_reserve((void *)(16 * PAGE), MIB, PAGE)); /* a hint outside of the arena */
}

static void reserve_at_takes_what_is_free(void **state) {
    (void)state;
    sim_reset(NULL);
    char *base = sim_arena_base();
    assert_true(platform_reserve_at(base + 4 * PAGE, 4 * PAGE));
    assert_true(platform_reserve_at(base, 4 * PAGE));
    assert_true(platform_reserve_at(base + 8 * PAGE, PAGE));
    assert_int_equal(sim_mappings(), 1);
    platform_unreserve(base + 2 * PAGE, 4 * PAGE);
    assert_int_equal(sim_mappings(), 2);
    assert_int_equal(sim_reserved_bytes(), 5 * PAGE);
    assert_false(platform_reserve_at(base + 3 * PAGE, 4 * PAGE));
    assert_true(platform_reserve_at(base + 3 * PAGE, 2 * PAGE));
    assert_false(platform_reserve_at(base - PAGE, PAGE)); /* outside of the arena: as though taken */
}

static void freed_space_is_found_again(void **state) {
    (void)state;
    sim_reset(&(struct sim_config){.arena_bytes = 1 * MIB});
    char *all = platform_reserve(NULL, MIB, PAGE);
    assert_non_null(all);
    assert_null(platform_reserve(NULL, PAGE, PAGE));
    platform_unreserve(all + 64 * KIB, 64 * KIB);
    assert_null(platform_reserve(NULL, 68 * KIB, PAGE));
    assert_null(platform_reserve(NULL, 2 * MIB, PAGE));
    assert_ptr_equal(platform_reserve(NULL, 64 * KIB, PAGE), all + 64 * KIB);
}

static void address_limit_counts_reserved_space(void **state) {
    (void)state;
    sim_reset(&(struct sim_config){.address_limit_bytes = 64 * MIB});
    assert_int_equal(platform_info()->address_limit_bytes, 64 * MIB);
    char *address = platform_reserve(NULL, 60 * MIB, PAGE);
    assert_non_null(address);
    assert_null(platform_reserve(NULL, 5 * MIB, PAGE));
    assert_false(platform_reserve_at(address + 128 * MIB, 5 * MIB));
    assert_true(platform_reserve_at(address + 128 * MIB, 4 * MIB));
    platform_unreserve(address, 60 * MIB);
    assert_non_null(platform_reserve(NULL, 60 * MIB, PAGE));
    sim_set_address_limit(65 * MIB);
    assert_non_null(platform_reserve(NULL, 1 * MIB, PAGE));
    assert_null(platform_reserve(NULL, PAGE, PAGE));
}

/* ------------------------------------------------------------------ pages */

static void pages_are_populated_by_call_and_by_access(void **state) {
    (void)state;
    sim_reset(NULL);
    char *address = committed(100);
    assert_int_equal(sim_populated_pages(address, 100 * PAGE), 0);
    assert_true(platform_populate(address + 10 * PAGE, 5 * PAGE));
    assert_int_equal(sim_populated_pages(address, 100 * PAGE), 5);
    address[12 * PAGE] = 1; /* populated already */
    address[70 * PAGE + 5] = 1;
    sim_touch(address + 98 * PAGE, 2 * PAGE);
    assert_int_equal(sim_populated_pages(address, 100 * PAGE), 8);
    assert_int_equal(sim_populated_pages(address + 13 * PAGE, 57 * PAGE), 2);
    assert_int_equal(platform_resident_bytes(), 8 * PAGE);
    assert_true(platform_release(address + 12 * PAGE, 60 * PAGE));
    assert_int_equal(platform_resident_bytes(), 4 * PAGE);
    assert_int_equal(address[12 * PAGE] + address[70 * PAGE + 5], 0);
    platform_unreserve(address, 99 * PAGE);
    assert_int_equal(platform_resident_bytes(), PAGE);
}

static void release_and_reset_read_as_zeros(void **state) {
    (void)state;
    sim_reset(NULL);
    char *address = committed(8);
    memset(address, 7, 8 * PAGE);
    assert_true(platform_release(address + PAGE, 2 * PAGE));
    assert_true(platform_reset(address + 5 * PAGE, PAGE));
    assert_int_equal(address[PAGE - 1], 7);
    assert_true(all_zero(address + PAGE, 2 * PAGE));
    assert_int_equal(address[3 * PAGE], 7);
    assert_true(all_zero(address + 5 * PAGE, PAGE));
    memset(address, 8, 8 * PAGE);                    /* still committed */
    assert_true(platform_commit(address, 8 * PAGE)); /* again: nothing changes */
    assert_int_equal(address[4 * PAGE], 8);
    assert_int_equal(platform_resident_bytes(), 8 * PAGE);
}

static void a_recommitted_range_is_fresh(void **state) {
    (void)state;
    sim_reset(NULL);
    char *address = committed(4);
    memset(address, 9, 4 * PAGE);
    platform_unreserve(address, 4 * PAGE);
    assert_true(platform_reserve_at(address, 4 * PAGE));
    assert_true(platform_commit(address, 4 * PAGE));
    assert_true(all_zero(address, 4 * PAGE));
}

static void reset_of_the_machine_leaves_nothing(void **state) {
    (void)state;
    sim_reset(NULL);
    char *address = committed(64);
    memset(address, 9, 64 * PAGE);
    platform_populate(address, 64 * PAGE);
    sim_reset(NULL);
    assert_int_equal(sim_reserved_bytes(), 0);
    assert_int_equal(sim_mappings(), 0);
    assert_int_equal(platform_resident_bytes(), 0);
    assert_ptr_equal(committed(64), address);
    assert_true(all_zero(address, 64 * PAGE));
}

static void move_takes_the_pages_along(void **state) {
    (void)state;
    sim_reset(NULL);
    char *from = committed(64), *to = committed(64);
    memset(to, 5, 64 * PAGE);
    from[3 * PAGE + 1] = 42;
    assert_true(platform_populate(from + 8 * PAGE, 2 * PAGE));
    assert_true(platform_move(from, to, 32 * PAGE));
    assert_int_equal(to[3 * PAGE + 1], 42);
    to[3 * PAGE + 1] = 0;
    assert_true(all_zero(to, 32 * PAGE));
    assert_int_equal(to[32 * PAGE], 5);
    assert_int_equal(sim_populated_pages(to + 3 * PAGE, PAGE), 1);
    assert_int_equal(sim_populated_pages(to + 8 * PAGE, 2 * PAGE), 2);
    assert_int_equal(sim_populated_pages(from, 64 * PAGE), 0);
    assert_true(all_zero(from, 64 * PAGE));
    from[0] = 1; /* still committed */
}

static void larger_pages_are_whole(void **state) {
    (void)state;
    static const size_t sizes[] = {16 * KIB, 64 * KIB};
    for (size_t i = 0; i < ARRAY_LENGTH(sizes); i++) {
        size_t page = sizes[i];
        sim_reset(&(struct sim_config){.page_bytes = page});
        assert_int_equal(platform_info()->page_bytes, page);
        assert_int_equal((size_t)1 << platform_info()->page_shift, page);
        char *address = platform_reserve(NULL, 8 * page, page), *to = platform_reserve(NULL, 8 * page, page);
        assert_true(platform_commit(address, 8 * page) && platform_commit(to, 8 * page));
        address[page - 1] = 1;
        address[3 * page + page / 2] = 2;
        assert_int_equal(sim_populated_pages(address, 8 * page), 2);
        assert_int_equal(platform_resident_bytes(), 2 * page);
        assert_true(platform_move(address, to, 4 * page));
        assert_int_equal(to[page - 1] + to[3 * page + page / 2], 3);
        assert_int_equal(platform_resident_bytes(), 2 * page);
    }
}

static void physical_limit_stops_populate(void **state) {
    (void)state;
    sim_reset(&(struct sim_config){.physical_bytes = 10 * PAGE});
    char *address = committed(100);
    address[0] = 1;
    assert_true(platform_populate(address, 8 * PAGE));
    assert_false(platform_populate(address + 6 * PAGE, 5 * PAGE));
    assert_int_equal(platform_resident_bytes(), 8 * PAGE);
    assert_true(platform_populate(address + 6 * PAGE, 4 * PAGE));
    assert_true(platform_release(address, 5 * PAGE));
    assert_true(platform_populate(address + 50 * PAGE, 5 * PAGE));
    sim_set_physical_limit(UINT64_MAX);
    assert_true(platform_populate(address, 100 * PAGE));
}

static void terabytes_cost_no_real_memory(void **state) {
    (void)state;
    sim_reset(&(struct sim_config){.arena_bytes = 4096 * (uint64_t)GIB});
    char *address = platform_reserve(NULL, 3000 * GIB, 2 * MIB);
    assert_non_null(address);
    assert_true(platform_commit(address, 2000 * GIB));
    assert_true(platform_populate(address, 1000 * GIB));
    assert_int_equal(sim_populated_pages(address, 1000 * GIB), 1000 * GIB / PAGE);
    assert_true(platform_release(address, 1000 * GIB));
    assert_int_equal(sim_populated_pages(address, GIB), 0);
}

/* ------------------------------------------------------------------ mappings */

static void mappings_split_and_merge(void **state) {
    (void)state;
    sim_reset(NULL);
    char *address = platform_reserve(NULL, 16 * PAGE, PAGE);
    assert_int_equal(sim_mappings(), 1);
    assert_true(platform_commit(address + 4 * PAGE, 4 * PAGE));
    assert_int_equal(sim_mappings(), 3);
    assert_true(platform_commit(address + 12 * PAGE, 4 * PAGE));
    assert_int_equal(sim_mappings(), 4);
    assert_true(platform_commit(address + 8 * PAGE, 4 * PAGE));
    assert_int_equal(sim_mappings(), 2);
    assert_true(platform_commit(address, 16 * PAGE));
    assert_int_equal(sim_mappings(), 1);
    assert_true(platform_advise_huge(address + PAGE, PAGE, true));
    assert_int_equal(sim_mappings(), 3);
    assert_true(platform_advise_huge(address + 2 * PAGE, PAGE, false)); /* refused is not the same as not mentioned */
    assert_int_equal(sim_mappings(), 4);
    assert_true(platform_reset(address, 16 * PAGE));
    assert_int_equal(sim_mappings(), 1);
}

static void moves_split_and_a_reset_heals(void **state) {
    (void)state;
    sim_reset(NULL);
    char *address = committed(64);
    assert_true(platform_move(address + 8 * PAGE, address + 32 * PAGE, 8 * PAGE));
    assert_int_equal(sim_mappings(), 3);
    /* the next piece of the same origin joins the first */
    assert_true(platform_move(address + 16 * PAGE, address + 40 * PAGE, 8 * PAGE));
    assert_int_equal(sim_mappings(), 3);
    /* back home it is ordinary again */
    assert_true(platform_move(address + 40 * PAGE, address + 16 * PAGE, 8 * PAGE));
    assert_int_equal(sim_mappings(), 3);
    assert_true(platform_reset(address + 32 * PAGE, 16 * PAGE));
    assert_int_equal(sim_mappings(), 1);
    assert_true(platform_release(address, 64 * PAGE));
    assert_int_equal(sim_mappings(), 1);
}

static void map_count_limit_refuses_without_a_trace(void **state) {
    (void)state;
    sim_reset(&(struct sim_config){.map_count_limit = 3});
    assert_int_equal(platform_map_count_limit(), 3);
    char *address = committed(64);
    memset(address, 1, 64 * PAGE);
    assert_true(platform_move(address, address + 32 * PAGE, 8 * PAGE));
    assert_int_equal(sim_mappings(), 3);
    uint64_t resident = platform_resident_bytes();
    assert_false(platform_move(address + 10 * PAGE, address + 50 * PAGE, 2 * PAGE));
    assert_false(platform_advise_huge(address + 10 * PAGE, PAGE, true));
    assert_false(platform_reset(address + 34 * PAGE, PAGE));
    assert_null(platform_reserve(NULL, PAGE, 2 * MIB));
    assert_int_equal(sim_mappings(), 3);
    assert_int_equal(platform_resident_bytes(), resident);
    assert_int_equal(address[10 * PAGE] + address[50 * PAGE] + address[34 * PAGE], 3);
    platform_unreserve(address + 2 * PAGE, PAGE); /* unmapping works even so */
    assert_int_equal(sim_mappings(), 4);
    sim_set_map_count_limit(5);
    assert_true(platform_reset(address + 32 * PAGE, 8 * PAGE));
    assert_int_equal(sim_mappings(), 2);
}

static void huge_pages_are_whole_and_wanted(void **state) {
    (void)state;
    sim_reset(NULL);
    char *address = platform_reserve(NULL, 8 * MIB, 2 * MIB);
    assert_true(platform_commit(address, 8 * MIB));
    assert_true(platform_populate(address, 8 * MIB));
    assert_int_equal(platform_huge_bytes(), 0);
    assert_true(platform_advise_huge(address + 2 * MIB, 6 * MIB, true));
    assert_int_equal(platform_huge_bytes(), 6 * MIB);
    assert_true(platform_release(address + 5 * MIB, PAGE));
    assert_int_equal(platform_huge_bytes(), 4 * MIB);
    assert_true(platform_advise_huge(address, 4 * MIB, false));
    assert_int_equal(platform_huge_bytes(), 2 * MIB);
    sim_reset(&(struct sim_config){.no_huge_pages = true});
    assert_false(platform_advise_huge(committed(1), PAGE, true));
}

/* ------------------------------------------------------------------ misuse */

static void commit_unaligned(void *address) { platform_commit((char *)address + 1, PAGE); }
static void release_nothing(void *address) { platform_release(address, 0); }
static void commit_unreserved(void *address) { platform_commit((char *)address + 3 * PAGE, 2 * PAGE); }
static void populate_uncommitted(void *address) { platform_populate((char *)address + PAGE, 2 * PAGE); }
static void unreserve_twice(void *address) {
    platform_unreserve(address, PAGE);
    platform_unreserve(address, PAGE);
}
static void move_onto_itself(void *address) { platform_move(address, (char *)address + PAGE, 2 * PAGE); }
static void reserve_badly_aligned(void *address) { platform_reserve(address, PAGE, 3 * PAGE); }
static void release_elsewhere(void *address) {
    (void)address;
    platform_release((void *)(16 * PAGE), PAGE);
}

static void misuse_dies(void **state) {
    (void)state;
    sim_reset(NULL);
    char *address = platform_reserve(NULL, 4 * PAGE, PAGE);
    assert_true(platform_commit(address, 2 * PAGE));
    assert_dies(commit_unaligned, address, "platform_commit");
    assert_dies(release_nothing, address, "not whole pages");
    assert_dies(commit_unreserved, address, "not all of it is reserved");
    assert_dies(populate_uncommitted, address, "not all of it is committed");
    assert_dies(reserve_badly_aligned, NULL, "a power of two");
    assert_dies(release_elsewhere, NULL, "outside of the simulated address space");
    assert_true(platform_commit(address, 4 * PAGE));
    assert_dies(move_onto_itself, address, "overlap");
    assert_dies(unreserve_twice, address, "not all of it is reserved");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reserve_is_aligned_and_disjoint),
        cmocka_unit_test(reserve_follows_a_free_hint_only),
        cmocka_unit_test(reserve_at_takes_what_is_free),
        cmocka_unit_test(freed_space_is_found_again),
        cmocka_unit_test(address_limit_counts_reserved_space),
        cmocka_unit_test(pages_are_populated_by_call_and_by_access),
        cmocka_unit_test(release_and_reset_read_as_zeros),
        cmocka_unit_test(a_recommitted_range_is_fresh),
        cmocka_unit_test(reset_of_the_machine_leaves_nothing),
        cmocka_unit_test(move_takes_the_pages_along),
        cmocka_unit_test(larger_pages_are_whole),
        cmocka_unit_test(physical_limit_stops_populate),
        cmocka_unit_test(terabytes_cost_no_real_memory),
        cmocka_unit_test(mappings_split_and_merge),
        cmocka_unit_test(moves_split_and_a_reset_heals),
        cmocka_unit_test(map_count_limit_refuses_without_a_trace),
        cmocka_unit_test(huge_pages_are_whole_and_wanted),
        cmocka_unit_test(misuse_dies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
