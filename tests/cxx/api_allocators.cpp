/*
 * api_allocators.cpp - strata::allocator, strata::batch_allocator and strata::heap_resource: requirements on allocators, containers beside those of
 * the standard allocator with random operations, memory that ends, and containers that go from thread to thread.
 *
 * api_allocators [SEED]
 */
#include <strata/memory_resource.hpp>
#include <strata/strata.h>

#include <algorithm>
#include <array>
#include <deque>
#include <list>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "cxx/expect.hpp"

const char *strata_conf = "hard_limit:128M";

namespace {

template <class T> using Batch = strata::batch_allocator<T>;
using BatchList = std::list<int, Batch<int>>;
using Traits = std::allocator_traits<strata::allocator<int>>;
using BatchTraits = std::allocator_traits<Batch<int>>;

static_assert(Traits::is_always_equal::value && Traits::propagate_on_container_move_assignment::value);
static_assert(std::is_same_v<Traits::rebind_alloc<char>, strata::allocator<char>> && std::is_empty_v<strata::allocator<int>>);
static_assert(!BatchTraits::is_always_equal::value && BatchTraits::propagate_on_container_move_assignment::value);
static_assert(BatchTraits::propagate_on_container_swap::value && !BatchTraits::propagate_on_container_copy_assignment::value);
static_assert(std::is_nothrow_copy_constructible_v<Batch<int>> && std::is_nothrow_move_assignable_v<BatchList>);

struct alignas(128) Wide {
    explicit Wide(int number) : value(number) {}
    int value;
    bool placed() const { return reinterpret_cast<std::uintptr_t>(this) % 128 == 0; }
};

void plain_allocator() {
    strata::allocator<int> a;
    strata::allocator<double> b(a);
    EXPECT(a == b && !(a != b) && a.max_size() == static_cast<std::size_t>(PTRDIFF_MAX) / sizeof(int));
    std::vector<std::string, strata::allocator<std::string>> words(1000, "a word that is too long for the string itself"), others;
    others = std::move(words);
    EXPECT(others.size() == 1000 && others[999].size() == 45);
    std::list<Wide, strata::allocator<Wide>> wide;
    for (int i = 0; i < 100; i++) EXPECT(wide.emplace_back(i).placed());
    EXPECT(throws<std::bad_array_new_length>([&] { (void)a.allocate(a.max_size() + 1); }));
    EXPECT(throws<std::bad_alloc>([&] { (void)a.allocate(a.max_size()); }));
    int *nothing = a.allocate(0);
    EXPECT(nothing != nullptr);
    a.deallocate(nothing, 0);
}

void resource() {
    strata::heap_resource other;
    EXPECT(strata::heap() == strata::heap() && strata::heap()->is_equal(other) && !strata::heap()->is_equal(*std::pmr::new_delete_resource()));
    EXPECT(!std::pmr::new_delete_resource()->is_equal(*strata::heap()));
    for (std::size_t alignment = 1; alignment <= 65536; alignment *= 2)
        for (std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{1000}, std::size_t{100000}}) {
            void *block = strata::heap()->allocate(bytes, alignment);
            EXPECT(reinterpret_cast<std::uintptr_t>(block) % alignment == 0 && strata_malloc_usable_size(block) >= bytes);
            other.deallocate(block, bytes, alignment);
        }
    volatile std::size_t too_much = SIZE_MAX; /* a constant would be refused by the compiler */
    EXPECT(throws<std::bad_alloc>([&] { (void)strata::heap()->allocate(too_much, 1); }));
    EXPECT(throws<std::bad_alloc>([] { (void)strata::heap()->allocate(std::size_t{200} << 20, 4096); }));
    std::pmr::unsynchronized_pool_resource pool(strata::heap());
    std::pmr::map<int, std::pmr::string> names(&pool);
    for (int i = 0; i < 1000; i++) names.emplace(i, "a name that is too long for the string itself");
    EXPECT(names.at(999).size() == 45 && names.at(0).get_allocator().resource() == &pool);
}

