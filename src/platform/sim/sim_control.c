/*
 * sim_control.c - the simulated machine as a whole: its configuration, the facts that it reports, the counters of its calls and the
 * failures that a test asks for.
 *
 * Invariant: sim_config has every default filled in from the first platform_init or sim_reset on.
 */
#define _GNU_SOURCE 1
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "platform/cpu_ops.h"
#include "platform/sim/sim_internal.h"

#define ARENA_BYTES_DEFAULT (1024 * (uint64_t)GIB)
#define MAP_COUNT_LIMIT_DEFAULT 65530
#define PROCESS_ID_DEFAULT 4242
#define CPUS_DEFAULT 2

struct sim_config sim_config;
struct platform_cpu platform_cpu;

static struct platform_info info;
static enum platform_cpu_mode mode;

static struct {
    uint64_t calls[SIM_CALLS];
    uint64_t failable;
    uint64_t mask;
    uint64_t until; /* calls to let pass before the next failure */
    uint64_t times; /* failures to come, 0: none asked for */
    uint64_t failed;
} control;

void *sim_table_map(uint64_t bytes) {
    void *table = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (table == MAP_FAILED) fatal("sim: no real memory for a table of %llu bytes", (unsigned long long)bytes);
    return table;
}

static void fill_defaults(void) {
    if (sim_config.page_bytes == 0) sim_config.page_bytes = 4 * KIB;
    if (sim_config.cpus == 0) sim_config.cpus = CPUS_DEFAULT;
    if (sim_config.arena_bytes == 0) sim_config.arena_bytes = ARENA_BYTES_DEFAULT;
    if (sim_config.address_limit_bytes == 0) sim_config.address_limit_bytes = UINT64_MAX;
    if (sim_config.map_count_limit == 0) sim_config.map_count_limit = MAP_COUNT_LIMIT_DEFAULT;
    if (sim_config.physical_bytes == 0) sim_config.physical_bytes = UINT64_MAX;
    if (sim_config.memory_limit_bytes == 0) sim_config.memory_limit_bytes = UINT64_MAX;
    if (sim_config.process_id == 0) sim_config.process_id = PROCESS_ID_DEFAULT;
}

void sim_reset(const struct sim_config *config) {
    static const struct check_sink sink = {platform_write_error, platform_die};
    check_set_sink(&sink);
    if (sim_thread_body() == SIM_BODIES_MAX) sim_catches_drop(__builtin_frame_address(0));
    if (config != NULL)
        sim_config = *config;
    else
        memset(&sim_config, 0, sizeof sim_config);
    fill_defaults();
    size_t page_bytes = sim_config.page_bytes;
    if (page_bytes != 4 * KIB && page_bytes != 16 * KIB && page_bytes != 64 * KIB) fatal("sim: page_bytes = %zu; 4, 16 or 64 KiB", page_bytes);
    if (sim_config.cpus > SIM_CPUS_MAX) fatal("sim: cpus = %u; at most %u", sim_config.cpus, SIM_CPUS_MAX);

    memset(&control, 0, sizeof control);
    control.mask = SIM_FAIL_ALL;
    memset(&platform_cpu, 0, sizeof platform_cpu);
    mode = sim_config.thread_mode ? PLATFORM_CPU_THREAD : PLATFORM_CPU_SIM;
    info = (struct platform_info){
        .page_bytes = page_bytes,
        .page_shift = bit_lowest(page_bytes),
        .cpus = sim_config.cpus,
        .address_limit_bytes = sim_config.address_limit_bytes,
        .data_limit_bytes = UINT64_MAX,
        .secure = sim_config.secure,
    };
    sim_thread_reset();
    sim_lock_reset();
    sim_cpu_reset();
    sim_memory_reset();
    sim_outside_reset();
    sim_fault_reset();
    sim_shared_reset();
    sim_paged_reset();
    sim_store_reset();
}

/* ------------------------------------------------------------------ facts */

void platform_init(void) {
    if (info.page_bytes == 0) sim_reset(NULL);
}

const struct platform_info *platform_info(void) { return &info; }
uint64_t platform_map_count_limit(void) { return sim_config.map_count_limit; }
uint64_t platform_memory_bytes(void) { return UINT64_MAX; }
bool platform_may_lock(uint64_t reserved_bytes) { return !sim_config.no_locking || reserved_bytes == 0; }
bool platform_data_is_limited(void) { return platform_info()->data_limit_bytes != UINT64_MAX; }
bool platform_is_filtered(void) { return sim_config.filtered; }
bool platform_is_locked_in(void) { return sim_config.filtered; }
bool platform_commit_is_charged(void) { return sim_config.commit_is_charged; }
void platform_commit_asked(void) {}
enum platform_cpu_mode platform_cpu_mode(void) { return mode; }
void platform_cpu_force_thread_mode(void) { mode = PLATFORM_CPU_THREAD; }
unsigned platform_process_id(void) { return sim_config.process_id; }
uint64_t platform_memory_limit_bytes(void) { return sim_config.memory_limit_bytes; }

void sim_set_map_count_limit(uint64_t limit) { sim_config.map_count_limit = limit; }
void sim_set_physical_limit(uint64_t bytes) { sim_config.physical_bytes = bytes; }
void sim_set_memory_limit(uint64_t bytes) { sim_config.memory_limit_bytes = bytes; }
void sim_set_address_limit(uint64_t bytes) { sim_config.address_limit_bytes = info.address_limit_bytes = bytes; }

/* ------------------------------------------------------------------ calls */

void sim_call_count(enum sim_call call) { control.calls[call]++; }

bool sim_call_fails(enum sim_call call) {
    control.calls[call]++;
    if ((control.mask & UINT64_C(1) << call) == 0) return false;
    control.failable++;
    if (control.times == 0) return false;
    if (control.until > 0) {
        control.until--;
        return false;
    }
    if (control.times != SIM_FOREVER) control.times--;
    control.failed++;
    return true;
}

uint64_t sim_calls(enum sim_call call) { return control.calls[call]; }
uint64_t sim_failable_calls(void) { return control.failable; }
uint64_t sim_failures(void) { return control.failed; }
void sim_fail_only(uint64_t mask) { control.mask = mask; }

void sim_fail_call(uint64_t n, uint64_t times) {
    control.until = n == 0 ? 0 : n - 1;
    control.times = n == 0 ? 0 : times;
    control.failed = 0;
}
