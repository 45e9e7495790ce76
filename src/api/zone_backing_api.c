/*
 * zone_backing_api.c - the public functions of files behind blocks of zones (strata/zone_backing.h) over page/frames_backing.h. Arguments are looked
 * at here, and what was wrong is kept with the zone for strata_zone_explain. No lock of its own.
 */
#include "strata/zone_backing.h"

#include <errno.h>

#include "api/zone_public.h"
#include "page/frames_backing.h"

static int errno_of(int error) { return error == PLATFORM_STORE_NO_DATA ? ENODATA : error == PLATFORM_STORE_NO_MEMORY ? ENOMEM : error; }

static enum strata_zone_status result_of(struct strata_zone *zone, const char *function, int error) {
    if (error == 0) return STRATA_ZONE_OK;
    (void)zone_failed(zone_of(zone), function, FRAMES_FILE_ERROR, "errno", (uint64_t)errno_of(error), "0, of the file");
    errno = errno_of(error);
    return STRATA_ZONE_FILE_ERROR;
}

/* NULL, and it was said: no such owner, or it has no file. */
static struct frames_backing *backing_of(struct strata_zone *zone, unsigned owner, const char *function) {
    const struct frames_owner *known = frames_owner_get(zone_of(zone), owner);
    struct frames_backing *backing = known != NULL ? frames_backing_of(known) : NULL;
    if (backing == NULL) (void)zone_bad(zone_of(zone), function, "owner", owner, "one with a file: strata_zone_backing_open");
    return backing;
}

typedef void written_function(struct strata_zone *, uint64_t, uint64_t, uint64_t, int, void *);
static void written(struct frame_zone *zone, const struct frames_owner *owner, uint64_t frame, uint64_t frames, uint64_t token, int error) {
    const struct frames_backing_config *config = &frames_backing_of(owner)->config;
    frames_program_begin();
    ((written_function *)config->program_written)(public_zone(zone), frame, frames, token, errno_of(error), config->context);
    frames_program_end();
}

enum strata_zone_status strata_zone_backing_open(struct strata_zone *zone, unsigned owner, const struct strata_zone_backing_config *config) {
    static const char *const name = "strata_zone_backing_open";
    if (zone == NULL || config == NULL) return zone_null(zone, name, "config");
    if (!frames_owner_is_known(zone_of(zone), owner)) return zone_bad(zone_of(zone), name, "owner", owner, "what strata_zone_owner_add gave");
    if (config->bytes == 0) return zone_bad(zone_of(zone), name, "bytes", config->bytes, "above 0");
    const struct frames_backing_config wanted = {.path = config->path,
                                                 .file = config->file,
                                                 .bytes = config->bytes,
                                                 .written = config->written != NULL ? written : NULL,
                                                 .program_written = (void (*)(void))config->written,
                                                 .context = config->context};
    int error = 0;
    enum frames_status status = frames_backing_open(zone_of(zone), owner, &wanted, &error);
    if (status == FRAMES_FILE_ERROR) return result_of(zone, name, error);
    if (status == FRAMES_OK) return STRATA_ZONE_OK;
    const char *allowed = status == FRAMES_BUSY ? "one without a file" : "one that there is memory for: a page";
    return zone_failed(zone_of(zone), name, status, "owner", owner, allowed);
}

enum strata_zone_status strata_zone_backing_read(struct strata_zone *zone, unsigned owner, uint64_t frame, uint64_t frames, uint64_t token) {
    static const char *const name = "strata_zone_backing_read";
    uint64_t at;
    if (zone == NULL) return STRATA_ZONE_BAD_ARGUMENT;
    struct frames_backing *backing = backing_of(zone, owner, name);
    if (backing == NULL) return STRATA_ZONE_BAD_ARGUMENT;
    if (frame >= frames_count(zone_of(zone))) return zone_bad(zone_of(zone), name, "frame", frame, "below the number of frames");
    if (frames == 0 || frames > frames_count(zone_of(zone)) - frame)
        return zone_bad(zone_of(zone), name, "frames", frames, "above 0, and not beyond the end of the zone");
    if (!frames_backing_has_place(zone_of(zone), backing, frames, token))
        return zone_bad(zone_of(zone), name, "token", token, "a place within the file");
    if (!frames_all_allocated(zone_of(zone), frame, frames, &at)) {
        frames_complain(zone_of(zone), name, &(struct frames_complaint){"frame", "free; must be allocated", at});
        return STRATA_ZONE_NOT_ALLOCATED;
    }
    return result_of(zone, name, frames_backing_read(zone_of(zone), backing, frame, frames, token));
}

enum strata_zone_status strata_zone_backing_sync(struct strata_zone *zone, unsigned owner) {
    static const char *const name = "strata_zone_backing_sync";
    struct frames_backing *backing = zone != NULL ? backing_of(zone, owner, name) : NULL;
    return backing != NULL ? result_of(zone, name, platform_store_sync(&backing->store)) : STRATA_ZONE_BAD_ARGUMENT;
}

enum strata_zone_status strata_zone_backing_stats_get(struct strata_zone *zone, unsigned owner, struct strata_zone_backing_stats *stats) {
    static const char *const name = "strata_zone_backing_stats_get";
    if (zone == NULL || stats == NULL) return zone_null(zone, name, "stats");
    struct frames_backing *backing = backing_of(zone, owner, name);
    struct frames_backing_counts counts;
    if (backing == NULL) return STRATA_ZONE_BAD_ARGUMENT;
    frames_backing_counts_get(backing, &counts);
    *stats = (struct strata_zone_backing_stats){.bytes = backing->config.bytes,
                                                .written = counts.written,
                                                .read = counts.read,
                                                .write_errors = counts.write_errors,
                                                .read_errors = counts.read_errors,
                                                .without_place = counts.without_place};
    return STRATA_ZONE_OK;
}
