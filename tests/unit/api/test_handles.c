/*
 * test_handles.c - handles on the simulated platform: what holds a block and what lets it move, what is wrong and said so, and guards, locks, frees
 * and moves of one block in every order that few switches allow.
 */
#include <errno.h>

#include "api/handle_state.h"
#include "base/check.h"
#include "unit/api/handles_support.h"
#include "unit/sparse.h"

#define ERRNO_BEFORE 4711
enum { HANDLES = 2048 };

static uint64_t reserved_before;

static void open_zone(uint64_t bytes, size_t frame_bytes) {
    const struct strata_zone_config config = {.name = "test", .backend = STRATA_ZONE_ANON, .bytes = bytes, .frame_bytes = frame_bytes, .cpus = 2};
    zone = NULL;
    handles = NULL;
    if (strata_zone_create(&config, &zone) != STRATA_ZONE_OK || strata_handles_create(zone, 0, &handles) != STRATA_HANDLE_OK) fatal("test: no zone");
}
static int setup(void **state) {
    (void)state;
    sim_reset(NULL);
    open_zone(8 * STRATA_ZONE_SUPERPAGE_BYTES, 0); /* the first zone of the process brings up the heap */
    if (strata_handles_destroy(handles) != STRATA_HANDLE_OK || strata_zone_destroy(zone) != STRATA_ZONE_OK) return -1;
    reserved_before = sim_reserved_bytes();
    open_zone(8 * STRATA_ZONE_SUPERPAGE_BYTES, 0);
    errno = ERRNO_BEFORE;
    return 0;
}
static int teardown(void **state) {
    (void)state;
    end_handles_and_zone();
    assert_int_equal(errno, ERRNO_BEFORE);
    assert_int_equal(sim_reserved_bytes(), reserved_before);
    return 0;
}

/* HANDLES blocks of a page in a zone of twice as many, one in three of which are left. */
static strata_handle kept[HANDLES];
static void make_sparse(void) {
    for (unsigned i = 0; i < HANDLES; i++) kept[i] = filled(PAGE, (int)i);
    for (unsigned i = 0; i < HANDLES; i++) {
        if (i % 3 == 0) continue;
        assert_int_equal(strata_handle_free(handles, kept[i]), STRATA_HANDLE_OK);
        kept[i] = 0;
    }
}
static struct strata_zone_compact_counts compact(void) {
    struct strata_zone_compact_counts counts;
    assert_int_equal(strata_zone_compact(zone, 9, &counts), STRATA_ZONE_OK);
    return counts;
}

/* ------------------------------------------------------------------ moves */

static void contents_move_with_the_handle(void **state) {
    (void)state;
    make_sparse();
    struct strata_zone_compact_counts counts = compact();
    struct strata_handles_stats stats;
    assert_true(counts.moved > 0);
    assert_int_equal(strata_handles_stats_get(handles, &stats), STRATA_HANDLE_OK);
    assert_int_equal(stats.moves, counts.moved);
    unsigned moved = 0;
    for (unsigned i = 0; i < HANDLES; i += 3) {
        expect(kept[i], PAGE, (int)i);
        moved += info_of(kept[i]).moves;
    }
    assert_int_equal(moved, counts.moved);
}

static void a_locked_block_stays(void **state) {
    (void)state;
    void *addresses[HANDLES];
    make_sparse();
    for (unsigned i = 0; i < HANDLES; i += 9) assert_int_equal(strata_handle_lock(handles, kept[i], &addresses[i]), STRATA_HANDLE_OK);
    struct strata_zone_stats zone_stats;
    assert_int_equal(strata_zone_stats_get(zone, &zone_stats), STRATA_ZONE_OK);
    assert_int_equal(zone_stats.pinned, (HANDLES + 8) / 9);
    (void)compact();
    for (unsigned i = 0; i < HANDLES; i += 9) {
        assert_int_equal(info_of(kept[i]).moves, 0);
        assert_int_equal(info_of(kept[i]).locks, 1);
        assert_int_equal(((unsigned char *)addresses[i])[PAGE - 1], i & 0xff);
        assert_int_equal(strata_handle_free(handles, kept[i]), STRATA_HANDLE_IN_USE);
        assert_int_equal(strata_handle_unlock(handles, kept[i]), STRATA_HANDLE_OK);
        assert_int_equal(strata_handle_unlock(handles, kept[i]), STRATA_HANDLE_NOT_HELD);
    }
    struct strata_zone_compact_counts counts = compact();
    assert_true(counts.moved > 0);
    for (unsigned i = 0; i < HANDLES; i += 3) expect(kept[i], PAGE, (int)i);
}

