/*
 * emergency.c - memory for a process that strata is about to end.
 *
 * Handlers of SIGABRT report the crash, and some allocate for it. The thread that found the misuse may hold locks of the layers, and
 * what it found says that their structures can't be trusted. So from then on every allocation comes from a region of its own, by
 * raising one counter, and nothing is freed. Async-signal-safe but for the reservation, which is a system call. No locks.
 */
#include "api/heap.h"

#define EMERGENCY_BYTES (64 * MIB)

/* Before each block: its size, so that realloc knows how much to copy. */
struct emergency_head {
    size_t bytes;
    size_t unused; /* keeps blocks at multiples of 16 */
};

static char *region; /* atomic; NULL: not reserved yet, or not to be had */
static size_t used;  /* atomic */

void emergency_begin(void) {
    if (__atomic_exchange_n(&heap.dying, true, __ATOMIC_SEQ_CST)) return;
    __atomic_store_n(&heap.fine_end, 0, __ATOMIC_RELEASE);
    __atomic_store_n(&heap.small_end, 0, __ATOMIC_RELEASE); /* with both, every malloc takes the slow path now */
    for (unsigned tag = SLAB_CACHE_FIRST; tag < SLAB_CACHE_MAGAZINES; tag++) heap_kmem_doubt(tag);
    size_t page_bytes = platform_info()->page_bytes;
    if (page_bytes == 0) return; /* before platform_init: there is no heap, and nothing to allocate from */
    char *reserved = platform_reserve(NULL, EMERGENCY_BYTES, page_bytes);
    if (reserved != NULL && platform_commit(reserved, EMERGENCY_BYTES)) __atomic_store_n(&region, reserved, __ATOMIC_RELEASE);
}

void *emergency_alloc(size_t bytes, size_t align) {
    char *start = __atomic_load_n(&region, __ATOMIC_ACQUIRE);
    if (start == NULL || bytes > EMERGENCY_BYTES || align > EMERGENCY_BYTES) return NULL;
    size_t whole = align_up(bytes, 16) + sizeof(struct emergency_head) + align;
    size_t at = __atomic_fetch_add(&used, whole, __ATOMIC_RELAXED);
    if (at > EMERGENCY_BYTES || whole > EMERGENCY_BYTES - at) return NULL;
    char *block = (char *)align_up((uintptr_t)start + at + sizeof(struct emergency_head), align);
    ((struct emergency_head *)(void *)block)[-1].bytes = max_u64(bytes, 1); /* 0 would be no block */
    return block;
}

size_t emergency_bytes(const void *address) {
    char *start = __atomic_load_n(&region, __ATOMIC_ACQUIRE);
    if (start == NULL || (uintptr_t)address - (uintptr_t)start >= EMERGENCY_BYTES) return 0;
    return ((const struct emergency_head *)address)[-1].bytes;
}
