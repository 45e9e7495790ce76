/*
 * contiguity_load.h - the loads of the contiguity paper (section 4) on a zone: kernels that are compiled, and updatedb, in frames instead of
 * processes.
 *
 * A machine of so many frames runs a compile job for each 256 MiB, as in the paper. A job
 *   - reads files: frames of the page cache, movable, clean, which stay until somebody reclaims them. A tenth of memory is read again and again
 * (headers);
 *   - takes memory of its own page by page, touches what it has at random, and gives all of it back when it ends: movable, reclaimed only by writing
 * it to a swap device;
 *   - writes object files: cache that is dirty until it is written back;
 *   - has kernel memory for as long as it runs (page tables, a stack of order 2) and churns kernel memory that outlives it: unmovable.
 * updatedb fills a cache of directory entries: reclaimable, but a few of them are in use when asked for.
 *
 * Time is simulated. A step of the load takes STEP_NS of a machine of 1 GiB; a larger machine has as many times the processors and disks. What
 * reclaim and migration cost passes as time too, in which the load goes on: that is where races come from, on one thread and repeatably.
 *
 * Every frame with contents holds a word that follows from its page and version; it is checked when a page is touched, moved, reclaimed and freed.
 * One thread.
 */
#ifndef STRATA_PAPERS_CONTIGUITY_LOAD_H
#define STRATA_PAPERS_CONTIGUITY_LOAD_H

#include <stdbool.h>
#include <stdint.h>

#include "contiguity_zone.h"
#include "load.h"

/* What takes time on 1 GiB. A disk writes 16 MiB a second, what the paper's test may queue; the others are what a call of the kernel and a copy cost.
 */
#define UNMAPPED_NS 1e3
#define WRITTEN_NS (1e9 / 4096)
#define MOVED_NS 2e3

/* 16 MiB a second, of 1 GiB: so many seconds until all of memory was asked for. */
#define ALL_OF_MEMORY_S 64.0

enum page_kind { PAGE_ANON, PAGE_CACHE, PAGE_JOB_KERNEL, PAGE_KERNEL, PAGE_METADATA, PAGE_KINDS };

struct compile_job {
    uint64_t anon_first, anon_count, anon_target;
    uint64_t kernel_first, kernel_count;
    uint64_t file_next, file_left;
    unsigned stalls;
    double until_ns; /* it waits for its own reclaim till then */
};

struct load_totals {
    uint64_t steps, allocations, failures, killed, swapped_out, swapped_in, dropped, busy, moved, verified;
    uint64_t lost; /* frames that the load was given of a superpage while pages were dropped from it for a request: races that the request lost */
};

/* What is known of a page stands together, as pages are looked up in no order, and without gaps, as a large machine has many. */
struct page {
    uint32_t frame;      /* PLACE_NONE: it has none */
    uint8_t version : 7; /* of its contents */
    bool dirty : 1;      /* of cache alone; anonymous pages always are */
} __attribute__((packed));

/* A load; its pages by number, in ranges by kind. */
struct load {
    struct place *place;
    struct rng rng;
    uint64_t frames;
    bool metadata; /* updatedb runs */
    bool running;  /* the jobs do; else the machine is at rest, and time is all that passes */
    double now_ns, step_ns, due_ns;
    double owed_ns;             /* that a request has spent on moves */
    double waited_ns;           /* that a job, or the background, will have spent once it has got what it is reclaiming */
    double background_until_ns; /* the background reclaimer writes till then */
    bool stepping;              /* steps are being made: who reclaims in one waits alone */
    unsigned depth;             /* of calls from within a call of the zone */
    bool requested;             /* a request for a superpage runs */
    uint64_t first[PAGE_KINDS + 1];
    struct page *pages;
    uint64_t hot;      /* pages of cache that are read again and again */
    uint64_t *written; /* ring of cache pages that wait to be written back */
    uint64_t written_next, written_count, written_max;
    uint64_t file_next; /* where the next file that nobody has read begins */
    uint64_t metadata_next;
    struct compile_job *jobs;
    uint64_t job_count, job_next;
    struct load_totals totals;
    /* What is being emptied for the request that runs: superpages from which frames were freed. */
    uint16_t *emptied;
    uint64_t *touched; /* the superpages with a note */
    uint64_t touched_count;
    uint64_t area; /* the superpage that the request has pages dropped from right now; NO_AREA: from none */
};

#define NO_AREA UINT64_MAX

/* A load on `place`, at its start: nothing is allocated. */
void load_begin(struct load *load, struct place *place, uint64_t frames, bool metadata, uint64_t seed);
/* Files are read until memory is full, at no time; beside them the load makes a few of its steps. */
void load_fill(struct load *load);
/* Lets `seconds` of the machine pass. */
void load_run(struct load *load, double seconds);
/* Time passes, and the load runs in it. Called from within calls of the zone too: what a request waits for, the load uses. */
void load_pass(struct load *load, double ns);
/* The jobs end, and give back what is theirs. */
void load_rest(struct load *load);
/* Checks the contents of all pages. Returns how many there were. */
uint64_t load_verify(struct load *load);
void load_end(struct load *load);
double load_seconds(const struct load *load);
/* How the time of 1 GiB and that of this machine compare: what costs one ns there costs so many here. */
double load_scale(const struct load *load);

/* A request for a superpage begins, so that races are noted; it ends: how many superpages were being emptied, and how many of them the load was given
 * a frame of. */
void load_request_begin(struct load *load);
void load_request_end(struct load *load, uint64_t *emptied, uint64_t *raced);

/* What the zone asks of the owner of a frame: place_events of contiguity_zone.h. */
extern const struct place_events load_events;

#endif
