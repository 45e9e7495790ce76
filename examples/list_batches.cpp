/*
 * list_batches.cpp - a std::list whose nodes come in batches.
 *
 * A list allocates its nodes one by one, although who fills it knows how many there will be. strata::batch_allocator fetches them in batches, hands
 * them out one by one, and gathers those that are freed for one call as well: no container has to know. Its stock belongs to a list (and copies of
 * its allocator), so that it needs no lock; what is in stock in the end is freed with it.
 *
 *     c++ -std=c++17 -O2 list_batches.cpp $(pkg-config --cflags --libs strata) && ./a.out [NODES [BATCH]]
 *
 * The list is built and destroyed twice with each allocator; the second time counts, when the heap has the memory. The times are the program's
 * own and depend on the machine; that both lists have the same contents, and that all nodes went back, is checked. (Douglas, "User Mode Memory Page
 * Allocation", section 2, with std::list<int>(4000000).)
 */
#include <strata/allocator.hpp>
#include <strata/strata.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <list>
#include <memory>

namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

template <class List> long run(const char *name, std::size_t nodes, const typename List::allocator_type &allocator) {
    long sum = 0;
    for (int round = 0; round < 2; round++) {
        auto start = std::chrono::steady_clock::now();
        auto *list = new List(
            std::allocator_traits<typename List::allocator_type>::select_on_container_copy_construction(allocator)); /* whose stock ends with it */
        for (std::size_t i = 0; i < nodes; i++) list->push_back(static_cast<int>(i));
        double built = seconds_since(start);
        sum = 0;
        for (int value : *list) sum += value;
        start = std::chrono::steady_clock::now();
        delete list;
        if (round == 1)
            std::printf("%-10s nodes=%zu sum=%ld built_ms=%.1f ended_ms=%.1f\n", name, nodes, sum, built * 1e3, seconds_since(start) * 1e3);
    }
    return sum;
}

} // namespace

int main(int argc, char **argv) {
    constexpr std::size_t max = 100000000;
    std::size_t nodes = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 4000000, batch = argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 1000;
    if (nodes == 0 || batch == 0 || nodes > max || batch > max) {
        std::fprintf(stderr, "list_batches: NODES and BATCH are 1 to %zu\n", max);
        return EXIT_FAILURE;
    }
    long plain = run<std::list<int>>("one by one", nodes, std::allocator<int>());
    long batched = run<std::list<int, strata::batch_allocator<int>>>("batches", nodes, strata::batch_allocator<int>(batch));
    const char *broken = strata_check();
    if (plain != batched || broken != nullptr) {
        std::fprintf(stderr, "list_batches: %s\n", broken != nullptr ? broken : "the lists differ");
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
