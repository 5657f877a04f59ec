// Row-wise operations. T is the activation type, r() rounding to T.
#pragma once

#include <cstdint>

#include "kernels/cpu_kernel.h"
#include "kernels/matmul/matmul.h"

namespace forge {

struct EmbedParams {
    DType type = DType::bf16;
    const Weight* table = nullptr;            // [vocab, hidden]
    float scale = 1;                          // y = r(r(e) * r(scale)); 1: y = r(e)
    void* y = nullptr;                        // [m, hidden]
};
CpuKernel embed_kernel(const EmbedParams& params, Isa isa);

struct NormParams {
    DType type = DType::bf16;
    const void* x = nullptr;                  // [m, width]
    const float* weight = nullptr;            // [width]; null: ones
    NormFormula norm = NormFormula::two_rounding;
    float eps = 0;
    int width = 0;
    const void* residual = nullptr;           // not null: y = r(residual + norm(x)) (norm then add, fused)
    void* y = nullptr;                        // [m, width]; may be x or residual
    int groups = 1;                           // vectors of `width` a row, normed apart with one weight
};
CpuKernel norm_kernel(const NormParams& params, Isa isa);

// y = r(a + b)
struct AddParams {
    DType type = DType::bf16;
    const void* a = nullptr;
    const void* b = nullptr;
    void* y = nullptr;
    int width = 0;
};
CpuKernel add_kernel(const AddParams& params, Isa isa);

// y = r(r(act(gate)) * up)
struct ActMulParams {
    DType type = DType::bf16;
    const void* gate = nullptr;
    const void* up = nullptr;
    void* y = nullptr;
    int width = 0;
    ActKind act = ActKind::silu;
    int up_stride = 0;                        // elements from one row of `up` to the next; 0 = width
};
CpuKernel act_mul_kernel(const ActMulParams& params, Isa isa);

// y = r(x * factor), factor as f32 (not rounded to T), or of a scalar weight. Items: rows.
struct ScaleParams {
    DType type = DType::bf16;
    const void* x = nullptr;
    void* y = nullptr;                        // may be x
    int width = 0;
    float factor = 1;
};
CpuKernel scale_kernel(const ScaleParams& params, Isa isa);

// y[i] = x[output_rows[i]]
struct TakeRowsParams {
    DType type = DType::bf16;
    const void* x = nullptr;
    void* y = nullptr;
    int width = 0;
};
CpuKernel take_rows_kernel(const TakeRowsParams& params, Isa isa);

// token[i] = index of the largest logit of output row i (the first of equals), NaN never wins.
struct ArgMaxParams {
    const float* logits = nullptr;            // [outputs, width]
    int width = 0, limit = 0;                 // ids >= limit are never chosen
    std::int32_t* token = nullptr;
};
CpuKernel arg_max_kernel(const ArgMaxParams& params, Isa isa);

}  // namespace forge
