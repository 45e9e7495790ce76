/*
 * locked_in.c - a program of one thread that locks itself into the few system calls that a malloc is known to need, and ends by any other.
 *
 * locked_in small: fills the caches, locks itself in, and works on one size for some ticks, which look at what idles; then all goes back. Prints what
 *                  caches hold before and after: there is nobody else in the process to agree with about it.
 *           large: locks itself in, and makes the heap larger than what strata's own thread begins at, of small blocks, and of large ones that grow.
 */
#include "stress/support.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

enum { SIZES = 40, BLOCKS = 100, TURNS = 300, MANY = 5000, MANY_BYTES = 16, LARGE = 400000, LARGE_BYTES = 200, KEPT_EACH = 8 };

static void lock_in(void) {
    static const int allowed[] = {SYS_prctl, SYS_mmap,      SYS_munmap, SYS_mremap, SYS_mprotect,   SYS_madvise,       SYS_brk,
                                  SYS_futex, SYS_getrandom, SYS_write,  SYS_exit,   SYS_exit_group, SYS_clock_gettime, SYS_clock_nanosleep};
    enum { ALLOWED = sizeof allowed / sizeof *allowed };
    struct sock_filter code[2 * ALLOWED + 2];
    struct sock_filter *next = code;
    *next++ = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (int i = 0; i < ALLOWED; i++) {
        *next++ = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)allowed[i], 0, 1);
        *next++ = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    }
    *next++ = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    const struct sock_fprog filter = {.len = (unsigned short)(next - code), .filter = code};
    REQUIRE(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    REQUIRE(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0) == 0);
}

/* By system calls only, and past the statistics that the suite asks for at an exit, which read files. */
__attribute__((noreturn)) static void end(const char *line) {
    REQUIRE(write(STDOUT_FILENO, line, strlen(line)) == (ssize_t)strlen(line));
    _exit(0);
}

static void work_small(void) {
    static void *blocks[BLOCKS], *many[MANY];
    for (int size = 0; size < SIZES; size++) {
        for (int i = 0; i < BLOCKS; i++) blocks[i] = block_new((size_t)size * 32 + 1, 1, "before");
        for (int i = 0; i < BLOCKS; i++) block_delete(blocks[i], (size_t)size * 32 + 1, 1, "before");
    }
    lock_in();
    const size_t before = mallinfo2().fsmblks;
    for (int turn = 0; turn < TURNS; turn++) {
        for (int i = 0; i < MANY; i++) many[i] = block_new(MANY_BYTES, 2, "locked in");
        for (int i = 0; i < MANY; i++) block_delete(many[i], MANY_BYTES, 2, "locked in");
        sleep_ms(1);
    }
    malloc_trim(0);
    char line[64];
    snprintf(line, sizeof line, "before=%zu after=%zu\n", before, mallinfo2().fsmblks);
    end(line);
}

static void grow(size_t to) {
    char *blocks[2] = {NULL, NULL}; /* in turn, so that each stands in the other's way */
    for (size_t bytes = 1000; bytes < to; bytes += bytes / 4)
        for (int i = 0; i < 2; i++) {
            blocks[i] = realloc(blocks[i], bytes);
            REQUIRE(blocks[i] != NULL);
            memset(blocks[i], i, bytes);
        }
    for (int i = 0; i < 2; i++) free(blocks[i]);
}

static void work_large(void) {
    static void *blocks[LARGE];
    uint64_t random = 1;
    free(malloc(1));
    lock_in();
    for (int i = 0; i < LARGE; i++) blocks[i] = block_new(LARGE_BYTES, 3, "locked in");
    for (int i = 0; i < LARGE; i++)
        if (i / 1000 % KEPT_EACH != 0) block_delete(blocks[i], LARGE_BYTES, 3, "locked in");
    for (int turn = 0; turn < TURNS; turn++) {
        size_t bytes = rng_between(&random, 1, 3 * MIB);
        block_delete(block_new(bytes, 4, "locked in"), bytes, 4, "locked in");
        sleep_ms(1);
    }
    grow(24 * MIB);
    malloc_trim(0);
    REQUIRE(malloc((size_t)1 << 46) == NULL);
    end("done=1\n");
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "large") == 0) work_large();
    work_small();
}
