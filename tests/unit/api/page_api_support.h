/* page_api_support.h - what tests of blocks of pages through the public functions share. */
#pragma once

#include "strata/malloc.h"
#include "strata/page.h"
#include "unit/api/api_support.h"

static inline char *must_alloc(size_t bytes, unsigned flags) {
    void *block = NULL;
    assert_int_equal(strata_page_alloc(bytes, flags, &block), STRATA_PAGE_OK);
    assert_non_null(block);
    return block;
}
static inline void must_free(void *block) { assert_int_equal(strata_page_free(block), STRATA_PAGE_OK); }

static inline struct strata_page_info info_of(const void *address) {
    struct strata_page_info info;
    assert_int_equal(strata_page_query(address, &info), STRATA_PAGE_OK);
    return info;
}

static inline bool is(const char *bytes, size_t count, char with) {
    for (size_t i = 0; i < count; i++)
        if (bytes[i] != with) return false;
    return true;
}
