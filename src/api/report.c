/*
 * report.c - the buffered writer of report.h, which the three formats share.
 *
 * Invariant: bytes reach `write` in the order in which they were put, and none after a failure.
 */
#include "api/report.h"

#include "base/check.h"

void report_name_set(char name[REPORT_NAME_BYTES], const char *text) { format_text(name, REPORT_NAME_BYTES, "%s", text); }

void report_writer_init(struct report_writer *writer, bool (*write)(void *context, const char *bytes, size_t count), void *context) {
    writer->write = write;
    writer->context = context;
    writer->length = 0;
    writer->failed = false;
}

bool report_writer_flush(struct report_writer *writer) {
    if (writer->length != 0 && !writer->failed) writer->failed = !writer->write(writer->context, writer->buffer, writer->length);
    writer->length = 0;
    return !writer->failed;
}

void report_put(struct report_writer *writer, const char *bytes, size_t count) {
    while (count != 0) {
        size_t room = sizeof writer->buffer - writer->length;
        size_t part = count < room ? count : room;
        __builtin_memcpy(writer->buffer + writer->length, bytes, part);
        writer->length += part;
        bytes += part;
        count -= part;
        if (writer->length == sizeof writer->buffer) report_writer_flush(writer);
    }
}

void report_format(struct report_writer *writer, const char *format, ...) {
    for (unsigned attempt = 0; attempt < 2; attempt++) {
        size_t room = sizeof writer->buffer - writer->length;
        va_list args;
        va_start(args, format);
        size_t length = format_text_v(writer->buffer + writer->length, room, format, args);
        va_end(args);
        if (length < room) { /* the formatter's NUL needs its byte too */
            writer->length += length;
            return;
        }
        report_writer_flush(writer);
    }
    fatal("internal error: one piece of a report exceeds %zu bytes (format \"%s\")", sizeof writer->buffer, format);
}

size_t report_utf8_length(const char *text) {
    /* Read byte by byte: a NUL is no continuation, so nothing past the end is looked at. */
    const unsigned char *t = (const unsigned char *)text;
    if (t[0] < 0x80) return 1;
    unsigned following = t[0] >= 0xc2 && t[0] <= 0xdf ? 1 : t[0] >= 0xe0 && t[0] <= 0xef ? 2 : t[0] >= 0xf0 && t[0] <= 0xf4 ? 3 : 0;
    if (following == 0) return 0;
    uint32_t code = t[0] & (0x3fu >> following);
    for (unsigned i = 1; i <= following; i++) {
        if ((t[i] & 0xc0) != 0x80) return 0;
        code = code << 6 | (t[i] & 0x3f);
    }
    bool overlong = (following == 2 && code < 0x800) || (following == 3 && code < 0x10000);
    bool surrogate = code >= 0xd800 && code <= 0xdfff;
    bool unencodable = code > 0x10ffff || (code & 0xffff) >= 0xfffe; /* the last two of each plane are no characters, and not XML */
    return overlong || surrogate || unencodable ? 0 : following + 1;
}
