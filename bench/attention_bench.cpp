// Attention: decode against the memory's bandwidth, prefill against the bf16 peak.
#include <benchmark/benchmark.h>

#include <cmath>
#include <memory>
#include <random>

#include "base/float16.h"
#include "kernels/attention/attention.h"
#include "machine.h"

namespace forge::bench {
namespace {

// `layers` caches of one slot with random contents, so that no cache holds them all.
struct Model {
    int n_heads, n_kv_heads, head_dim, depth, layers;
    std::vector<std::unique_ptr<bf16[]>> memory;
    std::vector<bf16> q, out;
    std::vector<float> partial;
    std::vector<AttentionParams> params;
    std::vector<std::int32_t> slots, positions;
    StepRows step;

    Model(int n_heads_, int n_kv_heads_, int head_dim_, int depth_, int rows, std::size_t total_bytes)
        : n_heads(n_heads_), n_kv_heads(n_kv_heads_), head_dim(head_dim_), depth(depth_) {
        const int capacity = (depth + 15) / 16 * 16;
        const std::size_t bytes = kv_cache_bytes(capacity, 1, n_kv_heads, head_dim, DType::bf16);
        layers = static_cast<int>(std::max<std::size_t>(1, total_bytes / (2 * bytes)));
        std::mt19937 rng(1);
        const auto fill = [&](bf16* p, std::size_t count) {
            for (std::size_t i = 0; i < count; ++i) p[i] = bf16((static_cast<float>(rng() & 0xffff) / 65536.0f - 0.5f) * 3.4f);
        };
        const auto width = static_cast<std::size_t>(n_heads * head_dim);
        q.resize(static_cast<std::size_t>(rows) * width);
        out.resize(q.size());
        fill(q.data(), q.size());
        AttentionParams p;
        p.n_heads = n_heads;
        p.n_kv_heads = n_kv_heads;
        p.head_dim = head_dim;
        p.q = q.data();
        p.out = out.data();
        p.scale = 1 / std::sqrt(static_cast<float>(head_dim));
        p.max_rows = rows;
        p.cache = {nullptr, nullptr, capacity, 1, n_kv_heads, head_dim, DType::bf16};
        if (rows <= 8) partial.resize(attention_partial_bytes(p) / 4);
        p.partial = partial.data();
        for (int layer = 0; layer < layers; ++layer) {
            for (void** side : {&p.cache.keys, &p.cache.values}) {
                memory.emplace_back(new bf16[bytes / 2]);
                if (memory.size() <= 2) fill(memory.back().get(), bytes / 2);
                else std::copy_n(memory[memory.size() - 3].get(), bytes / 2, memory.back().get());
                *side = memory.back().get();
            }
            params.push_back(p);
        }
        for (int r = 0; r < rows; ++r) {
            slots.push_back(0);
            positions.push_back(depth - rows + r);
        }
        step.m = rows;
        step.slots = slots.data();
        step.positions = positions.data();
        step.serial = 1;
    }
};

void decode(benchmark::State& state, Isa isa, int n_heads, int n_kv_heads, int head_dim) {
    Model model(n_heads, n_kv_heads, head_dim, static_cast<int>(state.range(0)), static_cast<int>(state.range(1)), std::size_t{192} << 20);
    const CpuKernel kernel = attention_decode_kernel(model.params[0], isa), merge = attention_combine_kernel(model.params[0], isa);
    Launcher launcher(pool(), kernel.scratch);
    const double before = read_bandwidth(pool());
    for (auto _ : state)
        for (const AttentionParams& p : model.params) {
            launcher.run(kernel, &p, model.step);
            launcher.run(merge, &p, model.step);
        }
    const double after = read_bandwidth(pool());
    const double bytes = 4.0 * model.depth * n_kv_heads * head_dim * model.layers * static_cast<double>(state.iterations());
    state.counters["GB/s"] = benchmark::Counter(bytes / 1e9, benchmark::Counter::kIsRate);
    state.counters["share"] = benchmark::Counter(bytes / 1e9 / ((before + after) / 2), benchmark::Counter::kIsRate);
    state.counters["layers"] = model.layers;
}

void prefill(benchmark::State& state, Isa isa, int n_heads, int n_kv_heads, int head_dim) {
    // The last 512 rows of a prompt, as chunks come.
    const int depth = static_cast<int>(state.range(0)), rows = std::min(depth, 512);
    Model model(n_heads, n_kv_heads, head_dim, depth, rows, 1);
    const CpuKernel kernel = attention_prefill_kernel(model.params[0], isa);
    Launcher launcher(pool(), kernel.scratch);
    const double before = peak_flops(pool(), isa);
    for (auto _ : state) launcher.run(kernel, &model.params[0], model.step);
    const double after = peak_flops(pool(), isa);
    double pairs = 0;  // keys seen by all rows
    for (const int position : model.positions) pairs += position + 1;
    const double flops = 4.0 * pairs * n_heads * head_dim * static_cast<double>(state.iterations());
    state.counters["GFLOP/s"] = benchmark::Counter(flops / 1e9, benchmark::Counter::kIsRate);
    state.counters["share"] = benchmark::Counter(flops / 1e9 / ((before + after) / 2), benchmark::Counter::kIsRate);
}

void prepare(benchmark::State& state, Isa isa) {
    const int rows = static_cast<int>(state.range(0));
    Model model(16, 8, 128, 4096, rows, 1);
    std::vector<float> table(static_cast<std::size_t>(rows) * 128, 0.5f), weight(128, 1.0f), inv_freq(64, 0.01f);
    std::vector<bf16> k(static_cast<std::size_t>(rows) * 8 * 128), v(k.size());
    QkPrepareParams p;
    p.n_heads = 16;
    p.n_kv_heads = 8;
    p.head_dim = 128;
    p.q = model.q.data();
    p.q_out = model.q.data();
    p.k = k.data();
    p.v = v.data();
    p.q_norm = p.k_norm = weight.data();
    p.eps = 1e-6f;
    p.rope = table.data();
    p.rope_half = 64;
    p.cache = model.params[0].cache;
    const CpuKernel kernel = qk_prepare_kernel(p, isa);
    Launcher launcher(pool(), kernel.scratch);
    for (auto _ : state) launcher.run(kernel, &p, model.step);
}

void rope(benchmark::State& state, Isa isa) {
    const int rows = static_cast<int>(state.range(0));
    Model model(16, 8, 128, 4096, rows, 1);
    std::vector<float> table(static_cast<std::size_t>(rows) * 128), inv_freq;
    for (int i = 0; i < 64; ++i) inv_freq.push_back(std::pow(10000.0f, -static_cast<float>(i) / 64));
    const RopeTableParams p{inv_freq.data(), 64, 1, DType::bf16, table.data()};
    const CpuKernel kernel = rope_table_kernel(p, isa);
    CpuWorker worker;
    for (auto _ : state) kernel.fn(&p, model.step, 0, rows, worker);  // one thread
}

}  // namespace
}  // namespace forge::bench

