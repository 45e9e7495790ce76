/*
 * model_pages.c - model runner of strata/page.h: blocks of pages of 4, 16 or 64 KiB, by every operation alone and in batches, with few mappings,
 * with limits, and with platform calls that fail.
 *
 * What must hold: every page keeps its contents wherever it goes; what is said to be zeros is; blocks are apart, and as large and as fixed as was
 * asked; an operation fails only where a platform call did or memory or mappings are scarce, and what fails changes nothing; wrong arguments are
 * named. And the sum: pages in use + lookaside + released = pages ever mapped, with no page present that is not counted.
 */
#include <pthread.h>

#include "model_heap.h"
#include "model_pages_reference.h"
#include "strata/malloc.h"

#define LIVE_BYTES_MAX (96 * MIB)
#define BATCH_MAX 12
#define MS UINT64_C(1000000)

static uint64_t failures; /* injected before the operation under way */
static bool scarce;       /* a limit of memory or mappings may stop any operation */

/* ------------------------------------------------------------------ help */

static bool may_lack(void) { return scarce || sim_failures() != failures; }

static size_t live_bytes(void) {
    size_t pages = 0;
    for (unsigned i = 0; i < block_count; i++) pages += blocks[i].pages;
    return pages * page_bytes;
}

static size_t round_up(size_t bytes) { return align_up(bytes, page_bytes); }

/* A step of its own for what one record has no bytes left for. */
static uint64_t dice(uint64_t *state) {
    *state = *state * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return *state >> 24;
}

/* Mostly some pages, some at the border between shared and own superpages, few large: one of these takes the time of a hundred others. */
static size_t size_of(uint64_t *state) {
    uint64_t kind = dice(state) % 64, some = dice(state);
    switch (kind) {
    case 0 ... 1: return (1 + some % 6) * STRATA_PAGE_SUPERPAGE_BYTES;
    case 2: return 1 + some % (10 * MIB);
    case 3 ... 4: return MIB - 8 * page_bytes + some % 16 * page_bytes;
    case 5 ... 9: return 1 + some % MIB;
    default: return 1 + some % (24 * page_bytes);
    }
}

/* Some pages of a block: the start, and how many. */
static char *range_of(const struct block *block, uint64_t *state, size_t most_pages, size_t *pages) {
    size_t first = dice(state) % 3 == 0 ? 0 : dice(state) % block->pages, rest = block->pages - first;
    if (rest > most_pages) rest = most_pages;
    *pages = dice(state) % 3 == 0 ? rest : 1 + dice(state) % rest;
    return block->start + first * page_bytes;
}

static struct strata_page_info query(const struct block *block) {
    struct strata_page_info info = {0};
    enum strata_page_status status = strata_page_query(block->start + block->pages / 2 * page_bytes + 5, &info);
    MODEL_EXPECT(model, status == STRATA_PAGE_OK && info.block == block->start && info.bytes == block->pages * page_bytes,
                 "%p of %zu pages: said to be %p of %zu bytes (%s)", (void *)block->start, block->pages, info.block, info.bytes,
                 strata_page_status_text(status));
    return info;
}

static void check_block(const struct block *block, bool zeros_too) {
    size_t numbered = 0;
    struct strata_page_info info = query(block);
    for (size_t at = 0; at < block->pages; at++) numbered += block->page[at] != PAGE_ZERO && block->page[at] != PAGE_ANYTHING;
    MODEL_EXPECT(model, info.capacity_bytes >= info.bytes && (info.flags & STRATA_PAGE_NO_MOVE) == (block->flags & STRATA_PAGE_NO_MOVE),
                 "%p: capacity %zu of %zu, flags %x for %x", (void *)block->start, info.capacity_bytes, info.bytes, info.flags, block->flags);
    if (info.presence_known)
        MODEL_EXPECT(model, info.present_bytes + info.swapped_bytes + info.zero_bytes == info.bytes && info.present_bytes >= numbered * page_bytes,
                     "%p: %zu bytes present of %zu, %zu zero, %zu pages in use", (void *)block->start, info.present_bytes, info.bytes,
                     info.zero_bytes, numbered);
    check_contents(block, 0, block->pages, zeros_too);
}

