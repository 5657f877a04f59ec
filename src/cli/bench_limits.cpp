#include "bench_limits.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <limits>

#include "base/machine_memory.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif
#if defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace forge::cli {
namespace {

constexpr int kStreams = 4;
std::atomic<std::uint64_t> sink;  // results go here, so that no loop is dropped as unused

double seconds_now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Four quarters of `bytes` read side by side; V is a vector of `sizeof(V)` bytes.
template <typename V>
[[gnu::always_inline]] inline std::uint64_t read_streams(const std::byte* data, std::size_t bytes) {
    const std::size_t stream = bytes / kStreams;
    V sums[2 * kStreams] = {};
    for (std::size_t i = 0; i + 2 * sizeof(V) <= stream; i += 2 * sizeof(V)) {
        for (int s = 0; s < kStreams; ++s) {
            const std::byte* at = data + static_cast<std::size_t>(s) * stream + i;
            sums[2 * s] ^= *reinterpret_cast<const V*>(at);
            sums[2 * s + 1] ^= *reinterpret_cast<const V*>(at + sizeof(V));
        }
    }
    std::uint64_t result = 0;
    for (const V& sum : sums) result ^= static_cast<std::uint64_t>(sum[0] ^ sum[1]);
    return result;
}

using Bytes16 [[gnu::vector_size(16), gnu::may_alias]] = std::uint64_t;
std::uint64_t read_plain(const std::byte* data, std::size_t bytes) { return read_streams<Bytes16>(data, bytes); }

using Multiply = void (*)(std::uint64_t rounds);  // kChains independent chains, `rounds` steps each
// Every loop over the chains is unrolled, so that the sums are registers and not memory.
constexpr int kChains = 20;  // covers a latency of 5 at 4 a cycle; fits 32 registers (16 on AVX2: 12 chains)

#if defined(__x86_64__)
using Bytes32 [[gnu::vector_size(32), gnu::may_alias]] = std::uint64_t;
using Bytes64 [[gnu::vector_size(64), gnu::may_alias]] = std::uint64_t;
[[gnu::target("avx2")]] std::uint64_t read_avx2(const std::byte* data, std::size_t bytes) {
    return read_streams<Bytes32>(data, bytes);
}
[[gnu::target("avx512f")]] std::uint64_t read_avx512(const std::byte* data, std::size_t bytes) {
    return read_streams<Bytes64>(data, bytes);
}

[[gnu::target("avx2,fma")]] void multiply_avx2(std::uint64_t rounds) {
    constexpr int chains = 12;
    __m256 sums[chains], x = _mm256_set1_ps(0.999f), y = _mm256_set1_ps(1e-3f);
#pragma GCC unroll 20
    for (int c = 0; c < chains; ++c) sums[c] = _mm256_setzero_ps();
    for (std::uint64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 20
        for (int c = 0; c < chains; ++c) {
            sums[c] = _mm256_fmadd_ps(sums[c], x, y);
            asm volatile("" : "+x"(sums[c]));
        }
    }
    float total = 0;
#pragma GCC unroll 20
    for (int c = 0; c < chains; ++c) total += _mm256_cvtss_f32(sums[c]);
    sink += static_cast<std::uint64_t>(total);
}
[[gnu::target("avx512f")]] void multiply_avx512(std::uint64_t rounds) {
    __m512 sums[kChains], x = _mm512_set1_ps(0.999f), y = _mm512_set1_ps(1e-3f);
#pragma GCC unroll 20
    for (int c = 0; c < kChains; ++c) sums[c] = _mm512_setzero_ps();
    for (std::uint64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 20
        for (int c = 0; c < kChains; ++c) {
            sums[c] = _mm512_fmadd_ps(sums[c], x, y);
            asm volatile("" : "+v"(sums[c]));
        }
    }
    float total = 0;
#pragma GCC unroll 20
    for (int c = 0; c < kChains; ++c) total += _mm512_cvtss_f32(sums[c]);
    sink += static_cast<std::uint64_t>(total);
}
[[gnu::target("avx512f,avx512bf16")]] void multiply_avx512_bf16(std::uint64_t rounds) {
    __m512 sums[kChains];
    const __m512i x = _mm512_set1_epi16(0x3f7f), y = _mm512_set1_epi16(0x3a00);  // about 1 and 2^-11
#pragma GCC unroll 20
    for (int c = 0; c < kChains; ++c) sums[c] = _mm512_setzero_ps();
    for (std::uint64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 20
        for (int c = 0; c < kChains; ++c) {
            sums[c] = _mm512_dpbf16_ps(sums[c], (__m512bh)x, (__m512bh)y);
            asm volatile("" : "+v"(sums[c]));
        }
    }
    float total = 0;
#pragma GCC unroll 20
    for (int c = 0; c < kChains; ++c) total += _mm512_cvtss_f32(sums[c]);
    sink += static_cast<std::uint64_t>(total);
}
#elif defined(__aarch64__)
void multiply_neon(std::uint64_t rounds) {
    float32x4_t sums[kChains];
    const float32x4_t x = vdupq_n_f32(0.999f), y = vdupq_n_f32(1e-3f);
#pragma GCC unroll 20
    for (int c = 0; c < kChains; ++c) sums[c] = vdupq_n_f32(0);
    for (std::uint64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 20
        for (int c = 0; c < kChains; ++c) {
            sums[c] = vfmaq_f32(sums[c], x, y);
            asm volatile("" : "+w"(sums[c]));
        }
    }
    float total = 0;
#pragma GCC unroll 20
    for (int c = 0; c < kChains; ++c) total += vgetq_lane_f32(sums[c], 0);
    sink += static_cast<std::uint64_t>(total);
}
#endif
void multiply_plain(std::uint64_t rounds) {
    float sums[kChains] = {};
    for (std::uint64_t i = 0; i < rounds; ++i)
        for (float& sum : sums) sum = sum * 0.999f + 1e-3f;
    float total = 0;
    for (float sum : sums) total += sum;
    sink += static_cast<std::uint64_t>(total);
}

struct MultiplyLoop { Multiply run; double flops_per_round; };
MultiplyLoop multiply_loop(Isa isa, DType type) {
#if defined(__x86_64__)
    if (isa == Isa::avx512 && type == DType::bf16 && __builtin_cpu_supports("avx512bf16"))
        return {multiply_avx512_bf16, kChains * 32.0 * 2};
    if (isa == Isa::avx512) return {multiply_avx512, kChains * 16.0 * 2};
    if (isa == Isa::avx2) return {multiply_avx2, 12 * 8.0 * 2};
#elif defined(__aarch64__)
    if (isa == Isa::neon) return {multiply_neon, kChains * 4.0 * 2};
#endif
    (void)isa;
    (void)type;
    return {multiply_plain, kChains * 2.0};
}

template <typename F>
// A limit is a best case, and other programs may run beside: the shortest of several runs.
double best_seconds(int times, const F& body) {
    double best = std::numeric_limits<double>::infinity();
    for (int i = 0; i < times; ++i) {
        const double start = seconds_now();
        body();
        best = std::min(best, seconds_now() - start);
    }
    return best;
}

std::size_t buffer_size() {
    std::size_t size = std::size_t{512} << 20;
    if (const std::uint64_t total = machine_memory().total; total > 0) size = std::min<std::size_t>(size, total / 8);
    return size / 4096 * 4096;
}

}  // namespace

