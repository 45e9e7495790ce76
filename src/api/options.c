/*
 * options.c - the parser behind options.h: splits the text into items, checks each against options.def, and warns of what it can't use.
 *
 * Runs before the first allocation, perhaps before libc is ready: no malloc, stdio, locale or errno. What a warning repeats of the
 * user's text is cut and cleaned, as it may reach a terminal. Invariant: an option either keeps its value or gets one that is allowed.
 */
#include "api/options.h"

#include "base/check.h"

/* How much of a key or value a warning repeats. */
#define SHOWN_BYTES 64
/* Room for the list of what is allowed, all keys at the longest; a line of log_line holds it too. */
#define ALLOWED_BYTES 256

struct span {
    const char *start;
    size_t length;
};

/* One call of options_parse. */
struct parse {
    const char *source_name;
};

/* ------------------------------------------------------------------ text */

static bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

static struct span span_trim(struct span span) {
    while (span.length != 0 && is_space(span.start[0])) {
        span.start++;
        span.length--;
    }
    while (span.length != 0 && is_space(span.start[span.length - 1])) span.length--;
    return span;
}

static bool span_equals(struct span span, const char *text) {
    size_t i = 0;
    for (; i < span.length && text[i] != 0; i++)
        if (span.start[i] != text[i]) return false;
    return i == span.length && text[i] == 0;
}

static struct span span_until(const char *text, char end) {
    size_t length = 0;
    while (text[length] != 0 && text[length] != end) length++;
    return (struct span){text, length};
}

/* For a warning: control characters, which could drive a terminal, become '?', and "..." ends what is cut. */
static const char *span_show(struct span span, char shown[SHOWN_BYTES]) {
    size_t length = span.length < SHOWN_BYTES ? span.length : SHOWN_BYTES - 4;
    for (size_t i = 0; i < length; i++) shown[i] = (unsigned char)span.start[i] < 0x20 || span.start[i] == 0x7f ? '?' : span.start[i];
    if (length < span.length)
        for (unsigned i = 0; i < 3; i++) shown[length++] = '.';
    shown[length] = 0;
    return shown;
}

/* ------------------------------------------------------------------ warnings */

static void warn_value(const struct parse *parse, const char *key, struct span value, const char *wrong, const char *allowed) {
    char shown[SHOWN_BYTES];
    log_line("%s: %s:%s: %s (allowed: %s)", parse->source_name, key, span_show(value, shown), wrong, allowed);
}

static size_t allowed_append(char allowed[ALLOWED_BYTES], size_t length, const char *text) {
    if (length >= ALLOWED_BYTES) return length;
    return length + format_text(allowed + length, ALLOWED_BYTES - length, "%s%s", length != 0 ? ", " : "", text);
}

static void warn_unknown(const struct parse *parse, struct span key) {
    char shown[SHOWN_BYTES], known[ALLOWED_BYTES];
    size_t length = 0;
#define OPTION_CHOICE(key, KEY, DEFAULT, doc) length = allowed_append(known, length, #key);
#define OPTION_NUMBER(key, field, default_value, min, max, doc) length = allowed_append(known, length, #key);
#define OPTION_SIZE(key, field, default_value, min, max, doc) length = allowed_append(known, length, #key);
#define OPTION_TEXT(key, field, form, doc) length = allowed_append(known, length, #key);
#define OPTION_FILE(key, field, doc) length = allowed_append(known, length, #key);
#include "api/options.def"
    CHECK(length < ALLOWED_BYTES);
    log_line("%s: %s: unknown option (known: %s)", parse->source_name, span_show(key, shown), known);
}

/* A size as a user would write it: the largest suffix that divides it. */
static void size_format(char *out, size_t bytes, uint64_t size) {
    unsigned unit = 0;
    while (unit < 4 && size != 0 && size % 1024 == 0) {
        size /= 1024;
        unit++;
    }
    char suffix[2] = {" KMGT"[unit], 0};
    format_text(out, bytes, "%lu%s", size, unit != 0 ? suffix : "");
}