static void check_sum(void) {
    struct zone_counters counters;
    zone_counters_get(&heap.zone, &counters);
    uint64_t present = 0;
    if (heap.zone.extent_bytes != 0) present = sim_populated_pages((char *)heap.zone.base, heap.zone.extent_bytes) * (page_bytes >> GRANULE_SHIFT);
    MODEL_EXPECT(model, counters.allocated + counters.idle + counters.released_total == counters.populated_total,
                 "%llu granules in use + %llu idle + %llu released, and not %llu ever mapped", (unsigned long long)counters.allocated,
                 (unsigned long long)counters.idle, (unsigned long long)counters.released_total, (unsigned long long)counters.populated_total);
    MODEL_EXPECT(model, present <= counters.populated, "%llu granules are present, %llu are counted", (unsigned long long)present,
                 (unsigned long long)counters.populated);
}

static void compare_all(bool zeros_too) {
    const char *wrong = heap_check();
    MODEL_EXPECT(model, wrong == NULL, "heap_check: %s", wrong);
    for (unsigned i = 0; i < block_count && !model->failed; i++) check_block(&blocks[i], zeros_too);
    if (!model->failed) check_sum();
    MODEL_EXPECT(model, sim_fault_registrations() == 0, "who touches one of %llu pages waits for ever",
                 (unsigned long long)sim_fault_registrations());
}

static void expect_status(enum strata_page_status status, enum strata_page_status expected, const char *what) {
    MODEL_EXPECT(model, status == expected, "%s: %s, expected %s", what, strata_page_status_text(status), strata_page_status_text(expected));
}

/* ------------------------------------------------------------------ what an operation that went well has done */

static void check_present(const struct block *block) {
    struct strata_page_info info = query(block);
    MODEL_EXPECT(model, !info.presence_known || info.present_bytes == info.bytes, "%p: %zu bytes present of %zu that shall be", (void *)block->start,
                 info.present_bytes, info.bytes);
}

static void follow_alloc(char *start, size_t bytes, unsigned flags, unsigned how) {
    if ((flags & STRATA_PAGE_HUGE) != 0) bytes = align_up(bytes, STRATA_PAGE_SUPERPAGE_BYTES);
    struct block *block = add_block(start, round_up(bytes) / page_bytes, flags, (flags & STRATA_PAGE_ZEROED) != 0 ? PAGE_ZERO : PAGE_ANYTHING);
    if (model->failed) return;
    MODEL_EXPECT(model, bytes <= MIB || (uintptr_t)start % STRATA_PAGE_SUPERPAGE_BYTES == 0, "%p of %zu bytes does not begin where a superpage does",
                 (void *)start, bytes);
    if ((flags & STRATA_PAGE_PREFAULT) != 0) check_present(block);
    if (how % 3 == 0) check_contents(block, 0, block->pages, true);
    use(block, 0, block->pages, how / 3);
}

static void follow_realloc(struct block *block, char *start, size_t bytes, unsigned flags, unsigned how) {
    if ((block->flags & STRATA_PAGE_HUGE) != 0) bytes = align_up(bytes, STRATA_PAGE_SUPERPAGE_BYTES);
    size_t before = block->pages, pages = round_up(bytes) / page_bytes;
    bool fixed = (block->flags & STRATA_PAGE_NO_MOVE) != 0 || (flags & STRATA_PAGE_NO_MOVE) != 0;
    MODEL_EXPECT(model, !fixed || start == block->start, "%p has moved to %p, and may not", (void *)block->start, (void *)start);
    resize_block(block, start, pages, (flags & STRATA_PAGE_ZEROED) != 0);
    if (model->failed) return;
    (void)query(block);
    if ((flags & STRATA_PAGE_PREFAULT) != 0) check_present(block);
    check_contents(block, 0, before < pages ? before : pages, false);
    if (pages > before) {
        check_contents(block, before, pages, true);
        use(block, before, pages, how);
    }
}

/* ------------------------------------------------------------------ single operations */

