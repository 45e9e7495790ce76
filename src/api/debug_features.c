/*
 * debug_features.c - features, logs and patterns of names as text. No allocation, no locale: some of it runs before main.
 */
#include "api/debug.h"
#include "base/check.h"
#include "strata/debug.h"

#define SHOWN_BYTES 64
#define AUDIT_USUAL 2
#define CONTENTS_USUAL 256
#define VERIFY_USUAL 1000
#define VERIFY_MAX 1000000
#define FIREWALL_MIN_MAX OBJECT_BYTES_MAX
#define MTBF_MAX 1000000000
#define LOG_BYTES_USUAL (64 * KIB)

_Static_assert(STRATA_DEBUG_AUDIT_MAX == DEBUG_AUDIT_MAX && STRATA_DEBUG_FRAMES_MAX == DEBUG_FRAMES_MAX &&
                   STRATA_DEBUG_CONTENTS_MAX == DEBUG_CONTENTS_MAX && STRATA_DEBUG_PATTERN_MAX + 1 == DEBUG_PATTERN_BYTES,
               "what the header promises is what slab/debug.h keeps");
_Static_assert(STRATA_DEBUG_LOG_MAX <= SUPERPAGE_BYTES, "a log is one run");

struct text {
    const char *start;
    size_t length;
};

static bool is_word(struct text text, const char *word) {
    size_t i = 0;
    for (; i < text.length && word[i] != 0; i++)
        if (text.start[i] != word[i]) return false;
    return i == text.length && word[i] == 0;
}

static bool complain(const char *who, const char *what, struct text text, const char *wrong) {
    char shown[SHOWN_BYTES];
    size_t length = min_u64(text.length, sizeof shown - 1);
    for (size_t i = 0; i < length; i++) shown[i] = (unsigned char)text.start[i] < 0x20 || text.start[i] == 0x7f ? '?' : text.start[i];
    shown[length] = 0;
    log_line("%s: %s = \"%s\": %s", who, what, shown, wrong);
    return false;
}

/* ------------------------------------------------------------------ items */

/* NAME, or NAME=VALUE, of several that are joined by +. */
struct item {
    struct text name, value;
    bool has_value;
};

/* The first item of *rest, which is what follows it then. */
static struct item next_item(struct text *rest) {
    struct item item = {.name = {rest->start, 0}};
    size_t i = 0;
    while (i < rest->length && rest->start[i] != '+' && rest->start[i] != '=') i++;
    item.name.length = i;
    if (i < rest->length && rest->start[i] == '=') {
        item.has_value = true;
        item.value.start = rest->start + ++i;
        while (i < rest->length && rest->start[i] != '+') i++;
        item.value.length = (size_t)(rest->start + i - item.value.start);
    }
    if (i < rest->length) i++; /* the + */
    *rest = (struct text){rest->start + i, rest->length - i};
    return item;
}

/* Digits, with `sizes` also K or M behind them. */
static bool read_number(struct text text, bool sizes, uint64_t *number) {
    unsigned shift = 0;
    *number = 0;
    if (sizes && text.length > 1) {
        char last = text.start[text.length - 1];
        shift = last == 'K' || last == 'k' ? 10 : last == 'M' || last == 'm' ? 20 : 0;
        if (shift != 0) text.length--;
    }
    if (text.length == 0) return false;
    for (size_t i = 0; i < text.length; i++) {
        if (text.start[i] < '0' || text.start[i] > '9') return false;
        if (__builtin_mul_overflow(*number, 10, number) || __builtin_add_overflow(*number, (uint64_t)(text.start[i] - '0'), number)) return false;
    }
    if (*number > UINT64_MAX >> shift) return false;
    *number <<= shift;
    return true;
}

/* ------------------------------------------------------------------ features */

