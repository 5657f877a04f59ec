// What the decoder families have in common: Llama's tensors and the keys that
// none of them implements.
#include <algorithm>

#include "family.h"

namespace forge {

namespace {
constexpr auto vector = std::nullopt;  // of columns
}

std::vector<TensorRow> decoder_tensors() {
    using enum Extent;
    constexpr Need q = Need::required, b = Need::with_attention_bias, m = Need::with_mlp_bias;
    return {
        {Role::attn_norm, "input_layernorm.weight", "attn_norm.weight", hidden, vector},
        {Role::attn_q, "self_attn.q_proj.weight", "attn_q.weight", q_rows, hidden, q, When::attention},
        {Role::attn_k, "self_attn.k_proj.weight", "attn_k.weight", kv_width, hidden, q, When::own_keys},
        {Role::attn_v, "self_attn.v_proj.weight", "attn_v.weight", kv_width, hidden, q, When::own_values},
        {Role::attn_o, "self_attn.o_proj.weight", "attn_output.weight", hidden, q_width, q, When::attention},
        {Role::attn_q_bias, "self_attn.q_proj.bias", "attn_q.bias", q_rows, vector, b, When::attention},
        {Role::attn_k_bias, "self_attn.k_proj.bias", "attn_k.bias", kv_width, vector, b, When::own_keys},
        {Role::attn_v_bias, "self_attn.v_proj.bias", "attn_v.bias", kv_width, vector, b, When::own_values},
        {Role::attn_o_bias, "self_attn.o_proj.bias", "attn_output.bias", hidden, vector, b, When::attention},
        {Role::ffn_norm, "post_attention_layernorm.weight", "ffn_norm.weight", hidden, vector},
        {Role::ffn_gate, "mlp.gate_proj.weight", "ffn_gate.weight", ffn_width, hidden, q, When::dense},
        {Role::ffn_up, "mlp.up_proj.weight", "ffn_up.weight", ffn_width, hidden, q, When::dense},
        {Role::ffn_down, "mlp.down_proj.weight", "ffn_down.weight", hidden, ffn_width, q, When::dense},
        {Role::ffn_gate_bias, "mlp.gate_proj.bias", "ffn_gate.bias", ffn_width, vector, m, When::dense},
        {Role::ffn_up_bias, "mlp.up_proj.bias", "ffn_up.bias", ffn_width, vector, m, When::dense},
        {Role::ffn_down_bias, "mlp.down_proj.bias", "ffn_down.bias", hidden, vector, m, When::dense},
    };
}

std::vector<Alternative> decoder_alternatives() {
    return {
        {"", "attn_qkv.weight", {Role::attn_q, Role::attn_k, Role::attn_v}},
        {"", "attn_qkv.bias", {Role::attn_q_bias, Role::attn_k_bias, Role::attn_v_bias}},
    };
}

std::vector<TensorRow> qk_norm_tensors() {
    return {
        {Role::attn_q_norm, "self_attn.q_norm.weight", "attn_q_norm.weight", Extent::head_dim, vector, Need::required, When::attention},
        {Role::attn_k_norm, "self_attn.k_norm.weight", "attn_k_norm.weight", Extent::head_dim, vector, Need::required, When::own_keys},
    };
}

void add_expert_tensors(Family& family) {
    using enum Extent;
    constexpr Need q = Need::required;
    const TensorRow rows[] = {
        {Role::router, "mlp.gate.weight", "ffn_gate_inp.weight", experts, hidden, q, When::experts},
        {Role::expert_gate, "mlp.experts.{}.gate_proj.weight", "ffn_gate_exps.weight", expert_width, hidden, q, When::experts},
        {Role::expert_up, "mlp.experts.{}.up_proj.weight", "ffn_up_exps.weight", expert_width, hidden, q, When::experts},
        {Role::expert_down, "mlp.experts.{}.down_proj.weight", "ffn_down_exps.weight", hidden, expert_width, q, When::experts},
        {Role::shared_router, "mlp.shared_expert_gate.weight", "ffn_gate_inp_shexp.weight", one, hidden, q, When::shared_expert},
        {Role::shared_gate, "mlp.shared_expert.gate_proj.weight", "ffn_gate_shexp.weight", shared_width, hidden, q, When::shared_expert},
        {Role::shared_up, "mlp.shared_expert.up_proj.weight", "ffn_up_shexp.weight", shared_width, hidden, q, When::shared_expert},
        {Role::shared_down, "mlp.shared_expert.down_proj.weight", "ffn_down_shexp.weight", hidden, shared_width, q, When::shared_expert},
    };
    family.tensors.insert(family.tensors.end(), std::begin(rows), std::end(rows));
    const Alternative places[] = {
        {"mlp.experts.gate_up_proj", "ffn_gate_up_exps.weight", {Role::expert_gate, Role::expert_up}},
        {"mlp.experts.down_proj", "", {Role::expert_down}},
        {"mlp.switch_mlp.gate_proj.weight", "ffn_gate.{}.weight", {Role::expert_gate}},
        {"mlp.switch_mlp.up_proj.weight", "ffn_up.{}.weight", {Role::expert_up}},
        {"mlp.switch_mlp.down_proj.weight", "ffn_down.{}.weight", {Role::expert_down}},
    };
    family.alternatives.insert(family.alternatives.end(), std::begin(places), std::end(places));
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
    };
}

void require(std::vector<TensorRow>& rows, std::initializer_list<Role> roles) {
    for (TensorRow& row : rows)
        if (std::find(roles.begin(), roles.end(), row.role) != roles.end()) row.need = Need::required;
}

}  // namespace forge
