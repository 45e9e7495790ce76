/*
 * api_vector.cpp - strata::vector: growth in place and by moving pages, guarantees when something throws, limits, and random operations beside
 * a std::vector.
 *
 * api_vector [SEED]
 */
#include <strata/page.h>
#include <strata/strata.h>
#include <strata/vector.hpp>

#include <sys/resource.h>

#include <climits>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include "cxx/expect.hpp"

const char *strata_conf = "hard_limit:256M";

template <> struct strata::is_trivially_relocatable<Element<Kind::BYTES>> : std::true_type {};

namespace {

constexpr std::size_t MIB = std::size_t{1} << 20;

using strata::is_trivially_relocatable_v;
static_assert(is_trivially_relocatable_v<int> && is_trivially_relocatable_v<std::unique_ptr<int>> &&
              is_trivially_relocatable_v<strata::vector<std::string>>);
static_assert(is_trivially_relocatable_v<std::pair<int, std::shared_ptr<int>>> && !is_trivially_relocatable_v<std::pair<int, std::string>>);
static_assert(!is_trivially_relocatable_v<std::string> && !is_trivially_relocatable_v<std::unique_ptr<int, void (*)(int *)>>);
static_assert(std::is_nothrow_move_constructible_v<strata::vector<std::string>> && std::is_nothrow_move_assignable_v<strata::vector<int>>);
static_assert(sizeof(strata::vector<int>) == 3 * sizeof(void *));

/* -------------------------------------------------------------------------------- growth */

/* With room behind its block a vector stays where it is, and no element is touched: those that can be moved as bytes, and those that can't. */
template <class T> void grows_in_place() {
    strata::vector<T> v, others[16];
    v.reserve(2 * MIB / sizeof(T));
    /* Others may lie behind it: then one that was allocated later has more luck. */
    enum strata_page_status status = strata_page_reserve(v.data(), 32 * MIB);
    for (strata::vector<T> &other : others) {
        if (status == STRATA_PAGE_OK) break;
        v.swap(other);
        v.reserve(2 * MIB / sizeof(T));
        status = strata_page_reserve(v.data(), 32 * MIB);
    }
    if (status != STRATA_PAGE_OK) std::fprintf(stderr, "strata_page_reserve: %s\n", strata_page_status_text(status));
    EXPECT(status == STRATA_PAGE_OK);
    for (int i = 0; v.size() < v.capacity(); i++) v.emplace_back(i);
    const T *place = v.data();
    std::size_t before = v.capacity();
    long moved = moved_elements, copied = copied_elements;
    v.emplace_back(7);
    v.reserve(8 * MIB / sizeof(T));
    EXPECT(v.data() == place && v.capacity() >= 4 * before && v.size() == before + 1);
    EXPECT(moved_elements == moved && copied_elements == copied);
    for (std::size_t i = 0; i < before; i++) EXPECT(v[i] == T(static_cast<int>(i)));
    v.resize(1000);
    v.shrink_to_fit();
    EXPECT(v.capacity() == 1000 && v[999] == T(999));
}

/* Two vectors that are in each other's way: pages change their address. A copy would need new ones, which are counted as faults. */
void grows_by_moving_pages() {
    strata::vector<std::uint64_t> a(MIB / 8), b(MIB / 8);
    long moves = 0, faults = 0, pages = 0;
    struct rusage before, after;
    for (std::size_t bytes = MIB; bytes < 32 * MIB; bytes *= 2) {
        for (auto *v : {&a, &b}) {
            for (std::size_t i = v->size() == MIB / 8 ? 0 : v->size() / 2; i < v->size(); i++) (*v)[i] = i * 3 + (v == &b);
            const void *place = v->data();
            std::size_t size = v->size();
            getrusage(RUSAGE_SELF, &before);
            v->reserve(2 * size);
            getrusage(RUSAGE_SELF, &after);
            moves += v->data() != place;
            faults += after.ru_minflt - before.ru_minflt;
            pages += static_cast<long>(size * 8 / 4096);
            for (std::size_t i = 0; i < size; i += 1) EXPECT((*v)[i] == i * 3 + (v == &b));
            v->resize(2 * size);
        }
    }
    EXPECT(moves > 0);
    EXPECT(faults < pages / 8);
}

void small_growth() {
    strata::vector<short> v;
    std::size_t changes = 0, capacity = 0;
    for (short i = 0; i < 30000; i++) {
        v.push_back(i);
        changes += v.capacity() != capacity;
        capacity = v.capacity();
    }
    EXPECT(changes < 12);
    for (short i = 0; i < 30000; i++) EXPECT(v[static_cast<std::size_t>(i)] == i);
}

struct alignas(256) Wide {
    int value;
    bool operator==(const Wide &other) const { return value == other.value; }
};

void over_aligned() {
    strata::vector<Wide> v;
    for (int i = 0; i < 20000; i++) { /* 5 MiB: through size classes and blocks of pages */
        v.push_back(Wide{i});
        EXPECT(reinterpret_cast<std::uintptr_t>(v.data()) % 256 == 0);
    }
    v.insert(v.begin() + 10, Wide{-1});
    EXPECT(v[10].value == -1 && v[11].value == 10 && v.back().value == 19999);
    v.resize(3);
    v.shrink_to_fit();
    EXPECT(v.capacity() == 3 && v[2].value == 2 && reinterpret_cast<std::uintptr_t>(v.data()) % 256 == 0);
    EXPECT(strata::vector<Wide>(5)[4].value == 0);
}

/* -------------------------------------------------------------------------------- exceptions */

/* Whatever throws at whichever step: elements of a vector are as and where they were, and none is lost. */
template <Kind kind> void strong_guarantee() {
    using T = Element<kind>;
    for (std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{16}, std::size_t{5000}}) {
        strata::vector<T> v;
        v.reserve(size);
        for (std::size_t i = 0; i < size; i++) v.emplace_back(static_cast<int>(i));
        const T *place = v.data();
        std::size_t capacity = v.capacity();
        auto same = [&] {
            EXPECT(v.size() == size && v.capacity() >= capacity && v.data() == place && live_elements == static_cast<long>(size));
            for (std::size_t i = 0; i < size; i++) EXPECT(v[i].value() == static_cast<int>(i));
        };
        for (int form = 0; form < 3; form++) {
            long steps = 1;
            for (;; steps = steps < 20 ? steps + 1 : steps * 2) {
                bool thrown = true;
                std::unique_ptr<T> value = form == 0 ? std::make_unique<T>(7) : nullptr;
                throw_after = steps;
                try {
                    if (form == 0) {
                        if constexpr (kind == Kind::MOVED)
                            v.push_back(std::move(*value));
                        else
                            v.push_back(*value);
                    } else if (form == 1) {
                        v.emplace_back(7);
                    } else {
                        v.reserve(capacity + 1);
                    }
                    thrown = false;
                } catch (const Thrown &) {}
                throw_after = 0;
                value.reset();
                if (!thrown) break;
                same();
            }
            if (form == 2) continue;
            EXPECT(v.size() == size + 1 && v.back().value() == 7);
            v.pop_back();
            v.shrink_to_fit();
            if (v.capacity() == 0) v.reserve(size);
            place = v.data();
            capacity = v.capacity();
            same();
        }
    }
    EXPECT(live_elements == 0);
}

