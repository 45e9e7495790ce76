/*
 * grow.c - load: memory that grows by realloc.
 *
 * Two kinds in turn. Vectors: one grows from 16 bytes to 64 MiB, by doubling or by half, every element of the new part written and sampled again at
 * the end; a second, small one grows between its steps, so that neighbours are in the way. Strings: some thousands of them, growing by a few bytes at
 * a time to some hundreds, as readers and formatters do. One thread, no locks.
 */
#include "load.h"

#define VECTOR_MIN_BYTES ((size_t)16)
#define VECTOR_MAX_BYTES (64 * MIB)
#define VECTOR_ROUNDS 16
#define STRINGS 4096
#define STRING_ROUNDS 4000000

struct vector {
    uint64_t *elements;
    size_t length;
};

static void *resized(void *memory, size_t size_bytes, struct tally *tally) {
    void *moved = realloc(memory, size_bytes);
    if (!moved) load_fail("realloc returned NULL");
    tally->operations++;
    return moved;
}

static void vector_grow(struct vector *vector, size_t length, uint64_t tag, struct tally *tally) {
    vector->elements = resized(vector->elements, length * sizeof(uint64_t), tally);
    for (size_t i = vector->length; i < length; i++) vector->elements[i] = tag + i;
    vector->length = length;
}

/* Steps of a prime number of elements meet every position within a page sooner or later, and cost little beside the writing. */
static void vector_end(struct vector *vector, uint64_t tag, struct tally *tally) {
    for (size_t i = 0; i < vector->length; i += 509) {
        if (vector->elements[i] != tag + i) load_fail("realloc lost the contents of a vector");
        tally->checksum += vector->elements[i];
    }
    free(vector->elements);
    *vector = (struct vector){0};
}

static void grow_vectors(uint64_t rounds, struct tally *tally) {
    for (uint64_t round = 0; round < rounds; round++) {
        struct vector big = {0}, small = {0};
        size_t bytes = VECTOR_MIN_BYTES;
        while (bytes <= VECTOR_MAX_BYTES) {
            vector_grow(&big, bytes / sizeof(uint64_t), round, tally);
            vector_grow(&small, small.length + 64, ~round, tally);
            bytes = round & 1 ? bytes + (bytes / 2 + 7) / 8 * 8 : bytes * 2;
        }
        vector_end(&big, round, tally);
        vector_end(&small, ~round, tally);
    }
}

static void grow_strings(uint64_t rounds, struct tally *tally) {
    static struct block strings[STRINGS];
    struct rng rng = rng_seed(3);
    for (uint64_t round = 0; round < rounds; round++) {
        struct block *string = &strings[rng_below(&rng, STRINGS)];
        size_t added_bytes = rng_between(&rng, 8, 40);
        if (string->size_bytes > 1000) {
            block_drop(string, tally);
            *string = (struct block){0};
        }
        const int grown = string->memory != NULL;
        string->memory = resized(string->memory, string->size_bytes + added_bytes, tally);
        if (grown) tally->checksum += block_read(string->memory, string->size_bytes, string->tag); /* as it came along */
        string->size_bytes += added_bytes;
        string->tag = round;
        block_write(string->memory, string->size_bytes, round);
    }
    for (size_t i = 0; i < STRINGS; i++)
        if (strings[i].memory) block_drop(&strings[i], tally);
}

int main(int argc, char **argv) {
    struct load_args args = load_arguments(argc, argv);
    struct tally tally = {0};
    uint64_t start_ns = load_clock_ns();
    int all = !*args.mode;

    if (!all && strcmp(args.mode, "vectors") && strcmp(args.mode, "strings")) load_fail("--mode is vectors or strings");
    args.threads = 1;
    if (all || !strcmp(args.mode, "vectors")) grow_vectors(load_scaled(&args, VECTOR_ROUNDS), &tally);
    if (all || !strcmp(args.mode, "strings")) grow_strings(load_scaled(&args, STRING_ROUNDS), &tally);
    load_report("grow", &args, &tally, load_clock_ns() - start_ns);
    return 0;
}
