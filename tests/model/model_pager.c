/*
 * model_pager.c - paged blocks against a byte model: a pager on simulated paged memory and a simulated file, with its two threads interrupted at
 * random.
 *
 * After every operation: what the program reads is what it wrote; no more pages are in memory than the limit allows, nor dirty, unless the file has
 * refused something; after a sync that succeeds the disk has what the block has; after the process, or the machine, has ended, each page of the file
 * is whole, and what it was at some time since the last sync that succeeded. The file fails on demand, is full, and each of the handler's answers is
 * given; what failed to be read can be had again later, and nothing that was written to the block is ever lost.
 *
 * The stage: pages, limits, read-ahead, policy, interruptions. An operation: what (byte 0), where (1, 2), how much (3), and more.
 */
#include "model.h"

#include "page/pager.h"

#define PAGE_BYTES ((size_t)4 * KIB)
#define PAGES_MAX 160
#define HISTORY 6 /* contents of a page since the last sync; when there are more, a sync is made first */
#define FILE_NAME "paged"
#define MS UINT64_C(1000000)

static struct pager *pager;
static struct model *model;
static struct pager_config config;
static uint32_t pages;
static uint64_t block_bytes;
static unsigned char block[PAGES_MAX * PAGE_BYTES];
static struct {
    unsigned char contents[HISTORY][PAGE_BYTES];
    unsigned count;      /* of contents; the last are those of now */
    bool perhaps_zeros;  /* the handler said that a read that failed reads as zeros, which lasts until the page leaves */
    bool perhaps_failed; /* the handler gave up */
} history[PAGES_MAX];
static enum pager_decision answers[2]; /* to what is wrong with reads, writes */
static unsigned retries;               /* before those */
static bool troubled;                  /* something has failed, and limits may be exceeded, since all was well */
static bool gave_up, all_dirty;        /* all_dirty: zeros in place of what can't be read would be written */

/* ------------------------------------------------------------------ what the program brings along */

static enum pager_decision decide(const struct pager_trouble *trouble, void *argument) {
    MODEL_EXPECT(model, argument == &retries && sim_locks_held() == 0, "the handler is called with %u locks held", sim_locks_held());
    MODEL_EXPECT(model, trouble->bytes != 0 && trouble->offset % PAGE_BYTES == 0 && trouble->offset + trouble->bytes <= block_bytes,
                 "the handler is told of %zu bytes at %llu", trouble->bytes, (unsigned long long)trouble->offset);
    troubled = true;
    if (retries != 0) {
        retries--;
        return PAGER_RETRY;
    }
    enum pager_decision answer = answers[trouble->write];
    uint64_t page = trouble->offset / PAGE_BYTES;
    if (!trouble->write && page < pages) {
        history[page].perhaps_zeros |= answer == PAGER_GO_ON;
        history[page].perhaps_failed |= answer == PAGER_GIVE_UP;
    }
    gave_up |= answer == PAGER_GIVE_UP;
    return answer;
}

/* Last in, first out, and pages that can't leave now and then: the worst there is, but legal. */
static uint32_t stack[PAGES_MAX], stacked;
static void enter(uint64_t page, void *argument) {
    MODEL_EXPECT(model, argument == stack && page < pages && stacked < PAGES_MAX, "page %llu enters", (unsigned long long)page);
    for (uint32_t i = 0; i < stacked; i++) MODEL_EXPECT(model, stack[i] != page, "page %llu enters twice", (unsigned long long)page);
    if (!model->failed) stack[stacked++] = (uint32_t)page;
}
static void leave(uint64_t page, void *argument) {
    uint32_t at = 0;
    (void)argument;
    while (at < stacked && stack[at] != page) at++;
    MODEL_EXPECT(model, at < stacked, "page %llu leaves, and is not there", (unsigned long long)page);
    if (at < stacked) memmove(&stack[at], &stack[at + 1], (--stacked - at) * sizeof stack[0]);
}
static enum pager_action next(uint64_t *page, void *argument) {
    static uint32_t turn;
    (void)argument;
    if (stacked == 0) return PAGER_NOTHING;
    *page = stack[turn++ % stacked];
    return turn % 7 == 0 ? PAGER_SAMPLE : PAGER_EVICT;
}

