/*
 * contiguity_load.c - compile jobs and updatedb, step by step; what they answer the zone. See contiguity_load.h.
 *
 * Invariants: page p has a frame where that is not PLACE_NONE, and then the frame holds word_of(p); an anonymous page of a job without one was
 * swapped out. A page loses its frame before time passes in the call that asks for it, so that nobody finds it half gone. One thread, no locks.
 */
#include "contiguity_load.h"

#include <sys/mman.h>

#define FRAMES_A_JOB 65536u
#define STEPS_A_FRAME 1.6 /* while all of memory is asked for */
#define STALLS_MAX 4000u
#define BALANCE_STEPS 64u
#define FULL_SHARE 20u /* a twentieth of memory is left: it is full of files */
#define STACK_ORDER 2u
#define FILE_FRAMES_SHIFT 6
/* What is noted of a superpage while a request runs: frames dropped from it, and whether the load was given one of it. */
#define RACED 0x8000u
/* Fewer are not an area that is being emptied, but old pages that lay there. */
#define EMPTIED_MIN (PLACE_SUPERPAGE_FRAMES / 8)

/* Of a hundred steps of a job. */
enum { TAKES = 40, READS = 30, READS_AGAIN = 24, WRITES = 5 };

static uint64_t pages_of(const struct load *load, enum page_kind kind) { return load->first[kind + 1] - load->first[kind]; }

static enum page_kind kind_of(const struct load *load, uint64_t page) {
    enum page_kind kind = PAGE_ANON;
    while (page >= load->first[kind + 1]) kind++;
    return kind;
}

static enum place_mobility mobility_of(enum page_kind kind) {
    return kind == PAGE_ANON || kind == PAGE_CACHE ? PLACE_MOVABLE : kind == PAGE_METADATA ? PLACE_RECLAIMABLE : PLACE_UNMOVABLE;
}

static uint64_t word_of(const struct load *load, uint64_t page) {
    return (page + 1) * UINT64_C(0x9e3779b97f4a7c15) ^ (uint64_t)load->pages[page].version << 32;
}

static uint64_t any_of(struct load *load, uint64_t count) {
    return count <= UINT32_MAX ? rng_below(&load->rng, count) : (rng_next(&load->rng) >> 16) % count;
}

/* Zeroed, and only what is touched takes memory. */
static void *room(uint64_t bytes) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) load_fail("no memory for the load");
    (void)madvise(memory, bytes, MADV_HUGEPAGE); /* it is touched in no order */
    return memory;
}

/* ------------------------------------------------------------------ frames of pages */

static bool take(struct load *load, uint64_t page, unsigned order) {
    uint32_t frame = place_alloc(load->place, order, mobility_of(kind_of(load, page)), page, load->depth == 0);
    load->totals.allocations++;
    if (frame == PLACE_NONE) {
        load->totals.failures++;
        return false;
    }
    uint64_t superpage = frame >> PLACE_SUPERPAGE_ORDER;
    if (load->requested && load->emptied[superpage]) load->emptied[superpage] |= RACED;
    if (superpage == load->area) load->totals.lost += UINT64_C(1) << order;
    load->pages[page].frame = frame;
    place_write(load->place, frame, word_of(load, page));
    return true;
}

static void check(struct load *load, uint64_t page) {
    if (!place_holds(load->place, load->pages[page].frame, word_of(load, page))) load_fail("a frame does not hold what was written to it");
    load->totals.verified++;
}

static void give(struct load *load, uint64_t page, unsigned order) {
    if (load->pages[page].frame == PLACE_NONE) return;
    check(load, page);
    uint32_t frame = load->pages[page].frame;
    load->pages[page].frame = PLACE_NONE;
    place_free(load->place, frame, order);
}

/* The page is used: brought back where it is gone. False: there is no memory. */
static bool use(struct load *load, uint64_t page) {
    if (load->pages[page].frame == PLACE_NONE) return take(load, page, 0);
    if (place_read(load->place, load->pages[page].frame) != word_of(load, page)) load_fail("a page does not read as it was written");
    load->totals.verified++;
    return true;
}

