/*
 * test_superpage.c - the functions on the bitfields of one superpage, against loops over single bits.
 */
#include "unit/page/page_support.h"

static void random_bits(uint64_t bits[SUPERPAGE_WORDS], uint64_t *seed) {
    /* Runs of all lengths: bits that follow their neighbour more or less often. */
    unsigned stay = (unsigned)(next_random(seed) % 6);
    bool bit = (next_random(seed) & 1) != 0;
    memset(bits, 0, SUPERPAGE_WORDS * sizeof *bits);
    for (unsigned i = 0; i < SUPERPAGE_GRANULES; i++) {
        if (next_random(seed) % (1u << stay) == 0) bit = !bit;
        if (bit) bits[i / 64] |= UINT64_C(1) << i % 64;
    }
}

static unsigned naive_find(const uint64_t bits[SUPERPAGE_WORDS], unsigned granules, unsigned align) {
    for (unsigned start = 0; start + granules <= SUPERPAGE_GRANULES; start += align) {
        unsigned length = 0;
        while (length < granules && has_bit(bits, start + length)) length++;
        if (length == granules) return start;
    }
    return SUPERPAGE_GRANULES;
}

static void find_is_the_lowest_fit(void **state) {
    (void)state;
    uint64_t bits[SUPERPAGE_WORDS], seed = 1;
    for (unsigned round = 0; round < 3000; round++) {
        random_bits(bits, &seed);
        unsigned granules = 1 + (unsigned)(next_random(&seed) % (round % 2 != 0 ? 8 : SUPERPAGE_GRANULES)), align = 1u << next_random(&seed) % 10;
        assert_int_equal(bits_find_run(bits, granules, align), naive_find(bits, granules, align));
    }
    memset(bits, 0xff, sizeof bits);
    assert_int_equal(bits_find_run(bits, SUPERPAGE_GRANULES, SUPERPAGE_GRANULES), 0);
    bits[SUPERPAGE_WORDS - 1] &= ~(UINT64_C(1) << 63);
    assert_int_equal(bits_find_run(bits, SUPERPAGE_GRANULES, 1), SUPERPAGE_GRANULES);
    assert_int_equal(bits_find_run(bits, SUPERPAGE_GRANULES - 1, 1), 0);
}

/* Runs longer than random bits have them: steps of the search of more than a word, to anywhere in another. */
static void find_sees_long_runs(void **state) {
    (void)state;
    uint64_t seed = 3;
    for (unsigned round = 0; round < 3000; round++) {
        uint64_t bits[SUPERPAGE_WORDS] = {0};
        const unsigned length = 1 + (unsigned)(next_random(&seed) % SUPERPAGE_GRANULES), align = 1u << next_random(&seed) % 10;
        const unsigned start = (unsigned)(next_random(&seed) % (SUPERPAGE_GRANULES - length + 1));
        bits_set(bits, start, length);
        assert_int_equal(bits_find_run(bits, length, 1), start);
        if (length < SUPERPAGE_GRANULES) assert_int_equal(bits_find_run(bits, length + 1, 1), SUPERPAGE_GRANULES);
        const unsigned granules = 1 + (unsigned)(next_random(&seed) % length);
        assert_int_equal(bits_find_run(bits, granules, align), naive_find(bits, granules, align));
    }
}

/* Where the bits in front of `before` begin to be as they are. */
static unsigned run_before(const uint64_t *bits, unsigned before, bool bit) {
    while (before != 0 && has_bit(bits, before - 1) == bit) before--;
    return before;
}