static void step_alloc(const struct model_record *record, uint64_t state) {
    static const unsigned kinds[] = {0, 0, 0, STRATA_PAGE_UNMOVABLE, STRATA_PAGE_RECLAIMABLE, STRATA_PAGE_NO_MOVE};
    size_t bytes = size_of(&state);
    if (block_count == BLOCKS_MAX || live_bytes() + bytes > LIVE_BYTES_MAX) return;
    struct strata_page_request request = {.bytes = bytes, .flags = kinds[dice(&state) % ARRAY_LENGTH(kinds)]};
    if (dice(&state) % 3 == 0) request.flags |= STRATA_PAGE_ZEROED;
    if (dice(&state) % 6 == 0) request.flags |= STRATA_PAGE_PREFAULT;
    if (dice(&state) % 16 == 0) request.flags |= STRATA_PAGE_HUGE;
    if (dice(&state) % 8 == 0) request.align = (size_t)1 << dice(&state) % 24;
    if (dice(&state) % 8 == 0) request.reserve_bytes = bytes + size_of(&state);
    void *start = &state;
    enum strata_page_status status = strata_page_alloc_as(&request, &start);
    model_trace(model, "alloc %zu, flags %x, align %zu, reserve %zu: %p (%s)", bytes, request.flags, request.align, request.reserve_bytes, start,
                strata_page_status_text(status));
    if (status != STRATA_PAGE_OK) {
        MODEL_EXPECT(model, status == STRATA_PAGE_NO_MEMORY && may_lack() && start == &state, "no memory for %zu bytes, though there is some", bytes);
        return;
    }
    MODEL_EXPECT(model, request.align == 0 || (uintptr_t)start % request.align == 0, "%p is not aligned to %zu", start, request.align);
    follow_alloc(start, bytes, request.flags, record->byte[7]);
    struct strata_page_info info = query(block_at(start));
    MODEL_EXPECT(model, (request.flags & SHOWN_FLAGS) == info.flags && info.capacity_bytes >= request.reserve_bytes, "flags %x, capacity %zu",
                 info.flags, info.capacity_bytes);
}

static void step_free(const struct model_record *record) {
    if (block_count == 0) return;
    struct block *block = &blocks[record->byte[1] % block_count];
    char *start = block->start, *end = start + block->pages * page_bytes;
    struct strata_page_info info;
    model_trace(model, "free %p of %zu pages", (void *)start, block->pages);
    check_contents(block, 0, block->pages, record->byte[2] % 2 == 0);
    if (record->byte[3] % 4 == 0)
        strata_free(start);
    else
        expect_status(strata_page_free(start), STRATA_PAGE_OK, "free");
    remove_block(block);
    expect_status(strata_page_free(start), STRATA_PAGE_NO_BLOCK, "a second free");
    expect_status(strata_page_query(start, &info), STRATA_PAGE_NO_BLOCK, "query of what was freed");
    expect_status(strata_page_query(end - 1, &info), STRATA_PAGE_NO_BLOCK, "query of the end of what was freed");
    expect_status(strata_page_free(NULL), STRATA_PAGE_OK, "free of NULL");
}

static void step_realloc(const struct model_record *record, uint64_t state) {
    if (block_count == 0) return;
    struct block *block = &blocks[record->byte[1] % block_count];
    size_t before = block->pages * page_bytes, bytes = dice(&state) % 3 == 0 ? before + 1 + dice(&state) % (2 * before) : size_of(&state);
    unsigned flags = (dice(&state) % 3 == 0 ? STRATA_PAGE_ZEROED : 0u) | (dice(&state) % 4 == 0 ? STRATA_PAGE_NO_MOVE : 0u) |
                     (dice(&state) % 6 == 0 ? STRATA_PAGE_PREFAULT : 0u);
    if (bytes > 20 * MIB || live_bytes() + bytes > LIVE_BYTES_MAX) return;
    bool fixed = ((flags | block->flags) & STRATA_PAGE_NO_MOVE) != 0;
    struct strata_page_info info = query(block);
    void *start = block->start;
    enum strata_page_status status = strata_page_realloc(&start, bytes, flags);
    model_trace(model, "realloc %p of %zu to %zu, flags %x: %p (%s)", (void *)block->start, before, bytes, flags, start,
                strata_page_status_text(status));
    if (status == STRATA_PAGE_OK) {
        follow_realloc(block, start, bytes, flags, record->byte[7]);
        return;
    }
    MODEL_EXPECT(model, start == block->start && bytes > before, "it failed, and the address is another, or it became smaller");
    MODEL_EXPECT(model, (status == STRATA_PAGE_NO_ROOM && fixed) || (status == STRATA_PAGE_NO_MEMORY && may_lack()), "realloc: %s",
                 strata_page_status_text(status));
    MODEL_EXPECT(model, bytes > info.capacity_bytes || may_lack(), "no room, though %zu bytes are reserved", info.capacity_bytes);
    check_block(block, false);
}

