/*
 * batch.cpp - Google Benchmark: blocks of one size by batches, against the same blocks one by one.
 *
 * Time is for one block, allocated and freed; each one's first word is written. strata_batch_alloc1 is looked up in the process, as the allocator
 * comes by LD_PRELOAD: under others the batches are skipped. Arguments: the blocks of a batch, and their size.
 *
 * Invariant: a benchmark frees what it allocated before it returns. No locks.
 */
#include <benchmark/benchmark.h>
#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <vector>

namespace {

using batch_alloc1 = void **(*)(int *, void **, size_t *, size_t *, size_t, size_t, uintmax_t);

batch_alloc1 find_batch_alloc1() { return reinterpret_cast<batch_alloc1>(dlsym(RTLD_DEFAULT, "strata_batch_alloc1")); }

void write_all(const std::vector<void *> &blocks) {
    for (void *block : blocks) {
        if (!block) std::abort();
        *static_cast<volatile uint64_t *>(block) = 1;
    }
}

void one_by_one(benchmark::State &state) {
    std::vector<void *> blocks(static_cast<size_t>(state.range(0)));
    const size_t size = static_cast<size_t>(state.range(1));
    while (state.KeepRunningBatch(state.range(0))) {
        for (void *&block : blocks) block = std::malloc(size);
        write_all(blocks);
        for (void *block : blocks) std::free(block);
    }
}

void by_batch(benchmark::State &state) {
    const batch_alloc1 batch = find_batch_alloc1();
    std::vector<void *> blocks(static_cast<size_t>(state.range(0)), nullptr);
    if (!batch) {
        state.SkipWithError("no strata_batch_alloc1 in this process");
        return;
    }
    while (state.KeepRunningBatch(state.range(0))) {
        size_t count = blocks.size(), size = static_cast<size_t>(state.range(1));
        batch(nullptr, blocks.data(), &count, &size, 0, 0, 0);
        write_all(blocks);
        batch(nullptr, blocks.data(), &count, nullptr, 0, 0, 0);
        if (count != blocks.size()) std::abort();
    }
}

void shapes(benchmark::internal::Benchmark *benchmark) {
    for (int64_t blocks : {1, 16, 256, 4096, 65536})
        for (int64_t size : {24, 512}) benchmark->Args({blocks, size});
}

} // namespace

BENCHMARK(one_by_one)->Apply(shapes);
BENCHMARK(by_batch)->Apply(shapes);
