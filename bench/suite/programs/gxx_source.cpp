// What the workload "gxx" compiles: many standard headers and templates instantiated for several types, so that the compiler
// builds a heap of some 300 MB out of small tree nodes. The program checks itself at compile time where it can; when run it
// prints one line that gxx_check.sh knows.
#include <algorithm>
#include <array>
#include <compare>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <ranges>
#include <set>
#include <string>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <variant>
#include <vector>

namespace {

// A type of its own for every N, so that nothing of the containers below is shared between instantiations.
template <int N> struct Key {
    std::uint32_t value = 0;
    friend auto operator<=>(const Key &, const Key &) = default;
};

template <int N> struct HashKey {
    std::size_t operator()(const Key<N> &key) const { return key.value * 2654435761u + N; }
};

// A small generator known to every C++ compiler in the same way.
struct Sequence {
    std::uint64_t state;
    std::uint32_t next() {
        state = state * 6364136223846793005u + 1442695040888963407u;
        return static_cast<std::uint32_t>(state >> 33);
    }
};

template <int N> std::uint64_t ordered() {
    Sequence numbers{N + 1};
    std::map<Key<N>, std::vector<std::pair<Key<N>, std::string>>> map;
    for (int i = 0; i < 50; i++) {
        Key<N> key{numbers.next() % 20};
        map[key].emplace_back(key, std::to_string(numbers.next() % 1000));
    }
    std::uint64_t sum = 0;
    for (auto &[key, list] : map) {
        std::ranges::sort(list, {}, [](const auto &entry) { return entry.second; });
        sum = sum * 31 + key.value + list.size() + std::stoul(list.front().second);
    }
    return sum;
}

template <int N> std::uint64_t hashed() {
    Sequence numbers{N + 1000};
    std::unordered_map<Key<N>, std::set<std::uint32_t>, HashKey<N>> map;
    for (int i = 0; i < 60; i++) {
        const std::uint32_t bucket = numbers.next() % 16;
        map[Key<N>{bucket}].insert(numbers.next() % 100);
    }
    std::uint64_t sum = 0;
    for (const auto &[key, values] : map) {
        sum += (key.value + 1) * std::accumulate(values.begin(), values.end(), std::uint64_t{0});
    }
    return sum;
}

template <int N> std::uint64_t visited() {
    using Value = std::variant<Key<N>, std::string, std::vector<Key<N>>, std::optional<std::uint32_t>>;
    Sequence numbers{N + 2000};
    std::deque<Value> values;
    for (int i = 0; i < 24; i++) {
        switch (numbers.next() % 4) {
        case 0: values.emplace_back(Key<N>{numbers.next() % 97}); break;
        case 1: values.emplace_back(std::string(numbers.next() % 40, 'x')); break;
        case 2: values.emplace_back(std::vector<Key<N>>(numbers.next() % 9, Key<N>{7})); break;
        default: values.emplace_back(std::optional<std::uint32_t>{numbers.next() % 13}); break;
        }
    }
    std::uint64_t sum = 0;
    for (const Value &value : values) {
        sum = sum * 7 + std::visit(
                            [](const auto &held) -> std::uint64_t {
                                using Held = std::decay_t<decltype(held)>;
                                if constexpr (std::is_same_v<Held, Key<N>>) {
                                    return held.value;
                                } else if constexpr (std::is_same_v<Held, std::optional<std::uint32_t>>) {
                                    return held.value_or(0);
                                } else {
                                    return held.size();
                                }
                            },
                            value);
    }
    return sum;
}

template <int N> std::uint64_t composed() {
    Sequence numbers{N + 3000};
    std::vector<std::function<std::uint64_t(Key<N>)>> steps;
    for (int i = 0; i < 8; i++) {
        const std::uint32_t factor = numbers.next() % 17 + 1;
        steps.push_back([factor](Key<N> key) { return std::uint64_t{key.value} * factor; });
    }
    auto shared = std::make_shared<std::list<Key<N>>>();
    for (int i = 0; i < 8; i++) {
        shared->push_back(Key<N>{numbers.next() % 50});
    }
    auto odd = *shared | std::views::filter([](const Key<N> &key) { return key.value % 2 == 1; }) |
               std::views::transform([](const Key<N> &key) { return Key<N>{key.value + N}; });
    std::uint64_t sum = 0;
    for (const Key<N> &key : odd) {
        for (const auto &step : steps) {
            sum += step(key);
        }
    }
    return sum;
}

// Nested tuples: the type grows with N, and with it the names that the compiler keeps.
template <int N> struct Nested {
    using Type = std::tuple<Key<N>, std::array<Key<N>, 3>, typename Nested<N - 1>::Type>;
};
template <> struct Nested<0> {
    using Type = std::tuple<Key<0>>;
};

template <class Tuple> constexpr std::size_t depth() {
    if constexpr (std::tuple_size_v<Tuple> == 1) {
        return 1;
    } else {
        return 1 + depth<std::tuple_element_t<2, Tuple>>();
    }
}
static_assert(depth<Nested<40>::Type>() == 41);

// Primes by the sieve, while compiling: the interpreter in the compiler allocates as well.
constexpr std::size_t primes_below_4000() {
    bool composite[4000] = {};
    std::size_t count = 0;
    for (std::size_t n = 2; n < 4000; n++) {
        if (!composite[n]) {
            count++;
            for (std::size_t multiple = n * n; multiple < 4000; multiple += n) {
                composite[multiple] = true;
            }
        }
    }
    return count;
}
static_assert(primes_below_4000() == 550);

template <int... N> std::uint64_t all(std::integer_sequence<int, N...>) {
    std::uint64_t sum = 0;
    ((sum = sum * 1000003 + ordered<N>() + hashed<N>() + visited<N>() + composed<N>()), ...);
    return sum;
}

} // namespace

int main() {
    const std::uint64_t sum = all(std::make_integer_sequence<int, 4>());
    std::printf("%llu %zu\n", static_cast<unsigned long long>(sum), primes_below_4000());
}
