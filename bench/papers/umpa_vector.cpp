/*
 * umpa_vector.cpp - a vector of 64-bit numbers that grows by push_back. For bench/papers/umpa_vector.py.
 *
 *     umpa_vector libc|std|strata BYTES ROUNDS
 *
 * libc: std::vector on glibc's malloc. std: std::vector as it comes, on strata's malloc. strata: strata::vector. Prints the
 * processor time of the first vector of the process, whose pages are new, its peak of memory, and the median time of ROUNDS further ones. The
 * contents are looked at, and the heap. A way is a process of its own, as the peak is the process's.
 */
#include <strata/strata.h>
#include <strata/vector.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <new>
#include <vector>

#include "libc_malloc.h"

namespace {

const libc_malloc libc = libc_malloc_find();

[[noreturn]] void fail(const char *why) {
    std::fprintf(stderr, "umpa_vector: %s\n", why);
    std::exit(EXIT_FAILURE);
}

template <class T> struct LibcAllocator {
    using value_type = T;
    LibcAllocator() = default;
    template <class U> LibcAllocator(const LibcAllocator<U> &) noexcept {}
    T *allocate(std::size_t count) {
        void *block = libc.allocate(count * sizeof(T));
        if (block == nullptr) throw std::bad_alloc();
        return static_cast<T *>(block);
    }
    void deallocate(T *block, std::size_t) noexcept { libc.release(block); }
    template <class U> bool operator==(const LibcAllocator<U> &) const noexcept { return true; }
    template <class U> bool operator!=(const LibcAllocator<U> &) const noexcept { return false; }
};

/* The peak of this program, which ru_maxrss isn't: that begins with the peak of who called exec. */
double peak_mib() {
    std::FILE *status = std::fopen("/proc/self/status", "r");
    if (status == nullptr) fail("/proc/self/status can't be opened");
    unsigned long kib = 0;
    char line[256];
    while (std::fgets(line, sizeof line, status) != nullptr && std::sscanf(line, "VmHWM: %lu kB", &kib) != 1) {}
    std::fclose(status);
    if (kib == 0) fail("/proc/self/status tells no peak");
    return static_cast<double>(kib) / 1024;
}

/* Of all threads of the process, the maintenance thread's work too: nothing here waits, and other programs on the CPU don't count. */
double cpu_ns() {
    std::timespec now;
    if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now) != 0) fail("there is no clock of the process");
    return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

/* From an empty vector until it holds `count`; its end is not part of it. */
template <class Vector> double push_ns(std::size_t count) {
    Vector numbers;
    double start = cpu_ns();
    for (std::uint64_t i = 0; i < count; i++) numbers.push_back(i);
    double ns = cpu_ns() - start;
    for (std::uint64_t i = 0; i < count; i++)
        if (numbers[i] != i) fail("the vector is not what was pushed");
    return ns;
}

template <class Vector> void measure(std::size_t count, std::size_t rounds) {
    double first = push_ns<Vector>(count), peak = peak_mib();
    std::vector<double> again;
    for (std::size_t round = 0; round < rounds; round++) again.push_back(push_ns<Vector>(count));
    std::sort(again.begin(), again.end());
    const char *broken = strata_check();
    if (broken != nullptr) fail(broken);
    std::printf("{\"first_ns\": %.0f, \"again_ns\": %.0f, \"peak_mib\": %.1f}\n", first, again[rounds / 2], peak);
}

} // namespace

int main(int argc, char **argv) {
    std::size_t count = argc == 4 ? std::strtoul(argv[2], nullptr, 10) / sizeof(std::uint64_t) : 0;
    std::size_t rounds = argc == 4 ? std::strtoul(argv[3], nullptr, 10) : 0;
    const char *way = count != 0 && rounds != 0 ? argv[1] : "";
    if (std::strcmp(way, "libc") == 0) {
        measure<std::vector<std::uint64_t, LibcAllocator<std::uint64_t>>>(count, rounds);
    } else if (std::strcmp(way, "std") == 0) {
        measure<std::vector<std::uint64_t>>(count, rounds);
    } else if (std::strcmp(way, "strata") == 0) {
        measure<strata::vector<std::uint64_t>>(count, rounds);
    } else {
        std::fprintf(stderr, "usage: umpa_vector libc|std|strata BYTES ROUNDS\n");
        return 2;
    }
    return EXIT_SUCCESS;
}
