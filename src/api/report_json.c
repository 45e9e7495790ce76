/*
 * report_json.c - a snapshot as one JSON object on one line (RFC 8259).
 *
 * The keys are those of the structs in report.h, with their units where those depend on the record; programs rely on them, so keys are added, never
 * renamed or removed. All numbers are whole, from 0 to 2^64 - 1. Every cache appears, used or not.
 */
#include <strata/strata.h>

#include "api/report.h"

/* Names may come from the program: quotes, backslashes and control characters are escaped, and bytes that are not UTF-8 shown as '?'. */
static void put_string(struct report_writer *writer, const char *text) {
    report_put(writer, "\"", 1);
    while (*text != 0) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\') {
            report_format(writer, "\\%c", c);
        } else if (c < 0x20 || c == 0x7f) {
            report_format(writer, "\\u%04x", c);
        } else {
            size_t length = report_utf8_length(text);
            report_put(writer, length != 0 ? text : "?", length != 0 ? length : 1);
            text += length != 0 ? length : 1;
            continue;
        }
        text++;
    }
    report_put(writer, "\"", 1);
}

/* Starts an object with its name; the fields follow, each with its comma before it. */
static void put_named(struct report_writer *writer, bool first, const char *name) {
    report_format(writer, "%s{\"name\":", first ? "" : ",");
    put_string(writer, name);
}

#define PUT_FIRST(record, field) report_format(writer, "\"" #field "\":%lu", (record)->field)
#define PUT(record, field) report_format(writer, ",\"" #field "\":%lu", (record)->field)
#define PUT_AS(key, value) report_format(writer, ",\"" key "\":%lu", value)

static void put_heap(struct report_writer *writer, const struct report_heap *heap) {
    PUT_FIRST(heap, in_use_bytes);
    PUT(heap, populated_bytes);
    PUT(heap, lookaside_bytes);
    PUT(heap, reserved_bytes);
    PUT(heap, metadata_bytes);
    PUT(heap, huge_bytes);
    PUT(heap, heap_huge_bytes);
    PUT(heap, resident_bytes);
    PUT(heap, large_blocks);
    PUT(heap, large_bytes);
    PUT(heap, released_bytes_total);
    PUT(heap, populated_bytes_total);
    PUT(heap, moves);
    PUT(heap, compactions);
    PUT(heap, block_moves);
    PUT(heap, races_lost_bytes);
    PUT(heap, mappings);
    PUT(heap, mappings_limit);
    PUT(heap, soft_limit);
    PUT(heap, hard_limit);
    PUT(heap, pressure_events);
    PUT(heap, handler_calls);
    PUT(heap, handler_freed_bytes);
    PUT(heap, handler_resident_bytes);
}

static void put_cache(struct report_writer *writer, bool first, const struct report_cache *cache) {
    put_named(writer, first, cache->name);
    PUT(cache, object_bytes);
    PUT(cache, slab_bytes);
    PUT(cache, slabs);
    PUT(cache, in_use);
    PUT(cache, cached);
    PUT(cache, total);
    PUT(cache, memory_bytes);
    PUT(cache, depot_allocs);
    PUT(cache, depot_frees);
    PUT(cache, slab_allocs);
    PUT(cache, slab_frees);
    PUT(cache, magazine_rounds);
    PUT(cache, contention);
    PUT(cache, depot_magazines);
    if (cache->calls_back) {
        PUT(cache, reclaims);
        PUT(cache, reclaimed_bytes);
        PUT(cache, moves);
        PUT(cache, moves_yes);
        PUT(cache, slabs_emptied);
    }
    report_put(writer, "}", 1);
}

static void put_arena(struct report_writer *writer, bool first, const struct report_arena *arena) {
    put_named(writer, first, arena->name);
    if (arena->of_program) {
        PUT(arena, quantum);
        PUT(arena, in_use);
        PUT(arena, total);
    } else {
        PUT_AS("quantum_bytes", arena->quantum);
        PUT_AS("in_use_bytes", arena->in_use);
        PUT_AS("total_bytes", arena->total);
    }
    PUT(arena, segments);
    PUT(arena, allocs);
    PUT(arena, frees);
    PUT(arena, failures);
    if (arena->of_program) {
        PUT(arena, imported);
        PUT(arena, imports);
        PUT(arena, releases);
        PUT(arena, waits);
        PUT(arena, metadata_bytes);
    }
    report_put(writer, "}", 1);
}

static void put_group(struct report_writer *writer, bool first, const struct report_group *group) {
    put_named(writer, first, group->name);
    PUT(group, superpages);
    PUT(group, allocated_pages);
    PUT(group, populated_pages);
    PUT(group, free_populated_pages);
    PUT(group, partial_superpages);
    PUT(group, huge_superpages);
    report_put(writer, "}", 1);
}

static void put_order(struct report_writer *writer, bool first, const struct report_order *order) {
    report_put(writer, first ? "{" : ",{", first ? 1 : 2);
    PUT_FIRST(order, block_bytes);
    PUT(order, unmovable);
    PUT(order, reclaimable);
    PUT(order, movable);
    PUT(order, unused);
    PUT(order, unusable_permille);
    PUT(order, fragmentation_permille);
    report_put(writer, "}", 1);
}

bool report_json(const struct report_snapshot *snapshot, struct report_writer *writer) {
    report_format(writer, "{\"version\":\"%s\",\"pid\":%lu,\"mode\":", STRATA_VERSION, snapshot->pid);
    put_string(writer, snapshot->mode);
    report_format(writer, ",\"uptime_ns\":%lu,\"heap\":{", snapshot->uptime_ns);
    put_heap(writer, &snapshot->heap);
    report_format(writer, "},\"caches\":[");
    for (unsigned i = 0; i < snapshot->cache_count; i++) put_cache(writer, i == 0, &snapshot->caches[i]);
    report_format(writer, "],\"arenas\":[");
    for (unsigned i = 0; i < snapshot->arena_count; i++) put_arena(writer, i == 0, &snapshot->arenas[i]);
    report_format(writer, "],\"groups\":[");
    for (unsigned i = 0; i < snapshot->group_count; i++) put_group(writer, i == 0, &snapshot->groups[i]);
    report_format(writer, "],\"free_blocks\":[");
    for (unsigned i = 0; i < snapshot->order_count; i++) put_order(writer, i == 0, &snapshot->orders[i]);
    report_format(writer, "]}\n");
    return report_writer_flush(writer);
}
