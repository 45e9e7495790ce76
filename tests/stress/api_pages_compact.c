/*
 * api_pages_compact.c - superpages for the asking where address space is short and full of small blocks, while other threads write to these, free and
 * allocate them: each superpage that is given has been emptied by moving blocks, and none of these loses a word.
 *
 * A process of its own under RLIMIT_AS, this program with a word. Sanitizers need more address space than any limit leaves: there it runs without
 * one, and superpages are simply there.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pages_support.h"

#define MIB ((size_t)1 << 20)

enum { SLOTS = 1024, BLOCK_BYTES = 64 << 10, WORDS = BLOCK_BYTES / 8, THREADS = 2, WANTED = 8, ROUNDS = HAS_ROOM_FOR_LIMITS ? 6 : 2 };

/* A block of the program's: whoever uses it holds its lock. */
static struct slot {
    pthread_mutex_t lock;
    uint64_t *block;
    uint64_t number; /* of its contents */
} slots[SLOTS];
static atomic_uint moves;
static atomic_bool ending;

static uint64_t word_of(uint64_t number, size_t i) { return (number << 20 | i) * UINT64_C(0x9e3779b97f4a7c15); }

static void write_all(struct slot *slot) {
    slot->number++;
    for (size_t i = 0; i < WORDS; i += 32) slot->block[i] = word_of(slot->number, i);
}

static void check_all(const struct slot *slot) {
    for (size_t i = 0; i < WORDS; i += 32) EXPECT(slot->block[i] == word_of(slot->number, i));
}

static bool move_block(void *from, void *to, size_t bytes, void *argument) {
    struct slot *slot = argument;
    EXPECT(bytes == BLOCK_BYTES);
    if (pthread_mutex_trylock(&slot->lock) != 0) return false; /* its holder may be in strata */
    bool moved = slot->block == from;
    if (moved) {
        if ((slot - slots) % 2 == 0)
            EXPECT(strata_page_move(from, to, bytes) == STRATA_PAGE_OK);
        else
            memcpy(to, from, bytes);
        slot->block = to;
        atomic_fetch_add(&moves, 1);
    }
    pthread_mutex_unlock(&slot->lock);
    return moved;
}

static void make(struct slot *slot) {
    void *block;
    if (strata_page_alloc(BLOCK_BYTES, 0, &block) != STRATA_PAGE_OK) return;
    slot->block = block;
    EXPECT(strata_page_set_move(block, move_block, slot) == STRATA_PAGE_OK);
    write_all(slot);
}

static void end(struct slot *slot) {
    check_all(slot);
    EXPECT(strata_page_free(slot->block) == STRATA_PAGE_OK);
    slot->block = NULL;
}

static void *use_blocks(void *argument) {
    uint64_t random = random_seed((unsigned)(uintptr_t)argument);
    while (!atomic_load(&ending)) {
        struct slot *slot = &slots[next_random(&random) % SLOTS];
        pthread_mutex_lock(&slot->lock);
        if (slot->block != NULL) {
            check_all(slot);
            if (next_random(&random) % 8 == 0) {
                end(slot);
                make(slot);
            } else {
                write_all(slot);
            }
        }
        pthread_mutex_unlock(&slot->lock);
    }
    return NULL;
}

static void run(void) {
    pthread_t threads[THREADS];
    pthread_attr_t attributes;
    EXPECT(pthread_attr_init(&attributes) == 0 && pthread_attr_setstacksize(&attributes, 256 << 10) == 0);
    for (unsigned i = 0; i < SLOTS; i++) pthread_mutex_init(&slots[i].lock, NULL);
    for (unsigned t = 0; t < THREADS; t++) EXPECT(pthread_create(&threads[t], &attributes, use_blocks, (void *)(uintptr_t)(t + 1)) == 0);
    unsigned had = 0;
    for (unsigned round = 0; round < ROUNDS; round++) {
        void *wanted[WANTED] = {NULL};
        for (unsigned i = 0; i < SLOTS; i++) {
            pthread_mutex_lock(&slots[i].lock);
            if (slots[i].block == NULL) make(&slots[i]);
            pthread_mutex_unlock(&slots[i].lock);
        }
        for (unsigned i = 0; i < SLOTS; i++) { /* three of four go, from everywhere */
            pthread_mutex_lock(&slots[i].lock);
            if (slots[i].block != NULL && (i * 7 + round) % 4 != 0) end(&slots[i]);
            pthread_mutex_unlock(&slots[i].lock);
        }
        for (unsigned i = 0; i < WANTED; i++)
            for (unsigned tries = 0; tries < 200 && wanted[i] == NULL; tries++)
                if (strata_page_alloc(2 * MIB, STRATA_PAGE_HUGE, &wanted[i]) == STRATA_PAGE_OK)
                    memset(wanted[i], 0xa5, 2 * MIB);
                else
                    usleep(1000); /* a block that is in use refuses, and its user may wait for this very processor */
        for (unsigned i = 0; i < WANTED; i++) {
            had += wanted[i] != NULL;
            EXPECT(strata_page_free(wanted[i]) == STRATA_PAGE_OK);
        }
        expect_sound();
    }
    atomic_store(&ending, true);
    for (unsigned t = 0; t < THREADS; t++) EXPECT(pthread_join(threads[t], NULL) == 0);
    for (unsigned i = 0; i < SLOTS; i++)
        if (slots[i].block != NULL) end(&slots[i]);
    EXPECT(had == WANTED * ROUNDS);
    if (HAS_ROOM_FOR_LIMITS) EXPECT(atomic_load(&moves) > 0);
    printf("%u superpages, %u blocks moved for them\n", had, atomic_load(&moves));
    expect_sound();
}

int main(int argc, char **argv) {
    (void)argv;
    if (argc > 1 || !HAS_ROOM_FOR_LIMITS) {
        run();
        return 0;
    }
    pid_t child = fork();
    EXPECT(child >= 0);
    if (child == 0) {
        const struct rlimit limit = {64 * MIB, 64 * MIB};
        EXPECT(setenv("STRATA_CONF", "background:off", 1) == 0 && setrlimit(RLIMIT_AS, &limit) == 0);
        execl("/proc/self/exe", "api_pages_compact", "under-the-limit", (char *)NULL);
        _exit(127);
    }
    int status;
    EXPECT(waitpid(child, &status, 0) == child);
    EXPECT(status == 0);
    return 0;
}
