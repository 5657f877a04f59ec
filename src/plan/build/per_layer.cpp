// Gemma 4's per-layer embeddings.
#include <cmath>

#include "plan/build/builder.h"

namespace forge {

// [rows, layers * width]: the token's own table beside a projection of its embedding.
ValueId PlanBuilder::per_layer_inputs(ValueId x) {
    const int layers = static_cast<int>(spec_.layers.size());
    const std::int64_t cols = std::int64_t{layers} * spec_.ple_width;
    ValueId p = matmul(x, spec_.ple_proj, -1, "ple_proj");
    p = scale(p, -1, 1 / std::sqrt(static_cast<float>(spec_.hidden)), "ple_scaled");
    p = emit(NormOp{spec_.ple_norm, spec_.norm, layers}, {p}, "ple_norm", cols);
    const ValueId own = emit(EmbedOp{spec_.ple_embed, std::sqrt(static_cast<float>(spec_.ple_width))}, {}, "ple_own", cols);
    const ValueId sum = emit(AddOp{}, {p, own}, "ple_sum", cols);
    return scale(sum, -1, std::sqrt(0.5f), "ple");
}

ValueId PlanBuilder::add_per_layer(ValueId x, int index) {
    const LayerSpec& layer = spec_.layers[static_cast<std::size_t>(index)];
    const ValueId gate = matmul(x, layer[Role::ple_gate], -1, "ple_gate");
    const ValueId t = emit(ActMulOp{layer.feed_forward.activation, std::int64_t{index} * spec_.ple_width}, {gate, per_layer_}, "ple_act",
                           spec_.ple_width);
    ValueId y = matmul(t, layer[Role::ple_proj], -1, "ple_out");
    y = norm_if(y, layer[Role::ple_post_norm], "ple_post");
    return emit(AddOp{}, {x, y}, "x_ple", spec_.hidden);
}

}  // namespace forge
