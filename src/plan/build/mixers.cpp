#include "plan/build/builder.h"

namespace forge {

ValueId PlanBuilder::attention(ValueId h, int index) {
    const LayerSpec& layer = spec_.layers[static_cast<std::size_t>(index)];
    const AttentionSpec& a = layer.attention;
    const std::int64_t width = std::int64_t{a.n_heads} * a.head_dim;
    const ValueId q = matmul(h, layer[Role::attn_q], layer[Role::attn_q_bias], "q");
    std::vector<ValueId> inputs{q};
    const bool writes = a.kv_layer == index;
    if (writes) {
        inputs.push_back(matmul(h, layer[Role::attn_k], layer[Role::attn_k_bias], "k"));
        if (!a.v_from_k) inputs.push_back(matmul(h, layer[Role::attn_v], layer[Role::attn_v_bias], "v"));
    }
    inputs.push_back(rope_tables_[static_cast<std::size_t>(a.rope)]);
    const ValueId query = emit(QkPrepareOp{a, spec_.qk_norm, layer[Role::attn_q_norm], layer[Role::attn_k_norm], writes}, inputs, "query", width);
    ValueId o = emit(AttentionOp{a}, {query}, "attn", width);
    if (a.gated) o = emit(HeadGateOp{a.n_heads, a.head_dim}, {o, q}, "attn_gated", width);
    return matmul(o, layer[Role::attn_o], layer[Role::attn_o_bias], "attn_out");
}

ValueId PlanBuilder::gated_delta(ValueId h, int index) {
    const LayerSpec& layer = spec_.layers[static_cast<std::size_t>(index)];
    const DeltaSpec& d = layer.delta;
    const std::int64_t width = std::int64_t{d.n_v_heads} * d.v_dim;
    const ValueId u = matmul(h, layer[Role::delta_qkv], -1, "u");
    const ValueId z = matmul(h, layer[Role::delta_z], -1, "z");
    const ValueId b = matmul(h, layer[Role::delta_b], -1, "beta");
    const ValueId a = matmul(h, layer[Role::delta_a], -1, "alpha");
    const ValueId c = emit(ConvOp{layer[Role::delta_conv], d, index}, {u}, "conv", d.conv_channels());
    const ValueId o = emit(DeltaOp{d, layer[Role::delta_a_log], layer[Role::delta_dt_bias], index}, {c, b, a}, "delta", width);
    const ValueId y = emit(GatedNormOp{layer[Role::delta_norm], spec_.norm.eps, d.n_v_heads}, {o, z}, "delta_normed", width);
    return matmul(y, layer[Role::delta_out], -1, "delta_out");
}

}  // namespace forge