enum feature { AUDIT, FRAMES, CONTENTS, GUARDS, VERIFY, FIREWALL, MTBF, SEED, FEATURES };
static const struct {
    const char *name;
    uint64_t usual, min, max; /* min > max: takes no number */
    bool wants_number;
} known[FEATURES] = {[AUDIT] = {"audit", AUDIT_USUAL, 1, DEBUG_AUDIT_MAX, false},
                     [FRAMES] = {"frames", DEBUG_FRAMES_USUAL, 1, DEBUG_FRAMES_MAX, true},
                     [CONTENTS] = {"contents", CONTENTS_USUAL, 1, DEBUG_CONTENTS_MAX, false},
                     [GUARDS] = {"guards", 1, 1, 0, false},
                     [VERIFY] = {"verify", VERIFY_USUAL, 1, VERIFY_MAX, false},
                     [FIREWALL] = {"firewall", 0, 0, FIREWALL_MIN_MAX, false},
                     [MTBF] = {"mtbf", 0, 1, MTBF_MAX, true},
                     [SEED] = {"seed", 0, 0, UINT64_MAX, true}};

static enum feature feature_of(struct text name) {
    unsigned feature = 0;
    while (feature < FEATURES && !is_word(name, known[feature].name)) feature++;
    return (enum feature)feature;
}

static bool read_feature(const char *who, const struct item *item, enum feature feature, uint64_t *number) {
    char wrong[SHOWN_BYTES * 2];
    *number = known[feature].usual;
    if (item->has_value && known[feature].min > known[feature].max) return complain(who, known[feature].name, item->value, "takes no number");
    if (!item->has_value && !known[feature].wants_number) return true;
    if (item->has_value && read_number(item->value, false, number) && *number >= known[feature].min && *number <= known[feature].max) return true;
    format_text(wrong, sizeof wrong, "not a number from %llu to %llu", (unsigned long long)known[feature].min,
                (unsigned long long)known[feature].max);
    return complain(who, known[feature].name, item->value, wrong);
}

static void set_features(struct debug_features *features, const uint64_t numbers[FEATURES], unsigned given) {
    *features = (struct debug_features){0};
    if ((given >> AUDIT & 1) != 0) features->audit = (uint16_t)numbers[AUDIT];
    features->frames = (uint16_t)((given >> FRAMES & 1) != 0 ? numbers[FRAMES] : DEBUG_FRAMES_USUAL);
    if ((given >> CONTENTS & 1) != 0) features->contents = (uint16_t)numbers[CONTENTS];
    features->guards = (given >> GUARDS & 1) != 0 || (given >> VERIFY & 1) != 0;
    if ((given >> VERIFY & 1) != 0) features->verify = (uint32_t)numbers[VERIFY];
    features->firewall = (given >> FIREWALL & 1) != 0;
    if (features->firewall) features->firewall_min = (uint32_t)numbers[FIREWALL];
    if ((given >> MTBF & 1) != 0) features->mtbf = (uint32_t)numbers[MTBF];
    features->seeded = (given >> SEED & 1) != 0;
    if (features->seeded) features->seed = numbers[SEED];
}

#define ALLOWED "allowed: off, or of default, audit, frames, contents, guards, verify, firewall, mtbf, seed, joined by +"

bool debug_features_parse(const char *who, const char *text, size_t length, struct debug_features *features, bool *off) {
    const struct text whole = {text, length};
    struct text rest = whole;
    uint64_t numbers[FEATURES] = {0};
    unsigned given = 0;
    *off = is_word(whole, "off");
    if (*off) return true;
    if (length == 0) return complain(who, "features", whole, ALLOWED);
    while (rest.length != 0) {
        const struct item item = next_item(&rest);
        unsigned adds;
        if (is_word(item.name, "default") && !item.has_value) {
            adds = 1u << AUDIT | 1u << CONTENTS | 1u << GUARDS;
            for (unsigned f = 0; f < FEATURES; f++)
                if ((adds >> f & 1) != 0 && (given >> f & 1) == 0) numbers[f] = known[f].usual;
            given |= adds;
            continue;
        }
        enum feature feature = feature_of(item.name);
        if (feature == FEATURES) return complain(who, "features", item.name, ALLOWED);
        if (!read_feature(who, &item, feature, &numbers[feature])) return false;
        given |= 1u << feature;
    }
    if (text[length - 1] == '+') return complain(who, "features", whole, "ends in +");
    if ((given >> SEED & 1) != 0 && (given >> MTBF & 1) == 0) return complain(who, "features", whole, "seed goes with mtbf");
    if (given == 1u << FRAMES) return complain(who, "features", whole, "frames goes with audit, or with a log and another feature");
    set_features(features, numbers, given);
    return true;
}

