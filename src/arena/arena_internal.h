/*
 * arena_internal.h - what the files of arena/ share and nobody else sees.
 *
 * Who does what: arena.c requests; arena_fit.c chooses a free segment; arena_segment.c cuts and merges; arena_span.c ranges
 * and their source; arena_hash.c allocated segments by start; arena_tags.c boundary tags; arena_walk.c looks; arena_check.c
 * verifies. Ends are inclusive ("last") wherever they are compared, since an exclusive end may be 2^64.
 *
 * Every function here is called with the arena's lock held and keeps it, unless it says that it drops it on the way.
 */
#ifndef STRATA_ARENA_INTERNAL_H
#define STRATA_ARENA_INTERNAL_H

#include "arena/arena.h"
#include "base/check.h"

enum tag_kind {
    TAG_SPARE = 0,
    TAG_FREE = 1,
    TAG_ALLOCATED = 2,
    TAG_SPAN = 3,
};

/* A request as the fits see it: sizes rounded, constraints in normal form. */
struct arena_request {
    uint64_t size;
    uint64_t align; /* >= quantum */
    uint64_t phase;
    uint64_t nocross; /* 0: none */
    uint64_t min;
    uint64_t last;  /* of the allowed range, inclusive; UINT64_MAX: no bound */
    uint64_t slack; /* a free segment of size + slack holds a fit wherever it lies; UINT64_MAX: none surely does */
    unsigned flags;
    unsigned fit;
    bool bounded; /* min or max was given */
    bool from_top;
    bool quiet; /* as arena_try says */
    bool urges; /* quiet, but not towards sources, as arena_urge says */
    bool urged; /* sources were asked loudly, since it began or woke: once will do */
    enum arena_holder holder;
};

/* Memory and a span that are to be given back once the lock is dropped. */
struct arena_release {
    bool due;
    uint64_t start;
    uint64_t size;
};

STRATA_INLINE struct arena_tag *tag_of(struct list *node) { return CONTAINER_OF(node, struct arena_tag, segment); }
STRATA_INLINE uint64_t tag_last(const struct arena_tag *tag) { return tag->start + (tag->size - 1); }

/* Multiply and fold: starts are multiples of large powers of two, whose low bits tell nothing. */
STRATA_INLINE uint64_t mix_start(const struct arena *arena, uint64_t start) {
    uint64_t h = (start >> arena->quantum_shift) * 0x9e3779b97f4a7c15u;
    return h ^ (h >> 32);
}

/* ------------------------------------------------------------------ arena_tags.c */

/* Tags that one request can take at most: a new span and its segment, cut twice. */
#define TAGS_PER_REQUEST 4
/* Below this many spare tags a request asks for more, so that memory_get may itself allocate from the arena. */
#define TAGS_RESERVE (TAGS_PER_REQUEST + 8)

void arena_tags_init(struct arena *arena);
/* How many may be taken: the spare ones less what imports under way are promised. */
STRATA_INLINE uint64_t arena_tags_free(const struct arena *arena) { return arena->tags_spare - arena->tags_promised; }
struct arena_tag *arena_tag_take(struct arena *arena); /* one may be taken: the caller made sure */
void arena_tag_put(struct arena *arena, struct arena_tag *tag);
/* Makes sure that `need` tags may be taken. Drops the lock where it must ask for memory. */
bool arena_tags_secure(struct arena *arena, uint64_t need);
/* Fills the reserve up if it is low and nobody else is at it; a failure is no harm yet. Drops the lock where it asks. */
void arena_tags_top_up(struct arena *arena);
/* Unlinks batches that are wholly spare and not needed as a reserve, and says how many. The caller puts them once the lock is dropped. */
#define TAGS_SURPLUS_MAX 8
unsigned arena_tags_surplus(struct arena *arena, void *batches[TAGS_SURPLUS_MAX]);
/* Gives all batches back; no tag of them is in use. Called with no lock held. */
void arena_tags_destroy(struct arena *arena);
/* NULL, or what is wrong with the batches. in_use: tags on the segment list. */
const char *arena_tags_check(struct arena *arena, uint64_t in_use);

/* ------------------------------------------------------------------ arena_hash.c */

