/*
 * check.h - how every layer reports: one line, formatted without allocation, through a sink that api/ installs.
 *
 * FATAL and CHECK end the process after one line on the sink. Messages read
 *     strata: FUNCTION: what is wrong (argument = value; what is allowed)
 * The formatter knows %s %d %u %zu %llu %lu %x %lx %zx %llx %p %c %% and width/zero padding for numbers.
 */
#ifndef STRATA_BASE_CHECK_H
#define STRATA_BASE_CHECK_H

#include <stdarg.h>

#include "base/base.h"

/* Where lines go, and how a process ends. Both must be callable at any time, from any context, without allocating. */
struct check_sink {
    void (*write)(const char *text, size_t bytes);
    void (*die)(void);
};
void check_set_sink(const struct check_sink *sink);

/* snprintf without locale, allocation or floating point; returns the length that the whole text would have. */
size_t format_text_v(char *buffer, size_t bytes, const char *format, va_list args);
size_t format_text(char *buffer, size_t bytes, const char *format, ...) STRATA_PRINTF(3, 4);

/* What a line for people has a '?' for: a character that ends it, or drives a terminal. */
STRATA_INLINE bool is_control(char c) { return (unsigned char)c < 0x20 || c == 0x7f; }

/* One line "strata: ..." on the sink, without control characters. */
void log_line(const char *format, ...) STRATA_PRINTF(1, 2);

/* The same, and the process ends by the sink's die. */
_Noreturn void fatal(const char *format, ...) STRATA_PRINTF(1, 2) __attribute__((cold));

/* An invariant of ours that does not hold: always on, as its cost is a predicted branch. Never used for what a caller may do wrong. */
#define CHECK(condition)                                                                                                       \
    do {                                                                                                                       \
        if (STRATA_UNLIKELY(!(condition))) fatal("internal error at %s:%d: %s does not hold", __FILE__, __LINE__, #condition); \
    } while (0)

#endif