void debug_features_show(const struct debug_features *features, char *text, size_t bytes) {
    size_t length = 0;
    text[0] = 0;
#define SHOW(condition, ...) \
    if ((condition) && length < bytes) length += format_text(text + length, bytes - length, __VA_ARGS__)
#define PLUS (length != 0 ? "+" : "")
    SHOW(features->audit != 0, "audit=%u+frames=%u", features->audit, features->frames);
    SHOW(features->contents != 0, "%scontents=%u", PLUS, features->contents);
    SHOW(features->guards, "%sguards", PLUS);
    SHOW(features->verify != 0, "%sverify=%u", PLUS, features->verify);
    SHOW(features->firewall, "%sfirewall=%u", PLUS, features->firewall_min);
    SHOW(features->mtbf != 0, "%smtbf=%u+seed=%llu", PLUS, features->mtbf, (unsigned long long)features->seed);
#undef SHOW
#undef PLUS
}

/* ------------------------------------------------------------------ logs */

bool debug_logs_parse(const char *who, const char *text, size_t length, uint64_t sizes[DEBUG_LOGS]) {
    static const char *const names[DEBUG_LOGS] = {[DEBUG_LOG_TRANSACTION] = "transaction", [DEBUG_LOG_FAIL] = "fail"};
    struct text whole = {text, length}, rest = whole;
    bool off = is_word(whole, "off");
    for (unsigned i = 0; i < DEBUG_LOGS; i++) sizes[i] = off ? 0 : UINT64_MAX;
    if (off) return true;
    if (length == 0) return complain(who, "logs", whole, "allowed: off, or of transaction, fail, joined by +");
    while (rest.length != 0) {
        const struct item item = next_item(&rest);
        unsigned name = 0;
        while (name < DEBUG_LOGS && !is_word(item.name, names[name])) name++;
        if (name == DEBUG_LOGS) return complain(who, "logs", item.name, "allowed: off, or of transaction, fail, joined by +");
        uint64_t size = LOG_BYTES_USUAL;
        bool ok = !item.has_value || read_number(item.value, true, &size);
        if (!ok || (size != 0 && (size < STRATA_DEBUG_LOG_MIN || size > STRATA_DEBUG_LOG_MAX)))
            return complain(who, names[name], item.value, "not a size: 0, or 4K to 1M");
        sizes[name] = size;
    }
    if (text[length - 1] == '+') return complain(who, "logs", whole, "ends in +");
    return true;
}

/* ------------------------------------------------------------------ patterns */

bool debug_pattern_is_valid(const char *who, const char *pattern, size_t length) {
    if (length != 0 && length < DEBUG_PATTERN_BYTES) return true;
    return complain(who, "pattern", (struct text){pattern, length}, "1 to 63 bytes of a name, * and ?");
}

bool debug_pattern_matches(const char *pattern, const char *name) {
    const char *star = NULL, *resume = NULL;
    while (*name != 0) {
        if (*pattern == '*') {
            star = pattern++;
            resume = name;
        } else if (*pattern == '?' || *pattern == *name) {
            pattern++;
            name++;
        } else if (star != NULL) { /* the last * takes one character more */
            pattern = star + 1;
            name = ++resume;
        } else {
            return false;
        }
    }
    while (*pattern == '*') pattern++;
    return *pattern == 0;
}
