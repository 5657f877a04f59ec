// The row operations for one instruction set.
#pragma once

#include <limits>

#include "rows/functions.h"
#include "kernels/rows/rows.h"
#include "simd/math.h"
#include "simd/norm.h"

namespace forge::FORGE_SIMD {

// fn(column, n): n = kLanes but for the last.
template <typename Fn>
FORGE_INLINE void for_columns(std::int64_t width, const Fn& fn) {
    std::int64_t c = 0;
    for (; c + kLanes <= width; c += kLanes) fn(c, kLanes);
    if (c < width) fn(c, static_cast<int>(width - c));
}

// Whole vectors without a mask, which would cost twice the loop.
template <typename T>
FORGE_INLINE F32 load_some(const T* p, int n) { return n == kLanes ? load(p) : load_first(p, n); }
template <typename T>
FORGE_INLINE void store_some(T* p, F32 x, int n) {
    if (n == kLanes) store(p, x);
    else store_first(p, x, n);
}

template <typename T, typename From>
void scale_row(const From* row, std::int64_t width, float scale, T* y) {
    if (scale == 1) {
        for_columns(width, [&](std::int64_t c, int n) { store_some(y + c, load_some(row + c, n), n); });
    } else {
        const F32 s = round_as<T>(set1(scale));
        for_columns(width, [&](std::int64_t c, int n) { store_some(y + c, round_as<T>(load_some(row + c, n)) * s, n); });
    }
}

template <typename T>
void embed(const void* params, const StepRows& step, std::int64_t first, std::int64_t last, CpuWorker& worker) {
    const auto& p = *static_cast<const EmbedParams*>(params);
    const std::int64_t width = p.table->cols;
    for (std::int64_t i = first; i < last; ++i) {
        T* y = static_cast<T*>(p.y) + i * width;
        const std::byte* dense = p.table->codes.data + static_cast<std::size_t>(step.tokens[i]) * p.table->codes.stride;
        const bool exact = p.table->format.is_dense() && p.table->global_scale == 1;
        if (exact && p.table->format.dense_type == DType::bf16) {
            scale_row(reinterpret_cast<const bf16*>(dense), width, p.scale, y);
        } else if (exact && p.table->format.dense_type == DType::f16) {
            scale_row(reinterpret_cast<const f16*>(dense), width, p.scale, y);
        } else {
            worker.tag = 0;
            auto* row = reinterpret_cast<float*>(worker.scratch.data());
            decode_row(*p.table, step.tokens[i], row);
            scale_row(row, width, p.scale, y);
        }
    }
}

template <typename T>
void norm(const void* params, const StepRows&, std::int64_t first, std::int64_t last, CpuWorker&) {
    const auto& p = *static_cast<const NormParams*>(params);
    for (std::int64_t i = first; i < last; ++i) {
        const T* x = static_cast<const T*>(p.x) + i * p.width;
        const T* residual = p.residual == nullptr ? nullptr : static_cast<const T*>(p.residual) + i * p.width;
        T* y = static_cast<T*>(p.y) + i * p.width;
        const F32 factor = set1(norm_factor(x, p.width, p.eps));
        for_columns(p.width, [&](std::int64_t c, int n) {
            F32 value = load_some(x + c, n) * factor;
            value = p.weight == nullptr ? round_as<T>(value) : normed<T>(p.norm, value, load_some(p.weight + c, n));
            if (residual != nullptr) value = load_some(residual + c, n) + value;
            store_some(y + c, value, n);
        });
    }
}

template <typename T>
void scale(const void* params, const StepRows&, std::int64_t first, std::int64_t last, CpuWorker&) {
    const auto& p = *static_cast<const ScaleParams*>(params);
    const std::int64_t from = first * p.width;
    const T* x = static_cast<const T*>(p.x) + from;
    T* y = static_cast<T*>(p.y) + from;
    const F32 factor = set1(p.factor);
    for_columns((last - first) * p.width, [&](std::int64_t c, int n) { store_some(y + c, load_some(x + c, n) * factor, n); });
}

template <typename T>
void add(const void* params, const StepRows&, std::int64_t first, std::int64_t last, CpuWorker&) {
    const auto& p = *static_cast<const AddParams*>(params);
    const std::int64_t from = first * p.width;
    const T* a = static_cast<const T*>(p.a) + from;
    const T* b = static_cast<const T*>(p.b) + from;
    T* y = static_cast<T*>(p.y) + from;
    for_columns((last - first) * p.width,
                [&](std::int64_t c, int n) { store_some(y + c, load_some(a + c, n) + load_some(b + c, n), n); });
}

template <typename T, ActKind act>
void act_mul_range(const T* gate, const T* up, T* y, std::int64_t count) {
    for_columns(count, [&](std::int64_t c, int n) {
        const F32 g = load_some(gate + c, n);
        const F32 a = round_as<T>(act == ActKind::silu ? silu(g) : gelu_tanh(g));
        store_some(y + c, a * load_some(up + c, n), n);
    });
}

template <typename T>
void act_mul(const void* params, const StepRows&, std::int64_t first, std::int64_t last, CpuWorker&) {
    const auto& p = *static_cast<const ActMulParams*>(params);
    const std::int64_t stride = p.up_stride > 0 ? p.up_stride : p.width;
    for (std::int64_t i = first; i < last; ++i) {
        const T* gate = static_cast<const T*>(p.gate) + i * p.width;
        const T* up = static_cast<const T*>(p.up) + i * stride;
        T* y = static_cast<T*>(p.y) + i * p.width;
        if (p.act == ActKind::silu) act_mul_range<T, ActKind::silu>(gate, up, y, p.width);
        else act_mul_range<T, ActKind::gelu_tanh>(gate, up, y, p.width);
    }
}

// Two passes: the largest value, then where it stands first. The second ends there.
inline void arg_max(const void* params, const StepRows&, std::int64_t first, std::int64_t last, CpuWorker&) {
    const auto& p = *static_cast<const ArgMaxParams*>(params);
    for (std::int64_t i = first; i < last; ++i) {
        const float* logits = p.logits + i * p.width;
        const F32 low = set1(-std::numeric_limits<float>::infinity());
        F32 best[8];
        for (F32& b : best) b = low;
        int c = 0;
        for (; c + 8 * kLanes <= p.limit; c += 8 * kLanes)
#pragma GCC unroll 8
            for (int j = 0; j < 8; ++j) best[j] = max(load(logits + c + j * kLanes), best[j]);  // a NaN leaves best
        for (; c < p.limit; c += kLanes) {
            const int n = p.limit - c < kLanes ? p.limit - c : kLanes;
            best[0] = max(select(first_lanes(n), load_first(logits + c, n), low), best[0]);
        }
        for (int j = 1; j < 8; ++j) best[0] = max(best[j], best[0]);
        const F32 top = set1(largest(best[0]));
        p.token[i] = 0;  // when all are NaN
        for (c = 0; c < p.limit; c += kLanes) {
            const int n = p.limit - c < kLanes ? p.limit - c : kLanes;
            const std::uint32_t found = bits(equal(load_some(logits + c, n), top) & first_lanes(n));
            if (found != 0) {
                p.token[i] = c + __builtin_ctz(found);
                break;
            }
        }
    }
}

}  // namespace forge::FORGE_SIMD
