/*
 * api_pages.c - page blocks under threads: neighbours in one superpage are resized, exchanged, moved, cut, joined and freed by different threads,
 * blocks change hands, signals come in the middle of batches, and threads fork. What a process has freed is not seen by its child in blocks of zeros.
 * Through strata_* only, so that the sanitizers see strata's own code.
 *
 * Every page says what it holds; one more thread takes statistics, hands memory back and verifies the heap. api_pages [ROUNDS]
 */
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>

#include "pages_support.h"
#include "sanitizers.h"

#if UNDER_THREAD_SANITIZER
/* The heap of a child may be large enough, by what others did, for a maintenance thread of its own. */
const char *__tsan_default_options(void);
const char *__tsan_default_options(void) { return "die_after_fork=0"; }
#endif

enum { THREADS = 4, GENERATIONS = 2, OWN = 6, BOXES = 16, BATCH = 16, DEFAULT_ROUNDS = 1200 };

static struct pages *boxes[BOXES]; /* exchanged atomically: whoever takes a block out owns it */
enum state { STARTING, AT_WORK, DONE };
static pthread_t threads[THREADS];
static uint32_t states[THREADS]; /* atomic: enum state */
static unsigned rounds = DEFAULT_ROUNDS;
static uint32_t stop, signals;
static int null_fd;

/* What a handler may look at: a block of this thread that stays as it is. */
static _Thread_local struct pages *calm;
static _Thread_local uint64_t disturbed;

static void on_signal(int number) {
    (void)number;
    if (calm == NULL) return;
    for (size_t at = 0; at < calm->count; at++)
        if (*first_word(calm, at) != calm->number[at]) abort();
    disturbed++;
}

/* Two blocks exchange contents page by page, there and back, and pages are made present and given back on the way: neighbours go by one call. */
static void run_batch(struct pages *a, struct pages *b, uint64_t *random) {
    struct strata_page_op ops[2 * BATCH + 2] = {0};
    size_t count = a->count < b->count ? a->count : b->count, done, op = 0;
    void *fresh = NULL;
    if (count > BATCH) count = BATCH;
    unsigned turns = 1 + next_random(random) % 2;
    for (unsigned turn = 0; turn < turns; turn++)
        for (size_t i = 0; i < count; i++)
            ops[op++] = (struct strata_page_op){
                .operation = STRATA_PAGE_OP_SWAP, .address = a->start + i * page_bytes, .other = b->start + i * page_bytes, .bytes = page_bytes};
    ops[op++] = (struct strata_page_op){.operation = STRATA_PAGE_OP_COMMIT, .address = b->start, .bytes = b->count * page_bytes};
    ops[op++] = (struct strata_page_op){.operation = STRATA_PAGE_OP_ALLOC, .bytes = page_bytes, .flags = STRATA_PAGE_ZEROED};
    EXPECT(strata_page_batch(ops, op, &done) == STRATA_PAGE_OK && done == op);
    fresh = ops[op - 1].address;
    EXPECT(*(uint64_t *)fresh == 0 && strata_page_free(fresh) == STRATA_PAGE_OK);
    if (turns == 2) return; /* there and back */
    for (size_t i = 0; i < count; i++) {
        uint64_t number = a->number[i];
        a->number[i] = b->number[i];
        b->number[i] = number;
    }
}

static void pass_on(struct pages **mine, uint64_t *random) {
    struct pages *other = __atomic_exchange_n(&boxes[next_random(random) % BOXES], *mine, __ATOMIC_ACQ_REL);
    if (other == NULL) {
        other = malloc(sizeof *other);
        EXPECT(other != NULL && make_pages(other, random_count(random), random));
    }
    *mine = other;
    check_pages(other);
}

