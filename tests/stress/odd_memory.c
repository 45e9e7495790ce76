/*
 * odd_memory.c - a process that makes memory scarce for itself, with a heap that it goes on using.
 *
 *   odd_memory limits as|data PERCENT   lowers RLIMIT_AS or RLIMIT_DATA to so much of what is in use
 *   odd_memory mappings LEFT            uses up the mappings of the process, and gives back LEFT of the pairs that it has
 *   odd_memory locked block|all         frees a block that is locked in memory, or locks all there is and will be
 *   odd_memory ahead keep|drop          grows a block to 128 MiB, without the right to lock memory if `drop`, and has all of its memory locked
 *   odd_memory untouched HOW BYTES      takes a block of that size by malloc, calloc (also of what one before had), realloc or aligned_alloc, and
 *                                       never touches it
 *
 * NULL is an answer everywhere but must come with ENOMEM; what was allocated keeps its contents, and calloc gives zeros. Where a limit is
 * lifted in the end, the heap has to work as before.
 */
#include "stress/support.h"

#include <linux/capability.h>
#include <malloc.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SLOTS = 800, TURNS = 5000, PHASES = 12, STAMP_EVERY = 256, STACK_KIB = 512 };

static struct slot {
    unsigned char *block; /* NULL: none */
    size_t bytes;
} slots[SLOTS];
static size_t refusals;

/* Counts a refusal; true when it is one. */
static bool refused(const void *block) {
    if (block != NULL) return false;
    if (errno != ENOMEM) fail("NULL with errno %d", errno);
    refusals++;
    return true;
}

static size_t size_pick(uint64_t *rng) { return rng_next(rng) % 4 == 0 ? rng_between(rng, 32 * KIB, MIB) : rng_between(rng, 1, 3000); }

/* Some stamps in every page, as what goes wrong with pages goes wrong with whole ones. */
static uint64_t stamp_word(const struct slot *slot, size_t at) { return pattern_word(slot, at, 1); }

static void slot_fill(struct slot *slot, void *block, size_t bytes) {
    slot->block = block;
    slot->bytes = bytes;
    for (size_t at = 0; at + sizeof(uint64_t) <= bytes; at += STAMP_EVERY) {
        uint64_t word = stamp_word(slot, at);
        memcpy(slot->block + at, &word, sizeof word);
    }
    slot->block[bytes - 1] = 0x5a;
}

/* The first `bytes` of a slot's block, which may have moved to `block`. Of one that has shrunk or grown, the last byte is another's. */
static void stamps_check(const struct slot *slot, const unsigned char *block, size_t bytes, const char *who) {
    for (size_t at = 0; at + sizeof(uint64_t) < bytes; at += STAMP_EVERY) {
        uint64_t word = stamp_word(slot, at);
        if (memcmp(block + at, &word, sizeof word) != 0)
            fail("%s: block %p of %zu bytes has changed at offset %zu", who, (const void *)block, bytes, at);
    }
}

static void slot_check(const struct slot *slot) {
    stamps_check(slot, slot->block, slot->bytes, "check");
    if (slot->block[slot->bytes - 1] != 0x5a) fail("check: block %p of %zu bytes has changed at its end", (void *)slot->block, slot->bytes);
}

static void slot_take(struct slot *slot, size_t bytes, bool zeroed) {
    errno = 0;
    unsigned char *block = zeroed ? calloc(1, bytes) : malloc(bytes);
    if (refused(block)) return;
    if (zeroed && (block[0] != 0 || memcmp(block, block + 1, bytes - 1) != 0)) fail("calloc(%zu) gave what isn't zero", bytes);
    slot_fill(slot, block, bytes);
}

static void slot_resize(struct slot *slot, size_t bytes) {
    errno = 0;
    unsigned char *block = realloc(slot->block, bytes);
    if (refused(block)) {
        slot_check(slot);
        return;
    }
    stamps_check(slot, block, bytes < slot->bytes ? bytes : slot->bytes, "realloc");
    slot_fill(slot, block, bytes);
}

static void slot_give(struct slot *slot) {
    if (slot->block == NULL) return;
    slot_check(slot);
    free(slot->block);
    slot->block = NULL;
}

