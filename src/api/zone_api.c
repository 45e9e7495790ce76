/*
 * zone_api.c - the public functions of zones of frames (strata/zone.h) over page/frames.h.
 *
 * The public structs are the internal ones under other names, never defined; the public statuses, flags and kinds are the same numbers. Arguments are
 * looked at here, as page/ trusts its callers, and what was wrong is kept with the zone for strata_zone_explain. No lock of its own.
 */
#include "strata/zone.h"

#include <string.h>

#include "api/heap.h"
#include "api/zone_fork.h"
#include "api/zone_public.h"
#include "base/check.h"
#include "page/frames.h"
#include "strata/page.h"

#define SAME(a, b) _Static_assert((int)(a) == (int)(b), "the same numbers")
SAME(STRATA_ZONE_OK, FRAMES_OK);
SAME(STRATA_ZONE_NO_MEMORY, FRAMES_NO_MEMORY);
SAME(STRATA_ZONE_BAD_ARGUMENT, FRAMES_BAD_ARGUMENT);
SAME(STRATA_ZONE_NO_FRAMES, FRAMES_NO_FRAMES);
SAME(STRATA_ZONE_NOT_ALLOCATED, FRAMES_NOT_ALLOCATED);
SAME(STRATA_ZONE_PINNED, FRAMES_PINNED);
SAME(STRATA_ZONE_NOT_PINNED, FRAMES_NOT_PINNED);
SAME(STRATA_ZONE_MAPPED, FRAMES_MAPPED);
SAME(STRATA_ZONE_NOT_MAPPED, FRAMES_NOT_MAPPED);
SAME(STRATA_ZONE_BUSY, FRAMES_BUSY);
SAME(STRATA_ZONE_UNSUPPORTED, FRAMES_UNSUPPORTED);
SAME(STRATA_ZONE_NO_HUGE_PAGES, FRAMES_NO_HUGE_PAGES);
SAME(STRATA_ZONE_GONE, FRAMES_GONE);
SAME(STRATA_ZONE_NOT_DONE, FRAMES_NOT_DONE);
SAME(STRATA_ZONE_FILE_ERROR, FRAMES_FILE_ERROR);
SAME(STRATA_ZONE_MOVABLE, FRAMES_MOVABLE);
SAME(STRATA_ZONE_MOBILITIES, FRAMES_MOBILITIES);
SAME(STRATA_ZONE_HUGETLB, FRAMES_HUGETLB);
SAME(STRATA_ZONE_SIM, FRAMES_SIM);
SAME(STRATA_ZONE_NO_GROUPING, FRAMES_NO_GROUPING);
SAME(STRATA_ZONE_SCATTER, FRAMES_SCATTER);
SAME(STRATA_ZONE_HUGE_IN_PARTITION, FRAMES_HUGE_IN_PARTITION);
SAME(STRATA_ZONE_ON_NODE, FRAMES_ON_NODE);
SAME(STRATA_ZONE_NO_FALLBACK, FRAMES_NO_FALLBACK);
SAME(STRATA_ZONE_NO_RESERVE, FRAMES_NO_RESERVE);
SAME(STRATA_ZONE_NO_EFFORT, FRAMES_NO_EFFORT);
SAME(STRATA_ZONE_HIGH, FRAMES_HIGH);
SAME(STRATA_ZONE_YES, FRAMES_YES);
SAME(STRATA_ZONE_LATER, FRAMES_LATER);
SAME(STRATA_ZONE_NEVER, FRAMES_NEVER);
SAME(STRATA_ZONE_WROTE, FRAMES_WROTE);
SAME(STRATA_ZONE_WRITE, FRAMES_WRITE);
SAME(STRATA_ZONE_CAPTURE_AT, FRAMES_CAPTURE_AT);
SAME(STRATA_ZONE_CAPTURE_NO_RECLAIM, FRAMES_CAPTURE_NO_RECLAIM);
SAME(STRATA_ZONE_CAPTURE_NO_HOLD, FRAMES_CAPTURE_NO_HOLD);
SAME(STRATA_ZONE_COMPACT, FRAMES_COMPACT);
SAME(STRATA_ZONE_RECLAIM, FRAMES_RECLAIM);
SAME(STRATA_ZONE_RECLAIM_CAPTURES, FRAMES_RECLAIM_CAPTURES);
SAME(STRATA_ZONE_FRAMES_MAX, FRAMES_MAX);
SAME(STRATA_ZONE_PINS_MAX, FRAMES_PINS_MAX);
SAME(STRATA_ZONE_OWNERS_MAX, FRAMES_OWNERS_MAX);
SAME(STRATA_ZONE_CPUS_MAX, FRAMES_CPUS_MAX);
SAME(STRATA_ZONE_CAPTURES_MAX, FRAMES_CAPTURES_MAX);
SAME(STRATA_ZONE_ORDERS, FRAMES_ORDERS);
SAME(STRATA_ZONE_NAME_BYTES, FRAMES_NAME_BYTES);
SAME(STRATA_ZONE_SUPERPAGE_BYTES, FRAMES_SUPERPAGE_BYTES);

