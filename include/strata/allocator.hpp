/*
 * strata/allocator.hpp - allocators for C++ containers: strata::allocator<T>, the heap as it is; strata::batch_allocator<T>, nodes out of batches.
 *
 * A std::list, map, set or unordered_map allocates its nodes one by one, although there will be many and all of one size. A batch_allocator fetches
 * them by strata_batch_alloc1, hands them out one by one, and gathers those that are freed for one call as well; the container doesn't know.
 *
 *     std::list<int, strata::batch_allocator<int>> numbers;                                          // batches that grow with the list
 *     std::map<int, int, std::less<>, strata::batch_allocator<std::pair<const int, int>>> index;
 *     std::list<int, strata::batch_allocator<int>> million(strata::batch_allocator<int>(1000000));   // who knows how many says so
 *
 * C++17, and exceptions. Blocks are those of strata_malloc, whichever malloc the program has: link libstrata or libstrata-only. For all of it, where
 * nothing else is said:
 *   - failure is std::bad_alloc, after the new_handler was asked as by operator new: each time it returns, the heap is tried again; more elements
 *     than max_size() are std::bad_array_new_length, at once. What was there before is as it was;
 *   - alignments above 16, those of over-aligned types included, are kept;
 *   - threads: any, for strata::allocator; see batch_allocator for that. fork: as strata_malloc. signals: not async-signal-safe;
 *   - cost: that of strata_malloc and strata_free.
 *
 * The use of batches in containers follows Douglas, N1527, "Latency Reducing Memory Allocation in the C standard library" (2010), 7.22.3.3, and "User
 * Mode Memory Page Allocation" (2011), section 2.
 */
#ifndef STRATA_ALLOCATOR_HPP
#define STRATA_ALLOCATOR_HPP

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <new>
#include <type_traits>
#include <utility>

#include <strata/batch.h>
#include <strata/malloc.h>

namespace strata {

namespace detail {

/* What strata_malloc gives by itself. */
constexpr std::size_t natural_alignment = 16;

/* Calls `attempt` until it returns an address, with the new_handler in between; std::bad_alloc where there is none. */
template <class Attempt> void *insist(Attempt attempt) {
    for (;;) {
        void *block = attempt();
        if (block != nullptr) return block;
        std::new_handler handler = std::get_new_handler();
        if (handler == nullptr) throw std::bad_alloc();
        handler();
    }
}

inline void *allocate(std::size_t bytes, std::size_t alignment) {
    if (alignment <= natural_alignment) return insist([=] { return strata_malloc(bytes); });
    return insist([=] { return strata_aligned_alloc(alignment, bytes); });
}

/* bytes, alignment: those of the allocation. */
inline void deallocate(void *block, std::size_t bytes, std::size_t alignment) noexcept {
    if (alignment <= natural_alignment)
        strata_free_sized(block, bytes);
    else
        strata_free_aligned_sized(block, alignment, bytes);
}

/* How many elements there can be at once. */
template <class T> constexpr std::size_t count_max = static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max()) / sizeof(T);

template <class T> T *allocate_array(std::size_t count) {
    if (count > count_max<T>) throw std::bad_array_new_length();
    return static_cast<T *>(allocate(count * sizeof(T), alignof(T)));
}

/*
 * Blocks of one size and alignment: those to hand out, and those that came back. Used by one thread at a time.
 *
 * Invariant: nodes_[0, count_) are allocated and nobody's, count_ <= full_ <= room_. The array only grows in fetch, which may fail; put never does.
 */
class batch_stock {
  public:
    /* Batches begin with so many nodes and double up to the greatest, so that a small container holds little. */
    static constexpr std::size_t first_batch = 8;
    /* So many that came back are gathered at most where none was left: of more, the first have left the processor's caches when they are freed. */
    static constexpr std::size_t gathered_max = 1024;
    /* So much is fetched ahead at most, which the nearest cache holds beside what is freed. */
    static constexpr std::size_t ahead_bytes = 16384, line_bytes = 64;

