/*
 * sim_paged.c - memory whose pages the process brings itself, by script: nothing stops real code from touching such a page, so that a test says what
 * the program does (sim_paged_read, sim_paged_write), and waits as the program's thread would. Who waits has its access at the moment at which the
 * page comes into reach, as a thread that is woken on another processor may be the first to touch it.
 *
 * What is in reach and what is in memory is kept page by page, and breaches of the contract are fatal: a page that is mapped must be in memory, and
 * one that is dropped out of reach. One block at a time.
 */
#include <string.h>

#include "platform/sim/sim_internal.h"

enum right { RIGHT_NONE, RIGHT_READ, RIGHT_ALL, RIGHT_BROKEN };

/* On the stack of the thread that waits. */
struct toucher {
    struct toucher *next;
    size_t offset, bytes; /* within one page */
    void *to;             /* NULL: it writes, from */
    const void *from;
    bool told, done;
    struct platform_event event;
};

static struct {
    struct platform_paged *paged; /* NULL: there is none */
    uint8_t *rights;              /* of each page */
    uint64_t rights_bytes;
    struct toucher *touchers;
    struct platform_event event; /* of who waits for faults */
    bool rung;
    uint32_t pages_max;
    bool no_protection;
} script;

static void forget(void) {
    script.paged = NULL;
    script.touchers = NULL;
    script.event = (struct platform_event){0};
    script.rung = false;
}

void sim_paged_reset(void) {
    forget();
    script.pages_max = UINT32_MAX;
    script.no_protection = false;
}

void sim_paged_offer(uint32_t pages_max, bool protection) {
    script.pages_max = pages_max;
    script.no_protection = !protection;
}

/* ------------------------------------------------------------------ the program's side */

static size_t offset_of(const void *address) {
    if (script.paged == NULL || (const char *)address < script.paged->block || (const char *)address >= script.paged->block + script.paged->bytes)
        fatal("sim: %p is not in the paged block", address);
    return (size_t)((const char *)address - script.paged->block);
}

static size_t page_of(size_t offset) { return align_down(offset, sim_config.page_bytes); }

bool sim_paged_in_memory(const void *address) {
    return sim_populated_pages(script.paged->own + page_of(offset_of(address)), sim_config.page_bytes) != 0;
}
uint64_t sim_paged_resident(void) { return script.paged == NULL ? 0 : sim_populated_pages(script.paged->own, script.paged->bytes); }

/* Does what the thread wants, if the page lets it. */
static void attempt(struct toucher *toucher) {
    enum right right = (enum right)script.rights[toucher->offset / sim_config.page_bytes];
    if (toucher->to != NULL ? right != RIGHT_READ && right != RIGHT_ALL : right != RIGHT_ALL) return;
    char *data = script.paged->own + toucher->offset;
    if (toucher->to != NULL)
        memcpy(toucher->to, data, toucher->bytes);
    else
        memcpy(data, toucher->from, toucher->bytes);
    toucher->done = true;
}

static bool touch(struct toucher *toucher) {
    if (toucher->bytes == 0 || page_of(toucher->offset + toucher->bytes - 1) != page_of(toucher->offset)) fatal("sim: paged: not within one page");
    for (;;) {
        if (!toucher->done) attempt(toucher);
        if (toucher->done) return true;
        if (script.rights[toucher->offset / sim_config.page_bytes] == RIGHT_BROKEN) return false;
        toucher->told = false;
        toucher->event.word = 0;
        toucher->next = script.touchers;
        script.touchers = toucher;
        script.event.word = 1;
        (void)sim_thread_wait(&toucher->event, UINT64_MAX, false);
    }
}

bool sim_paged_read(const void *address, void *to, size_t bytes) {
    struct toucher toucher = {.offset = offset_of(address), .bytes = bytes, .to = to};
    return touch(&toucher);
}
bool sim_paged_write(void *address, const void *from, size_t bytes) {
    struct toucher toucher = {.offset = offset_of(address), .bytes = bytes, .from = from};
    return touch(&toucher);
}

/* ------------------------------------------------------------------ platform.h */

enum platform_faults_status platform_paged_open(struct platform_paged *paged, size_t bytes, enum platform_paged_way way) {
    (void)way;
    *paged = (struct platform_paged){.bytes = bytes, .faults = PLATFORM_FAULTS_CLOSED, .pages_max = script.pages_max};
    if (sim_call_fails(SIM_PAGED_OPEN)) return PLATFORM_FAULTS_FORBIDDEN;
    if (script.paged != NULL) fatal("sim: platform_paged_open: one block at a time");
    paged->block = platform_reserve(NULL, bytes, sim_config.page_bytes); /* real accesses fault */
    paged->own = paged->block != NULL ? platform_reserve(NULL, bytes, sim_config.page_bytes) : NULL;
    if (paged->own == NULL || !platform_commit(paged->own, bytes)) {
        if (paged->own != NULL) platform_unreserve(paged->own, bytes);
        if (paged->block != NULL) platform_unreserve(paged->block, bytes);
        return PLATFORM_FAULTS_NO_MEMORY;
    }
    if (script.rights_bytes < bytes / sim_config.page_bytes) {
        script.rights_bytes = bytes / sim_config.page_bytes;
        script.rights = sim_table_map(script.rights_bytes);
    }
    memset(script.rights, RIGHT_NONE, bytes / sim_config.page_bytes);
    forget();
    script.paged = paged;
    return PLATFORM_FAULTS_OK;
}

