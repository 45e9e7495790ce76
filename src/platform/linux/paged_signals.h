/*
 * paged_signals.h - paged memory without userfaultfd: between paged.c and paged_signals.c. Private to this folder.
 *
 * Offsets and sizes as in platform.h. Page tables of a block change by one thread at a time, as the pager's lock has it.
 */
#ifndef STRATA_PLATFORM_LINUX_PAGED_SIGNALS_H
#define STRATA_PLATFORM_LINUX_PAGED_SIGNALS_H

#include "platform/platform.h"

/* Beside enum platform_access: a page that is nothing, so that touching it is SIGBUS. */
#define PAGED_BROKEN 3

/* Takes over a block whose mappings are there: nothing of it is in reach from now on. */
enum platform_faults_status paged_signals_open(struct platform_paged *paged);
/* forked: in the child, where no other thread is, and what is common may be anything. */
void paged_signals_close(struct platform_paged *paged, bool forked);
/* Sleeps until there are faults, at most `count` of which it takes; 0 after paged_signals_ring. */
unsigned paged_signals_wait(struct platform_paged *paged, struct platform_fault *faults, unsigned count);
void paged_signals_ring(struct platform_paged *paged);
void paged_signals_wake(struct platform_paged *paged, size_t offset, size_t bytes);
/* False: no mappings left. All of the block may be out of reach then. */
bool paged_signals_set(struct platform_paged *paged, size_t offset, size_t bytes, enum platform_access access);
/* What is in reach can only be read. False: not all of it. */
bool paged_signals_protect(struct platform_paged *paged, size_t offset, size_t bytes);
/* Out of reach, and perhaps neighbours too. */
void paged_signals_hide(struct platform_paged *paged, size_t offset, size_t bytes);
/* What a page is by now. */
void paged_signals_note(struct platform_paged *paged, size_t offset, unsigned right);

#endif