/* ------------------------------------------------------------------ the model */

static size_t page_length(uint32_t page) { return (size_t)min_u64(PAGE_BYTES, block_bytes - page * PAGE_BYTES); }

static void remember(uint32_t page) { memcpy(history[page].contents[history[page].count++], &block[page * PAGE_BYTES], PAGE_BYTES); }

/* From now on only what is now counts. */
static void forget(uint32_t page) {
    history[page].count = 0;
    remember(page);
}

static bool is_known(uint32_t page, const unsigned char *contents) {
    for (unsigned i = 0; i < history[page].count; i++)
        if (memcmp(contents, history[page].contents[i], page_length(page)) == 0) return true;
    return false;
}

static void compare_file(bool durable, bool exactly, uint32_t first, uint32_t end) {
    uint64_t length = 0;
    const unsigned char *text = sim_store_text(FILE_NAME, durable, &length);
    MODEL_EXPECT(model, text != NULL && length >= block_bytes, "the file has %llu bytes", (unsigned long long)length);
    for (uint32_t page = first; page < end && !model->failed; page++) {
        const unsigned char *contents = text + page * PAGE_BYTES;
        if (exactly)
            MODEL_EXPECT(model, memcmp(contents, &block[page * PAGE_BYTES], page_length(page)) == 0, "page %u of the file is not what it was", page);
        else
            MODEL_EXPECT(model, is_known(page, contents), "page %u of the file is what the block never had since the last sync", page);
    }
}

/* ------------------------------------------------------------------ operations */

static void *address_of(uint64_t offset) { return pager->memory.block + offset; }

static void compare_counts(void) {
    struct pager_figures figures;
    pager_figures_get(pager, &figures);
    const char *wrong = pager_check(pager);
    MODEL_EXPECT(model, wrong == NULL, "pager_check: %s", wrong);
    bool at_ease = !troubled && figures.counters.beyond_limit == 0;
    MODEL_EXPECT(model, !at_ease || figures.resident <= config.limit_pages, "%u pages are in memory, of %u", figures.resident, config.limit_pages);
    MODEL_EXPECT(model, !at_ease || figures.dirty <= config.dirty_limit_pages, "%u pages are dirty, of %u", figures.dirty, config.dirty_limit_pages);
    MODEL_EXPECT(model, troubled || (figures.failed == 0 && figures.counters.beyond_limit == 0), "%u pages failed, and nothing has", figures.failed);
    MODEL_EXPECT(model, sim_paged_resident() <= figures.resident, "%llu pages are present, and %u in memory",
                 (unsigned long long)sim_paged_resident(), figures.resident);
    MODEL_EXPECT(model, sim_locks_held() == 0, "a lock is still held");
}

/* False: SIGBUS. What the page reads as goes to `seen`. */
static bool look_at_page(uint32_t page, unsigned char *seen) {
    static const unsigned char zeros[PAGE_BYTES];
    const unsigned char *wanted = &block[page * PAGE_BYTES];
    if (!sim_paged_read(address_of(page * PAGE_BYTES), seen, PAGE_BYTES)) {
        MODEL_EXPECT(model, history[page].perhaps_failed || gave_up, "page %u raises SIGBUS, and nobody has given up", page);
        return false;
    }
    bool zero = history[page].perhaps_zeros && memcmp(seen, zeros, PAGE_BYTES) == 0;
    MODEL_EXPECT(model, zero || memcmp(seen, wanted, page_length(page)) == 0, "page %u is not what was written to it", page);
    return true;
}

static void all_is_well(void) {
    sim_fail_call(0, 0);
    sim_store_set_room(UINT64_MAX);
    sim_clock_advance(200 * MS); /* writes were refused until then */
}

