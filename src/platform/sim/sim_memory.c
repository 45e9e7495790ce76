/*
 * sim_memory.c - the simulated address space: one real mapping without access, of which commits open parts.
 *
 * The real mapping holds the contents and catches stray accesses. What is reserved and committed is in sim_vma.c; which pages are
 * populated is in a bitmap here. platform_populate sets bits and touches nothing real, so a simulated machine may have more memory
 * than the real one. Real accesses are found by mincore whenever someone asks (see fold_touched), which gives the same
 * answer every time because the real mapping has no huge pages.
 *
 * Invariant: populated_pages is the number of bits set, and bits are set within committed mappings only.
 */
#define _GNU_SOURCE 1
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "platform/sim/sim_internal.h"

/* A place that is free on every system that we know, so that addresses are the same in every run; any other serves too. */
#define BASE_WISH ((char *)0x200000000000)
#define BASE_ALIGN (1 * GIB)
#define HUGE_PAGE_BYTES (2 * MIB)
#define MINCORE_PAGES 65536

static struct {
    char *mapping; /* as the system gave it */
    size_t mapping_bytes;
    char *base; /* aligned; page 0 */
    uint64_t bytes;
    size_t real_page_bytes;
    uint64_t *populated;      /* a bit a page */
    uint64_t populated_bytes; /* size of that table */
    uint64_t populated_pages;
    uint64_t reserved_bytes;
    size_t page_bytes;
    unsigned page_shift;
} space;

static void real(bool ok, const char *what) {
    if (!ok) fatal("sim: the real system refuses %s", what);
}