/* -------------------------------------------------------------------------------- batches */

void equality() {
    Batch<int> a, b, copy(a);
    Batch<std::string> rebound(a);
    EXPECT(a == copy && a != b && rebound == a && a == rebound && Batch<int>(rebound) == a && !(a != copy));
    Batch<int> moved(std::move(copy));
    EXPECT(moved == a && copy == a); /* a container that was moved from goes on with it */
    EXPECT(BatchTraits::select_on_container_copy_construction(a) != a && Batch<int>(77).batch() == 77 && a.batch() == 0);
    b = a;
    b = *&b;
    EXPECT(b == a);
    /* What was allocated by one is freed by a copy, also of another type. */
    std::string *single = rebound.allocate(1), *array = rebound.allocate(9);
    Batch<std::string>(b).deallocate(single, 1);
    rebound.deallocate(array, 9);
    EXPECT(throws<std::bad_array_new_length>([&] { (void)a.allocate(SIZE_MAX); }));
    EXPECT(throws<std::bad_array_new_length>([] { Batch<int> huge(SIZE_MAX); }));
    Batch<int> absurd(std::size_t{1} << 40); /* no memory for the addresses of a batch: smaller ones */
    absurd.deallocate(absurd.allocate(1), 1);
}

void propagation() {
    BatchList a{1, 2, 3}, b(a);
    EXPECT(a == b && a.get_allocator() != b.get_allocator());
    b.push_back(4);
    const int *place = &b.back();
    auto nodes_of_b = b.get_allocator();
    a = b; /* nodes of its own */
    EXPECT(a == b && a.get_allocator() != b.get_allocator() && &a.back() != place);
    a = std::move(b);
    EXPECT(a.get_allocator() == nodes_of_b && &a.back() == place && b.empty());
    b.push_back(9); /* from the same nodes as a now */
    EXPECT(b.get_allocator() == a.get_allocator());
    a.splice(a.begin(), b);
    EXPECT(a.front() == 9 && a.size() == 5);
    BatchList c(Batch<int>(5));
    auto nodes_of_c = c.get_allocator();
    c.assign(7, 1);
    c.swap(a);
    EXPECT(a.get_allocator() == nodes_of_c && c.get_allocator() == nodes_of_b && a.size() == 7 && c.size() == 5 && &c.back() == place);
}

/* Objects of a heap, alive and in stock, are its own business; what isn't freed in the end the sanitizers' build doesn't see. So: blocks in use. */
std::size_t in_use() { return strata_mallinfo2().uordblks + strata_mallinfo2().hblkhd; }

/* The rest of a batch goes back with its container, and a container of few nodes doesn't hold many. */
void given_back() {
    in_use();
    std::size_t before = in_use();
    {
        BatchList list(Batch<int>(100000));
        list.push_back(1);
        EXPECT(in_use() >= before + 100000 * 24);
        BatchList heir(std::move(list));
        std::list<double, Batch<double>> rebound((Batch<double>(heir.get_allocator())));
        rebound.push_back(1);
    }
    EXPECT(in_use() == before);
    {
        BatchList small{1, 2, 3};
        EXPECT(in_use() < before + 4096);
        for (int i = 0; i < 100000; i++) small.push_back(i);
        std::size_t full = in_use();
        EXPECT(full < before + 100000 * 32 + 65536);
        small.clear();
        EXPECT(in_use() < before + 65536);
    }
    EXPECT(in_use() == before);
    {
        BatchList whole(100000, 1, Batch<int>(100000));
        EXPECT(in_use() >= before + 100000 * 24);
        whole.clear(); /* of so many few wait to be used again, beside an address for each */
        EXPECT(in_use() < before + 100000 * sizeof(void *) + 65536);
        whole.resize(100000, 2);
        EXPECT(std::count(whole.begin(), whole.end(), 2) == 100000);
    }
    EXPECT(in_use() == before);
    {
        std::list<std::array<char, 40000>, Batch<std::array<char, 40000>>> large(3); /* nodes of more than half a batch's bytes come alone */
        EXPECT(in_use() < before + 4 * 65536);
    }
    EXPECT(in_use() == before);
}

