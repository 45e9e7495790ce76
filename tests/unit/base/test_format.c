/*
 * test_format.c - format_text against the C library's snprintf, where both know a conversion; and where strata's is its own.
 */
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/check.h"

/* Both, into buffers of every size from none to more than enough: the same length, the same text, nothing written behind it. */
#define SAME_AS_SNPRINTF(...)                                                                   \
    do {                                                                                        \
        char wanted[128], got[128];                                                             \
        int length = snprintf(wanted, sizeof wanted, __VA_ARGS__);                              \
        assert_true(length >= 0 && (size_t)length < sizeof wanted - 4);                         \
        for (size_t bytes = 0; bytes <= (size_t)length + 2; bytes++) {                          \
            memset(got, '#', sizeof got);                                                       \
            if (bytes != 0) snprintf(wanted, bytes, __VA_ARGS__);                               \
            assert_int_equal(format_text(bytes == 0 ? NULL : got, bytes, __VA_ARGS__), length); \
            if (bytes != 0) assert_string_equal(got, wanted);                                   \
            for (size_t at = bytes; at < sizeof got; at++) assert_int_equal(got[at], '#');      \
        }                                                                                       \
    } while (0)

static void numbers(void **state) {
    (void)state;
    static const int ints[] = {0, 1, -1, 9, 10, -10, 4242, INT_MAX, INT_MIN};
    static const unsigned unsigneds[] = {0, 1, 9, 10, 255, 4096, UINT_MAX};
    static const long longs[] = {0, -1, 1234567890123, LONG_MAX, LONG_MIN};
    static const unsigned long unsigned_longs[] = {0, 15, 16, 1234567890123, ULONG_MAX};
    for (unsigned i = 0; i < ARRAY_LENGTH(ints); i++)
        SAME_AS_SNPRINTF("%d|%5d|%05d|%12d|%012d|%1d", ints[i], ints[i], ints[i], ints[i], ints[i], ints[i]);
    for (unsigned i = 0; i < ARRAY_LENGTH(unsigneds); i++)
        SAME_AS_SNPRINTF("%u|%5u|%05u|%x|%6x|%06x", unsigneds[i], unsigneds[i], unsigneds[i], unsigneds[i], unsigneds[i], unsigneds[i]);
    for (unsigned i = 0; i < ARRAY_LENGTH(longs); i++) SAME_AS_SNPRINTF("%ld|%20ld|%020ld|%lld", longs[i], longs[i], longs[i], (long long)longs[i]);
    for (unsigned i = 0; i < ARRAY_LENGTH(unsigned_longs); i++) {
        unsigned long value = unsigned_longs[i];
        SAME_AS_SNPRINTF("%lu|%zu|%llu|%20lu", value, (size_t)value, (unsigned long long)value, value);
        SAME_AS_SNPRINTF("%lx|%zx|%llx|%016lx|%18lx", value, (size_t)value, (unsigned long long)value, value, value);
    }
}

static void texts(void **state) {
    (void)state;
    static const char *const strings[] = {"", "a", "cache malloc-64", "100%", "\xc3\xa9"};
    SAME_AS_SNPRINTF("no conversion at all");
    SAME_AS_SNPRINTF("%%");
    SAME_AS_SNPRINTF("%% of %d%%", 50);
    SAME_AS_SNPRINTF("%c%c", 'x', '%');
    for (unsigned i = 0; i < ARRAY_LENGTH(strings); i++) {
        SAME_AS_SNPRINTF("[%s]", strings[i]);
        SAME_AS_SNPRINTF("[%8s|%-8s|%1s]", strings[i], strings[i], strings[i]);
        for (int width = 0; width <= 20; width += 5) SAME_AS_SNPRINTF("[%*s|%-*s]", width, strings[i], width, strings[i]);
    }
    for (int width = 0; width <= 12; width += 3) SAME_AS_SNPRINTF("[%*d|%0*d|%*x]", width, -77, width, -77, width, 77u);
}

static void pointers(void **state) {
    (void)state;
    char text[32];
    int object;
    SAME_AS_SNPRINTF("%p", (void *)&object);
    SAME_AS_SNPRINTF("%p", (void *)UINTPTR_MAX);
    /* The null pointer is a number like the others, unlike the C library's "(nil)". */
    assert_int_equal(format_text(text, sizeof text, "%p", (void *)0), 3);
    assert_string_equal(text, "0x0");
}

/* A mistake in a message must not end the process, which may be in the middle of reporting another. */
static size_t format_unchecked(char *text, size_t bytes, const char *format, ...) {
    va_list args;
    va_start(args, format);
    size_t length = format_text_v(text, bytes, format, args);
    va_end(args);
    return length;
}

static void what_it_does_not_know_is_shown(void **state) {
    (void)state;
    char text[32];
    assert_int_equal(format_unchecked(text, sizeof text, "[%s]", (const char *)NULL), 8);
    assert_string_equal(text, "[(null)]");
    assert_int_equal(format_unchecked(text, sizeof text, "a%qb"), 4);
    assert_string_equal(text, "a%qb");
    assert_int_equal(format_unchecked(text, sizeof text, "100%"), 4);
    assert_string_equal(text, "100%");
    assert_int_equal(format_unchecked(text, sizeof text, "%08"), 1);
    assert_string_equal(text, "%");
    assert_int_equal(format_unchecked(text, sizeof text, "%f%d", 7), 3);
    assert_string_equal(text, "%f7");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers),
        cmocka_unit_test(texts),
        cmocka_unit_test(pointers),
        cmocka_unit_test(what_it_does_not_know_is_shown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