/* ------------------------------------------------------------------ values */

/* The decimal digits at the start of `text`, `*taken` of them. Beyond 64 bits *overflow is set, and the value means nothing. */
static uint64_t digits_parse(struct span text, size_t *taken, bool *overflow) {
    uint64_t value = 0;
    size_t i = 0;
    for (; i < text.length && text.start[i] >= '0' && text.start[i] <= '9'; i++)
        if (__builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, (uint64_t)(text.start[i] - '0'), &value)) *overflow = true;
    *taken = i;
    return value;
}

/* log2 of the unit that `suffix` names ("", K, M, G, T in either case, or KiB and so on), or -1. */
static int suffix_shift(struct span suffix) {
    if (suffix.length == 0) return 0;
    if (suffix.length != 1 && !span_equals((struct span){suffix.start + 1, suffix.length - 1}, "iB")) return -1;
    switch (suffix.start[0]) {
    case 'K':
    case 'k': return 10;
    case 'M':
    case 'm': return 20;
    case 'G':
    case 'g': return 30;
    case 'T':
    case 't': return 40;
    default: return -1;
    }
}

/* NULL and *out set, or what is wrong. */
static const char *number_parse(struct span value, uint64_t min, uint64_t max, bool size, uint64_t *out) {
    size_t taken;
    bool overflow = false;
    uint64_t number = digits_parse(value, &taken, &overflow);
    struct span suffix = {value.start + taken, value.length - taken};
    int shift = size ? suffix_shift(suffix) : (suffix.length == 0 ? 0 : -1);
    if (taken == 0 || shift < 0) return size ? "not a size" : "not a number";
    if (overflow || number > UINT64_MAX >> shift || number << shift > max) return "too large";
    number <<= shift;
    if (number < min) return "too small";
    *out = number;
    return NULL;
}

/* Each value_* applies one item to its option, or warns and leaves the option as it was. */

static void value_number(const struct parse *parse, const char *key, struct span value, uint64_t min, uint64_t max, uint64_t *out) {
    const char *wrong = number_parse(value, min, max, false, out);
    if (wrong == NULL) return;
    char allowed[ALLOWED_BYTES];
    format_text(allowed, sizeof allowed, "%lu to %lu", min, max);
    warn_value(parse, key, value, wrong, allowed);
}

static void value_size(const struct parse *parse, const char *key, struct span value, uint64_t min, uint64_t max, uint64_t *out) {
    const char *wrong = number_parse(value, min, max, true, out);
    if (wrong == NULL) return;
    char allowed[ALLOWED_BYTES], low[24], high[24];
    size_format(low, sizeof low, min);
    size_format(high, sizeof high, max);
    format_text(allowed, sizeof allowed, "%s to %s, suffixes K M G T", low, high);
    warn_value(parse, key, value, wrong, allowed);
}

/* The index of `value` in `choices`, whose end is NULL, or -1 after a warning. */
static int value_choice(const struct parse *parse, const char *key, struct span value, const char *const *choices) {
    char allowed[ALLOWED_BYTES];
    size_t length = 0;
    for (int i = 0; choices[i] != NULL; i++)
        if (span_equals(value, choices[i])) return i;
    for (int i = 0; choices[i] != NULL; i++) length = allowed_append(allowed, length, choices[i]);
    warn_value(parse, key, value, "not a choice", allowed);
    return -1;
}

static void value_file(const struct parse *parse, const char *key, struct span value, char *out) {
    if (value.length == 0 || value.length >= OPTIONS_PATH_BYTES) {
        char allowed[ALLOWED_BYTES];
        format_text(allowed, sizeof allowed, "a path of 1 to %d bytes", OPTIONS_PATH_BYTES - 1);
        warn_value(parse, key, value, value.length == 0 ? "empty" : "too long", allowed);
        return;
    }
    __builtin_memcpy(out, value.start, value.length);
    out[value.length] = 0;
}

