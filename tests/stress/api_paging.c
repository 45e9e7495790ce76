/*
 * api_paging.c - paged blocks under load: random writes, reads, syncs and advice from several threads at once, in memory a sixteenth of the block,
 * against a model in ordinary memory; with the clock, with a policy of the program's, with the least limits there are, and by signals in place of
 * userfaultfd.
 *
 * Protects: no write is ever lost or seen elsewhere, on the block or in the file; limits hold at every moment; threads that meet the same page all go
 * on; invariants hold afterwards. api_paging [ROUNDS] makes so many rounds a thread. The seed is printed where something is wrong.
 */
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <strata/paging.h>

#include "concurrency/concurrency.h"

enum { THREADS = 4, PAGES = 1024, LIMIT = 64, DEFAULT_ROUNDS = 1500 };

static size_t page_bytes;
static unsigned rounds = DEFAULT_ROUNDS, flags;
static char path[64];

/* ------------------------------------------------------------------ a policy: first in, first out */

static struct {
    uint64_t queue[4 * PAGES];
    size_t first, count, calls;
    bool resident[PAGES];
} fifo;

static void fifo_reset(void) { memset(&fifo, 0, sizeof fifo); }

static void fifo_enter(uint64_t page, void *argument) {
    EXPECT(argument == &fifo && page < PAGES && !fifo.resident[page]);
    fifo.resident[page] = true;
    fifo.queue[(fifo.first + fifo.count++) % (4 * PAGES)] = page;
    EXPECT(fifo.count <= 4 * PAGES);
}
static void fifo_leave(uint64_t page, void *argument) {
    EXPECT(argument == &fifo && fifo.resident[page]);
    fifo.resident[page] = false;
}
/* What can't leave goes to the end. */
static enum strata_paging_action fifo_next(uint64_t *page, void *argument) {
    EXPECT(argument == &fifo);
    __atomic_fetch_add(&fifo.calls, 1, __ATOMIC_RELAXED); /* read while read-ahead goes on */
    while (fifo.count != 0) {
        *page = fifo.queue[fifo.first];
        fifo.first = (fifo.first + 1) % (4 * PAGES);
        if (!fifo.resident[*page]) {
            fifo.count--;
            continue;
        }
        fifo.queue[(fifo.first + fifo.count - 1) % (4 * PAGES)] = *page;
        return STRATA_PAGING_EVICT;
    }
    return STRATA_PAGING_NOTHING;
}

/* ------------------------------------------------------------------ the threads */

/* Every thread owns one word of each page, so that all meet on the same pages. */
struct worker {
    struct strata_paging *paging;
    unsigned number;
    uint64_t seed;
    uint32_t *model; /* of its word in each page */
};

static uint32_t *word_of(struct strata_paging *paging, unsigned page, unsigned owner) {
    return (uint32_t *)(void *)((char *)strata_paging_address(paging) + page * page_bytes + owner * 512);
}

static void expect_word(const struct worker *worker, unsigned page) {
    uint32_t is = *word_of(worker->paging, page, worker->number);
    if (is == worker->model[page]) return;
    fprintf(stderr, "seed %u: page %u of thread %u is %u, not %u\n", worker->number, page, worker->number, is, worker->model[page]);
    abort();
}

static void some_call(struct worker *worker, unsigned page, unsigned kind) {
    char *address = (char *)strata_paging_address(worker->paging) + page * page_bytes;
    size_t bytes = (page % 16 + 1) * page_bytes;
    if (bytes > (PAGES - page) * page_bytes) bytes = page_bytes;
    if (kind == 0)
        EXPECT(strata_paging_sync(worker->paging, address, bytes) == STRATA_PAGING_OK);
    else if (kind == 1)
        EXPECT(strata_paging_advise(worker->paging, address, bytes, STRATA_PAGING_WILL_NEED) == STRATA_PAGING_OK);
    else if (kind == 2)
        EXPECT(strata_paging_advise(worker->paging, address, bytes, STRATA_PAGING_DONT_NEED) == STRATA_PAGING_OK);
    struct strata_paging_stats stats;
    EXPECT(strata_paging_stats_get(worker->paging, &stats) == STRATA_PAGING_OK);
    EXPECT(stats.resident <= stats.resident_limit && stats.dirty <= stats.dirty_limit);
    EXPECT(stats.beyond_limit == 0 && stats.failed == 0);
}

