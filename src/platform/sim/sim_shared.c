/*
 * sim_shared.c - memory at several addresses: a simulated machine has none, as systems that forbid it. Zones of frames have a backend of their own
 * for tests; what shows frames at addresses is tested on real memory.
 */
#include "platform/sim/sim_internal.h"

static _Noreturn void never(const char *function) { fatal("sim: %s: there is no shared memory", function); }

enum platform_shared_status platform_shared_open(struct platform_shared *shared, size_t bytes, bool huge, const char *name) {
    (void)huge;
    (void)name;
    *shared = (struct platform_shared){.bytes = bytes, .file = -1};
    return PLATFORM_SHARED_UNSUPPORTED;
}
void platform_shared_close(struct platform_shared *shared) {
    (void)shared;
    never("platform_shared_close");
}
bool platform_shared_show(const struct platform_shared *shared, size_t offset, size_t bytes, void *address) {
    (void)shared;
    (void)offset;
    (void)bytes;
    (void)address;
    never("platform_shared_show");
}
bool platform_shared_hide(void *address, size_t bytes) {
    (void)address;
    (void)bytes;
    never("platform_shared_hide");
}
bool platform_shared_populate(const struct platform_shared *shared, size_t offset, size_t bytes) {
    (void)shared;
    (void)offset;
    (void)bytes;
    never("platform_shared_populate");
}
bool platform_shared_discard(const struct platform_shared *shared, size_t offset, size_t bytes) {
    (void)shared;
    (void)offset;
    (void)bytes;
    never("platform_shared_discard");
}
bool platform_bind_node(void *address, size_t bytes, unsigned node) {
    (void)address;
    (void)bytes;
    return node == 0; /* a machine of one node */
}
