/*
 * resize.c - realloc from every size to every other: the contents stay, whatever lies between: another class, a large block that grows in
 * place, moves by its page tables, or is copied.
 *
 * resize pairs: each pair of sizes around every boundary there may be. resize growth: blocks that grow and shrink step by step beside
 * others that are in their way. resize walk STEPS: many blocks, random sizes. resize turns BYTES [forks|locked]: blocks that grow up to so many
 * bytes in turns, and begin anew; beside children that have the same pages and grow them, too, or with all memory locked, neither of which can move
 * to another address.
 */
#include <sys/mman.h>
#include <sys/wait.h>

#include "stress/support.h"

enum { MAX_SIZES = 200, WHOLE_BYTES = 128 * 1024, SAMPLE_STEP = 4096 };

static uint64_t sample_word(size_t offset, uint64_t seed) { return (offset + 1) * UINT64_C(0x9e3779b97f4a7c15) ^ seed; }

/* Small blocks whole, large ones the first bytes of each page: that is where a wrong page would show. */
static void contents_write(unsigned char *block, size_t bytes, uint64_t seed) {
    size_t step = bytes <= WHOLE_BYTES ? 8 : SAMPLE_STEP;
    for (size_t i = 0; i + 8 <= bytes; i += step) {
        uint64_t word = sample_word(i, seed);
        memcpy(block + i, &word, 8);
    }
    if (bytes > 0) block[bytes - 1] = (unsigned char)(seed ^ bytes);
}

/* `kept` bytes of what was a block of `bytes`. */
static void contents_check(const unsigned char *block, size_t bytes, size_t kept, uint64_t seed, const char *who) {
    size_t step = bytes <= WHOLE_BYTES ? 8 : SAMPLE_STEP;
    for (size_t i = 0; i + 8 <= kept; i += step) {
        uint64_t word = sample_word(i, seed);
        /* The last byte was written over the word that holds it. */
        if (i + 8 >= bytes && i + step >= bytes) break;
        if (memcmp(block + i, &word, 8) != 0) fail("%s: of %zu bytes, %zu kept, offset %zu has changed", who, bytes, kept, i);
    }
    if (kept == bytes && bytes > 0 && block[bytes - 1] != (unsigned char)(seed ^ bytes)) fail("%s: the last of %zu bytes has changed", who, bytes);
}

static size_t sizes_make(size_t *sizes) {
    size_t count = 0;
    for (size_t size = 1; size <= 16 * KIB; size *= 2) {
        if (size > 1) sizes[count++] = size - 1;
        sizes[count++] = size;
        sizes[count++] = size + 1;
        sizes[count++] = size + size / 2;
    }
    static const size_t large[] = {32 * KIB - 1, 32 * KIB,    32 * KIB + 1, 40000,     64 * KIB,     64 * KIB + 1, 100000,     128 * KIB,
                                   200000,       256 * KIB,   300000,       512 * KIB, MIB - 1,      MIB,          MIB + 4097, 2 * MIB - 1,
                                   2 * MIB,      2 * MIB + 1, 3 * MIB,      4 * MIB,   5 * MIB + 77, 12 * MIB};
    for (size_t i = 0; i < sizeof large / sizeof large[0]; i++) sizes[count++] = large[i];
    REQUIRE(count <= MAX_SIZES);
    return count;
}

static void run_pairs(void) {
    static size_t sizes[MAX_SIZES];
    size_t count = sizes_make(sizes);
    for (size_t from = 0; from < count; from++)
        for (size_t to = 0; to < count; to++) {
            uint64_t seed = from * 1000 + to;
            unsigned char *block = malloc(sizes[from]);
            REQUIRE(block != NULL);
            contents_write(block, sizes[from], seed);
            size_t kept = sizes[from] < sizes[to] ? sizes[from] : sizes[to];
            block = realloc(block, sizes[to]);
            REQUIRE(block != NULL);
            contents_check(block, sizes[from], kept, seed, "pair");
            contents_write(block, sizes[to], seed + 1);
            contents_check(block, sizes[to], sizes[to], seed + 1, "pair, after");
            free(block);
        }
}