static void a_guarded_block_stays(void **state) {
    (void)state;
    const void *read;
    void *written;
    make_sparse();
    for (unsigned i = 0; i < HANDLES; i += 6) assert_int_equal(strata_handle_read(handles, kept[i], &read), STRATA_HANDLE_OK);
    for (unsigned i = 3; i < HANDLES; i += 6) assert_int_equal(strata_handle_write(handles, kept[i], &written), STRATA_HANDLE_OK);
    struct strata_zone_compact_counts counts = compact();
    struct strata_handles_stats stats;
    assert_int_equal(counts.moved, 0);
    assert_true(counts.failed_later > 0);
    assert_int_equal(strata_handles_stats_get(handles, &stats), STRATA_HANDLE_OK);
    assert_true(stats.refused_readers + stats.refused_held == counts.failed_later && stats.moves == 0);
    for (unsigned i = 0; i < HANDLES; i += 6) assert_int_equal(strata_handle_read_end(handles, kept[i]), STRATA_HANDLE_OK);
    for (unsigned i = 3; i < HANDLES; i += 6) assert_int_equal(strata_handle_write_end(handles, kept[i]), STRATA_HANDLE_OK);
    assert_true(compact().moved > 0);
    for (unsigned i = 0; i < HANDLES; i += 3) expect(kept[i], PAGE, (int)i);
}

/* Larger ones are contiguous wherever they are. */
static void blocks_of_many_frames(void **state) {
    (void)state;
    for (unsigned i = 0; i < 64; i++) kept[i] = filled((size_t)(1 + i % 7) * 3 * PAGE - 100, (int)i);
    for (unsigned i = 0; i < 64; i += 2) assert_int_equal(strata_handle_free(handles, kept[i]), STRATA_HANDLE_OK);
    (void)compact();
    for (unsigned i = 1; i < 64; i += 2) expect(kept[i], (size_t)(1 + i % 7) * 3 * PAGE - 100, (int)i);
    assert_int_equal(info_of(kept[1]).bytes, 2 * 3 * PAGE);
}

/* Their bounds in the zone are those of the handle, side by side, too. The end of each test checks them. */
static void blocks_above_a_superpage(void **state) {
    (void)state;
    strata_handle first = filled(STRATA_ZONE_SUPERPAGE_BYTES + 1, 1), second = filled(2 * STRATA_ZONE_SUPERPAGE_BYTES, 2);
    assert_null(strata_handles_check(handles));
    expect(first, STRATA_ZONE_SUPERPAGE_BYTES + 1, 1);
    expect(second, 2 * STRATA_ZONE_SUPERPAGE_BYTES, 2);
}

/* An allocation of a superpage that only compaction can serve. */
static void a_superpage_is_had_among_handles(void **state) {
    (void)state;
    uint64_t frame;
    unsigned count = 0;
    static strata_handle all[8 * 512];
    while (strata_handle_alloc(handles, PAGE, &all[count]) == STRATA_HANDLE_OK) count++;
    for (unsigned i = 0; i < count; i++)
        if (i % 3 != 0) assert_int_equal(strata_handle_free(handles, all[i]), STRATA_HANDLE_OK);
    assert_int_equal(strata_zone_alloc(zone, 512, STRATA_ZONE_UNMOVABLE, &frame), STRATA_ZONE_OK);
    struct strata_zone_compact_stats stats;
    assert_int_equal(strata_zone_compact_stats_get(zone, &stats), STRATA_ZONE_OK);
    assert_int_equal(stats.counts.done, 1);
    assert_int_equal(strata_zone_free(zone, frame, 512), STRATA_ZONE_OK);
}

