// Qwen 3.5 and 3.6, dense and with experts, and Qwen 3 Next: three layers of
// gated DeltaNet to one of gated attention, a quarter of each head rotating.
#include <cmath>

#include "../layer_rules.h"
#include "base/error.h"

namespace forge {
namespace {

void set_delta(Draft& draft, const DeltaSpec& delta, const std::string& where) {
    if (delta.n_v_heads % delta.n_k_heads != 0)
        fail("{}: {} value heads cannot share {} key heads evenly", where, delta.n_v_heads, delta.n_k_heads);
    for (LayerSpec& layer : draft.spec.layers) {
        if (layer.mixer == MixerKind::gated_delta) layer.delta = delta;
        else layer.attention.gated = true;
    }
}

// MLX stores these norms as 1 + w, and then the convolution's kernel is not its last dimension.
bool norms_hold_one_plus(const Draft& draft) {
    const TensorRow& conv = *draft.family->row(Role::delta_conv);
    for (std::size_t i = 0; i < draft.spec.layers.size(); ++i)
        if (const Tensor* tensor = draft.file->find(draft.names.layer(i, conv.hf, conv.gguf)))
            return tensor->shape.size() == 3 && tensor->shape[2] == 1 && tensor->shape[1] != 1;
    return false;
}

void hybrid_layers(const ConfigReader& config, Draft& draft) {
    const std::size_t layers = draft.spec.layers.size();
    auto kinds = layer_types(config, layers, LayerKind::linear);
    if (!kinds) kinds = periodic_layers(layers, config.count("full_attention_interval", layer_range).value_or(4), LayerKind::linear);
    const int head_dim = draft.spec.layers.front().attention.head_dim;
    set_layers(draft, *kinds, 0, rope_of_config(config, *draft.family, LayerKind::full, head_dim));
    DeltaSpec delta;
    delta.n_k_heads = config.count("linear_num_key_heads", head_range).value_or(16);
    delta.n_v_heads = config.count("linear_num_value_heads", head_range).value_or(32);
    delta.k_dim = config.count("linear_key_head_dim", head_dim_range).value_or(128);
    delta.v_dim = config.count("linear_value_head_dim", head_dim_range).value_or(128);
    delta.conv_kernel = config.count("linear_conv_kernel_dim", {2, 16}).value_or(4);
    set_delta(draft, delta, config.where());
    if (norms_hold_one_plus(draft)) draft.norm = NormKind::one_rounding;
}

void next_layers(const ConfigReader& config, Draft& draft) {
    hybrid_layers(config, draft);
    set_experts(config, draft, "moe_intermediate_size", true);
}

void moe_layers(const ConfigReader& config, Draft& draft) {
    hybrid_layers(config, draft);
    set_experts(config, draft, "moe_intermediate_size", false);
}

void hybrid_layers_gguf(const GgufKeys& keys, Draft& draft) {
    const std::size_t layers = draft.spec.layers.size();
    const int interval = keys.count("full_attention_interval", layer_range).value_or(4);
    const auto kinds = flagged_layers(keys, "attention.recurrent_layers", layers, interval, LayerKind::linear);
    set_layers(draft, kinds, 0, rope_of_metadata(keys, draft, draft.spec.layers.front().attention.head_dim));
    DeltaSpec delta;
    delta.n_k_heads = keys.required_count("ssm.group_count", head_range);
    delta.n_v_heads = keys.required_count("ssm.time_step_rank", head_range);
    delta.k_dim = keys.required_count("ssm.state_size", head_dim_range);
    const int inner = keys.required_count("ssm.inner_size", width_range);
    if (inner % delta.n_v_heads != 0 || inner / delta.n_v_heads < head_dim_range.low || inner / delta.n_v_heads > head_dim_range.high)
        fail("{} is {}, which {} value heads cannot share evenly", keys.where("ssm.inner_size"), inner, delta.n_v_heads);
    delta.v_dim = inner / delta.n_v_heads;
    delta.conv_kernel = keys.count("ssm.conv_kernel", {2, 16}).value_or(4);
    delta.tiled_heads = draft.spelling.tiled_heads && delta.n_v_heads != delta.n_k_heads;
    delta.a_is_negative_exp = true;
    set_delta(draft, delta, keys.meta().source);
    set_experts(keys, draft);
}

std::vector<TensorRow> delta_tensors() {
    using enum Extent;
    constexpr Need q = Need::required;
    constexpr When w = When::delta;
    return {
        {Role::delta_qkv, "linear_attn.in_proj_qkv.weight", "attn_qkv.weight", conv_channels, hidden, q, w},
        {Role::delta_z, "linear_attn.in_proj_z.weight", "attn_gate.weight", delta_value, hidden, q, w},
        {Role::delta_b, "linear_attn.in_proj_b.weight", "ssm_beta.weight", delta_heads, hidden, q, w},
        {Role::delta_a, "linear_attn.in_proj_a.weight", "ssm_alpha.weight", delta_heads, hidden, q, w},
        {Role::delta_conv, "linear_attn.conv1d.weight", "ssm_conv1d.weight", conv_channels, conv_kernel, q, w},
        {Role::delta_a_log, "linear_attn.A_log", "ssm_a", delta_heads, std::nullopt, q, w},
        {Role::delta_dt_bias, "linear_attn.dt_bias", "ssm_dt.bias", delta_heads, std::nullopt, q, w},
        {Role::delta_norm, "linear_attn.norm.weight", "ssm_norm.weight", delta_v_dim, std::nullopt, q, w},
        {Role::delta_out, "linear_attn.out_proj.weight", "ssm_out.weight", hidden, delta_value, q, w},
    };
}

}  // namespace

Family qwen35_family() {
    Family family;
    family.name = "qwen3_5";
    family.model_types = {{"qwen3_5", true}, {"qwen3_5_text"}};
    family.gguf_archs = {{"qwen35", false, false, true}};
    ConfigDefaults& d = family.defaults;
    d.context = 32768;
    d.kv_heads = 4;
    d.head_dim = 256;
    d.rotary_share = 0.25;
    family.partial_default_rope = true;
    family.hf_norm = NormKind::one_plus;
    family.gguf_norm = NormKind::one_rounding;  // the file's norms hold 1 + w
    family.qk_norm = true;
    family.tensors = decoder_tensors();
    for (TensorRow& row : family.tensors)
        if (row.role == Role::ffn_norm) row.gguf = "post_attention_norm.weight";
    for (const TensorRow& row : qk_norm_tensors()) family.tensors.push_back(row);
    for (const TensorRow& row : delta_tensors()) family.tensors.push_back(row);
    family.alternatives = decoder_alternatives();
    family.alternatives.push_back({"linear_attn.in_proj_qkvz.weight", "ssm_in.weight", {Role::delta_qkv, Role::delta_z}, true});
    family.alternatives.push_back({"linear_attn.in_proj_ba.weight", "ssm_ba.weight", {Role::delta_b, Role::delta_a}, true});
    family.refused_config = decoder_refused_config();
    family.refused_metadata = decoder_refused_metadata();
    family.layers_from_config = hybrid_layers;
    family.layers_from_metadata = hybrid_layers_gguf;
    return family;
}

Family qwen35_moe_family() {
    Family family = qwen35_family();
    family.name = "qwen3_5_moe";
    family.model_types = {{"qwen3_5_moe", true}, {"qwen3_5_moe_text"}};
    family.gguf_archs = {{"qwen35moe", false, false, true}};
    ConfigDefaults& d = family.defaults;
    d.width = 1;  // no layer has a dense MLP
    d.kv_heads = 2;
    d.experts = 256;
    d.experts_per_token = 8;
    d.expert_width = 512;
    d.shared_width = 512;
    add_expert_tensors(family);
    family.layers_from_config = moe_layers;
    return family;
}

Family qwen3_next_family() {
    Family family = qwen35_moe_family();
    family.name = "qwen3_next";
    family.model_types = {{"qwen3_next"}};
    family.gguf_archs = {{"qwen3next"}};
    family.defaults.width = 5632;
    family.defaults.experts = 512;
    family.defaults.experts_per_token = 10;
    family.layers_from_config = next_layers;
    return family;
}

}  // namespace forge
