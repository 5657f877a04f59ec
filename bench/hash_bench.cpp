// The hashes of .forge models against plain reading: 768 MB, so that no cache holds them. A thread hashes a
// share of its own, as `forge verify` gives a thread a shard.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>

#include "formats/xxh3.h"
#include "machine.h"
#include "store/blake3.h"

namespace forge::bench {
namespace {

constexpr std::size_t kBytes = std::size_t{768} << 20;

std::span<const std::byte> data() {
    static const auto bytes = [] {
        std::unique_ptr<std::byte[]> memory(new std::byte[kBytes]);
        for (std::size_t i = 0; i < kBytes; i += 8) {
            const std::uint64_t value = i * 0x9E3779B97F4A7C15u;
            std::memcpy(memory.get() + i, &value, 8);
        }
        return memory;
    }();
    return {bytes.get(), kBytes};
}

struct Job {
    std::uint64_t (*hash)(std::span<const std::byte>);
    std::size_t share;
};

void run(benchmark::State& state, std::uint64_t (*hash)(std::span<const std::byte>)) {
    Job job{hash, data().size() / static_cast<std::size_t>(pool().size())};
    const double limit = read_bandwidth(pool());
    double best = 1e30;
    for (auto _ : state) {
        const double start = seconds_now();
        pool().run(
            [](void* context, int worker) {
                const Job& now = *static_cast<const Job*>(context);
                benchmark::DoNotOptimize(now.hash(data().subspan(static_cast<std::size_t>(worker) * now.share, now.share)));
            },
            &job);
        const double seconds = seconds_now() - start;
        best = std::min(best, seconds);
        state.SetIterationTime(seconds);
    }
    const double rate = static_cast<double>(kBytes) / best * 1e-9;
    state.counters["GB/s"] = rate;
    state.counters["read GB/s"] = limit;
    state.counters["of limit %"] = 100 * rate / limit;
}

void bench_xxh3(benchmark::State& state) {
    run(state, xxh3);
}
void bench_blake3(benchmark::State& state) {
    run(state, [](std::span<const std::byte> bytes) -> std::uint64_t { return blake3(bytes).bytes[0]; });
}

BENCHMARK(bench_xxh3)->UseManualTime()->Iterations(9)->Unit(benchmark::kMillisecond);
BENCHMARK(bench_blake3)->UseManualTime()->Iterations(5)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace forge::bench

BENCHMARK_MAIN();