/* What a constructor had made when it throws is ended. */
void constructors_throw() {
    using T = Element<Kind::PINNED>;
    std::vector<T> source(10);
    for (long steps = 1; steps <= 10; steps++) {
        auto fails = [steps](auto make) {
            throw_after = steps;
            EXPECT(throws<Thrown>(make));
            throw_after = 0;
            EXPECT(live_elements == 10);
        };
        fails([] { strata::vector<T> v(10); });
        fails([&] { strata::vector<T> v(10, source[0]); });
        fails([&] { strata::vector<T> v(source.begin(), source.end()); });
        std::istringstream numbers("1 2 3 4 5 6 7 8 9 10 11 12");
        fails([&] { strata::vector<T> v{std::istream_iterator<int>(numbers), std::istream_iterator<int>()}; });
    }
}

int handler_calls;
void give_up() {
    handler_calls++;
    std::set_new_handler(nullptr);
}

/* The heap's limit is 256 MiB. */
void memory_ends() {
    strata::vector<char> v(100 * MIB, 'x');
    v.shrink_to_fit();
    const char *place = v.data();
    std::set_new_handler(give_up);
    EXPECT(throws<std::bad_alloc>([&] { v.reserve(400 * MIB); }) && handler_calls == 1);
    EXPECT(throws<std::bad_alloc>([&] { v.resize(300 * MIB); }));
    EXPECT(throws<std::bad_alloc>([&] { v.insert(v.begin(), 300 * MIB, 'y'); }));
    EXPECT(throws<std::bad_alloc>([&] { strata::vector<char> w(300 * MIB); }));
    EXPECT(v.size() == 100 * MIB && v.data() == place && v[0] == 'x' && v[50 * MIB] == 'x' && v.back() == 'x');
    /* One that grows to the limit by itself: push_back fails as a whole, and takes nothing from its argument. */
    strata::vector<std::unique_ptr<int>> w;
    auto last = std::make_unique<int>(7);
    EXPECT(throws<std::bad_alloc>([&] {
        for (;;) {
            if (w.size() == w.capacity()) w.push_back(std::move(last));
            while (w.size() < w.capacity()) w.push_back(nullptr);
            if (!last) last = std::make_unique<int>(7);
        }
    }));
    EXPECT(last && *last == 7 && w.size() == w.capacity() && w.size() >= 4 * MIB && w[0] && *w[0] == 7);
    EXPECT(strata_check() == nullptr);
}

