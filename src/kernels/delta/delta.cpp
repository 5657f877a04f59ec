// Chooses the entry points and states the items.
#include "kernels/delta/delta.h"

#include <algorithm>

#include "base/error.h"
#include "delta/functions.h"

namespace forge {
namespace {

const DeltaFunctions& functions(Isa isa) {
    switch (isa) {
        case Isa::plain: return delta_plain;
#if defined(__x86_64__)
        case Isa::avx2: return delta_avx2;
        case Isa::avx512: return delta_avx512;
#elif defined(__aarch64__)
        case Isa::neon: return delta_neon;
#endif
        default: fail(ErrorKind::unsupported, "this build of Forge has no {} kernels", name_of(isa));
    }
}

int type_index(DType type) {
    if (type == DType::f32) return 0;
    if (type == DType::f16) return 1;
    if (type == DType::bf16) return 2;
    fail(ErrorKind::unsupported, "activations must be f32, f16 or bf16, not {}", name_of(type));
}

std::int64_t rows_of(const void*, const StepRows& step) { return step.m; }
std::int64_t conv_items(const void* params, const StepRows& step) {
    return step.m == 0 ? 0 : (static_cast<const ConvParams*>(params)->state.channels + kConvChannels - 1) / kConvChannels;
}
std::int64_t delta_items(const void* params, const StepRows& step) {
    return step.m == 0 ? 0 : static_cast<const DeltaParams*>(params)->state.n_v_heads;
}

}  // namespace

CpuKernel conv_kernel(const ConvParams& params, Isa isa) {
    if (params.state.kernel < 1 || params.state.kernel > 16)
        fail(ErrorKind::unsupported, "a convolution over {} tokens is not implemented; 1 to 16 are", params.state.kernel);
    return {"conv", functions(isa).conv[type_index(params.type)], conv_items, 1, 0};
}

CpuKernel delta_kernel(const DeltaParams& params, Isa isa) {
    const auto k_dim = static_cast<std::size_t>(params.state.k_dim), width = static_cast<std::size_t>(delta_width(params.state.v_dim));
    const std::size_t row_by_row = 2 * k_dim + width;
    const std::size_t blocks = k_dim * width + 3 * kDeltaBlock * (k_dim + width) + 2 * kDeltaBlock * kDeltaBlock + 6 * 16;
    if (params.z && params.max_rows > kDeltaRowByRow)
        fail(ErrorKind::internal, "the delta rule's norm is fused for steps of up to {} rows, not {}", kDeltaRowByRow, params.max_rows);
    return {"delta", functions(isa).delta[type_index(params.type)], delta_items, 1, std::max(row_by_row, blocks) * sizeof(float) + 64};
}

CpuKernel gated_norm_kernel(const GatedNormParams& params, Isa isa) {
    return {"gated_norm", functions(isa).gated_norm[type_index(params.type)], rows_of, 1, 0};
}

CpuKernel head_gate_kernel(const HeadGateParams& params, Isa isa) {
    return {"head_gate", functions(isa).head_gate[type_index(params.type)], rows_of, 1, 0};
}

}  // namespace forge
