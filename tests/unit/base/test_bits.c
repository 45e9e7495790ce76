/*
 * test_bits.c - the integer helpers of base.h against slow definitions.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/base.h"

/* Each bit, its neighbours, and some patterns. */
static uint64_t sample(unsigned i) {
    switch (i % 4) {
    case 0: return UINT64_C(1) << i / 4;
    case 1: return (UINT64_C(1) << i / 4) - 1;
    case 2: return (UINT64_C(1) << i / 4) + 1;
    default: return UINT64_C(0x9e3779b97f4a7c15) * (i + 1) >> i / 4;
    }
}
#define SAMPLES (4 * 64)

static void bits(void **state) {
    (void)state;
    for (unsigned i = 0; i < SAMPLES; i++) {
        uint64_t x = sample(i);
        unsigned count = 0, lowest = 64, highest = 0;
        for (unsigned bit = 0; bit < 64; bit++) {
            if ((x >> bit & 1) == 0) continue;
            count++;
            highest = bit;
            if (lowest == 64) lowest = bit;
        }
        assert_int_equal(bit_count(x), count);
        assert_int_equal(is_power_of_two(x), count == 1);
        if (x == 0) continue;
        assert_int_equal(bit_lowest(x), lowest);
        assert_int_equal(bit_highest(x), highest);
    }
}

static void alignment(void **state) {
    (void)state;
    for (unsigned shift = 0; shift < 48; shift++) {
        uint64_t align = UINT64_C(1) << shift;
        for (unsigned i = 0; i < SAMPLES; i++) {
            uint64_t x = sample(i) >> 2;
            assert_int_equal(align_down(x, align), x - x % align);
            assert_int_equal(align_up(x, align), x % align == 0 ? x : x - x % align + align);
        }
    }
}

static void smaller_and_larger(void **state) {
    (void)state;
    for (unsigned i = 1; i < SAMPLES; i++) {
        uint64_t a = sample(i), b = sample(SAMPLES - i);
        assert_true(min_u64(a, b) <= a && min_u64(a, b) <= b && (min_u64(a, b) == a || min_u64(a, b) == b));
        assert_true(max_u64(a, b) >= a && max_u64(a, b) >= b && (max_u64(a, b) == a || max_u64(a, b) == b));
    }
    assert_int_equal(max_u64(UINT64_MAX, 1), UINT64_MAX); /* unsigned throughout */
    assert_int_equal(min_u64(UINT64_MAX, 1), 1);
}

static void structures(void **state) {
    (void)state;
    struct outer {
        char first;
        uint64_t inner[3];
    } outer;
    unsigned calls = 0;
    uint64_t counter = 40;
    assert_ptr_equal(CONTAINER_OF(&outer.inner[2], struct outer, inner[2]), &outer);
    assert_int_equal(ARRAY_LENGTH(outer.inner), 3);
    COUNTER_ADD(counter, 3 + calls++);
    assert_int_equal(counter, 43);
    COUNTER_SUB(counter, counter);
    assert_int_equal(counter, 0);
    assert_int_equal(calls, 1);
    assert_int_equal(GIB / MIB, MIB / KIB);
    assert_int_equal(KIB * KIB * KIB, GIB);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits),
        cmocka_unit_test(alignment),
        cmocka_unit_test(smaller_and_larger),
        cmocka_unit_test(structures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
