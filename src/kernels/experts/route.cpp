// Which experts a row goes to, rows sorted by expert, and the weighted sum.
// Small work beside the experts' products: plain loops for every instruction set.
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/float16.h"
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
        std::uint32_t* ids = p.route + row * 2 * p.k;
        float* weights = reinterpret_cast<float*>(ids + p.k);
        float chosen = 0;
        for (int i = 0; i < p.k; ++i) {
            int best = 0;
            for (int e = 1; e < p.experts; ++e)
                if (probability[e] > probability[best]) best = e;
            ids[i] = static_cast<std::uint32_t>(best);
            weights[i] = probability[best] / sum;
            chosen += weights[i];
            probability[best] = -1;   // also keeps NaN rows inside the table: ids stay below `experts`
        }
        for (int i = 0; i < p.k; ++i) {
            if (p.normalise) weights[i] /= chosen;
            if (p.expert_scale) weights[i] *= p.expert_scale[ids[i]];
            if (p.round_weights) weights[i] = round_to<T>(weights[i]);
        }
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
    constexpr int block = 64;
    for (std::int64_t row = first; row < last; ++row) {
        const float* weights = reinterpret_cast<const float*>(p.route + row * 2 * p.k + p.k);
        const float gate = p.shared_gate ? round_to<T>(1.0f / (1.0f + std::exp(-static_cast<float>(static_cast<const T*>(p.shared_gate)[row])))) : 1.0f;
        for (int c = 0; c < p.width; c += block) {
            const int n = std::min(block, p.width - c);
            float sum[block] = {};
            for (int i = 0; i < p.k; ++i) {
                const std::int64_t pair = row * p.k + i;
                const T* in = x + (p.table ? table.place_of[pair] : pair) * p.width + c;
                for (int j = 0; j < n; ++j) sum[j] += round_to<T>(static_cast<float>(in[j]) * weights[i]);
            }
            T* y = static_cast<T*>(p.y) + row * p.width + c;
            const T* shared = p.shared ? static_cast<const T*>(p.shared) + row * p.width + c : nullptr;
            for (int j = 0; j < n; ++j) {
                const float routed = round_to<T>(sum[j]);
                y[j] = T(shared ? routed + round_to<T>(gate * static_cast<float>(shared[j])) : routed);
            }
        }
    }
}

template <typename Fn>
Fn by_type(DType type, Fn f32, Fn f16, Fn bf16) {
    if (type == DType::f32) return f32;
    if (type == DType::f16) return f16;
    if (type == DType::bf16) return bf16;
    fail(ErrorKind::unsupported, "activations must be f32, f16 or bf16, not {}", name_of(type));
}

}  // namespace

CpuKernel route_kernel(const RouteParams& p, Isa) {
    if (p.k < 1 || p.k > p.experts) fail(ErrorKind::internal, "{} of {} experts cannot be chosen", p.k, p.experts);
    return {"route", by_type<CpuFn>(p.type, route<float>, route<f16>, route<bf16>), rows_of, 1, static_cast<std::size_t>(p.experts) * 4 + 64};
}

CpuKernel group_kernel(const GroupParams&, Isa) { return {"group", group, one, 1, 0}; }

std::size_t group_bytes(int experts, int k, int max_rows) {
    return (2 * (static_cast<std::size_t>(experts) + 1) + 2 * static_cast<std::size_t>(k) * static_cast<std::size_t>(max_rows)) * sizeof(std::int32_t);
}

CpuKernel combine_kernel(const CombineParams& p, Isa) {
    return {"combine", by_type<CpuFn>(p.type, combine<float>, combine<f16>, combine<bf16>), rows_of, 1, 0};
}

}  // namespace forge
