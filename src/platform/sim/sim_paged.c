/*
 * sim_paged.c - memory whose pages the process brings itself, and the file behind it: a simulated machine has neither, as systems that forbid it.
 *
 * What decides about pages (page/pager_frames.h, pager_policy.h) is tested without them; the rest on real ones.
 */
#include "platform/sim/sim_internal.h"

static _Noreturn void never(const char *function) { fatal("sim: %s: there is no paged memory", function); }

enum platform_faults_status platform_paged_open(struct platform_paged *paged, size_t bytes, enum platform_paged_way way) {
    (void)way;
    *paged = (struct platform_paged){.bytes = bytes, .faults = PLATFORM_FAULTS_CLOSED};
    return PLATFORM_FAULTS_FORBIDDEN;
}
void platform_paged_close(struct platform_paged *paged, bool forked) {
    (void)paged;
    (void)forked;
    never("platform_paged_close");
}
enum platform_faults_status platform_paged_wait(struct platform_paged *paged, struct platform_fault *faults, unsigned count, unsigned *got) {
    (void)paged;
    (void)faults;
    (void)count;
    (void)got;
    never("platform_paged_wait");
}
void platform_paged_ring(struct platform_paged *paged) {
    (void)paged;
    never("platform_paged_ring");
}
enum platform_faults_status platform_paged_map(struct platform_paged *paged, size_t offset, size_t bytes, bool *writable) {
    (void)paged;
    (void)offset;
    (void)bytes;
    (void)writable;
    never("platform_paged_map");
}
enum platform_faults_status platform_paged_protect(struct platform_paged *paged, size_t offset, size_t bytes) {
    (void)paged;
    (void)offset;
    (void)bytes;
    never("platform_paged_protect");
}
void platform_paged_hide(struct platform_paged *paged, size_t offset, size_t bytes) {
    (void)paged;
    (void)offset;
    (void)bytes;
    never("platform_paged_hide");
}
void platform_paged_drop(struct platform_paged *paged, size_t offset, size_t bytes) {
    (void)paged;
    (void)offset;
    (void)bytes;
    never("platform_paged_drop");
}
bool platform_paged_break(struct platform_paged *paged, size_t offset, size_t bytes, bool on) {
    (void)paged;
    (void)offset;
    (void)bytes;
    (void)on;
    never("platform_paged_break");
}
void platform_paged_wake(struct platform_paged *paged, size_t offset, size_t bytes) {
    (void)paged;
    (void)offset;
    (void)bytes;
    never("platform_paged_wake");
}
void platform_paged_seal(struct platform_paged *paged) {
    (void)paged;
    never("platform_paged_seal");
}
int platform_store_open(struct platform_store *store, const char *path, int file, uint64_t bytes) {
    (void)store;
    (void)path;
    (void)file;
    (void)bytes;
    never("platform_store_open");
}
int platform_store_read(struct platform_store *store, void *to, size_t bytes, uint64_t offset) {
    (void)store;
    (void)to;
    (void)bytes;
    (void)offset;
    never("platform_store_read");
}
int platform_store_write(struct platform_store *store, const void *from, size_t bytes, uint64_t offset) {
    (void)store;
    (void)from;
    (void)bytes;
    (void)offset;
    never("platform_store_write");
}
int platform_store_sync(struct platform_store *store) {
    (void)store;
    never("platform_store_sync");
}
void platform_store_close(struct platform_store *store) {
    (void)store;
    never("platform_store_close");
}
