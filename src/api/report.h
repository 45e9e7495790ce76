/*
 * report.h - one snapshot of the heap's figures as a plain struct, and its writers: JSON, a table for people, XML as malloc_info has it.
 *
 * The snapshot is filled by its caller, layer by layer; figures of different layers may be some operations apart, as the program runs on. The
 * writers only read it, never allocate and take no lock, so that they may run at exit, in malloc_stats and when memory is exhausted.
 * A snapshot is large (see sizeof): static storage, or a stack that is known to be large. No lock rank.
 */
#ifndef STRATA_API_REPORT_H
#define STRATA_API_REPORT_H

#include "base/base.h"

#define REPORT_NAME_BYTES 32
#define REPORT_MAX_CACHES 256 /* malloc's, then the program's own in order of creation; the last row is for all that are left */
#define REPORT_MAX_ARENAS 64
#define REPORT_MAX_GROUPS 4

struct report_heap {
    uint64_t in_use_bytes; /* in objects and blocks that the program holds */
    /* Pages of the heap that have been taken from the system; those of a block count from its allocation on, touched or not. */
    uint64_t populated_bytes;
    uint64_t lookaside_bytes;       /* of these, in free pages */
    uint64_t reserved_bytes;        /* address space */
    uint64_t metadata_bytes;        /* strata's own */
    uint64_t huge_bytes;            /* of the process, in huge pages */
    uint64_t heap_huge_bytes;       /* of the heap; 0 also where the system can't tell */
    uint64_t resident_bytes;        /* of the process */
    uint64_t large_blocks;          /* blocks beyond the largest cache, now */
    uint64_t large_bytes;           /* and their bytes */
    uint64_t released_bytes_total;  /* handed back to the system since the start */
    uint64_t populated_bytes_total; /* taken from it since the start */
    uint64_t moves;                 /* of pages from one address to another, since the start */
    uint64_t compactions;           /* times that superpages were emptied for a block */
    uint64_t block_moves;           /* of blocks by their owners, for that */
    /* Bytes that other threads took of the room for these meanwhile, where one had no place then and the superpages were given up. */
    uint64_t races_lost_bytes;
    uint64_t mappings;        /* that the heap costs now */
    uint64_t mappings_limit;  /* that the process may have */
    uint64_t soft_limit;      /* bytes; 0 is none */
    uint64_t hard_limit;      /* bytes; 0 is none */
    uint64_t pressure_events; /* times that the system said that memory is short */
    /* Calls of the program's handlers for that, and what there was less after them: in its hands, and resident. */
    uint64_t handler_calls, handler_freed_bytes, handler_resident_bytes;
};

/* Quiescent, in_use + cached + free in slabs = total. */
struct report_cache {
    char name[REPORT_NAME_BYTES];
    uint64_t object_bytes;
    uint64_t slab_bytes; /* of one slab */
    uint64_t slabs;
    uint64_t in_use;          /* objects that the program holds */
    uint64_t cached;          /* objects in CPU caches and depot */
    uint64_t total;           /* objects that the slabs hold room for */
    uint64_t memory_bytes;    /* of all slabs */
    uint64_t depot_allocs;    /* objects that CPU caches took from the depot */
    uint64_t depot_frees;     /* and gave to it */
    uint64_t slab_allocs;     /* objects taken from slabs */
    uint64_t slab_frees;      /* and given back */
    uint64_t magazine_rounds; /* objects that a CPU cache may hold now */
    uint64_t contention;      /* times that the depot's lock was held by another */
    uint64_t depot_magazines; /* full magazines in the depot now */
    /* Of a cache whose program is called back only: as in struct strata_cache_stats. */
    bool calls_back;
    uint64_t reclaims, reclaimed_bytes, moves, moves_yes, slabs_emptied;
};

struct report_arena {
    char name[REPORT_NAME_BYTES];
    /* In bytes where it is the heap's, else in integers, whatever those stand for. */
    uint64_t quantum;
    uint64_t in_use;
    uint64_t total;
    uint64_t segments;
    uint64_t allocs;
    uint64_t frees;
    uint64_t failures;
    bool of_program;
    /* Of a program's arena only. */
    uint64_t imported; /* integers */
    uint64_t imports;
    uint64_t releases;
    uint64_t waits;
    uint64_t metadata_bytes;
};

/* One mobility: unmovable, reclaimable, movable. */
struct report_group {
    char name[REPORT_NAME_BYTES];
    uint64_t superpages;
    uint64_t allocated_pages;
    uint64_t populated_pages;
    uint64_t free_populated_pages;
    uint64_t partial_superpages;
    uint64_t huge_superpages; /* for which huge pages were asked */
};

/*
 * What is free of the superpages in use, and of others with present pages, in blocks of one size, aligned to it; and what a request of this size
 * would meet: see page/frames_index.h for the two indices, of which one below 0 is shown as 0.
 */
#define REPORT_ORDERS 10
struct report_order {
    uint64_t block_bytes;
    uint64_t unmovable, reclaimable, movable; /* blocks in the superpages of each group */
    uint64_t unused;                          /* in superpages that no group has: whole ones */
    uint64_t unusable_permille;
    uint64_t fragmentation_permille;
};

struct report_snapshot {
    uint64_t pid;
    const char *mode; /* "rseq-mm_cid", "rseq-cpu_id" or "thread"; static storage */
    uint64_t uptime_ns;
    struct report_heap heap;
    unsigned cache_count, arena_count, group_count, order_count; /* entries in use, from the front */
    struct report_cache caches[REPORT_MAX_CACHES];
    struct report_arena arenas[REPORT_MAX_ARENAS];
    struct report_group groups[REPORT_MAX_GROUPS];
    struct report_order orders[REPORT_ORDERS];
};

/* Copies a name, cut to REPORT_NAME_BYTES - 1. */
void report_name_set(char name[REPORT_NAME_BYTES], const char *text);

/*
 * A buffer before `write`, which takes all of its bytes or returns false; after a false it is not called again, and the writer swallows
 * the rest. On the stack of its user; one thread at a time.
 */
struct report_writer {
    bool (*write)(void *context, const char *bytes, size_t count);
    void *context;
    size_t length; /* of what waits in buffer */
    bool failed;
    char buffer[1024];
};
void report_writer_init(struct report_writer *writer, bool (*write)(void *context, const char *bytes, size_t count), void *context);
void report_put(struct report_writer *writer, const char *bytes, size_t count);
/* The formats of format_text; a text that the buffer could not hold by itself ends the process. */
void report_format(struct report_writer *writer, const char *format, ...) STRATA_PRINTF(2, 3);
/* Writes out what waits. False where this or any write before has failed. */
bool report_writer_flush(struct report_writer *writer);

/* Bytes of the character at `text` (not its end) where that is well-formed UTF-8 that every format can carry, else 0. */
size_t report_utf8_length(const char *text);

/* Each writes the whole snapshot, flushes, and returns what the flush returned. */
bool report_json(const struct report_snapshot *snapshot, struct report_writer *writer);
bool report_table(const struct report_snapshot *snapshot, struct report_writer *writer);
bool report_xml(const struct report_snapshot *snapshot, struct report_writer *writer);

#endif