static void map_arena(uint64_t bytes) {
    if (space.mapping != NULL) {
        munmap(space.mapping, space.mapping_bytes);
        munmap(space.populated, space.populated_bytes);
    }
    space.bytes = bytes;
    space.mapping_bytes = bytes + BASE_ALIGN;
    space.mapping = mmap(BASE_WISH, space.mapping_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    real(space.mapping != MAP_FAILED, "the address space of the arena");
    space.base = (char *)align_up((uintptr_t)space.mapping, BASE_ALIGN);
    madvise(space.mapping, space.mapping_bytes, MADV_NOHUGEPAGE); /* refused where the system has none: just as well */
    space.real_page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    space.populated_bytes = align_up(bytes / (4 * KIB) / 8, 64 * KIB);
    space.populated = sim_table_map(space.populated_bytes);
}

void sim_memory_reset(void) {
    if (sim_config.arena_bytes % (64 * KIB) != 0) fatal("sim: arena_bytes = %llu; a multiple of 64 KiB", (unsigned long long)sim_config.arena_bytes);
    if (space.mapping == NULL || sim_config.arena_bytes != space.bytes) {
        map_arena(sim_config.arena_bytes);
    } else {
        const struct sim_vma *vma;
        uint64_t end_page = 0;
        for (uint64_t i = 0; (vma = sim_vma_at(i)) != NULL; i++) end_page = vma->end_page;
        if (end_page != 0) {
            size_t used = end_page << space.page_shift;
            real(madvise(space.base, used, MADV_DONTNEED) == 0, "to drop the arena's pages");
            real(mprotect(space.base, used, PROT_NONE) == 0, "to close the arena");
            real(madvise(space.populated, space.populated_bytes, MADV_DONTNEED) == 0, "to drop the arena's table");
        }
    }
    space.page_bytes = sim_config.page_bytes;
    space.page_shift = bit_lowest(space.page_bytes);
    if (space.page_bytes % space.real_page_bytes != 0)
        fatal("sim: page_bytes = %zu; a multiple of the real page of %zu bytes", space.page_bytes, space.real_page_bytes);
    space.populated_pages = 0;
    space.reserved_bytes = 0;
    sim_vma_reset();
}

/* ------------------------------------------------------------------ ranges */

struct range {
    uint64_t start;
    uint64_t end;
};

enum needs { NEEDS_NOTHING, NEEDS_RESERVED, NEEDS_COMMITTED };

/* The pages of a range that the caller passed; a range that breaks the contract of platform.h is fatal. */
static struct range check_range(const char *function, const void *address, size_t bytes, enum needs needs) {
    uint64_t offset = (uintptr_t)address - (uintptr_t)space.base;
    if (bytes == 0 || (((uintptr_t)address | bytes) & (space.page_bytes - 1)) != 0)
        fatal("sim: %s(%p, %zu): not whole pages of %zu bytes", function, address, bytes, space.page_bytes);
    if (needs != NEEDS_NOTHING && (offset >= space.bytes || bytes > space.bytes - offset))
        fatal("sim: %s(%p, %zu): outside of the simulated address space", function, address, bytes);
    struct range range = {offset >> space.page_shift, (offset + bytes) >> space.page_shift};
    if (needs == NEEDS_RESERVED && !sim_vma_covers(range.start, range.end, false))
        fatal("sim: %s(%p, %zu): not all of it is reserved", function, address, bytes);
    if (needs == NEEDS_COMMITTED && !sim_vma_covers(range.start, range.end, true))
        fatal("sim: %s(%p, %zu): not all of it is committed", function, address, bytes);
    return range;
}

static char *page_address(uint64_t page) { return space.base + (page << space.page_shift); }

/* ------------------------------------------------------------------ populated pages */

/* The bits of word `word` that belong to the range. */
static uint64_t word_mask(struct range range, uint64_t word) {
    uint64_t mask = UINT64_MAX;
    if (word == range.start / 64) mask &= UINT64_MAX << range.start % 64;
    if (word == (range.end - 1) / 64 && range.end % 64 != 0) mask &= UINT64_MAX >> (64 - range.end % 64);
    return mask;
}

static void set_populated(struct range range, bool value) {
    for (uint64_t word = range.start / 64; word <= (range.end - 1) / 64; word++) {
        uint64_t old = space.populated[word], mask = word_mask(range, word);
        uint64_t new = value ? old | mask : old & ~mask;
        if (new == old) continue; /* the table stays sparse */
        space.populated[word] = new;
        space.populated_pages += bit_count(new);
        space.populated_pages -= bit_count(old);
    }
}

static uint64_t count_populated(struct range range) {
    uint64_t pages = 0;
    for (uint64_t word = range.start / 64; word <= (range.end - 1) / 64; word++) pages += bit_count(space.populated[word] & word_mask(range, word));
    return pages;
}

static bool is_populated(uint64_t page) { return (space.populated[page / 64] >> page % 64 & 1) != 0; }

/* Which real pages of a range are present: one byte each, for at most MINCORE_PAGES of them. */
static const unsigned char *real_presence(const char *address, size_t bytes) {
    static unsigned char present[MINCORE_PAGES];
    real(mincore((void *)(uintptr_t)address, bytes, present) == 0, "a look at the arena's pages");
    return present;
}

/* The first page from `from` on that is present; `count` when none is. Most of a large space isn't, so eight are looked at together. */
static size_t next_present(const unsigned char *present, size_t from, size_t count) {
    for (size_t i = from; i < count; i++) {
        uint64_t eight;
        while (i + sizeof eight <= count) {
            memcpy(&eight, present + i, sizeof eight);
            if (eight != 0) break;
            i += sizeof eight;
        }
        if (i < count && (present[i] & 1) != 0) return i;
    }
    return count;
}

/* Sets the bits of the pages that were really accessed. */
static void fold_touched(struct range range) {
    size_t chunk_bytes = MINCORE_PAGES * space.real_page_bytes;
    const struct sim_vma *vma;
    for (uint64_t i = 0; (vma = sim_vma_at(i)) != NULL && vma->start_page < range.end; i++) {
        if (!vma->committed || vma->end_page <= range.start) continue;
        const char *address = page_address(max_u64(vma->start_page, range.start));
        const char *end = page_address(min_u64(vma->end_page, range.end));
        for (; address < end; address += chunk_bytes) {
            size_t bytes = min_u64(chunk_bytes, (uint64_t)(end - address));
            const unsigned char *present = real_presence(address, bytes);
            size_t count = bytes / space.real_page_bytes;
            for (size_t at = next_present(present, 0, count); at < count; at = next_present(present, at + 1, count)) {
                uint64_t page = (uint64_t)(address + at * space.real_page_bytes - space.base) >> space.page_shift;
                set_populated((struct range){page, page + 1}, true);
            }
        }
    }
}

static struct range whole_space(void) { return (struct range){0, space.bytes >> space.page_shift}; }

static void drop_pages(struct range range) {
    real(madvise(page_address(range.start), (range.end - range.start) << space.page_shift, MADV_DONTNEED) == 0, "to drop pages");
    set_populated(range, false);
}

/* ------------------------------------------------------------------ platform.h */

static bool within_address_limit(size_t bytes) {
    return space.reserved_bytes <= sim_config.address_limit_bytes && bytes <= sim_config.address_limit_bytes - space.reserved_bytes;
}

static bool reserve_pages(struct range range) {
    if (!sim_vma_map(range.start, range.end)) return false;
    space.reserved_bytes += (range.end - range.start) << space.page_shift;
    return true;
}

void *platform_reserve(void *hint, size_t bytes, size_t align) {
    check_range("platform_reserve", hint, bytes, NEEDS_NOTHING);
    if (!is_power_of_two(align) || align < space.page_bytes) fatal("sim: platform_reserve: align = %zu; a power of two, at least a page", align);
    if (sim_call_fails(SIM_RESERVE) || bytes > space.bytes || !within_address_limit(bytes)) return NULL;
    uint64_t pages = bytes >> space.page_shift;
    uint64_t offset = (uintptr_t)hint - (uintptr_t)space.base;
    uint64_t page = offset >> space.page_shift;
    bool at_hint = hint != NULL && ((uintptr_t)hint & (align - 1)) == 0 && offset < space.bytes && bytes <= space.bytes - offset &&
                   sim_vma_free(page, page + pages);
    if (!at_hint) {
        uint64_t phase = (align - ((uintptr_t)space.base & (align - 1))) & (align - 1);
        page = sim_vma_find(pages, align >> space.page_shift, phase >> space.page_shift, space.bytes >> space.page_shift);
        if (page == UINT64_MAX) return NULL;
    }
    return reserve_pages((struct range){page, page + pages}) ? page_address(page) : NULL;
}

bool platform_reserve_at(void *address, size_t bytes) {
    struct range range = check_range("platform_reserve_at", address, bytes, NEEDS_NOTHING);
    uint64_t offset = (uintptr_t)address - (uintptr_t)space.base;
    if (sim_call_fails(SIM_RESERVE_AT) || offset >= space.bytes || bytes > space.bytes - offset || !within_address_limit(bytes)) return false;
    return sim_vma_free(range.start, range.end) && reserve_pages(range);
}

void platform_unreserve(void *address, size_t bytes) {
    struct range range = check_range("platform_unreserve", address, bytes, NEEDS_RESERVED);
    sim_call_count(SIM_UNRESERVE);
    sim_shared_forget(address, bytes);
    drop_pages(range);
    real(mprotect(address, bytes, PROT_NONE) == 0, "to close pages");
    sim_vma_unmap(range.start, range.end);
    space.reserved_bytes -= bytes;
}

bool platform_commit(void *address, size_t bytes) {
    struct range range = check_range("platform_commit", address, bytes, NEEDS_RESERVED);
    if (sim_call_fails(SIM_COMMIT) || !sim_vma_change(range.start, range.end, SIM_VMA_COMMIT)) return false;
    real(mprotect(address, bytes, PROT_READ | PROT_WRITE) == 0, "to open pages");
    return true;
}

bool platform_decommit(void *address, size_t bytes) {
    struct range range = check_range("platform_decommit", address, bytes, NEEDS_COMMITTED);
    if (sim_call_fails(SIM_DECOMMIT)) return false;
    drop_pages(range);
    real(mprotect(address, bytes, PROT_NONE) == 0, "to close pages");
    sim_vma_unmap(range.start, range.end);
    return sim_vma_map(range.start, range.end);
}

bool platform_release(void *address, size_t bytes) {
    struct range range = check_range("platform_release", address, bytes, NEEDS_COMMITTED);
    if (sim_call_fails(SIM_RELEASE)) return false;
    drop_pages(range);
    return true;
}

void sim_release(void *address, size_t bytes) { drop_pages(check_range("sim_release", address, bytes, NEEDS_COMMITTED)); }

bool platform_populate(void *address, size_t bytes) {
    struct range range = check_range("platform_populate", address, bytes, NEEDS_COMMITTED);
    if (sim_call_fails(SIM_POPULATE)) return false;
    if (sim_config.physical_bytes != UINT64_MAX) {
        fold_touched(whole_space());
        uint64_t pages = space.populated_pages + (range.end - range.start) - count_populated(range);
        if (pages > sim_config.physical_bytes >> space.page_shift) return false;
    }
    set_populated(range, true);
    sim_clock_populate();
    return true;
}

bool platform_advise_huge(void *address, size_t bytes, bool on) {
    struct range range = check_range("platform_advise_huge", address, bytes, NEEDS_RESERVED);
    if (sim_call_fails(SIM_ADVISE_HUGE) || sim_config.no_huge_pages) return false;
    return sim_vma_change(range.start, range.end, on ? SIM_VMA_HUGE_ON : SIM_VMA_HUGE_OFF);
}

/* The pages that are present, with their contents; nothing of the mappings. */
static void transfer_pages(struct range source, struct range target) {
    fold_touched(source);
    drop_pages(target);
    for (uint64_t page = source.start; page < source.end; page++) {
        if (!is_populated(page)) continue;
        char *old_address = page_address(page), *new_address = page_address(target.start + page - source.start);
        const unsigned char *present = real_presence(old_address, space.page_bytes);
        for (size_t offset = 0; offset < space.page_bytes; offset += space.real_page_bytes)
            if ((present[offset / space.real_page_bytes] & 1) != 0) memcpy(new_address + offset, old_address + offset, space.real_page_bytes);
        set_populated((struct range){target.start + page - source.start, target.start + page - source.start + 1}, true);
    }
    drop_pages(source);
}

uint64_t sim_mappings_in(void *address, size_t bytes) {
    struct range range = check_range("sim_mappings_in", address, bytes, NEEDS_RESERVED);
    const struct sim_vma *vma;
    uint64_t count = 0;
    for (uint64_t i = 0; (vma = sim_vma_at(i)) != NULL; i++) count += vma->start_page < range.end && range.start < vma->end_page;
    return count;
}

static void check_apart(const char *function, struct range a, struct range b) {
    if (a.start < b.end && b.start < a.end) fatal("sim: %s(): ranges overlap", function);
}

void sim_transfer(const char *function, void *from, void *to, size_t bytes) {
    struct range source = check_range(function, from, bytes, NEEDS_COMMITTED), target = check_range(function, to, bytes, NEEDS_COMMITTED);
    check_apart(function, source, target);
    transfer_pages(source, target);
}

bool platform_move(void *from, void *to, size_t bytes) {
    struct range source = check_range("platform_move", from, bytes, NEEDS_COMMITTED);
    struct range target = check_range("platform_move", to, bytes, NEEDS_COMMITTED);
    check_apart("platform_move", source, target);
    if (sim_call_fails(SIM_MOVE) || !sim_vma_move(source.start, target.start, source.end - source.start)) return false;
    transfer_pages(source, target);
    return true;
}

/* Where the mappings of a way back are too many, the contents go there all the same. */
bool platform_swap(void *a, void *b, void *through, size_t bytes) {
    struct range first = check_range("platform_swap", a, bytes, NEEDS_COMMITTED), second = check_range("platform_swap", b, bytes, NEEDS_COMMITTED);
    struct range between = check_range("platform_swap", through, bytes, NEEDS_COMMITTED);
    uint64_t pages = first.end - first.start;
    check_apart("platform_swap", first, second);
    check_apart("platform_swap", first, between);
    check_apart("platform_swap", second, between);
    if (sim_call_fails(SIM_MOVE) || !sim_vma_move(first.start, between.start, pages)) return false;
    transfer_pages(first, between);
    bool ok = sim_vma_move(second.start, first.start, pages);
    if (ok) transfer_pages(second, first);
    struct range home = ok ? second : first;
    (void)sim_vma_move(between.start, home.start, pages);
    transfer_pages(between, home);
    return ok;
}

/* What is wholly present of the huge pages inside the range, where they were asked for. */
static uint64_t huge_bytes_in(struct range range) {
    uint64_t bytes = 0, block_pages = HUGE_PAGE_BYTES >> space.page_shift;
    const struct sim_vma *vma;
    for (uint64_t i = 0; (vma = sim_vma_at(i)) != NULL; i++) {
        if (vma->huge != 1 || !vma->committed) continue;
        uint64_t end = min_u64(vma->end_page, range.end);
        for (uint64_t page = align_up(max_u64(vma->start_page, range.start), block_pages); page + block_pages <= end; page += block_pages)
            if (count_populated((struct range){page, page + block_pages}) == block_pages) bytes += HUGE_PAGE_BYTES;
    }
    return bytes;
}

bool platform_release_all(const struct platform_range *ranges, size_t count) {
    bool ok = true;
    for (size_t i = 0; i < count; i++) ok &= platform_release(ranges[i].address, ranges[i].bytes);
    return ok;
}
bool platform_populate_all(const struct platform_range *ranges, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (!platform_populate(ranges[i].address, ranges[i].bytes)) return false;
    return true;
}

void platform_presence_keep(bool keep) { (void)keep; }

bool platform_presence(const void *address, size_t bytes, uint8_t *pages) {
    struct range range = check_range("platform_presence", (void *)(uintptr_t)address, bytes, NEEDS_COMMITTED);
    if (sim_call_fails(SIM_PRESENCE)) return false;
    fold_touched(range);
    for (uint64_t page = range.start; page < range.end; page++)
        pages[page - range.start] = is_populated(page) ? PLATFORM_PAGE_PRESENT : PLATFORM_PAGE_ABSENT;
    return true;
}

bool platform_resident(const void *address, size_t bytes, uint8_t *pages) {
    struct range range = check_range("platform_resident", (void *)(uintptr_t)address, bytes, NEEDS_COMMITTED);
    if (sim_call_fails(SIM_PRESENCE)) return false;
    fold_touched(range);
    for (uint64_t page = range.start; page < range.end; page++) pages[page - range.start] = is_populated(page);
    return true;
}

bool platform_huge_in(const void *address, size_t bytes, uint64_t *huge_bytes) {
    struct range range = check_range("platform_huge_in", (void *)(uintptr_t)address, bytes, NEEDS_COMMITTED);
    if (sim_call_fails(SIM_PRESENCE)) return false;
    fold_touched(range);
    *huge_bytes = huge_bytes_in(range);
    return true;
}

void platform_zero(void *address, size_t bytes) {
    struct range range = check_range("platform_zero", address, bytes, NEEDS_COMMITTED);
    fold_touched(range);
    for (uint64_t page = range.start; page < range.end; page++)
        if (is_populated(page)) memset(page_address(page), 0, space.page_bytes);
}

bool platform_reset(void *address, size_t bytes) {
    struct range range = check_range("platform_reset", address, bytes, NEEDS_COMMITTED);
    if (sim_call_fails(SIM_RESET) || !sim_vma_restore(range.start, range.end)) return false;
    drop_pages(range);
    return true;
}

uint64_t platform_huge_bytes(void) {
    fold_touched(whole_space());
    return huge_bytes_in(whole_space());
}

uint64_t platform_resident_bytes(void) {
    fold_touched(whole_space());
    return space.populated_pages << space.page_shift;
}

/* ------------------------------------------------------------------ sim.h */

void sim_touch(void *address, size_t bytes) { set_populated(check_range("sim_touch", address, bytes, NEEDS_COMMITTED), true); }

uint64_t sim_populated_pages(const void *address, size_t bytes) {
    struct range range = check_range("sim_populated_pages", address, bytes, NEEDS_RESERVED);
    fold_touched(range);
    return count_populated(range);
}

uint64_t sim_reserved_bytes(void) { return space.reserved_bytes; }

uint64_t sim_committed_bytes(void) {
    uint64_t pages = 0;
    const struct sim_vma *vma;
    for (uint64_t i = 0; (vma = sim_vma_at(i)) != NULL; i++)
        if (vma->committed) pages += vma->end_page - vma->start_page;
    return pages << space.page_shift;
}

void *sim_arena_base(void) { return space.base; }
