/*
 * test_page_api.c - blocks of pages as programs see them: every wrong argument one by one, what flags promise, and batches that are looked at as a
 * whole before anything is done.
 */
#include "unit/api/page_api_support.h"

static void statuses_have_texts_of_their_own(void **state) {
    (void)state;
    for (int i = STRATA_PAGE_OK; i <= STRATA_PAGE_NOT_DONE + 1; i++)
        for (int j = STRATA_PAGE_OK; j < i; j++)
            assert_string_not_equal(strata_page_status_text((enum strata_page_status)i), strata_page_status_text((enum strata_page_status)j));
}

static void wrong_requests_are_refused_one_by_one(void **state) {
    (void)state;
    const struct strata_page_request wrong[] = {
        {.bytes = 0},
        {.bytes = SIZE_MAX},
        {.bytes = (size_t)PTRDIFF_MAX + 1},
        {.bytes = 1, .align = 3},
        {.bytes = 1, .align = (size_t)1 << 63},
        {.bytes = 1, .reserve_bytes = SIZE_MAX},
        {.bytes = 1, .flags = 64},
        {.bytes = 1, .flags = STRATA_PAGE_UNMOVABLE | STRATA_PAGE_RECLAIMABLE},
    };
    void *block = &block;
    for (size_t i = 0; i < ARRAY_LENGTH(wrong); i++) {
        if (strata_page_alloc_as(&wrong[i], &block) != STRATA_PAGE_BAD_ARGUMENT) fail_msg("request %zu was not refused", i);
        assert_ptr_equal(block, &block);
    }
    assert_int_equal(strata_page_alloc_as(NULL, &block), STRATA_PAGE_BAD_ARGUMENT);
    assert_int_equal(strata_page_alloc(1, 0, NULL), STRATA_PAGE_BAD_ARGUMENT);
    assert_int_equal(strata_page_alloc((size_t)PTRDIFF_MAX, 0, &block), STRATA_PAGE_NO_MEMORY);
}

static void what_is_no_block_is_refused_everywhere(void **state) {
    (void)state;
    char *small = strata_malloc(100), local[64];
    void *bad[] = {NULL, local, small, small + 1, (void *)UINTPTR_MAX, (void *)(uintptr_t)16};
    for (size_t i = 0; i < ARRAY_LENGTH(bad); i++) {
        void *block = bad[i], *second;
        struct strata_page_info info;
        if (block != NULL) assert_int_equal(strata_page_free(block), STRATA_PAGE_NO_BLOCK);
        assert_int_equal(strata_page_realloc(&block, 4096, 0), STRATA_PAGE_NO_BLOCK);
        assert_ptr_equal(block, bad[i]);
        assert_int_equal(strata_page_reserve(block, 4096), STRATA_PAGE_NO_BLOCK);
        assert_int_equal(strata_page_split(block, 4096, &second), STRATA_PAGE_NO_BLOCK);
        assert_int_equal(strata_page_join(block, block), STRATA_PAGE_NO_BLOCK);
        assert_int_equal(strata_page_query(block, &info), STRATA_PAGE_NO_BLOCK);
        char *page = (char *)align_down((uintptr_t)block, 4096);
        assert_int_not_equal(strata_page_commit(page, 4096), STRATA_PAGE_OK);
        assert_int_not_equal(strata_page_release(page, 4096), STRATA_PAGE_OK);
        assert_int_not_equal(strata_page_swap(page, page, 4096), STRATA_PAGE_OK);
        assert_int_not_equal(strata_page_move(page, page, 4096), STRATA_PAGE_OK);
    }
    char *block = must_alloc(8 * MIB, 0);
    void *p = block;
    assert_int_equal(strata_page_free(block + 4096), STRATA_PAGE_NO_BLOCK);
    assert_int_equal(strata_page_realloc(&p, 0, 0), STRATA_PAGE_BAD_ARGUMENT);
    assert_int_equal(strata_page_realloc(&p, SIZE_MAX, 0), STRATA_PAGE_BAD_ARGUMENT);
    assert_int_equal(strata_page_realloc(&p, 4096, STRATA_PAGE_HUGE), STRATA_PAGE_BAD_ARGUMENT);
    assert_int_equal(strata_page_realloc(NULL, 4096, 0), STRATA_PAGE_BAD_ARGUMENT);
    assert_int_equal(strata_page_query(block, NULL), STRATA_PAGE_BAD_ARGUMENT);
    assert_int_equal(strata_page_reserve(block, 0), STRATA_PAGE_BAD_ARGUMENT);
    assert_int_equal(strata_page_swap(block, block + 4096, 8192), STRATA_PAGE_OVERLAP);
    assert_int_equal(strata_page_release(block + 1, 4096), STRATA_PAGE_BAD_ARGUMENT);
    must_free(block);
    assert_int_equal(strata_page_free(block), STRATA_PAGE_NO_BLOCK);
    assert_int_equal(strata_page_free(NULL), STRATA_PAGE_OK);
    strata_free(small);
    ASSERT_SOUND();
}

