/*
 * api_page_watch_data.c - watched pages under a limit on data (RLIMIT_DATA): pages that access rights close don't count, so that others can use up
 * what they leave; and then they have to be opened again.
 *
 * Protects: a watch ends, whoever ends it (a write that is told, strata_page_unwatch, a free, a fork's child), and its block is as it was.
 */
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <strata/page.h>
#include <strata/page_watch.h>

#include "own_process.h"
#include "sanitizers.h"

#define MIB ((size_t)1 << 20)
#define BLOCK_BYTES (32 * MIB)
#define ROOM_BYTES (64 * MIB)

static unsigned told;
static void tell(const struct strata_watch_event *event, void *argument) {
    (void)argument;
    if (event->kind != STRATA_WATCH_ENDED) __atomic_fetch_add(&told, 1, __ATOMIC_RELAXED);
}

/* Of the process now, as the limit counts it. */
static size_t data_bytes(void) {
    char line[128];
    size_t kib = 0;
    FILE *status = fopen("/proc/self/status", "re");
    EXPECT(status != NULL);
    while (fgets(line, sizeof line, status) != NULL)
        if (strncmp(line, "VmData:", 7) == 0) kib = strtoul(line + 7, NULL, 10);
    fclose(status);
    return kib << 10;
}

/* All that the limit leaves, to the page. */
static void use_up_data(size_t page) {
    for (size_t bytes = MIB; bytes >= page; bytes = bytes == MIB ? page : 0)
        while (mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED) {}
}

static void check(const char *block) {
    for (size_t i = 0; i < BLOCK_BYTES; i += 64 << 10) EXPECT(block[i] == (char)(i >> 16));
}

static void in_a_child(char *block) {
    pid_t child = fork();
    if (child == 0) {
        check(block);
        block[0]++;
        _exit(0);
    }
    int status;
    EXPECT(child > 0 && waitpid(child, &status, 0) == child && status == 0);
}

static void watch_and_end(const char *how) {
    struct strata_watch *watch;
    void *address;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    EXPECT(strata_page_alloc(BLOCK_BYTES, 0, &address) == STRATA_PAGE_OK);
    char *block = address;
    for (size_t i = 0; i < BLOCK_BYTES; i += 64 << 10) block[i] = (char)(i >> 16);
    const struct rlimit limit = {data_bytes() + ROOM_BYTES, RLIM_INFINITY};
    EXPECT(setrlimit(RLIMIT_DATA, &limit) == 0);
    EXPECT(strata_page_watch(block, BLOCK_BYTES, STRATA_WATCH_WRITES | STRATA_WATCH_READS, tell, NULL, &watch) == STRATA_WATCH_OK);
    use_up_data(page);
    if (strcmp(how, "child") == 0) in_a_child(block);
    if (strcmp(how, "write") == 0) {
        block[5 * MIB + 1] = 1;
        EXPECT(__atomic_load_n(&told, __ATOMIC_RELAXED) == 1);
    }
    if (strcmp(how, "free") != 0) {
        strata_page_unwatch(watch);
        check(block);
        memset(block, 1, BLOCK_BYTES);
    }
    EXPECT(strata_page_free(block) == STRATA_PAGE_OK);
    if (strcmp(how, "free") == 0) strata_page_unwatch(watch);
}

int main(int count, char **arguments) {
    static const char *const ways[] = {"unwatch", "write", "free", "child"};
    if (count > 1) {
        watch_and_end(arguments[1]);
        return 0;
    }
    /* Their own memory is data, too. */
    if (UNDER_ADDRESS_SANITIZER || UNDER_THREAD_SANITIZER) return 0;
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) run_in_own_process(ways[i], "watch:signals", NULL, NULL);
    return 0;
}
