/*
 * page_api.h - what page_api.c and page_batch.c share. Private to api/.
 */
#ifndef STRATA_API_PAGE_API_H
#define STRATA_API_PAGE_API_H

#include "page/page.h"
#include "strata/page.h"

/* In the words of the header. */
enum strata_page_status page_api_status(enum zone_status status);
enum strata_page_status page_api_join_status(enum zone_status status); /* of strata_page_join */
/* Whether an allocation is asked for in a way that can be served. */
enum strata_page_status page_api_check_request(const struct strata_page_request *request);
/* What strata_page_realloc knows. */
#define PAGE_API_REALLOC_FLAGS ((unsigned)(STRATA_PAGE_ZEROED | STRATA_PAGE_NO_MOVE | STRATA_PAGE_PREFAULT))
/* Of the operating system. */
size_t page_api_page_bytes(void);

#endif
