// Routing and the weighted sum for one instruction set.
#pragma once

#include <cstring>

#include "experts/functions.h"
#include "experts/top.h"
#include "kernels/experts/experts.h"
#include "simd/math.h"
#include "simd/norm.h"

namespace forge::FORGE_SIMD {

template <typename T>
FORGE_INLINE F32 load_choices(const T* p, int n) { return n == kLanes ? load(p) : load_first(p, n); }

template <typename T>
void route_rows(const void* params, const StepRows&, std::int64_t first, std::int64_t last, CpuWorker& worker) {
    const auto& p = *static_cast<const RouteParams*>(params);
    worker.tag = 0;
    float* probability = reinterpret_cast<float*>(worker.scratch.data());
    const F32 scale = set1(p.logit_scale);
    for (std::int64_t row = first; row < last; ++row) {
        const T* logits = static_cast<const T*>(p.logits) + row * p.experts;
        F32 most = set1(-__builtin_inff()), total = zero();
        for (int e = 0; e < p.experts; e += kLanes) {
            const int n = std::min(kLanes, p.experts - e);
            most = max(select(first_lanes(n), load_choices(logits + e, n) * scale, most), most);
        }
        const F32 top = set1(largest(most));
        for (int e = 0; e < p.experts; e += kLanes) {
            const int n = std::min(kLanes, p.experts - e);
            const F32 x = select(first_lanes(n), exp(load_choices(logits + e, n) * scale - top), zero());
            store(probability + e, x);
            total = total + x;
        }
        take_top<T>(p, probability, sum(total), row);
    }
}

// Items are blocks of columns of a row.
template <typename T>
void combine_choices(const void* params, const StepRows&, std::int64_t first, std::int64_t last, CpuWorker&) {
    const auto& p = *static_cast<const CombineParams*>(params);
    const T* x = static_cast<const T*>(p.x);
    const GroupTable table(const_cast<std::int32_t*>(p.table), p.experts, p.max_rows * p.k);
    const int blocks = (p.width + kCombineColumns - 1) / kCombineColumns;
    for (std::int64_t item = first; item < last; ++item) {
        const std::int64_t row = item / blocks;
        const int from = static_cast<int>(item % blocks) * kCombineColumns, to = std::min(p.width, from + kCombineColumns);
        const std::uint32_t* weight_bits = p.route + row * 2 * p.k + p.k;
        float raw = 0;
        if (p.shared_gate) raw = static_cast<float>(static_cast<const T*>(p.shared_gate)[row]);
        const F32 gate = p.shared_gate ? round_as<T>(sigmoid(set1(raw))) : set1(1.0f);
        for (int c = from; c < to; c += kLanes) {
            const int n = std::min(kLanes, to - c);
            F32 sum = zero();
            for (int i = 0; i < p.k; ++i) {
                float weight;
                std::memcpy(&weight, weight_bits + i, 4);
                const std::int64_t pair = row * p.k + i;
                const T* in = x + (p.table ? table.place_of[pair] : pair) * p.width + c;
                sum = sum + round_as<T>(load_choices(in, n) * set1(weight));
            }
            F32 y = round_as<T>(sum);
            if (p.shared) y = y + round_as<T>(gate * load_choices(static_cast<const T*>(p.shared) + row * p.width + c, n));
            T* out = static_cast<T*>(p.y) + row * p.width + c;
            if (n == kLanes) store(out, y);
            else store_first(out, y, n);
        }
    }
}

#define FORGE_EXPERT_FUNCTIONS {{route_rows<float>, route_rows<f16>, route_rows<bf16>}, {combine_choices<float>, combine_choices<f16>, combine_choices<bf16>}}

}  // namespace forge::FORGE_SIMD
