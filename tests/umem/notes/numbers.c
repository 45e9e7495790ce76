/*
 * numbers.c - what is no memory: numbers of notes, and places on a disk, which a second arena cuts from extents of the first.
 */
#include <stdint.h>
#include <stdlib.h>

#include "notes.h"

#define NUMBERS_MAX 100000
#define DISK_BASE 4096
#define DISK_BYTES ((size_t)64 << 20)
#define EXTENT_BYTES 4096
#define PLACE_BYTES 64
#define PLACE_CACHED (8 * PLACE_BYTES)

static vmem_t *numbers, *disk, *places;

void numbers_start(void) {
    numbers = vmem_create("numbers", (void *)1, NUMBERS_MAX, 1, NULL, NULL, NULL, 0, VM_SLEEP | VMC_IDENTIFIER);
    disk = vmem_create("disk", (void *)DISK_BASE, DISK_BYTES, EXTENT_BYTES, NULL, NULL, NULL, 0, VM_SLEEP);
    places = vmem_create("places", NULL, 0, PLACE_BYTES, vmem_alloc, vmem_free, disk, PLACE_CACHED, VM_SLEEP);
    if (numbers == NULL || disk == NULL || places == NULL) abort();
}

void numbers_end(void) {
    vmem_destroy(places);
    vmem_destroy(disk);
    vmem_destroy(numbers);
}

unsigned number_take(void) { return (unsigned)(uintptr_t)vmem_alloc(numbers, 1, VM_SLEEP | VM_NEXTFIT); }
void number_give(unsigned number) { vmem_free(numbers, (void *)(uintptr_t)number, 1); }

/* Large ones begin an extent and lie in one half of the disk, as its heads do. */
static int is_large(size_t size) { return size > EXTENT_BYTES / 2; }
void *place_take(size_t size) {
    if (!is_large(size)) return vmem_alloc(places, size, VM_SLEEP);
    return vmem_xalloc(disk, size, EXTENT_BYTES, 0, DISK_BYTES / 2, NULL, NULL, VM_SLEEP | VM_BESTFIT);
}
void place_give(void *place, size_t size) {
    if (is_large(size))
        vmem_xfree(disk, place, size);
    else
        vmem_free(places, place, size);
}

static void count(void *arg, void *start, size_t size) {
    (void)start, (void)size;
    ++*(unsigned *)arg;
}
size_t places_used(void) { return vmem_size(places, VMEM_ALLOC); }
size_t disk_used(void) { return vmem_size(disk, VMEM_ALLOC); }
unsigned places_count(void) {
    unsigned spans = 0;
    vmem_walk(places, VMEM_SPAN | VMEM_REENTRANT, count, &spans);
    return spans;
}
