/*
 * paging_sort.c - sorts a file of 8-byte numbers that is larger than the memory it may use: an ordinary in-place sort on a paged block.
 *
 *     cc paging_sort.c -o paging_sort $(pkg-config --cflags --libs strata)
 *     ./paging_sort FILE [MIB]             # in MIB of memory; by default a quarter of the file
 *     ./paging_sort --make FILE MIB        # a file of so many MiB of random numbers
 *
 * Nothing in the sort knows of the file: it swaps numbers in an array. Quicksort suits paging, as each of its passes goes through the array from both
 * ends and what it cuts off soon fits into memory. At the end the program reads the file once more, by read(2), and verifies order and sum.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <strata/paging.h>

#define MIB ((size_t)1 << 20)
#define LIMIT_MIN (STRATA_PAGING_PAGES_MIN * (size_t)sysconf(_SC_PAGESIZE))
#define FEW 16 /* numbers that are sorted by insertion */

static int fail(const char *what, const char *why) {
    fprintf(stderr, "paging_sort: %s: %s\n", what, why);
    return EXIT_FAILURE;
}

static void swap(uint64_t *a, uint64_t *b) {
    uint64_t kept = *a;
    *a = *b;
    *b = kept;
}

static void insertion_sort(uint64_t *first, uint64_t *end) {
    for (uint64_t *next = first + 1; next < end; next++)
        for (uint64_t *at = next; at > first && at[-1] > *at; at--) swap(at, at - 1);
}

/* The smaller part first, and the larger one by the loop, so that the stack stays small. */
static void quicksort(uint64_t *first, uint64_t *end) {
    while (end - first > FEW) {
        uint64_t *low = first, *high = end - 1, a = *first, b = first[(end - first) / 2], c = end[-1];
        uint64_t pivot = a < b ? (b < c ? b : a < c ? c : a) : (a < c ? a : b < c ? c : b);
        while (low <= high) {
            while (*low < pivot) low++;
            while (*high > pivot) high--;
            if (low <= high) swap(low++, high--);
        }
        if (high + 1 - first < end - low) {
            quicksort(first, high + 1);
            first = low;
        } else {
            quicksort(low, end);
            end = high + 1;
        }
    }
    insertion_sort(first, end);
}

/* Order and sum of a file, read in the ordinary way. */
static bool look(const char *path, bool *sorted, uint64_t *sum) {
    static uint64_t numbers[8192];
    FILE *file = fopen(path, "rb");
    uint64_t last = 0;
    size_t count;
    if (file == NULL) return false;
    *sorted = true;
    *sum = 0;
    while ((count = fread(numbers, sizeof numbers[0], sizeof numbers / sizeof numbers[0], file)) != 0)
        for (size_t i = 0; i < count; i++) {
            if (numbers[i] < last) *sorted = false;
            last = numbers[i];
            *sum += last;
        }
    bool ok = !ferror(file);
    return fclose(file) == 0 && ok;
}

static int make(const char *path, size_t mib) {
    FILE *file = fopen(path, "wb");
    uint64_t random = 88172645463325252u;
    if (file == NULL) return fail(path, strerror(errno));
    for (size_t i = 0; i < mib * MIB / sizeof random; i++) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        if (fwrite(&random, sizeof random, 1, file) != 1) break;
    }
    bool bad = ferror(file) != 0;
    return fclose(file) != 0 || bad ? fail(path, strerror(errno)) : EXIT_SUCCESS;
}

/* Write errors are waited out by whoever makes room on the disk; here they are only told. */
static enum strata_paging_decision tell(const struct strata_paging_error *error, void *path) {
    fprintf(stderr, "paging_sort: %s: %s of %zu bytes at %llu: %s\n", (const char *)path, error->write ? "write" : "read", error->bytes,
            (unsigned long long)error->offset_bytes, strerror(error->error));
    return error->write ? STRATA_PAGING_GO_ON : STRATA_PAGING_GIVE_UP;
}

static int sort(char *path, size_t bytes, size_t limit_bytes) {
    struct strata_paging_config config = {
        .path = path, .bytes = bytes, .resident_limit_bytes = limit_bytes, .handler = tell, .handler_argument = path};
    struct strata_paging *paging;
    struct strata_paging_stats stats;
    uint64_t before, after;
    bool sorted;
    if (!look(path, &sorted, &before)) return fail(path, strerror(errno));
    enum strata_paging_status status = strata_paging_open(&config, &paging);
    if (status == STRATA_PAGING_OK) {
        uint64_t *numbers = strata_paging_address(paging);
        quicksort(numbers, numbers + bytes / sizeof *numbers);
        strata_paging_stats_get(paging, &stats);
        status = strata_paging_close(paging, STRATA_PAGING_SAVE);
    }
    if (status != STRATA_PAGING_OK) return fail(path, status == STRATA_PAGING_FILE_ERROR ? strerror(errno) : strata_paging_status_text(status));
    if (!look(path, &sorted, &after)) return fail(path, strerror(errno));
    printf("%s: %zu numbers in %llu of %llu pages: %llu faults, %llu pages read (%llu ahead), %llu written\n",
           sorted && before == after ? "sorted" : "NOT SORTED", bytes / sizeof(uint64_t), (unsigned long long)stats.resident_limit,
           (unsigned long long)stats.pages, (unsigned long long)stats.faults, (unsigned long long)stats.reads, (unsigned long long)stats.read_ahead,
           (unsigned long long)stats.writes);
    return sorted && before == after ? EXIT_SUCCESS : EXIT_FAILURE;
}

int main(int argc, char **argv) {
    struct stat file;
    if (argc == 4 && strcmp(argv[1], "--make") == 0) return make(argv[2], strtoul(argv[3], NULL, 10));
    if (argc < 2 || argc > 3) return fail("use", "paging_sort FILE [MIB], or paging_sort --make FILE MIB");
    if (stat(argv[1], &file) != 0) return fail(argv[1], strerror(errno));
    size_t bytes = (size_t)file.st_size;
    if (bytes % sizeof(uint64_t) != 0) return fail(argv[1], "no whole number of 8 bytes each");
    return sort(argv[1], bytes, argc == 3 ? strtoul(argv[2], NULL, 10) * MIB : bytes / 4 > LIMIT_MIN ? bytes / 4 : LIMIT_MIN);
}
