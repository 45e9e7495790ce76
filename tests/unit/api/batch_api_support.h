/*
 * batch_api_support.h - what the tests of batches share: a fresh heap, and one element by each of the three functions.
 */
#ifndef STRATA_TESTS_BATCH_API_SUPPORT_H
#define STRATA_TESTS_BATCH_API_SUPPORT_H

#include "strata/malloc.h"
#include "strata/n1527.h"
#include "strata/page.h"
#include "unit/api/api_support.h"

static inline bool is(const char *bytes, size_t from, size_t to, char with) {
    for (size_t i = from; i < to; i++)
        if (bytes[i] != with) return false;
    return true;
}

/* One element by each of the three functions in turn: that they agree is what most tests here are about. */
enum way { BY_ONE, BY_TWO, BY_FIVE, WAYS };
static inline int serve(enum way way, void **p, size_t *size, size_t alignment, size_t reserve, uintmax_t flags) {
    int error = -1;
    size_t count = 1;
    bool right;
    if (way == BY_ONE) {
        size_t least = *size;
        assert_ptr_equal(batch_alloc1(&error, p, &count, &least, alignment, reserve, flags), p);
        *size = least;
        right = count == 1;
    } else if (way == BY_TWO) {
        struct mallocation2 element = {*p, *size}, *elements[] = {&element};
        right = batch_alloc2(&error, elements, &count, alignment, reserve, flags);
        *p = element.ptr, *size = element.size;
    } else {
        struct mallocation5 element = {*p, *size, alignment, reserve, flags}, *elements[] = {&element};
        right = batch_alloc5(&error, elements, &count);
        *p = element.ptr, *size = element.size;
    }
    assert_int_equal(count, right);
    assert_int_equal(right, error == 0);
    assert_int_equal(errno, ERRNO_BEFORE);
    ASSERT_SOUND();
    return error;
}

#endif
