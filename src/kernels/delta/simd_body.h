// Gated DeltaNet for one instruction set.
#pragma once

#include <cmath>
#include <cstring>

#include "delta/functions.h"
#include "kernels/delta/delta.h"
#include "simd/math.h"
#include "simd/norm.h"

namespace forge::FORGE_SIMD {

template <typename T>
FORGE_INLINE F32 load_n(const T* p, int n) { return n == kLanes ? load(p) : load_first(p, n); }
template <typename T>
FORGE_INLINE void store_n(T* p, F32 x, int n) {
    if (n == kLanes) store(p, x);
    else store_first(p, x, n);
}

// Channels are lanes; the last kernel - 1 inputs travel in a window of rows.
template <typename T>
void conv(const void* params, const StepRows& step, std::int64_t first, std::int64_t last, CpuWorker&) {
    const auto& p = *static_cast<const ConvParams*>(params);
    const int channels = p.state.channels, taps = p.state.kernel, before = taps - 1;
    const int from = static_cast<int>(first) * kConvChannels;
    const int to = std::min<int>(channels, static_cast<int>(last) * kConvChannels);
    for (int row = 0; row < step.m;) {
        const int end = span_end(step, row);
        T* state = static_cast<T*>(p.state.conv) + static_cast<std::size_t>(step.slots[row]) * static_cast<std::size_t>(before * channels);
        const bool fresh = step.positions[row] == 0;
        for (int c = from; c < to; c += kLanes) {
            const int n = std::min(kLanes, to - c);
            // Input of a row, or of one of the `before` rows that came earlier.
            const auto input = [&](int r) {
                if (r >= row) return load_n(static_cast<const T*>(p.u) + static_cast<std::size_t>(r) * static_cast<std::size_t>(channels) + c, n);
                return fresh ? zero() : load_n(state + static_cast<std::ptrdiff_t>(r - row + before) * channels + c, n);
            };
            F32 weights[16];
            for (int j = 0; j < taps; ++j) {
                float w[kLanes] = {};
                for (int lane = 0; lane < n; ++lane) w[lane] = p.weight[static_cast<std::size_t>(c + lane) * static_cast<std::size_t>(taps) + static_cast<std::size_t>(j)];
                weights[j] = load(w);
            }
            for (int r = row; r < end; ++r) {
                F32 sum = zero();
                for (int j = 0; j < taps; ++j) sum = fma(weights[j], input(r - before + j), sum);
                store_n(static_cast<T*>(p.c) + static_cast<std::size_t>(r) * static_cast<std::size_t>(channels) + c, silu(round_as<T>(sum)), n);
            }
            F32 kept[16];
            for (int j = 0; j < before; ++j) kept[j] = input(end - before + j);
            for (int j = 0; j < before; ++j) store_n(state + static_cast<std::ptrdiff_t>(j) * channels + c, kept[j], n);
        }
        row = end;
    }
}

// x * rsqrt(sum x^2 + 1e-6) * scale
template <typename T>
void unit(const T* x, int n, float scale, float* out) {
    const float factor = scale / std::sqrt(sum_of_squares(x, n) + 1e-6f);
    for (int i = 0; i < n; i += kLanes) store_n(out + i, load_n(x + i, std::min(kLanes, n - i)) * set1(factor), std::min(kLanes, n - i));
}

}  // namespace forge::FORGE_SIMD

#include "delta/matrix_form.h"

