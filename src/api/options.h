/*
 * options.h - what a user may set, as one plain struct, and the parser of "key:value,key:value".
 *
 * The fields come from options.def. A struct options is immutable once the last options_parse has returned; layers below
 * api/ receive what concerns them as values. No lock rank: parsing happens once, on one thread, before the heap is in use.
 */
#ifndef STRATA_API_OPTIONS_H
#define STRATA_API_OPTIONS_H

#include "base/base.h"

/* The longest path that an option takes, the closing NUL included. */
#define OPTIONS_PATH_BYTES 4096

/* enum option_thp { OPTION_THP_AUTO, OPTION_THP_ALWAYS, OPTION_THP_NEVER } and so on, one for each choice. */
#define OPTION_CHOICE(key, KEY, DEFAULT, doc) enum option_##key {
#define CHOICE(KEY, NAME, text) OPTION_##KEY##_##NAME,
/* clang-format off */
#define OPTION_CHOICE_END(key) };
/* clang-format on */
#include "api/options.def"

/* A part of the text that was parsed: as long as that stands. */
struct options_text {
    const char *start;
    size_t length;
};

struct options {
#define OPTION_CHOICE(key, KEY, DEFAULT, doc) enum option_##key key;
#define OPTION_NUMBER(key, field, default_value, min, max, doc) uint64_t field;
#define OPTION_SIZE(key, field, default_value, min, max, doc) uint64_t field;
#define OPTION_TEXT(key, field, form, doc) struct options_text field; /* length 0 where none was given */
#define OPTION_FILE(key, field, doc) char field[OPTIONS_PATH_BYTES];  /* "" where none was given */
#include "api/options.def"
};

/* Every option at its default. */
void options_set_defaults(struct options *out);

/*
 * Applies the items of `text` (NULL or "": none) to `out`, in order; the last of several for one key wins, and so does a later call over an
 * earlier one. A bad item leaves its option as it was and costs one log_line that begins with `source_name` ("STRATA_CONF", "strata_conf").
 * Space around keys and values is skipped, empty items too.
 * Neither allocates nor depends on the locale; `text` need not outlive the call, but for the options that are texts themselves.
 */
void options_parse(struct options *out, const char *text, const char *source_name);

/* Copies `pattern` with %p as `process_id` and %% as one percent sign; other text stays. False where `bytes` do not hold it and its NUL. */
bool options_path_expand(char *out, size_t bytes, const char *pattern, unsigned process_id);

#endif
