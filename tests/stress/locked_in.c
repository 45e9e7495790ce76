/*
 * locked_in.c - a program of one thread that locks itself into the few system calls that a malloc is known to need, and ends by any other.
 *
 * Fills the caches, locks itself in, and works on one size for some ticks, which look at what idles; then all goes back. Prints what caches hold
 * before and after: there is nobody else in the process to agree with about it.
 */
#include "stress/support.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

enum { SIZES = 40, BLOCKS = 100, TURNS = 300, MANY = 5000, MANY_BYTES = 16 };

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

int main(void) {
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
    int length = snprintf(line, sizeof line, "before=%zu after=%zu\n", before, mallinfo2().fsmblks);
    REQUIRE(write(STDOUT_FILENO, line, (size_t)length) == length);
    _exit(0); /* past the statistics that the suite asks for at an exit, which read files */
}