const char *strata_zone_status_text(enum strata_zone_status status) {
    static const char *const texts[] = {[STRATA_ZONE_OK] = "success",
                                        [STRATA_ZONE_NO_MEMORY] = "no memory",
                                        [STRATA_ZONE_BAD_ARGUMENT] = "bad argument",
                                        [STRATA_ZONE_NO_FRAMES] = "no such run of frames is free",
                                        [STRATA_ZONE_NOT_ALLOCATED] = "a frame is not allocated",
                                        [STRATA_ZONE_PINNED] = "a frame is pinned, or as often as it can be",
                                        [STRATA_ZONE_NOT_PINNED] = "a frame is not pinned",
                                        [STRATA_ZONE_MAPPED] = "a frame or a page is mapped already, or still",
                                        [STRATA_ZONE_NOT_MAPPED] = "a page shows no frame",
                                        [STRATA_ZONE_BUSY] = "being moved or reclaimed, or in use by others",
                                        [STRATA_ZONE_UNSUPPORTED] = "not with this backend, or on this system",
                                        [STRATA_ZONE_NO_HUGE_PAGES] = "the system's pool has too few huge pages",
                                        [STRATA_ZONE_GONE] = "the range can't be had any more",
                                        [STRATA_ZONE_NOT_DONE] = "frames of the range are still in use",
                                        [STRATA_ZONE_FILE_ERROR] = "the file behind the blocks can't be had, read or written"};
    return (unsigned)status < ARRAY_LENGTH(texts) ? texts[status] : "unknown status";
}

/* ------------------------------------------------------------------ complaints */

static enum strata_zone_status complain(struct frame_zone *zone, const char *function, enum frames_status status,
                                        const struct frames_complaint *complaint) {
    frames_complain(zone, function, complaint);
    return (enum strata_zone_status)status;
}

/* What a status says of a single frame of a run. */
static const char *said_of_frame(enum frames_status status) {
    switch (status) {
    case FRAMES_NOT_ALLOCATED: return "free; must be allocated";
    case FRAMES_PINNED: return "pinned; must not be, or less often";
    case FRAMES_NOT_PINNED: return "not pinned; must be";
    case FRAMES_MAPPED: return "in a window; must not be";
    case FRAMES_BUSY: return "being moved or reclaimed; try again";
    default: return "an odd state";
    }
}
/* The end of a call on a run: `at` is the frame that was wrong. */
static enum strata_zone_status result(struct frame_zone *zone, const char *function, enum frames_status status, uint64_t at) {
    if (STRATA_LIKELY(status == FRAMES_OK)) return STRATA_ZONE_OK;
    return complain(zone, function, status, &(struct frames_complaint){"frame", said_of_frame(status), at});
}
static bool in_zone(struct frame_zone *zone, uint64_t frame, uint64_t frames) {
    return frames != 0 && frame < frames_count(zone) && frames <= frames_count(zone) - frame;
}
static STRATA_COLD enum strata_zone_status bad_run(struct frame_zone *zone, const char *function, uint64_t frame, uint64_t frames) {
    if (zone == NULL) return STRATA_ZONE_BAD_ARGUMENT;
    if (frame >= frames_count(zone)) return zone_bad(zone, function, "frame", frame, "below the number of frames");
    return zone_bad(zone, function, "frames", frames, "above 0, and not beyond the end of the zone");
}

