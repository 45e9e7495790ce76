/*
 * umem_env.c - UMEM_DEBUG and UMEM_LOGGING become features and logs of strata/debug.h; of UMEM_OPTIONS, what has a meaning here has its effect.
 *
 * Read once: by this library's constructor, or by the first umem_cache_create or vmem_create of a constructor that runs before it. A process that has
 * more rights than its user reads no environment. What is not understood costs one line on standard error.
 */
#define _GNU_SOURCE
#include "umem_internal.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include <strata/debug.h>
#include <strata/kmem.h>

/* Defined by programs that want other settings than none. */
extern const char *_umem_debug_init(void) __attribute__((weak));
extern const char *_umem_logging_init(void) __attribute__((weak));
extern const char *_umem_options_init(void) __attribute__((weak));

/* As the manual page has them. */
#define FRAMES_DEFAULT 15
#define CONTENTS_DEFAULT 256
#define LOG_DEFAULT 65536
/* What the feature takes. */
#define FIREWALL_MAX 1048576

struct settings {
    bool audit, guards, aborts;
    bool no_magazines;                   /* nothing is kept constructed: as though each cache had been created so */
    unsigned long long frames, contents; /* 0: none */
    unsigned long long firewall, mtbf;   /* firewall: ULLONG_MAX: none */
};

static struct settings settings = {.firewall = ULLONG_MAX, .aborts = true}; /* immutable once umem_start has run */

/* ------------------------------------------------------------------ items */

/* "12k" -> 12288. False: not a number with at most one of those suffixes, or too large. */
static bool parse_size(const char *text, unsigned long long *value) {
    static const char suffixes[] = "kmgt";
    char *end;
    if (*text < '0' || *text > '9') return false;
    errno = 0;
    *value = strtoull(text, &end, 0);
    if (errno != 0) return false;
    const char *suffix = *end != 0 ? strchr(suffixes, *end | 0x20) : NULL;
    if (suffix == NULL) return *end == 0;
    unsigned shift = 10 * (unsigned)(suffix - suffixes + 1);
    if (end[1] != 0 || *value > ULLONG_MAX >> shift) return false;
    *value <<= shift;
    return true;
}

/* The value of an item as a number within limits; the default where it has none, or one that is no number. */
static unsigned long long number_of(const char *variable, const char *item, const char *value, unsigned long long otherwise,
                                    unsigned long long most) {
    unsigned long long number;
    if (value == NULL) return otherwise;
    if (!parse_size(value, &number)) {
        umem_line("%s: %s=%s: not a number; %llu is used", variable, item, value, otherwise);
        return otherwise;
    }
    return number > most ? most : number;
}

/* The same for an item that means nothing without one. False: it has none. */
static bool take_number(const char *variable, const char *item, const char *value, unsigned long long most, unsigned long long *number) {
    if (value != NULL && parse_size(value, number)) {
        if (*number > most) *number = most;
        return true;
    }
    umem_line("%s: %s%s%s: wants a number; ignored", variable, item, value != NULL ? "=" : "", value != NULL ? value : "");
    return false;
}

/* Calls take for each item of a list, cut at its '='. */
static void each_item(const char *variable, const char *list, void (*take)(const char *variable, const char *item, const char *value)) {
    char copy[512];
    if (strlen(list) >= sizeof copy) {
        umem_line("%s: more than %zu characters; ignored", variable, sizeof copy - 1);
        return;
    }
    strcpy(copy, list);
    char *rest, *item = strtok_r(copy, ", \t", &rest);
    for (; item != NULL; item = strtok_r(NULL, ", \t", &rest)) {
        char *value = strchr(item, '=');
        if (value != NULL) *value++ = 0;
        take(variable, item, value);
    }
}

/* What is switched on or off, and has no value. */
static bool is_switch(const char *variable, const char *item, const char *value, const char *name) {
    if (strcmp(item, name) != 0) return false;
    if (value != NULL) umem_line("%s: %s=%s: has no value; it is ignored", variable, item, value);
    return true;
}

