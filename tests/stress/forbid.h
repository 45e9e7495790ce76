/*
 * forbid.h - what programs need that run where something is forbidden: system calls that fail, as containers have it, and no privilege.
 */
#ifndef STRATA_TESTS_STRESS_FORBID_H
#define STRATA_TESTS_STRESS_FORBID_H

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "concurrency/concurrency.h"

/* What a system call comes to from now on, in this thread or all that there are, and in programs that this one becomes. */
static inline void answer(unsigned call, unsigned action, unsigned flags) {
    struct sock_filter code[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
                                 BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1), BPF_STMT(BPF_RET | BPF_K, action),
                                 BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    const struct sock_fprog filter = {.len = 4, .filter = code};
    EXPECT(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &filter) == 0);
}
static inline void forbid_to(unsigned call, unsigned error, unsigned flags) { answer(call, SECCOMP_RET_ERRNO | error, flags); }
static inline void end_by(unsigned call) { answer(call, SECCOMP_RET_KILL_PROCESS, 0); }
static inline void forbid(unsigned call, unsigned error) { forbid_to(call, error, 0); }
static inline void forbid_to_all_threads(unsigned call, unsigned error) { forbid_to(call, error, SECCOMP_FILTER_FLAG_TSYNC); }

/* As nobody; what /proc tells of the process it may still read, as a process that began so may. */
static inline void drop_privilege(void) {
    if (geteuid() == 0) EXPECT(setgid(65534) == 0 && setuid(65534) == 0);
    EXPECT(prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) == 0);
}

#endif
