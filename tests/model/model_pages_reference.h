/*
 * model_pages_reference.h - the reference of model_pages.c: blocks as lists of pages, each of which is zeros, a number, or anything.
 *
 * A page with a number carries it in a word at each of PAGE_WORDS places. A page that may hold anything (new, without STRATA_PAGE_ZEROED) is not
 * looked at. Looking at a page makes it present, as any use does: so pages of zeros are looked at where they came to be, and then only when asked
 * for.
 */
#ifndef STRATA_TESTS_MODEL_PAGES_REFERENCE_H
#define STRATA_TESTS_MODEL_PAGES_REFERENCE_H

#include "model.h"
#include "platform/platform.h"
#include "strata/page.h"

#define BLOCKS_MAX 24
#define BLOCK_PAGES_MAX 8192
#define PAGE_ZERO 0u
#define PAGE_ANYTHING UINT32_MAX
#define PAGE_WORDS 4

/* Where the flags of a block show in strata_page_query. */
#define SHOWN_FLAGS (STRATA_PAGE_NO_MOVE | STRATA_PAGE_HUGE | STRATA_PAGE_UNMOVABLE | STRATA_PAGE_RECLAIMABLE)

struct block {
    char *start;
    size_t pages;
    unsigned flags; /* SHOWN_FLAGS */
    uint32_t page[BLOCK_PAGES_MAX];
};

static struct model *model;
static struct block blocks[BLOCKS_MAX];
static unsigned block_count;
static size_t page_bytes;
static uint32_t last_number;

/* ------------------------------------------------------------------ one page */

static uint64_t *word_of(char *page, size_t word) {
    return (uint64_t *)(void *)(page + word * (page_bytes - sizeof(uint64_t)) / (PAGE_WORDS - 1) / 8 * 8);
}
static uint64_t word_value(uint32_t number, size_t word) { return number * UINT64_C(0x9e3779b97f4a7c15) + word; }

static void put_number(struct block *block, size_t at) {
    block->page[at] = ++last_number;
    for (size_t word = 0; word < PAGE_WORDS; word++) *word_of(block->start + at * page_bytes, word) = word_value(last_number, word);
}

static bool is_zero_page(const char *page) {
    const uint64_t *words = (const uint64_t *)(const void *)page;
    uint64_t any = 0;
    for (size_t i = 0; i < page_bytes / sizeof *words; i++) any |= words[i];
    return any == 0;
}

static void check_page(const struct block *block, size_t at, bool zeros_too) {
    char *page = block->start + at * page_bytes;
    uint32_t number = block->page[at];
    if (number == PAGE_ZERO && zeros_too) MODEL_EXPECT(model, is_zero_page(page), "page %zu of %p is not zero", at, (void *)block->start);
    if (number == PAGE_ZERO || number == PAGE_ANYTHING) return;
    for (size_t word = 0; word < PAGE_WORDS && !model->failed; word++)
        MODEL_EXPECT(model, *word_of(page, word) == word_value(number, word), "page %zu of %p has not kept its contents: %llx is there for number %u",
                     at, (void *)block->start, (unsigned long long)*word_of(page, word), number);
}

static void check_contents(const struct block *block, size_t from, size_t to, bool zeros_too) {
    for (size_t at = from; at < to && !model->failed; at++) check_page(block, at, zeros_too);
}

static void set_pages(struct block *block, size_t from, size_t to, uint32_t to_what) {
    for (size_t at = from; at < to; at++) block->page[at] = to_what;
}

/* Some pages get numbers: none, all, or now and then one. */
static void use(struct block *block, size_t from, size_t to, unsigned how) {
    size_t step = how % 4 == 0 ? SIZE_MAX : how % 4 == 1 ? 1 : how % 4 == 2 ? 7 : 3;
    for (size_t at = from; at < to; at = step < to - at ? at + step : to)
        if (how % 4 != 0) put_number(block, at);
}

/* ------------------------------------------------------------------ blocks */

static struct block *block_at(const void *start) {
    for (unsigned i = 0; i < block_count; i++)
        if (blocks[i].start == start) return &blocks[i];
    return NULL;
}

static struct block *block_with(const void *address) {
    for (unsigned i = 0; i < block_count; i++)
        if ((const char *)address >= blocks[i].start && (const char *)address < blocks[i].start + blocks[i].pages * page_bytes) return &blocks[i];
    return NULL;
}

static void check_apart(const struct block *block) {
    for (unsigned i = 0; i < block_count && !model->failed; i++) {
        const struct block *other = &blocks[i];
        if (other == block) continue;
        bool apart = block->start + block->pages * page_bytes <= other->start || other->start + other->pages * page_bytes <= block->start;
        MODEL_EXPECT(model, apart, "%p of %zu pages overlaps %p of %zu", (void *)block->start, block->pages, (void *)other->start, other->pages);
    }
}

static struct block *add_block(char *start, size_t pages, unsigned flags, uint32_t what) {
    struct block *block = &blocks[block_count++];
    block->start = start;
    block->pages = pages;
    block->flags = flags & SHOWN_FLAGS;
    set_pages(block, 0, pages, what);
    check_apart(block);
    return block;
}

static void remove_block(struct block *block) {
    struct block *last = &blocks[--block_count];
    if (block != last) *block = *last;
}

static void resize_block(struct block *block, char *start, size_t pages, bool zeroed) {
    if (pages > block->pages) set_pages(block, block->pages, pages, zeroed ? PAGE_ZERO : PAGE_ANYTHING);
    block->start = start;
    block->pages = pages;
    check_apart(block);
}

static void split_block(struct block *block, size_t pages) {
    struct block *second = add_block(block->start + block->pages * page_bytes, 0, block->flags, 0);
    second->start = block->start + pages * page_bytes;
    second->pages = block->pages - pages;
    memcpy(second->page, block->page + pages, second->pages * sizeof *second->page);
    block->pages = pages;
}

static void join_blocks(struct block *block, struct block *second) {
    memcpy(block->page + block->pages, second->page, second->pages * sizeof *second->page);
    block->pages += second->pages;
    block->flags |= second->flags & STRATA_PAGE_NO_MOVE;
    block->flags &= second->flags | ~(unsigned)STRATA_PAGE_HUGE;
    remove_block(second);
}

static size_t page_in(const struct block *block, const void *address) { return (size_t)((const char *)address - block->start) / page_bytes; }

static void swap_pages(const void *a, const void *b, size_t pages) {
    struct block *a_block = block_with(a), *b_block = block_with(b);
    size_t a_at = page_in(a_block, a), b_at = page_in(b_block, b);
    for (size_t i = 0; i < pages; i++) {
        uint32_t kept = a_block->page[a_at + i];
        a_block->page[a_at + i] = b_block->page[b_at + i];
        b_block->page[b_at + i] = kept;
    }
}

static void move_pages(const void *from, const void *to, size_t pages) {
    struct block *source = block_with(from), *target = block_with(to);
    size_t from_at = page_in(source, from), to_at = page_in(target, to);
    memcpy(target->page + to_at, source->page + from_at, pages * sizeof *source->page);
    set_pages(source, from_at, from_at + pages, PAGE_ZERO);
}

#endif
