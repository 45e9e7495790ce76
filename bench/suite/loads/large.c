/*
 * large.c - load: large blocks, 32 KiB to 32 MiB; --mode buffers: 16 KiB to 512 KiB, as images, messages and files in pieces have them; --mode
 * reserves: 256 KiB to 32 MiB of which little is used, as buffers have that are made for the largest message there could be.
 *
 * Sizes are log-uniform, so small ones are as frequent as large ones. Forty-eight slots are replaced at random. A block is used as buffers are: one
 * byte of every page is written, and every fourth block is filled entirely and read back. One in eight steps resizes a block in its slot. Buffers are
 * more, and are neither filled nor resized. Of a reserve up to a sixty-fourth at its start is used, every doubling of that as often. One thread, no
 * locks.
 */
#include "load.h"

#define SLOTS 48
#define STEPS UINT64_C(1000)
#define LOW_SHIFT 15
#define HIGH_SHIFT 25

#define BUFFERS 100
#define BUFFER_STEPS UINT64_C(60000)
#define BUFFER_LOW_SHIFT 14
#define BUFFER_HIGH_SHIFT 19

#define RESERVES 24
#define SLOTS_MAX BUFFERS
#define RESERVE_STEPS UINT64_C(40000)
#define RESERVE_LOW_SHIFT 18
#define RESERVE_HIGH_SHIFT 25
#define RESERVE_USED_SHIFT 6

static void fill_and_sum(struct block *block, struct tally *tally) {
    unsigned char value = (unsigned char)block->tag;
    memset(block->memory, value, block->size_bytes);
    uint64_t sum = 0;
    const unsigned char *bytes = block->memory;
    for (size_t offset = 0; offset < block->size_bytes; offset += CACHE_LINE_BYTES) sum += bytes[offset];
    if (sum != (uint64_t)value * ((block->size_bytes + CACHE_LINE_BYTES - 1) / CACHE_LINE_BYTES))
        load_fail("a large block does not hold what was written to it");
    tally->checksum += sum;
    block_write(block->memory, block->size_bytes, block->tag);
}

static void resize(struct block *block, size_t size_bytes, struct tally *tally) {
    size_t kept_bytes = block->size_bytes < size_bytes ? block->size_bytes : size_bytes;
    void *moved = realloc(block->memory, size_bytes);
    if (!moved) load_fail("realloc returned NULL");
    const unsigned char *bytes = moved;
    for (size_t offset = TOUCH_STEP_BYTES; offset + 1 < kept_bytes; offset += TOUCH_STEP_BYTES)
        if (bytes[offset] != touch_byte(block->tag, offset)) load_fail("realloc lost the contents of a large block");
    block->memory = moved;
    block->size_bytes = size_bytes;
    block_write(moved, size_bytes, block->tag);
    tally->operations++;
}

static struct block take_buffer(struct rng *rng) { return block_take(rng_doubling(rng, BUFFER_LOW_SHIFT, BUFFER_HIGH_SHIFT), rng_next(rng)); }

static struct block take_reserve(struct rng *rng) {
    size_t size_bytes = rng_doubling(rng, RESERVE_LOW_SHIFT, RESERVE_HIGH_SHIFT),
           used_bytes = rng_doubling(rng, 6, RESERVE_LOW_SHIFT - RESERVE_USED_SHIFT);
    struct block block = {malloc(size_bytes), used_bytes * (size_bytes >> RESERVE_LOW_SHIFT), rng_next(rng)};
    if (!block.memory) load_fail("malloc returned NULL");
    block_write(block.memory, block.size_bytes, block.tag);
    return block;
}

/* Slots are replaced at random, and emptied at the end. */
static void replace_slots(unsigned count, uint64_t steps, struct block (*take)(struct rng *rng), struct rng *rng, struct tally *tally) {
    static struct block slots[SLOTS_MAX];
    for (uint64_t step = 0; step < steps; step++) {
        struct block *slot = &slots[rng_below(rng, count)];
        if (slot->memory) block_drop(slot, tally);
        *slot = take(rng);
    }
    for (unsigned i = 0; i < count; i++)
        if (slots[i].memory) block_drop(&slots[i], tally);
}

int main(int argc, char **argv) {
    static struct block slots[SLOTS];
    struct load_args args = load_arguments(argc, argv);
    struct tally tally = {0};
    struct rng rng = rng_seed(31);
    uint64_t steps = load_scaled(&args, STEPS);
    uint64_t start_ns = load_clock_ns();

    args.threads = 1;
    if (!strcmp(args.mode, "buffers")) {
        replace_slots(BUFFERS, load_scaled(&args, BUFFER_STEPS), take_buffer, &rng, &tally);
        load_report("buffers", &args, &tally, load_clock_ns() - start_ns);
        return 0;
    }
    if (!strcmp(args.mode, "reserves")) {
        replace_slots(RESERVES, load_scaled(&args, RESERVE_STEPS), take_reserve, &rng, &tally);
        load_report("reserves", &args, &tally, load_clock_ns() - start_ns);
        return 0;
    }
    if (*args.mode) load_fail("--mode is buffers, reserves or absent");
    for (uint64_t step = 0; step < steps; step++) {
        struct block *slot = &slots[rng_below(&rng, SLOTS)];
        size_t size_bytes = rng_doubling(&rng, LOW_SHIFT, HIGH_SHIFT);
        if (slot->memory && step % 8 == 7) {
            resize(slot, size_bytes, &tally);
            continue;
        }
        if (slot->memory) block_drop(slot, &tally);
        *slot = block_take(size_bytes, rng_next(&rng));
        if (step % 4 == 0) fill_and_sum(slot, &tally);
    }
    for (unsigned i = 0; i < SLOTS; i++)
        if (slots[i].memory) block_drop(&slots[i], &tally);
    load_report("large", &args, &tally, load_clock_ns() - start_ns);
    return 0;
}