void over_aligned() {
    std::list<Wide, Batch<Wide>> list;
    std::map<int, Wide, std::less<>, Batch<std::pair<const int, Wide>>> map;
    for (int i = 0; i < 3000; i++) {
        EXPECT(list.emplace_back(i).placed() && map.emplace(i, i).first->second.placed());
        if (i % 3 == 0) map.erase(i / 2), list.pop_front();
    }
    int expected = 1000;
    for (const Wide &wide : list) EXPECT(wide.value == expected++);
}

/* The heap ends: what is in a container stays, and after some of it went there is room again. */
void memory_ends() {
    const std::string long_text(2000, 'z');
    for (std::size_t batch : {std::size_t{0}, std::size_t{1}, std::size_t{50000}}) {
        using Node = std::array<char, 2000>;
        std::list<Node, Batch<Node>> list((Batch<Node>(batch)));
        EXPECT(throws<std::bad_alloc>([&] {
            for (;;) list.emplace_back()[1999] = static_cast<char>(list.size());
        }));
        EXPECT(list.size() > 20000 && list.size() < 70000);
        std::size_t count = 0;
        for (const Node &node : list) EXPECT(node[1999] == static_cast<char>(count++));
        list.resize(list.size() / 2);
        for (int i = 0; i < 10000; i++) list.emplace_back();
    }
    EXPECT(strata_check() == nullptr);
}

/* A new_handler that lets go of nodes of the same stock, once: what it frees serves, and nothing of it is lost. */
using Spared = std::array<char, 2000>;
std::list<Spared, Batch<Spared>> *spare;
void free_spare() {
    spare->clear();
    std::set_new_handler(nullptr);
}

void handler_frees() {
    const std::size_t before = strata_mallinfo2().uordblks;
    {
        std::list<Spared, Batch<Spared>> list, rest(list.get_allocator());
        rest.resize(200);
        spare = &rest;
        std::set_new_handler(free_spare);
        EXPECT(throws<std::bad_alloc>([&] {
            for (;;) list.emplace_back();
        }));
        EXPECT(rest.empty() && std::get_new_handler() == nullptr);
    }
    const std::size_t after = strata_mallinfo2().uordblks;
    EXPECT(after < before + 8 * sizeof(Spared));
}

/* -------------------------------------------------------------------------------- containers beside those of std::allocator */

/* Each of them with its pair; a step does the same to both. */
void lists(Random &random, std::size_t steps) {
    BatchList a, other_a(a.get_allocator());
    std::list<int> b, other_b;
    for (std::size_t step = 0; step < steps; step++) {
        int value = static_cast<int>(random.below(100));
        switch (random.below(9)) {
        case 0:
        case 1:
            a.push_back(value);
            b.push_back(value);
            break;
        case 2:
            a.push_front(value);
            b.push_front(value);
            break;
        case 3:
            a.insert(a.end(), 30, value);
            b.insert(b.end(), 30, value);
            break;
        case 4:
            a.remove(value);
            b.remove(value);
            break;
        case 5:
            a.swap(other_a);
            b.swap(other_b);
            break;
        case 6:
            a.splice(a.begin(), other_a);
            b.splice(b.begin(), other_b);
            break;
        case 7:
            if (!b.empty()) a.pop_front(), b.pop_front();
            break;
        default: a.sort(), b.sort(); a.unique(), b.unique();
        }
        EXPECT(a.size() == b.size());
        if (step % 16 == 0) EXPECT(std::equal(a.begin(), a.end(), b.begin(), b.end()));
        if (random.below(300) == 0) {
            a = BatchList(a); /* copied, and the old nodes' stock ends once other_a lets go of it */
            other_a = BatchList(a.get_allocator());
            other_b.clear();
        }
    }
}

