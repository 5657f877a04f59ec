// Qwen 2 and 2.5 (biases on q, k and v) and dense Qwen 3 (norms on q and k).
#include "../layer_rules.h"

namespace forge {
namespace {

void qwen_layers(const ConfigReader& config, Draft& draft) {
    const std::size_t layers = draft.spec.layers.size();
    int window = 0;
    if (config.boolean("use_sliding_window").value_or(false))
        window = config.stated("sliding_window") ? config.count("sliding_window", length_range).value_or(0) : 4096;
    std::vector<LayerKind> kinds(layers, LayerKind::full);
    const auto listed = layer_types(config, layers);
    if (window > 0) {
        const auto first = static_cast<std::size_t>(config.count("max_window_layers", {0, layer_range.high}).value_or(28));
        for (std::size_t i = 0; i < layers; ++i)
            kinds[i] = listed ? (*listed)[i] : i >= first ? LayerKind::sliding : LayerKind::full;
    }
    set_layers(draft, kinds, window,
               rope_of_config(config, LayerKind::full, draft.spec.layers.front().attention.head_dim));
}

void qwen_layers_gguf(const GgufKeys& keys, Draft& draft) {
    set_layers(draft, std::vector<LayerKind>(draft.spec.layers.size(), LayerKind::full), 0,
               rope_of_metadata(keys, draft, keys.number("rope.freq_base").value_or(10000), true));
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
    family.fused = decoder_fused();
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
    family.tensors.push_back({Role::attn_q_norm, "self_attn.q_norm.weight", "attn_q_norm.weight", Extent::head_dim, std::nullopt});
    family.tensors.push_back({Role::attn_k_norm, "self_attn.k_norm.weight", "attn_k_norm.weight", Extent::head_dim, std::nullopt});
    return family;
}

}  // namespace forge
