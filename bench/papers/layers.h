/*
 * layers.h - allocators in layers whose visits are counted: strata's, on the simulated machine, and that of the kmem paper.
 *
 * Both serve blocks of up to LAYERS_BYTES_MAX on virtual CPUs, one call at a time. Their counts are of the paper's tables, by its nine sizes:
 * how many requests come to the CPU's cache, how many of them go on to the layer between the CPUs (the global layer; strata: the depot), how many of
 * these to the one that knows pages (coalescing; strata: slabs), and how many pages (slabs) are cut up or become whole again.
 *
 * Single-threaded; one machine at a time; no locks. A fault in what is asked ends the program.
 */
#ifndef STRATA_PAPERS_LAYERS_H
#define STRATA_PAPERS_LAYERS_H

#include <stddef.h>
#include <stdint.h>

#define LAYERS_CPUS_MAX 4096
#define LAYERS_SIZES 9
#define LAYERS_SIZE_SHIFT 4 /* 16 bytes, doubling */
#define LAYERS_BYTES_MAX ((size_t)1 << (LAYERS_SIZE_SHIFT + LAYERS_SIZES - 1))

struct layers_way {
    uint64_t requests;   /* to the CPU's cache */
    uint64_t global;     /* that came to the global layer */
    uint64_t coalescing; /* that came to the coalescing layer */
    uint64_t pages;      /* cut up for allocations, or whole again by frees */
};

struct layers_counts {
    struct layers_way alloc, free;
    uint64_t flushes; /* of a CPU's cache that had blocks, because it was time, or memory wanted: they count as frees that came to the global layer */
};

static inline struct layers_way layers_way_since(const struct layers_way *now, const struct layers_way *before) {
    return (struct layers_way){.requests = now->requests - before->requests,
                               .global = now->global - before->global,
                               .coalescing = now->coalescing - before->coalescing,
                               .pages = now->pages - before->pages};
}

static inline struct layers_counts layers_counts_since(const struct layers_counts *now, const struct layers_counts *before) {
    return (struct layers_counts){.alloc = layers_way_since(&now->alloc, &before->alloc),
                                  .free = layers_way_since(&now->free, &before->free),
                                  .flushes = now->flushes - before->flushes};
}

/* Of all blocks of a size. */
struct layers_memory {
    uint64_t pages_bytes; /* of the pages (slabs) that are cut up */
    uint64_t waste_bytes; /* of these, free in the coalescing layer (strata: not handed out by slabs) */
};

struct layers {
    const char *name;
    void (*start)(unsigned cpus);
    void *(*alloc)(unsigned cpu, size_t bytes);
    void (*free)(unsigned cpu, void *block);
    /* Time goes on to so many microseconds since the start. */
    void (*advance)(uint64_t now_us);
    void (*counts)(struct layers_counts counts[LAYERS_SIZES]);
    void (*memory)(struct layers_memory memory[LAYERS_SIZES]);
    /* Whether everything is where it belongs, with nothing in use; ends the program where not. */
    void (*check_empty)(void);
};

/* Index of the paper's size that serves a request of 1..LAYERS_BYTES_MAX bytes. */
static inline unsigned layers_size_index(size_t bytes) {
    unsigned shift = bytes <= 1 ? 0 : 64u - (unsigned)__builtin_clzll(bytes - 1);
    return shift <= LAYERS_SIZE_SHIFT ? 0 : shift - LAYERS_SIZE_SHIFT;
}

/* The paper's allocator, with these parameters. */
struct kmem_parameters {
    unsigned target[LAYERS_SIZES];        /* blocks that move between a CPU and the global layer at a time */
    unsigned global_target[LAYERS_SIZES]; /* lists of `target` blocks that move between the global layer and the coalescing layer */
    uint64_t frees_between_flushes;       /* on one CPU; 0: no flushes */
};
extern const struct layers kmem_layers;
/* Before kmem_layers.start. */
void kmem_layers_set(const struct kmem_parameters *parameters);

/* Members of a JSON object, to standard output: of a size, and of its memory (behind another member). */
void layers_print_size(unsigned size, const struct kmem_parameters *parameters, const struct layers_counts *counts);
void layers_print_memory(const char *name, const struct layers_memory *memory);

/* strata with its defaults (malloc without a maintenance thread, whose work then falls to slow paths), on platform/sim. */
extern const struct layers strata_layers;

#endif
