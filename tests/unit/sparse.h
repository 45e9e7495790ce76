/*
 * sparse.h - how much of an exhaustive test a build does.
 *
 * Some tests make every call to the platform fail in turn, or run threads in every order that few switches allow: thousands of runs. The plain build
 * (preset sim) does all of them. Builds under sanitizers and by the other compiler look for other mistakes in the same code, which show in any run:
 * they are configured with STRATA_TEST_STRIDE above 1 and take one failing call in so many, and one switch less.
 */
#ifndef STRATA_TEST_SPARSE_H
#define STRATA_TEST_SPARSE_H

#include <stdint.h>

#ifndef STRATA_TEST_STRIDE
#define STRATA_TEST_STRIDE 1
#endif

/* How far a sweep over failing calls goes on, where the plain build goes on by `step`. */
static inline uint64_t sparse_step(uint64_t step) { return step * STRATA_TEST_STRIDE; }

/* Of a scene that the plain build runs with so many deviations, and in at least so many orders. */
static inline unsigned sparse_deviations(unsigned deviations) { return STRATA_TEST_STRIDE > 1 && deviations > 1 ? deviations - 1 : deviations; }
static inline uint64_t sparse_runs(uint64_t runs) { return STRATA_TEST_STRIDE > 1 ? 2 : runs; }

#endif