static size_t explain(const char *function, const struct frames_complaint *complaint, char *text, size_t bytes) {
    bool is_address = strcmp(complaint->argument, "address") == 0 || strcmp(complaint->argument, "capture") == 0;
    return format_text(text, text != NULL ? bytes : 0, is_address ? "%s: %s = 0x%llx (%s)" : "%s: %s = %llu (%s)", function, complaint->argument,
                       (unsigned long long)complaint->value, complaint->allowed);
}
size_t strata_zone_explain(struct strata_zone *zone, char *text, size_t bytes) {
    struct frames_complaint complaint;
    const char *function = zone != NULL ? frames_recall(zone_of(zone), &complaint) : NULL;
    if (function == NULL) {
        if (text != NULL && bytes != 0) *text = '\0';
        return 0;
    }
    return explain(function, &complaint, text, bytes);
}

/* ------------------------------------------------------------------ life */

/* One block of the heap's, which nobody else knows: it counts for the heap's limits, and its pages come out of those that the heap keeps. */
static char *lend(uint64_t bytes) {
    const struct strata_page_request request = {
        .bytes = bytes, .align = STRATA_ZONE_SUPERPAGE_BYTES, .flags = STRATA_PAGE_NO_MOVE | STRATA_PAGE_UNMOVABLE};
    void *block;
    return strata_page_alloc_as(&request, &block) == STRATA_PAGE_OK ? block : NULL;
}
/* The heap looks, when it has the block back, which pages are gone. */
static bool discard(char *address, uint64_t bytes) { return strata_page_release(address, bytes) == STRATA_PAGE_OK; }
/* In a process that is being ended the heap takes nothing. */
static void take_back(char *memory) { CHECK(strata_page_free(memory) == STRATA_PAGE_OK || __atomic_load_n(&heap.dying, __ATOMIC_RELAXED)); }
static const struct frames_lender heap_lender = {lend, discard, take_back};

static struct frames_config config_of(const struct strata_zone_config *config) {
    return (struct frames_config){.name = config->name,
                                  .backend = (enum frames_backend_kind)config->backend,
                                  .lender = &heap_lender,
                                  .bytes = config->bytes,
                                  .frame_bytes = config->frame_bytes,
                                  .reserve_bytes = config->reserve_bytes,
                                  .partition_bytes = config->partition_bytes,
                                  .node = config->node,
                                  .cpus = config->cpus,
                                  .flags = config->flags};
}

enum strata_zone_status strata_zone_create(const struct strata_zone_config *config, struct strata_zone **out) {
    struct frames_complaint complaint;
    struct frame_zone *zone;
    if (config == NULL || out == NULL) return STRATA_ZONE_BAD_ARGUMENT;
    if (__atomic_load_n(&heap.dying, __ATOMIC_RELAXED) || !heap_init()) return STRATA_ZONE_NO_MEMORY;
    struct frames_config inner = config_of(config);
    enum frames_status status = frames_config_check(&inner, &complaint);
    if (status == FRAMES_OK) status = frames_zone_create(&inner, &zone);
    if (status != FRAMES_OK) return (enum strata_zone_status)status;
    zones_enter(zone);
    *out = public_zone(zone);
    return STRATA_ZONE_OK;
}

size_t strata_zone_explain_config(const struct strata_zone_config *config, char *text, size_t bytes) {
    struct frames_complaint complaint = {"config", "not NULL", 0};
    if (text != NULL && bytes != 0) *text = '\0';
    if (config != NULL) {
        struct frames_config inner = config_of(config);
        if (!heap_init() || frames_config_check(&inner, &complaint) == FRAMES_OK) return 0;
    }
    return explain("strata_zone_create", &complaint, text, bytes);
}

enum strata_zone_status strata_zone_destroy(struct strata_zone *zone) {
    struct strata_zone_stats stats;
    enum frames_status status = zone == NULL ? FRAMES_OK : zones_destroy(zone_of(zone));
    if (status == FRAMES_OK) return STRATA_ZONE_OK;
    (void)strata_zone_stats_get(zone, &stats);
    if (status == FRAMES_PINNED) return zone_failed(zone_of(zone), "strata_zone_destroy", status, "pinned frames", stats.pinned, "0");
    if (frames_in_program()) return zone_failed(zone_of(zone), "strata_zone_destroy", status, "calls within an owner's function", 1, "0");
    return zone_failed(zone_of(zone), "strata_zone_destroy", status, "captures", stats.captures, "0, and nothing that is being moved or reclaimed");
}

/* ------------------------------------------------------------------ owners */

typedef enum strata_zone_answer migrate_function(struct strata_zone *, uint64_t, uint64_t, uint64_t, uint64_t, void *);
typedef enum strata_zone_answer reclaim_function(struct strata_zone *, uint64_t, uint64_t, uint64_t, bool, void *);

