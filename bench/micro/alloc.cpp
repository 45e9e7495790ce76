/*
 * alloc.cpp - Google Benchmark: what one operation of the malloc family costs, in isolation.
 *
 * Time is for one operation pair (an allocation and a free), whatever the shape. Each block's first word is written, as the least that a program does
 * with memory that it asked for. The thread benchmarks run the same ring in one and in two threads.
 *
 * Invariant: a benchmark frees what it allocated before it returns. No locks.
 */
#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <vector>

namespace {

void *written(void *memory) {
    if (!memory) std::abort();
    *static_cast<volatile uint64_t *>(memory) = 1;
    return memory;
}

/* Sizes of small objects that repeat without a pattern that a branch predictor learns at once. */
std::vector<size_t> mixed_sizes(size_t count) {
    std::vector<size_t> sizes(count);
    uint64_t state = 88172645463325252u;
    for (size_t &size : sizes) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        size = 8 + state % 505;
    }
    return sizes;
}

void pair(benchmark::State &state) {
    const size_t size = static_cast<size_t>(state.range(0));
    for (auto _ : state) {
        void *memory = written(std::malloc(size));
        benchmark::DoNotOptimize(memory);
        std::free(memory);
    }
}

void calloc_pair(benchmark::State &state) {
    const size_t size = static_cast<size_t>(state.range(0));
    for (auto _ : state) {
        void *memory = written(std::calloc(1, size));
        benchmark::DoNotOptimize(memory);
        std::free(memory);
    }
}

void aligned_pair(benchmark::State &state) {
    const size_t alignment = static_cast<size_t>(state.range(0));
    for (auto _ : state) {
        void *memory = written(std::aligned_alloc(alignment, 2 * alignment));
        benchmark::DoNotOptimize(memory);
        std::free(memory);
    }
}

/* Operators called as functions: a new-expression may be elided, a call of the operator may not. */
void new_delete(benchmark::State &state) {
    const size_t size = static_cast<size_t>(state.range(0));
    for (auto _ : state) {
        void *memory = written(::operator new(size));
        benchmark::DoNotOptimize(memory);
        ::operator delete(memory, size);
    }
}

/* A ring: the oldest of state.range(0) blocks is freed, one of another size is allocated. */
void ring(benchmark::State &state) {
    const size_t length = static_cast<size_t>(state.range(0));
    const std::vector<size_t> sizes = mixed_sizes(4096);
    std::vector<void *> blocks(length);
    size_t step = 0;
    for (void *&block : blocks) block = written(std::malloc(sizes[step++ % sizes.size()]));
    for (auto _ : state) {
        void *&oldest = blocks[step & (length - 1)];
        std::free(oldest);
        oldest = written(std::malloc(sizes[step++ & (sizes.size() - 1)]));
    }
    for (void *block : blocks) std::free(block);
}

/* A burst: state.range(0) blocks of one size allocated, then freed oldest first. */
void burst(benchmark::State &state) {
    std::vector<void *> blocks(static_cast<size_t>(state.range(0)));
    while (state.KeepRunningBatch(state.range(0))) {
        for (void *&block : blocks) block = written(std::malloc(64));
        for (void *block : blocks) std::free(block);
    }
}

/* A buffer that grows from 16 bytes by doubling; time is for one realloc. */
void grow(benchmark::State &state) {
    const size_t limit = static_cast<size_t>(state.range(0));
    int64_t steps = 1;
    for (size_t size = 16; size < limit; size *= 2) steps++;
    while (state.KeepRunningBatch(steps)) {
        void *memory = nullptr;
        for (size_t size = 16; size <= limit; size *= 2) {
            memory = written(std::realloc(memory, size));
            benchmark::DoNotOptimize(memory);
        }
        std::free(memory);
    }
}

} // namespace

BENCHMARK(pair)->Arg(16)->Arg(64)->Arg(256)->Arg(1024)->Arg(8192)->Arg(65536)->Arg(1 << 20);
BENCHMARK(calloc_pair)->Arg(64)->Arg(1024)->Arg(65536);
BENCHMARK(aligned_pair)->Arg(64)->Arg(4096);
BENCHMARK(new_delete)->Arg(32)->Arg(256);
BENCHMARK(ring)->Arg(64)->Arg(1024)->Arg(16384);
BENCHMARK(ring)->Arg(1024)->Threads(2)->UseRealTime();
BENCHMARK(burst)->Arg(16)->Arg(64)->Arg(256)->Arg(1024)->Arg(16384);
BENCHMARK(grow)->Arg(4096)->Arg(1 << 20);