static void step_reserve(const struct model_record *record, uint64_t state) {
    if (block_count == 0) return;
    struct block *block = &blocks[record->byte[1] % block_count];
    size_t bytes = block->pages * page_bytes + (dice(&state) % 2 == 0 ? 0 : size_of(&state));
    struct strata_page_info before = query(block);
    enum strata_page_status status = strata_page_reserve(block->start, bytes);
    model_trace(model, "reserve %zu for %p of %zu pages: %s", bytes, (void *)block->start, block->pages, strata_page_status_text(status));
    struct strata_page_info info = query(block);
    bool lacks = status == STRATA_PAGE_NO_ROOM || (status == STRATA_PAGE_NO_MEMORY && may_lack());
    MODEL_EXPECT(model, status == STRATA_PAGE_OK || (lacks && bytes > before.capacity_bytes), "reserve: %s", strata_page_status_text(status));
    MODEL_EXPECT(model, status == STRATA_PAGE_OK ? info.capacity_bytes >= bytes : info.capacity_bytes == before.capacity_bytes,
                 "capacity %zu, before %zu", info.capacity_bytes, before.capacity_bytes);
}

static bool no_more(size_t done, void *argument) {
    *(size_t *)argument = done;
    return false;
}

static void step_presence(const struct model_record *record, uint64_t state) {
    if (block_count == 0) return;
    struct block *block = &blocks[record->byte[1] % block_count];
    size_t pages, done = 0;
    char *start = range_of(block, &state, SIZE_MAX, &pages);
    unsigned way = dice(&state) % 4;
    model_trace(model, "%s %p, %zu pages of %p", way == 0 ? "commit" : way == 1 ? "prefault" : "release", (void *)start, pages, (void *)block->start);
    switch (way) {
    case 0: expect_status(strata_page_commit(start, pages * page_bytes), STRATA_PAGE_OK, "commit"); break;
    case 1:
        expect_status(strata_page_prefault(start, pages * page_bytes, no_more, &done), STRATA_PAGE_CUT_SHORT, "prefault");
        MODEL_EXPECT(model, done > 0 && done <= pages * page_bytes, "%zu bytes done of %zu", done, pages * page_bytes);
        break;
    default:
        expect_status(strata_page_release(start, pages * page_bytes), STRATA_PAGE_OK, "release");
        set_pages(block, page_in(block, start), page_in(block, start) + pages, PAGE_ZERO);
        if (record->byte[7] % 2 == 0) check_contents(block, page_in(block, start), page_in(block, start) + pages, true);
    }
    if (way == 0) {
        uint8_t present[256];
        size_t some = pages < 256 ? pages : 256;
        if (platform_presence(start, some * page_bytes, present))
            for (size_t i = 0; i < some; i++) MODEL_EXPECT(model, present[i] == PLATFORM_PAGE_PRESENT, "page %zu is absent after commit", i);
    }
    check_contents(block, 0, block->pages, false);
}

