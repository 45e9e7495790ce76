/*
 * strata/pool.h - fixed pools: objects of one size, a local pool for each thread that wants one, and a bound on how often local pools come to
 * the global one.
 *
 * The mechanism is that of Vee, Hsu, "A Scalable and Efficient Storage Allocator on Shared-Memory Multiprocessors". A pool has a global part with
 * a lock, and local pools that hold at most m free objects each and need none. An allocation from an empty local pool first fetches m_alpha objects
 * from the global pool, a free into a full one first brings m_beta objects there, and nothing else touches it. Where both are half of m, a local pool
 * can't be made to come to the global one more often than once in m/2 requests, whatever the program does (Theorems 2.3 and 2.5). The caches behind
 * strata_malloc follow the same rule, but their arrays belong to CPUs, change size and are emptied from outside; in a fixed pool nothing but the
 * program moves an object. In exchange it keeps its memory until it is destroyed, and the caller says who uses which local pool.
 *
 *     struct strata_pool_config config = {0};
 *     struct strata_pool *pool;
 *     struct strata_pool_local *mine;
 *     config.name = "events", config.object_bytes = sizeof(struct event), config.m = 512;
 *     if (strata_pool_create(&config, &pool) != STRATA_POOL_OK) ...
 *     if (strata_pool_local_create(pool, &mine) != STRATA_POOL_OK) ...    // in each thread
 *     struct event *event = strata_pool_alloc(mine);
 *     strata_pool_free(mine, event);                                      // or any other local pool of this pool
 *
 * Valid in C11 and C++. For all functions, where nothing else is said:
 *   - sizes and alignments are in bytes; all else that is a number counts objects;
 *   - a pool may be used by any thread at any time, between the end of its strata_pool_create and the beginning of its strata_pool_destroy;
 *   - a local pool is used by one thread at a time: its owner. A program may hand it from one thread to another if it orders their calls itself (by
 *     a mutex, a join and the like). Objects have no owner: each may be freed into any local pool of its pool;
 *   - use of a pool or a local pool that was destroyed is answered like NULL (a second strata_pool_local_destroy ends the process with one line), as
 *     long as its memory has not become another's;
 *   - a failed call changes nothing but the statistics, and what it was given stays the caller's. A status says what was wrong; errno stays as
 *     it was, but for strata_pool_alloc;
 *   - fork: the child has a copy of every pool, with its lock free, whatever other threads were doing, and may go on with the local pools that the
 *     thread which forked owns, and with new ones. Those of other threads may have been copied in the middle of a call, and must not be used:
 *     what they hold is not had again, and strata_pool_destroy answers STRATA_POOL_BUSY in the child;
 *   - signals: not async-signal-safe. A handler may use a local pool that is used by nothing else, unless it has interrupted a slow path of strata;
 *   - NULL for a pool, a local pool or a result is STRATA_POOL_BAD_ARGUMENT. Pointers that are wrong in another way are found out only where
 *     they are given to strata_pool_free as an object.
 */
#ifndef STRATA_POOL_H
#define STRATA_POOL_H

#include <stddef.h>
#include <stdint.h>

#include <strata/malloc.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A pool, and a local pool of one. */
struct strata_pool;
struct strata_pool_local;

enum strata_pool_status {
    STRATA_POOL_OK = 0,
    STRATA_POOL_NO_MEMORY,    /* the system has no memory, or an option of the heap or objects_max of the pool forbids more */
    STRATA_POOL_BAD_ARGUMENT, /* outside what the function allows */
    STRATA_POOL_FOREIGN,      /* strata_pool_free: no object of this pool starts there */
    STRATA_POOL_BUSY,         /* strata_pool_destroy: objects are in use, or local pools exist */
};

/* strata_pool_status_text - a short English text for a status, in static storage, never NULL. Async-signal-safe. Cost: constant. */
STRATA_API const char *strata_pool_status_text(enum strata_pool_status status) STRATA_NOEXCEPT;

/* The largest object and alignment, the largest m, and the longest name with its end. */
#define STRATA_POOL_OBJECT_BYTES_MAX ((size_t)1 << 16)
#define STRATA_POOL_M_MAX ((size_t)1 << 16)
#define STRATA_POOL_NAME_BYTES 32

enum strata_pool_flags {
    /*
     * Local pools as in section 3.1 of the paper: two stacks, Active and Backup, linked through the free objects themselves, and global lists that
     * change hands by one pointer. For experiments: what strata does otherwise, one array of m pointers, keeps everything of ours
     * out of the program's memory, so that a write after free can't break the pool. Requests are answered with the same numbers of global accesses.
     * A library that was built with one kind only (STRATA_POOL_VARIANT of CMake) has all pools of that kind: with `array` this flag is a
     * bad argument, with `stacks` it changes nothing; strata_pool_stats_get tells.
     */
    STRATA_POOL_STACKS = 1,
};

