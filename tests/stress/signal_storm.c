/*
 * signal_storm.c - signal handlers that allocate and free, in the middle of threads that allocate and free.
 *
 * signal_storm INSIDE THREADS INTERVAL_US KIND. Goes on until INSIDE signals have interrupted code of the malloc library, or 20 s. Each thread has
 * its own timer, whose signal comes to it alone. KIND warm: threads are pinned to a CPU each and use few blocks of few sizes, so that malloc and free
 * stay on the fast path, which a handler may interrupt at any instruction. KIND wander: threads move between CPUs, so that the handlers also come
 * upon full and empty magazines. A handler that has interrupted neither the program nor one of the two functions themselves, but what they call,
 * leaves malloc alone: its thread may hold a lock that it would wait for. Printed: handlers run, and how many interrupted code of the malloc library,
 * for the suite to see that the test tests.
 */
#include "stress/support.h"

#include <link.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <ucontext.h>

enum { RING = 6, HANDLER_BLOCKS = 3, MAX_THREADS = 16, SECONDS_MAX = 20 };
static const size_t sizes[] = {24, 64, 200, 640};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

struct code {
    uintptr_t start, end;
};
static struct code library, program, functions[2]; /* functions: malloc, free */
static atomic_ulong handled, inside, main_rounds;
static atomic_bool stop;
static size_t interval_us;
static bool pinned;

static bool is_in(const struct code *code, uintptr_t address) { return address - code->start < code->end - code->start; }

/* The segment of code of that address. */
struct search {
    uintptr_t address;
    struct code *found;
};
static int find_segment(struct dl_phdr_info *info, size_t bytes, void *argument) {
    const struct search *search = argument;
    (void)bytes;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        uintptr_t start = info->dlpi_addr + header->p_vaddr;
        if (header->p_type != PT_LOAD || search->address - start >= header->p_memsz) continue;
        *search->found = (struct code){start, start + header->p_memsz};
        return 1;
    }
    return 0;
}
static void find_code(uintptr_t address, struct code *found) {
    struct search search = {address, found};
    REQUIRE(dl_iterate_phdr(find_segment, &search) == 1);
}
static void find_function(const char *name, struct code *found) {
    void *address = dlsym(RTLD_DEFAULT, name);
    Dl_info info;
    const ElfW(Sym) *symbol = NULL;
    REQUIRE(dladdr1(address, &info, (void **)&symbol, RTLD_DL_SYMENT) != 0 && symbol != NULL && symbol->st_size != 0);
    *found = (struct code){(uintptr_t)address, (uintptr_t)address + symbol->st_size};
}

static uintptr_t interrupted_pc(const ucontext_t *context) {
#if defined(__x86_64__)
    return (uintptr_t)context->uc_mcontext.gregs[REG_RIP];
#elif defined(__aarch64__)
    return (uintptr_t)context->uc_mcontext.pc;
#else
#error "where is the program counter?"
#endif
}

static void handler(int number, siginfo_t *info, void *context) {
    (void)number;
    (void)info;
    int saved = errno;
    uintptr_t pc = interrupted_pc(context);
    if (!is_in(&program, pc) && !is_in(&functions[0], pc) && !is_in(&functions[1], pc)) return;
    if (is_in(&library, pc)) atomic_fetch_add_explicit(&inside, 1, memory_order_relaxed);
    unsigned long turn = atomic_fetch_add_explicit(&handled, 1, memory_order_relaxed);
    size_t bytes = sizes[turn % SIZES];
    void *blocks[HANDLER_BLOCKS];
    for (int i = 0; i < HANDLER_BLOCKS; i++) blocks[i] = block_new(bytes, turn, "handler");
    for (int i = 0; i < HANDLER_BLOCKS; i++) block_delete(blocks[i], bytes, turn, "handler");
    errno = saved;
}

static void *worker(void *argument) {
    size_t number = (uintptr_t)argument;
    if (pinned) {
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET(number % (size_t)sysconf(_SC_NPROCESSORS_ONLN), &set);
        REQUIRE(sched_setaffinity(0, sizeof set, &set) == 0);
    }
    /* Fills the magazine of every size before the first signal: enough for the ring and for the handler. */
    for (int s = 0; s < SIZES; s++) {
        void *warm[RING + 2 * HANDLER_BLOCKS];
        for (int i = 0; i < RING + 2 * HANDLER_BLOCKS; i++) warm[i] = malloc(sizes[s]);
        for (int i = 0; i < RING + 2 * HANDLER_BLOCKS; i++) free(warm[i]);
    }
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGRTMIN + 1};
    event._sigev_un._tid = (pid_t)syscall(SYS_gettid);
    timer_t timer;
    REQUIRE(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
    struct itimerspec spec = {{0, (long)interval_us * 1000}, {0, (long)interval_us * 1000}};
    REQUIRE(timer_settime(timer, 0, &spec, NULL) == 0);
    uint64_t rng = number + 1;
    void *ring[SIZES][RING] = {{NULL}};
    for (unsigned long i = 0; !atomic_load_explicit(&stop, memory_order_relaxed); i++) {
        size_t s = rng_next(&rng) % SIZES;
        void **slot = &ring[s][i % RING];
        if (*slot != NULL) block_delete(*slot, sizes[s], number, "worker");
        *slot = block_new(sizes[s], number, "worker");
        atomic_fetch_add_explicit(&main_rounds, 1, memory_order_relaxed);
    }
    REQUIRE(timer_delete(timer) == 0);
    for (int s = 0; s < SIZES; s++)
        for (int i = 0; i < RING; i++)
            if (ring[s][i] != NULL) block_delete(ring[s][i], sizes[s], number, "worker");
    return NULL;
}

int main(int argc, char **argv) {
    size_t wanted = argument_number(argc, argv, 1, 500), threads = argument_number(argc, argv, 2, 2);
    interval_us = argument_number(argc, argv, 3, 50);
    pinned = argc > 4 && strcmp(argv[4], "warm") == 0;
    REQUIRE(threads <= MAX_THREADS);
    find_function("malloc", &functions[0]);
    find_function("free", &functions[1]);
    find_code(functions[0].start, &library);
    find_code((uintptr_t)handler, &program);
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_RESTART};
    REQUIRE(sigaction(SIGRTMIN + 1, &action, NULL) == 0);
    pthread_t ids[MAX_THREADS];
    for (size_t i = 0; i < threads; i++) REQUIRE(pthread_create(&ids[i], NULL, worker, (void *)(uintptr_t)i) == 0);
    for (int i = 0; i < SECONDS_MAX * 10 && (i < 5 || atomic_load(&inside) < wanted); i++) sleep_ms(100);
    atomic_store(&stop, true);
    for (size_t i = 0; i < threads; i++) REQUIRE(pthread_join(ids[i], NULL) == 0);
    heap_check("after the signals");
    printf("handled=%lu inside=%lu rounds=%lu\n", atomic_load(&handled), atomic_load(&inside), atomic_load(&main_rounds));
    return 0;
}