/* Two ranges of one size, in one block or two. False: they overlap. */
static bool two_ranges(uint64_t *state, const struct model_record *record, char **a, char **b, size_t *pages) {
    struct block *one = &blocks[record->byte[1] % block_count], *other = &blocks[record->byte[2] % block_count];
    size_t room;
    *a = range_of(one, state, other->pages, pages);
    *b = range_of(other, state, *pages, &room);
    size_t behind = other->pages - page_in(other, *b);
    if (behind < *pages) *b -= (*pages - behind) * page_bytes;
    return *a + *pages * page_bytes <= *b || *b + *pages * page_bytes <= *a;
}

static void step_exchange(const struct model_record *record, uint64_t state) {
    if (block_count == 0) return;
    char *a, *b;
    size_t pages;
    bool apart = two_ranges(&state, record, &a, &b, &pages), move = dice(&state) % 2 == 0;
    enum strata_page_status status = move ? strata_page_move(a, b, pages * page_bytes) : strata_page_swap(a, b, pages * page_bytes);
    model_trace(model, "%s %p and %p, %zu pages: %s", move ? "move" : "swap", (void *)a, (void *)b, pages, strata_page_status_text(status));
    expect_status(status, apart ? STRATA_PAGE_OK : STRATA_PAGE_OVERLAP, "exchange");
    if (apart && move) move_pages(a, b, pages);
    if (apart && !move) swap_pages(a, b, pages);
    struct block *one = block_with(a), *other = block_with(b);
    bool zeros_too = record->byte[7] % 4 == 0;
    check_contents(one, page_in(one, a), page_in(one, a) + pages, zeros_too);
    check_contents(other, page_in(other, b), page_in(other, b) + pages, zeros_too);
}

/* Of a block with superpages of its own, or of one that shares its superpage. */
static size_t cut_unit(const struct block *block) {
    /* What is large has superpages of its own; small blocks with room reserved, too: the capacity tells. */
    struct strata_page_info info = query(block);
    return info.bytes > MIB || info.capacity_bytes > info.bytes ? STRATA_PAGE_SUPERPAGE_BYTES : page_bytes;
}

static void step_split(const struct model_record *record, uint64_t state) {
    if (block_count == 0 || block_count == BLOCKS_MAX) return;
    struct block *block = &blocks[record->byte[1] % block_count];
    size_t unit = cut_unit(block), bytes = (1 + dice(&state) % block->pages) * page_bytes;
    if (unit < bytes && dice(&state) % 8 != 0) bytes = bytes / unit * unit;
    bool inside = bytes < block->pages * page_bytes;
    void *second = NULL;
    enum strata_page_status status = strata_page_split(block->start, bytes, &second);
    model_trace(model, "split %p of %zu pages behind %zu bytes: %s", (void *)block->start, block->pages, bytes, strata_page_status_text(status));
    if (status == STRATA_PAGE_OK) {
        MODEL_EXPECT(model, inside && second == block->start + bytes, "the second part is said to be %p", second);
        split_block(block, bytes / page_bytes);
    } else {
        bool wrong = !inside || bytes % unit != 0 || bytes % STRATA_PAGE_SUPERPAGE_BYTES != 0;
        MODEL_EXPECT(model, second == NULL && (status == STRATA_PAGE_NO_MEMORY ? may_lack() : status == STRATA_PAGE_BAD_ARGUMENT && wrong),
                     "split: %s", strata_page_status_text(status));
    }
}

static void step_join(const struct model_record *record) {
    if (block_count < 2) return;
    struct block *block = &blocks[record->byte[1] % block_count], *second = block_at(block->start + block->pages * page_bytes);
    if (second == NULL || record->byte[2] % 8 == 0) second = &blocks[record->byte[2] % block_count];
    if (block->pages + second->pages > BLOCK_PAGES_MAX) return;
    bool touch = second->start == block->start + block->pages * page_bytes;
    bool one_superpage = touch && (uintptr_t)second->start % STRATA_PAGE_SUPERPAGE_BYTES != 0;
    enum strata_page_status status = strata_page_join(block->start, second->start);
    model_trace(model, "join %p of %zu pages and %p of %zu: %s", (void *)block->start, block->pages, (void *)second->start, second->pages,
                strata_page_status_text(status));
    expect_status(status, status == STRATA_PAGE_OK && touch ? STRATA_PAGE_OK : STRATA_PAGE_NO_ROOM, "join");
    MODEL_EXPECT(model, status == STRATA_PAGE_OK || !one_superpage, "neighbours in one superpage are not joined");
    if (status == STRATA_PAGE_OK) join_blocks(block, second);
}

