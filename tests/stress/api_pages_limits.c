/*
 * api_pages_limits.c - page blocks where something ends: address space (RLIMIT_AS of 64 MiB), memory (a limit of the heap) in the middle of a batch,
 * the mappings of the process. What could not be done is said exactly, and every page keeps its contents.
 *
 * Each case is a process of its own, this program with the name of the case, so that its heap begins under the limit. Sanitizers need more
 * address space than any limit leaves; there that case is left out.
 */
#include <sys/resource.h>

#include "own_process.h"
#include "pages_support.h"

#define MIB ((size_t)1 << 20)

enum { BLOCKS = 24, BATCH = 40, STEPS = 600 };

static struct pages blocks[BLOCKS];

/* Random steps that may fail for want of memory, but for nothing else; returns how many did. */
static unsigned wander(uint64_t random, size_t most_pages) {
    unsigned refused = 0;
    for (unsigned step = 0; step < STEPS; step++) {
        struct pages *one = &blocks[next_random(&random) % BLOCKS], *other = &blocks[next_random(&random) % BLOCKS];
        size_t count = 1 + next_random(&random) % most_pages;
        if (one->start == NULL) {
            refused += !make_pages(one, count, &random);
            continue;
        }
        switch (next_random(&random) % 6) {
        case 0: free_pages(one); continue;
        case 1: refused += !resize_pages(one, count, &random); break;
        case 2: release_pages(one, &random); break;
        case 3: split_and_join_pages(one, &random); break;
        default:
            if (one != other && other->start != NULL) exchange_pages(one, other, next_random(&random) % 3 == 0, &random);
            break;
        }
        for (unsigned i = 0; i < BLOCKS; i++) check_pages(&blocks[i]);
    }
    return refused;
}

static void end_all(void) {
    for (unsigned i = 0; i < BLOCKS; i++) free_pages(&blocks[i]);
    expect_sound();
}

/* Allocations of 1 MiB, with exchanges in between, until one fails: what was done stays done, to the page. */
static void run_batch_to_its_end(void) {
    struct strata_page_op ops[2 * BATCH] = {0};
    uint64_t random = random_seed(1);
    size_t done = 0, whole = 16;
    EXPECT(make_pages(&blocks[0], whole, &random) && make_pages(&blocks[1], whole, &random));
    for (unsigned i = 0; i < BATCH; i++) {
        ops[2 * i] = (struct strata_page_op){.operation = STRATA_PAGE_OP_SWAP,
                                             .address = blocks[0].start + i % whole * page_bytes,
                                             .other = blocks[1].start + i % whole * page_bytes,
                                             .bytes = page_bytes};
        ops[2 * i + 1] = (struct strata_page_op){.operation = STRATA_PAGE_OP_ALLOC, .bytes = 4 * MIB, .flags = STRATA_PAGE_ZEROED};
    }
    EXPECT(strata_page_batch(ops, 2 * (size_t)BATCH, &done) == STRATA_PAGE_NO_MEMORY);
    EXPECT(done > 3 && done < 2 * (size_t)BATCH && done % 2 == 1); /* an allocation is what failed */
    for (size_t i = 0; i < 2 * (size_t)BATCH; i++)
        EXPECT(ops[i].status == (i < done ? STRATA_PAGE_OK : i == done ? STRATA_PAGE_NO_MEMORY : STRATA_PAGE_NOT_DONE));
    for (size_t i = 0; i < done; i += 2) {
        size_t at = i / 2 % whole;
        uint64_t number = blocks[0].number[at];
        blocks[0].number[at] = blocks[1].number[at];
        blocks[1].number[at] = number;
    }
    for (unsigned i = 0; i < 2; i++) {
        check_pages(&blocks[i]);
        check_zeros(&blocks[i], 0, blocks[i].count);
    }
    EXPECT(ops[done].address == NULL);
    for (size_t i = 1; i < done; i += 2) {
        EXPECT(*(char *)ops[i].address == 0 && *((char *)ops[i].address + 4 * MIB - 1) == 0);
        EXPECT(strata_page_free(ops[i].address) == STRATA_PAGE_OK);
    }
    end_all();
}

static void little_address_space(void) {
    run_batch_to_its_end();
    EXPECT(wander(random_seed(2), 8 * MIB / page_bytes) > 0);
    end_all();
}

static void little_memory(void) {
    run_batch_to_its_end();
    EXPECT(wander(random_seed(3), 8 * MIB / page_bytes) > 0);
    end_all();
}

/* While all mappings are taken, but for a few, exchanges and resizing go on by copies. */
static void few_mappings(void) {
    struct crowd crowd;
    uint64_t random = random_seed(4);
    (void)wander(random_seed(6),
                 300); /* the limits of control groups are read on the way, and a sanitizer has the memory that it keeps of each lock */
    end_all();
    for (unsigned i = 0; i < BLOCKS; i++) EXPECT(make_pages(&blocks[i], 30 + random_count(&random) % 600, &random));
    crowd_begin(&crowd);
    for (unsigned turn = 0; turn < 12; turn++) {
        for (unsigned i = 0; i + 1 < BLOCKS; i++) {
            exchange_pages(&blocks[i], &blocks[i + 1], i % 4 == 3, &random);
            (void)resize_pages(&blocks[i], 30 + next_random(&random) % 700, &random);
            check_pages(&blocks[i]);
            check_pages(&blocks[i + 1]);
        }
        exchange_pages_in_a_batch(blocks, BLOCKS, &random);
        for (unsigned i = 0; i < BLOCKS; i++) check_pages(&blocks[i]);
        crowd_give(&crowd, turn);
    }
    crowd_end(&crowd);
    (void)wander(random_seed(5), 300);
    end_all();
}

static const struct test {
    const char *name, *conf;
    size_t address_bytes; /* 0: no limit */
    void (*body)(void);
} tests[] = {
    {"address-space", "background:off", 64 << 20, little_address_space},
    {"memory", "background:off,hard_limit:48M", 0, little_memory},
    {"mappings", "background:off", 0, few_mappings},
};

/* `context` is a size_t: bytes, 0 for none. */
static void limit_addresses(const void *context) {
    size_t bytes = *(const size_t *)context;
    const struct rlimit limit = {bytes, bytes};
    if (bytes != 0) EXPECT(setrlimit(RLIMIT_AS, &limit) == 0);
}

int main(int argc, char **argv) {
    page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    for (unsigned i = 0; i < sizeof tests / sizeof tests[0]; i++) {
        if (argc > 1 && strcmp(argv[1], tests[i].name) == 0) {
            tests[i].body();
            return 0;
        }
        if (argc == 1 && (tests[i].address_bytes == 0 || HAS_ROOM_FOR_LIMITS))
            run_in_own_process(tests[i].name, tests[i].conf, limit_addresses, &tests[i].address_bytes);
    }
    EXPECT(argc == 1);
    printf("%zu limits reached\n", sizeof tests / sizeof tests[0] - !HAS_ROOM_FOR_LIMITS);
    return 0;
}