void limits() {
    strata::vector<int> v{1, 2, 3};
    const std::size_t beyond = v.max_size() + 1;
    EXPECT(v.max_size() == static_cast<std::size_t>(PTRDIFF_MAX) / sizeof(int));
    EXPECT(throws<std::length_error>([&] { v.reserve(beyond); }));
    EXPECT(throws<std::length_error>([&] { v.resize(beyond); }));
    EXPECT(throws<std::length_error>([&] { v.resize(beyond, 1); }));
    EXPECT(throws<std::length_error>([&] { v.insert(v.begin(), beyond, 1); }));
    EXPECT(throws<std::length_error>([&] { v.insert(v.begin(), SIZE_MAX, 1); }));
    EXPECT(throws<std::length_error>([&] { v.assign(beyond, 1); }));
    EXPECT(throws<std::length_error>([&] { strata::vector<int> w(beyond); }));
    EXPECT(throws<std::out_of_range>([&] { v.at(3) = 1; }) && v.at(2) == 3);
    const strata::vector<int> &constant = v;
    EXPECT(throws<std::out_of_range>([&] { (void)constant.at(3); }) && constant.at(0) == 1);
    EXPECT((v == strata::vector<int>{1, 2, 3}));
}

/* -------------------------------------------------------------------------------- the interface */

