/*
 * zone_capture_api.c - the public functions of captures (strata/zone.h) over page/frames_capture.c. Arguments are looked at here, and what was wrong
 * is kept with the zone for strata_zone_explain. No lock of its own.
 */
#include "api/zone_public.h"
#include "page/frames.h"

static struct frames_capture_request request_of(const struct strata_zone_capture_request *request) {
    return (struct frames_capture_request){.frames = request->frames,
                                           .align = request->align_frames,
                                           .at = request->at,
                                           .mobility = (enum frames_mobility)request->mobility,
                                           .owner = request->owner,
                                           .flags = request->flags,
                                           .token = request->token};
}
/* The end of a begin. */
static enum strata_zone_status begun(struct frame_zone *zone, const char *function, enum frames_status status,
                                     const struct strata_zone_capture_request *request) {
    switch (status) {
    case FRAMES_OK: return STRATA_ZONE_OK;
    case FRAMES_BUSY: return zone_failed(zone, function, status, "at", request->at, "in superpages of which no other capture wants frames");
    case FRAMES_NO_MEMORY: return zone_failed(zone, function, status, "captures", FRAMES_CAPTURES_MAX, "below 64 under way");
    default: return zone_failed(zone, function, status, "frames", request->frames, "a range without frames that stay, where the request may have it");
    }
}
enum strata_zone_status strata_zone_capture_run(struct strata_zone *public, const struct strata_zone_capture_request *request, uint64_t *frame) {
    struct frame_zone *zone = zone_of(public);
    struct frames_complaint complaint;
    if (zone == NULL || request == NULL || frame == NULL) return zone_null(public, "strata_zone_capture_run", request == NULL ? "request" : "frame");
    const struct frames_capture_request inner = request_of(request);
    if (frames_capture_check(zone, &inner, &complaint) != FRAMES_OK)
        return zone_bad(zone, "strata_zone_capture_run", complaint.argument, complaint.value, complaint.allowed);
    return begun(zone, "strata_zone_capture_run", frames_capture_run(zone, &inner, frame), request);
}
enum strata_zone_status strata_zone_capture_begin(struct strata_zone *public, const struct strata_zone_capture_request *request,
                                                  struct strata_zone_capture **out) {
    struct frame_zone *zone = zone_of(public);
    struct frames_complaint complaint;
    struct frames_capture *capture;
    if (zone == NULL || request == NULL || out == NULL)
        return zone_null(public, "strata_zone_capture_begin", request == NULL ? "request" : "capture");
    const struct frames_capture_request inner = request_of(request);
    if (frames_capture_check(zone, &inner, &complaint) != FRAMES_OK)
        return zone_bad(zone, "strata_zone_capture_begin", complaint.argument, complaint.value, complaint.allowed);
    enum frames_status status = frames_capture_begin(zone, &inner, &capture);
    if (status == FRAMES_OK) *out = frames_capture_name(capture);
    return begun(zone, "strata_zone_capture_begin", status, request);
}

/* NULL: none, or it is no more, which is explained. */
static struct frames_capture *capture_of(struct strata_zone_capture *public, const char *function) {
    struct frame_zone *zone;
    if (public == NULL) return NULL;
    struct frames_capture *capture = frames_capture_of(public, &zone);
    if (capture == NULL) (void)zone_bad(zone, function, "capture", (uintptr_t)public, "under way: neither had nor given up");
    return capture;
}
/* The end of a call on a capture; that it still waits is no fault of anybody's. */
static enum strata_zone_status captured(struct frame_zone *zone, const char *function, enum frames_status status, const void *name) {
    if (status == FRAMES_OK || status == FRAMES_NOT_DONE) return (enum strata_zone_status)status;
    const char *allowed = "of a range in which nothing stays for good";
    if (status == FRAMES_BUSY) allowed = "of blocks that can move or go now; try again";
    if (status == FRAMES_PINNED) allowed = "of frames that are not pinned";
    return zone_failed(zone, function, status, "capture", (uintptr_t)name, allowed);
}
enum strata_zone_status strata_zone_capture_push(struct strata_zone_capture *public, uint64_t blocks) {
    static const char *const name = "strata_zone_capture_push";
    struct frames_capture *capture = capture_of(public, name);
    if (capture == NULL) return STRATA_ZONE_BAD_ARGUMENT;
    struct frame_zone *zone = frames_capture_zone(capture);
    return captured(zone, name, frames_capture_push(capture, blocks), public);
}
enum strata_zone_status strata_zone_capture_poll(struct strata_zone_capture *public, uint64_t *first, uint64_t *left) {
    static const char *const name = "strata_zone_capture_poll";
    struct frames_capture *capture = capture_of(public, name);
    if (capture == NULL) return STRATA_ZONE_BAD_ARGUMENT;
    struct frame_zone *zone = frames_capture_zone(capture);
    return captured(zone, name, frames_capture_poll(capture, first, left), public);
}
enum strata_zone_status strata_zone_capture_end(struct strata_zone_capture *public, uint64_t *frame) {
    static const char *const name = "strata_zone_capture_end";
    struct frames_capture *capture = capture_of(public, name);
    if (capture == NULL) return STRATA_ZONE_BAD_ARGUMENT;
    struct frame_zone *zone = frames_capture_zone(capture);
    if (frame == NULL) return zone_null(public_zone(zone), name, "frame");
    return captured(zone, name, frames_capture_end(capture, frame), public);
}
void strata_zone_capture_give_up(struct strata_zone_capture *public) {
    struct frames_capture *capture = capture_of(public, "strata_zone_capture_give_up");
    if (capture != NULL) frames_capture_give_up(capture);
}
