/*
 * debug_report.c - what is written when an error is found: one line that says it, as all errors of strata do, then what is known of the buffer.
 *
 * Lines go out whole, one by one, without allocation. Addresses of code are shown as module+offset, for addr2line or a debugger.
 */
#include "slab/debug_internal.h"

#define MODULE_BYTES 256

static void report_frame(uintptr_t address) {
    char module[MODULE_BYTES];
    uintptr_t offset;
    if (platform_module_of(address, module, sizeof module, &offset))
        log_line("      %s+0x%llx", module, (unsigned long long)offset);
    else
        log_line("      0x%llx", (unsigned long long)address);
}

/* The clock's microseconds; the one of the report tells how long ago that is. */
static void report_transaction(const struct debug_transaction *transaction, uint64_t now_ns) {
    uint64_t ago_us = now_ns > transaction->time_ns ? (now_ns - transaction->time_ns) / 1000 : 0;
    log_line("    %s by thread %u, %llu.%06llu s before:", transaction->kind == DEBUG_KIND_FREED ? "freed" : "allocated", transaction->thread,
             (unsigned long long)(ago_us / 1000000), (unsigned long long)(ago_us % 1000000));
    for (unsigned i = 0; i < transaction->frames; i++) report_frame(transaction->frame[i]);
}

#define SHOWN_BYTES 32

static void report_contents(const char *when, const uint8_t *bytes, unsigned count) {
    char text[SHOWN_BYTES * 3 + 1];
    size_t length = 0;
    text[0] = 0;
    for (unsigned i = 0; i < count && i < SHOWN_BYTES; i++) length += format_text(text + length, sizeof text - length, " %02x", bytes[i]);
    log_line("    contents when it was %s:%s%s", when, text, count > SHOWN_BYTES ? " ..." : "");
}

/* What is known of a buffer, newest first. */
static void report_buffer(const struct debug_place *place) {
    const struct debug_features *features = &place->slab->twin->features;
    const struct debug_slot *slot = place->slot;
    uint64_t now_ns = slot->transactions != 0 ? platform_precise_ns() : 0;
    for (unsigned n = 0; n < slot->transactions; n++) report_transaction(debug_slot_transaction(slot, features, n), now_ns);
    if (slot->freed_bytes != 0) report_contents("freed", debug_slot_contents(slot, features, true), slot->freed_bytes);
    if (slot->allocated_bytes != 0) report_contents("allocated", debug_slot_contents(slot, features, false), slot->allocated_bytes);
    if (!slot->was_used)
        log_line("    never allocated");
    else if (slot->transactions == 0)
        log_line("    no transactions are kept: audit does");
}

static void report_place(const struct debug_place *place, const struct debug_damage *damage) {
    const struct debug_slot *slot = place->slot;
    const char *state = slot->state != DEBUG_STATE_IN_USE ? "not in use" : slot->leaving ? "being freed" : "in use";
    const char *buffer = buffer_of(place);
    if (damage == NULL) {
        log_line("  buffer %p of %llu bytes, %s", (const void *)buffer, (unsigned long long)slot->bytes, state);
    } else {
        log_line("  buffer %p of %llu bytes, %s: at offset %lld, expected 0x%02x, found 0x%02x", (const void *)buffer,
                 (unsigned long long)slot->bytes, state, (long long)(damage->address - (uintptr_t)buffer), damage->expected, damage->found);
    }
    report_buffer(place);
}

void debug_report(const struct debug_cache *cache, const char *function, const void *address, const char *what, const struct debug_place *place,
                  const struct debug_damage *damage) {
    __atomic_fetch_add(&cache->layer->errors, 1, __ATOMIC_RELAXED);
    log_line("%s(): %p: %s (cache %s)", function, address, what, cache->name);
    if (place != NULL) report_place(place, damage);
}

void debug_report_done(const struct debug_layer *layer) {
    if (!__atomic_load_n(&layer->goes_on, __ATOMIC_RELAXED))
        fatal("the process ends here, because of the error above (debug_error:continue goes on)");
}
