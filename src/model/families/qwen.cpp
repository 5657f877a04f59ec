// Qwen 2 and 2.5 (biases on q, k and v), Qwen 3 (norms on q and k), dense and with experts.
#include "../layer_rules.h"

namespace forge {
namespace {

void qwen_layers(const ConfigReader& config, Draft& draft) {
    const std::size_t layers = draft.spec.layers.size();
    const int window = config.boolean("use_sliding_window").value_or(false) ? window_of(config, *draft.family) : 0;
    std::vector<LayerKind> kinds(layers, LayerKind::full);
    const auto listed = layer_types(config, layers);
    if (window > 0) {
        const auto first = static_cast<std::size_t>(config.count("max_window_layers", {0, layer_range.high}).value_or(28));
        for (std::size_t i = 0; i < layers; ++i)
            kinds[i] = listed ? (*listed)[i] : i >= first ? LayerKind::sliding : LayerKind::full;
    }
    set_layers(draft, kinds, window,
               rope_of_config(config, *draft.family, LayerKind::full, draft.spec.layers.front().attention.head_dim));
}

void qwen_layers_gguf(const GgufKeys& keys, Draft& draft) {
    set_layers(draft, std::vector<LayerKind>(draft.spec.layers.size(), LayerKind::full), 0,
               rope_of_metadata(keys, draft, draft.spec.layers.front().attention.head_dim));
}

// Experts in all layers but the listed ones; a window slides in every layer.
void qwen3_moe_layers(const ConfigReader& config, Draft& draft) {
    const int window = config.boolean("use_sliding_window").value_or(false) ? window_of(config, *draft.family) : 0;
    const LayerKind kind = window > 0 ? LayerKind::sliding : LayerKind::full;
    set_layers(draft, std::vector<LayerKind>(draft.spec.layers.size(), kind), window,
               rope_of_config(config, *draft.family, kind, draft.spec.layers.front().attention.head_dim));
    set_experts(config, draft, "moe_intermediate_size", true);
}

void qwen3_moe_layers_gguf(const GgufKeys& keys, Draft& draft) {
    qwen_layers_gguf(keys, draft);
    set_experts(keys, draft);
}

}  // namespace

Family qwen2_family() {
    Family family;
    family.name = "qwen2";
    family.model_types = {{"qwen2"}};
    family.gguf_archs = {{"qwen2"}};
    family.defaults.context = 32768;
    family.defaults.kv_heads = 32;
    family.tensors = decoder_tensors();
    require(family.tensors, {Role::attn_q_bias, Role::attn_k_bias, Role::attn_v_bias});
    family.alternatives = decoder_alternatives();
    family.refused_config = decoder_refused_config();
    family.refused_metadata = decoder_refused_metadata();
    family.layers_from_config = qwen_layers;
    family.layers_from_metadata = qwen_layers_gguf;
    return family;
}

Family qwen3_family() {
    Family family = qwen2_family();
    family.name = "qwen3";
    family.model_types = {{"qwen3"}};
    family.gguf_archs = {{"qwen3"}};
    family.defaults.head_dim = 128;
    family.qk_norm = true;
    family.tensors = decoder_tensors();
    for (const TensorRow& row : qk_norm_tensors()) family.tensors.push_back(row);
    return family;
}

Family qwen3_moe_family() {
    Family family = qwen3_family();
    family.name = "qwen3_moe";
    family.model_types = {{"qwen3_moe"}};
    family.gguf_archs = {{"qwen3moe"}};
    ConfigDefaults& d = family.defaults;
    d.width = 6144;
    d.kv_heads = 4;
    d.head_dim = std::nullopt;
    d.experts = 128;
    d.experts_per_token = 8;
    d.expert_width = 768;
    d.normalise_experts = false;
    add_expert_tensors(family);
    family.layers_from_config = qwen3_moe_layers;
    family.layers_from_metadata = qwen3_moe_layers_gguf;
    return family;
}

}  // namespace forge
