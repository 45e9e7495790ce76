/* layers_report.c - the counts and the memory of layers as JSON, for the programs that drive them. No locks. */
#include <inttypes.h>
#include <stdio.h>

#include "layers.h"

static void print_way(const char *name, const struct layers_way *way) {
    printf(", \"%s\": {\"requests\": %" PRIu64 ", \"global\": %" PRIu64 ", \"coalescing\": %" PRIu64 ", \"pages\": %" PRIu64 "}", name, way->requests,
           way->global, way->coalescing, way->pages);
}

void layers_print_size(unsigned size, const struct kmem_parameters *parameters, const struct layers_counts *counts) {
    printf("\"bytes\": %zu, \"target\": %u", (size_t)1 << (LAYERS_SIZE_SHIFT + size), parameters->target[size]);
    print_way("alloc", &counts->alloc);
    print_way("free", &counts->free);
    printf(", \"flushes\": %" PRIu64, counts->flushes);
}

void layers_print_memory(const char *name, const struct layers_memory *memory) {
    printf(", \"%s\": {\"pages_bytes\": %" PRIu64 ", \"waste_bytes\": %" PRIu64 "}", name, memory->pages_bytes, memory->waste_bytes);
}
