/*
 * umpa_list.cpp - std::list<int>(N), built and ended, with nodes one by one or in batches. For bench/papers/umpa_list.py.
 *
 *     umpa_list one|batches|whole NODES ROUNDS
 *
 * one: std::allocator. batches: nodes come and go in batches of 1,000. whole: one batch of all, as the paper's batch_alloc1 has it. Prints medians of
 * ROUNDS, the first left out, in processor time: the allocation of NODES alone, nothing written to them, and of the same way; the list built; and
 * ended. The contents are looked at, and the heap.
 */
#include <strata/allocator.hpp>
#include <strata/strata.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <list>
#include <new>
#include <vector>

namespace {

constexpr std::size_t NODE_BYTES = 24; /* two links and an int, as std::list has them */

[[noreturn]] void fail(const char *why) {
    std::fprintf(stderr, "umpa_list: %s\n", why);
    std::exit(EXIT_FAILURE);
}

/* Of all threads of the process: nothing here waits, and other programs on the CPU don't count. */
double cpu_ns() {
    std::timespec now;
    if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now) != 0) fail("there is no clock of the process");
    return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

double median(std::vector<double> values) {
    values.erase(values.begin());
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

std::vector<double> allocated, built, ended;

/* The nodes alone, without a list. */
void allocate(std::size_t nodes, bool one, std::size_t batch) {
    std::vector<void *> all(nodes, nullptr);
    double start = cpu_ns();
    if (one) {
        for (void *&node : all) node = ::operator new(NODE_BYTES);
    } else {
        for (std::size_t at = 0; at < nodes; at += batch) {
            std::size_t count = std::min(batch, nodes - at), wanted = count, bytes = NODE_BYTES;
            strata_batch_alloc1(nullptr, all.data() + at, &count, &bytes, 0, 0, STRATA_BATCH_ALL_ALLOC);
            if (count != wanted) fail("no memory");
        }
    }
    allocated.push_back(cpu_ns() - start);
    std::size_t count = nodes;
    strata_batch_alloc1(nullptr, all.data(), &count, nullptr, 0, 0, STRATA_BATCH_ALL_FREE);
    if (count != nodes) fail("some nodes were not freed");
}

template <class List> void build(std::size_t nodes, const typename List::allocator_type &allocator) {
    double start = cpu_ns();
    auto *list = new List(
        nodes, std::allocator_traits<typename List::allocator_type>::select_on_container_copy_construction(allocator)); /* whose stock ends with it */
    built.push_back(cpu_ns() - start);
    std::size_t seen = 0;
    for (int value : *list) seen += value == 0;
    if (seen != nodes) fail("the list is not what was built");
    start = cpu_ns();
    delete list;
    ended.push_back(cpu_ns() - start);
}

} // namespace

int main(int argc, char **argv) {
    std::size_t nodes = argc == 4 ? std::strtoul(argv[2], nullptr, 10) : 0, rounds = argc == 4 ? std::strtoul(argv[3], nullptr, 10) : 0;
    bool one = argc == 4 && std::strcmp(argv[1], "one") == 0, whole = argc == 4 && std::strcmp(argv[1], "whole") == 0;
    if (nodes == 0 || rounds == 0 || (!one && !whole && std::strcmp(argv[1], "batches") != 0)) {
        std::fprintf(stderr, "usage: umpa_list one|batches|whole NODES ROUNDS\n");
        return 2;
    }
    const std::size_t batch = whole ? nodes : std::min<std::size_t>(nodes, 1000);
    for (std::size_t round = 0; round <= rounds; round++) {
        allocate(nodes, one, batch);
        if (one)
            build<std::list<int>>(nodes, {});
        else
            build<std::list<int, strata::batch_allocator<int>>>(nodes, strata::batch_allocator<int>(batch));
    }
    const char *broken = strata_check();
    if (broken != nullptr) fail(broken);
    std::printf("{\"allocated_ns\": %.0f, \"built_ns\": %.0f, \"ended_ns\": %.0f}\n", median(allocated), median(built), median(ended));
    return EXIT_SUCCESS;
}
