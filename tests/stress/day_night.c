/*
 * day_night.c - the cyclic load of the kmem paper (3.1): huge numbers of small blocks by day, massive amounts of memory in large ones
 * by night. An allocator that can't make pages of small blocks into large ones, and back, grows from phase to phase.
 *
 * day_night CYCLES MIB. Of each phase a few blocks in random places stay through the next one (locks that are held, a cursor of the
 * backup), so that nothing comes free as a whole by accident. Prints the peak of resident memory in each cycle.
 */
#include "stress/support.h"

enum { MAX_CYCLES = 512, KEEP_ONE_IN = 1000, MAX_BLOCKS = 4 << 20 };

struct slot {
    void *block;
    size_t bytes;
};

static struct slot day[MAX_BLOCKS], night[MAX_BLOCKS / 64];

/* Takes blocks up to `total` bytes of sizes low..high. The table keeps its survivors: only empty slots are filled. */
static size_t fill(struct slot *slots, size_t limit, size_t total, size_t low, size_t high, uint64_t *rng) {
    size_t used = 0, i = 0;
    for (; i < limit && used < total; i++) {
        if (slots[i].block == NULL) {
            slots[i].bytes = rng_between(rng, low, high);
            slots[i].block = malloc(slots[i].bytes);
            if (slots[i].block == NULL) fail("malloc gave NULL");
            /* Every page is touched; only the ends are compared later. */
            memset(slots[i].block, (int)(slots[i].bytes & 0xff), slots[i].bytes);
        }
        used += slots[i].bytes;
    }
    return i;
}

static void empty(struct slot *slots, size_t count, size_t keep_one_in, uint64_t *rng) {
    for (size_t i = 0; i < count; i++) {
        const unsigned char *bytes = slots[i].block;
        if (bytes == NULL) continue;
        if (bytes[0] != (slots[i].bytes & 0xff) || bytes[slots[i].bytes - 1] != (slots[i].bytes & 0xff)) fail("a block has changed");
        if (keep_one_in != 0 && rng_next(rng) % keep_one_in == 0) continue;
        free(slots[i].block);
        slots[i].block = NULL;
    }
}

int main(int argc, char **argv) {
    size_t cycles = argument_number(argc, argv, 1, 10), total = argument_number(argc, argv, 2, 128) * MIB;
    REQUIRE(cycles <= MAX_CYCLES);
    uint64_t rng = 31;
    size_t days = 0, nights = 0;
    static size_t peak_kib[MAX_CYCLES];
    for (size_t cycle = 0; cycle < cycles; cycle++) {
        days = fill(day, MAX_BLOCKS, total, 16, 256, &rng);
        empty(night, nights, 0, &rng);
        size_t day_kib = status_kib("RssAnon:");
        empty(day, days, KEEP_ONE_IN, &rng);
        nights = fill(night, MAX_BLOCKS / 64, total, 32 * KIB, 2 * MIB, &rng);
        size_t night_kib = status_kib("RssAnon:");
        peak_kib[cycle] = day_kib > night_kib ? day_kib : night_kib;
        empty(day, days, 0, &rng);
        empty(night, nights, 20, &rng);
        heap_check("at the end of a cycle");
    }
    for (size_t cycle = 0; cycle < cycles; cycle++) printf("%zu\n", peak_kib[cycle]);
    return 0;
}
