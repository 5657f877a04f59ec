// What stands around the delta rule, in the matmuls before and after it: a channel of the convolution belongs to the
// row of the matrix that makes its input, and every threadgroup of the product after it norms and gates for itself.
#include "plan/passes/fusions.h"

namespace forge {

void fuse_conv(Plan& plan) {
    for (std::size_t i = 0; i < plan.ops.size(); ++i) {
        const auto* conv = std::get_if<ConvOp>(&plan.ops[i].attributes);
        if (!conv) continue;
        const int p = sole_producer<MatmulOp>(plan, plan.ops[i].inputs[0]);
        if (p < 0) continue;
        Op& made = plan.ops[static_cast<std::size_t>(p)];
        auto& matmul = std::get<MatmulOp>(made.attributes);
        if (matmul.epilogue != MatmulEpilogue::none || matmul.bias >= 0 || matmul.conv_weight >= 0) continue;
        matmul.conv_weight = conv->weight;
        matmul.conv_channels = conv->delta.conv_channels();
        matmul.conv_kernel = conv->delta.conv_kernel;
        matmul.state_layer = conv->state_layer;
        made.output = plan.ops[i].output;
        plan.ops.erase(plan.ops.begin() + static_cast<std::ptrdiff_t>(i--));
    }
}

void fuse_gated_norm(Plan& plan) {
    for (Op& op : plan.ops) {
        auto* matmul = std::get_if<MatmulOp>(&op.attributes);
        if (!matmul || matmul->norm_weight >= 0 || matmul->gated_heads > 0) continue;
        const int p = sole_producer<GatedNormOp>(plan, op.inputs[0]);
        if (p < 0) continue;
        const Op& made = plan.ops[static_cast<std::size_t>(p)];
        const auto& norm = std::get<GatedNormOp>(made.attributes);
        matmul->norm_weight = norm.weight;
        matmul->norm.eps = norm.eps;
        matmul->gated_heads = norm.heads;
        op.inputs[0] = made.inputs[0];
        op.inputs.insert(op.inputs.begin() + 1, made.inputs[1]);
    }
    drop_dead_ops(plan);
}

}  // namespace forge
