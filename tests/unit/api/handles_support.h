/* handles_support.h - what tests of handles share: a zone with handles, blocks that hold a byte, and a look at them. */
#ifndef STRATA_TESTS_HANDLES_SUPPORT_H
#define STRATA_TESTS_HANDLES_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "platform/sim/sim.h"
#include "strata/handle.h"
#include "strata/zone_compact.h"

enum { PAGE = 4096 };

static struct strata_zone *zone;
static struct strata_handles *handles;

static inline strata_handle filled(size_t bytes, int value) {
    strata_handle handle = 0;
    void *address;
    assert_int_equal(strata_handle_alloc(handles, bytes, &handle), STRATA_HANDLE_OK);
    assert_int_equal(strata_handle_write(handles, handle, &address), STRATA_HANDLE_OK);
    memset(address, value, bytes);
    assert_int_equal(strata_handle_write_end(handles, handle), STRATA_HANDLE_OK);
    return handle;
}
static inline void expect(strata_handle handle, size_t bytes, int value) {
    const void *address;
    assert_int_equal(strata_handle_read(handles, handle, &address), STRATA_HANDLE_OK);
    for (size_t i = 0; i < bytes; i++) assert_int_equal(((const unsigned char *)address)[i], value & 0xff);
    assert_int_equal(strata_handle_read_end(handles, handle), STRATA_HANDLE_OK);
}
static inline struct strata_handle_info info_of(strata_handle handle) {
    struct strata_handle_info info;
    assert_int_equal(strata_handle_query(handles, handle, &info), STRATA_HANDLE_OK);
    return info;
}

static inline void end_handles_and_zone(void) {
    assert_null(strata_handles_check(handles));
    assert_null(strata_zone_check(zone));
    assert_int_equal(strata_handles_destroy(handles), STRATA_HANDLE_OK);
    assert_int_equal(strata_zone_destroy(zone), STRATA_ZONE_OK);
}

#endif
