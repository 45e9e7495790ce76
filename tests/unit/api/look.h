/*
 * look.h - the figures of one moment, as a program reads them: the JSON of strata_stats_json, and mallinfo2.
 */
#ifndef STRATA_TEST_LOOK_H
#define STRATA_TEST_LOOK_H

#include "strata/malloc.h"
#include "strata/strata.h"
#include "unit/api/api_support.h"

struct look {
    char json[64 * KIB];
    struct strata_mallinfo2 info;
};
static struct look before, after;

static void take(struct look *look) {
    size_t bytes;
    int file = platform_file_create("/look.json");
    assert_true(file >= 0);
    assert_int_equal(strata_stats_json(file), 0);
    platform_file_close(file);
    const char *text = sim_file_text("/look.json", &bytes);
    assert_true(bytes < sizeof look->json);
    memcpy(look->json, text, bytes + 1);
    look->info = strata_mallinfo2();
}

/* From the start of the object of that name in a list of the document; of "heap", and of the document itself (NULL), there is one. */
static const char *object_in(const char *json, const char *list, const char *name) {
    char wanted[64];
    if (list == NULL) return json;
    snprintf(wanted, sizeof wanted, "\"%s\":", list);
    const char *at = strstr(json, wanted);
    assert_non_null(at);
    if (name == NULL) return at + strlen(wanted);
    snprintf(wanted, sizeof wanted, "{\"name\":\"%s\"", name);
    at = strstr(at, wanted);
    if (at == NULL) fail_msg("there is no %s in %s", name, list);
    return at;
}

#endif