/* What strata_pool_create wants to know. Zero in what isn't needed: names and numbers may be added in later versions, where 0 means "as before". */
struct strata_pool_config {
    const char *name;     /* for messages; cut to STRATA_POOL_NAME_BYTES - 1 bytes. Not NULL */
    size_t object_bytes;  /* 1..STRATA_POOL_OBJECT_BYTES_MAX */
    size_t alignment;     /* of each object: a power of two up to STRATA_POOL_OBJECT_BYTES_MAX; 0: 16. Less than 16 is as good as 16 */
    size_t m;             /* capacity of each local pool: 1..STRATA_POOL_M_MAX */
    size_t m_alpha;       /* from global to local at a time: 1..m; 0: m/2, the best there is by Theorem 2.5 (1 where m is 1) */
    size_t m_beta;        /* from local to global at a time: likewise */
    size_t objects_start; /* made by strata_pool_create, so that the first requests find them; 0: none */
    size_t objects_max;   /* the pool never has more; at least m_alpha and objects_start; 0: no limit. See strata_pool_alloc for what suffices */
    size_t objects_grow;  /* made at a time when the global pool has run out, and m_alpha at least; 0: more as the pool grows */
    unsigned flags;       /* enum strata_pool_flags, or 0 */
};

/*
 * strata_pool_create - makes a pool, without local pools. (Vee, Hsu, section 2.2, with the parameters of Definition 2.1.)
 *
 * config: see there; it may go once the call is back. pool: where the new pool is stored.
 * Returns STRATA_POOL_OK; STRATA_POOL_BAD_ARGUMENT: a member is outside what is allowed; STRATA_POOL_NO_MEMORY: for the pool or objects_start
 * objects. On failure *pool is not written. The memory is that of the heap, and counts into its limits, and its figures as in use. Cost: constant,
 * and linear in objects_start; locks of the heap.
 */
STRATA_API enum strata_pool_status strata_pool_create(const struct strata_pool_config *config,
                                                      struct strata_pool **pool) STRATA_NOEXCEPT STRATA_NODISCARD;

/*
 * strata_pool_destroy - ends a pool whose objects are all free and whose local pools are all destroyed, and gives its memory back to the heap.
 *
 * objects_in_use: where not NULL, how many objects the program has not freed is stored there, whatever the status.
 * Returns STRATA_POOL_OK; then `pool` is no longer valid. STRATA_POOL_BUSY where objects are in use or there are local pools: then the pool is as
 * before, and usable. No other thread may use the pool during the call.
 * Cost: linear in the memory of the pool; locks of the heap.
 */
STRATA_API enum strata_pool_status strata_pool_destroy(struct strata_pool *pool, size_t *objects_in_use) STRATA_NOEXCEPT STRATA_NODISCARD;

/*
 * strata_pool_local_create - makes an empty local pool, for the thread that calls or any one other.
 *
 * local: where it is stored. Returns STRATA_POOL_OK, or STRATA_POOL_NO_MEMORY; then *local is not written.
 * Cost: memory for m pointers, the pool's lock.
 */
STRATA_API enum strata_pool_status strata_pool_local_create(struct strata_pool *pool,
                                                            struct strata_pool_local **local) STRATA_NOEXCEPT STRATA_NODISCARD;

/*
 * strata_pool_local_destroy - brings what the local pool holds to the global one, and ends it. By its owner; threads don't do it when they end.
 *
 * local: no longer valid afterwards. NULL: does nothing.
 * Cost: linear in the objects that it holds, the pool's lock. Counted as a drain, not as a global access.
 */
STRATA_API void strata_pool_local_destroy(struct strata_pool_local *local) STRATA_NOEXCEPT;

/*
 * strata_pool_alloc - an object of the pool of `local`. By the owner of `local`.
 *
 * Returns the object, aligned as the pool says, its contents undefined; NULL and ENOMEM in errno where neither local nor global pool have one and no
 * more can be made; NULL and EINVAL where `local` is NULL. What other local pools hold is out of reach: a pool with objects_max can answer so
 * although objects are free. It never does where objects_max is M + P * m or more, for P local pools and at most M objects in use at a time, the new
 * one included (section 2.3.2), and the heap has memory for them.
 *
 * Cost: constant and without a lock, but in one of min(m_alpha, m_beta, m - m_alpha, m - m_beta) calls of strata_pool_alloc and strata_pool_free on
 * this local pool at most: that one moves m_alpha objects under the pool's lock, and may get memory from the heap. (Lemma 2.4. Where the minimum is 0
 * it says nothing. What it counts is two requests less than true from an allocation's access to a free's and back, so that the exact
 * minimum is that of m_alpha, m_beta, m - m_alpha + 2, m - m_beta + 2.) This assumes that the global pool has m_alpha objects or can make them; where
 * it gives fewer, it is asked again sooner.
 */
