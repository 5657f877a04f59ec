#include "machine.h"

#include <time.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace forge::bench {

#if defined(__x86_64__)
float bf16_product_loop(long rounds);   // machine_avx512.cpp
inline constexpr double kBf16Flops = 24.0 * 64;  // a round of it
std::uint64_t read_streams_avx512(const char* data, std::size_t bytes);
#endif

namespace {

volatile std::uint64_t sink;
volatile float float_sink;

// Four streams of `bytes` in all.
std::uint64_t read_streams(const char* data, std::size_t bytes) {
    const std::size_t quarter = bytes / 4 / 64 * 64;
    std::uint64_t sums[32] = {};
    for (std::size_t i = 0; i < quarter; i += 64)
        for (std::size_t s = 0; s < 4; ++s) {
            std::uint64_t line[8];
            std::memcpy(line, data + s * quarter + i, 64);
            for (std::size_t j = 0; j < 8; ++j) sums[8 * s + j] ^= line[j];
        }
    std::uint64_t all = 0;
    for (const std::uint64_t x : sums) all ^= x;
    return all;
}

// Multiply-adds of plain floats; the compiler's own vectors.
float float_loop(long rounds) {
    float acc[64];
    for (int i = 0; i < 64; ++i) acc[i] = static_cast<float>(i);
    for (long r = 0; r < rounds; ++r)
        for (int i = 0; i < 64; ++i) acc[i] = acc[i] * 0.999f + 0.5f;
    float all = 0;
    for (const float x : acc) all += x;
    return all;
}

template <typename Fn>
double timed(ThreadPool& pool, Fn fn) {
    const double start = seconds_now();
    pool.run([](void* context, int worker) { (*static_cast<Fn*>(context))(worker); }, &fn);
    return seconds_now() - start;
}

}  // namespace

bool busy_machine() {
    const char* value = std::getenv("FORGE_BENCH_BUSY");
    return value != nullptr && *value == '1';
}

double seconds_now() {
    if (busy_machine()) {
        timespec t;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
        return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
    }
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

ThreadPool& pool() {
    static ThreadPool threads(busy_machine() ? 1 : 0);
    return threads;
}

double read_bandwidth(ThreadPool& pool) {
    constexpr std::size_t kBytes = std::size_t{512} << 20;
    static const std::unique_ptr<char[]> data = [] {
        std::unique_ptr<char[]> p(new char[kBytes]);
        std::memset(p.get(), 1, kBytes);
        return p;
    }();
    const std::size_t part = kBytes / static_cast<std::size_t>(pool.size());
    double best = 1e9;
    for (int i = 0; i < 3; ++i)
        best = std::min(best, timed(pool, [&](int worker) {
#if defined(__x86_64__)
            if (isa_available(Isa::avx512)) {
                sink = read_streams_avx512(data.get() + static_cast<std::size_t>(worker) * part, part);
                return;
            }
#endif
            sink = read_streams(data.get() + static_cast<std::size_t>(worker) * part, part);
        }));
    return static_cast<double>(kBytes) / best / 1e9;
}

double peak_flops(ThreadPool& pool, Isa isa) {
    double best = 1e9, flops = 0;
    for (int i = 0; i < 3; ++i) {
#if defined(__x86_64__)
        if (isa == Isa::avx512) {
            flops = 200000 * kBf16Flops;
            best = std::min(best, timed(pool, [](int) { float_sink = bf16_product_loop(200000); }));
            continue;
        }
#endif
        (void)isa;
        flops = 100000 * 128.0;
        best = std::min(best, timed(pool, [](int) { float_sink = float_loop(100000); }));
    }
    return flops * pool.size() / best / 1e9;
}

Launcher::Launcher(ThreadPool& pool, std::size_t scratch)
    : pool_(pool), memory_(static_cast<std::size_t>(pool.size()), std::vector<std::byte>(scratch + 64)),
      workers_(static_cast<std::size_t>(pool.size())) {
    for (std::size_t i = 0; i < workers_.size(); ++i) {
        void* p = memory_[i].data();
        std::size_t space = memory_[i].size();
        std::align(64, scratch, p, space);
        workers_[i].index = static_cast<int>(i);
        workers_[i].scratch = {static_cast<std::byte*>(p), scratch};
    }
}

void Launcher::run(const CpuKernel& kernel, const void* params, const StepRows& step) {
    struct Job {
        const CpuKernel& kernel;
        const void* params;
        const StepRows& step;
        std::vector<CpuWorker>& workers;
        std::int64_t items;
        std::atomic<std::int64_t> next{0};
    } job{kernel, params, step, workers_, kernel.items(params, step)};
    pool_.run(
        [](void* context, int worker) {
            Job& j = *static_cast<Job*>(context);
            for (;;) {
                const std::int64_t first = j.next.fetch_add(j.kernel.grain);
                if (first >= j.items) return;
                j.kernel.fn(j.params, j.step, first, std::min(j.items, first + j.kernel.grain),
                            j.workers[static_cast<std::size_t>(worker)]);
            }
        },
        &job);
}

}  // namespace forge::bench
