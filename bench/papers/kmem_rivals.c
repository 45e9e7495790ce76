/*
 * kmem_rivals.c - see kmem_rivals.h. Locks: mk.lock and first_fit.lock, never both, nothing else inside them.
 */
#include "kmem_rivals.h"

#include <pthread.h>
#include <stdint.h>
#include <sys/mman.h>

#include "load.h"

#define RESERVATION_BYTES (64 * MIB)
#define PAGE_BYTES ((size_t)4096)
#define PAGES (RESERVATION_BYTES / PAGE_BYTES)
#define BUCKET_MIN_SHIFT 4
#define BUCKET_MAX_SHIFT 12

struct link {
    struct link *next;
};

static char *reserve(void) {
    char *memory = mmap(NULL, RESERVATION_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) load_fail("mmap failed");
    return memory;
}

static struct {
    _Alignas(CACHE_LINE_BYTES) pthread_mutex_t lock;
    struct link *free[BUCKET_MAX_SHIFT + 1];
    char *memory; /* of the reservation; the first pages_used are in buckets */
    size_t pages_used;
    unsigned char bucket_of_page[PAGES];
} mk = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* A binary search, as the original's macro is where it is expanded. */
static unsigned bucket_of(size_t size_bytes) {
    if (size_bytes <= 256) {
        if (size_bytes <= 64) return size_bytes <= 32 ? (size_bytes <= 16 ? 4 : 5) : 6;
        return size_bytes <= 128 ? 7 : 8;
    }
    if (size_bytes <= 1024) return size_bytes <= 512 ? 9 : 10;
    return size_bytes <= 2048 ? 11 : 12;
}

static void mk_refill(unsigned bucket) {
    if (!mk.memory) mk.memory = reserve();
    if (mk.pages_used == PAGES) return;
    mk.bucket_of_page[mk.pages_used] = (unsigned char)bucket;
    char *page = mk.memory + PAGE_BYTES * mk.pages_used++;
    for (size_t offset = PAGE_BYTES; offset; offset -= (size_t)1 << bucket) {
        struct link *link = (struct link *)(page + offset - ((size_t)1 << bucket));
        link->next = mk.free[bucket];
        mk.free[bucket] = link;
    }
}

void *mk_malloc(size_t size_bytes) {
    unsigned bucket = bucket_of(size_bytes);
    pthread_mutex_lock(&mk.lock);
    if (!mk.free[bucket]) mk_refill(bucket);
    struct link *link = mk.free[bucket];
    if (link) mk.free[bucket] = link->next;
    pthread_mutex_unlock(&mk.lock);
    return link;
}

void mk_free(void *block) {
    struct link *link = block;
    pthread_mutex_lock(&mk.lock);
    unsigned bucket = mk.bucket_of_page[(size_t)((char *)block - mk.memory) / PAGE_BYTES];
    link->next = mk.free[bucket];
    mk.free[bucket] = link;
    pthread_mutex_unlock(&mk.lock);
}

/* In front of every block, free or not. `next` is of free blocks only, in the order of addresses. */
struct head {
    size_t size_bytes; /* with the head */
    struct head *next;
};

static struct {
    _Alignas(CACHE_LINE_BYTES) pthread_mutex_t lock;
    struct head *free;
    int started;
} first_fit = {.lock = PTHREAD_MUTEX_INITIALIZER};

void *first_fit_malloc(size_t size_bytes) {
    size_t wanted = ((size_bytes + 15) & ~(size_t)15) + sizeof(struct head);
    pthread_mutex_lock(&first_fit.lock);
    if (!first_fit.started) {
        first_fit.free = (struct head *)reserve();
        *first_fit.free = (struct head){.size_bytes = RESERVATION_BYTES};
        first_fit.started = 1;
    }
    struct head **link = &first_fit.free;
    while (*link && (*link)->size_bytes < wanted) link = &(*link)->next;
    struct head *head = *link;
    if (head && head->size_bytes >= wanted + 2 * sizeof(struct head)) {
        struct head *rest = (struct head *)((char *)head + wanted);
        *rest = (struct head){.size_bytes = head->size_bytes - wanted, .next = head->next};
        head->size_bytes = wanted;
        *link = rest;
    } else if (head) {
        *link = head->next;
    }
    pthread_mutex_unlock(&first_fit.lock);
    return head ? head + 1 : NULL;
}

static void join_next(struct head *head) {
    if (!head->next || (char *)head + head->size_bytes != (char *)head->next) return;
    head->size_bytes += head->next->size_bytes;
    head->next = head->next->next;
}

void first_fit_free(void *block) {
    struct head *head = (struct head *)block - 1, *before = NULL;
    pthread_mutex_lock(&first_fit.lock);
    for (struct head *at = first_fit.free; at && at < head; at = at->next) before = at;
    struct head **link = before ? &before->next : &first_fit.free;
    head->next = *link;
    *link = head;
    join_next(head);
    if (before) join_next(before);
    pthread_mutex_unlock(&first_fit.lock);
}