/* ------------------------------------------------------------------ items */

/* choices_thp = {"auto", "always", "never", NULL} and so on. */
#define OPTION_CHOICE(key, KEY, DEFAULT, doc) static const char *const choices_##key[] = {
#define CHOICE(KEY, NAME, text) text,
/* clang-format off */
#define OPTION_CHOICE_END(key) NULL};
/* clang-format on */
#include "api/options.def"

static void item_apply(const struct parse *parse, struct options *out, struct span key, struct span value) {
#define OPTION_CHOICE(name, KEY, DEFAULT, doc)                          \
    if (span_equals(key, #name)) {                                      \
        int choice = value_choice(parse, #name, value, choices_##name); \
        if (choice >= 0) out->name = (enum option_##name)choice;        \
        return;                                                         \
    }
#define OPTION_NUMBER(name, field, default_value, min, max, doc)                      \
    if (span_equals(key, #name)) {                                                    \
        value_number(parse, #name, value, UINT64_C(min), UINT64_C(max), &out->field); \
        return;                                                                       \
    }
#define OPTION_SIZE(name, field, default_value, min, max, doc)                      \
    if (span_equals(key, #name)) {                                                  \
        value_size(parse, #name, value, UINT64_C(min), UINT64_C(max), &out->field); \
        return;                                                                     \
    }
#define OPTION_TEXT(name, field, form, doc)                            \
    if (span_equals(key, #name)) {                                     \
        out->field = (struct options_text){value.start, value.length}; \
        return;                                                        \
    }
#define OPTION_FILE(name, field, doc)                \
    if (span_equals(key, #name)) {                   \
        value_file(parse, #name, value, out->field); \
        return;                                      \
    }
#include "api/options.def"
    warn_unknown(parse, key);
}

STRATA_USUAL void options_set_defaults(struct options *out) {
#define OPTION_CHOICE(key, KEY, DEFAULT, doc) out->key = OPTION_##KEY##_##DEFAULT;
#define OPTION_NUMBER(key, field, default_value, min, max, doc) out->field = UINT64_C(default_value);
#define OPTION_SIZE(key, field, default_value, min, max, doc) out->field = UINT64_C(default_value);
#define OPTION_TEXT(key, field, form, doc) out->field = (struct options_text){0};
#define OPTION_FILE(key, field, doc) out->field[0] = 0;
#include "api/options.def"
}

void options_parse(struct options *out, const char *text, const char *source_name) {
    const struct parse parse = {source_name};
    if (text == NULL) return;
    for (;;) {
        struct span item = span_until(text, ',');
        text = item.start + item.length;
        struct span trimmed = span_trim(item);
        if (trimmed.length != 0) {
            size_t key_length = 0;
            while (key_length < trimmed.length && trimmed.start[key_length] != ':') key_length++;
            struct span key = span_trim((struct span){trimmed.start, key_length});
            if (key_length == trimmed.length) {
                char shown[SHOWN_BYTES];
                log_line("%s: %s: no value (write key:value,key:value)", source_name, span_show(key, shown));
            } else {
                struct span value = {trimmed.start + key_length + 1, trimmed.length - key_length - 1};
                item_apply(&parse, out, key, span_trim(value));
            }
        }
        if (*text == 0) return;
        text++;
    }
}

bool options_path_expand(char *out, size_t bytes, const char *pattern, unsigned process_id) {
    size_t length = 0;
    for (const char *p = pattern; *p != 0 && length < bytes; p++) {
        if (p[0] == '%' && p[1] == 'p') {
            length += format_text(out + length, bytes - length, "%u", process_id);
            p++;
        } else {
            if (p[0] == '%' && p[1] == '%') p++;
            out[length++] = *p;
        }
    }
    if (length >= bytes) {
        if (bytes != 0) out[0] = 0; /* a path that was cut is another path: show none */
        return false;
    }
    out[length] = 0;
    return true;
}
