// Gemma 3, text: norms around both halves of a layer, five sliding layers with
// a short-period rope to one full layer with a long-period one.
#include <cmath>

#include "../layer_rules.h"
#include "base/error.h"

namespace forge {
namespace {

void softcaps(std::optional<double> attention, std::optional<double> final, Draft& draft) {
    draft.spec.final_softcap = static_cast<float>(final.value_or(0));
    for (LayerSpec& layer : draft.spec.layers) layer.attention.softcap = static_cast<float>(attention.value_or(0));
}

// Old spelling: rope_theta and rope_scaling belong to the full layers only and
// rope_local_base_freq is the sliding theta. New: rope_parameters keyed by kind.
RopeParams gemma3_rope(const ConfigReader& config, const Family& family, LayerKind kind, int head_dim) {
    const bool full = kind == LayerKind::full;
    const double theta = config.number(full ? "rope_theta" : "rope_local_base_freq").value_or(full ? 1e6 : 1e4);
    if (const auto keyed = config.object("rope_parameters")) {
        const bool listed = keyed->stated("full_attention") || keyed->stated("sliding_attention");
        if (!listed && !keyed->json().empty())
            config.refuse("rope_parameters", "Gemma 3 needs an entry for each of full_attention and sliding_attention");
        if (const auto dict = keyed->object(full ? "full_attention" : "sliding_attention")) {
            if (!full || !config.find("rope_scaling")) return rope_of_dict(*dict, config, family, theta, head_dim);
        }
    }
    if (full) {
        if (const auto dict = config.object("rope_scaling")) return rope_of_dict(*dict, config, family, theta, head_dim);
    }
    RopeParams rope;
    rope.theta = theta;
    rope.rotary_dim = head_dim;
    return rope;
}

void gemma3_layers(const ConfigReader& config, Draft& draft) {
    const std::size_t layers = draft.spec.layers.size();
    const int head_dim = draft.spec.layers.front().attention.head_dim;
    const int window = window_of(config, *draft.family);
    auto kinds = layer_types(config, layers);
    if (!kinds) kinds = periodic_layers(layers, config.count("sliding_window_pattern", layer_range).value_or(6));
    const double scalar = config.number("query_pre_attn_scalar").value_or(256);
    if (!(scalar > 0)) config.refuse("query_pre_attn_scalar", "the attention scale is its inverse square root, so it should be positive");
    set_layers(draft, *kinds, window, gemma3_rope(config, *draft.family, LayerKind::full, head_dim),
               gemma3_rope(config, *draft.family, LayerKind::sliding, head_dim), 1 / std::sqrt(scalar));
    softcaps(config.number("attn_logit_softcapping"), config.number("final_logit_softcapping"), draft);
}

void gemma3_layers_gguf(const GgufKeys& keys, Draft& draft) {
    const std::size_t layers = draft.spec.layers.size();
    const AttentionSpec& first = draft.spec.layers.front().attention;
    const int window = keys.count("attention.sliding_window", {0, length_range.high}).value_or(0);
    const auto kinds = window > 0 ? flagged_layers(keys, "attention.sliding_window_pattern", layers, 6, LayerKind::sliding)
                                  : std::vector<LayerKind>(layers, LayerKind::full);
    const RopeParams full = rope_of_metadata(keys, draft, first.head_dim);
    const RopeParams sliding = rope_of_metadata(keys, draft, first.head_dim, "_swa");
    // The 27B model scales by its hidden size per head; the file does not say so.
    constexpr std::size_t layers_of_27b = 62;
    const double scalar = layers == layers_of_27b ? static_cast<double>(draft.spec.hidden) / first.n_heads : first.head_dim;
    set_layers(draft, kinds, window, full, sliding, 1 / std::sqrt(scalar));
    softcaps(keys.number("attn_logit_softcapping"), keys.number("final_logit_softcapping"), draft);
}

}  // namespace

Family gemma3_family() {
    using enum Extent;
    constexpr auto vector = std::nullopt;
    Family family;
    family.name = "gemma3";
    family.model_types = {{"gemma3", true}, {"gemma3_text"}};
    family.gguf_archs = {{"gemma3"}};
    ConfigDefaults& d = family.defaults;
    d.hidden = 2304;
    d.width = 9216;
    d.layers = 26;
    d.heads = 8;
    d.kv_heads = 4;
    d.head_dim = 256;
    d.vocab = 262208;
    d.context = 131072;
    d.activation_key = "hidden_activation";
    d.activation = "gelu_pytorch_tanh";
    d.tied = true;
    d.stop_ids = {1};
    family.hf_norm = NormKind::one_plus;
    family.gguf_norm = NormKind::one_rounding;  // the file's norms hold 1 + w
    family.qk_norm = true;
    family.scaled_embedding = true;
    for (TensorRow& row : family.tensors = decoder_tensors()) {
        if (row.role == Role::ffn_norm) row.hf = "pre_feedforward_layernorm.weight";
    }
    for (const TensorRow& row : qk_norm_tensors()) family.tensors.push_back(row);
    family.tensors.push_back({Role::attn_post_norm, "post_attention_layernorm.weight", "post_attention_norm.weight", hidden, vector});
    family.tensors.push_back({Role::ffn_post_norm, "post_feedforward_layernorm.weight", "post_ffw_norm.weight", hidden, vector});
    family.alternatives = decoder_alternatives();
    family.refused_config = decoder_refused_config();
    family.refused_metadata = decoder_refused_metadata();
    family.layers_from_config = gemma3_layers;
    family.layers_from_metadata = gemma3_layers_gguf;
    return family;
}

}  // namespace forge
