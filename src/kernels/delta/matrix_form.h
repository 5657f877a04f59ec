// The delta rule for many rows, in matrix form. With G_i the sum of the log
// decays up to row i of a block, E_ij = exp(G_i - G_j) and S the state before it:
//
//   d_i = beta_i (v_i - exp(G_i) S^T k_i - sum_{j<i} E_ij (k_i . k_j) d_j)
//   o_i = exp(G_i) S^T q_i + sum_{j<=i} E_ij (q_i . k_j) d_j
//   S  <- exp(G_last) S + sum_i exp(G_last - G_i) k_i d_i^T
//
// which is the step by step form with the same sums in another order. Blocks are
// short: the products within a block grow with its square, while what a step
// costs is one read and one write of the state, shared by a block already.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>

#include "delta/functions.h"
#include "kernels/delta/delta.h"
#include "simd/math.h"
#include "simd/norm.h"

namespace forge::FORGE_SIMD {

// Arrays of one block, in the worker's scratch. Widths are padded to whole vector pairs.
struct DeltaBlock {
    static constexpr int rows = kDeltaBlock;
    int k_dim, width;   // width: v_dim padded
    float *state;       // [k_dim][width]
    float *keys;        // [2 * rows][k_dim]: k of all rows, then q
    float *decayed;     // [rows][k_dim]: k times its decay to the block's end
    float *seen;        // [2 * rows][width]: S^T k, then S^T q
    float *change;      // [rows][width]: d
    float *products;    // [2][rows][rows]: E (k . k), E (q . k)
    DeltaBlock(std::byte* scratch, const DeltaState& s) : k_dim(s.k_dim), width(delta_width(s.v_dim)) {
        float* at = reinterpret_cast<float*>(scratch);
        const auto take = [&](int count) {
            float* from = at;
            at += (count + 15) / 16 * 16;
            return from;
        };
        state = take(k_dim * width);
        keys = take(2 * rows * k_dim);
        decayed = take(rows * k_dim);
        seen = take(2 * rows * width);
        change = take(rows * width);
        products = take(2 * rows * rows);
    }
};

// out[r][0..width) (+)= sum_i a[r][i * stride] * b[i][0..width) for `rows` rows of a; a's element i of row r is
// a[r * row_stride + i * stride]. Sums run over i in order. `scale` multiplies what is in `out` first.
template <int tile>
FORGE_INLINE void delta_tile(const float* a, int row_stride, int stride, const float* b, int n, int width, float* out, const F32* scale) {
    for (int c = 0; c < width; c += 2 * kLanes) {
        F32 left[tile], right[tile];
#pragma GCC unroll 8
        for (int r = 0; r < tile; ++r) {
            left[r] = scale ? load(out + r * width + c) * *scale : zero();
            right[r] = scale ? load(out + r * width + c + kLanes) * *scale : zero();
        }
        for (int i = 0; i < n; ++i) {
            const F32 x = load(b + i * width + c), y = load(b + i * width + c + kLanes);
#pragma GCC unroll 8
            for (int r = 0; r < tile; ++r) {
                const F32 factor = set1(a[r * row_stride + i * stride]);
                left[r] = fma(factor, x, left[r]);
                right[r] = fma(factor, y, right[r]);
            }
        }
#pragma GCC unroll 8
        for (int r = 0; r < tile; ++r) {
            store(out + r * width + c, left[r]);
            store(out + r * width + c + kLanes, right[r]);
        }
    }
}

FORGE_INLINE void delta_multiply(const float* a, int row_stride, int stride, int rows, const float* b, int n, int width, float* out, const F32* scale = nullptr) {
    constexpr int tile = kLanes == 16 ? 8 : 4;   // accumulators: two vectors a row
    int r = 0;
    for (; r + tile <= rows; r += tile) delta_tile<tile>(a + r * row_stride, row_stride, stride, b, n, width, out + r * width, scale);
    for (; r < rows; ++r) delta_tile<1>(a + r * row_stride, row_stride, stride, b, n, width, out + r * width, scale);
}

FORGE_INLINE float delta_dot(const float* a, const float* b, int n) {
    F32 total = zero();
    int i = 0;
    for (; i + kLanes <= n; i += kLanes) total = fma(load(a + i), load(b + i), total);
    if (i < n) total = fma(load_first(a + i, n - i), load_first(b + i, n - i), total);
    return sum(total);
}

// Rows [first, first + count) of head h, count at most a block; the state is in block.state.
template <typename T>
void delta_block(const DeltaParams& p, const DeltaBlock& block, int h, int kh, float rate, int first, int count) {
    const DeltaState& s = p.state;
    const int key_width = s.n_k_heads * s.k_dim, k_dim = block.k_dim, width = block.width;
    constexpr int rows = DeltaBlock::rows;
    float beta[rows] = {}, log_decay[rows] = {};   // log_decay: summed up to the row
    const float* queries = block.keys + rows * k_dim;
    for (int i = 0; i < count; ++i) {
        const auto r = static_cast<std::size_t>(first + i);
        const T* c = static_cast<const T*>(p.c) + r * static_cast<std::size_t>(s.channels);
        const std::size_t at = r * static_cast<std::size_t>(s.n_v_heads) + static_cast<std::size_t>(h);
        unit(c + kh * k_dim, k_dim, 1.0f / std::sqrt(static_cast<float>(k_dim)), block.keys + (rows + i) * k_dim);
        unit(c + key_width + kh * k_dim, k_dim, 1.0f, block.keys + i * k_dim);
        const float a = static_cast<float>(static_cast<const T*>(p.a)[at]) + p.dt_bias[h];
        const float softplus = a > 20 ? a : std::log1p(std::exp(a));
        log_decay[i] = (i > 0 ? log_decay[i - 1] : 0) + rate * softplus;
        beta[i] = round_to<T>(1.0f / (1.0f + std::exp(-static_cast<float>(static_cast<const T*>(p.b)[at]))));
    }
    // S^T k and S^T q of all rows.
    delta_multiply(block.keys, k_dim, 1, count, block.state, k_dim, width, block.seen);
    delta_multiply(queries, k_dim, 1, count, block.state, k_dim, width, block.seen + rows * width);
    // exp(G_i - G_j) only for j <= i, where it is at most one.
    for (int i = 0; i < count; ++i)
        for (int j = 0; j <= i; ++j) {
            const float between = std::exp(log_decay[i] - log_decay[j]);
            block.products[i * rows + j] = between * delta_dot(block.keys + i * k_dim, block.keys + j * k_dim, k_dim);
            block.products[rows * rows + i * rows + j] = between * delta_dot(queries + i * k_dim, block.keys + j * k_dim, k_dim);
        }
    for (int i = 0; i < count; ++i) {
        const T* v = static_cast<const T*>(p.c) + static_cast<std::size_t>(first + i) * static_cast<std::size_t>(s.channels) + 2 * key_width + h * s.v_dim;
        T* out = static_cast<T*>(p.out) + (static_cast<std::size_t>(first + i) * static_cast<std::size_t>(s.n_v_heads) + static_cast<std::size_t>(h)) * static_cast<std::size_t>(s.v_dim);
        const F32 reach = set1(std::exp(log_decay[i])), b = set1(beta[i]);
        for (int c = 0; c < width; c += kLanes) {
            const int n = std::clamp(s.v_dim - c, 0, kLanes);
            F32 known = load(block.seen + i * width + c) * reach, o = load(block.seen + (rows + i) * width + c) * reach;
            for (int j = 0; j < i; ++j) {
                const F32 d = load(block.change + j * width + c);
                known = fma(set1(block.products[i * rows + j]), d, known);
                o = fma(set1(block.products[rows * rows + i * rows + j]), d, o);
            }
            const F32 d = (load_first(v + std::min(c, s.v_dim), n) - known) * b;
            store(block.change + i * width + c, d);
            o = fma(set1(block.products[rows * rows + i * rows + i]), d, o);
            if (n > 0) store_n(out + c, o, n);
        }
    }
    const float end = log_decay[count - 1];
    for (int i = 0; i < count; ++i) {
        const F32 rest = set1(std::exp(end - log_decay[i]));
        for (int c = 0; c < k_dim; c += kLanes) {
            const int n = std::min(kLanes, k_dim - c);
            store_n(block.decayed + i * k_dim + c, load_n(block.keys + i * k_dim + c, n) * rest, n);
        }
    }
    const F32 total = set1(std::exp(end));
    delta_multiply(block.decayed, 1, k_dim, k_dim, block.change, count, width, block.state, &total);
}

// An item is a value head: its state is read once, carried through all rows of a sequence and written back.
template <typename T>
void delta_matrix(const void* params, const StepRows& step, std::int64_t first, std::int64_t last, CpuWorker& worker) {
    const auto& p = *static_cast<const DeltaParams*>(params);
    const DeltaState& s = p.state;
    worker.tag = 0;
    const DeltaBlock block(worker.scratch.data(), s);
    const auto state_row = static_cast<std::size_t>(s.v_dim);
    for (std::int64_t item = first; item < last; ++item) {
        const int h = static_cast<int>(item);
        const int kh = p.tiled_heads ? h % s.n_k_heads : h / (s.n_v_heads / s.n_k_heads);
        const float rate = p.negative_exp ? p.a_log[h] : -std::exp(p.a_log[h]);
        for (int row = 0; row < step.m;) {
            const int end = span_end(step, row);
            float* state = s.state + (static_cast<std::size_t>(step.slots[row]) * static_cast<std::size_t>(s.n_v_heads) + static_cast<std::size_t>(h)) *
                                         static_cast<std::size_t>(s.k_dim) * state_row;
            std::memset(block.state, 0, static_cast<std::size_t>(block.k_dim * block.width) * sizeof(float));
            if (step.positions[row] != 0)
                for (int i = 0; i < s.k_dim; ++i) std::memcpy(block.state + i * block.width, state + static_cast<std::size_t>(i) * state_row, state_row * sizeof(float));
            // Blocks end at multiples of their size, so that prompts cut there have the same bits as in one piece.
            for (int r = row; r < end;) {
                const int count = std::min(end - r, DeltaBlock::rows - step.positions[r] % DeltaBlock::rows);
                delta_block<T>(p, block, h, kh, rate, r, count);
                r += count;
            }
            for (int i = 0; i < s.k_dim; ++i) std::memcpy(state + static_cast<std::size_t>(i) * state_row, block.state + i * block.width, state_row * sizeof(float));
            row = end;
        }
    }
}

}  // namespace forge::FORGE_SIMD
