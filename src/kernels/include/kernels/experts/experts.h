// Mixture of experts. Expert e's matrix is weights[e] (an array of views, one
// format and shape). T is the activation type, r() rounding to T.
#pragma once

#include <cstdint>

#include "kernels/cpu_kernel.h"
#include "kernels/matmul/matmul.h"

namespace forge {

// The router's choice, one record a row: `k` expert ids (ascending probability is not required),
// then `k` weights. Stored as [m][2 * k] 32-bit words.
struct RouteParams {
    DType type = DType::bf16;
    const void* logits = nullptr;     // [m, experts] of T
    float logit_scale = 1;            // multiplies the logits in f32
    int experts = 0, k = 0;
    bool normalise = true;            // weights divided by their sum
    bool round_weights = true;        // to T (softmax routers); Gemma 4 keeps f32
    const float* expert_scale = nullptr;   // [experts], multiplies after normalising; or null
    std::uint32_t* route = nullptr;   // [m][2 * k]
};
// p = softmax over all experts in f32; the k largest (the lower id of equals). Items: rows.
CpuKernel route_kernel(const RouteParams& params, Isa isa);

// Pairs (a row and one of its choices: row * k + choice) sorted by expert, for the matrix kernels:
// histogram, prefix sum, scatter. Pairs of one expert keep the order of rows.
struct GroupTable {
    // starts[e]: first place of expert e; panel_starts[e]: its first panel of `panel` rows, every expert
    // beginning a new one. pair_of[place], place_of[pair].
    std::int32_t *starts, *panel_starts, *pair_of, *place_of;
    GroupTable(std::int32_t* memory, int experts, int pairs)
        : starts(memory), panel_starts(memory + experts + 1), pair_of(memory + 2 * (experts + 1)), place_of(pair_of + pairs) {}
};
struct GroupParams {
    const std::uint32_t* route = nullptr;
    int experts = 0, k = 0, panel = 16, max_rows = 1;
    std::int32_t* table = nullptr;
};
CpuKernel group_kernel(const GroupParams& params, Isa isa);   // one item
std::size_t group_bytes(int experts, int k, int max_rows);

// One projection of the chosen experts.
//   act_mul: y[pair] = r(r(act(r(W x))) * r(W2 x)), x row = pair / k      (gate and up)
//   none:    y[pair] = r(W x[pair])                                       (down: one input row a pair)
// With a group table (M > 8) pairs stand in its order, in y and in x_per_pair inputs alike.
struct ExpertMatmulParams {
    DType type = DType::bf16;
    Isa isa = Isa::plain;
    const Weight* w = nullptr;        // [experts]
    const Weight* w2 = nullptr;       // [experts], act_mul only
    int experts = 0, k = 0;
    const std::uint32_t* route = nullptr;
    const void* x = nullptr;          // [m, cols], or [m * k, cols] when x_per_pair
    bool x_per_pair = false;
    Epilogue epilogue = Epilogue::none;
    ActKind act = ActKind::silu;
    void* y = nullptr;                // [m * k, rows]
    const std::int32_t* table = nullptr;   // M > 8: from group_kernel
    void* packed = nullptr;           // M > 8
    int max_rows = 1;
    std::uint32_t input_tag = 0;      // M <= 8: of the first row of x, the next rows' follow (MatmulParams::input_tag)
};
// The products are those of kernels/matmul, expert by expert.
// M <= 8: reads only the chosen experts' bytes; a row's bits do not depend on the others.
CpuKernel expert_matvec_kernel(const ExpertMatmulParams& params, Isa isa);
// M > 8: panels of gathered rows, then a product per expert with the same tiles as gemm.
CpuKernel expert_pack_kernel(const ExpertMatmulParams& params, Isa isa);
CpuKernel expert_gemm_kernel(const ExpertMatmulParams& params, Isa isa);
std::size_t expert_pack_bytes(const ExpertMatmulParams& params, Isa isa);
int expert_panel(Isa isa);            // rows of a panel

// y = r(sum over choices of r(x[pair] * weight)) in f32, and with a shared expert
// y = r(that + r(r(sigmoid(shared_gate)) * shared)). Items: blocks of columns of a row.
struct CombineParams {
    DType type = DType::bf16;
    const void* x = nullptr;          // [m * k, width], in the order of `table` when there is one
    const std::int32_t* table = nullptr;
    int experts = 0, max_rows = 1;    // of the table
    const std::uint32_t* route = nullptr;
    int k = 0, width = 0;
    const void* shared = nullptr;     // [m, width] or null
    const void* shared_gate = nullptr;  // [m, 1] of T or null (then the shared expert is added as it is)
    void* y = nullptr;                // [m, width]
};
CpuKernel combine_kernel(const CombineParams& params, Isa isa);

}  // namespace forge
