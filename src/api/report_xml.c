/*
 * report_xml.c - a snapshot as the XML document that malloc_info writes: the elements that readers of glibc's know, with our figures.
 *
 * One <heap>, as there is one for all threads. Its <sizes> lists the free objects of each cache: size, number, bytes. Where glibc writes
 * type "fast" (free and at hand for the next malloc), that is what CPU caches and depots hold; "rest" is what is free in slabs and
 * idle pages; "mmap" is large blocks; <system> is populated memory, <aspace> reserved address space. There is no "max": it isn't kept. What glibc
 * has no word for stands at the end, in <superpages>: those of each mobility group, and free blocks by size with both indices, in thousandths.
 */
#include "api/report.h"

/* For an attribute in double quotes; characters that XML 1.0 can't hold become '?'. */
static void put_attribute(struct report_writer *writer, const char *text) {
    while (*text != 0) {
        size_t length = (unsigned char)*text < 0x20 || *text == 0x7f ? 0 : report_utf8_length(text);
        switch (*text) {
        case '&': report_format(writer, "&amp;"); break;
        case '<': report_format(writer, "&lt;"); break;
        case '>': report_format(writer, "&gt;"); break;
        case '"': report_format(writer, "&quot;"); break;
        default: report_put(writer, length != 0 ? text : "?", length != 0 ? length : 1); break;
        }
        text += length != 0 ? length : 1;
    }
}

/* Counts are read while the program runs and may disagree by a few: a difference is never below 0. */
static uint64_t minus(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }

struct free_totals {
    uint64_t cached_objects, cached_bytes; /* in CPU caches and depots */
    uint64_t slab_objects, slab_bytes;     /* free in slabs */
};

static struct free_totals free_sum(const struct report_snapshot *snapshot) {
    struct free_totals sum = {0, 0, 0, 0};
    for (unsigned i = 0; i < snapshot->cache_count; i++) {
        const struct report_cache *cache = &snapshot->caches[i];
        if (cache->memory_bytes == 0) continue; /* integers of arenas, or none */
        uint64_t in_slabs = minus(minus(cache->total, cache->in_use), cache->cached);
        sum.cached_objects += cache->cached;
        sum.cached_bytes += cache->cached * cache->object_bytes;
        sum.slab_objects += in_slabs;
        sum.slab_bytes += in_slabs * cache->object_bytes;
    }
    return sum;
}

/* The elements that a <heap> and the whole document share. */
static void put_totals(struct report_writer *writer, const struct report_snapshot *snapshot, const struct free_totals *sum, bool whole) {
    const struct report_heap *heap = &snapshot->heap;
    report_format(writer, "<total type=\"fast\" count=\"%lu\" size=\"%lu\"/>\n", sum->cached_objects, sum->cached_bytes);
    report_format(writer, "<total type=\"rest\" count=\"%lu\" size=\"%lu\"/>\n", sum->slab_objects, sum->slab_bytes + heap->lookaside_bytes);
    if (whole) report_format(writer, "<total type=\"mmap\" count=\"%lu\" size=\"%lu\"/>\n", heap->large_blocks, heap->large_bytes);
    report_format(writer, "<system type=\"current\" size=\"%lu\"/>\n", heap->populated_bytes);
    report_format(writer, "<aspace type=\"total\" size=\"%lu\"/>\n", heap->reserved_bytes);
}

/* Names of groups are ours. */
static void put_superpages(struct report_writer *writer, const struct report_snapshot *snapshot) {
    const struct report_heap *heap = &snapshot->heap;
    report_format(writer, "<superpages huge_bytes=\"%lu\" compactions=\"%lu\" block_moves=\"%lu\" races_lost_bytes=\"%lu\">\n", heap->heap_huge_bytes,
                  heap->compactions, heap->block_moves, heap->races_lost_bytes);
    for (unsigned i = 0; i < snapshot->group_count; i++) {
        const struct report_group *group = &snapshot->groups[i];
        report_format(writer, "  <group name=\"");
        put_attribute(writer, group->name);
        report_format(writer, "\" count=\"%lu\" partial=\"%lu\" huge=\"%lu\" pages=\"%lu\"/>\n", group->superpages, group->partial_superpages,
                      group->huge_superpages, group->allocated_pages);
    }
    for (unsigned i = 0; i < snapshot->order_count; i++) {
        const struct report_order *order = &snapshot->orders[i];
        report_format(writer, "  <free size=\"%lu\" count=\"%lu\" unusable=\"%lu\" fragmentation=\"%lu\"/>\n", order->block_bytes,
                      order->unmovable + order->reclaimable + order->movable + order->unused, order->unusable_permille,
                      order->fragmentation_permille);
    }
    report_format(writer, "</superpages>\n");
}

bool report_xml(const struct report_snapshot *snapshot, struct report_writer *writer) {
    struct free_totals sum = free_sum(snapshot);
    report_format(writer, "<malloc version=\"strata-1\">\n<heap nr=\"0\">\n<sizes>\n");
    for (unsigned i = 0; i < snapshot->cache_count; i++) {
        const struct report_cache *cache = &snapshot->caches[i];
        uint64_t free_objects = minus(cache->total, cache->in_use);
        if (free_objects == 0 || cache->memory_bytes == 0) continue; /* integers of an arena are no bytes */
        report_format(writer, "  <size name=\"");
        put_attribute(writer, cache->name);
        report_format(writer, "\" from=\"%lu\" to=\"%lu\" total=\"%lu\" count=\"%lu\"/>\n", cache->object_bytes, cache->object_bytes,
                      free_objects * cache->object_bytes, free_objects);
    }
    report_format(writer, "</sizes>\n");
    put_totals(writer, snapshot, &sum, false);
    report_format(writer, "</heap>\n");
    put_totals(writer, snapshot, &sum, true);
    put_superpages(writer, snapshot);
    report_format(writer, "</malloc>\n");
    return report_writer_flush(writer);
}