/* ------------------------------------------------------------------ what is wrong */

static void bad_arguments(void **state) {
    (void)state;
    strata_handle handle;
    struct strata_handles *none;
    const void *address;
    assert_int_equal(strata_handles_create(NULL, 0, &none), STRATA_HANDLE_BAD_ARGUMENT);
    assert_int_equal(strata_handles_create(zone, 0, NULL), STRATA_HANDLE_BAD_ARGUMENT);
    assert_int_equal(strata_handles_create(zone, UINT64_C(1) << 40, &none), STRATA_HANDLE_BAD_ARGUMENT);
    assert_int_equal(strata_handle_alloc(handles, 0, &handle), STRATA_HANDLE_BAD_ARGUMENT);
    assert_int_equal(strata_handle_alloc(NULL, 1, &handle), STRATA_HANDLE_BAD_ARGUMENT);
    assert_int_equal(strata_handle_alloc(handles, 1, NULL), STRATA_HANDLE_BAD_ARGUMENT);
    assert_int_equal(strata_handle_alloc(handles, SIZE_MAX, &handle), STRATA_HANDLE_BAD_ARGUMENT);
    assert_int_equal(strata_handle_alloc(handles, 9 * STRATA_ZONE_SUPERPAGE_BYTES, &handle), STRATA_HANDLE_BAD_ARGUMENT);
    assert_int_equal(strata_handle_read(handles, 1, NULL), STRATA_HANDLE_BAD_ARGUMENT);
    assert_int_equal(strata_handle_read(handles, 1, &address), STRATA_HANDLE_NO_HANDLE);
    assert_int_equal(strata_handle_read(handles, UINT64_MAX, &address), STRATA_HANDLE_NO_HANDLE);
    assert_int_equal(strata_handle_free(handles, 0), STRATA_HANDLE_OK);
    assert_int_equal(strata_handles_destroy(NULL), STRATA_HANDLE_OK);
    for (int i = -1; i < 12; i++) assert_non_null(strata_handle_status_text((enum strata_handle_status)i));
}

static void a_freed_handle_is_none(void **state) {
    (void)state;
    const void *address;
    void *there;
    strata_handle first = filled(PAGE, 1);
    assert_int_equal(strata_handle_free(handles, first), STRATA_HANDLE_OK);
    strata_handle second = filled(PAGE, 2);
    assert_int_not_equal(first, second);
    assert_int_equal(strata_handle_free(handles, first), STRATA_HANDLE_NO_HANDLE);
    assert_int_equal(strata_handle_read(handles, first, &address), STRATA_HANDLE_NO_HANDLE);
    assert_int_equal(strata_handle_write(handles, first, &there), STRATA_HANDLE_NO_HANDLE);
    assert_int_equal(strata_handle_lock(handles, first, &there), STRATA_HANDLE_NO_HANDLE);
    assert_int_equal(strata_handle_unlock(handles, first), STRATA_HANDLE_NO_HANDLE);
    assert_int_equal(strata_handle_read_end(handles, second), STRATA_HANDLE_NOT_HELD);
    assert_int_equal(strata_handle_write_end(handles, second), STRATA_HANDLE_NOT_HELD);
    assert_int_equal(strata_handle_unlock(handles, second), STRATA_HANDLE_NOT_HELD);
    expect(second, PAGE, 2);
}

