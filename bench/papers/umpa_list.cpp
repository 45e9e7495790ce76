/*
 * umpa_list.cpp - std::list<int>(N), built and ended, with nodes one by one or in batches. For bench/papers/umpa_list.py.
 *
 *     umpa_list one|batches|whole NODES ROUNDS
 *
 * one: std::allocator. batches: nodes come and go in batches of 1,000. whole: one batch of all, as the paper's batch_alloc1 has it. Prints the
 * medians of ROUNDS, the first left out: the allocation of NODES alone, nothing written to them, and of the same way; the list built; and ended. The
 * contents are looked at, and the heap.
 */
#include <strata/batch.h>
#include <strata/strata.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <list>
#include <new>
#include <vector>

namespace {

constexpr std::size_t NODE_BYTES = 24; /* two links and an int; what std::list asks for is verified below */

[[noreturn]] void fail(const char *why) {
    std::fprintf(stderr, "umpa_list: %s\n", why);
    std::exit(EXIT_FAILURE);
}

/* Nodes to hand out, and those that came back: one stock for all lists, as there is one thread and one size. */
struct Stock {
    std::size_t batch = 1, count = 0;
    std::vector<void *> nodes;

    void fetch() {
        std::size_t got = batch, bytes = NODE_BYTES;
        std::fill(nodes.begin(), nodes.end(), nullptr);
        strata_batch_alloc1(nullptr, nodes.data(), &got, &bytes, 0, 0, STRATA_BATCH_ALL_ALLOC);
        if (got != batch) fail("no memory");
        count = batch;
    }
    void give() {
        std::size_t gone = count;
        if (count == 0) return;
        strata_batch_alloc1(nullptr, nodes.data(), &gone, nullptr, 0, 0, STRATA_BATCH_ALL_FREE);
        if (gone != count) fail("some nodes were not freed");
        count = 0;
    }
} stock;

template <class T> struct BatchAllocator {
    using value_type = T;
    BatchAllocator() = default;
    template <class U> BatchAllocator(const BatchAllocator<U> &) {}
    T *allocate(std::size_t count) {
        if (count != 1 || sizeof(T) != NODE_BYTES) fail("a node of another size");
        if (stock.count == 0) stock.fetch();
        return static_cast<T *>(stock.nodes[--stock.count]);
    }
    void deallocate(T *node, std::size_t) {
        if (stock.count == stock.batch) stock.give();
        stock.nodes[stock.count++] = node;
    }
    bool operator==(const BatchAllocator &) const { return true; }
    bool operator!=(const BatchAllocator &) const { return false; }
};

using Clock = std::chrono::steady_clock;
double ns_since(Clock::time_point start) { return std::chrono::duration<double, std::nano>(Clock::now() - start).count(); }

double median(std::vector<double> values) {
    values.erase(values.begin());
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

std::vector<double> allocated, built, ended;

/* The nodes alone, without a list. */
void allocate(std::size_t nodes, bool one) {
    std::vector<void *> all(nodes, nullptr);
    auto start = Clock::now();
    if (one) {
        for (void *&node : all) node = ::operator new(NODE_BYTES);
    } else {
        for (std::size_t at = 0; at < nodes; at += stock.batch) {
            std::size_t count = std::min(stock.batch, nodes - at), wanted = count, bytes = NODE_BYTES;
            strata_batch_alloc1(nullptr, all.data() + at, &count, &bytes, 0, 0, STRATA_BATCH_ALL_ALLOC);
            if (count != wanted) fail("no memory");
        }
    }
    allocated.push_back(ns_since(start));
    std::size_t count = nodes;
    strata_batch_alloc1(nullptr, all.data(), &count, nullptr, 0, 0, STRATA_BATCH_ALL_FREE);
    if (count != nodes) fail("some nodes were not freed");
}

template <class List> void build(std::size_t nodes) {
    auto start = Clock::now();
    auto *list = new List(nodes);
    built.push_back(ns_since(start));
    std::size_t seen = 0;
    for (int value : *list) seen += value == 0;
    if (seen != nodes) fail("the list is not what was built");
    start = Clock::now();
    delete list;
    stock.give();
    ended.push_back(ns_since(start));
}

} // namespace

int main(int argc, char **argv) {
    std::size_t nodes = argc == 4 ? std::strtoul(argv[2], nullptr, 10) : 0, rounds = argc == 4 ? std::strtoul(argv[3], nullptr, 10) : 0;
    bool one = argc == 4 && std::strcmp(argv[1], "one") == 0, whole = argc == 4 && std::strcmp(argv[1], "whole") == 0;
    if (nodes == 0 || rounds == 0 || (!one && !whole && std::strcmp(argv[1], "batches") != 0)) {
        std::fprintf(stderr, "usage: umpa_list one|batches|whole NODES ROUNDS\n");
        return 2;
    }
    stock.batch = whole ? nodes : std::min<std::size_t>(nodes, 1000);
    stock.nodes.resize(stock.batch);
    for (std::size_t round = 0; round <= rounds; round++) {
        allocate(nodes, one);
        if (one)
            build<std::list<int>>(nodes);
        else
            build<std::list<int, BatchAllocator<int>>>(nodes);
    }
    const char *broken = strata_check();
    if (broken != nullptr) fail(broken);
    std::printf("{\"allocated_ns\": %.0f, \"built_ns\": %.0f, \"ended_ns\": %.0f}\n", median(allocated), median(built), median(ended));
    return EXIT_SUCCESS;
}