void platform_paged_close(struct platform_paged *paged, bool forked) {
    if (!forked && script.touchers != NULL) fatal("sim: platform_paged_close: somebody waits for a page");
    platform_unreserve(paged->own, paged->bytes);
    platform_unreserve(paged->block, paged->bytes);
    forget();
}

enum platform_faults_status platform_paged_wait(struct platform_paged *paged, struct platform_fault *faults, unsigned count, unsigned *got) {
    for (*got = 0; *got == 0;) {
        for (struct toucher *toucher = script.touchers; toucher != NULL && *got < count; toucher = toucher->next) {
            if (toucher->told) continue;
            toucher->told = true;
            faults[(*got)++] = (struct platform_fault){.page = paged->block + page_of(toucher->offset), .write = toucher->to == NULL};
        }
        if (*got != 0 || script.rung) break;
        (void)sim_thread_wait(&script.event, UINT64_MAX, false);
    }
    return PLATFORM_FAULTS_OK;
}

void platform_paged_ring(struct platform_paged *paged) {
    (void)paged;
    script.rung = true;
    platform_event_wake(&script.event);
}

/* The rights of the pages of a range; fatal where it is none. */
static uint8_t *rights_of(const char *function, const struct platform_paged *paged, size_t offset, size_t bytes) {
    if (paged != script.paged) fatal("sim: %s: not an open block", function);
    if (bytes == 0 || ((offset | bytes) & (sim_config.page_bytes - 1)) != 0 || offset >= paged->bytes || bytes > paged->bytes - offset)
        fatal("sim: %s(%zu, %zu): not whole pages of the block of %zu bytes", function, offset, bytes, paged->bytes);
    return &script.rights[offset / sim_config.page_bytes];
}

void platform_paged_wake(struct platform_paged *paged, size_t offset, size_t bytes) {
    (void)rights_of("platform_paged_wake", paged, offset, bytes);
    for (struct toucher **link = &script.touchers, *toucher; (toucher = *link) != NULL;) {
        if (toucher->offset < offset || toucher->offset - offset >= bytes) {
            link = &toucher->next;
            continue;
        }
        *link = toucher->next;
        attempt(toucher);
        toucher->event.word = 1;
    }
    sim_cpu_yield();
}

enum platform_faults_status platform_paged_map(struct platform_paged *paged, size_t offset, size_t bytes, bool *writable) {
    uint8_t *rights = rights_of("platform_paged_map", paged, offset, bytes);
    if (sim_call_fails(SIM_PAGED_MAP)) return PLATFORM_FAULTS_NO_MEMORY;
    *writable |= script.no_protection;
    for (size_t i = 0; i < bytes / sim_config.page_bytes; i++) {
        if (sim_populated_pages(paged->own + offset + i * sim_config.page_bytes, sim_config.page_bytes) == 0)
            fatal("sim: platform_paged_map(%zu): the page is not in memory", offset);
        rights[i] = *writable ? RIGHT_ALL : RIGHT_READ;
    }
    platform_paged_wake(paged, offset, bytes);
    return PLATFORM_FAULTS_OK;
}

enum platform_faults_status platform_paged_protect(struct platform_paged *paged, size_t offset, size_t bytes) {
    uint8_t *rights = rights_of("platform_paged_protect", paged, offset, bytes);
    if (sim_call_fails(SIM_PAGED_PROTECT)) return PLATFORM_FAULTS_NO_MEMORY;
    for (size_t i = 0; i < bytes / sim_config.page_bytes; i++)
        if (rights[i] == RIGHT_ALL) rights[i] = RIGHT_READ;
    return PLATFORM_FAULTS_OK;
}

void platform_paged_hide(struct platform_paged *paged, size_t offset, size_t bytes) {
    memset(rights_of("platform_paged_hide", paged, offset, bytes), RIGHT_NONE, bytes / sim_config.page_bytes);
}

void platform_paged_drop(struct platform_paged *paged, size_t offset, size_t bytes) {
    const uint8_t *rights = rights_of("platform_paged_drop", paged, offset, bytes);
    for (size_t i = 0; i < bytes / sim_config.page_bytes; i++)
        if (rights[i] == RIGHT_READ || rights[i] == RIGHT_ALL) fatal("sim: platform_paged_drop(%zu): the page is in reach", offset);
    sim_release(paged->own + offset, bytes);
}

static bool set_broken(const char *function, enum sim_call call, struct platform_paged *paged, size_t offset, uint8_t right) {
    uint8_t *rights = rights_of(function, paged, offset, sim_config.page_bytes);
    if (sim_call_fails(call)) return false;
    *rights = right;
    return true;
}

bool platform_paged_break(struct platform_paged *paged, size_t offset) {
    bool ok = set_broken("platform_paged_break", SIM_PAGED_BREAK, paged, offset, RIGHT_BROKEN);
    platform_paged_wake(paged, offset, sim_config.page_bytes);
    return ok;
}

bool platform_paged_mend(struct platform_paged *paged, size_t offset, bool *written) {
    *written = false;
    return set_broken("platform_paged_mend", SIM_PAGED_MEND, paged, offset, RIGHT_NONE);
}

void platform_paged_seal(struct platform_paged *paged) { memset(script.rights, RIGHT_BROKEN, paged->bytes / sim_config.page_bytes); }
