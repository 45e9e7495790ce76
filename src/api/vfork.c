/*
 * vfork.c - children of vfork may allocate, as they may with other allocators, although POSIX allows them next to nothing.
 *
 * Such a child runs in its parent's memory, while the parent's other threads go on, and strata's own. The kernel restarts no sequence of it, and the
 * CPU that its parent's structure names may be another thread's by now. So it works without arrays: it reads the number of an area that nobody
 * opens (platform_cpu_leave), and its parent, who sleeps until it is gone, comes back to its own. Locks do as between threads.
 *
 * The C library's vfork can't be called for this: it is the way back into the caller, twice, that something has to be done on. Where the child
 * returns it overwrites the caller's frame and the return address with it, so that is kept in a register. It jumps there: a shadow stack is shared,
 * too, and has to keep the address for the parent. The child of clone(CLONE_VM), and a program with libstrata-only, are on their own.
 */
#include "api/also_as.h"

#if !defined(STRATA_NO_OVERRIDE) && PLATFORM_CPU_CAN_LEAVE

#include <errno.h>

/* Not static, as their use is in assembler. In the child: */
void vfork_child(void);
STRATA_SELDOM void vfork_child(void) { platform_cpu_leave(); }

/* In the parent, whose own vfork it may have been that made it: what the system call gave, and what platform_cpu_has_left said before it. */
int vfork_parent(long result, bool had_left);
STRATA_SELDOM int vfork_parent(long result, bool had_left) {
    if (result < 0) {
        errno = (int)-result;
        return -1;
    }
    if (!had_left) platform_cpu_return();
    return (int)result;
}

__asm__(".pushsection .text.seldom, \"ax\", %progbits\n"
        ".p2align 4\n"
        ".globl vfork\n"
        ".type vfork, %function\n"
        "vfork:\n"
        ".cfi_startproc\n"
        "endbr64\n"
        "sub $8, %rsp\n"
        ".cfi_adjust_cfa_offset 8\n"
        "call platform_cpu_has_left\n"
        "movzbl %al, %esi\n" /* this register and rdi are the same after the system call, on both sides */
        "add $8, %rsp\n"
        ".cfi_adjust_cfa_offset -8\n"
        "pop %rdi\n"
        ".cfi_adjust_cfa_offset -8\n"
        ".cfi_register %rip, %rdi\n"
        "mov $58, %eax\n" /* SYS_vfork */
        "syscall\n"
        "push %rdi\n"
        ".cfi_adjust_cfa_offset 8\n"
        ".cfi_rel_offset %rip, 0\n"
        "test %rax, %rax\n"
        "jz 1f\n"
        "mov %rax, %rdi\n"
        "jmp vfork_parent\n"
        "1:\n"
        "sub $8, %rsp\n"
        ".cfi_adjust_cfa_offset 8\n"
        "call vfork_child\n"
        "add $8, %rsp\n"
        ".cfi_adjust_cfa_offset -8\n"
        "pop %rdi\n"
        ".cfi_adjust_cfa_offset -8\n"
        ".cfi_register %rip, %rdi\n"
        "xor %eax, %eax\n"
        "jmp *%rdi\n"
        ".cfi_endproc\n"
        ".size vfork, . - vfork\n"
        ".popsection\n");

#endif
