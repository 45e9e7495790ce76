/*
 * report_support.h - what the writers of statistics have written, and a buffer that takes it until it shall fail.
 */
#ifndef STRATA_TEST_REPORT_SUPPORT_H
#define STRATA_TEST_REPORT_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "api/report.h"

static char output[1 << 18];
static size_t output_length;
static unsigned writes, writes_allowed; /* a write beyond these fails */
static struct report_snapshot snapshot;

static bool collect(void *context, const char *bytes, size_t count) {
    assert_ptr_equal(context, output);
    assert_true(count != 0 && output_length + count < sizeof output);
    if (writes++ >= writes_allowed) return false;
    memcpy(output + output_length, bytes, count);
    output_length += count;
    output[output_length] = 0;
    return true;
}

static void writer_start(struct report_writer *writer) {
    output_length = writes = 0;
    writes_allowed = UINT32_MAX;
    output[0] = 0;
    report_writer_init(writer, collect, output);
}

static const char *written(bool (*report)(const struct report_snapshot *, struct report_writer *)) {
    struct report_writer writer;
    writer_start(&writer);
    assert_true(report(&snapshot, &writer));
    return output;
}

#endif