namespace forge::FORGE_SIMD {

// An item is kDeltaColumns state columns of a value head: they are read once, carried through all
// rows of a sequence and written back. Sums run over k_dim in order, so that how columns are cut
// does not matter.
template <typename T>
void delta(const void* params, const StepRows& step, std::int64_t first, std::int64_t last, CpuWorker& worker) {
    if (step.m > kDeltaRowByRow) return delta_matrix<T>(params, step, first, last, worker);
    const auto& p = *static_cast<const DeltaParams*>(params);
    const DeltaState& s = p.state;
    const int blocks = (s.v_dim + kDeltaColumns - 1) / kDeltaColumns;
    const int key_width = s.n_k_heads * s.k_dim;
    worker.tag = 0;
    float* q = reinterpret_cast<float*>(worker.scratch.data());
    float* k = q + s.k_dim;
    float* columns = k + s.k_dim;   // [k_dim][kDeltaColumns]
    for (std::int64_t item = first; item < last; ++item) {
        const int h = static_cast<int>(item / blocks), from = static_cast<int>(item % blocks) * kDeltaColumns;
        const int count = std::min(kDeltaColumns, s.v_dim - from);
        const int kh = p.tiled_heads ? h % s.n_k_heads : h / (s.n_v_heads / s.n_k_heads);
        const float rate = p.negative_exp ? p.a_log[h] : -std::exp(p.a_log[h]);
        for (int row = 0; row < step.m;) {
            const int end = span_end(step, row);
            float* state = s.state + (static_cast<std::size_t>(step.slots[row]) * static_cast<std::size_t>(s.n_v_heads) + static_cast<std::size_t>(h)) *
                                         static_cast<std::size_t>(s.k_dim) * static_cast<std::size_t>(s.v_dim) + from;
            const bool fresh = step.positions[row] == 0;
            for (int i = 0; i < s.k_dim; ++i) {
                float* c = columns + i * kDeltaColumns;
                std::memset(c, 0, kDeltaColumns * sizeof(float));
                if (!fresh) std::memcpy(c, state + static_cast<std::size_t>(i) * static_cast<std::size_t>(s.v_dim), static_cast<std::size_t>(count) * sizeof(float));
            }
            for (int r = row; r < end; ++r) {
                const T* c = static_cast<const T*>(p.c) + static_cast<std::size_t>(r) * static_cast<std::size_t>(s.channels);
                const std::size_t at = static_cast<std::size_t>(r) * static_cast<std::size_t>(s.n_v_heads) + static_cast<std::size_t>(h);
                unit(c + kh * s.k_dim, s.k_dim, 1.0f / std::sqrt(static_cast<float>(s.k_dim)), q);
                unit(c + key_width + kh * s.k_dim, s.k_dim, 1.0f, k);
                const float a = static_cast<float>(static_cast<const T*>(p.a)[at]) + p.dt_bias[h];
                const float softplus = a > 20 ? a : std::log1p(std::exp(a));
                const F32 decay = set1(std::exp(rate * softplus));
                const float b = static_cast<float>(static_cast<const T*>(p.b)[at]);
                const F32 beta = set1(round_to<T>(1.0f / (1.0f + std::exp(-b))));
                constexpr int vectors = kDeltaColumns / kLanes;
                F32 seen[vectors], out[vectors];
                for (int v = 0; v < vectors; ++v) seen[v] = out[v] = zero();
                for (int i = 0; i < s.k_dim; ++i)
#pragma GCC unroll 8
                    for (int v = 0; v < vectors; ++v) {
                        const F32 x = load(columns + i * kDeltaColumns + v * kLanes) * decay;
                        store(columns + i * kDeltaColumns + v * kLanes, x);
                        seen[v] = fma(x, set1(k[i]), seen[v]);
                    }
                const T* value = c + 2 * key_width + h * s.v_dim + from;
                for (int v = 0; v < vectors; ++v) {
                    const int n = std::clamp(count - v * kLanes, 0, kLanes);
                    seen[v] = (load_first(value + v * kLanes, n) - seen[v]) * beta;
                }
                for (int i = 0; i < s.k_dim; ++i)
#pragma GCC unroll 8
                    for (int v = 0; v < vectors; ++v) {
                        const F32 x = fma(set1(k[i]), seen[v], load(columns + i * kDeltaColumns + v * kLanes));
                        store(columns + i * kDeltaColumns + v * kLanes, x);
                        out[v] = fma(x, set1(q[i]), out[v]);
                    }
                T* y = static_cast<T*>(p.out) + static_cast<std::size_t>(at) * static_cast<std::size_t>(s.v_dim) + from;
                for (int v = 0; v < vectors; ++v) store_first(y + v * kLanes, out[v], std::clamp(count - v * kLanes, 0, kLanes));
            }
            for (int i = 0; i < s.k_dim; ++i)
                std::memcpy(state + static_cast<std::size_t>(i) * static_cast<std::size_t>(s.v_dim), columns + i * kDeltaColumns, static_cast<std::size_t>(count) * sizeof(float));
            row = end;
        }
    }
}

template <typename T>
void gated_norm(const void* params, const StepRows&, std::int64_t first, std::int64_t last, CpuWorker&) {
    const auto& p = *static_cast<const GatedNormParams*>(params);
    for (std::int64_t i = first * p.heads; i < last * p.heads; ++i) {
        const T* x = static_cast<const T*>(p.x) + i * p.width;
        const T* z = static_cast<const T*>(p.z) + i * p.width;
        T* y = static_cast<T*>(p.y) + i * p.width;
        const F32 factor = set1(norm_factor(x, p.width, p.eps));
        for (int c = 0; c < p.width; c += kLanes) {
            const int n = std::min(kLanes, p.width - c);
            const F32 t = round_as<T>(load_n(p.weight + c, n) * round_as<T>(load_n(x + c, n) * factor));
            store_n(y + c, t * silu(load_n(z + c, n)), n);
        }
    }
}

template <typename T>
void head_gate(const void* params, const StepRows&, std::int64_t first, std::int64_t last, CpuWorker&) {
    const auto& p = *static_cast<const HeadGateParams*>(params);
    for (std::int64_t i = first * p.heads; i < last * p.heads; ++i) {
        const T* x = static_cast<const T*>(p.x) + i * p.head_dim;
        const T* gate = static_cast<const T*>(p.q) + (2 * i + 1) * p.head_dim;
        T* y = static_cast<T*>(p.y) + i * p.head_dim;
        for (int c = 0; c < p.head_dim; c += kLanes) {
            const int n = std::min(kLanes, p.head_dim - c);
            store_n(y + c, load_n(x + c, n) * round_as<T>(sigmoid(load_n(gate + c, n))), n);
        }
    }
}

#define FORGE_DELTA_FUNCTIONS \
    {{conv<float>, conv<f16>, conv<bf16>}, {delta<float>, delta<f16>, delta<bf16>}, \
     {gated_norm<float>, gated_norm<f16>, gated_norm<bf16>}, {head_gate<float>, head_gate<f16>, head_gate<bf16>}}

}  // namespace forge::FORGE_SIMD
