/*
 * pages_support.h - what the programs about page blocks share: blocks that know what each of their pages holds, changed by every operation.
 *
 * A page of zeros has the number 0, else the number is in its first and its last word. Each block belongs to one thread at a time.
 */
#ifndef STRATA_TESTS_STRESS_PAGES_SUPPORT_H
#define STRATA_TESTS_STRESS_PAGES_SUPPORT_H

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <strata/page.h>

#include "concurrency/concurrency.h"
#include "sanitizers.h"

enum { PAGES_MAX = 4096 };

struct pages {
    char *start;
    size_t count;
    uint64_t number[PAGES_MAX]; /* of each page */
};

static size_t page_bytes;

static inline uint64_t *first_word(const struct pages *block, size_t at) { return (uint64_t *)(void *)(block->start + at * page_bytes); }
static inline uint64_t *last_word(const struct pages *block, size_t at) { return (uint64_t *)(void *)(block->start + (at + 1) * page_bytes - 8); }

static inline void number_page(struct pages *block, size_t at, uint64_t number) {
    *first_word(block, at) = *last_word(block, at) = block->number[at] = number;
}

/* All in which there is a number, and the zeros that are in use anyway: to look at others would make them present. */
static inline void check_pages(const struct pages *block) {
    for (size_t at = 0; at < block->count; at++)
        if (block->number[at] != 0) EXPECT(*first_word(block, at) == block->number[at] && *last_word(block, at) == block->number[at]);
}

static inline void check_zeros(const struct pages *block, size_t from, size_t to) {
    for (size_t at = from; at < to; at++) EXPECT(block->number[at] != 0 || (*first_word(block, at) == 0 && *last_word(block, at) == 0));
}

/* In every third page of what is new. */
static inline void number_new_pages(struct pages *block, size_t from, uint64_t *random) {
    memset(&block->number[from], 0, (block->count - from) * sizeof block->number[0]);
    for (size_t at = from; at < block->count; at += 1 + next_random(random) % 5) number_page(block, at, next_random(random) | 1);
}

/* Mostly some pages, sometimes superpages. */
static inline size_t random_count(uint64_t *random) {
    size_t most = next_random(random) % 6 == 0 ? (6u << 20) / page_bytes : 40;
    return 1 + next_random(random) % most;
}

static inline bool make_pages(struct pages *block, size_t count, uint64_t *random) {
    void *start;
    unsigned flags = STRATA_PAGE_ZEROED | (next_random(random) % 4 == 0 ? STRATA_PAGE_PREFAULT : 0u);
    if (strata_page_alloc(count * page_bytes, flags, &start) != STRATA_PAGE_OK) return false;
    block->start = start;
    block->count = count;
    memset(block->number, 0, count * sizeof block->number[0]);
    if (next_random(random) % 4 == 0) check_zeros(block, 0, count);
    number_new_pages(block, 0, random);
    return true;
}

static inline void free_pages(struct pages *block) {
    check_pages(block);
    if (block->start != NULL) EXPECT(strata_page_free(block->start) == STRATA_PAGE_OK);
    block->start = NULL;
    block->count = 0;
}

static inline bool resize_pages(struct pages *block, size_t count, uint64_t *random) {
    void *start = block->start;
    size_t before = block->count;
    enum strata_page_status status = strata_page_realloc(&start, count * page_bytes, STRATA_PAGE_ZEROED);
    EXPECT(status == STRATA_PAGE_OK || (status == STRATA_PAGE_NO_MEMORY && count > before && start == block->start));
    if (status != STRATA_PAGE_OK) return false;
    block->start = start;
    block->count = count;
    if (count > before) number_new_pages(block, before, random);
    return true;
}

/* What the contents of a range do when it is exchanged, or moved. */
static inline void exchange_numbers(struct pages *a, size_t a_at, struct pages *b, size_t b_at, size_t count, bool move) {
    for (size_t i = 0; i < count; i++) {
        uint64_t number = b->number[b_at + i];
        b->number[b_at + i] = a->number[a_at + i];
        a->number[a_at + i] = move ? 0 : number;
    }
}

/* Exchanges, or moves, as many pages as both have behind a place in each. */
static inline void exchange_pages(struct pages *a, struct pages *b, bool move, uint64_t *random) {
    size_t a_at = next_random(random) % a->count, b_at = next_random(random) % b->count;
    size_t count = a->count - a_at < b->count - b_at ? a->count - a_at : b->count - b_at;
    char *from = a->start + a_at * page_bytes, *to = b->start + b_at * page_bytes;
    EXPECT((move ? strata_page_move(from, to, count * page_bytes) : strata_page_swap(from, to, count * page_bytes)) == STRATA_PAGE_OK);
    exchange_numbers(a, a_at, b, b_at, count, move);
}