static void what_is_held_is_not_freed(void **state) {
    (void)state;
    const void *address;
    void *there;
    strata_handle handle = filled(PAGE, 3);
    assert_int_equal(strata_handle_read(handles, handle, &address), STRATA_HANDLE_OK);
    assert_int_equal(strata_handle_free(handles, handle), STRATA_HANDLE_IN_USE);
    assert_int_equal(strata_handles_destroy(handles), STRATA_HANDLE_IN_USE);
    assert_int_equal(strata_handle_read_end(handles, handle), STRATA_HANDLE_OK);
    assert_int_equal(strata_handle_write(handles, handle, &there), STRATA_HANDLE_OK);
    assert_int_equal(strata_handle_free(handles, handle), STRATA_HANDLE_IN_USE);
    assert_int_equal(strata_handle_write_end(handles, handle), STRATA_HANDLE_OK);
    /* Pinned by the program itself, in the zone. */
    uint64_t frame = info_of(handle).frame;
    assert_int_equal(strata_zone_pin(zone, frame, 1), STRATA_ZONE_OK);
    assert_int_equal(strata_handle_free(handles, handle), STRATA_HANDLE_IN_USE);
    assert_int_equal(strata_zone_unpin(zone, frame, 1), STRATA_ZONE_OK);
    expect(handle, PAGE, 3);
    assert_int_equal(strata_handle_free(handles, handle), STRATA_HANDLE_OK);
}

static void limits(void **state) {
    (void)state;
    struct strata_handles *few;
    strata_handle one, two, three;
    assert_int_equal(strata_handles_create(zone, 2, &few), STRATA_HANDLE_OK);
    assert_int_equal(strata_handle_alloc(few, 1, &one), STRATA_HANDLE_OK);
    assert_int_equal(strata_handle_alloc(few, 1, &two), STRATA_HANDLE_OK);
    assert_int_equal(strata_handle_alloc(few, 1, &three), STRATA_HANDLE_TOO_OFTEN);
    for (unsigned i = 0; i < STRATA_ZONE_PINS_MAX; i++) assert_int_equal(strata_handle_lock(few, one, NULL), STRATA_HANDLE_OK);
    assert_int_equal(strata_handle_lock(few, one, NULL), STRATA_HANDLE_TOO_OFTEN);
    for (unsigned i = 0; i < STRATA_ZONE_PINS_MAX; i++) assert_int_equal(strata_handle_unlock(few, one), STRATA_HANDLE_OK);
    assert_null(strata_handles_check(few));
    assert_int_equal(strata_handles_destroy(few), STRATA_HANDLE_OK);
    for (unsigned i = 0; i < 8; i++) assert_int_equal(strata_handle_alloc(handles, STRATA_ZONE_SUPERPAGE_BYTES, &one), STRATA_HANDLE_OK);
    assert_int_equal(strata_handle_alloc(handles, 1, &two), STRATA_HANDLE_NO_MEMORY); /* and its place is free again */
    assert_int_equal(strata_handle_free(handles, one), STRATA_HANDLE_OK);
    assert_int_equal(strata_handle_alloc(handles, 1, &two), STRATA_HANDLE_OK);
}

static void a_zone_without_memory_has_none(void **state) {
    (void)state;
    const struct strata_zone_config config = {.name = "sim", .backend = STRATA_ZONE_SIM, .bytes = STRATA_ZONE_SUPERPAGE_BYTES};
    struct strata_zone *sim;
    struct strata_handles *none = NULL;
    assert_int_equal(strata_zone_create(&config, &sim), STRATA_ZONE_OK);
    assert_int_equal(strata_handles_create(sim, 0, &none), STRATA_HANDLE_UNSUPPORTED);
    assert_null(none);
    assert_int_equal(strata_zone_destroy(sim), STRATA_ZONE_OK);
}

static void no_memory_for_the_table(void **state) {
    (void)state;
    for (unsigned n = 1; n <= 2; n++) {
        struct strata_handles *none = NULL;
        uint64_t reserved = sim_reserved_bytes();
        sim_fail_only(UINT64_C(1) << SIM_RESERVE | UINT64_C(1) << SIM_COMMIT);
        sim_fail_call(n, 1);
        assert_int_equal(strata_handles_create(zone, 0, &none), STRATA_HANDLE_NO_MEMORY);
        assert_int_equal(sim_failures(), 1);
        assert_null(none);
        assert_int_equal(sim_reserved_bytes(), reserved);
    }
    sim_fail_call(0, 0);
}

/* ------------------------------------------------------------------ interleavings */

