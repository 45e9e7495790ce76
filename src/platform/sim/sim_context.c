/*
 * sim_context.c - stacks to run simulated threads on, within one thread of the operating system.
 *
 * Number 0 is the stack that the test itself runs on. All switches go from it or to it. AddressSanitizer is told about each switch, as it
 * keeps books about stacks.
 */
#define _GNU_SOURCE 1
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include "platform/sim/sim_internal.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define CONTEXT_ASAN 1
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define CONTEXT_ASAN 1
#endif
#if defined(CONTEXT_ASAN)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#define STACK_BYTES (1 * MIB) /* untouched parts cost nothing */

static struct context {
    ucontext_t registers;
    char *stack; /* NULL for number 0 until a sanitizer has told us, and for a context never used */
    size_t stack_bytes;
    void *fake_stack; /* of AddressSanitizer */
} contexts[SIM_BODIES_MAX + 1];

static unsigned entering; /* the context that was switched to last */

static void before_switch(struct context *from, struct context *to, bool for_good) {
    (void)from, (void)to, (void)for_good;
#if defined(CONTEXT_ASAN)
    __sanitizer_start_switch_fiber(for_good ? NULL : &from->fake_stack, to->stack, to->stack_bytes);
#endif
}

static void after_switch(struct context *now) {
    (void)now;
#if defined(CONTEXT_ASAN)
    const void *bottom;
    size_t bytes;
    __sanitizer_finish_switch_fiber(now->fake_stack, &bottom, &bytes);
    if (now != &contexts[0]) {
        contexts[0].stack = (char *)(uintptr_t)bottom;
        contexts[0].stack_bytes = bytes;
    }
#endif
}

void sim_context_create(unsigned number, void (*entry)(void)) {
    struct context *context = &contexts[number];
    if (context->stack == NULL) {
        size_t guard_bytes = (size_t)sysconf(_SC_PAGESIZE);
        context->stack = (char *)sim_table_map(STACK_BYTES + guard_bytes) + guard_bytes;
        context->stack_bytes = STACK_BYTES;
        if (mprotect(context->stack - guard_bytes, guard_bytes, PROT_NONE) != 0) fatal("sim: no guard page for a stack");
    }
#if defined(CONTEXT_ASAN)
    /* The stack may be that of a thread which never came to its end. */
    __asan_unpoison_memory_region(context->stack, context->stack_bytes);
#endif
    context->fake_stack = NULL;
    if (getcontext(&context->registers) != 0) fatal("sim: no context for a thread");
    context->registers.uc_stack.ss_sp = context->stack;
    context->registers.uc_stack.ss_size = context->stack_bytes;
    context->registers.uc_link = NULL;
    makecontext(&context->registers, entry, 0);
}

void sim_context_entered(void) { after_switch(&contexts[entering]); }

void sim_context_switch(unsigned from, unsigned to) {
    before_switch(&contexts[from], &contexts[to], false);
    entering = to;
    swapcontext(&contexts[from].registers, &contexts[to].registers);
    after_switch(&contexts[from]);
}

void sim_context_leave(unsigned from, unsigned to) {
    before_switch(&contexts[from], &contexts[to], true);
    entering = to;
    setcontext(&contexts[to].registers);
    __builtin_trap();
}