    batch_stock(std::size_t bytes, std::size_t alignment, std::size_t batch, bool whole, batch_stock *next) noexcept
        : next_(next), bytes_(bytes), alignment_(alignment), batch_max_(batch), batch_(whole || batch < first_batch ? batch : first_batch) {}
    batch_stock(const batch_stock &) = delete;
    batch_stock &operator=(const batch_stock &) = delete;
    ~batch_stock() {
        give(count_);
        strata_free(nodes_);
    }

    bool serves(std::size_t bytes, std::size_t alignment) const noexcept { return bytes == bytes_ && alignment == alignment_; }
    batch_stock *next() const noexcept { return next_; }

    /* A new_handler may free nodes of this stock: they are what it asked for, and a fetch would forget them. */
    void *take() {
        if (count_ == 0) insist([this] { return count_ != 0 || fetch() ? nodes_ : nullptr; });
        return nodes_[--count_];
    }
    void put(void *node) noexcept {
        if (count_ == 0) full_ = room_ < gathered_max ? room_ : gathered_max;
        if (count_ == full_) give((full_ + 1) / 2); /* not all: the next may be an allocation again */
        nodes_[count_++] = node;
    }

  private:
    /* Whether there is one node at least. */
    bool fetch() noexcept {
        if (room_ < batch_) {
            void *grown = strata_realloc(nodes_, batch_ * sizeof *nodes_);
            if (grown == nullptr && room_ == 0 && batch_ > first_batch) { /* of a batch that large there is no memory for the addresses */
                batch_ = first_batch;
                grown = strata_realloc(nullptr, batch_ * sizeof *nodes_);
            }
            if (grown != nullptr) {
                nodes_ = static_cast<void **>(grown);
                room_ = batch_;
            } else if (room_ == 0) {
                return false;
            }
        }
        std::size_t count = room_, bytes = bytes_;
        for (std::size_t i = 0; i < room_; i++) nodes_[i] = nullptr;
        strata_batch_alloc1(nullptr, nodes_, &count, &bytes, alignment_ <= natural_alignment ? 0 : alignment_, 0, STRATA_BATCH_ALL_ALLOC);
        if (count != room_) { /* memory has ended: those that there are move together */
            std::size_t there = 0;
            for (std::size_t i = 0; i < room_; i++)
                if (nodes_[i] != nullptr) nodes_[there++] = nodes_[i];
        }
        /* They come in ascending order, and go from the end: so a container's nodes follow each other in memory, as its walks like it. */
        for (std::size_t front = 0, back = count; front + 1 < back; front++) std::swap(nodes_[front], nodes_[--back]);
        count_ = count;
        full_ = room_;
        batch_ = batch_ > batch_max_ / 2 ? batch_max_ : 2 * batch_;
        return count_ != 0;
    }
    /*
     * The last `count` of them go to the heap. A container that ends walks along its nodes, and waits for those that are in no cache; here nobody
     * walks. Where what came back lies close together, the next to come are those behind it, in one direction or the other: they are fetched in the
     * meantime. (A function that did nothing else would be left out by gcc, which sees no effect.)
     */
    void give(std::size_t count) noexcept {
        if (count == 0) return;
        const std::uintptr_t first = reinterpret_cast<std::uintptr_t>(nodes_[count_ - count]),
                             last = reinterpret_cast<std::uintptr_t>(nodes_[count_ - 1]);
        const bool ascending = first <= last;
        const std::uintptr_t span = ascending ? last - first : first - last, ahead = span < ahead_bytes ? span : ahead_bytes;
        for (std::uintptr_t at = line_bytes; at <= ahead && span / 2 <= count * bytes_; at += line_bytes)
            __builtin_prefetch(reinterpret_cast<const void *>(ascending ? last + at : last - at)); /* a hint: any address will do */
        count_ -= count;
        strata_batch_alloc1(nullptr, nodes_ + count_, &count, nullptr, 0, 0, STRATA_BATCH_ALL_FREE);
    }