/* Some blocks grow in turns by a step each and shrink again, so that none can always grow in place. */
static void run_growth(void) {
    enum { BLOCKS = 6, STEPS = 60 };
    unsigned char *blocks[BLOCKS] = {NULL};
    size_t bytes[BLOCKS] = {0};
    for (int step = 0; step < 2 * STEPS; step++)
        for (size_t i = 0; i < BLOCKS; i++) {
            size_t next = step < STEPS ? bytes[i] + bytes[i] / (i + 3) + 1000 * i + 1 : bytes[i] - bytes[i] / (i + 3);
            if (next > 20 * MIB) next = bytes[i] + 4096;
            blocks[i] = realloc(blocks[i], next);
            REQUIRE(blocks[i] != NULL);
            contents_check(blocks[i], bytes[i], bytes[i] < next ? bytes[i] : next, i, "growth");
            bytes[i] = next;
            contents_write(blocks[i], next, i);
        }
    for (size_t i = 0; i < BLOCKS; i++) free(blocks[i]);
}

static void run_walk(size_t steps) {
    enum { BLOCKS = 100 };
    static unsigned char *blocks[BLOCKS];
    static size_t bytes[BLOCKS];
    uint64_t rng = 77;
    for (size_t step = 0; step < steps; step++) {
        size_t i = rng_next(&rng) % BLOCKS;
        uint64_t kind = rng_next(&rng) % 100;
        size_t next = kind < 70 ? rng_between(&rng, 1, 4096) : kind < 95 ? rng_between(&rng, 4097, 300000) : rng_between(&rng, 300001, 5 * MIB);
        contents_check(blocks[i], bytes[i], bytes[i], i, "walk");
        blocks[i] = realloc(blocks[i], next);
        REQUIRE(blocks[i] != NULL);
        contents_check(blocks[i], bytes[i], bytes[i] < next ? bytes[i] : next, i, "walk, moved");
        bytes[i] = next;
        contents_write(blocks[i], next, i);
    }
    for (size_t i = 0; i < BLOCKS; i++) {
        contents_check(blocks[i], bytes[i], bytes[i], i, "walk, end");
        free(blocks[i]);
    }
}

enum { TURNS = 8000, TURN_BLOCKS = 120, TURN_FIRST = 30000 };
static struct turn {
    unsigned char *block;
    size_t bytes;
} turns[TURN_BLOCKS];

static void turn_to(size_t i, size_t next) {
    struct turn *turn = &turns[i];
    turn->block = realloc(turn->block, next);
    REQUIRE(turn->block != NULL);
    contents_check(turn->block, turn->bytes, turn->bytes < next ? turn->bytes : next, i, "turns");
    turn->bytes = next;
    contents_write(turn->block, next, i);
}

static void turn_all_in_a_child(void) {
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        for (size_t i = 0; i < TURN_BLOCKS; i++) turn_to(i, turns[i].bytes + 50000);
        heap_check("in a child");
        _exit(0);
    }
    int status;
    REQUIRE(waitpid(child, &status, 0) == child && status == 0);
}

static void run_turns(size_t most, const char *beside) {
    uint64_t rng = 78;
    if (strcmp(beside, "locked") == 0) REQUIRE(mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT) == 0);
    for (size_t i = 0; i < TURN_BLOCKS; i++) turn_to(i, TURN_FIRST);
    for (unsigned n = 0; n < TURNS; n++) {
        size_t i = rng_next(&rng) % TURN_BLOCKS, next = turns[i].bytes * rng_between(&rng, 5, 9) / 4 + rng_between(&rng, 0, 99);
        if (next > most) {
            free(turns[i].block);
            turns[i] = (struct turn){0};
            next = rng_between(&rng, TURN_FIRST, 50000);
        }
        turn_to(i, next);
        if (strcmp(beside, "forks") == 0 && n % 500 == 0) turn_all_in_a_child();
        if (n % 1000 == 0) heap_check("in the midst of turns");
    }
    for (size_t i = 0; i < TURN_BLOCKS; i++) {
        contents_check(turns[i].block, turns[i].bytes, turns[i].bytes, i, "turns, end");
        free(turns[i].block);
    }
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "pairs";
    if (strcmp(how, "pairs") == 0) run_pairs();
    if (strcmp(how, "growth") == 0) run_growth();
    if (strcmp(how, "walk") == 0) run_walk(argument_number(argc, argv, 2, 50000));
    if (strcmp(how, "turns") == 0) run_turns(argument_number(argc, argv, 2, 900000), argc > 3 ? argv[3] : "");
    heap_check("at the end");
    return 0;
}