static void zeroed_blocks_are_zeros_whatever_was_there(void **state) {
    (void)state;
    static const size_t sizes[] = {4 * KIB, 100 * KIB, 3 * MIB, 9 * MIB};
    for (size_t i = 0; i < ARRAY_LENGTH(sizes); i++)
        for (unsigned round = 0; round < 3; round++) {
            char *block = must_alloc(sizes[i], STRATA_PAGE_ZEROED);
            assert_true(is(block, sizes[i], 0));
            memset(block, 9, sizes[i]);
            void *p = block;
            assert_int_equal(strata_page_realloc(&p, sizes[i] * 2, STRATA_PAGE_ZEROED), STRATA_PAGE_OK);
            assert_true(is(p, sizes[i], 9) && is((char *)p + sizes[i], sizes[i], 0));
            memset(p, 9, sizes[i] * 2);
            must_free(p);
        }
    ASSERT_SOUND();
}

static void blocks_of_malloc_are_blocks(void **state) {
    (void)state;
    char *block = strata_malloc(6 * MIB), *other = must_alloc(6 * MIB, 0);
    memset(block, 1, 6 * MIB), memset(other, 2, 6 * MIB);
    assert_int_equal(strata_page_swap(block, other, 6 * MIB), STRATA_PAGE_OK);
    assert_true(is(block, 6 * MIB, 2) && is(other, 6 * MIB, 1));
    strata_free(other);
    must_free(block);
    ASSERT_SOUND();
}

static void a_query_tells_what_is_there(void **state) {
    (void)state;
    char *block = must_alloc(6 * MIB, STRATA_PAGE_PREFAULT);
    struct strata_page_info info = info_of(block + 5 * MIB);
    assert_ptr_equal(info.block, block);
    assert_true(info.presence_known && info.huge_known);
    assert_int_equal(info.present_bytes, 6 * MIB);
    assert_int_equal(strata_page_release(block + MIB, MIB), STRATA_PAGE_OK);
    info = info_of(block);
    assert_int_equal(info.present_bytes, 5 * MIB);
    assert_int_equal(info.zero_bytes, MIB);
    assert_int_equal(info.swapped_bytes, 0);
    sim_fail_only(UINT64_C(1) << SIM_PRESENCE);
    sim_fail_call(1, SIM_FOREVER);
    info = info_of(block);
    assert_true(!info.presence_known && !info.huge_known);
    assert_int_equal(info.present_bytes + info.zero_bytes + info.huge_bytes, 0);
    sim_fail_call(0, 0);
    must_free(block);
}

/* ------------------------------------------------------------------ batches */

static bool stay(void *from, void *to, size_t bytes, void *argument) {
    (void)from, (void)to, (void)bytes, (void)argument;
    return false;
}

