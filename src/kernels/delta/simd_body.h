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

// Channels are lanes. An item's channels go through a row before the next, so that rows are read and written in
// runs of whole lines and the rows before are still in the cache.
template <typename T>
void conv(const void* params, const StepRows& step, std::int64_t first, std::int64_t last, CpuWorker&) {
    const auto& p = *static_cast<const ConvParams*>(params);
    const int channels = p.state.channels, taps = p.state.kernel, before = taps - 1;
    alignas(64) float weights[16][kConvChannels];
    static constexpr T zeros[kConvChannels] = {};
    for (std::int64_t item = first; item < last; ++item) {
        const int from = static_cast<int>(item) * kConvChannels, count = std::min(kConvChannels, channels - from);
        const float* by_channel = p.weight + static_cast<std::size_t>(from) * static_cast<std::size_t>(taps);
        if (taps == 4) {   // of every published model; the compiler shuffles whole vectors
            for (int c = 0; c < count; ++c)
                for (int j = 0; j < 4; ++j) weights[j][c] = by_channel[4 * c + j];
        } else {
            for (int c = 0; c < count; ++c)
                for (int j = 0; j < taps; ++j) weights[j][c] = by_channel[taps * c + j];
        }
        for (int row = 0; row < step.m;) {
            const int end = span_end(step, row);
            T* state = static_cast<T*>(p.state.conv) + static_cast<std::size_t>(step.slots[row]) * static_cast<std::size_t>(before * channels) + from;
            const bool fresh = step.positions[row] == 0;
            // Input of a row, or of one of the `before` rows that came earlier.
            const auto input = [&](int r) -> const T* {
                if (r >= row) return static_cast<const T*>(p.u) + static_cast<std::size_t>(r) * static_cast<std::size_t>(channels) + from;
                return fresh ? zeros : state + static_cast<std::ptrdiff_t>(r - row + before) * channels;
            };
            for (int r = row; r < end; ++r) {
                const T* in[16];
                for (int j = 0; j < taps; ++j) in[j] = input(r - before + j);
                T* out = static_cast<T*>(p.c) + static_cast<std::size_t>(r) * static_cast<std::size_t>(channels) + from;
                for (int c = 0; c < count; c += kLanes) {
                    const int n = std::min(kLanes, count - c);
                    F32 sum = zero();
                    for (int j = 0; j < taps; ++j) sum = fma(load(weights[j] + c), load_n(in[j] + c, n), sum);
                    store_n(out + c, silu(round_as<T>(sum)), n);
                }
            }
            // Oldest first: what moves within the state is read before it is written.
            for (int j = 0; j < before; ++j)
                std::memmove(state + static_cast<std::ptrdiff_t>(j) * channels, input(end - before + j), static_cast<std::size_t>(count) * sizeof(T));
            row = end;
        }
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

// Norm of one head, times silu(z).
template <typename T>
FORGE_INLINE void norm_gate(const T* x, const T* z, const float* weight, float eps, int width, T* y) {
    const F32 factor = set1(norm_factor(x, width, eps));
    for (int c = 0; c < width; c += kLanes) {
        const int n = std::min(kLanes, width - c);
        const F32 t = round_as<T>(load_n(weight + c, n) * round_as<T>(load_n(x + c, n) * factor));
        store_n(y + c, t * silu(load_n(z + c, n)), n);
    }
}

// A row through V vectors of a head's state columns, the last of n lanes. The state is read once from memory (the
// second time from the cache) and written once. `ahead`: floats of the state to fetch early in the first pass.
template <typename T, int V>
FORGE_INLINE void delta_columns(float* state, int k_dim, int stride, const float* q, const float* k, F32 decay, F32 beta,
                                const T* value, T* out, int n, int ahead) {
    F32 seen[V], sums[V];
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) seen[v] = sums[v] = zero();
    for (int i = 0; i < k_dim; ++i) {
        const float* s = state + static_cast<std::ptrdiff_t>(i) * stride;
        for (int c = 0; c < ahead; c += 16) prefetch(s + kDeltaAhead + c);
        const F32 factor = set1(k[i]);
#pragma GCC unroll 8
        for (int v = 0; v < V; ++v) seen[v] = fma(load_n(s + v * kLanes, V > 1 ? kLanes : n) * decay, factor, seen[v]);
    }
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) seen[v] = (load_n(value + v * kLanes, V > 1 ? kLanes : n) - seen[v]) * beta;
    for (int i = 0; i < k_dim; ++i) {
        float* s = state + static_cast<std::ptrdiff_t>(i) * stride;
        const F32 factor = set1(k[i]), query = set1(q[i]);
#pragma GCC unroll 8
        for (int v = 0; v < V; ++v) {
            const F32 x = fma(factor, seen[v], load_n(s + v * kLanes, V > 1 ? kLanes : n) * decay);
            store_n(s + v * kLanes, x, V > 1 ? kLanes : n);
            sums[v] = fma(x, query, sums[v]);
        }
    }
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) store_n(out + v * kLanes, sums[v], V > 1 ? kLanes : n);
}

