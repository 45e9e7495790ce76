/*
 * umem_internal.h - what the files of libstrata-umem share. They stand on the public headers of strata, and on the C library.
 */
#ifndef STRATA_UMEM_INTERNAL_H
#define STRATA_UMEM_INTERNAL_H

#include <pthread.h>
#include <stdbool.h>

/* The library is compiled with hidden names; these are its public ones. */
#pragma GCC visibility push(default)
#include <umem.h>
#include <vmem.h>
#pragma GCC visibility pop

/* umem.c: one line on standard error, "umem: ...", and that with abort(). Neither allocates. */
void umem_line(const char *format, ...) __attribute__((format(printf, 1, 2)));
_Noreturn void umem_die(const char *format, ...) __attribute__((format(printf, 1, 2)));
/*
 * An allocation with UMEM_NOFAIL has found nothing: tries again, without mtbf, which as in libumem is for those that may fail, until there is an
 * object. Asks the callback in between, which may end the process.
 */
struct umem_request {
    umem_cache_t *cache;
    size_t size, align;
};
void *umem_insist(void *(*try)(const struct umem_request *request), const struct umem_request *request);
/* Memory of the library's own, zeros, which mtbf spares: a program can't know when it is wanted. For strata_kmem_free. NULL: there is none. */
void *umem_own_alloc(size_t size);

/* vmem.c: whether what an arena holds is no memory, as it was created so, or takes all of it from one that was. */
bool umem_has_identifiers(const vmem_t *vmp);
size_t umem_quantum(const vmem_t *vmp);

/* umem_large.c: the objects of a cache that are allocated. Creating and adding: NULL and false where there is no memory. */
struct umem_large;
struct umem_large *umem_large_create(void);
void umem_large_destroy(struct umem_large *large); /* none is left */
bool umem_large_add(struct umem_large *large, void *address);
/* Takes one out; false: it isn't there. */
bool umem_large_take(struct umem_large *large, const void *address);
bool umem_large_has_any(const struct umem_large *large);
/* Takes out whichever; NULL: none is left. */
void *umem_large_take_any(struct umem_large *large);

/* umem_reclaim.c: a cache's reclaim function. */
struct umem_reclaimer {
    struct umem_reclaimer *next, **link;
    umem_reclaim_t *function; /* NULL: none, or the cache is being destroyed */
    void *data;
    bool runs;
    pthread_t thread; /* that it runs on */
};
void umem_reclaimer_add(struct umem_reclaimer *reclaimer);
/* From now on the function isn't called; waits until it is done. False, and as before: this thread is in it. */
bool umem_reclaimer_remove(struct umem_reclaimer *reclaimer);
/* Calls it, and all, but for those that are running. */
void umem_reclaim(struct umem_reclaimer *reclaimer);
void umem_reclaim_all(void);

/* umem_env.c: reads the environment, once; whoever makes a cache comes by, as constructors of a static program run in any order. */
void umem_start(void);
/* Whether UMEM_OPTIONS wants every cache as with UMC_NOMAGAZINE. */
bool umem_no_magazines(void);

#endif
