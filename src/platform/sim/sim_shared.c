/*
 * sim_shared.c - memory at several addresses, by script. A simulated machine has none, as systems that forbid it, until a test offers it
 * (sim_shared_offer); zones of frames have a backend of their own for most tests.
 *
 * The memory itself is committed memory of the arena. What a page of another address shows is kept in a table, as real code can't reach it there: a
 * test says what the program does (sim_shared_read, sim_shared_write). A write to a protected page (sim_fault.c) waits, as a thread in the kernel
 * does, until somebody wakes it, and not before: who shows another page there without that leaves it waiting. A page that is shown anew is neither
 * registered nor protected, as a new mapping is not.
 */
#include <string.h>

#include "platform/sim/sim_internal.h"

/* On the stack of the thread that waits. */
struct waiter {
    struct waiter *next;
    const char *page;
    struct platform_event event;
};

static struct {
    bool offered, enforced;
    uint64_t *shown; /* of each page of the arena: 1 + the address of the page that it shows, within the arena; 0: nothing */
    uint64_t shown_bytes, end;
    struct waiter *waiters;
} script;

enum { FILE_NUMBER = 100 };

void sim_shared_reset(void) {
    if (script.end != 0) memset(script.shown, 0, script.end * sizeof *script.shown);
    script.end = 0;
    script.offered = script.enforced = false;
    script.waiters = NULL;
}

void sim_shared_offer(bool enforced) {
    uint64_t bytes = sim_config.arena_bytes / (4 * KIB) * sizeof *script.shown;
    if (script.shown_bytes < bytes) {
        script.shown = sim_table_map(bytes);
        script.shown_bytes = bytes;
    }
    script.offered = true;
    script.enforced = enforced;
}

static uint64_t offset_of(const void *address) { return (uint64_t)((const char *)address - (const char *)sim_arena_base()); }
static uint64_t page_number(const void *address) { return offset_of(address) / sim_config.page_bytes; }

/* Pages of a range show others, from `from` on; NULL: nothing. */
static void set_shown(void *address, size_t bytes, const char *from) {
    uint64_t first = page_number(address), pages = bytes / sim_config.page_bytes;
    for (uint64_t i = 0; i < pages; i++) script.shown[first + i] = from != NULL ? offset_of(from) + i * sim_config.page_bytes + 1 : 0;
    script.end = max_u64(script.end, first + pages);
    sim_fault_forget(address, bytes);
}

void sim_shared_forget(void *address, size_t bytes) {
    if (script.offered && page_number(address) < script.end) set_shown(address, bytes, NULL);
}

void sim_shared_wake(const void *address, size_t bytes) {
    for (struct waiter **link = &script.waiters, *waiter; (waiter = *link) != NULL;) {
        if (waiter->page < (const char *)address || waiter->page >= (const char *)address + bytes) {
            link = &waiter->next;
            continue;
        }
        *link = waiter->next;
        waiter->event.word = 1;
    }
}

/* ------------------------------------------------------------------ the program's side */

/* Where a page's contents are now; NULL: it shows nothing. */
static char *contents_of(const void *address, size_t bytes) {
    uint64_t offset = offset_of(address), within = offset % sim_config.page_bytes, shown = script.shown[offset / sim_config.page_bytes];
    if (within + bytes > sim_config.page_bytes) fatal("sim: shared: not within one page");
    return shown != 0 ? (char *)sim_arena_base() + (shown - 1) + within : NULL;
}

bool sim_shared_read(const void *address, void *to, size_t bytes) {
    sim_cpu_yield();
    const char *contents = contents_of(address, bytes);
    if (contents != NULL) memcpy(to, contents, bytes);
    return contents != NULL;
}

bool sim_shared_write(void *address, const void *from, size_t bytes) {
    sim_cpu_yield();
    while (script.enforced && contents_of(address, bytes) != NULL && sim_fault_protected(address)) {
        struct waiter waiter = {.next = script.waiters, .page = (const char *)align_down((uintptr_t)address, sim_config.page_bytes)};
        script.waiters = &waiter;
        (void)sim_thread_wait(&waiter.event, UINT64_MAX, false);
    }
    char *contents = contents_of(address, bytes);
    if (contents != NULL) memcpy(contents, from, bytes);
    return contents != NULL;
}

/* ------------------------------------------------------------------ platform.h */

static void check_offered(const char *function) {
    if (!script.offered) fatal("sim: %s: there is no shared memory", function);
}

enum platform_shared_status platform_shared_open(struct platform_shared *shared, size_t bytes, bool huge, const char *name) {
    (void)name;
    *shared = (struct platform_shared){.bytes = bytes, .file = -1};
    if (!script.offered || huge) return PLATFORM_SHARED_UNSUPPORTED;
    shared->base = platform_reserve(NULL, bytes, 2 * MIB);
    if (shared->base == NULL) return PLATFORM_SHARED_NO_MEMORY;
    if (!platform_commit(shared->base, bytes)) {
        platform_unreserve(shared->base, bytes);
        shared->base = NULL;
        return PLATFORM_SHARED_NO_MEMORY;
    }
    shared->file = FILE_NUMBER;
    return PLATFORM_SHARED_OK;
}
void platform_shared_close(struct platform_shared *shared) {
    check_offered("platform_shared_close");
    if (shared->base != NULL) platform_unreserve(shared->base, shared->bytes);
    *shared = (struct platform_shared){.file = -1};
}
bool platform_shared_show(const struct platform_shared *shared, size_t offset, size_t bytes, void *address) {
    check_offered("platform_shared_show");
    if (offset > shared->bytes || bytes > shared->bytes - offset) fatal("sim: platform_shared_show: beyond the end");
    sim_cpu_yield();
    if (sim_call_fails(SIM_SHARED_SHOW)) return false;
    set_shown(address, bytes, shared->base + offset);
    sim_cpu_yield();
    return true;
}
bool platform_shared_hide(void *address, size_t bytes) {
    check_offered("platform_shared_hide");
    sim_cpu_yield();
    set_shown(address, bytes, NULL);
    return true;
}
bool platform_shared_populate(const struct platform_shared *shared, size_t offset, size_t bytes) {
    check_offered("platform_shared_populate");
    return platform_populate(shared->base + offset, bytes);
}
bool platform_shared_discard(const struct platform_shared *shared, size_t offset, size_t bytes) {
    check_offered("platform_shared_discard");
    memset(shared->base + offset, 0, bytes);
    return true;
}
bool platform_bind_node(void *address, size_t bytes, unsigned node) {
    (void)address;
    (void)bytes;
    return node == 0; /* a machine of one node */
}
