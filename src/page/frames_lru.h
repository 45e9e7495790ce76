/*
 * frames_lru.h - two lists of blocks by the time since they were used, as numbers. Private to page/.
 *
 * A block is the number of its first frame. It stands in the active list, in the inactive one, or in none; each list has an old end, at which reclaim
 * takes, and a young one. Links lie in an array of 8 bytes a frame, of which only what was ever used is in memory. What was used and what was not is
 * not known here. Invariants (frames_lru_check): links agree in both directions, counts with the lists, the bit of the active list with the list.
 * Lock: lru->lock (LOCK_RANK_FRAMES_LRU), taken in each function; it ranks below that of a superpage.
 */
#ifndef STRATA_PAGE_FRAMES_LRU_H
#define STRATA_PAGE_FRAMES_LRU_H

#include "base/base.h"
#include "platform/platform.h"

enum frames_lru_list { LRU_INACTIVE, LRU_ACTIVE, LRU_LISTS };
#define LRU_NONE UINT64_MAX

struct frames_lru_link {
    uint32_t younger, older; /* numbers of blocks plus 1, and of lists behind all these; 0: in no list */
};
struct frames_lru {
    struct platform_lock lock;
    uint64_t frames;
    uint64_t count[LRU_LISTS]; /* blocks */
    struct frames_lru_link *links;
    uint64_t *active; /* a bit a frame: in which list, of one that is in any */
};

/* Memory that frames_lru_init wants, zeroed, aligned to a page. frames: at most 2^31. */
size_t frames_lru_bytes(uint64_t frames);
void frames_lru_init(struct frames_lru *lru, uint64_t frames, void *memory);

/* To the young end of a list, from wherever it stands. */
void frames_lru_put(struct frames_lru *lru, uint64_t frame, enum frames_lru_list list);
/* The same, of one that stands in a list; false: it does not, any more. */
bool frames_lru_renew(struct frames_lru *lru, uint64_t frame, enum frames_lru_list list);
/* False: it was in no list. */
bool frames_lru_remove(struct frames_lru *lru, uint64_t frame);
/*
 * Of `count` blocks, in turn: to the young end of the inactive list where its bit of `come` (the lowest of the first word is the first block's) is
 * set, else out of any list. False, and nothing is done: another has the lock, and the caller would rather not wait.
 */
bool frames_lru_settle(struct frames_lru *lru, const uint32_t *frames, unsigned count, const uint64_t *come, bool wait);
/* `to` stands where `from` stood; nothing, where that was nowhere. */
void frames_lru_replace(struct frames_lru *lru, uint64_t from, uint64_t to);
/* The oldest of a list, which goes to the young end of it; LRU_NONE: it is empty. *next: the one that is the oldest now, for who looks ahead. */
uint64_t frames_lru_turn(struct frames_lru *lru, enum frames_lru_list list, uint64_t *next);
/* What will be written to when those of the frames that are listed leave their lists is asked for from memory. */
void frames_lru_prefetch(struct frames_lru *lru, uint64_t first, uint64_t frames);
/* The list that it stands in; LRU_LISTS: none. */
enum frames_lru_list frames_lru_where(struct frames_lru *lru, uint64_t frame);
uint64_t frames_lru_count(struct frames_lru *lru, enum frames_lru_list list);
/* From the oldest to the youngest, until visit returns false; under the lock. */
void frames_lru_walk(struct frames_lru *lru, enum frames_lru_list list, bool (*visit)(uint64_t frame, void *argument), void *argument);
/* NULL, or what does not agree. */
const char *frames_lru_check(struct frames_lru *lru);

#endif