static void a_batch_with_a_fault_does_nothing(void **state) {
    (void)state;
    char *a = must_alloc(4 * MIB, 0), *b = must_alloc(4 * MIB, 0), *c = must_alloc(4 * MIB, 0), *small = must_alloc(8192, 0);
    char *fixed = must_alloc(8192, STRATA_PAGE_NO_MOVE);
    struct strata_page_info info;
    memset(a, 1, 4 * MIB), memset(b, 2, 4 * MIB);
    const struct strata_page_op faults[] = {
        {.operation = (enum strata_page_operation)99},
        {.operation = STRATA_PAGE_OP_ALLOC, .bytes = 0},
        {.operation = STRATA_PAGE_OP_FREE, .address = a + 4096},
        {.operation = STRATA_PAGE_OP_REALLOC, .address = b, .bytes = 0},
        {.operation = STRATA_PAGE_OP_COMMIT, .address = b + 1, .bytes = 4096},
        {.operation = STRATA_PAGE_OP_RELEASE, .address = b, .bytes = 5 * MIB},
        {.operation = STRATA_PAGE_OP_SWAP, .address = b, .other = b + 4096, .bytes = 8192},
        {.operation = STRATA_PAGE_OP_MOVE, .address = b, .other = NULL, .bytes = 4096},
        {.operation = STRATA_PAGE_OP_JOIN, .address = b, .other = NULL},
        {.operation = STRATA_PAGE_OP_JOIN, .address = c, .other = c},
        {.operation = STRATA_PAGE_OP_JOIN, .address = c, .other = small},
        {.operation = STRATA_PAGE_OP_RESERVE, .address = small, .bytes = 64 * MIB},
        {.operation = STRATA_PAGE_OP_COMMIT, .address = b, .bytes = 4096, .flags = 0xffff},
        {.operation = STRATA_PAGE_OP_FREE, .address = c, .flags = STRATA_PAGE_ZEROED},
        {.operation = STRATA_PAGE_OP_REALLOC, .address = c, .bytes = MIB, .flags = STRATA_PAGE_HUGE},
        {.operation = STRATA_PAGE_OP_ALLOC, .bytes = 4096, .align = 3},
        {.operation = STRATA_PAGE_OP_ALLOC, .bytes = 4096, .reserve_bytes = SIZE_MAX},
        {.operation = STRATA_PAGE_OP_PREFAULT, .address = b + 1, .bytes = 4096},
        {.operation = STRATA_PAGE_OP_QUERY, .address = b},
        {.operation = STRATA_PAGE_OP_QUERY, .address = &info, .info = &info},
        {.operation = STRATA_PAGE_OP_SET_MOVE, .address = b + 4096, .move = stay},
        {.operation = STRATA_PAGE_OP_SET_MOVE, .address = fixed, .move = stay},
        {.operation = STRATA_PAGE_OP_FREE, .address = a}, /* the first one's block */
        {.operation = STRATA_PAGE_OP_SPLIT, .address = a, .bytes = 2 * MIB},
    };
    const size_t own = ARRAY_LENGTH(faults) - 2; /* wrong by themselves */
    for (size_t i = 0; i < ARRAY_LENGTH(faults); i++) {
        struct strata_page_op ops[] = {{.operation = STRATA_PAGE_OP_SWAP, .address = a, .other = b, .bytes = MIB}, faults[i]};
        size_t done = 77;
        enum strata_page_status status = strata_page_batch(ops, 2, &done);
        if (status == STRATA_PAGE_OK || done != 0 || ops[1].status == STRATA_PAGE_OK || ops[1].status == STRATA_PAGE_NOT_DONE)
            fail_msg("fault %zu: status %d, %zu done", i, status, done);
        assert_int_equal(ops[0].status, i < own ? STRATA_PAGE_NOT_DONE : STRATA_PAGE_OVERLAP);
        assert_true(is(a, 4 * MIB, 1) && is(b, 4 * MIB, 2));
    }
    size_t done;
    assert_int_equal(strata_page_batch(NULL, 1, &done), STRATA_PAGE_BAD_ARGUMENT);
    assert_int_equal(strata_page_batch(NULL, 0, &done), STRATA_PAGE_OK);
    must_free(a), must_free(b), must_free(c), must_free(small), must_free(fixed);
    ASSERT_SOUND();
}

