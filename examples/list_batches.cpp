/*
 * list_batches.cpp - a std::list whose nodes come in batches.
 *
 * A list allocates its nodes one by one, although who fills it knows how many there will be. The allocator here fetches nodes in batches by
 * strata_batch_alloc1, hands them out one by one, and gathers those that are freed for one call as well: no container has to know. Its stock
 * belongs to a list (and copies of its allocator), so that it needs no lock; what is in stock in the end is freed with it.
 *
 *     c++ -std=c++17 -O2 list_batches.cpp $(pkg-config --cflags --libs strata) && ./a.out [NODES [BATCH]]
 *
 * The list is built and destroyed twice with each allocator; the second time counts, when the heap has the memory. The times are the program's
 * own and depend on the machine; that both lists have the same contents, and that all nodes went back, is checked. (Douglas, "User Mode Memory Page
 * Allocation", section 2, with std::list<int>(4000000).)
 */
#include <strata/batch.h>
#include <strata/strata.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <list>
#include <memory>
#include <new>
#include <vector>

namespace {

/* Nodes of one size: those to hand out, and those that came back. */
class Stock {
  public:
    Stock(std::size_t bytes, std::size_t batch) : bytes_(bytes), batch_(batch), nodes_(batch, nullptr) {}
    Stock(const Stock &) = delete;
    Stock &operator=(const Stock &) = delete;
    ~Stock() { give(count_); }

    void *take() {
        if (count_ == 0) fetch();
        return nodes_[--count_];
    }
    void put(void *node) {
        if (count_ == batch_) give((batch_ + 1) / 2);
        nodes_[count_++] = node;
    }

  private:
    void fetch() {
        std::size_t count = batch_, bytes = bytes_;
        for (void *&node : nodes_) node = nullptr; /* what was handed out is no longer ours */
        strata_batch_alloc1(nullptr, nodes_.data(), &count, &bytes, 0, 0, STRATA_BATCH_ALL_ALLOC);
        if (count == 0) throw std::bad_alloc();
        if (count != batch_) { /* memory has ended: those that there are move together */
            std::size_t there = 0;
            for (void *node : nodes_)
                if (node != nullptr) nodes_[there++] = node;
        }
        count_ = count;
    }
    /* The last `count` of them. */
    void give(std::size_t count) {
        std::size_t freed = count;
        if (count == 0) return;
        strata_batch_alloc1(nullptr, nodes_.data() + count_ - count, &freed, nullptr, 0, 0, STRATA_BATCH_ALL_FREE);
        if (freed != count) std::abort();
        count_ -= count;
    }

    std::size_t bytes_, batch_, count_ = 0;
    std::vector<void *> nodes_;
};

template <class T> class BatchAllocator {
  public:
    using value_type = T;

    explicit BatchAllocator(std::size_t batch) : batch_(batch) {}
    /* A container rebinds its allocator to its nodes, which are of another size: a stock of their own. */
    template <class U> BatchAllocator(const BatchAllocator<U> &other) : batch_(other.batch()) {}

    T *allocate(std::size_t count) {
        if (count != 1) return static_cast<T *>(::operator new(count * sizeof(T)));
        if (!stock_) stock_ = std::make_shared<Stock>(sizeof(T), batch_);
        return static_cast<T *>(stock_->take());
    }
    void deallocate(T *node, std::size_t count) {
        if (count != 1)
            ::operator delete(node);
        else
            stock_->put(node);
    }
    std::size_t batch() const { return batch_; }
    bool operator==(const BatchAllocator &other) const { return stock_ == other.stock_; }
    bool operator!=(const BatchAllocator &other) const { return !(*this == other); }

  private:
    std::size_t batch_;
    std::shared_ptr<Stock> stock_;
};

double seconds_since(std::chrono::steady_clock::time_point start) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

template <class List> long run(const char *name, std::size_t nodes, const typename List::allocator_type &allocator) {
    long sum = 0;
    for (int round = 0; round < 2; round++) {
        auto start = std::chrono::steady_clock::now();
        auto *list = new List(allocator);
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
    std::size_t nodes = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 4000000, batch = argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 1000;
    if (nodes == 0 || batch == 0) {
        std::fprintf(stderr, "list_batches: NODES and BATCH are above 0\n");
        return EXIT_FAILURE;
    }
    long plain = run<std::list<int>>("one by one", nodes, std::allocator<int>());
    long batched = run<std::list<int, BatchAllocator<int>>>("batches", nodes, BatchAllocator<int>(batch));
    const char *broken = strata_check();
    if (plain != batched || broken != nullptr) {
        std::fprintf(stderr, "list_batches: %s\n", broken != nullptr ? broken : "the lists differ");
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
