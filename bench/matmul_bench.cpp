// Matrix kernels on all cores. Matvec rows: weights larger than the caches, GB/s and
// the share of the read bandwidth measured in the same run. Gemm rows: 512 rows of x,
// GFLOP/s and the share of the measured peak.
//   bench_matmul --benchmark_filter='matvec/q4_0.*' --benchmark_repetitions=5
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/float16.h"
#include "kernels/matmul/matmul.h"
#include "machine.h"
#include "quant/convert.h"

namespace forge::bench {
namespace {

double bandwidth() {
    static const double value = read_bandwidth(pool()) * 1e9;
    return value;
}
// Of bf16 products where the kernels use them; f32 multiply-adds are half as fast.
double peak(DType type) {
    static const double value = peak_flops(pool(), detect_isa()) * 1e9;
    return type == DType::bf16 || detect_isa() != Isa::avx512 ? value : value / 2;
}

// Random codes; scales of 1/64.
Weight make_weight(const WeightFormat& format, std::int64_t rows, std::int64_t cols) {
    Weight w;
    w.name = "bench";
    w.format = format;
    w.rows = rows, w.cols = cols;
    allocate_planes(w);
    std::mt19937_64 random(1);
    const auto fill = [&](const Plane& plane, auto&& write) {
        if (plane.data)
            write(const_cast<std::byte*>(plane.data), plane.stride * static_cast<std::size_t>(rows));
    };
    const auto noise = [&](std::byte* at, std::size_t bytes) {
        for (std::size_t i = 0; i < bytes; ++i) at[i] = static_cast<std::byte>(random() & 0x3f);
    };
    const auto halves = [&](std::byte* at, std::size_t bytes) {
        const std::uint16_t f =
            format.scale == ScaleKind::bf16 ? f32_to_bf16(1.0f / 64) : f32_to_f16(1.0f / 64);
        for (std::size_t i = 0; i + 1 < bytes; i += 2) std::memcpy(at + i, &f, 2);
    };
    const bool floats = format.scale == ScaleKind::f16 || format.scale == ScaleKind::bf16;
    fill(w.codes, noise);
    fill(w.codes_high, noise);
    if (floats)
        fill(w.scales, halves), fill(w.offsets, halves);
    else
        fill(w.scales, noise), fill(w.offsets, noise);
    fill(w.super_scales, halves);
    fill(w.super_mins, halves);
    return w;
}

struct Format {
    const char* name;
    WeightFormat format;
};

WeightFormat mlx(int bits, int group) {
    return {CodeMap::integer,
            DType::f32,
            Packing::stream,
            static_cast<std::uint8_t>(bits),
            static_cast<std::uint16_t>(group),
            0,
            ScaleKind::bf16,
            OffsetKind::bias};
}

std::vector<Format> formats() {
    const auto gguf = [](GgufType type) { return format_of_gguf(type, "bench"); };
    return {
        {"f32", gguf(GgufType::f32)},
        {"f16", gguf(GgufType::f16)},
        {"bf16", gguf(GgufType::bf16)},
        {"q4_0", gguf(GgufType::q4_0)},
        {"q4_1", gguf(GgufType::q4_1)},
        {"q5_0", gguf(GgufType::q5_0)},
        {"q8_0", gguf(GgufType::q8_0)},
        {"q2_k", gguf(GgufType::q2_k)},
        {"q3_k", gguf(GgufType::q3_k)},
        {"q4_k", gguf(GgufType::q4_k)},
        {"q5_k", gguf(GgufType::q5_k)},
        {"q6_k", gguf(GgufType::q6_k)},
        {"iq4_xs", gguf(GgufType::iq4_xs)},
        {"mxfp4", gguf(GgufType::mxfp4)},
        {"nvfp4", gguf(GgufType::nvfp4)},
        {"mlx4g64", mlx(4, 64)},
        {"mlx8g64", mlx(8, 64)},
        {"mlx2g64", mlx(2, 64)},
        {"mlx3g64", mlx(3, 64)},
        {"mlx5g64", mlx(5, 64)},
        {"mlx6g64", mlx(6, 64)},
        {"mxfp8", {CodeMap::e4m3, DType::f32, Packing::stream, 8, 32, 0, ScaleKind::e8m0, OffsetKind::none}}};
}

struct Case {
    MatmulParams p;
    Weight w;
    std::vector<float> x, y;
    std::vector<std::byte> packed;
    StepRows step;
    Case(const WeightFormat& format, DType type, int m, std::int64_t n, std::int64_t k)
        : w(make_weight(format, n, k)),
          x(static_cast<std::size_t>(m * k)),
          y(static_cast<std::size_t>(m * n)) {
        std::mt19937 random(2);
        std::normal_distribution<float> d;
        for (std::size_t i = 0; i < x.size(); ++i) {
            const float value = d(random);
            if (type == DType::f32)
                x[i] = value;
            else
                reinterpret_cast<std::uint16_t*>(x.data())[i] =
                    type == DType::bf16 ? f32_to_bf16(value) : f32_to_f16(value);
        }
        p.type = type;
        p.w = &w;
        p.x = x.data();
        p.y = y.data();
        p.max_rows = m;
        p.input_tag = 1;
        step.m = m;
        step.serial = 1;
    }
};

void matvec(benchmark::State& state, const WeightFormat& format, DType type, int m, std::int64_t k) {
    const std::size_t row = std::max<std::size_t>(1, [&] {
        Weight w;
        w.format = format, w.rows = 1, w.cols = k;
        return w.bytes();
    }());
    const std::int64_t n = static_cast<std::int64_t>((std::size_t{192} << 20) / row / 64 * 64);
    Case c(format, type, m, n, k);
    const CpuKernel kernel = matvec_kernel(c.p, detect_isa());
    Launcher launcher(pool(), kernel.scratch);
    for (auto _ : state) {
        ++c.step.serial;
        launcher.run(kernel, &c.p, c.step);
    }
    const double bytes = static_cast<double>(c.w.bytes());
    state.counters["GB/s"] = benchmark::Counter(bytes / 1e9, benchmark::Counter::kIsIterationInvariantRate);
    state.counters["of_read"] =
        benchmark::Counter(bytes / bandwidth(), benchmark::Counter::kIsIterationInvariantRate);
}

void gemm(benchmark::State& state, const WeightFormat& format, DType type, int m, std::int64_t n,
          std::int64_t k) {
    Case c(format, type, m, n, k);
    const Isa isa = detect_isa();
    c.packed.resize(pack_bytes(c.p, isa) + 64);
    c.p.packed = reinterpret_cast<void*>((reinterpret_cast<std::uintptr_t>(c.packed.data()) + 63) / 64 * 64);
    const CpuKernel pack = pack_kernel(c.p, isa), kernel = gemm_kernel(c.p, isa);
    Launcher launcher(pool(), std::max(pack.scratch, kernel.scratch));
    for (auto _ : state) {
        launcher.run(pack, &c.p, c.step);
        launcher.run(kernel, &c.p, c.step);
    }
    const double flops = 2.0 * m * static_cast<double>(n * k);
    state.counters["GFLOP/s"] =
        benchmark::Counter(flops / 1e9, benchmark::Counter::kIsIterationInvariantRate);
    if (peak(type) > 0)
        state.counters["of_peak"] =
            benchmark::Counter(flops / peak(type), benchmark::Counter::kIsIterationInvariantRate);
}

}  // namespace

void add_rows() {
    for (const Format& f : formats())
        for (const DType type : {DType::bf16, DType::f32}) {
            const std::string end = std::string(f.name) + "/" + std::string(name_of(type));
            for (const int m : {1, 2, 4, 8})
                benchmark::RegisterBenchmark(("matvec/" + end + "/m" + std::to_string(m) + "/k2048").c_str(),
                                             [=](benchmark::State& s) { matvec(s, f.format, type, m, 2048); })
                    ->UseRealTime()
                    ->Unit(benchmark::kMillisecond);
            for (const int m : {16, 64, 512})
                benchmark::RegisterBenchmark(
                    ("gemm/" + end + "/m" + std::to_string(m) + "/n2048/k2048").c_str(),
                    [=](benchmark::State& s) { gemm(s, f.format, type, m, 2048, 2048); })
                    ->UseRealTime()
                    ->Unit(benchmark::kMillisecond);
        }
}

}  // namespace forge::bench

int main(int argc, char** argv) {
    using namespace forge::bench;
    benchmark::Initialize(&argc, argv);
    std::printf("isa %s, %d threads, read %.1f GB/s, peak %.0f GFLOP/s\n",
                std::string(forge::name_of(forge::detect_isa())).c_str(), pool().size(),
                read_bandwidth(pool()), peak_flops(pool(), forge::detect_isa()));
    std::fflush(stdout);
    add_rows();
    benchmark::RunSpecifiedBenchmarks();
    return 0;
}