static void take_debug(const char *variable, const char *item, const char *value) {
    unsigned long long number;
    if (strcmp(item, "audit") == 0) {
        settings.audit = settings.guards = true;
        settings.frames = number_of(variable, item, value, FRAMES_DEFAULT, STRATA_DEBUG_FRAMES_MAX);
    } else if (strcmp(item, "contents") == 0) {
        settings.contents = number_of(variable, item, value, CONTENTS_DEFAULT, STRATA_DEBUG_CONTENTS_MAX);
    } else if (is_switch(variable, item, value, "default")) {
        settings.audit = settings.guards = true;
        if (settings.frames == 0) settings.frames = FRAMES_DEFAULT;
        if (settings.contents == 0) settings.contents = CONTENTS_DEFAULT;
    } else if (is_switch(variable, item, value, "guards")) {
        settings.guards = true;
    } else if (strcmp(item, "firewall") == 0) {
        if (take_number(variable, item, value, FIREWALL_MAX, &number)) settings.firewall = number;
    } else if (strcmp(item, "mtbf") == 0) {
        if (take_number(variable, item, value, 1000000000, &number)) settings.mtbf = number;
    } else if (strcmp(item, "maxverify") == 0) { /* a limit that saves time, for who can do with less of guards */
        if (take_number(variable, item, value, ULLONG_MAX, &number))
            umem_line("%s: %s=%s: guards check all bytes of a buffer; it has no effect", variable, item, value);
    } else if (is_switch(variable, item, value, "noabort")) {
        settings.aborts = false;
    } else if (!is_switch(variable, item, value, "verbose")) { /* errors always go to standard error */
        umem_line("%s: %s: not known; ignored", variable, item);
    }
}

static void take_log(const char *variable, const char *item, const char *value) {
    unsigned long long size = LOG_DEFAULT;
    char log[64];
    if (value != NULL && !parse_size(value, &size)) {
        umem_line("%s: %s=%s: not a size; this log is off", variable, item, value);
        size = 0;
    }
    if (strcmp(item, "contents") == 0) { /* they are kept with each buffer, not in a log of their own */
        if (size != 0 && settings.contents == 0) settings.contents = CONTENTS_DEFAULT;
        if (size != 0 && value != NULL) umem_line("%s: contents=%s: contents are kept with each buffer; the size has no effect", variable, value);
    } else if (strcmp(item, "transaction") == 0 || strcmp(item, "fail") == 0) {
        unsigned long long fits = size == 0 || size >= STRATA_DEBUG_LOG_MIN ? size : STRATA_DEBUG_LOG_MIN;
        if (fits > STRATA_DEBUG_LOG_MAX) fits = STRATA_DEBUG_LOG_MAX;
        if (fits != size) umem_line("%s: %s=%s: %llu bytes are used", variable, item, value, fits);
        snprintf(log, sizeof log, "%s=%llu", item, fits);
        strata_debug_log_set(log);
    } else {
        umem_line("%s: %s: not known; ignored", variable, item);
    }
}

/* The value of an item that is one of several words. */
static bool is_among(const char *variable, const char *item, const char *value, const char *const *words, unsigned count) {
    for (unsigned i = 0; i < count; i++)
        if (strcmp(value, words[i]) == 0) return true;
    char allowed[64] = "";
    for (unsigned i = 0; i < count; i++) snprintf(allowed + strlen(allowed), sizeof allowed - strlen(allowed), "%s%s", i != 0 ? ", " : "", words[i]);
    umem_line("%s: %s=%s: allowed: %s; ignored", variable, item, value, allowed);
    return false;
}

/*
 * Where libumem gets its memory, how it looks for it there, and what each thread keeps: strata maps, fits by its layers and keeps by CPU, whatever is
 * asked for, so a line says where that differs.
 */