static const char *wrong;
static strata_handle block;
static bool moved, freed;
static unsigned in_write, in_read;

static void went_wrong(const char *text) {
    if (wrong == NULL) wrong = text;
}
static bool is_whole(const unsigned char *bytes) { return bytes[0] == bytes[PAGE / 2] && bytes[0] == bytes[PAGE - 1]; }

/* Whoever has an address has the block behind it: it is not free, nor somebody else's. */
static bool is_there(const void *address) {
    struct strata_zone_frame_info info;
    uint64_t frame = (uint64_t)((const char *)address - (char *)strata_zone_address(zone, 0)) / strata_zone_frame_bytes(zone);
    return strata_zone_query(zone, frame, &info) == STRATA_ZONE_OK && info.allocated && (info.token == block || info.moving);
}

static void mover(void *unused) {
    (void)unused;
    struct strata_zone_compact_counts counts;
    if (strata_zone_compact(zone, 5, &counts) != STRATA_ZONE_OK) went_wrong("no pass");
    moved |= counts.moved != 0;
}
static void writer(void *unused) {
    (void)unused;
    void *address;
    for (int i = 1; i <= 2; i++) {
        enum strata_handle_status status = strata_handle_write(handles, block, &address);
        if (status == STRATA_HANDLE_NO_HANDLE && freed) return;
        if (status != STRATA_HANDLE_OK) went_wrong("no write guard");
        if (in_write++ != 0 || in_read != 0) went_wrong("a write guard beside another guard");
        if (!is_whole(address)) went_wrong("a write was lost, or half of it");
        unsigned char *bytes = address, value = (unsigned char)(bytes[0] + 1);
        bytes[0] = value;
        sim_yield();
        if (!is_there(address)) went_wrong("a block goes while it is written");
        bytes[PAGE / 2] = value;
        bytes[PAGE - 1] = value;
        in_write--;
        if (strata_handle_write_end(handles, block) != STRATA_HANDLE_OK) went_wrong("a write guard is lost");
    }
}
static void reader(void *unused) {
    (void)unused;
    const void *address;
    enum strata_handle_status status = strata_handle_read(handles, block, &address);
    if (status == STRATA_HANDLE_NO_HANDLE && freed) return;
    if (status != STRATA_HANDLE_OK) went_wrong("no read guard");
    in_read++;
    if (in_write != 0) went_wrong("a read guard beside a write guard");
    const unsigned char *bytes = address, value = bytes[0];
    sim_yield();
    if (bytes[0] != value || !is_whole(bytes) || !is_there(address)) went_wrong("a block changes, or goes, while it is read");
    in_read--;
    if (strata_handle_read_end(handles, block) != STRATA_HANDLE_OK) went_wrong("a read guard is lost");
}
/* A device writes to a locked block without a guard. */
static void locker(void *unused) {
    (void)unused;
    void *address;
    enum strata_handle_status status = strata_handle_lock(handles, block, &address);
    if (status == STRATA_HANDLE_NO_HANDLE && freed) return;
    if (status != STRATA_HANDLE_OK) went_wrong("no lock");
    unsigned char *bytes = address;
    bytes[1] = 77;
    sim_yield();
    const void *again;
    if (strata_handle_read(handles, block, &again) != STRATA_HANDLE_OK || again != address || bytes[1] != 77) went_wrong("a locked block has moved");
    if (strata_handle_read_end(handles, block) != STRATA_HANDLE_OK) went_wrong("a read guard is lost");
    if (strata_handle_unlock(handles, block) != STRATA_HANDLE_OK) went_wrong("a lock is lost");
}
static void freer(void *unused) {
    (void)unused;
    freed = true; /* from here on it may be */
    enum strata_handle_status status = strata_handle_free(handles, block);
    if (status == STRATA_HANDLE_IN_USE)
        freed = false;
    else if (status != STRATA_HANDLE_OK)
        went_wrong("not freed, and not in use");
}
/* Of a block that nobody holds: a move is no reason to refuse. */
static void sole_freer(void *unused) {
    freer(unused);
    if (!freed) went_wrong("a block that nobody holds is in use");
}