/* Where a read failed that the handler wanted as zeros, the page may be written to on top of these. */
static void adopt_page(uint32_t page, size_t from, size_t length, uint8_t value) {
    unsigned char seen[PAGE_BYTES], other[PAGE_BYTES] = {0}, *is = &block[page * PAGE_BYTES];
    all_is_well();
    if (!sim_paged_read(address_of(page * PAGE_BYTES), seen, PAGE_BYTES)) {
        model_fail(model, "page %u can't be read after it was written to", page);
        return;
    }
    memset(other + from, value, length);
    bool as_zeros = memcmp(seen, other, PAGE_BYTES) == 0;
    MODEL_EXPECT(model, as_zeros || memcmp(seen, is, page_length(page)) == 0, "page %u is not what was written to it", page);
    if (as_zeros) memcpy(is, other, PAGE_BYTES);
    history[page].perhaps_zeros = false;
}

/* One page of a range that the program reads or writes. False: SIGBUS. */
static bool use_page(uint32_t page, size_t from, size_t length, bool write, uint8_t value) {
    unsigned char seen[PAGE_BYTES], values[PAGE_BYTES];
    if (!look_at_page(page, seen)) return false;
    if (!write || model->failed) return true;
    memset(values, value, length);
    if (!sim_paged_write(address_of(page * PAGE_BYTES + from), values, length)) {
        MODEL_EXPECT(model, history[page].perhaps_failed || gave_up, "page %u raises SIGBUS, and nobody has given up", page);
        return false;
    }
    memset(&block[page * PAGE_BYTES + from], value, length);
    if (history[page].perhaps_zeros) adopt_page(page, from, length, value);
    remember(page);
    return true;
}

static bool sync_range(uint32_t first, uint32_t end) {
    uint64_t from = first * PAGE_BYTES, to = min_u64(end * PAGE_BYTES, block_bytes);
    int error = pager_ask(pager, PAGER_WISH_SYNC, from, to - from);
    model_trace(model, "sync pages %u to %u: %d", first, end, error);
    MODEL_EXPECT(model, error == 0 || troubled || sim_failures() != 0, "sync fails (%d), and nothing has", error);
    if (error != 0) {
        troubled = true;
        return false;
    }
    compare_file(true, true, first, end);
    for (uint32_t page = first; page < end; page++) forget(page);
    return true;
}

/* The room for contents of a page is kept by a sync, which must succeed then. */
static void make_history(void) {
    all_is_well();
    MODEL_EXPECT(model, sync_range(0, pages), "a sync fails where nothing can");
}

static void step_use(const struct model_record *record) {
    bool write = record->byte[0] % 2 != 0;
    uint64_t at = (model_bits(record, 1, 2) * 97) % block_bytes,
             length = 1 + model_bits(record, 3, 2) % (record->byte[5] % 8 == 0 ? 12 * PAGE_BYTES : 200);
    uint64_t end = min_u64(at + length, block_bytes);
    for (uint32_t page = (uint32_t)(at / PAGE_BYTES); write && page * PAGE_BYTES < end; page++)
        if (history[page].count == HISTORY) make_history();
    model_trace(model, "%s %llu bytes at %llu", write ? "write" : "read", (unsigned long long)(end - at), (unsigned long long)at);
    while (at < end && !model->failed) {
        uint32_t page = (uint32_t)(at / PAGE_BYTES);
        size_t part = (size_t)min_u64(end - at, (page + 1) * PAGE_BYTES - at);
        if (!use_page(page, (size_t)(at % PAGE_BYTES), part, write, record->byte[6])) return;
        at += part;
    }
}