static void change(struct pages **own, uint64_t *random) {
    struct pages **mine = &own[next_random(random) % OWN], *other = own[next_random(random) % OWN];
    unsigned way = next_random(random) % 8;
    if (way == 6) { /* what is passed on is no longer ours to look at */
        pass_on(mine, random);
        return;
    }
    switch (way) {
    case 0: EXPECT(resize_pages(*mine, random_count(random), random)); break;
    case 1:
    case 2:
        if (*mine != other) exchange_pages(*mine, other, next_random(random) % 2 == 0, random);
        break;
    case 3: release_pages(*mine, random); break;
    case 4: split_and_join_pages(*mine, random); break;
    case 5:
        if (*mine != other) run_batch(*mine, other, random);
        break;
    default:
        free_pages(*mine);
        EXPECT(make_pages(*mine, random_count(random), random));
        break;
    }
    check_pages(*mine);
    check_pages(other);
}

/* A child has a copy of every block, also of those that other threads were in the middle of, and goes on with its own. */
static void fork_once(struct pages **own, uint64_t *random) {
    pid_t child = fork();
    EXPECT(child >= 0);
    if (child == 0) {
        for (unsigned i = 0; i < OWN; i++) check_pages(own[i]);
        for (unsigned i = 0; i < 10; i++) {
            struct pages *one = own[next_random(random) % OWN], *other = own[next_random(random) % OWN];
            EXPECT(resize_pages(one, random_count(random), random));
            if (one != other) exchange_pages(one, other, false, random);
        }
        for (unsigned i = 0; i < OWN; i++) free_pages(own[i]);
        _exit(0);
    }
    int status;
    EXPECT(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void *work(void *argument) {
    unsigned number = (unsigned)(uintptr_t)argument;
    uint64_t random = random_seed(number);
    struct pages *own[OWN], *quiet = malloc(sizeof *quiet);
    EXPECT(quiet != NULL && make_pages(quiet, 20, &random));
    for (size_t at = 0; at < quiet->count; at++) number_page(quiet, at, at + 1);
    for (unsigned i = 0; i < OWN; i++) {
        own[i] = malloc(sizeof *own[i]);
        EXPECT(own[i] != NULL && make_pages(own[i], random_count(&random), &random));
    }
    calm = quiet;
    __atomic_store_n(&states[number % THREADS], AT_WORK, __ATOMIC_RELEASE);
    for (unsigned i = 0; i < rounds; i++) {
        change(own, &random);
        if (i % (rounds / 3 + 1) == rounds / 3) fork_once(own, &random);
    }
    __atomic_store_n(&states[number % THREADS], DONE, __ATOMIC_RELEASE);
    __atomic_add_fetch(&signals, (uint32_t)disturbed, __ATOMIC_RELAXED);
    calm = NULL;
    check_pages(quiet);
    free_pages(quiet);
    free(quiet);
    for (unsigned i = 0; i < OWN; i++) {
        free_pages(own[i]);
        free(own[i]);
    }
    return NULL;
}

static void *observe(void *unused) {
    for (unsigned turn = 0; __atomic_load_n(&stop, __ATOMIC_ACQUIRE) == 0; turn++) {
        if (turn % 16 == 0) {
            (void)strata_release(1 << 20);
            EXPECT(strata_stats_json(null_fd) == 0);
            expect_sound();
        }
        usleep(500);
    }
    return unused;
}

/* From the main thread, which also joins the others: a thread that a signal goes to must not be gone. */
static void disturb_until_done(void) {
    unsigned left = THREADS;
    while (left != 0) {
        left = 0;
        for (unsigned i = 0; i < THREADS; i++) {
            uint32_t state = __atomic_load_n(&states[i], __ATOMIC_ACQUIRE);
            left += state != DONE;
            if (state == AT_WORK) EXPECT(pthread_kill(threads[i], SIGUSR1) == 0);
        }
        usleep(1000);
    }
}

/* ------------------------------------------------------------------ zeros across a fork */

enum { KINDS = 8, EACH = 3, DIRT = 0xa5 };

/* From a page to more than what a superpage holds, runs and blocks with superpages of their own. */
static size_t kind_bytes(unsigned kind) {
    static const size_t bytes[KINDS] = {1, 20 << 10, 300 << 10, 1 << 20, (1 << 20) + 1, 2 << 20, 5 << 20, 9 << 20};
    return (bytes[kind] + page_bytes - 1) / page_bytes * page_bytes;
}

static void leave_dirt(void) {
    void *dirty[KINDS][EACH];
    for (unsigned i = 0; i < KINDS * EACH; i++) {
        EXPECT(strata_page_alloc(kind_bytes(i % KINDS), 0, &dirty[i % KINDS][i / KINDS]) == STRATA_PAGE_OK);
        memset(dirty[i % KINDS][i / KINDS], DIRT, kind_bytes(i % KINDS));
    }
    for (unsigned i = 0; i < KINDS * EACH; i++) EXPECT(strata_page_free(dirty[i % KINDS][i / KINDS]) == STRATA_PAGE_OK);
}

static void expect_zeros(const char *block, size_t from, size_t to) {
    const uint64_t *words = (const uint64_t *)(const void *)block;
    for (size_t i = from / sizeof *words; i < to / sizeof *words; i++) EXPECT(words[i] == 0);
}

/* Every byte of blocks that are new, that have grown, and of a batch. */
static void look_for_dirt(void) {
    struct strata_page_op ops[KINDS] = {0};
    for (unsigned kind = 0; kind < KINDS; kind++)
        ops[kind] = (struct strata_page_op){
            .operation = STRATA_PAGE_OP_ALLOC, .bytes = kind_bytes(kind), .flags = STRATA_PAGE_ZEROED | (kind % 2 == 0 ? STRATA_PAGE_PREFAULT : 0u)};
    EXPECT(strata_page_batch(ops, KINDS, NULL) == STRATA_PAGE_OK);
    for (unsigned i = 0; i < KINDS * EACH; i++) {
        size_t bytes = kind_bytes(i % KINDS), more = 2 * bytes + page_bytes;
        void *block = NULL;
        EXPECT(strata_page_alloc(bytes, STRATA_PAGE_ZEROED, &block) == STRATA_PAGE_OK);
        expect_zeros(block, 0, bytes);
        EXPECT(strata_page_realloc(&block, more, STRATA_PAGE_ZEROED) == STRATA_PAGE_OK);
        expect_zeros(block, 0, more);
        memset(block, DIRT, more);
        EXPECT(strata_page_free(block) == STRATA_PAGE_OK);
    }
    for (unsigned kind = 0; kind < KINDS; kind++) {
        expect_zeros(ops[kind].address, 0, kind_bytes(kind));
        EXPECT(strata_page_free(ops[kind].address) == STRATA_PAGE_OK);
    }
}

/* What `generations` processes have left behind, each being the child of the one before. */
static void look_across_forks(unsigned generations) {
    leave_dirt();
    pid_t child = fork();
    EXPECT(child >= 0);
    if (child == 0) {
        look_for_dirt();
        if (generations > 1) look_across_forks(generations - 1);
        expect_sound();
        _exit(0);
    }
    int status;
    look_for_dirt();
    EXPECT(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(int argc, char **argv) {
    if (argc > 1) rounds = (unsigned)strtoul(argv[1], NULL, 10);
    EXPECT(rounds > 3);
    page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    null_fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    EXPECT(null_fd >= 0);
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    EXPECT(sigaction(SIGUSR1, &action, NULL) == 0);
    look_across_forks(2);
    pthread_t observer;
    EXPECT(pthread_create(&observer, NULL, observe, NULL) == 0);
    for (unsigned generation = 0; generation < GENERATIONS; generation++) {
        for (unsigned i = 0; i < THREADS; i++) states[i] = STARTING;
        for (unsigned i = 0; i < THREADS; i++) EXPECT(pthread_create(&threads[i], NULL, work, (void *)(uintptr_t)(generation * THREADS + i)) == 0);
        disturb_until_done();
        for (unsigned i = 0; i < THREADS; i++) EXPECT(pthread_join(threads[i], NULL) == 0);
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
    EXPECT(pthread_join(observer, NULL) == 0);
    unsigned left = 0;
    for (unsigned i = 0; i < BOXES; i++) {
        if (boxes[i] == NULL) continue;
        free_pages(boxes[i]);
        free(boxes[i]);
        left++;
    }
    EXPECT(left > 0 && signals > 0);
    expect_sound();
    printf("%u signals, %u blocks left over\n", signals, left);
    return 0;
}