/* What is no answer counts as LATER: the block stays as it is. */
static enum frames_answer answer_of(enum strata_zone_answer answer) {
    return (unsigned)answer <= STRATA_ZONE_WRITE ? (enum frames_answer)answer : FRAMES_LATER;
}
static enum frames_answer migrate(struct frame_zone *zone, const struct frames_owner *owner, uint64_t from, uint64_t to, uint64_t frames,
                                  uint64_t token) {
    migrate_function *program = (migrate_function *)owner->program_migrate;
    frames_program_begin();
    enum strata_zone_answer answer = program(public_zone(zone), from, to, frames, token, owner->context);
    frames_program_end();
    return answer_of(answer);
}
static enum frames_answer reclaim(struct frame_zone *zone, const struct frames_owner *owner, uint64_t frame, uint64_t frames, uint64_t token,
                                  bool dirty) {
    reclaim_function *program = (reclaim_function *)owner->program_reclaim;
    frames_program_begin();
    enum strata_zone_answer answer = program(public_zone(zone), frame, frames, token, dirty, owner->context);
    frames_program_end();
    return answer_of(answer);
}

enum strata_zone_status strata_zone_owner_add(struct strata_zone *zone, const struct strata_zone_owner *owner, unsigned *number) {
    static const char *const name = "strata_zone_owner_add";
    if (zone == NULL || owner == NULL || number == NULL) return zone_null(zone, name, owner == NULL ? "owner" : "number");
    if (owner->name == NULL) return zone_null(zone, name, "name");
    struct frames_owner inner = {.migrate = owner->migrate != NULL ? migrate : NULL,
                                 .reclaim = owner->reclaim != NULL ? reclaim : NULL,
                                 .context = owner->context,
                                 .program_migrate = (void (*)(void))owner->migrate,
                                 .program_reclaim = (void (*)(void))owner->reclaim};
    (void)format_text(inner.name, sizeof inner.name, "%s", owner->name);
    enum frames_status status = frames_owner_add(zone_of(zone), &inner, number);
    if (status == FRAMES_OK) return STRATA_ZONE_OK;
    return zone_failed(zone_of(zone), name, status, "owners", FRAMES_OWNERS_MAX, "below 255 in the zone");
}

/* ------------------------------------------------------------------ frames */

static STRATA_NOINLINE enum strata_zone_status alloc_as(struct frame_zone *zone, const char *function, const struct frames_request *request,
                                                        uint64_t *frame) {
    struct frames_complaint complaint;
    if (frames_request_check(zone, request, &complaint) != FRAMES_OK) return complain(zone, function, FRAMES_BAD_ARGUMENT, &complaint);
    enum frames_status status = frames_alloc_hard(zone, request, frame);
    if (STRATA_LIKELY(status == FRAMES_OK)) return STRATA_ZONE_OK;
    return zone_failed(zone, function, status, "frames", request->frames, "as many as lie free together where the request may have them");
}

enum strata_zone_status strata_zone_alloc(struct strata_zone *public, uint64_t frames, enum strata_zone_mobility mobility, uint64_t *frame) {
    struct frame_zone *zone = zone_of(public);
    if (STRATA_UNLIKELY(zone == NULL || frame == NULL)) return zone_null(public, "strata_zone_alloc", "frame");
    const struct frames_request request = {.frames = frames, .mobility = (enum frames_mobility)mobility};
    return alloc_as(zone, "strata_zone_alloc", &request, frame);
}

enum strata_zone_status strata_zone_alloc_as(struct strata_zone *public, const struct strata_zone_request *request, uint64_t *frame) {
    struct frame_zone *zone = zone_of(public);
    if (zone == NULL || request == NULL || frame == NULL) return zone_null(public, "strata_zone_alloc_as", request == NULL ? "request" : "frame");
    const struct frames_request inner = {.frames = request->frames,
                                         .align = request->align_frames,
                                         .mobility = (enum frames_mobility)request->mobility,
                                         .owner = request->owner,
                                         .flags = request->flags,
                                         .token = request->token};
    return alloc_as(zone, "strata_zone_alloc_as", &inner, frame);
}