static void take_option(const char *variable, const char *item, const char *value) {
    static const char *const backends[] = {"mmap", "sbrk"}, *const fits[] = {"best", "first", "instant", "next"};
    const char *word = value != NULL ? value : "";
    unsigned long long size;
    if (strcmp(item, "backend") == 0) {
        if (is_among(variable, item, word, backends, 2) && word[0] == 's') umem_line("%s: %s=%s: memory is mapped here", variable, item, value);
    } else if (strcmp(item, "allocator") == 0) {
        if (is_among(variable, item, word, fits, 4))
            umem_line("%s: %s=%s: there is no heap of one fit here; vmem_create's fits are as asked for", variable, item, value);
    } else if (strcmp(item, "perthread_cache") == 0) {
        if (value == NULL || !parse_size(value, &size))
            umem_line("%s: %s=%s: not a size; ignored", variable, item, value != NULL ? value : "");
        else if (size == 0)
            umem_line("%s: %s=%s: caches are by CPU here; STRATA_CONF=magazine_max:0 turns them off", variable, item, value);
    } else if (is_switch(variable, item, value, "nomagazines")) {
        settings.no_magazines = true;
    } else {
        umem_line("%s: %s: not known; ignored", variable, item);
    }
}

/* ------------------------------------------------------------------ features */

/* The settings, but with this mtbf, as strata_debug_set wants them; empty: none. */
static void write_features(char *text, size_t bytes, unsigned long long mtbf) {
    size_t length = 0;
    text[0] = 0;
#define FEATURE(...)                                                                             \
    do {                                                                                         \
        length += (size_t)snprintf(text + length, bytes - length, "%s", length != 0 ? "+" : ""); \
        length += (size_t)snprintf(text + length, bytes - length, __VA_ARGS__);                  \
    } while (0)
    if (settings.audit) FEATURE("audit");
    if (settings.audit && settings.frames != 0) FEATURE("frames=%llu", settings.frames);
    if (settings.contents != 0 && settings.audit) FEATURE("contents=%llu", settings.contents);
    if (settings.guards) FEATURE("guards");
    if (settings.firewall != ULLONG_MAX) FEATURE("firewall=%llu", settings.firewall);
    if (mtbf != 0) FEATURE("mtbf=%llu+seed=1", mtbf);
}

static bool debugs; /* something is switched on; immutable once umem_start has run */

static void set_features(unsigned long long mtbf) {
    char features[160];
    write_features(features, sizeof features, mtbf);
    strata_debug_set("*", features[0] != 0 ? features : "off");
}

void umem_setmtbf(uint32_t threshold) {
    umem_start();
    if (debugs) set_features(threshold < 1000000000 ? threshold : 1000000000);
}

/* ------------------------------------------------------------------ the start */

static const char *value_of(const char *variable, const char *(*of_program)(void)) {
    const char *value = secure_getenv(variable);
    return value != NULL ? value : of_program != NULL ? of_program() : NULL;
}

static void start(void) {
    const char *debug = value_of("UMEM_DEBUG", _umem_debug_init), *logging = value_of("UMEM_LOGGING", _umem_logging_init);
    const char *options = value_of("UMEM_OPTIONS", _umem_options_init);
    if (debug != NULL) each_item("UMEM_DEBUG", debug, take_debug);
    if (logging != NULL) each_item("UMEM_LOGGING", logging, take_log);
    if (options != NULL) each_item("UMEM_OPTIONS", options, take_option);
    if (!settings.aborts) strata_debug_on_error(STRATA_DEBUG_CONTINUE);
    debugs = settings.audit || settings.guards || settings.firewall != ULLONG_MAX || settings.mtbf != 0;
    if (debugs) set_features(settings.mtbf);
}

bool umem_no_magazines(void) { return settings.no_magazines; }

static pthread_once_t once = PTHREAD_ONCE_INIT;
static __attribute__((constructor)) void start_early(void) { umem_start(); }
void umem_start(void) { pthread_once(&once, start); }