void interface() {
    strata::vector<int> v{3, 1, 2}, w(v), empty;
    EXPECT(empty.empty() && empty.data() == nullptr && empty.begin() == empty.end() && empty.capacity() == 0);
    EXPECT(v == w && !(v != w) && v <= w && v >= w && !(v < w) && empty < v && (v > strata::vector<int>{3, 1}));
    w.push_back(9);
    strata::vector<int> moved(std::move(w));
    EXPECT(w.empty() && w.capacity() == 0 && moved.size() == 4 && moved.back() == 9);
    w.push_back(1);
    swap(v, w);
    EXPECT(v.size() == 1 && w.front() == 3 && *w.rbegin() == 2 && *(w.crend() - 1) == 3);
    v = std::move(w);
    v = {5, 6};
    v = *&v;
    EXPECT(v.size() == 2 && v[1] == 6);
    w = v;
    EXPECT(w == v && w.data() != v.data());
    v.assign(3, v[1]);
    EXPECT((v == strata::vector<int>{6, 6, 6}));
    std::istringstream numbers("1 2 3 4");
    v.insert(v.begin() + 1, std::istream_iterator<int>(numbers), std::istream_iterator<int>());
    EXPECT((v == strata::vector<int>{6, 1, 2, 3, 4, 6, 6}));
    EXPECT(v.erase(v.begin() + 1, v.begin() + 3) == v.begin() + 1 && v[1] == 3);
    EXPECT(*v.insert(v.begin(), {7, 8}) == 7 && v.insert(v.end(), 0, 1) == v.end());
    strata::vector deduced(v.begin(), v.end());
    static_assert(std::is_same_v<decltype(deduced), strata::vector<int>>);
    strata::vector<bool> bits(3, true);
    bool *bit = bits.data();
    EXPECT(bit[2] && !strata::vector<bool>(2)[1]);

    /* Arguments that are elements, in full vectors and others. */
    strata::vector<std::string> names;
    const std::string text(40, 'a');
    names.push_back(text);
    for (int i = 0; i < 200; i++) {
        names.push_back(names[0]);
        names.emplace_back(names[names.size() / 2].c_str());
        names.insert(names.begin() + i, names.back());
    }
    names.insert(names.begin(), 1000, names[3]);
    names.resize(5000, names[1]);
    for (const std::string &name : names) EXPECT(name == text);
    strata::vector<std::unique_ptr<int>> owners;
    owners.push_back(std::make_unique<int>(1));
    for (int i = 0; i < 100; i++) owners.push_back(std::move(owners[static_cast<std::size_t>(i)]));
    EXPECT(owners.back() && *owners.back() == 1 && !owners[50]);
    strata::vector<int> own{1};
    for (int i = 0; i < 1000; i++) own.push_back(own[static_cast<std::size_t>(i)]);
    EXPECT(own.back() == 1);

    /* Zeros from the heap, also where there was something before. */
    for (std::size_t count : {std::size_t{100}, std::size_t{10000}, MIB}) {
        strata::vector<std::uint32_t> full(count, 0xffffffff);
        full = strata::vector<std::uint32_t>();
        for (std::uint32_t number : strata::vector<std::uint32_t>(count)) EXPECT(number == 0);
    }
}

/* -------------------------------------------------------------------------------- random operations */