enum strata_zone_status strata_zone_free(struct strata_zone *public, uint64_t frame, uint64_t frames) {
    struct frame_zone *zone = zone_of(public);
    uint64_t at;
    if (STRATA_UNLIKELY(zone == NULL || !in_zone(zone, frame, frames))) return bad_run(zone, "strata_zone_free", frame, frames);
    enum frames_status status = frames_free(zone, frame, frames, &at);
    return STRATA_LIKELY(status == FRAMES_OK) ? STRATA_ZONE_OK : result(zone, "strata_zone_free", status, at);
}

enum strata_zone_status strata_zone_pin(struct strata_zone *public, uint64_t frame, uint64_t frames) {
    struct frame_zone *zone = zone_of(public);
    uint64_t at = frame;
    if (zone == NULL || !in_zone(zone, frame, frames)) return bad_run(zone, "strata_zone_pin", frame, frames);
    enum frames_status status = frames_pin(zone, frame, frames, &at);
    return result(zone, "strata_zone_pin", status, at);
}
enum strata_zone_status strata_zone_unpin(struct strata_zone *public, uint64_t frame, uint64_t frames) {
    struct frame_zone *zone = zone_of(public);
    uint64_t at = frame;
    if (zone == NULL || !in_zone(zone, frame, frames)) return bad_run(zone, "strata_zone_unpin", frame, frames);
    enum frames_status status = frames_unpin(zone, frame, frames, &at);
    return result(zone, "strata_zone_unpin", status, at);
}

enum strata_zone_status strata_zone_query(struct strata_zone *public, uint64_t frame, struct strata_zone_frame_info *info) {
    struct frame_zone *zone = zone_of(public);
    struct frames_info inner;
    if (zone == NULL || info == NULL) return zone_null(public, "strata_zone_query", "info");
    if (!in_zone(zone, frame, 1)) return bad_run(zone, "strata_zone_query", frame, 1);
    (void)frames_query(zone, frame, &inner);
    *info = (struct strata_zone_frame_info){.allocated = inner.allocated,
                                            .pinned = inner.pinned,
                                            .moving = inner.moving,
                                            .mapped = inner.mapped,
                                            .captured = inner.captured,
                                            .mobility = (enum strata_zone_mobility)inner.mobility,
                                            .group = (enum strata_zone_mobility)inner.group,
                                            .first = inner.first,
                                            .frames = inner.frames,
                                            .owner = inner.owner,
                                            .pins = inner.pins,
                                            .token = inner.token};
    return STRATA_ZONE_OK;
}

/* ------------------------------------------------------------------ contents and addresses */

void *strata_zone_address(struct strata_zone *zone, uint64_t frame) { return zone == NULL ? NULL : frames_address(zone_of(zone), frame); }
int strata_zone_file(struct strata_zone *zone) { return zone == NULL ? -1 : frames_file(zone_of(zone)); }
size_t strata_zone_frame_bytes(struct strata_zone *zone) { return zone == NULL ? 0 : frames_frame_bytes(zone_of(zone)); }
uint64_t strata_zone_frames(struct strata_zone *zone) { return zone == NULL ? 0 : frames_count(zone_of(zone)); }

enum strata_zone_status strata_zone_copy(struct strata_zone *public, uint64_t from, uint64_t to, uint64_t frames) {
    struct frame_zone *zone = zone_of(public);
    if (zone == NULL || !in_zone(zone, from, frames)) return bad_run(zone, "strata_zone_copy", from, frames);
    if (!in_zone(zone, to, frames)) return bad_run(zone, "strata_zone_copy", to, frames);
    if (from < to + frames && to < from + frames) return zone_bad(zone, "strata_zone_copy", "to", to, "a run that does not overlap the other");
    uint64_t at;
    if (!frames_all_allocated(zone, from, frames, &at) || !frames_all_allocated(zone, to, frames, &at))
        return result(zone, "strata_zone_copy", FRAMES_NOT_ALLOCATED, at);
    frames_copy(zone, from, to, frames);
    return STRATA_ZONE_OK;
}
uint64_t strata_zone_peek(struct strata_zone *zone, uint64_t frame) {
    return zone != NULL && in_zone(zone_of(zone), frame, 1) ? frames_peek(zone_of(zone), frame) : 0;
}
void strata_zone_poke(struct strata_zone *zone, uint64_t frame, uint64_t word) {
    if (zone != NULL && in_zone(zone_of(zone), frame, 1)) frames_poke(zone_of(zone), frame, word);
}
void strata_zone_touch(struct strata_zone *zone, uint64_t frame, bool write) {
    if (zone != NULL && in_zone(zone_of(zone), frame, 1)) frames_touch(zone_of(zone), frame, write);
}