/* ------------------------------------------------------------------ what is wrong */

static void step_wrong(const struct model_record *record, uint64_t state) {
    struct block *block = block_count != 0 ? &blocks[record->byte[1] % block_count] : NULL;
    struct strata_page_info info;
    void *result = &state;
    char outside[8];
    model_trace(model, "wrong arguments");
    expect_status(strata_page_alloc(0, 0, &result), STRATA_PAGE_BAD_ARGUMENT, "size 0");
    expect_status(strata_page_alloc(SIZE_MAX - dice(&state) % 5000, 0, &result), STRATA_PAGE_BAD_ARGUMENT, "a size that overflows");
    expect_status(strata_page_alloc(page_bytes, 1u << (6 + dice(&state) % 26), &result), STRATA_PAGE_BAD_ARGUMENT, "unknown flags");
    expect_status(strata_page_free(outside), STRATA_PAGE_NO_BLOCK, "an address on the stack");
    expect_status(strata_page_query(outside, &info), STRATA_PAGE_NO_BLOCK, "query of the stack");
    MODEL_EXPECT(model, result == &state, "a failed allocation wrote its result");
    if (block == NULL) return;
    size_t bytes = block->pages * page_bytes;
    char *start = block->start, *end = start + bytes;
    result = start;
    expect_status(strata_page_realloc(&result, 0, 0), STRATA_PAGE_BAD_ARGUMENT, "realloc to 0");
    expect_status(strata_page_realloc(&result, bytes, STRATA_PAGE_HUGE), STRATA_PAGE_BAD_ARGUMENT, "realloc with a flag of allocations");
    expect_status(strata_page_realloc(&result, SIZE_MAX, 0), STRATA_PAGE_BAD_ARGUMENT, "realloc to all there is");
    expect_status(strata_page_free(start + 16), STRATA_PAGE_NO_BLOCK, "free inside a block");
    expect_status(strata_page_release(start + 1, page_bytes), STRATA_PAGE_BAD_ARGUMENT, "an odd address");
    expect_status(strata_page_release(start, page_bytes - 1), STRATA_PAGE_BAD_ARGUMENT, "an odd size");
    expect_status(strata_page_commit(start, 0), STRATA_PAGE_BAD_ARGUMENT, "no size");
    expect_status(strata_page_swap(start, start, bytes), STRATA_PAGE_OVERLAP, "a range with itself");
    expect_status(strata_page_release(end - page_bytes, 2 * page_bytes), STRATA_PAGE_NO_BLOCK, "a range that ends outside");
    expect_status(strata_page_commit(start, SIZE_MAX & ~(page_bytes - 1)), STRATA_PAGE_BAD_ARGUMENT, "a range that overflows");
    if (block_with(end) == NULL) expect_status(strata_page_move(start, end, bytes), STRATA_PAGE_NO_BLOCK, "a move to what is in no block");
    expect_status(strata_page_split(start, bytes, NULL), STRATA_PAGE_BAD_ARGUMENT, "split at the end");
    MODEL_EXPECT(model, result == start, "a failed realloc wrote its result");
}

#include "model_pages_batch.h"

/* ------------------------------------------------------------------ the run */

static void step_failures(const struct model_record *record) {
    uint64_t n = record->byte[1] % 4 == 0 ? 0 : 1 + record->byte[2] % 8u, times = record->byte[3] % 8 == 1 ? SIM_FOREVER : 1 + record->byte[3] % 4u;
    sim_fail_call(n, times);
    model_trace(model, "call %llu fails, %lld times", (unsigned long long)n, (long long)times);
}