static void step_call(const struct model_record *record) {
    uint32_t first = record->byte[1] % pages, end = first + 1 + record->byte[2] % (pages - first);
    uint64_t from = first * PAGE_BYTES, to = min_u64(end * PAGE_BYTES, block_bytes);
    switch (record->byte[3] % 4) {
    case 0: (void)sync_range(0, pages); break;
    case 1: (void)sync_range(first, end); break;
    case 2:
        model_trace(model, "will need pages %u to %u", first, end);
        pager_will_need(pager, from, to - from);
        break;
    default: {
        int error = pager_ask(pager, PAGER_WISH_EVICT, from, to - from);
        model_trace(model, "pages %u to %u not needed: %d", first, end, error);
        MODEL_EXPECT(model, error == 0 || troubled || sim_failures() != 0, "eviction fails (%d), and nothing has", error);
        for (uint32_t page = first; page < end && error == 0; page++) {
            MODEL_EXPECT(model, !sim_paged_in_memory(address_of(page * PAGE_BYTES)), "page %u is in memory still", page);
            history[page].perhaps_zeros = false;
        }
        troubled |= error != 0;
    }
    }
}

/* What shall be wrong with the file, and what the handler says. */
static void step_trouble(const struct model_record *record) {
    static const uint64_t calls[] = {UINT64_C(1) << SIM_STORE_READ,
                                     UINT64_C(1) << SIM_STORE_WRITE,
                                     UINT64_C(1) << SIM_STORE_SYNC,
                                     UINT64_C(1) << SIM_PAGED_MAP,
                                     UINT64_C(1) << SIM_PAGED_PROTECT,
                                     UINT64_C(1) << SIM_PAGED_BREAK | UINT64_C(1) << SIM_PAGED_MEND,
                                     UINT64_C(1) << SIM_STORE_READ | UINT64_C(1) << SIM_STORE_WRITE,
                                     UINT64_C(1) << SIM_STORE_BEGIN};
    unsigned which = record->byte[1] % (ARRAY_LENGTH(calls) + 2);
    answers[0] = (enum pager_decision)(record->byte[2] % 2 == 0 || all_dirty ? PAGER_GIVE_UP : PAGER_GO_ON);
    answers[1] = (enum pager_decision)(record->byte[2] / 2 % 2 == 0 ? PAGER_GIVE_UP : PAGER_GO_ON);
    retries = record->byte[3] % 4;
    troubled = true;
    if (which < ARRAY_LENGTH(calls)) {
        sim_fail_only(calls[which]);
        sim_fail_call(1 + record->byte[4] % 8, 1 + record->byte[5] % 4);
    } else if (which == ARRAY_LENGTH(calls)) {
        sim_store_set_room(record->byte[4] % pages * PAGE_BYTES);
    }
    model_trace(model, "trouble %u, answers %d and %d after %u retries", which, (int)answers[0], (int)answers[1], retries);
}

/* All is well again: each page can be had, and all that was written is there. */
static void recover(void) {
    all_is_well();
    int error = pager_ask(pager, PAGER_WISH_EVICT, 0, block_bytes);
    model_trace(model, "all is well: %d", error);
    MODEL_EXPECT(model, error == 0, "what is in memory can't be written (%d), and nothing is wrong", error);
    for (uint32_t page = 0; page < pages; page++) history[page].perhaps_zeros = history[page].perhaps_failed = false;
    gave_up = false;
    struct pager_figures figures;
    pager_figures_get(pager, &figures);
    MODEL_EXPECT(model, figures.failed == 0 && figures.resident == 0 && figures.dirty == 0, "%u failed, %u in memory, %u dirty after all left",
                 figures.failed, figures.resident, figures.dirty);
    for (uint32_t page = 0; page < pages && !model->failed; page++)
        MODEL_EXPECT(model, use_page(page, 0, 0, false, 0), "page %u can't be had, and nothing is wrong", page);
    (void)sync_range(0, pages);
    if (figures.counters.beyond_limit == 0) troubled = false;
}

static void open_pager(void) {
    int error = 0;
    stacked = 0;
    enum pager_status status = pager_open(&config, &pager, &error);
    MODEL_EXPECT(model, status == PAGER_OK, "open: %d, error %d", (int)status, error);
}