/* ------------------------------------------------------------------ jobs */

static void job_begin(struct load *load, struct compile_job *job) {
    uint64_t most = pages_of(load, PAGE_ANON) / load->job_count;
    job->anon_count = 0;
    job->anon_target = most / 8 + any_of(load, most - most / 8) + 1;
    job->kernel_count = 0;
    job->file_left = 0;
    job->until_ns = 0;
    job->stalls = 0;
}

static unsigned kernel_order(uint64_t index) { return index == 0 ? STACK_ORDER : 0; }

static void job_end(struct load *load, struct compile_job *job) {
    for (uint64_t i = 0; i < job->anon_count; i++) {
        uint64_t page = job->anon_first + i;
        give(load, page, 0);
        load->pages[page].version++;
    }
    for (uint64_t i = 0; i < job->kernel_count; i++) give(load, job->kernel_first + i, kernel_order(i));
    job_begin(load, job);
}

static bool job_takes(struct load *load, struct compile_job *job) {
    /* A stack first, then a page table and the like for each 64 pages. */
    if (job->kernel_count <= job->anon_count / 64) {
        if (!take(load, job->kernel_first + job->kernel_count, kernel_order(job->kernel_count))) return false;
        job->kernel_count++;
    }
    if (job->anon_count && !use(load, job->anon_first + any_of(load, job->anon_count))) return false;
    if (!take(load, job->anon_first + job->anon_count, 0)) return false;
    job->anon_count++;
    if (job->anon_count >= job->anon_target) job_end(load, job);
    return true;
}

static bool job_reads(struct load *load, struct compile_job *job) {
    uint64_t cold = pages_of(load, PAGE_CACHE) - load->hot;
    if (job->file_left == 0) {
        job->file_left = rng_doubling(&load->rng, 0, FILE_FRAMES_SHIFT);
        job->file_next = load->file_next;
        load->file_next = (load->file_next + job->file_left) % cold;
    }
    if (!use(load, load->first[PAGE_CACHE] + load->hot + job->file_next)) return false;
    job->file_next = (job->file_next + 1) % cold;
    job->file_left--;
    return true;
}

/* An object file replaces what was in a page of the cache; it is written back when as many were written after it as the ring holds. */
static bool job_writes(struct load *load) {
    uint64_t page = load->first[PAGE_CACHE] + load->hot + any_of(load, pages_of(load, PAGE_CACHE) - load->hot);
    if (!use(load, page)) return false;
    load->pages[page].version++;
    place_write(load->place, load->pages[page].frame, word_of(load, page));
    if (load->pages[page].dirty) return true;
    load->pages[page].dirty = true;
    uint64_t slot = load->written_next++ % load->written_max;
    if (load->written_count == load->written_max)
        load->pages[load->written[slot]].dirty = false;
    else
        load->written_count++;
    load->written[slot] = page;
    return true;
}

/* A page of inodes goes, another comes: any one, so that in time they are wherever there was room. */
static bool kernel_churns(struct load *load) {
    uint64_t page = load->first[PAGE_KERNEL] + any_of(load, pages_of(load, PAGE_KERNEL));
    give(load, page, 0);
    return take(load, page, 0);
}

static bool updatedb_steps(struct load *load) {
    uint64_t pages = pages_of(load, PAGE_METADATA), page = load->first[PAGE_METADATA] + load->metadata_next;
    load->metadata_next = (load->metadata_next + 1) % pages;
    if (rng_below(&load->rng, 4) == 0) give(load, load->first[PAGE_METADATA] + any_of(load, pages), 0);
    return use(load, page);
}

