// What the decoder families have in common: Llama's tensors and the keys that
// none of them implements.
#include <algorithm>

#include "family.h"

namespace forge {

std::vector<TensorRow> decoder_tensors() {
    using enum Extent;
    constexpr auto vector = std::nullopt;
    return {
        {Role::attn_norm, "input_layernorm.weight", "attn_norm.weight", hidden, vector},
        {Role::attn_q, "self_attn.q_proj.weight", "attn_q.weight", q_width, hidden},
        {Role::attn_k, "self_attn.k_proj.weight", "attn_k.weight", kv_width, hidden},
        {Role::attn_v, "self_attn.v_proj.weight", "attn_v.weight", kv_width, hidden},
        {Role::attn_o, "self_attn.o_proj.weight", "attn_output.weight", hidden, q_width},
        {Role::attn_q_bias, "self_attn.q_proj.bias", "attn_q.bias", q_width, vector, Need::with_attention_bias},
        {Role::attn_k_bias, "self_attn.k_proj.bias", "attn_k.bias", kv_width, vector, Need::with_attention_bias},
        {Role::attn_v_bias, "self_attn.v_proj.bias", "attn_v.bias", kv_width, vector, Need::with_attention_bias},
        {Role::attn_o_bias, "self_attn.o_proj.bias", "attn_output.bias", hidden, vector, Need::with_attention_bias},
        {Role::ffn_norm, "post_attention_layernorm.weight", "ffn_norm.weight", hidden, vector},
        {Role::ffn_gate, "mlp.gate_proj.weight", "ffn_gate.weight", ffn_width, hidden},
        {Role::ffn_up, "mlp.up_proj.weight", "ffn_up.weight", ffn_width, hidden},
        {Role::ffn_down, "mlp.down_proj.weight", "ffn_down.weight", hidden, ffn_width},
        {Role::ffn_gate_bias, "mlp.gate_proj.bias", "ffn_gate.bias", ffn_width, vector, Need::with_mlp_bias},
        {Role::ffn_up_bias, "mlp.up_proj.bias", "ffn_up.bias", ffn_width, vector, Need::with_mlp_bias},
        {Role::ffn_down_bias, "mlp.down_proj.bias", "ffn_down.bias", hidden, vector, Need::with_mlp_bias},
    };
}

std::vector<FusedRow> decoder_fused() {
    return {
        {"", "attn_qkv.weight", {Role::attn_q, Role::attn_k, Role::attn_v}},
        {"", "attn_qkv.bias", {Role::attn_q_bias, Role::attn_k_bias, Role::attn_v_bias}},
    };
}

std::vector<RefusedKey> decoder_refused_config() {
    return {
        {"use_bidirectional_attention", "attention that looks ahead (an encoder) is not implemented", {}},
        {"is_causal", "attention that looks ahead (an encoder) is not implemented", "true"},
        {"quantize_activations", "quantised activations are not implemented", {}},
    };
}

std::vector<RefusedKey> decoder_refused_metadata() {
    return {
        {"attention.causal", "attention that looks ahead (an encoder) is not implemented", "true"},
        {"attention.clamp_kqv", "clamped q, k and v are not implemented", {}},
        {"attention.max_alibi_bias", "ALiBi position biases are not implemented", {}},
        {"attention.scale", "an attention scale of its own is not implemented for this architecture", {}},
        {"attention.temperature_scale", "attention temperature scaling is not implemented", {}},
        {"attention.temperature_length", "attention temperature scaling is not implemented", {}},
        {"rope.scaling.yarn_log_multiplier", "YaRN's log multiplier is not implemented", {}},
        {"residual_scale", "scaled residuals are not implemented", {}},
        {"embedding_scale", "an embedding scale of its own is not implemented", {}},
        {"logit_scale", "scaled logits are not implemented", {}},
        {"expert_count", "mixtures of experts are not implemented for this architecture", {}},
    };
}

void require(std::vector<TensorRow>& rows, std::initializer_list<Role> roles) {
    for (TensorRow& row : rows)
        if (std::find(roles.begin(), roles.end(), row.role) != roles.end()) row.need = Need::required;
}

}  // namespace forge
