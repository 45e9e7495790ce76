/*
 * strings.cpp - load: a program that works on text.
 *
 * Parsers, formatters and scripts live on strings that are made, looked at and dropped: a page of made-up text is cut into words, words are counted
 * in a table, joined to lines, searched and replaced, sorted, and written out again. Most strings are beyond the small-string buffer and live for a
 * moment; the tables live for a round. Strings are the most frequent kind of allocation that profiles of fleets show (A. Hunter and others, "Beyond
 * malloc efficiency to fleet efficiency", OSDI 2021). An operation in the report is a string that was made. One thread, no locks.
 */
#include <algorithm>
#include <cstdint>
#include <sstream>
#include <string>
#include <unordered_map>
#include <vector>

#include "load.h"

namespace {

constexpr uint64_t ROUNDS = 12;
constexpr uint64_t WORDS = 60000;
constexpr uint64_t VOCABULARY = 5000;
constexpr std::size_t LINE_CHARS = 72;

std::string word(uint64_t number) {
    static const char *const syllables[] = {"al", "lo", "ca", "tor", "strat", "um", "mag", "zine", "de", "pot", "slab", "ar", "ena", "quan"};
    std::string text;
    for (uint64_t rest = number * 2654435761u + 1; rest; rest /= 14) text += syllables[rest % 14];
    return text;
}

/* Small numbers are frequent, as words of a language are. */
std::string made_up_text(struct rng *rng) {
    std::string text;
    for (uint64_t i = 0; i < WORDS; i++) text += word(rng_below(rng, 1 + rng_below(rng, VOCABULARY))) + (i % 11 == 10 ? ".\n" : " ");
    return text;
}

std::vector<std::string> words_of(const std::string &text) {
    std::vector<std::string> words;
    std::istringstream stream(text);
    for (std::string one; stream >> one;) words.push_back(one);
    return words;
}

std::string replaced(const std::string &text, const std::string &from, const std::string &to) {
    std::string result;
    std::size_t at = 0;
    for (std::size_t found; (found = text.find(from, at)) != std::string::npos; at = found + from.size()) result += text.substr(at, found - at) + to;
    return result + text.substr(at);
}

std::vector<std::string> filled_lines(const std::vector<std::string> &words) {
    std::vector<std::string> lines;
    std::string line;
    for (const std::string &one : words) {
        if (line.size() + 1 + one.size() > LINE_CHARS) {
            lines.push_back(line);
            line.clear();
        }
        line = line.empty() ? one : line + " " + one;
    }
    lines.push_back(line);
    return lines;
}

uint64_t sum_of(const std::string &text) {
    uint64_t sum = 1469598103934665603u;
    for (unsigned char byte : text) sum = (sum ^ byte) * 1099511628211u;
    return sum;
}

uint64_t work(struct rng *rng, struct tally *tally) {
    const std::string text = made_up_text(rng);
    const std::vector<std::string> words = words_of(text);
    std::unordered_map<std::string, uint64_t> counts;
    uint64_t sum = 0, counted = 0;
    for (const std::string &one : words) counts["word:" + one]++;
    for (const auto &[key, count] : counts) counted += count;
    if (words.size() != WORDS || counted != WORDS) load_fail("words were lost");
    std::vector<std::string> lines = filled_lines(words_of(replaced(replaced(text, "slab", "magazine"), "magazine", "slab")));
    std::sort(lines.begin(), lines.end());
    std::string joined;
    for (const std::string &line : lines) joined += std::to_string(line.size()) + "\t" + line + "\n";
    sum += sum_of(joined) + counts.size();
    tally->operations += 8 * WORDS;
    return sum;
}

} // namespace

int main(int argc, char **argv) {
    struct load_args args = load_arguments(argc, argv);
    struct tally tally = {};
    struct rng rng = rng_seed(53);
    uint64_t rounds = load_scaled(&args, ROUNDS);
    uint64_t start_ns = load_clock_ns();

    args.threads = 1;
    for (uint64_t round = 0; round < rounds; round++) tally.checksum += work(&rng, &tally);
    load_report("strings", &args, &tally, load_clock_ns() - start_ns);
    return 0;
}