int main(int argc, char** argv) {
    using namespace forge;
    using namespace forge::bench;
    const Isa isa = detect_isa();
    const auto clocked = [](benchmark::internal::Benchmark* b) {
        b->Unit(benchmark::kMicrosecond);
        return busy_machine() ? b : b->UseRealTime();
    };
    struct Shape { const char* name; int q, kv, d; };
    for (const Shape& s : {Shape{"16q/8kv/128", 16, 8, 128}, Shape{"32q/8kv/64", 32, 8, 64}, Shape{"8q/2kv/256", 8, 2, 256}}) {
        clocked(benchmark::RegisterBenchmark((std::string("decode/") + s.name).c_str(), [=](benchmark::State& state) { decode(state, isa, s.q, s.kv, s.d); }))
            ->ArgNames({"depth", "rows"})->Args({512, 1})->Args({4096, 1})->Args({16384, 1})->Args({4096, 4});
        clocked(benchmark::RegisterBenchmark((std::string("prefill/") + s.name).c_str(), [=](benchmark::State& state) { prefill(state, isa, s.q, s.kv, s.d); }))
            ->ArgName("depth")->Arg(512)->Arg(4096);
    }
    clocked(benchmark::RegisterBenchmark("qk_prepare/16q/8kv/128", [=](benchmark::State& state) { prepare(state, isa); }))
        ->ArgName("rows")->Arg(1)->Arg(512);
    clocked(benchmark::RegisterBenchmark("rope_table/64", [=](benchmark::State& state) { rope(state, isa); }))
        ->ArgName("rows")->Arg(1)->Arg(512);
    benchmark::Initialize(&argc, argv);
    benchmark::RunSpecifiedBenchmarks();
}
