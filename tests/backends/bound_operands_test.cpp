// What the plan says that a launch reads reaches the GPU, whichever of a launch's variants serves the step.
#include <gtest/gtest.h>

#include <algorithm>
#include <climits>
#include <string>

#include "../tune/fixture.h"
#include "backends/outline.h"
#include "gpu_program.h"
#include "lower/lower.h"

namespace forge::test {
namespace {

constexpr int kCapacity = 2048;   // longer than what attention merges in its own launch

// Queries that one row's attention prepares where it reads them; rows that a step of one row does not copy, and what they
// are copied to.
bool of_some_variants(const Launch& launch, const Operand& o) {
    return o.name == "query" || o.name == "untaken" || (o.name == "x" && launch.find("untaken"));
}

bool same(const BufferRef& a, const BufferRef& b) { return a.space == b.space && a.index == b.index && a.offset == b.offset; }
bool is(const gpu::Buffer& b, const BufferRef& ref) {
    return ref.space == Space::arena ? b.place == gpu::Place::arena && b.offset == ref.offset : b.place == gpu::Place::plane && b.index == ref.index;
}
// Parameters of a variant's kernels that lie where an operand lies. Attention's gates lie beside its queries, so that two
// operands may be one buffer.
std::ptrdiff_t bound_to(const gpu::Variant& variant, const BufferRef& ref) {
    std::ptrdiff_t n = 0;
    for (const gpu::BoundKernel& k : variant.kernels) n += std::count_if(k.buffers.begin(), k.buffers.end(), [&](const gpu::Buffer& b) { return is(b, ref); });
    return n;
}

class BoundOperands : public testing::TestWithParam<const char*> {};

TEST_P(BoundOperands, AreThoseOfTheProgramInEveryVariant) {
    const TinySubject model(GetParam(), WeightLayout::rows);
    int seen = 0, gates = 0;
    for (const bool wide : {false, true}) {
        gpu::Limits limits;
        limits.tensor = wide ? gpu::Tensor::wgmma : gpu::Tensor::simdgroup;
        limits.wide = wide;
        limits.cores = 16;
        limits.near_positions = 1024;   // where heads are of whole 64s: long contexts too
        const auto backend = make_outline_backend(wide ? OutlineTarget::cuda : OutlineTarget::metal);
        const tune::Subject subject = model.on(*backend);
        const gpu::GpuCacheLayout cache(subject.layers, 2, kCapacity, DType::bf16);
        for (const int rows : {1, 8})
            for (const std::vector<std::string>& off : {std::vector<std::string>{"trim_outputs"}, {"trim_outputs", "fuse_merge"}, {}, {"all"}}) {
                const Program program = lower(model.fused(PassTarget::gpu, off), subject.ropes, {DType::bf16, rows, 1}, lower_target(*backend, subject.weights, DType::bf16, kCapacity));
                for (const gpu::GpuLaunch& launch : gpu::bind_program(program, subject.weights, cache, limits).launches) {
                    std::vector<std::size_t> sources = launch.beside;
                    sources.push_back(launch.source);
                    for (const std::size_t source : sources) {
                        const Launch& l = program.launches[source];
                        for (const Operand& o : l.operands) {
                            if (of_some_variants(l, o) || o.name == "rope" || (o.buffer.space != Space::arena && o.buffer.space != Space::weight)) continue;
                            const auto there = std::count_if(l.operands.begin(), l.operands.end(), [&](const Operand& p) { return same(p.buffer, o.buffer); });
                            for (const gpu::Variant& v : launch.variants)   // one without kernels is for steps that need none
                                EXPECT_GE(v.kernels.empty() ? there : bound_to(v, o.buffer), launch.beside.empty() ? there : 1)
                                    << l.kernel << " " << l.label << ": " << o.name << ", up to " << v.max_rows << " rows below position " << v.positions;
                            ++seen;
                            gates += o.name == "gates";
                        }
                    }
                }
            }
    }
    EXPECT_GT(seen, 100);
    EXPECT_EQ(gates > 0, std::string_view(GetParam()).starts_with("models-mixed/qwen3")) << "which models have attention with gates";
}

INSTANTIATE_TEST_SUITE_P(All, BoundOperands,
                         testing::Values("models/qwen2-bias", "models/gemma3-new", "models-mixed/gemma4-per-layer", "models-mixed/gemma4-experts", "models-mixed/mixtral", "models-mixed/qwen3.5-moe",
                                         "models-mixed/qwen3-next"),
                         [](const auto& info) {
                             std::string name = info.param;
                             std::replace_if(name.begin(), name.end(), [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
                             return name;
                         });

// Products of one row that are shared out evenly among a GPU's cores still run beside those that they ran beside.
TEST(EvenShares, JoinTheSameProducts) {
    int others = 0;
    for (const char* name : {"models-mlx/llama-4bit-g64", "models-mlx/qwen3.5-8bit", "models-mlx/mistral-8bit-f16"}) {
        SCOPED_TRACE(name);
        const TinySubject model(name, WeightLayout::rows);
        const auto backend = make_outline_backend(OutlineTarget::cuda);
        const tune::Subject subject = model.on(*backend);
        const gpu::GpuCacheLayout cache(subject.layers, 2, kCapacity, DType::bf16);
        const Program program = lower(model.fused(PassTarget::gpu, {}), subject.ropes, {DType::bf16, 8, 1}, lower_target(*backend, subject.weights, DType::bf16, kCapacity));
        for (const int cores : {2, 3, 5, 6, 7, 11, 13}) {
            gpu::Limits limits;
            limits.tensor = gpu::Tensor::wgmma;
            limits.wide = true;
            limits.cores = cores;
            const gpu::GpuProgram even = gpu::bind_program(program, subject.weights, cache, limits);
            limits.even = false;
            const gpu::GpuProgram uneven = gpu::bind_program(program, subject.weights, cache, limits);
            ASSERT_EQ(even.launches.size(), uneven.launches.size());
            for (std::size_t i = 0; i < even.launches.size(); ++i) {
                EXPECT_EQ(even.launches[i].beside, uneven.launches[i].beside);
                for (const gpu::Variant& v : even.launches[i].variants)
                    for (const gpu::BoundKernel& k : v.kernels) others += !even.launches[i].beside.empty() && k.kernel.family == "matvec" && k.kernel.threads != 256;
            }
        }
    }
    EXPECT_GT(others, 0) << "no joined product was shared out";
}

// Every head size that the tensor cores take: one threadgroup has more than half of a multiprocessor's memory and not more
// than all, and the grid has a place for every part of the shortest and of the longest row that the kernel serves.
TEST(LongContexts, HaveAThreadgroupForEveryCore) {
    gpu::Common c;
    c.limits.tensor = gpu::Tensor::wgmma;
    c.limits.cores = 132;
    gpu::AttentionShape s;
    s.capacity = 40960;
    for (const int head_dim : {64, 128, 192, 256})
        for (const int kv : {1, 2, 3, 8})
            for (const int group : {1, 2, 4, 5, 8, 16}) {
                SCOPED_TRACE(std::to_string(head_dim) + " " + std::to_string(kv) + " " + std::to_string(group));
                s.head_dim = head_dim;
                s.n_kv_heads = kv;
                s.n_heads = kv * group;
                s.fused = s.far = true;
                const int near = gpu::attention_near(c, s);
                ASSERT_EQ(near, 8192);
                const gpu::Kernel far = gpu::attention_decode(c, s);
                EXPECT_LE(far.dynamic_bytes(), 227u * 1024);
                EXPECT_GT(far.dynamic_bytes(), 114u * 1024);
                EXPECT_LE(far.grid.x * far.grid.most_parts, std::max(132, far.grid.x));
                EXPECT_GT(2 * far.grid.x * far.grid.most_parts, kv == 1 && group <= 8 ? 64 : 132);
                const int slots[1] = {0}, first[1] = {near}, last[1] = {s.capacity - 1};
                StepRows step;
                step.m = 1;
                step.slots = slots;
                for (const int* positions : {first, last}) {
                    step.positions = positions;
                    EXPECT_EQ(static_cast<int>(gpu::grid_size(far.grid, step).z), far.grid.most_parts);
                }
                s.far = false;   // the same parts, for rows that are short too
                EXPECT_EQ(gpu::attention_decode(c, s).grid.most_parts, 64);
                s.window = 512;
                EXPECT_EQ(gpu::attention_near(c, s), INT_MAX);
                s.window = 0;
            }
}

}  // namespace
}  // namespace forge::test
