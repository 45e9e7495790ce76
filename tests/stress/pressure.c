/*
 * pressure.c - programs for a memory cgroup with little room.
 *
 * pressure phases MIB TIMES: uses MIB in small blocks, frees them, uses MIB in large blocks, frees them, TIMES over. Idle memory of one
 * kind has to serve the other, or go back, before the cgroup is full.
 * pressure hoard MIB: uses MIB, frees it, says "idle KIB" with what is resident, and waits; at each line of input says "idle KIB" again.
 * pressure need MIB STEP_MS: another program, without strata, that takes MIB by and by.
 */
#include "stress/support.h"

#include <sys/mman.h>

enum { SMALL = 400, MAX_BLOCKS = 1 << 20 };

static void *blocks[MAX_BLOCKS];

static size_t take(size_t total, size_t bytes) {
    size_t count = total / bytes;
    REQUIRE(count <= MAX_BLOCKS);
    for (size_t i = 0; i < count; i++) {
        blocks[i] = malloc(bytes);
        if (blocks[i] == NULL) fail("malloc(%zu) gave NULL", bytes);
        memset(blocks[i], 1, bytes);
    }
    return count;
}

static void give(size_t count) {
    for (size_t i = 0; i < count; i++) free(blocks[i]);
}

static void say_idle(void) {
    printf("idle %zu\n", status_kib("RssAnon:"));
    fflush(stdout);
}

int main(int argc, char **argv) {
    if (argc < 3) fail("usage: pressure phases|hoard|need MIB [N]");
    size_t total = argument_number(argc, argv, 2, 0) * MIB, number = argument_number(argc, argv, 3, 4);
    if (strcmp(argv[1], "phases") == 0) {
        for (size_t i = 0; i < number; i++) {
            give(take(total, SMALL));
            give(take(total, 300000));
            give(take(total, 9000));
            give(take(total, 4 * MIB));
        }
        heap_check("after the phases");
        puts("alive");
    } else if (strcmp(argv[1], "hoard") == 0) {
        give(take(total, SMALL));
        say_idle();
        char line[16];
        while (fgets(line, sizeof line, stdin) != NULL) say_idle();
        heap_check("after the pressure");
    } else {
        unsigned char *memory = mmap(NULL, total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        REQUIRE(memory != MAP_FAILED);
        for (size_t i = 0; i < total; i += MIB) {
            memset(memory + i, 1, MIB);
            sleep_ms((unsigned)number);
        }
        puts("had it");
    }
    return 0;
}
