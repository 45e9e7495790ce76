/*
 * needs_umem_init.c - needs_umem_case.c with settings of its own, which hold where the environment has none.
 */
#include "needs_umem_case.c"

const char *_umem_debug_init(void);
const char *_umem_logging_init(void);

const char *_umem_debug_init(void) { return "default"; }
const char *_umem_logging_init(void) { return "transaction"; }