static void counts_and_lengths(void **state) {
    (void)state;
    uint64_t bits[SUPERPAGE_WORDS], seed = 2;
    for (unsigned round = 0; round < 2000; round++) {
        random_bits(bits, &seed);
        unsigned start = (unsigned)(next_random(&seed) % SUPERPAGE_GRANULES),
                 granules = 1 + (unsigned)(next_random(&seed) % (SUPERPAGE_GRANULES - start));
        unsigned set = 0, inside = 0, longest = 0, clear = 0, next_set = SUPERPAGE_GRANULES, next_clear = SUPERPAGE_GRANULES;
        for (unsigned i = 0; i < SUPERPAGE_GRANULES; i++) {
            bool bit = has_bit(bits, i);
            set += bit;
            inside += bit && i >= start && i < start + granules;
            clear = bit ? 0 : clear + 1;
            if (clear > longest) longest = clear;
            if (i >= start && bit && next_set == SUPERPAGE_GRANULES) next_set = i;
            if (i >= start && !bit && next_clear == SUPERPAGE_GRANULES) next_clear = i;
        }
        assert_int_equal(bits_count(bits), set);
        assert_int_equal(bits_count_range(bits, start, granules), inside);
        assert_int_equal(bits_longest_clear(bits), longest);
        assert_int_equal(bits_run_from(bits, start, 0), start == 0 || has_bit(bits, start - 1) ? start : run_before(bits, start, false));
        assert_int_equal(bits_run_from(bits, start, ~UINT64_C(0)), start == 0 || !has_bit(bits, start - 1) ? start : run_before(bits, start, true));
        assert_int_equal(bits_next(bits, start, 0), next_set);
        assert_int_equal(bits_next(bits, start, ~UINT64_C(0)), next_clear);
    }
    assert_int_equal(bits_next(bits, SUPERPAGE_GRANULES, 0), SUPERPAGE_GRANULES);
}

static void ranges_are_set_and_cleared_exactly(void **state) {
    (void)state;
    uint64_t bits[SUPERPAGE_WORDS], before[SUPERPAGE_WORDS], seed = 3;
    for (unsigned round = 0; round < 2000; round++) {
        random_bits(bits, &seed);
        unsigned start = (unsigned)(next_random(&seed) % SUPERPAGE_GRANULES),
                 granules = 1 + (unsigned)(next_random(&seed) % (SUPERPAGE_GRANULES - start));
        memcpy(before, bits, sizeof bits);
        if (round % 2 != 0)
            bits_set(bits, start, granules);
        else
            bits_clear(bits, start, granules);
        for (unsigned i = 0; i < SUPERPAGE_GRANULES; i++)
            assert_int_equal(has_bit(bits, i), i >= start && i < start + granules ? round % 2 != 0 : has_bit(before, i));
    }
}

static void a_place_of_present_pages_comes_first(void **state) {
    (void)state;
    uint64_t seed = 4;
    for (unsigned round = 0; round < 2000; round++) {
        struct superpage superpage = {0};
        uint64_t present[SUPERPAGE_WORDS], absent[SUPERPAGE_WORDS];
        random_bits(superpage.allocated, &seed);
        random_bits(superpage.populated, &seed);
        if (round % 2 == 1) { /* a word that is wholly idle */
            superpage.allocated[round % SUPERPAGE_WORDS] = 0;
            superpage.populated[round % SUPERPAGE_WORDS] = ~UINT64_C(0);
        }
        for (unsigned w = 0; w < SUPERPAGE_WORDS; w++) {
            superpage.populated[w] |= superpage.allocated[w];
            present[w] = superpage.populated[w] & ~superpage.allocated[w];
            absent[w] = ~superpage.allocated[w];
        }
        superpage_recount(&superpage);
        assert_int_equal(superpage.idle, bits_count(present));
        assert_int_equal(superpage.free, bits_count(absent));
        superpage.idle = 0;
        superpage_recount_idle(&superpage); /* the other counts stay */
        assert_int_equal(superpage.idle, bits_count(present));
        assert_int_equal(superpage.free, bits_count(absent));
        unsigned granules = 1 + (unsigned)(next_random(&seed) % 12), align = 1u << next_random(&seed) % 4;
        unsigned expected = naive_find(present, granules, align);
        if (expected == SUPERPAGE_GRANULES) expected = naive_find(absent, granules, align);
        assert_int_equal(superpage_find_run(&superpage, granules, align), expected);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(find_is_the_lowest_fit),
        cmocka_unit_test(find_sees_long_runs),
        cmocka_unit_test(counts_and_lengths),
        cmocka_unit_test(ranges_are_set_and_cleared_exactly),
        cmocka_unit_test(a_place_of_present_pages_comes_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