/* The same many times by one call, among blocks that are there: ranges of a few pages at random places, some of which meet. */
static inline void exchange_pages_in_a_batch(struct pages *blocks, unsigned count, uint64_t *random) {
    enum { BATCH_OPS = 24, BATCH_PAGES = 40 };
    struct strata_page_op ops[BATCH_OPS] = {0};
    struct {
        struct pages *a, *b;
        size_t a_at, b_at, count;
    } exchanged[BATCH_OPS];
    size_t wanted = 1 + next_random(random) % BATCH_OPS, done = 0;
    for (size_t i = 0; i < wanted; i++) {
        size_t first = next_random(random) % count, second = (first + 1 + next_random(random) % (count - 1)) % count;
        struct pages *a = &blocks[first], *b = &blocks[second];
        size_t a_at = next_random(random) % a->count, b_at = next_random(random) % b->count, most = 1 + next_random(random) % BATCH_PAGES;
        if (most > a->count - a_at) most = a->count - a_at;
        if (most > b->count - b_at) most = b->count - b_at;
        bool move = next_random(random) % 2 == 0;
        ops[i] = (struct strata_page_op){.operation = move ? STRATA_PAGE_OP_MOVE : STRATA_PAGE_OP_SWAP,
                                         .address = a->start + a_at * page_bytes,
                                         .other = b->start + b_at * page_bytes,
                                         .bytes = most * page_bytes};
        exchanged[i].a = a, exchanged[i].b = b, exchanged[i].a_at = a_at, exchanged[i].b_at = b_at, exchanged[i].count = most;
    }
    EXPECT(strata_page_batch(ops, wanted, &done) == STRATA_PAGE_OK && done == wanted);
    for (size_t i = 0; i < wanted; i++)
        exchange_numbers(exchanged[i].a, exchanged[i].a_at, exchanged[i].b, exchanged[i].b_at, exchanged[i].count,
                         ops[i].operation == STRATA_PAGE_OP_MOVE);
}

static inline void release_pages(struct pages *block, uint64_t *random) {
    size_t at = next_random(random) % block->count, count = 1 + next_random(random) % (block->count - at);
    EXPECT(strata_page_release(block->start + at * page_bytes, count * page_bytes) == STRATA_PAGE_OK);
    memset(&block->number[at], 0, count * sizeof block->number[0]);
    check_zeros(block, at, at + (count < 4 ? count : 4));
}

/* Cut in two, the parts looked up, and joined again. */
static inline void split_and_join_pages(struct pages *block, uint64_t *random) {
    struct strata_page_info info;
    EXPECT(strata_page_query(block->start, &info) == STRATA_PAGE_OK && info.bytes == block->count * page_bytes);
    size_t unit = info.bytes > 1u << 20 || info.capacity_bytes > info.bytes ? STRATA_PAGE_SUPERPAGE_BYTES : page_bytes;
    if (info.bytes <= unit) return;
    size_t bytes = (1 + next_random(random) % ((info.bytes - 1) / unit)) * unit;
    void *second;
    enum strata_page_status status = strata_page_split(block->start, bytes, &second);
    if (status == STRATA_PAGE_BAD_ARGUMENT && unit == page_bytes) return; /* one that was large, and keeps its superpage */
    if (status == STRATA_PAGE_NO_MEMORY) return;
    EXPECT(status == STRATA_PAGE_OK && second == block->start + bytes);
    EXPECT(strata_page_query((char *)second + 1, &info) == STRATA_PAGE_OK && info.block == second);
    EXPECT(info.bytes == block->count * page_bytes - bytes);
    EXPECT(strata_page_join(block->start, second) == STRATA_PAGE_OK);
}

/* ------------------------------------------------------------------ mappings */

/* ThreadSanitizer maps memory for itself whenever it likes, and ends the process where it can't: there no process is left without mappings. */
#define MAPPINGS_MAY_END (!UNDER_THREAD_SANITIZER)
/* Both need more address space than any limit leaves. */
#define HAS_ROOM_FOR_LIMITS (!UNDER_ADDRESS_SANITIZER && !UNDER_THREAD_SANITIZER)

/* A range of which every second page is of another kind: as many mappings of the process as it is let have. */
struct crowd {
    char *start;
    size_t pairs;
};
enum { CROWD_PAIRS_MAX = 1 << 21 };

/* Until the kernel refuses. */
static inline void crowd_fill(struct crowd *crowd) {
    while (crowd->pairs < CROWD_PAIRS_MAX && mprotect(crowd->start + 2 * crowd->pairs * page_bytes, page_bytes, PROT_READ) == 0) crowd->pairs++;
    EXPECT(crowd->pairs < CROWD_PAIRS_MAX);
}
static inline void crowd_begin(struct crowd *crowd) {
    crowd->pairs = 0;
    crowd->start = mmap(NULL, 2 * CROWD_PAIRS_MAX * page_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    EXPECT(crowd->start != MAP_FAILED);
    crowd_fill(crowd);
}
/* Two mappings each. */
static inline void crowd_give(struct crowd *crowd, size_t pairs) {
    while (pairs-- != 0 && crowd->pairs != 0) EXPECT(mprotect(crowd->start + 2 * --crowd->pairs * page_bytes, page_bytes, PROT_NONE) == 0);
}
static inline void crowd_end(const struct crowd *crowd) { EXPECT(munmap(crowd->start, 2 * CROWD_PAIRS_MAX * page_bytes) == 0); }

#endif
