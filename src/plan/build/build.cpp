#include "plan/build/builder.h"

namespace forge {

PlanBuilder::PlanBuilder(const BoundModel& model) : model_(model), spec_(model.spec) {
    for (const Weight& w : model.weights)
        plan.weights.push_back({w.name, w.rows, w.cols, w.format});
    for (const RopeSpec& rope : spec_.ropes) {
        plan.ropes.push_back(rope.description);
        plan.rope_pairs.push_back(static_cast<int>(rope.inv_freq.size()));
    }
}

void PlanBuilder::build() {
    for (int i = 0; i < static_cast<int>(spec_.ropes.size()); ++i)
        rope_tables_.push_back(emit(RopeTableOp{i}, {}, "rope" + std::to_string(i), 2 * plan.rope_pairs[static_cast<std::size_t>(i)],
                                    RowSpace::tokens, ValueType::f32));
    ValueId x = emit(EmbedOp{spec_.embed, spec_.embed_scale}, {}, "x", spec_.hidden);
    if (spec_.ple_width > 0) per_layer_ = per_layer_inputs(x);
    for (layer_ = 0; layer_ < static_cast<int>(spec_.layers.size()); ++layer_) {
        const LayerSpec& layer = spec_.layers[static_cast<std::size_t>(layer_)];
        const ValueId h = norm(x, layer[Role::attn_norm], "attn_norm");
        ValueId y = layer.mixer == MixerKind::attention ? attention(h, layer_) : gated_delta(h, layer_);
        y = norm_if(y, layer[Role::attn_post_norm], "attn_post");
        x = emit(AddOp{}, {x, y}, "x_attn", spec_.hidden);
        y = norm_if(feed_forward(x, layer_), layer[Role::ffn_post_norm], "ffn_post");
        x = emit(AddOp{}, {x, y}, "x_ffn", spec_.hidden);
        if (per_layer_ >= 0) x = add_per_layer(x, layer_);
        if (layer[Role::layer_scale] >= 0) x = scale(x, layer[Role::layer_scale], 1, "x_scaled");
    }
    layer_ = -1;
    x = emit(TakeRowsOp{}, {x}, "x_out", spec_.hidden, RowSpace::outputs);
    x = norm(x, spec_.final_norm, "final_norm");
    MatmulOp head;
    head.weight = spec_.head;
    head.softcap = spec_.final_softcap;
    plan.logits = emit(head, {x}, "logits", plan.weights[static_cast<std::size_t>(spec_.head)].rows, RowSpace::outputs, ValueType::f32);
}

ValueId PlanBuilder::norm(ValueId x, WeightId weight, const std::string& name) {
    const Value& in = plan.values[static_cast<std::size_t>(x)];
    return emit(NormOp{weight, spec_.norm}, {x}, name, in.cols, in.rows);
}

ValueId PlanBuilder::norm_if(ValueId x, WeightId weight, const std::string& name) {
    return weight >= 0 ? norm(x, weight, name) : x;
}

ValueId PlanBuilder::matmul(ValueId x, WeightId weight, WeightId bias, const std::string& name) {
    MatmulOp op;
    op.weight = weight;
    op.bias = bias;
    return emit(op, {x}, name, plan.weights.at(static_cast<std::size_t>(weight)).rows, plan.values[static_cast<std::size_t>(x)].rows);
}

ValueId PlanBuilder::scale(ValueId x, WeightId weight, float factor, const std::string& name) {
    const Value& in = plan.values[static_cast<std::size_t>(x)];
    return emit(ScaleOp{weight, factor}, {x}, name, in.cols, in.rows);
}

ValueId PlanBuilder::emit(OpAttributes attributes, std::vector<ValueId> inputs, const std::string& name, std::int64_t cols,
                          RowSpace rows, ValueType type) {
    const std::string full = layer_ < 0 ? name : name + "." + std::to_string(layer_);
    const ValueId out = plan.add_value(full, type, rows, cols);
    plan.ops.push_back({std::move(attributes), std::move(inputs), out, layer_});
    return out;
}

Plan build_plan(const BoundModel& model) {
    PlanBuilder builder(model);
    builder.build();
    verify(builder.plan);
    return std::move(builder.plan);
}

Plan without_head(Plan plan) {
    plan.logits = plan.ops.back().inputs.front();
    plan.ops.pop_back();
    verify(plan);
    return plan;
}

}  // namespace forge