/* What a batch needs itself lies in the heap, too, and is as foreign to it as any other memory. */
static void a_batch_is_not_let_into_its_own_memory(void **state) {
    (void)state;
    const size_t page = platform_info()->page_bytes;
    char *block = must_alloc(page, 0), *superpage = (char *)align_down((uintptr_t)block, STRATA_PAGE_SUPERPAGE_BYTES);
    for (char *at = superpage; at < superpage + STRATA_PAGE_SUPERPAGE_BYTES; at += page) {
        if (at == block) continue;
        for (unsigned operation = STRATA_PAGE_OP_FREE; operation <= STRATA_PAGE_OP_SET_MOVE; operation++) {
            struct strata_page_info info;
            struct strata_page_op op = {.operation = (enum strata_page_operation)operation, .address = at, .other = block, .bytes = page};
            if (operation == STRATA_PAGE_OP_QUERY) op.info = &info;
            assert_int_equal(strata_page_batch(&op, 1, NULL), STRATA_PAGE_NO_BLOCK);
        }
    }
    must_free(block);
}

static void a_batch_is_done_in_order(void **state) {
    (void)state;
    char *a = must_alloc(4 * MIB, 0), *b = must_alloc(4 * MIB, 0);
    memset(a, 1, 4 * MIB), memset(b, 2, 4 * MIB);
    struct strata_page_op ops[] = {
        {.operation = STRATA_PAGE_OP_SWAP, .address = a, .other = b, .bytes = MIB},
        {.operation = STRATA_PAGE_OP_SWAP, .address = a + MIB, .other = b + MIB, .bytes = MIB}, /* with the one before: one call */
        {.operation = STRATA_PAGE_OP_MOVE, .address = a, .other = b + 3 * MIB, .bytes = MIB},
        {.operation = STRATA_PAGE_OP_RELEASE, .address = b, .bytes = 4096},
        {.operation = STRATA_PAGE_OP_RELEASE, .address = b + 8192, .bytes = 4096},
        {.operation = STRATA_PAGE_OP_ALLOC, .bytes = 5000, .flags = STRATA_PAGE_ZEROED},
        {.operation = STRATA_PAGE_OP_FREE, .address = NULL}, /* twice: claims nothing */
        {.operation = STRATA_PAGE_OP_FREE, .address = NULL},
    };
    uint64_t moves = sim_calls(SIM_MOVE);
    size_t done;
    assert_int_equal(strata_page_batch(ops, ARRAY_LENGTH(ops), &done), STRATA_PAGE_OK);
    assert_int_equal(done, ARRAY_LENGTH(ops));
    assert_int_equal(sim_calls(SIM_MOVE) - moves, 2);
    assert_true(is(a, MIB, 0) && is(a + MIB, MIB, 2) && is(a + 2 * MIB, 2 * MIB, 1));
    assert_true(is(b, 4096, 0) && is(b + 4096, 4096, 1) && is(b + 8192, 4096, 0) && is(b + MIB, MIB, 1) && is(b + 3 * MIB, MIB, 2));
    struct strata_page_op ends[] = {{.operation = STRATA_PAGE_OP_FREE, .address = a},
                                    {.operation = STRATA_PAGE_OP_REALLOC, .address = b, .bytes = 20 * MIB},
                                    {.operation = STRATA_PAGE_OP_SPLIT, .address = ops[5].address, .bytes = 4096}};
    assert_int_equal(strata_page_batch(ends, 3, NULL), STRATA_PAGE_OK);
    assert_int_equal(info_of(ends[1].address).bytes, 20 * MIB);
    assert_ptr_equal(ends[2].other, (char *)ops[5].address + 4096);
    must_free(ends[1].address), must_free(ops[5].address), must_free(ends[2].other);
    ASSERT_SOUND();
}

static bool count_calls(size_t done, void *argument) {
    (void)done;
    return ++*(unsigned *)argument < 3;
}

