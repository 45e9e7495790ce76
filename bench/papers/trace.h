/*
 * trace.h - the format of recorded allocations: what trace_recorder.c writes for each process, and kmem_replay.c reads.
 *
 * A file is a struct trace_head and then events, each a few bytes: a number whose low two bits are the kind of event, and, where one is meant, an
 * address as the difference to the one before. Numbers are in groups of seven bits, lowest first, the last without its top bit; differences are
 * in units of 16 bytes, folded so that small negative ones are small too. Time passes by events of its own, in microseconds.
 */
#ifndef STRATA_PAPERS_TRACE_H
#define STRATA_PAPERS_TRACE_H

#include <stdint.h>

#define TRACE_MAGIC UINT64_C(0x3145434152545453)
#define TRACE_NAME_BYTES 24

enum trace_kind {
    TRACE_ALLOC,  /* a number: bytes asked for; an address */
    TRACE_FREE,   /* 0; an address */
    TRACE_RESIZE, /* a number: bytes asked for; the old address, the new one */
    TRACE_TIME,   /* a number: microseconds since the last such event */
};

struct trace_head {
    uint64_t magic;
    uint64_t start_us; /* of the process, by the monotonic clock */
    char name[TRACE_NAME_BYTES];
};

#endif
