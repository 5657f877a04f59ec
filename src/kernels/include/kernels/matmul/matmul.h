// y = x W^T with everything that may be fused around it. T is the activation
// type (bf16, f16 or f32), r() rounding to T, sums are f32.
//
//   x'  = norm(x) when `norm_weight` is set (spec of the norms in model/spec.h), else x
//   a   = W x' (+ bias)                     accumulated in f32
//   add:      y = r(residual + r(a))
//   act_mul:  y = r(r(act(r(a))) * r(b)),   b = W2 x' (+ bias2)
//   none:     y = r(a);  f32_out: y = a as f32 (logits), softcap applied when non-zero
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "kernels/cpu_kernel.h"
#include "quant/weight.h"

namespace forge {

enum class Epilogue : std::uint8_t { none, add, act_mul };
enum class ActKind : std::uint8_t { silu, gelu_tanh };
enum class NormFormula : std::uint8_t { two_rounding, one_plus, one_rounding };  // N1, N2, N3

struct MatmulParams {
    DType type = DType::bf16;                 // T of x, y, residual
    const Weight* w = nullptr;                // [n, k]
    const Weight* w2 = nullptr;               // act_mul: the up projection, same shape
    const float* bias = nullptr;              // [n] or null
    const float* bias2 = nullptr;
    const void* x = nullptr;                  // [m, k] of T
    void* y = nullptr;                        // [m, n] of T, or of float when f32_out
    const void* residual = nullptr;           // [m, n] of T; may be y itself
    const float* norm_weight = nullptr;       // [k] or null: no norm
    NormFormula norm = NormFormula::two_rounding;
    float eps = 0;
    Epilogue epilogue = Epilogue::none;
    ActKind act = ActKind::silu;
    bool f32_out = false;
    float softcap = 0;
    std::uint32_t input_tag = 0;              // same for launches with the same x and norm in a program; 0 = do not share
    // Prefill (more than 8 rows): x' packed by a pack launch that runs before.
    void* packed = nullptr;                   // pack_bytes(...) bytes
    int max_rows = 1;                         // most rows a step brings
    // Weight rows of a matvec item, a multiple of 64; 0 = default_item_rows(). The same bits whatever it is.
    std::int64_t item_rows = 0;
};

// A core's share of a weight, 512 KiB at most.
std::int64_t default_item_rows(const Weight& weight);

// M = 1..8 rows, any weight format; the same bits for a row whatever M.
CpuKernel matvec_kernel(const MatmulParams& params, Isa isa);

// M > 8: pack_rows (norm and packing, items are row blocks) and then gemm (reads `packed`).
// Both take the same params object. Weight tiles may be rounded once to T.
CpuKernel pack_kernel(const MatmulParams& params, Isa isa);
CpuKernel gemm_kernel(const MatmulParams& params, Isa isa);
std::size_t pack_bytes(const MatmulParams& params, Isa isa);
// Rows of a panel: packed rows are whole panels, each pack_bytes() of that many rows long.
int pack_panel(Isa isa);

// True when matmuls over these two weights can read the same packed rows.
bool same_packing(const Weight& a, const Weight& b, DType type, Isa isa);

}  // namespace forge