/* Limits come and go: of mappings, or of memory. */
static void step_limits(const struct model_record *record) {
    unsigned some = record->byte[2] % 64u;
    bool few = record->byte[1] % 3 == 0, little = record->byte[1] % 3 == 1;
    sim_set_map_count_limit(few ? sim_mappings() + some % 12 : 65530);
    sim_set_physical_limit(little ? some * MIB : UINT64_MAX);
    scarce = few || heap.options.hard_limit_bytes != UINT64_MAX;
    model_trace(model, "%s", few ? "few mappings are left" : little ? "little memory is left" : "no limits");
}

static void step_time(const struct model_record *record) {
    sim_clock_advance((1 + record->byte[1] % 8u) * 200 * MS);
    sim_set_populate_ns(record->byte[4] % 3 == 0 ? 7 * MS : 0);
    if (record->byte[3] % 4 == 0) (void)strata_release(0);
    model_trace(model, "time passes%s", record->byte[3] % 4 == 0 ? ", all that is idle goes" : "");
}

static void begin(struct model *of, const struct model_record *stage) {
    static const size_t pages[] = {4 * KIB, 4 * KIB, 16 * KIB, 64 * KIB};
    static const char *const confs[] = {
        "background:off",           "background:off,hard_limit:24M",  "background:off,soft_limit:1M",     "background:off,thp:always,decay_ms:0",
        "background:off,thp:never", "background:off,page_moves:uffd", "background:off,page_moves:mremap", "background:off,page_moves:copy"};
    struct sim_config sim = {.page_bytes = pages[stage->byte[0] % 4], .no_huge_pages = stage->byte[2] % 8 == 1};
    unsigned conf = stage->byte[1] % ARRAY_LENGTH(confs);
    model = of;
    failures = 0;
    block_count = 0;
    last_number = 0;
    page_bytes = sim.page_bytes;
    scarce = conf == 1;
    model_new_heap(of, &sim, confs[conf]);
    sim_faults_offer(stage->byte[3] % 4 != 0 ? PLATFORM_FAULTS_MOVE : 0);
}

static void step(struct model *of, const struct model_record *record) {
    uint64_t state = model_bits(record, 1, 7);
    (void)of;
    failures = sim_failures();
    switch (record->byte[0] % 32) {
    case 0: break;
    case 1 ... 6: step_alloc(record, state); break;
    case 7 ... 9: step_free(record); break;
    case 10 ... 13: step_realloc(record, state); break;
    case 14: step_reserve(record, state); break;
    case 15 ... 17: step_presence(record, state); break;
    case 18 ... 20: step_exchange(record, state); break;
    case 21 ... 22: step_split(record, state); break;
    case 23 ... 24: step_join(record); break;
    case 25 ... 26: step_batch(record, state); break;
    case 27: step_wrong(record, state); break;
    case 28: step_failures(record); break;
    case 29: step_limits(record); break;
    case 30: step_time(record); break;
    default:
        /* Looks at every page of the machine: rarer in long runs. */
        if (!model->long_run || record->byte[2] % 8 == 0) compare_all(record->byte[1] % 4 == 0);
        break;
    }
    MODEL_EXPECT(model, sim_locks_held() == 0, "a lock is still held");
    MODEL_EXPECT(model, errno == ERRNO_BEFORE, "errno is %d", errno);
    if (!model->long_run && model->operation % 4 == 0 && !model->failed) compare_all(false);
}

static void end(struct model *of) {
    (void)of;
    sim_fail_call(0, 0);
    failures = sim_failures();
    compare_all(true);
    while (block_count != 0 && !model->failed) {
        expect_status(strata_page_free(blocks[block_count - 1].start), STRATA_PAGE_OK, "the last free");
        block_count--;
    }
    (void)heap_release(0);
    struct zone_counters counters;
    zone_counters_get(&heap.zone, &counters);
    MODEL_EXPECT(model, counters.blocks == 0 && counters.block_granules == 0 && counters.idle == 0,
                 "%llu blocks of %llu granules, %llu idle are left", (unsigned long long)counters.blocks, (unsigned long long)counters.block_granules,
                 (unsigned long long)counters.idle);
    if (!model->failed) compare_all(true);
}

static const struct model_layer pages_layer = {begin, step, end};

MODEL_EXPORT(pages, &pages_layer);
