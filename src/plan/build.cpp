#include "base/error.h"
#include "plan/plan.h"

namespace forge {
namespace {

// Appends ops; each method returns the value it makes.
class Builder {
  public:
    explicit Builder(const BoundModel& model) : model_(model) {
        for (const Weight& w : model.weights)
            plan.weights.push_back({w.name, w.rows, w.cols, w.format.is_dense() && w.format.dense_type == DType::f32,
                                    describe(w.format)});
        for (const RopeSpec& rope : model.spec.ropes) {
            plan.ropes.push_back(rope.description);
            plan.rope_pairs.push_back(static_cast<int>(rope.inv_freq.size()));
        }
    }

    Plan plan;
    int layer = -1;

    ValueId embed() {
        const ModelSpec& spec = model_.spec;
        return add(EmbedOp{spec.embed, spec.embed_scale}, {}, "x", spec.hidden);
    }
    ValueId rope_table(int rope) {
        return add(RopeTableOp{rope}, {}, "rope" + std::to_string(rope), 2 * plan.rope_pairs[rope], RowSpace::tokens,
                   ValueType::f32);
    }
    ValueId norm(ValueId x, WeightId weight, const std::string& name) {
        return add(NormOp{weight, model_.spec.norm}, {x}, name, plan.values[x].cols, plan.values[x].rows);
    }
    ValueId matmul(ValueId x, WeightId weight, WeightId bias, const std::string& name) {
        MatmulOp op;
        op.weight = weight;
        op.bias = bias;
        return add(op, {x}, name, plan.weights[weight].rows, plan.values[x].rows);
    }
    ValueId logits(ValueId x) {
        MatmulOp op;
        op.weight = model_.spec.head;
        op.softcap = model_.spec.final_softcap;
        return add(op, {x}, "logits", plan.weights[op.weight].rows, RowSpace::outputs, ValueType::f32);
    }
    ValueId add(OpAttributes attributes, std::vector<ValueId> inputs, const std::string& name, std::int64_t cols,
                RowSpace rows = RowSpace::tokens, ValueType type = ValueType::activation) {
        const std::string full = layer < 0 ? name : name + "." + std::to_string(layer);
        const ValueId out = plan.add_value(full, type, rows, cols);
        plan.ops.push_back({std::move(attributes), std::move(inputs), out, layer});
        return out;
    }

  private:
    const BoundModel& model_;
};

}  // namespace

Plan build_plan(const BoundModel& model) {
    const ModelSpec& spec = model.spec;
    Builder b(model);
    std::vector<ValueId> tables;
    for (int i = 0; i < static_cast<int>(spec.ropes.size()); ++i) tables.push_back(b.rope_table(i));
    ValueId x = b.embed();
    for (int i = 0; i < static_cast<int>(spec.layers.size()); ++i) {
        const LayerSpec& layer = spec.layers[i];
        const AttentionSpec& attention = layer.attention;
        b.layer = i;
        const std::int64_t width = std::int64_t{attention.n_heads} * attention.head_dim;

        ValueId h = b.norm(x, layer[Role::attn_norm], "attn_norm");
        const ValueId q = b.matmul(h, layer[Role::attn_q], layer[Role::attn_q_bias], "q");
        std::vector<ValueId> inputs{q};
        const bool writes = attention.kv_layer == i;
        if (writes) {
            inputs.push_back(b.matmul(h, layer[Role::attn_k], layer[Role::attn_k_bias], "k"));
            inputs.push_back(b.matmul(h, layer[Role::attn_v], layer[Role::attn_v_bias], "v"));
        }
        inputs.push_back(tables[attention.rope]);
        const ValueId query = b.add(QkPrepareOp{attention, spec.qk_norm, layer[Role::attn_q_norm],
                                                layer[Role::attn_k_norm], writes},
                                    inputs, "query", width);
        const ValueId o = b.add(AttentionOp{attention}, {query}, "attn", width);
        ValueId y = b.matmul(o, layer[Role::attn_o], layer[Role::attn_o_bias], "attn_out");
        if (layer[Role::attn_post_norm] >= 0) y = b.norm(y, layer[Role::attn_post_norm], "attn_post");
        x = b.add(AddOp{}, {x, y}, "x_attn", spec.hidden);

        h = b.norm(x, layer[Role::ffn_norm], "ffn_norm");
        const ValueId gate = b.matmul(h, layer[Role::ffn_gate], layer[Role::ffn_gate_bias], "gate");
        const ValueId up = b.matmul(h, layer[Role::ffn_up], layer[Role::ffn_up_bias], "up");
        const ValueId act = b.add(ActMulOp{layer.feed_forward.activation}, {gate, up}, "act", layer.feed_forward.width);
        y = b.matmul(act, layer[Role::ffn_down], layer[Role::ffn_down_bias], "ffn_out");
        if (layer[Role::ffn_post_norm] >= 0) y = b.norm(y, layer[Role::ffn_post_norm], "ffn_post");
        x = b.add(AddOp{}, {x, y}, "x_ffn", spec.hidden);
    }
    b.layer = -1;
    x = b.add(TakeRowsOp{}, {x}, "x_out", spec.hidden, RowSpace::outputs);
    x = b.norm(x, spec.final_norm, "final_norm");
    b.plan.logits = b.logits(x);
    verify(b.plan);
    return std::move(b.plan);
}

}  // namespace forge