/* Blocks come, change their size and go. */
static void churn(size_t turns) {
    static uint64_t rng = 99;
    for (size_t turn = 0; turn < turns; turn++) {
        struct slot *slot = &slots[rng_next(&rng) % SLOTS];
        size_t bytes = size_pick(&rng);
        if (slot->block == NULL)
            slot_take(slot, bytes, turn % 2 == 0);
        else if (rng_next(&rng) % 3 == 0)
            slot_resize(slot, rng_next(&rng) % 4 == 0 || slot->bytes > 8 * MIB ? bytes : slot->bytes * 2 + 64);
        else
            slot_give(slot);
    }
}

static void give_all(void) {
    for (size_t i = 0; i < SLOTS; i++) slot_give(&slots[i]);
}

/* One block that grows to 100 MiB, or as far as it may; others that come meanwhile have it move. */
static size_t grow(void) {
    enum { NEIGHBOURS = 32 };
    struct slot neighbours[NEIGHBOURS] = {{0}}, growing = {0};
    slot_take(&growing, 100 * KIB, false);
    for (unsigned i = 0; growing.block != NULL && i < NEIGHBOURS && growing.bytes < 100 * MIB; i++) {
        slot_take(&neighbours[i], 300 * KIB, false);
        size_t before = refusals;
        slot_resize(&growing, growing.bytes * 3 / 2);
        if (refusals != before) break;
    }
    size_t reached = growing.bytes;
    slot_give(&growing);
    for (unsigned i = 0; i < NEIGHBOURS; i++) slot_give(&neighbours[i]);
    return reached;
}

/* The heap is whole, and gives much again. */
static void expect_all_is_well(void) {
    heap_check("when it is over");
    give_all();
    block_delete(block_new(64 * MIB, 2, "after it"), 64 * MIB, 2, "after it");
}

/* ------------------------------------------------------------------ limits */

/* The kernel can't grow the stack any more once RLIMIT_AS is below what is in use. */
static void __attribute__((noinline)) touch_stack(void) {
    volatile char bytes[STACK_KIB * KIB];
    for (size_t i = 0; i < sizeof bytes; i += KIB) bytes[i] = 1;
}

static int limits(const char *which, size_t percent) {
    bool space = strcmp(which, "as") == 0;
    struct rlimit before, lower;
    REQUIRE(getrlimit(space ? RLIMIT_AS : RLIMIT_DATA, &before) == 0);
    touch_stack();
    churn(TURNS);
    lower = before;
    lower.rlim_cur = status_kib(space ? "VmSize:" : "VmData:") * KIB / 100 * percent;
    REQUIRE(setrlimit(space ? RLIMIT_AS : RLIMIT_DATA, &lower) == 0);
    size_t reached = grow();
    churn(TURNS);
    size_t reached_again = grow();
    give_all();
    churn(TURNS);
    REQUIRE(setrlimit(space ? RLIMIT_AS : RLIMIT_DATA, &before) == 0);
    expect_all_is_well();
    printf("grown_kib=%zu again_kib=%zu refusals=%zu\n", reached / KIB, reached_again / KIB, refusals);
    return 0;
}

/* ------------------------------------------------------------------ mappings */

/* The heap lives on what is left, and again when that is used up; less and less of it. */
static int mappings(size_t left) {
    free(block_new(100 * KIB, 0, "mappings"));
    size_t page = (size_t)sysconf(_SC_PAGESIZE), pairs = 0, most = (size_t)1 << 21;
    char *region = mmap(NULL, most * 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    REQUIRE(region != MAP_FAILED);
    for (int phase = 0; phase < PHASES; phase++, left -= left / 4) {
        /* Every second page, as neighbours with the same protection are one mapping. */
        while (pairs < most && mprotect(region + 2 * pairs * page, page, PROT_READ) == 0) pairs++;
        REQUIRE(pairs < most && pairs > left);
        for (size_t i = 0; i < left; i++) REQUIRE(mprotect(region + 2 * --pairs * page, page, PROT_NONE) == 0);
        churn(TURNS / 4);
    }
    grow();
    give_all();
    REQUIRE(munmap(region, most * 2 * page) == 0);
    expect_all_is_well();
    printf("refusals=%zu\n", refusals);
    return 0;
}

/* ------------------------------------------------------------------ locked memory */

static void take_and_give(void **blocks, size_t count, size_t bytes) {
    for (size_t i = 0; i < count; i++) blocks[i] = block_new(bytes, i, "locked");
    for (size_t i = 0; i < count; i++) block_delete(blocks[i], bytes, i, "locked");
}

static int locked(const char *what) {
    enum { BLOCKS = 200, SMALL = 100000, LOCKED = 40000 };
    static void *blocks[SMALL];
    memset(blocks, 1, sizeof blocks); /* resident from the start */
    size_t start_kib = status_kib("VmRSS:");
    if (strcmp(what, "all") == 0) {
        REQUIRE(mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT) == 0);
    } else {
        void *block = block_new(LOCKED, 0, "locked");
        REQUIRE(mlock(block, LOCKED) == 0);
        block_delete(block, LOCKED, 0, "locked");
    }
    take_and_give(blocks, BLOCKS, LOCKED);
    take_and_give(blocks, BLOCKS, 600 * KIB);
    take_and_give(blocks, BLOCKS / 5, 3 * MIB);
    take_and_give(blocks, SMALL, 500);
    size_t peak_kib = status_kib("VmHWM:");
    malloc_trim(0);
    printf("start_kib=%zu peak_kib=%zu end_kib=%zu\n", start_kib, peak_kib, status_kib("VmRSS:"));
    heap_check("after the trim");
    return 0;
}