/* The process, or the machine, ends: what the file has then is the block from now on. */
static void step_end(const struct model_record *record) {
    bool power = record->byte[1] % 2 != 0;
    model_trace(model, "the %s ends", power ? "machine" : "process");
    sim_fail_call(0, 0);
    sim_store_set_room(UINT64_MAX);
    pager_close(pager);
    if (power) sim_store_lose_power(FILE_NAME, model_bits(record, 2, 4));
    compare_file(false, false, 0, pages);
    memcpy(block, sim_store_text(FILE_NAME, false, NULL), block_bytes);
    for (uint32_t page = 0; page < pages; page++) {
        forget(page);
        history[page].perhaps_zeros = history[page].perhaps_failed = false;
    }
    troubled = gave_up = false;
    open_pager();
    /* What the machine has left on the disk is not all there in this model: a sync makes it so. */
    if (!model->failed) (void)sync_range(0, pages);
}

/* ------------------------------------------------------------------ the run */

static void begin(struct model *one, const struct model_record *stage) {
    model = one;
    sim_reset(NULL);
    all_dirty = stage->byte[5] % 4 == 1;
    sim_paged_offer(stage->byte[5] % 8 == 0 ? PAGER_LIMIT_MIN + stage->byte[4] % 8u : UINT32_MAX, !all_dirty);
    if (stage->byte[6] != 0) sim_preempt_random(stage->byte[6], 20 + stage->byte[7]);
    pages = 1 + stage->byte[0] % PAGES_MAX;
    block_bytes = pages * PAGE_BYTES - (stage->byte[1] % 4 == 0 ? stage->byte[1] * 16u % PAGE_BYTES : 0);
    uint32_t limit = PAGER_LIMIT_MIN + stage->byte[2] % 32;
    config = (struct pager_config){.path = FILE_NAME,
                                   .bytes = block_bytes,
                                   .limit_pages = limit,
                                   .dirty_limit_pages = 1 + stage->byte[3] % limit,
                                   .window_pages = stage->byte[4] % (limit / 4 + 1),
                                   .trouble = decide,
                                   .trouble_argument = &retries};
    if (stage->byte[5] % 3 == 2) config.policy = (struct pager_policy){.enter = enter, .leave = leave, .next = next, .argument = stack};
    config.wants_ring = stage->byte[5] / 16 % 3 != 0;
    memset(block, 0, sizeof block);
    memset(answers, 0, sizeof answers);
    retries = 0;
    troubled = gave_up = false;
    for (uint32_t page = 0; page < pages; page++) {
        history[page].perhaps_zeros = history[page].perhaps_failed = false;
        forget(page);
    }
    model_trace(model, "%u pages, %llu bytes, limits %u and %u, %u ahead", pages, (unsigned long long)block_bytes, limit, config.dirty_limit_pages,
                config.window_pages);
    open_pager();
}

static void step(struct model *one, const struct model_record *record) {
    model = one;
    switch (record->byte[0]) {
    case 0: return;
    case 1 ... 180: step_use(record); break;
    case 181 ... 215: step_call(record); break;
    case 216 ... 225: (void)sim_run_threads_for(record->byte[1] * MS); break;
    case 226 ... 240: step_trouble(record); break;
    case 241 ... 250: recover(); break;
    default: step_end(record); break;
    }
    if (!model->failed && (!model->long_run || model->operation % 64 == 0)) compare_counts();
}

static void end(struct model *one) {
    model = one;
    recover();
    if (model->failed) return;
    compare_counts();
    pager_close(pager);
    compare_file(true, true, 0, pages);
    MODEL_EXPECT(model, sim_reserved_bytes() == 0, "%llu bytes stay reserved", (unsigned long long)sim_reserved_bytes());
    MODEL_EXPECT(model, sim_threads_alive() == 0, "%u threads go on", sim_threads_alive());
}

static const struct model_layer layer = {begin, step, end};
MODEL_EXPORT(pager, &layer);