STRATA_API void *strata_pool_alloc(struct strata_pool_local *local) STRATA_NOEXCEPT STRATA_NODISCARD;

/*
 * strata_pool_free - gives an object back, into `local`. By the owner of `local`.
 *
 * object: of strata_pool_alloc from any local pool of the same pool, not freed since. NULL: does nothing. Its contents are undefined from now on.
 * Returns STRATA_POOL_OK, or STRATA_POOL_FOREIGN where no object of this pool starts at that address: then nothing has happened, and whatever it is
 * still is the caller's. A second free of an object is not found out here; strata_pool_check sees it while the object is not allocated again.
 *
 * Cost: as strata_pool_alloc, with m_beta objects in place of m_alpha, and some loads that tell an object of the pool from other memory. Needs no
 * memory.
 */
STRATA_API enum strata_pool_status strata_pool_free(struct strata_pool_local *local, void *object) STRATA_NOEXCEPT;

/* The figures of a pool. Counts since its creation, unless another thing is said. */
struct strata_pool_stats {
    char name[STRATA_POOL_NAME_BYTES];
    size_t object_bytes; /* from one object to the next: what was asked for, rounded up for the alignment */
    size_t alignment;    /* as asked, 16 at least */
    size_t m, m_alpha, m_beta;
    size_t requests_apart; /* phi_min + 1 of the paper, min(m_alpha, m_beta, m - m_alpha, m - m_beta): requests per access, at least; 0: no bound */
    unsigned flags;
    /* Accesses to the global pool for requests, each counted once: Theorem 2.3 bounds alpha + beta by requests / requests_apart + local pools. */
    uint64_t alpha_accesses; /* by an allocation that found its local pool empty, and got objects */
    uint64_t beta_accesses;  /* by a free that found its local pool full */
    uint64_t alpha_short;    /* of alpha_accesses: brought fewer than m_alpha objects */
    uint64_t alpha_failures; /* not among alpha_accesses: brought no objects. The allocation got NULL, or tried again after the heap had made room */
    uint64_t drains;         /* local pools destroyed */
    uint64_t contention;     /* of all accesses, those that found the lock held */
    uint64_t growths;        /* of alpha_accesses: made new objects */
    size_t locals;           /* local pools now, and the most at a time */
    size_t locals_max;
    size_t objects;        /* made so far: in use and free */
    size_t objects_in_use; /* not freed now */
    size_t objects_global; /* free in the global pool now */
    size_t objects_local;  /* free in local pools now */
    size_t memory_bytes;   /* of the heap, for objects */
    size_t metadata_bytes; /* of the heap, for all else of the pool */
};

/*
 * strata_pool_stats_get - the figures of a pool. Any thread, at any time.
 *
 * stats: written whole. Returns STRATA_POOL_OK. Exact where no other thread uses the pool meanwhile; else each access is counted in full or not at
 * all, and the numbers of objects in local pools and in use may be off by the requests under way.
 * Cost: linear in the number of local pools, under the pool's lock.
 */
STRATA_API enum strata_pool_status strata_pool_stats_get(struct strata_pool *pool, struct strata_pool_stats *stats) STRATA_NOEXCEPT;

/* The figures of one local pool, since its creation: for Lemma 2.2, which bounds the accesses of one by its own requests. */
struct strata_pool_local_stats {
    uint64_t alpha_accesses, beta_accesses, alpha_short, alpha_failures; /* as in struct strata_pool_stats */
    size_t objects;                                                      /* held now */
};

/* strata_pool_local_stats_get - the figures of a local pool. By its owner; returns STRATA_POOL_OK. Cost: constant, no lock. */
STRATA_API enum strata_pool_status strata_pool_local_stats_get(const struct strata_pool_local *local,
                                                               struct strata_pool_local_stats *stats) STRATA_NOEXCEPT;

/*
 * strata_pool_check - verifies the pool: each free object is one of its own and is free once, and counters equal what they count.
 *
 * Returns NULL where all holds, else a text in static storage: the program has freed an object twice or written to one that is free
 * (STRATA_POOL_STACKS), or strata has a bug; the pool should not be used any longer. No other thread may use the pool or one of its local pools
 * meanwhile. strata_check of <strata/strata.h> doesn't look into pools.
 * Cost: linear in the objects of the pool, under its lock.
 */
STRATA_API const char *strata_pool_check(struct strata_pool *pool) STRATA_NOEXCEPT;

#ifdef __cplusplus
}
#endif

#endif