void arena_hash_init(struct arena *arena);
void arena_hash_insert(struct arena *arena, struct arena_tag *tag);
struct arena_tag *arena_hash_find(struct arena *arena, uint64_t start);
void arena_hash_remove(struct arena *arena, struct arena_tag *tag);
/* The number of buckets that the table should have instead, 0: it is right as it is, or is being changed already. */
uint64_t arena_hash_wanted(const struct arena *arena);
/* Starts the move to a table of `count` buckets. `buckets` may have any contents. */
void arena_hash_install(struct arena *arena, struct arena_tag **buckets, uint64_t count);
/* Detaches tables that are of no more use and says how many. The caller passes them to arena_hash_put once the lock is dropped. */
#define TABLES_RETIRED_MAX 2
unsigned arena_hash_retire(struct arena *arena, struct arena_hash tables[TABLES_RETIRED_MAX]);
/* Called with no lock held. */
void arena_hash_put(struct arena *arena, struct arena_hash table);
/* Gives the tables back. Called with no lock held. */
void arena_hash_destroy(struct arena *arena);
const char *arena_hash_check(struct arena *arena);

/* ------------------------------------------------------------------ arena_segment.c */

/* Makes a free segment of `tag`, whose start, size and place on the segment list are set. */
void arena_segment_list(struct arena *arena, struct arena_tag *tag);
void arena_segment_unlist(struct arena *arena, struct arena_tag *tag);
/* How many tags carve takes. */
unsigned arena_segment_cuts(const struct arena_tag *tag, uint64_t at, uint64_t size);
/* Allocates [at, at + size) out of the free segment `tag`. */
void arena_segment_carve(struct arena *arena, struct arena_tag *tag, uint64_t at, uint64_t size);
/* Frees an allocated segment, merges it with its neighbours and returns the result. */
struct arena_tag *arena_segment_free(struct arena *arena, struct arena_tag *tag);
enum arena_status arena_segment_resize(struct arena *arena, struct arena_tag *tag, uint64_t new_size);
/* Of an allocated segment: the first `size` stay it, the rest becomes another. False: no tag for that. */
bool arena_segment_split(struct arena *arena, struct arena_tag *tag, uint64_t size);
/* The allocated segment right behind, in the same span; NULL: it is free, or there is none. */
struct arena_tag *arena_segment_behind(struct arena *arena, struct arena_tag *tag);
/* `next`, which is right behind, becomes part of it. */
void arena_segment_join(struct arena *arena, struct arena_tag *tag, struct arena_tag *next);

/* ------------------------------------------------------------------ arena_fit.c */

/* The lowest start in `tag`, not below `from`, that meets the request's constraints; the highest where it is to be from the top. */
bool arena_fit_place(const struct arena_tag *tag, const struct arena_request *request, uint64_t from, uint64_t *at);
/* Chooses a free segment and a place in it; NULL: none. Where the choice needs a search, it looks at no more than `limit` segments. */
struct arena_tag *arena_fit_choose(struct arena *arena, const struct arena_request *request, uint64_t limit, uint64_t *at);

/* ------------------------------------------------------------------ arena_span.c */

/* The span with the greatest start <= x; NULL: none. */
struct arena_tag *arena_span_floor(const struct arena *arena, uint64_t x);
/*
 * Gets a span from the source and returns its one free segment, with tags left for two cuts. Drops the lock. Where it fails, and so makes others try
 * again, *seen moves along with the generation, or the request would take that for news and never sleep.
 */
enum arena_status arena_span_import(struct arena *arena, struct arena_request *request, struct arena_tag **segment, uint32_t *seen);
/* If the free segment fills an imported span that can go back: takes the span out and says what to release. */
void arena_span_retire(struct arena *arena, struct arena_tag *segment, struct arena_release *release);
const char *arena_span_check(const struct arena *arena, const struct arena_tag *span);

/* ------------------------------------------------------------------ arena.c */

/* Moves the generation and says whether there is somebody to wake, by ops->wake, once the lock is dropped. */
bool arena_announce(struct arena *arena);
/* Drops the lock at the end of an operation, then does what must be done without it. `appeared`: there is new free space. */
void arena_leave(struct arena *arena, bool appeared, const struct arena_release *release);

#endif