/* Alignment and reserve, presence with a word in between, questions, and functions that move: in a batch as alone. */
static void a_batch_has_every_operation(void **state) {
    (void)state;
    enum { PREFAULTED = 40 };
    struct strata_page_info first, whole, behind;
    unsigned calls = 0;
    size_t done;
    char *block = must_alloc(PREFAULTED * MIB, 0), *movable = must_alloc(8192, 0);
    struct strata_page_op ops[] = {
        {.operation = STRATA_PAGE_OP_QUERY, .address = block + 5, .info = &first},
        {.operation = STRATA_PAGE_OP_ALLOC, .bytes = 5000, .align = 64 * KIB},
        {.operation = STRATA_PAGE_OP_ALLOC, .bytes = 5000, .reserve_bytes = 20 * MIB, .flags = STRATA_PAGE_NO_MOVE},
        {.operation = STRATA_PAGE_OP_COMMIT, .address = block, .bytes = 4096},
        {.operation = STRATA_PAGE_OP_PREFAULT, .address = block + 8192, .bytes = 4096},
        {.operation = STRATA_PAGE_OP_QUERY, .address = block, .info = &whole},
        {.operation = STRATA_PAGE_OP_SET_MOVE, .address = movable, .move = stay, .argument = &calls},
        {.operation = STRATA_PAGE_OP_PREFAULT, .address = block, .bytes = PREFAULTED * MIB, .progress = count_calls, .argument = &calls},
        {.operation = STRATA_PAGE_OP_QUERY, .address = movable, .info = &behind},
    };
    const size_t last = ARRAY_LENGTH(ops) - 1;
    assert_int_equal(strata_page_release(block, PREFAULTED * MIB), STRATA_PAGE_OK);
    assert_int_equal(strata_page_batch(ops, ARRAY_LENGTH(ops), &done), STRATA_PAGE_CUT_SHORT);
    assert_int_equal(done, last - 1);
    assert_int_equal(ops[last - 1].status, STRATA_PAGE_CUT_SHORT);
    assert_int_equal(ops[last].status, STRATA_PAGE_NOT_DONE);
    assert_int_equal(calls, 3);
    assert_true(first.block == block && first.bytes == PREFAULTED * MIB && first.present_bytes == 0);
    assert_true(whole.block == block && whole.present_bytes >= 2 * 4096 && whole.present_bytes <= 2 * platform_info()->page_bytes);
    assert_true(info_of(block).present_bytes > 16 * MIB);
    assert_int_equal((uintptr_t)ops[1].address % (64 * KIB), 0);
    assert_true(info_of(ops[2].address).capacity_bytes >= 20 * MIB && (info_of(ops[2].address).flags & STRATA_PAGE_NO_MOVE) != 0);
    struct zone_block_info inside;
    assert_int_equal(zone_block_find(&heap.zone, movable, 1, &inside), ZONE_OK);
    assert_true(inside.move == stay && inside.argument == &calls);
    must_free(block), must_free(movable), must_free(ops[1].address), must_free(ops[2].address);
    ASSERT_SOUND();
}

/* Without a word in between they are one row, which is done again one by one where the system failed in the middle: that shows it. */
static void what_is_made_present_in_a_row_goes_by_one_call(void **state) {
    (void)state;
    struct strata_page_op ops[12];
    char *block = must_alloc(4 * MIB, 0);
    uint64_t most = 0;
    for (size_t i = 0; i < ARRAY_LENGTH(ops); i++)
        ops[i] = (struct strata_page_op){
            .operation = i % 2 == 0 ? STRATA_PAGE_OP_COMMIT : STRATA_PAGE_OP_PREFAULT, .address = block + 2 * i * 64 * KIB, .bytes = 64 * KIB};
    for (uint64_t fails = 1; fails <= ARRAY_LENGTH(ops); fails++) {
        assert_int_equal(strata_page_release(block, 4 * MIB), STRATA_PAGE_OK);
        sim_fail_call(fails, 1);
        uint64_t calls = sim_calls(SIM_POPULATE);
        assert_int_equal(strata_page_batch(ops, ARRAY_LENGTH(ops), NULL), STRATA_PAGE_OK);
        most = max_u64(most, sim_calls(SIM_POPULATE) - calls);
        sim_fail_call(0, 0);
        assert_int_equal(info_of(block).present_bytes, ARRAY_LENGTH(ops) * 64 * KIB);
    }
    assert_true(most > ARRAY_LENGTH(ops) + 4);
    must_free(block);
}