// An item is a value head, whose state lies in one piece. Sums run over k_dim in order.
template <typename T>
void delta(const void* params, const StepRows& step, std::int64_t first, std::int64_t last, CpuWorker& worker) {
    if (step.m > kDeltaRowByRow) return delta_matrix<T>(params, step, first, last, worker);
    const auto& p = *static_cast<const DeltaParams*>(params);
    const DeltaState& s = p.state;
    constexpr int vectors = kLanes == 16 ? 8 : 4;   // two arrays of them in registers
    const int key_width = s.n_k_heads * s.k_dim, v_dim = s.v_dim;
    worker.tag = 0;
    float* q = reinterpret_cast<float*>(worker.scratch.data());
    float* k = q + s.k_dim;
    T* read = reinterpret_cast<T*>(k + s.k_dim);   // [v_dim]
    for (std::int64_t item = first; item < last; ++item) {
        const int h = static_cast<int>(item);
        const int kh = p.tiled_heads ? h % s.n_k_heads : h / (s.n_v_heads / s.n_k_heads);
        const float rate = p.negative_exp ? p.a_log[h] : -std::exp(p.a_log[h]);
        for (int row = 0; row < step.m;) {
            const int end = span_end(step, row);
            const auto size = static_cast<std::size_t>(s.k_dim) * static_cast<std::size_t>(v_dim);
            float* state = s.state + (static_cast<std::size_t>(step.slots[row]) * static_cast<std::size_t>(s.n_v_heads) + static_cast<std::size_t>(h)) * size;
            if (step.positions[row] == 0) std::memset(state, 0, size * sizeof(float));
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
                const T* value = c + 2 * key_width + h * v_dim;
                T* y = static_cast<T*>(p.out) + at * static_cast<std::size_t>(v_dim);
                T* out = p.z ? read : y;
                int column = 0, ahead = r == row ? v_dim : 0;   // rows after the first find the state in the cache
                for (; column + vectors * kLanes <= v_dim; column += vectors * kLanes, ahead = 0)
                    delta_columns<T, vectors>(state + column, s.k_dim, v_dim, q, k, decay, beta, value + column, out + column, kLanes, ahead);
                for (; column < v_dim; column += kLanes, ahead = 0)
                    delta_columns<T, 1>(state + column, s.k_dim, v_dim, q, k, decay, beta, value + column, out + column, std::min(kLanes, v_dim - column), ahead);
                if (p.z) norm_gate(out, static_cast<const T*>(p.z) + at * static_cast<std::size_t>(v_dim), p.norm_weight, p.norm_eps, v_dim, y);
            }
            row = end;
        }
    }
}

template <typename T>
void gated_norm(const void* params, const StepRows&, std::int64_t first, std::int64_t last, CpuWorker&) {
    const auto& p = *static_cast<const GatedNormParams*>(params);
    for (std::int64_t i = first * p.heads; i < last * p.heads; ++i)
        norm_gate(static_cast<const T*>(p.x) + i * p.width, static_cast<const T*>(p.z) + i * p.width, p.weight, p.eps, p.width,
                  static_cast<T*>(p.y) + i * p.width);
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
