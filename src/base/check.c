/*
 * check.c - the formatter and the error sink behind check.h.
 */
#include "base/check.h"

static struct check_sink sink;

void check_set_sink(const struct check_sink *new_sink) { sink = *new_sink; }

struct text {
    char *buffer;
    size_t bytes;  /* capacity of buffer, the closing NUL included */
    size_t length; /* of the whole text, also where it exceeds the buffer */
};

static void put_char(struct text *text, char c) {
    if (text->length + 1 < text->bytes) text->buffer[text->length] = c;
    text->length++;
}

static void put_number(struct text *text, uint64_t value, unsigned base, bool negative, unsigned width, bool zero_pad) {
    char digits[24];
    unsigned n = 0;
    do {
        digits[n++] = "0123456789abcdef"[value % base];
        value /= base;
    } while (value != 0);
    unsigned printed = n + (negative ? 1 : 0);
    if (!zero_pad)
        for (; printed < width; printed++) put_char(text, ' ');
    if (negative) put_char(text, '-');
    for (; printed < width; printed++) put_char(text, '0');
    while (n != 0) put_char(text, digits[--n]);
}

static void put_string(struct text *text, const char *string, unsigned width, bool left) {
    size_t length = 0;
    if (string == NULL) string = "(null)";
    if (width == 0) { /* what every process comes to: without strlen, see platform_getenv */
        while (*string != 0) put_char(text, *string++);
        return;
    }
    while (string[length] != 0) length++;
    if (!left)
        for (size_t i = length; i < width; i++) put_char(text, ' ');
    for (size_t i = 0; i < length; i++) put_char(text, string[i]);
    if (left)
        for (size_t i = length; i < width; i++) put_char(text, ' ');
}

size_t format_text_v(char *buffer, size_t bytes, const char *format, va_list args) {
    struct text text = {buffer, bytes, 0};
    for (const char *f = format; *f != 0; f++) {
        if (*f != '%') {
            put_char(&text, *f);
            continue;
        }
        f++;
        bool left = false, zero_pad = false;
        for (;; f++) {
            if (*f == '-')
                left = true;
            else if (*f == '0')
                zero_pad = true;
            else
                break;
        }
        unsigned width = 0;
        if (*f == '*') {
            width = (unsigned)va_arg(args, int);
            f++;
        }
        for (; *f >= '0' && *f <= '9'; f++) width = width * 10 + (unsigned)(*f - '0');
        unsigned longs = 0;
        for (; *f == 'l' || *f == 'z'; f++) longs++;
        switch (*f) {
        case 'd': {
            int64_t value = longs != 0 ? va_arg(args, long) : va_arg(args, int);
            put_number(&text, value < 0 ? 0 - (uint64_t)value : (uint64_t)value, 10, value < 0, width, zero_pad);
            break;
        }
        case 'u': put_number(&text, longs != 0 ? va_arg(args, unsigned long) : va_arg(args, unsigned), 10, false, width, zero_pad); break;
        case 'x': put_number(&text, longs != 0 ? va_arg(args, unsigned long) : va_arg(args, unsigned), 16, false, width, zero_pad); break;
        case 'p':
            put_string(&text, "0x", 0, false);
            put_number(&text, (uintptr_t)va_arg(args, void *), 16, false, 0, false);
            break;
        case 's': put_string(&text, va_arg(args, const char *), width, left); break;
        case 'c': put_char(&text, (char)va_arg(args, int)); break;
        case '%': put_char(&text, '%'); break;
        default: /* a format that we do not know is shown as it stands, never guessed at */
            put_char(&text, '%');
            if (*f == 0)
                f--;
            else
                put_char(&text, *f);
            break;
        }
    }
    if (bytes != 0) buffer[text.length < bytes ? text.length : bytes - 1] = 0;
    return text.length;
}

size_t format_text(char *buffer, size_t bytes, const char *format, ...) {
    va_list args;
    va_start(args, format);
    size_t length = format_text_v(buffer, bytes, format, args);
    va_end(args);
    return length;
}

/* A line is one, and drives no terminal, whatever names and paths are in it. */
static STRATA_COLD void log_line_v(const char *format, va_list args) {
    static const char prefix[] = "strata: ";
    char line[512];
    size_t start = sizeof prefix - 1;
    for (size_t i = 0; i < start; i++) line[i] = prefix[i];
    size_t length = start + format_text_v(line + start, sizeof line - start - 1, format, args);
    if (length > sizeof line - 2) length = sizeof line - 2;
    for (size_t i = start; i < length; i++)
        if (is_control(line[i])) line[i] = '?';
    line[length++] = '\n';
    if (sink.write != NULL) sink.write(line, length);
}

STRATA_COLD void log_line(const char *format, ...) {
    va_list args;
    va_start(args, format);
    log_line_v(format, args);
    va_end(args);
}

void fatal(const char *format, ...) {
    va_list args;
    va_start(args, format);
    log_line_v(format, args);
    va_end(args);
    if (sink.die != NULL) sink.die();
    __builtin_trap();
}