static void step(struct load *load) {
    load->totals.steps++;
    struct compile_job *job = &load->jobs[load->job_next];
    load->job_next = (load->job_next + 1) % load->job_count;
    if (load->due_ns < job->until_ns) return;
    unsigned what = (unsigned)rng_below(&load->rng, 100);
    bool done = what < TAKES                                  ? job_takes(load, job)
                : what < TAKES + READS                        ? job_reads(load, job)
                : what < TAKES + READS + READS_AGAIN          ? use(load, load->first[PAGE_CACHE] + any_of(load, load->hot))
                : what < TAKES + READS + READS_AGAIN + WRITES ? job_writes(load)
                                                              : kernel_churns(load);
    if (load->metadata && load->totals.steps % 8 == 0) updatedb_steps(load);
    job->until_ns = load->due_ns + load->waited_ns;
    load->waited_ns = 0;
    job->stalls = done ? 0 : job->stalls + 1;
    if (job->stalls < STALLS_MAX) return;
    load->totals.killed++; /* out of memory: the job is the one that goes */
    job_end(load, job);
}

/* ------------------------------------------------------------------ what the zone asks */

/* An area is emptied page by page, by one request at a time, and given up with the first page that stays; then its frames are anybody's again. */
static void note_area(struct load *load, uint64_t frame, bool stays) {
    load->area = load->requested && !stays ? frame >> PLACE_SUPERPAGE_ORDER : NO_AREA;
}

static void note_emptied(struct load *load, uint64_t frame) {
    uint64_t superpage = frame >> PLACE_SUPERPAGE_ORDER;
    if (!load->requested) return;
    if (!load->emptied[superpage]) load->touched[load->touched_count++] = superpage;
    load->emptied[superpage]++;
}

static enum place_answer on_reclaim(void *context, uint64_t page, uint64_t frame) {
    struct load *load = context;
    if (load->pages[page].frame != frame) { /* it was given away in the meantime */
        note_area(load, frame, true);
        return PLACE_BUSY;
    }
    enum page_kind kind = kind_of(load, page);
    load->depth++;
    enum place_answer answer = PLACE_BUSY;
    if (kind == PAGE_METADATA && rng_below(&load->rng, 16) == 0) {
        load->totals.busy++;
        note_area(load, frame, true);
    } else {
        check(load, page);
        note_area(load, frame, false);
        note_emptied(load, frame);
        load->pages[page].frame = PLACE_NONE;
        bool written = kind == PAGE_ANON || (kind == PAGE_CACHE && load->pages[page].dirty);
        *(written ? &load->totals.swapped_out : &load->totals.dropped) += 1;
        double ns = (UNMAPPED_NS + (written ? WRITTEN_NS : 0)) * load_scale(load);
        if (load->stepping)
            load->waited_ns += ns;
        else
            load_pass(load, ns);
        answer = written ? PLACE_WRITTEN : PLACE_DROPPED;
    }
    load->depth--;
    return answer;
}

/* The time comes later: what moves must not be given away before the zone knows that it has moved. */
static bool on_move(void *context, uint64_t page, uint64_t from, uint64_t to) {
    struct load *load = context;
    if (load->pages[page].frame != from) return false;
    load->pages[page].frame = (uint32_t)to;
    check(load, page);
    load->totals.moved++;
    load->owed_ns += MOVED_NS * load_scale(load);
    return true;
}

const struct place_events load_events = {on_move, on_reclaim};

void load_request_begin(struct load *load) { load->requested = true; }

void load_request_end(struct load *load, uint64_t *emptied, uint64_t *raced) {
    load->requested = false;
    load->area = NO_AREA;
    *emptied = *raced = 0;
    while (load->touched_count != 0) {
        uint16_t *noted = &load->emptied[load->touched[--load->touched_count]];
        bool area = (*noted & ~RACED) >= EMPTIED_MIN;
        *emptied += area;
        *raced += area && (*noted & RACED) != 0;
        *noted = 0;
    }
}

/* ------------------------------------------------------------------ life */

double load_scale(const struct load *load) { return (double)(1u << 18) / (double)load->frames; }
double load_seconds(const struct load *load) { return load->now_ns / 1e9; }