typedef enum frames_status run_function(struct frame_zone *zone, uint64_t frame, uint64_t frames);
static enum strata_zone_status on_run(struct frame_zone *zone, const char *function, uint64_t frame, uint64_t frames, run_function *run) {
    uint64_t at = frame;
    if (zone == NULL || !in_zone(zone, frame, frames)) return bad_run(zone, function, frame, frames);
    enum frames_status status = frames_check_run(zone, frame, frames, &at);
    if (status != FRAMES_OK) return result(zone, function, status, at);
    status = run(zone, frame, frames);
    if (status == FRAMES_OK) return STRATA_ZONE_OK;
    const char *allowed = status == FRAMES_NO_MEMORY ? "as many as the system has memory for" : "what the system can take memory out of";
    return zone_failed(zone, function, status, "frames", frames, allowed);
}
enum strata_zone_status strata_zone_populate(struct strata_zone *zone, uint64_t frame, uint64_t frames) {
    return on_run(zone_of(zone), "strata_zone_populate", frame, frames, frames_populate);
}
enum strata_zone_status strata_zone_discard(struct strata_zone *zone, uint64_t frame, uint64_t frames) {
    return on_run(zone_of(zone), "strata_zone_discard", frame, frames, frames_discard);
}

/* ------------------------------------------------------------------ windows */

/* The end of a call on addresses. arguments: what these and the frames there must be; else it is something behind them. */
static enum strata_zone_status at_address(struct frame_zone *zone, const char *function, enum frames_status status, const void *address,
                                          const char *arguments) {
    const char *allowed = arguments;
    if (STRATA_LIKELY(status == FRAMES_OK)) return STRATA_ZONE_OK;
    switch (status) {
    case FRAMES_PINNED: allowed = "of frames that are pinned less often than can be counted"; break;
    case FRAMES_NO_MEMORY: allowed = "as many mappings as the process has left"; break;
    case FRAMES_UNSUPPORTED: allowed = "of a zone whose frames can be shown elsewhere: of a memfd, or huge pages"; break;
    default: break;
    }
    return zone_failed(zone, function, status, "address", (uintptr_t)address, allowed);
}

enum strata_zone_status strata_zone_window_open(struct strata_zone *zone, size_t bytes, void **address) {
    static const char *const name = "strata_zone_window_open";
    if (zone == NULL || address == NULL) return zone_null(zone, name, "address");
    enum frames_status status = frames_window_open(zone_of(zone), bytes, address);
    if (status == FRAMES_OK) return STRATA_ZONE_OK;
    const char *allowed = "a multiple of the frame's size, of huge pages 2 MiB, above 0";
    if (status == FRAMES_NO_MEMORY) allowed = "as many as there is address space for, and memory for the table";
    if (status == FRAMES_UNSUPPORTED) allowed = "of a zone whose frames can be shown elsewhere: of a memfd, or huge pages";
    return zone_failed(zone_of(zone), name, status, "bytes", bytes, allowed);
}
enum strata_zone_status strata_zone_window_close(struct strata_zone *zone, void *address) {
    if (zone == NULL) return STRATA_ZONE_BAD_ARGUMENT;
    return at_address(zone_of(zone), "strata_zone_window_close", frames_window_close(zone_of(zone), address), address,
                      "where a window begins that shows no frames");
}
enum strata_zone_status strata_zone_map(struct strata_zone *public, uint64_t frame, uint64_t frames, void *address) {
    struct frame_zone *zone = zone_of(public);
    if (zone == NULL || !in_zone(zone, frame, frames)) return bad_run(zone, "strata_zone_map", frame, frames);
    return at_address(zone, "strata_zone_map", frames_map(zone, frame, frames, address), address,
                      "pages inside one window that show nothing, for frames that are allocated and in no window");
}
enum strata_zone_status strata_zone_unmap(struct strata_zone *zone, void *address, size_t bytes) {
    if (zone == NULL) return STRATA_ZONE_BAD_ARGUMENT;
    return at_address(zone_of(zone), "strata_zone_unmap", frames_unmap(zone_of(zone), address, bytes), address,
                      "pages inside one window, all of which show frames that are not being moved");
}
enum strata_zone_status strata_zone_frame_at(struct strata_zone *zone, const void *address, uint64_t *frame) {
    if (zone == NULL || frame == NULL) return zone_null(zone, "strata_zone_frame_at", "frame");
    return at_address(zone_of(zone), "strata_zone_frame_at", frames_at(zone_of(zone), address, false, frame), address,
                      "in a page that shows a frame");
}
enum strata_zone_status strata_zone_pin_at(struct strata_zone *zone, const void *address, uint64_t *frame) {
    if (zone == NULL || frame == NULL) return zone_null(zone, "strata_zone_pin_at", "frame");
    return at_address(zone_of(zone), "strata_zone_pin_at", frames_at(zone_of(zone), address, true, frame), address,
                      "in a page that shows a frame which is not being moved");
}