/* The address space of the heap that can be written to may be more than what it uses, but not where it can be locked. */
static int ahead(const char *what) {
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];
    REQUIRE(syscall(SYS_capget, &header, data) == 0);
    uint32_t *permitted = &data[CAP_IPC_LOCK / 32].permitted, bit = 1U << CAP_IPC_LOCK % 32;
    bool privileged = strcmp(what, "keep") == 0 && (*permitted & bit) != 0;
    if (!privileged) {
        *permitted &= ~bit;
        data[CAP_IPC_LOCK / 32].effective &= ~bit;
        REQUIRE(syscall(SYS_capset, &header, data) == 0);
        REQUIRE(setrlimit(RLIMIT_MEMLOCK, &(struct rlimit){MIB, MIB}) == 0);
    }
    size_t data_kib = status_kib("VmData:"), bytes = 2 * MIB;
    char *block = malloc(bytes);
    REQUIRE(block != NULL);
    for (memset(block, 1, bytes); bytes < 128 * MIB; bytes *= 2) {
        REQUIRE((block = realloc(block, 2 * bytes)) != NULL);
        memset(block + bytes, 1, bytes);
    }
    data_kib = status_kib("VmData:") - data_kib;
    size_t before_kib = status_kib("VmRSS:");
    int locked = mlockall(MCL_CURRENT) == 0;
    printf("privileged=%d data_kib=%zu locked=%d more_kib=%zu\n", privileged, data_kib, locked, status_kib("VmRSS:") - before_kib);
    free(block);
    heap_check("after growth");
    return 0;
}

/* ------------------------------------------------------------------ blocks that are never touched */

static int untouched(const char *how, size_t bytes) {
    void *block = NULL;
    errno = 0;
    if (strcmp(how, "malloc") == 0) block = malloc(bytes);
    if (strcmp(how, "calloc") == 0) block = calloc(bytes / 64, 64);
    if (strcmp(how, "calloc-again") == 0) { /* of what another block had, which the program may have written to: here it is one byte */
        volatile unsigned char *before = malloc(bytes);
        if (before != NULL) before[bytes / 2] = 1;
        free((void *)before);
        unsigned char *after = calloc(bytes / 64, 64);
        REQUIRE(after == NULL || (after[bytes / 2] == 0 && after[0] == 0 && after[bytes - 1] == 0));
        block = after;
    }
    if (strcmp(how, "aligned_alloc") == 0) block = aligned_alloc(4096, bytes);
    if (strcmp(how, "realloc") == 0) block = realloc(malloc(100), bytes);
    bool none = refused(block);
    free(block);
    printf("given=%d peak_kib=%zu\n", !none, status_kib("VmHWM:"));
    return 0;
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    if (strcmp(what, "limits") == 0 && argc == 4) return limits(argv[2], argument_number(argc, argv, 3, 100));
    if (strcmp(what, "mappings") == 0) return mappings(argument_number(argc, argv, 2, 0));
    if (strcmp(what, "locked") == 0 && argc == 3) return locked(argv[2]);
    if (strcmp(what, "ahead") == 0 && argc == 3) return ahead(argv[2]);
    if (strcmp(what, "untouched") == 0 && argc == 4) return untouched(argv[2], argument_number(argc, argv, 3, 0));
    fail("odd_memory: nothing to do for %s", what);
}