void load_begin(struct load *load, struct place *place, uint64_t frames, bool metadata, uint64_t seed) {
    *load = (struct load){.place = place, .rng = rng_seed(seed), .frames = frames, .metadata = metadata, .running = true, .area = NO_AREA};
    load->job_count = frames / FRAMES_A_JOB > 4 ? frames / FRAMES_A_JOB : 4;
    uint64_t anon = frames / 4 / load->job_count, kernel = anon / 64 + 2;
    const uint64_t pages[PAGE_KINDS] = {[PAGE_ANON] = anon * load->job_count,
                                        [PAGE_CACHE] = frames + frames / 4,
                                        [PAGE_JOB_KERNEL] = kernel * load->job_count,
                                        [PAGE_KERNEL] = frames / 64,
                                        [PAGE_METADATA] = frames / 10};
    for (unsigned kind = 0; kind < PAGE_KINDS; kind++) load->first[kind + 1] = load->first[kind] + pages[kind];
    uint64_t all = load->first[PAGE_KINDS];
    load->hot = frames / 10;
    load->pages = room(all * sizeof *load->pages);
    for (uint64_t page = 0; page < all; page++) load->pages[page].frame = PLACE_NONE;
    load->written_max = frames / 64;
    load->written = room(load->written_max * sizeof *load->written);
    load->emptied = room((frames / PLACE_SUPERPAGE_FRAMES + 1) * sizeof *load->emptied);
    load->touched = room((frames / PLACE_SUPERPAGE_FRAMES + 1) * sizeof *load->touched);
    load->jobs = room(load->job_count * sizeof *load->jobs);
    for (uint64_t i = 0; i < load->job_count; i++) {
        load->jobs[i].anon_first = load->first[PAGE_ANON] + i * anon;
        load->jobs[i].kernel_first = load->first[PAGE_JOB_KERNEL] + i * kernel;
        job_begin(load, &load->jobs[i]);
    }
    load->step_ns = ALL_OF_MEMORY_S * 1e9 / (STEPS_A_FRAME * (double)frames);
}

void load_pass(struct load *load, double ns) {
    load->now_ns += ns;
    if (!load->running || load->stepping) return;
    load->stepping = true;
    while (load->due_ns <= load->now_ns) {
        load->due_ns += load->step_ns;
        step(load);
        if (load->depth != 0 || load->totals.steps % BALANCE_STEPS != 0 || load->due_ns < load->background_until_ns) continue;
        place_balance(load->place);
        load->background_until_ns = load->due_ns + load->waited_ns;
        load->waited_ns = 0;
    }
    load->stepping = false;
}

void load_run(struct load *load, double seconds) {
    double end = load->now_ns + seconds * 1e9;
    while (load->now_ns < end) load_pass(load, load->step_ns);
}

void load_fill(struct load *load) {
    struct compile_job *job = &load->jobs[0];
    load->stepping = true;
    for (uint64_t reads = 0; place_free_frames(load->place) > load->frames / FULL_SHARE && job_reads(load, job); reads++) {
        if (reads % 4 == 0) step(load);
    }
    load->stepping = false;
    load->waited_ns = 0;
}

void load_rest(struct load *load) {
    for (uint64_t i = 0; i < load->job_count; i++) job_end(load, &load->jobs[i]);
    load->running = false;
}

uint64_t load_verify(struct load *load) {
    uint64_t found = 0;
    for (uint64_t page = 0; page < load->first[PAGE_KINDS]; page++) {
        if (load->pages[page].frame == PLACE_NONE) continue;
        check(load, page);
        found++;
    }
    return found;
}

void load_end(struct load *load) {
    load_rest(load);
    for (uint64_t page = 0; page < load->first[PAGE_KINDS]; page++) give(load, page, 0);
    uint64_t all = load->first[PAGE_KINDS];
    munmap(load->pages, all * sizeof *load->pages);
    munmap(load->written, load->written_max * sizeof *load->written);
    munmap(load->emptied, (load->frames / PLACE_SUPERPAGE_FRAMES + 1) * sizeof *load->emptied);
    munmap(load->touched, (load->frames / PLACE_SUPERPAGE_FRAMES + 1) * sizeof *load->touched);
    munmap(load->jobs, load->job_count * sizeof *load->jobs);
}
