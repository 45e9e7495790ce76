/*
 * containers.cpp - load: the containers of C++ through operator new and delete.
 *
 * What most C++ programs ask of an allocator: strings beyond the small-string buffer, hash tables and ordered maps of nodes, vectors of strings that
 * grow, shared pointers, lists. Keys come from a fixed seed, lookups check what was stored.
 * An operation in the report is one call of a container. One thread, no locks.
 */
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "load.h"

namespace {

constexpr uint64_t ROUNDS = 14;
constexpr uint64_t KEYS = 40000;

std::string key_text(uint64_t number) {
    std::string text = "object/" + std::to_string(number * 7919) + "/attribute";
    text.append(number % 37, 'x');
    return text;
}

void expect(bool held) {
    if (!held) load_fail("a container does not hold what was put into it");
}

uint64_t tables(struct rng *rng, struct tally *tally) {
    std::unordered_map<std::string, uint64_t> table;
    std::map<uint64_t, std::string> ordered;
    for (uint64_t i = 0; i < KEYS; i++) {
        table.emplace(key_text(i), i);
        ordered.emplace(rng_next(rng), key_text(i));
    }
    uint64_t sum = 0;
    for (uint64_t i = 0; i < KEYS; i += 3) {
        auto found = table.find(key_text(i));
        expect(found != table.end() && found->second == i);
        sum += found->second;
        table.erase(found);
    }
    for (auto at = ordered.begin(); at != ordered.end();) {
        sum += at->first ^ at->second.size();
        at = at->first & 1 ? ordered.erase(at) : std::next(at);
    }
    tally->operations += 5 * KEYS;
    return sum;
}

uint64_t sequences(struct rng *rng, struct tally *tally) {
    std::vector<std::vector<std::string>> rows;
    std::list<std::shared_ptr<std::string>> queue;
    uint64_t sum = 0;
    for (uint64_t i = 0; i < KEYS; i++) {
        if (i % 16 == 0) rows.emplace_back();
        rows.back().push_back(key_text(i));
        queue.push_back(std::make_shared<std::string>(key_text(rng_below(rng, KEYS))));
        if (queue.size() > 1000) {
            sum += queue.front()->size();
            queue.pop_front();
        }
    }
    for (const auto &row : rows)
        for (const auto &text : row) sum += text.size() + static_cast<unsigned char>(text.back());
    tally->operations += 5 * KEYS;
    return sum;
}

} // namespace

int main(int argc, char **argv) {
    struct load_args args = load_arguments(argc, argv);
    struct tally tally = {};
    struct rng rng = rng_seed(41);
    uint64_t rounds = load_scaled(&args, ROUNDS);
    uint64_t start_ns = load_clock_ns();

    args.threads = 1;
    for (uint64_t round = 0; round < rounds; round++) tally.checksum += tables(&rng, &tally) + sequences(&rng, &tally);
    load_report("containers", &args, &tally, load_clock_ns() - start_ns);
    return 0;
}