/* One operation on both, which may throw in the vector; whether it did not. Then both are the same, or both were emptied. */
template <class T> bool operation(Random &random, strata::vector<T> &v, std::vector<int> &model) {
    std::size_t size = model.size(), at = random.below(size + 1), count = random.below(20), rest = size - at;
    int value = static_cast<int>(random.below(1000));
    std::vector<int> numbers(count);
    for (int &number : numbers) number = static_cast<int>(random.below(1000));
    switch (random.below(16)) {
    case 0:
        v.emplace_back(value);
        model.push_back(value);
        break;
    case 1:
        v.push_back(T(value));
        model.push_back(value);
        break;
    case 2:
        v.emplace(v.begin() + at, value);
        model.insert(model.begin() + static_cast<long>(at), value);
        break;
    case 3:
        v.insert(v.begin() + at, T(value));
        model.insert(model.begin() + static_cast<long>(at), value);
        break;
    case 4:
        v.insert(v.begin() + at, numbers.begin(), numbers.end());
        model.insert(model.begin() + static_cast<long>(at), numbers.begin(), numbers.end());
        break;
    case 5:
        if (rest == 0) break;
        EXPECT(v.erase(v.begin() + at) == v.begin() + at);
        model.erase(model.begin() + static_cast<long>(at));
        break;
    case 6: {
        std::size_t gone = random.below(rest + 1);
        v.erase(v.begin() + at, v.begin() + at + gone);
        model.erase(model.begin() + static_cast<long>(at), model.begin() + static_cast<long>(at + gone));
        break;
    }
    case 7:
        v.resize(random.below(300));
        model.resize(v.size(), 0);
        break;
    case 8: v.reserve(random.below(500)); break;
    case 9: v.shrink_to_fit(); break;
    case 10:
        v = strata::vector<T>(numbers.begin(), numbers.end());
        model = numbers;
        break;
    case 11:
        if (size == 0) break;
        v.pop_back();
        model.pop_back();
        break;
    case 12: {
        strata::vector<T> other(std::move(v));
        v.clear();
        v.swap(other);
        break;
    }
    default:
        if constexpr (std::is_copy_constructible_v<T>) {
            switch (random.below(5)) {
            case 0:
                v.insert(v.begin() + at, count, T(value));
                model.insert(model.begin() + static_cast<long>(at), count, value);
                break;
            case 1:
                v.assign(count, T(value));
                model.assign(count, value);
                break;
            case 2:
                v.assign(numbers.begin(), numbers.end());
                model = numbers;
                break;
            case 3:
                v.resize(size + count, T(value));
                model.resize(size + count, value);
                break;
            default: {
                strata::vector<T> other(v);
                EXPECT(other == v);
                v = other;
            }
            }
        }
    }
    return true;
}

template <class T> int number_of(const T &element) { return element.value(); }
int number_of(int element) { return element; }

template <class T> void random_operations(std::size_t rounds) {
    Random random(test_seed);
    {
        strata::vector<T> v;
        std::vector<int> model;
        for (std::size_t round = 0; round < rounds; round++) {
            bool done = false;
            throw_after = !std::is_same_v<T, int> && random.below(8) == 0 ? static_cast<long>(1 + random.below(40)) : 0;
            try {
                done = operation(random, v, model);
            } catch (const Thrown &) {}
            throw_after = 0;
            if (!std::is_same_v<T, int>) EXPECT(live_elements == static_cast<long>(v.size()));
            EXPECT(v.size() <= v.capacity() || v.capacity() == 0);
            if (!done || v.size() > 2000) {
                for (const T &element : v) EXPECT(number_of(element) >= -1); /* all are there, and where they think they are */
                v.clear();
                model.clear();
            }
            EXPECT(v.size() == model.size());
            for (std::size_t i = 0; i < model.size(); i++) EXPECT(number_of(v[i]) == model[i]);
        }
    }
    EXPECT(live_elements == 0);
}

} // namespace

int main(int argc, char **argv) {
    if (argc > 1) test_seed = std::strtoull(argv[1], nullptr, 10);
    grows_in_place<int>();
    grows_in_place<Element<Kind::PINNED>>();
    grows_in_place<Element<Kind::THROWING>>();
    grows_in_place<Element<Kind::BYTES>>();
    EXPECT(live_elements == 0);
    grows_by_moving_pages();
    small_growth();
    over_aligned();
    strong_guarantee<Kind::PINNED>();
    strong_guarantee<Kind::THROWING>();
    strong_guarantee<Kind::BYTES>();
    strong_guarantee<Kind::MOVED>();
    constructors_throw();
    memory_ends();
    limits();
    interface();
    random_operations<int>(20000);
    random_operations<Element<Kind::PINNED>>(4000);
    random_operations<Element<Kind::THROWING>>(4000);
    random_operations<Element<Kind::BYTES>>(4000);
    random_operations<Element<Kind::MOVED>>(4000);
    EXPECT(strata_check() == nullptr);
    std::puts("api_vector: well");
    return 0;
}