MachineLimits::MachineLimits(int threads, Isa isa) : pool_(threads), isa_(isa), size_(buffer_size()) {
    memory_ = std::make_unique_for_overwrite<std::byte[]>(size_ + 64);
    buffer_ = memory_.get() + (64 - reinterpret_cast<std::uintptr_t>(memory_.get()) % 64) % 64;
    pool_.parallel_for(size_ / 4096, 256, [&](std::size_t first, std::size_t last) {
        std::memset(buffer_ + first * 4096, 1, (last - first) * 4096);
    });
}

MachineLimits::~MachineLimits() = default;

std::unique_ptr<MachineLimits> limits_of(const Engine& engine) {
    const std::string name = engine.backend_name();
    if (!name.starts_with("CPU")) return nullptr;
    Isa isa = Isa::plain;
    for (const Isa known : {Isa::avx512, Isa::avx2, Isa::neon})
        if (name.find(name_of(known)) != std::string::npos) isa = known;
    return std::make_unique<MachineLimits>(engine.options().threads, isa);
}

double MachineLimits::read_gbps() {
    auto read = read_plain;
#if defined(__x86_64__)
    if (isa_ == Isa::avx2) read = read_avx2;
    if (isa_ == Isa::avx512) read = read_avx512;
#endif
    struct Context { MachineLimits* self; decltype(read) function; } context{this, read};
    const double seconds = best_seconds(7, [&] {
        pool_.run([](void* pointer, int worker) {
            const auto& c = *static_cast<Context*>(pointer);
            const std::size_t part = c.self->size_ / static_cast<std::size_t>(c.self->pool_.size()) / 4096 * 4096;
            sink += c.function(c.self->buffer_ + part * static_cast<std::size_t>(worker), part);
        }, &context);
    });
    const std::size_t part = size_ / static_cast<std::size_t>(pool_.size()) / 4096 * 4096;
    return static_cast<double>(part) * pool_.size() / seconds / 1e9;
}

double MachineLimits::multiply_gflops(DType type) {
    const MultiplyLoop loop = multiply_loop(isa_, type);
    struct Context { Multiply run; std::uint64_t rounds; } context{loop.run, 1000};
    const auto once = [&] {
        pool_.run([](void* pointer, int) {
            const auto& c = *static_cast<Context*>(pointer);
            c.run(c.rounds);
        }, &context);
    };
    // Long enough (about 20 ms) that starting the threads does not count.
    for (double seconds = 0; seconds < 0.01; context.rounds *= 2) seconds = best_seconds(1, once);
    const double seconds = best_seconds(7, once);
    return loop.flops_per_round * static_cast<double>(context.rounds) * pool_.size() / seconds / 1e9;
}

}  // namespace forge::cli