struct scene {
    void (*bodies[4])(void *);
    unsigned deviations;
    uint64_t runs_min;
};

static const char *run(void *context) {
    const struct scene *scene = context;
    sim_reset(NULL);
    sim_explore_ignore(true);
    open_zone(2 * STRATA_ZONE_SUPERPAGE_BYTES, 64 * KIB);
    wrong = NULL;
    freed = false;
    in_write = in_read = 0;
    /* The block is in the lower superpage; a frame is free in the upper one. */
    strata_handle others[64];
    unsigned count = 0;
    while (count < 64 && strata_handle_alloc(handles, 1, &others[count]) == STRATA_HANDLE_OK) count++;
    block = 0;
    for (unsigned i = 0, high = 0; i < count; i++) {
        if (info_of(others[i]).frame >= 32 ? high++ < 31 : block == 0) {
            if (info_of(others[i]).frame < 32) block = others[i];
            continue;
        }
        (void)strata_handle_free(handles, others[i]);
    }
    void *address;
    if (strata_handle_write(handles, block, &address) != STRATA_HANDLE_OK) return "no guard";
    memset(address, 5, 64 * KIB);
    (void)strata_handle_write_end(handles, block);
    sim_explore_ignore(false);
    for (unsigned i = 0; i < ARRAY_LENGTH(scene->bodies) && scene->bodies[i] != NULL; i++) sim_thread_start(i % 2, scene->bodies[i], NULL);
    if (!sim_run_threads_for(UINT64_C(1000000000)) || sim_threads_alive() != 0) went_wrong("a thread waits for ever");
    sim_explore_ignore(true);
    if (wrong == NULL) wrong = strata_handles_check(handles);
    if (wrong == NULL) wrong = strata_zone_check(zone);
    if (strata_handles_destroy(handles) != STRATA_HANDLE_OK || strata_zone_destroy(zone) != STRATA_ZONE_OK) went_wrong("something is held still");
    return wrong;
}

static void explore(struct scene scene) {
    struct sim_exploration exploration = {.scenario = run, .context = &scene, .deviations = sparse_deviations(scene.deviations)};
    moved = false;
    if (!sim_explore(&exploration)) fail_msg("%s", exploration.failure);
    if (exploration.runs < sparse_runs(scene.runs_min)) fail_msg("%llu runs only", (unsigned long long)exploration.runs);
    assert_true(moved);
}

static void a_move_against_writes(void **state) {
    (void)state;
    explore((struct scene){.bodies = {mover, writer}, .deviations = 3, .runs_min = 500});
}
static void a_move_against_reads(void **state) {
    (void)state;
    explore((struct scene){.bodies = {mover, reader, reader}, .deviations = 2, .runs_min = 500});
}
static void a_move_against_a_lock(void **state) {
    (void)state;
    explore((struct scene){.bodies = {mover, locker}, .deviations = 3, .runs_min = 500});
}
static void a_move_against_a_free(void **state) {
    (void)state;
    explore((struct scene){.bodies = {mover, sole_freer}, .deviations = 3, .runs_min = 500});
}
static void all_at_once(void **state) {
    (void)state;
    explore((struct scene){.bodies = {mover, writer, reader, freer}, .deviations = 2, .runs_min = 1000});
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(contents_move_with_the_handle),
        TEST(a_locked_block_stays),
        TEST(a_guarded_block_stays),
        TEST(blocks_of_many_frames),
        TEST(blocks_above_a_superpage),
        TEST(a_superpage_is_had_among_handles),
        TEST(bad_arguments),
        TEST(a_freed_handle_is_none),
        TEST(what_is_held_is_not_freed),
        TEST(limits),
        TEST(a_zone_without_memory_has_none),
        TEST(no_memory_for_the_table),
        cmocka_unit_test(a_move_against_writes),
        cmocka_unit_test(a_move_against_reads),
        cmocka_unit_test(a_move_against_a_lock),
        cmocka_unit_test(a_move_against_a_free),
        cmocka_unit_test(all_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