static void *work(void *argument) {
    struct worker *worker = argument;
    for (unsigned i = 0; i < rounds; i++) {
        uint64_t random = next_random(&worker->seed);
        /* A few pages are everybody's favourites; now and then a sequence. */
        unsigned page = (unsigned)((random >> 8) % (random & 1 ? PAGES : 16)), kind = (unsigned)(random >> 40) % 64;
        unsigned count = kind == 63 ? 40 : 1;
        for (unsigned end = page + count; page < end && page < PAGES; page++) {
            expect_word(worker, page);
            if ((random >> 50) % 2 == 0) continue;
            *word_of(worker->paging, page, worker->number) = ++worker->model[page];
        }
        if (kind < 4) some_call(worker, page % PAGES, kind);
    }
    return NULL;
}

/* The file, read by the ordinary way. */
static void expect_file(struct worker *workers) {
    int file = open(path, O_RDONLY | O_CLOEXEC);
    char *page = malloc(page_bytes);
    EXPECT(file >= 0 && page != NULL);
    for (unsigned i = 0; i < PAGES; i++) {
        EXPECT(pread(file, page, page_bytes, (off_t)(i * page_bytes)) == (ssize_t)page_bytes);
        for (unsigned t = 0; t < THREADS; t++) EXPECT(memcmp(page + (size_t)t * 512, &workers[t].model[i], sizeof(uint32_t)) == 0);
    }
    free(page);
    close(file);
}

static struct strata_paging *open_paging(size_t limit_pages, size_t dirty_pages, const struct strata_paging_policy *policy) {
    struct strata_paging *paging = NULL;
    struct strata_paging_config config = {.path = path,
                                          .flags = flags,
                                          .bytes = PAGES * page_bytes,
                                          .resident_limit_bytes = limit_pages * page_bytes,
                                          .dirty_limit_bytes = dirty_pages * page_bytes,
                                          .policy = policy};
    fifo_reset();
    enum strata_paging_status status = strata_paging_open(&config, &paging);
    if (status != STRATA_PAGING_OK) fprintf(stderr, "api_paging: %s\n", strata_paging_status_text(status));
    EXPECT(status == STRATA_PAGING_OK);
    return paging;
}

static void run(size_t limit_pages, size_t dirty_pages, const struct strata_paging_policy *policy) {
    static uint32_t models[THREADS][PAGES];
    struct worker workers[THREADS];
    pthread_t threads[THREADS];
    memset(models, 0, sizeof models);
    unlink(path);
    struct strata_paging *paging = open_paging(limit_pages, dirty_pages, policy);
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.paging = paging, .number = i, .seed = random_seed(i), .model = models[i]};
        EXPECT(pthread_create(&threads[i], NULL, work, &workers[i]) == 0);
    }
    for (unsigned i = 0; i < THREADS; i++) EXPECT(pthread_join(threads[i], NULL) == 0);
    struct strata_paging_stats stats;
    EXPECT(strata_paging_stats_get(paging, &stats) == STRATA_PAGING_OK);
    EXPECT(policy == NULL ? stats.samples > 0 || limit_pages > LIMIT : __atomic_load_n(&fifo.calls, __ATOMIC_RELAXED) > 0 && stats.samples == 0);
    EXPECT(stats.by_signals == ((flags & STRATA_PAGING_BY_SIGNALS) != 0));
    EXPECT(stats.evictions > 0 && stats.writes > 0 && stats.reads > 0 && stats.read_ahead > 0);
    EXPECT(strata_paging_sync(paging, NULL, 0) == STRATA_PAGING_OK);
    expect_file(workers);
    EXPECT(strata_paging_check(paging) == NULL);
    EXPECT(strata_paging_close(paging, STRATA_PAGING_DISCARD) == STRATA_PAGING_OK);

    /* All of it once more, from the file. */
    paging = open_paging(limit_pages, dirty_pages, policy);
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i].paging = paging;
        for (unsigned page = 0; page < PAGES; page++) expect_word(&workers[i], page);
    }
    EXPECT(strata_paging_check(paging) == NULL);
    EXPECT(strata_paging_close(paging, STRATA_PAGING_SAVE) == STRATA_PAGING_OK);
}

int main(int argc, char **argv) {
    page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    snprintf(path, sizeof path, "/tmp/api_paging.%d", (int)getpid());
    if (argc > 1) rounds = (unsigned)strtoul(argv[1], NULL, 10);
    run(LIMIT, 0, NULL);
    run(STRATA_PAGING_PAGES_MIN, 1, NULL);
    run(PAGES / 2, 3, NULL);
    const struct strata_paging_policy policy = {.enter = fifo_enter, .leave = fifo_leave, .next = fifo_next, .argument = &fifo};
    run(LIMIT, 0, &policy);
    flags = STRATA_PAGING_BY_SIGNALS;
    run(LIMIT, 0, NULL);
    run(STRATA_PAGING_PAGES_MIN, 1, NULL);
    flags = STRATA_PAGING_NO_IO_URING;
    run(LIMIT, 0, &policy);
    unlink(path);
    return 0;
}