    batch_stock *next_;
    std::size_t bytes_, alignment_, batch_max_, batch_, count_ = 0, full_ = 0, room_ = 0;
    void **nodes_ = nullptr;
};

/* What copies of one batch_allocator share, whatever their types: a stock for each size. Counts its owners; ends with the last. */
class batch_state {
  public:
    /* A batch takes this much at most where nobody said how many, and 256 nodes. */
    static constexpr std::size_t batch_bytes = 65536, batch_count = 256;

    static batch_state *create(std::size_t batch) { return ::new (allocate(sizeof(batch_state), alignof(batch_state))) batch_state(batch); }
    batch_state(const batch_state &) = delete;
    batch_state &operator=(const batch_state &) = delete;

    void acquire() noexcept { owners_.fetch_add(1, std::memory_order_relaxed); }
    /* Release, and acquire by the last: what other owners did to the stocks comes before their end. */
    void drop() noexcept {
        if (owners_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
        while (first_ != nullptr) {
            batch_stock *stock = first_;
            first_ = stock->next();
            stock->~batch_stock();
            strata_free(stock);
        }
        this->~batch_state();
        strata_free(this);
    }

    std::size_t batch() const noexcept { return batch_; }
    /* The stock of a size: NULL where there is none yet. A container has one kind of node, so that the first one is mostly it. */
    batch_stock *find(std::size_t bytes, std::size_t alignment) const noexcept {
        batch_stock *stock = first_;
        while (stock != nullptr && !stock->serves(bytes, alignment)) stock = stock->next();
        return stock;
    }
    batch_stock *add(std::size_t bytes, std::size_t alignment) {
        void *place = allocate(sizeof(batch_stock), alignof(batch_stock));
        std::size_t fit = batch_bytes / bytes, batch = fit < batch_count ? (fit == 0 ? 1 : fit) : batch_count;
        first_ = ::new (place) batch_stock(bytes, alignment, batch_ != 0 ? batch_ : batch, batch_ != 0, first_);
        return first_;
    }

  private:
    explicit batch_state(std::size_t batch) noexcept : batch_(batch) {}
    ~batch_state() = default;

    std::atomic<std::size_t> owners_{1};
    std::size_t batch_; /* 0: as batch_bytes and batch_count say */
    batch_stock *first_ = nullptr;
};

} // namespace detail

/*
 * strata::allocator<T> - std::allocator on strata's heap: without state, all are equal, a block may be freed by any.
 *
 * For programs whose operator new is not strata's; others have the same from std::allocator.
 */
template <class T> class allocator {
  public:
    using value_type = T;
    using size_type = std::size_t;
    using difference_type = std::ptrdiff_t;
    using propagate_on_container_move_assignment = std::true_type;
    using is_always_equal = std::true_type;

    constexpr allocator() noexcept = default;
    template <class U> constexpr allocator(const allocator<U> &) noexcept {}

    /* count: elements; 0 is a block of its own, too. Returns the block, for deallocate with the same count. */
    [[nodiscard]] T *allocate(std::size_t count) { return detail::allocate_array<T>(count); }
    void deallocate(T *block, std::size_t count) noexcept { detail::deallocate(block, count * sizeof(T), alignof(T)); }
    constexpr std::size_t max_size() const noexcept { return detail::count_max<T>; }
};
template <class T, class U> constexpr bool operator==(const allocator<T> &, const allocator<U> &) noexcept { return true; }
template <class T, class U> constexpr bool operator!=(const allocator<T> &, const allocator<U> &) noexcept { return false; }

/*
 * strata::batch_allocator<T> - single blocks come out of batches and go back to the heap in batches; arrays (of buckets) one by one.
 *
 * Copies share their nodes, those that a container rebinds to other types included, and are equal; allocators that were made apart are not. What is
 * still in stock is freed when the last copy ends: mostly the container's own.
 *
 * Containers: a copy of a container has nodes of its own, one that is assigned to keeps its own, moves and swaps take them along in constant time.
 * splice and merge want equal allocators, as ever: give both containers copies of one.
 *
 * Threads: copies that share nodes belong to one thread at a time, as with std::pmr::unsynchronized_pool_resource. A container that was moved from
 * shares with the one that has its contents: it may end on any thread, but be used again only on that one's.
 *
 * batch: nodes a batch, all of them in the first one already, so that a container that knows its size is one batch; it costs an address each while
 * the allocator lives. 0, or without: 8, doubling up to 256, or up to 64 KiB of larger nodes. Construction throws std::bad_alloc. Cost: some ns a
 * node; every batch is one call of strata_batch_alloc1, and another each half batch, or half 1,024, of nodes that came back.
 *
 * When it pays, where malloc is strata's: nodes are written and read by their container, which soon is most of the time, and a freed node waits in
 * the stock before it goes. So containers are built in less time (5 to 20 %), best where thousands of nodes come at once, and end in as much or a
 * tenth less, as what lies behind a batch of nodes that go is fetched meanwhile; below some hundred nodes nothing is won. docs/papers.md has figures.
 */
template <class T> class batch_allocator {
  public:
    using value_type = T;
    using size_type = std::size_t;
    using difference_type = std::ptrdiff_t;
    using propagate_on_container_copy_assignment = std::false_type;
    using propagate_on_container_move_assignment = std::true_type;
    using propagate_on_container_swap = std::true_type;
    using is_always_equal = std::false_type;

    explicit batch_allocator(std::size_t batch) : state_(detail::batch_state::create(checked(batch))) {}
    batch_allocator() : batch_allocator(0) {}
    /* The one that is moved from stays equal: a container that gave its contents away goes on. */
    batch_allocator(const batch_allocator &other) noexcept : state_(other.state_) { state_->acquire(); }
    template <class U> batch_allocator(const batch_allocator<U> &other) noexcept : state_(other.state_) { state_->acquire(); }
    batch_allocator &operator=(const batch_allocator &other) noexcept {
        other.state_->acquire(); /* first: they may be one */
        state_->drop();
        state_ = other.state_;
        return *this;
    }
    ~batch_allocator() { state_->drop(); }

    [[nodiscard]] T *allocate(std::size_t count) {
        if (count != 1) return detail::allocate_array<T>(count);
        detail::batch_stock *stock = state_->find(sizeof(T), alignof(T));
        if (stock == nullptr) stock = state_->add(sizeof(T), alignof(T));
        return static_cast<T *>(stock->take());
    }
    void deallocate(T *block, std::size_t count) noexcept {
        if (count != 1)
            detail::deallocate(block, count * sizeof(T), alignof(T));
        else
            state_->find(sizeof(T), alignof(T))->put(block); /* where it came from */
    }
    constexpr std::size_t max_size() const noexcept { return detail::count_max<T>; }
    /* As given to the constructor. */
    std::size_t batch() const noexcept { return state_->batch(); }
    /* A copy of a container: it may belong to another thread. */
    batch_allocator select_on_container_copy_construction() const { return batch_allocator(state_->batch()); }

    template <class U> bool operator==(const batch_allocator<U> &other) const noexcept { return state_ == other.state_; }
    template <class U> bool operator!=(const batch_allocator<U> &other) const noexcept { return state_ != other.state_; }

  private:
    template <class U> friend class batch_allocator;

    static std::size_t checked(std::size_t batch) {
        if (batch > detail::count_max<void *>) throw std::bad_array_new_length();
        return batch;
    }

    detail::batch_state *state_; /* never NULL */
};

} // namespace strata

#endif
