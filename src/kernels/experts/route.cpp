// Which experts a row goes to, rows sorted by expert, and the weighted sum.
// The loops here are the reference; simd_body.h has the vectors.
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/float16.h"
#include "experts/functions.h"
#include "experts/top.h"
#include "kernels/experts/experts.h"

namespace forge {
namespace {

std::int64_t rows_of(const void*, const StepRows& step) { return step.m; }
std::int64_t one(const void*, const StepRows& step) { return step.m > 0 ? 1 : 0; }

template <typename T>
void route(const void* params, const StepRows&, std::int64_t first, std::int64_t last, CpuWorker& worker) {
    const auto& p = *static_cast<const RouteParams*>(params);
    worker.tag = 0;
    float* probability = reinterpret_cast<float*>(worker.scratch.data());
    for (std::int64_t row = first; row < last; ++row) {
        const T* logits = static_cast<const T*>(p.logits) + row * p.experts;
        float top = -std::numeric_limits<float>::infinity(), sum = 0;
        for (int e = 0; e < p.experts; ++e) top = std::max(top, static_cast<float>(logits[e]) * p.logit_scale);
        for (int e = 0; e < p.experts; ++e) sum += probability[e] = std::exp(static_cast<float>(logits[e]) * p.logit_scale - top);
        take_top<T>(p, probability, sum, row);
    }
}

void group(const void* params, const StepRows& step, std::int64_t, std::int64_t, CpuWorker&) {
    const auto& p = *static_cast<const GroupParams*>(params);
    const GroupTable t(p.table, p.experts, p.max_rows * p.k);
    std::fill(t.starts, t.starts + p.experts + 1, 0);
    for (int row = 0; row < step.m; ++row)
        for (int i = 0; i < p.k; ++i) ++t.starts[p.route[row * 2 * p.k + i] + 1];
    t.panel_starts[0] = 0;
    for (int e = 0; e < p.experts; ++e) {
        t.panel_starts[e + 1] = t.panel_starts[e] + (t.starts[e + 1] + p.panel - 1) / p.panel;
        t.starts[e + 1] += t.starts[e];
    }
    for (int row = 0; row < step.m; ++row) {
        for (int i = 0; i < p.k; ++i) {
            const int pair = row * p.k + i, place = t.starts[p.route[row * 2 * p.k + i]]++;
            t.pair_of[place] = pair;
            t.place_of[pair] = place;
        }
    }
    // Placing moved every start to its end.
    for (int e = p.experts; e > 0; --e) t.starts[e] = t.starts[e - 1];
    t.starts[0] = 0;
}

template <typename T>
void combine(const void* params, const StepRows&, std::int64_t first, std::int64_t last, CpuWorker&) {
    const auto& p = *static_cast<const CombineParams*>(params);
    const T* x = static_cast<const T*>(p.x);
    const GroupTable table(const_cast<std::int32_t*>(p.table), p.experts, p.max_rows * p.k);
    const int blocks = (p.width + kCombineColumns - 1) / kCombineColumns;
    for (std::int64_t item = first; item < last; ++item) {
        const std::int64_t row = item / blocks;
        const int from = static_cast<int>(item % blocks) * kCombineColumns, to = std::min(p.width, from + kCombineColumns);
        const float* weights = reinterpret_cast<const float*>(p.route + row * 2 * p.k + p.k);
        const float gate = p.shared_gate ? round_to<T>(1.0f / (1.0f + std::exp(-static_cast<float>(static_cast<const T*>(p.shared_gate)[row])))) : 1.0f;
        for (int c = from; c < to; ++c) {
            float sum = 0;
            for (int i = 0; i < p.k; ++i) {
                const std::int64_t pair = row * p.k + i;
                sum += round_to<T>(static_cast<float>(x[(p.table ? table.place_of[pair] : pair) * p.width + c]) * weights[i]);
            }
            const float routed = round_to<T>(sum);
            const T* shared = p.shared ? static_cast<const T*>(p.shared) + row * p.width : nullptr;
            static_cast<T*>(p.y)[row * p.width + c] = T(shared ? routed + round_to<T>(gate * static_cast<float>(shared[c])) : routed);
        }
    }
}

int type_index(DType type) {
    if (type == DType::f32) return 0;
    if (type == DType::f16) return 1;
    if (type == DType::bf16) return 2;
    fail(ErrorKind::unsupported, "activations must be f32, f16 or bf16, not {}", name_of(type));
}

const ExpertFunctions& functions(Isa isa) {
    switch (isa) {
        case Isa::plain: return experts_plain;
#if defined(__x86_64__)
        case Isa::avx2: return experts_avx2;
        case Isa::avx512: return experts_avx512;
#elif defined(__aarch64__)
        case Isa::neon: return experts_neon;
#endif
        default: fail(ErrorKind::unsupported, "this build of Forge has no {} kernels", name_of(isa));
    }
}

std::int64_t combine_items(const void* params, const StepRows& step) {
    return std::int64_t{step.m} * ((static_cast<const CombineParams*>(params)->width + kCombineColumns - 1) / kCombineColumns);
}

}  // namespace

const ExpertFunctions experts_plain = {{route<float>, route<f16>, route<bf16>}, {combine<float>, combine<f16>, combine<bf16>}};

CpuKernel route_kernel(const RouteParams& p, Isa isa) {
    if (p.k < 1 || p.k > p.experts) fail(ErrorKind::internal, "{} of {} experts cannot be chosen", p.k, p.experts);
    // Probabilities in whole vectors of any width.
    return {"route", functions(isa).route[type_index(p.type)], rows_of, 1, static_cast<std::size_t>((p.experts + 15) / 16 * 16) * sizeof(float) + 64};
}

CpuKernel group_kernel(const GroupParams&, Isa) { return {"group", group, one, 1, 0}; }

std::size_t group_bytes(int experts, int k, int max_rows) {
    return (2 * (static_cast<std::size_t>(experts) + 1) + 2 * static_cast<std::size_t>(k) * static_cast<std::size_t>(max_rows)) * sizeof(std::int32_t);
}

CpuKernel combine_kernel(const CombineParams& p, Isa isa) {
    return {"combine", functions(isa).combine[type_index(p.type)], combine_items, 1, 0};
}

}  // namespace forge