template <class A, class B> void same_map(const A &a, const B &b) {
    EXPECT(a.size() == b.size());
    for (const auto &[key, value] : b) {
        auto found = a.find(key);
        EXPECT(found != a.end() && found->second == value);
    }
}

template <class A, class B> void maps(Random &random, std::size_t steps) {
    A a;
    B b;
    for (std::size_t step = 0; step < steps; step++) {
        int key = static_cast<int>(random.below(500));
        std::string value(random.below(40), 'v');
        switch (random.below(6)) {
        case 0:
        case 1:
        case 2:
            a[key] = value;
            b[key] = value;
            break;
        case 3: EXPECT(a.erase(key) == b.erase(key)); break;
        case 4: {
            auto node = a.extract(key);
            auto its = b.extract(key);
            EXPECT(node.empty() == its.empty());
            if (node.empty()) break;
            its.key() = node.key() = key + 1000;
            a.insert(std::move(node));
            b.insert(std::move(its));
            break;
        }
        default:
            if (random.below(100) == 0) {
                A copy(a);
                same_map(copy, b);
                a.clear();
                a = std::move(copy);
            }
        }
        if (step % 64 == 0) same_map(a, b);
    }
    same_map(a, b);
}

template <class A, class B> void sets(Random &random, std::size_t steps) {
    A a;
    B b;
    for (std::size_t step = 0; step < steps; step++) {
        int key = static_cast<int>(random.below(300));
        if (random.below(2) == 0) {
            a.insert(key);
            b.insert(key);
        } else {
            EXPECT(a.erase(key) == b.erase(key));
        }
        EXPECT(a.size() == b.size() && a.count(key) == b.count(key));
    }
}

void random_operations() {
    Random random(test_seed);
    using Pair = std::pair<const int, std::string>;
    lists(random, 5000);
    maps<std::map<int, std::string, std::less<>, Batch<Pair>>, std::map<int, std::string>>(random, 10000);
    maps<std::unordered_map<int, std::string, std::hash<int>, std::equal_to<>, Batch<Pair>>, std::unordered_map<int, std::string>>(random, 10000);
    sets<std::set<int, std::less<>, Batch<int>>, std::set<int>>(random, 10000);
    sets<std::unordered_multiset<int, std::hash<int>, std::equal_to<>, Batch<int>>, std::unordered_multiset<int>>(random, 10000);
    std::deque<int, Batch<int>> queue;
    std::vector<int, Batch<int>> array;
    for (int i = 0; i < 5000; i++) {
        queue.push_back(i);
        array.push_back(i);
        if (i % 3 == 0) queue.pop_front();
    }
    EXPECT(queue.back() == 4999 && queue.front() == 1667 && array[2500] == 2500);
}

/* Each container has one thread at a time; those that were moved from end elsewhere meanwhile. */
void threads() {
    std::vector<std::thread> running;
    for (int i = 0; i < 4; i++) {
        BatchList list;
        for (int n = 0; n < 1000; n++) list.push_back(n);
        running.emplace_back([list = std::move(list)]() mutable {
            long sum = 0;
            for (int n = 1000; n < 3000; n++) {
                list.push_back(n);
                sum += list.front();
                list.pop_front();
            }
            EXPECT(sum == 1999000 && list.size() == 1000);
            BatchList copy(list);
            list.clear();
            EXPECT(copy.back() == 2999);
        });
    }
    for (std::thread &one : running) one.join();
}

} // namespace

int main(int argc, char **argv) {
    if (argc > 1) test_seed = std::strtoull(argv[1], nullptr, 10);
    plain_allocator();
    resource();
    equality();
    propagation();
    given_back();
    over_aligned();
    random_operations();
    threads();
    memory_ends();
    handler_frees();
    std::puts("api_allocators: well");
    return 0;
}
