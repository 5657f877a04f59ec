// Gated DeltaNet: causal convolution, delta-rule recurrence, gated norm, and
// the sigmoid gate of gated attention. T is the activation type, r() rounding
// to T; state and decay are f32.
//
// Rows of one sequence are neighbours; a row at position 0 starts from a zero
// state, any other row continues the slot's state. Steps update the state.
#pragma once

#include <cstdint>

#include "kernels/cpu_kernel.h"
#include "kernels/matmul/matmul.h"

namespace forge {

// One layer's recurrent state for every slot.
struct DeltaState {
    void* conv = nullptr;     // [slots][kernel - 1][channels] of T: the last inputs before the next row, oldest first
    float* state = nullptr;   // [slots][n_v_heads][k_dim][v_dim]
    int slots = 0, kernel = 4, channels = 0;
    int n_k_heads = 0, n_v_heads = 0, k_dim = 0, v_dim = 0;
    DType type = DType::bf16;
};

// c[t][ch] = r(silu(r(sum_j w[ch][j] * u[t - kernel + 1 + j][ch]))); j = kernel - 1 is the current row.
// Items: blocks of channels (an item goes through all rows in order and then stores the state).
struct ConvParams {
    DType type = DType::bf16;
    const void* u = nullptr;          // [m, channels]
    const float* weight = nullptr;    // [channels][kernel]
    void* c = nullptr;                // [m, channels]
    DeltaState state;
};
CpuKernel conv_kernel(const ConvParams& params, Isa isa);

// Per value head h (key head: h / (n_v/n_k), or h % n_k when tiled):
//   beta = r(sigmoid(b)), g = -exp(a_log) * softplus(a + dt_bias) (or a_log itself when it is negative_exp), f32
//   q, k: l2-normalised in f32 (x * rsqrt(sum x^2 + 1e-6)), q also times k_dim^-0.5
//   S = exp(g) S;  d = beta (v - S^T k);  S += k d^T;  o = r(S^T q)
// Items: value heads. Steps of up to eight rows go row by row, longer ones in blocks in matrix form: equal within
// rounding. With z, steps of up to eight rows end with GatedNormParams' formula over o, the same bits as apart.
struct DeltaParams {
    DType type = DType::bf16;
    const void* c = nullptr;          // [m, channels]: all q | all k | all v
    const void* b = nullptr;          // [m, n_v_heads]
    const void* a = nullptr;          // [m, n_v_heads]
    const float* a_log = nullptr;     // [n_v_heads]
    const float* dt_bias = nullptr;   // [n_v_heads]
    bool negative_exp = false;
    bool tiled_heads = false;
    void* out = nullptr;              // [m, n_v_heads * v_dim]
    const void* z = nullptr;          // [m, n_v_heads * v_dim], or null: no norm
    const float* norm_weight = nullptr;   // [v_dim]
    float norm_eps = 0;
    DeltaState state;
    int max_rows = 1;
};
CpuKernel delta_kernel(const DeltaParams& params, Isa isa);

// Per head of `width`: n = x * rsqrt(mean(x^2) + eps); y = r(r(w * r(n)) * silu(z)). Items: rows * heads.
struct GatedNormParams {
    DType type = DType::bf16;
    const void* x = nullptr;          // [m, heads * width]
    const void* z = nullptr;          // [m, heads * width]
    const float* weight = nullptr;    // [width]
    float eps = 0;
    int heads = 0, width = 0;
    void* y = nullptr;                // [m, heads * width]
};
CpuKernel gated_norm_kernel(const GatedNormParams& params, Isa isa);

// y = r(x * r(sigmoid(gate))); gate of head h is q[row][h * 2 * head_dim + head_dim ...]. Items: rows.
struct HeadGateParams {
    DType type = DType::bf16;
    const void* x = nullptr;          // [m, heads * head_dim]
    const void* q = nullptr;          // [m, heads * 2 * head_dim]: query, gate, query, gate, ...
    int heads = 0, head_dim = 0;
    void* y = nullptr;                // [m, heads * head_dim]
};
CpuKernel head_gate_kernel(const HeadGateParams& params, Isa isa);

}  // namespace forge