static void memory_that_ends_in_a_batch_is_reported_exactly(void **state) {
    (void)state;
    struct strata_page_op ops[8];
    strata_free(strata_malloc(1));
    heap.zone.config.hard_limit_bytes = 25 * MIB;
    for (size_t i = 0; i < ARRAY_LENGTH(ops); i++) ops[i] = (struct strata_page_op){.operation = STRATA_PAGE_OP_ALLOC, .bytes = 6 * MIB};
    size_t done;
    assert_int_equal(strata_page_batch(ops, ARRAY_LENGTH(ops), &done), STRATA_PAGE_NO_MEMORY);
    assert_int_equal(done, 4);
    for (size_t i = 0; i < ARRAY_LENGTH(ops); i++)
        assert_int_equal(ops[i].status, i < 4 ? STRATA_PAGE_OK : i == 4 ? STRATA_PAGE_NO_MEMORY : STRATA_PAGE_NOT_DONE);
    for (size_t i = 0; i < done; i++) must_free(ops[i].address);
    ASSERT_SOUND();
}

/* Claims of every kind against a check of all pairs; some begin where their block does. */
static void conflicts_are_found_as_all_pairs_would(void **state) {
    (void)state;
    enum { BLOCKS = 4, OPS = 6, ROUNDS = 3000 };
    char *blocks[BLOCKS];
    uint64_t random = 12345;
    for (unsigned i = 0; i < BLOCKS; i++) blocks[i] = must_alloc(4 * MIB, 0);
    for (unsigned round = 0; round < ROUNDS; round++) {
        struct strata_page_op ops[OPS + 1];
        struct {
            char *start, *end;
            bool whole;
        } claims[OPS];
        for (unsigned i = 0; i < OPS; i++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            char *block = blocks[(random >> 33) % BLOCKS], *at = block + (random >> 40) % 1000 * (random >> 39 & 1) * 4096;
            size_t bytes = (1 + (random >> 50) % 20) * 4096;
            bool whole = (random >> 60) == 0;
            ops[i] = whole ? (struct strata_page_op){.operation = STRATA_PAGE_OP_RESERVE, .address = block, .bytes = 4096}
                           : (struct strata_page_op){.operation = STRATA_PAGE_OP_COMMIT, .address = at, .bytes = bytes};
            claims[i].start = whole ? block : at;
            claims[i].end = whole ? block + 4 * MIB : at + bytes;
            claims[i].whole = whole;
        }
        bool conflict[OPS] = {false};
        for (unsigned i = 0; i < OPS; i++)
            for (unsigned j = 0; j < OPS; j++)
                conflict[i] |= i != j && (claims[i].whole || claims[j].whole) && claims[i].start < claims[j].end && claims[j].start < claims[i].end;
        size_t done;
        ops[OPS] = (struct strata_page_op){.operation = STRATA_PAGE_OP_ALLOC, .bytes = 0}; /* whatever is found, nothing is to be done */
        (void)strata_page_batch(ops, OPS + 1, &done);
        for (unsigned i = 0; i < OPS; i++) {
            bool named = ops[i].status == STRATA_PAGE_OVERLAP;
            if (named != conflict[i]) fail_msg("round %u: a conflict of %u was %s", round, i, named ? "seen where there is none" : "missed");
        }
        assert_int_equal(done, 0);
    }
    for (unsigned i = 0; i < BLOCKS; i++) must_free(blocks[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(statuses_have_texts_of_their_own, fresh_process),
        cmocka_unit_test_setup(wrong_requests_are_refused_one_by_one, fresh_process),
        cmocka_unit_test_setup(what_is_no_block_is_refused_everywhere, fresh_process),
        cmocka_unit_test_setup(zeroed_blocks_are_zeros_whatever_was_there, fresh_process),
        cmocka_unit_test_setup(blocks_of_malloc_are_blocks, fresh_process),
        cmocka_unit_test_setup(a_query_tells_what_is_there, fresh_process),
        cmocka_unit_test_setup(a_batch_with_a_fault_does_nothing, fresh_process),
        cmocka_unit_test_setup(a_batch_is_not_let_into_its_own_memory, fresh_process),
        cmocka_unit_test_setup(a_batch_is_done_in_order, fresh_process),
        cmocka_unit_test_setup(a_batch_has_every_operation, fresh_process),
        cmocka_unit_test_setup(what_is_made_present_in_a_row_goes_by_one_call, fresh_process),
        cmocka_unit_test_setup(memory_that_ends_in_a_batch_is_reported_exactly, fresh_process),
        cmocka_unit_test_setup(conflicts_are_found_as_all_pairs_would, fresh_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
