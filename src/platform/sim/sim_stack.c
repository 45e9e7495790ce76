/*
 * sim_stack.c - stacks of the simulated process: as the test says, so that what is recorded can be compared.
 *
 * Addresses from SIM_MODULE_START on belong to a file of the name "program".
 */
#include "platform/sim/sim_internal.h"

static uintptr_t script[32];
static unsigned script_count;

void sim_stack_set(const uintptr_t *frames, unsigned count) {
    script_count = (unsigned)min_u64(count, ARRAY_LENGTH(script));
    for (unsigned i = 0; i < script_count; i++) script[i] = frames[i];
}

unsigned platform_stack(uintptr_t *frames, unsigned max) {
    unsigned count = (unsigned)min_u64(script_count, max);
    for (unsigned i = 0; i < count; i++) frames[i] = script[i];
    return count;
}

void platform_stack_prepare(void) {}

bool platform_module_of(uintptr_t address, char *path, size_t bytes, uintptr_t *offset) {
    if (address < SIM_MODULE_START) return false;
    format_text(path, bytes, "program");
    *offset = address - SIM_MODULE_START;
    return true;
}

uint32_t platform_thread_number(void) { return 1000 + sim_thread(); }
