/*
 * thread_exit.cpp - what threads free and allocate while they end: destructors of pthread keys, of C++ thread_local objects, and both
 * again in later rounds.
 *
 * thread_exit THREADS. A key's destructor may run after strata's own work for the end of the thread; what it frees and allocates must
 * work, and must not be lost: resident memory is printed after a tenth of the threads and at the end.
 */
#include "stress/support.h"

#include <memory>
#include <pthread.h>
#include <string>
#include <vector>

namespace {

constexpr int batch = 4;
constexpr int blocks = 40;
constexpr int again_rounds = 3; // PTHREAD_DESTRUCTOR_ITERATIONS is 4

struct luggage {
    int rounds;
    void *block[blocks];
};

pthread_key_t keys[3];

luggage *luggage_new(int rounds) {
    auto *bag = static_cast<luggage *>(malloc(sizeof(luggage)));
    if (bag == nullptr) fail("luggage: malloc gave NULL");
    bag->rounds = rounds;
    for (int i = 0; i < blocks; i++) bag->block[i] = block_new(static_cast<size_t>(i) * 50 + 1, 2, "luggage");
    return bag;
}

void luggage_delete(luggage *bag) {
    for (int i = 0; i < blocks; i++) block_delete(bag->block[i], static_cast<size_t>(i) * 50 + 1, 2, "luggage");
    free(bag);
}

template <int key> void at_thread_end(void *value) {
    auto *bag = static_cast<luggage *>(value);
    int rounds = bag->rounds;
    luggage_delete(bag);
    if (rounds > 0) pthread_setspecific(keys[key], luggage_new(rounds - 1)); // the destructor runs again
}

struct diary {
    std::vector<std::string> lines;
    std::unique_ptr<diary> older;

    void write(int depth) {
        for (int i = 0; i < 20; i++) lines.emplace_back(static_cast<size_t>(i) * 30, 'x');
        if (depth == 0) return;
        older = std::make_unique<diary>();
        older->write(depth - 1);
    }
    ~diary() {
        std::vector<std::string> last(lines.rbegin(), lines.rend()); // allocates on the way out
        if (!lines.empty() && last.back() != lines.front()) fail("diary: a line has changed");
    }
};

thread_local diary my_diary;

void *traveller(void *) {
    my_diary.write(3);
    for (auto &key : keys) pthread_setspecific(key, luggage_new(again_rounds));
    return nullptr;
}

} // namespace

int main(int argc, char **argv) {
    size_t threads = argument_number(argc, argv, 1, 10000);
    REQUIRE(pthread_key_create(&keys[0], at_thread_end<0>) == 0);
    REQUIRE(pthread_key_create(&keys[1], at_thread_end<1>) == 0);
    REQUIRE(pthread_key_create(&keys[2], at_thread_end<2>) == 0);
    size_t early_kib = 0;
    for (size_t done = 0; done < threads; done += batch) {
        pthread_t ids[batch];
        for (auto &id : ids) REQUIRE(pthread_create(&id, nullptr, traveller, nullptr) == 0);
        for (auto &id : ids) REQUIRE(pthread_join(id, nullptr) == 0);
        if (early_kib == 0 && done >= threads / 10) early_kib = status_kib("RssAnon:");
    }
    size_t late_kib = status_kib("RssAnon:");
    heap_check("after the threads");
    printf("threads=%zu early_kib=%zu late_kib=%zu\n", threads, early_kib, late_kib);
    return 0;
}