/* ------------------------------------------------------------------ placement */

enum strata_zone_status strata_zone_partition_resize(struct strata_zone *zone, uint64_t bytes) {
    if (zone == NULL) return STRATA_ZONE_BAD_ARGUMENT;
    enum frames_status status = frames_partition_resize(zone_of(zone), bytes);
    if (status == FRAMES_OK) return STRATA_ZONE_OK;
    const char *allowed = status == FRAMES_BUSY ? "a size without unmovable frames" : "at most the zone";
    return complain(zone_of(zone), "strata_zone_partition_resize", status, &(struct frames_complaint){"bytes", allowed, bytes});
}
enum strata_zone_status strata_zone_set_reserve(struct strata_zone *zone, uint64_t bytes) {
    if (zone == NULL) return STRATA_ZONE_BAD_ARGUMENT;
    if (frames_set_reserve(zone_of(zone), bytes) != FRAMES_OK)
        return zone_bad(zone_of(zone), "strata_zone_set_reserve", "bytes", bytes, "at most the zone");
    return STRATA_ZONE_OK;
}
enum strata_zone_status strata_zone_set_effort(struct strata_zone *zone, unsigned effort) {
    if (zone == NULL) return STRATA_ZONE_BAD_ARGUMENT;
    if ((effort & ~(unsigned)(FRAMES_COMPACT | FRAMES_RECLAIM | FRAMES_RECLAIM_CAPTURES)) != 0)
        return zone_bad(zone_of(zone), "strata_zone_set_effort", "effort", effort, "those of strata_zone_effort");
    frames_set_effort(zone_of(zone), effort);
    return STRATA_ZONE_OK;
}

/* ------------------------------------------------------------------ looking inside */

_Static_assert(sizeof(struct strata_zone_stats) == sizeof(struct frames_stats), "the same members");
_Static_assert(offsetof(struct strata_zone_stats, free_blocks) == offsetof(struct frames_stats, free_blocks), "the same members");
_Static_assert(offsetof(struct strata_zone_stats, metadata_bytes) == offsetof(struct frames_stats, metadata_bytes), "the same members");

enum strata_zone_status strata_zone_stats_get(struct strata_zone *zone, struct strata_zone_stats *stats) {
    struct frames_stats inner;
    if (zone == NULL || stats == NULL) return zone_null(zone, "strata_zone_stats_get", "stats");
    frames_stats_get(zone_of(zone), &inner);
    __builtin_memcpy(stats, &inner, sizeof inner);
    return STRATA_ZONE_OK;
}
_Static_assert(sizeof(struct strata_zone_superpage) == sizeof(struct frames_superpage_info), "the same members");

enum strata_zone_status strata_zone_map_get(struct strata_zone *zone, uint64_t first, uint64_t count, struct strata_zone_superpage *out) {
    if (zone == NULL || out == NULL) return zone_null(zone, "strata_zone_map_get", "superpages");
    uint64_t superpages = frames_count(zone_of(zone)) / (FRAMES_SUPERPAGE_BYTES / frames_frame_bytes(zone_of(zone)));
    if (first > superpages || count > superpages - first)
        return zone_bad(zone_of(zone), "strata_zone_map_get", "count", count, "up to the last superpage");
    for (uint64_t i = 0; i < count; i++) {
        struct frames_superpage_info info;
        (void)frames_map_get(zone_of(zone), first + i, 1, &info);
        __builtin_memcpy(&out[i], &info, sizeof info);
    }
    return STRATA_ZONE_OK;
}

const char *strata_zone_check(struct strata_zone *zone) { return zone != NULL ? frames_zone_check(zone_of(zone)) : "zone: no zone"; }
