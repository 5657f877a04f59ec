#include <cmath>

#include "plan/build/builder.h"

namespace forge {

ValueId PlanBuilder::feed_forward(ValueId x, int index) {
    const LayerSpec& layer = spec_.layers[static_cast<std::size_t>(index)];
    const MoeSpec& moe = layer.feed_forward.moe;
    const ValueId h = norm(x, layer[Role::ffn_norm], "ffn_norm");
    if (moe.experts == 0) return dense(h, layer);
    if (!moe.beside_dense) return experts(h, x, layer);
    const ValueId a = norm(dense(h, layer), layer[Role::ffn_post_norm_1], "dense_post");
    const ValueId input = norm(x, layer[Role::moe_norm], "moe_norm");
    const ValueId b = norm(experts(input, x, layer), layer[Role::moe_post_norm], "moe_post");
    return emit(AddOp{}, {a, b}, "ffn_sum", spec_.hidden);
}

ValueId PlanBuilder::dense(ValueId h, const LayerSpec& layer) {
    const ValueId gate = matmul(h, layer[Role::ffn_gate], layer[Role::ffn_gate_bias], "gate");
    const ValueId up = matmul(h, layer[Role::ffn_up], layer[Role::ffn_up_bias], "up");
    const ValueId act = emit(ActMulOp{layer.feed_forward.activation}, {gate, up}, "act", plan.values[static_cast<std::size_t>(gate)].cols);
    return matmul(act, layer[Role::ffn_down], layer[Role::ffn_down_bias], "ffn_out");
}

ValueId PlanBuilder::experts(ValueId h, ValueId x, const LayerSpec& layer) {
    const MoeSpec& moe = layer.feed_forward.moe;
    const Activation activation = layer.feed_forward.activation;
    ValueId routed = h;
    float logit_scale = 1;
    if (moe.router == RouterKind::gemma4) {
        // norm without a weight, times the router's scale: the norm's weight is that scale.
        routed = emit(NormOp{layer[Role::router_scale], {NormKind::one_rounding, spec_.norm.eps}}, {x}, "router_norm", spec_.hidden);
        logit_scale = 1 / std::sqrt(static_cast<float>(spec_.hidden));
    }
    const ValueId logits = matmul(routed, layer[Role::router], -1, "router");
    const ValueId route = emit(RouteOp{moe, layer[Role::expert_scale], logit_scale}, {logits}, "route", 2 * moe.per_token,
                               RowSpace::tokens, ValueType::f32);
    ExpertMatmulOp in{layer[Role::expert_gate], layer[Role::expert_up], moe.experts, moe.per_token, false, activation};
    const ValueId act = emit(in, {h, route}, "expert_act", std::int64_t{moe.width} * moe.per_token);
    ExpertMatmulOp out{layer[Role::expert_down], -1, moe.experts, moe.per_token, true, activation};
    const ValueId parts = emit(out, {act, route}, "expert_out", std::int64_t{spec_.hidden} * moe.per_token);
    std::vector<ValueId> inputs{parts, route};
    if (moe.shared_width > 0) {
        const ValueId gate = matmul(h, layer[Role::shared_gate], -1, "shared_gate");
        const ValueId up = matmul(h, layer[Role::shared_up], -1, "shared_up");
        const ValueId shared = emit(ActMulOp{activation}, {gate, up}, "shared_act", moe.shared_width);
        inputs.push_back(matmul(shared, layer[Role::shared_down], -1, "shared_out"));
        inputs.push_back(matmul(h, layer[Role::shared_router], -1, "shared_weight"));
    }
    return emit(CombineOp{moe.per_token, moe.experts}, inputs, "moe", spec_.hidden);
}

}  // namespace forge
