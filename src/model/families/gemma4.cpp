// Gemma 4, text: larger heads on full layers, caches that later layers share,
// experts beside the dense MLP, and inputs of each layer's own.
#include <charconv>
#include <cmath>

#include "../layer_rules.h"
#include "base/error.h"

namespace forge {
namespace {

constexpr double full_theta = 1e6, sliding_theta = 1e4;

RopeParams gemma4_rope(const ConfigReader& config, const Family& family, LayerKind kind, int head_dim) {
    const bool full = kind == LayerKind::full;
    if (const auto keyed = config.object("rope_parameters")) {
        const std::string_view key = full ? "full_attention" : "sliding_attention";
        const auto dict = keyed->object(key);
        if (!dict) keyed->missing(key);
        return rope_of_dict(*dict, config, family, full ? full_theta : sliding_theta, head_dim);
    }
    RopeParams rope;
    rope.type = full ? RopeType::proportional : RopeType::standard;
    rope.theta = full ? full_theta : sliding_theta;
    rope.rotated_share = full ? 0.25 : 1;
    rope.rotary_dim = head_dim;
    return rope;
}

// per_layer_config {"<layer>": {head_dim, num_key_value_heads}}: layer numbers are decimal, maybe zero-padded.
void layer_overrides(const ConfigReader& table, Draft& draft) {
    for (const auto& [key, value] : table.json().items()) {
        std::size_t index = 0;
        const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), index);
        if (error != std::errc() || end != key.data() + key.size() || index >= draft.spec.layers.size())
            fail("{}: '{}' is no layer of {}", table.where(), key, draft.spec.layers.size());
        const auto entry = table.object(key);
        if (!entry) continue;
        AttentionSpec& a = draft.spec.layers[index].attention;
        a.head_dim = entry->count("head_dim", head_dim_range).value_or(a.head_dim);
        a.n_kv_heads = entry->count("num_key_value_heads", head_range).value_or(a.n_kv_heads);
    }
}

// Head size of the first layer of a kind; all layers of it must agree, because they share a rope.
int head_dim_of(const Draft& draft, const std::vector<LayerKind>& kinds, LayerKind kind) {
    int found = 0;
    for (std::size_t i = 0; i < kinds.size(); ++i) {
        if (kinds[i] != kind) continue;
        const int head_dim = draft.spec.layers[i].attention.head_dim;
        if (found != 0 && head_dim != found)
            fail(ErrorKind::unsupported, "{}: layers of one kind have heads of {} and of {} dimensions, which is not implemented", draft.file->path, found, head_dim);
        found = head_dim;
    }
    return found == 0 ? draft.spec.layers.front().attention.head_dim : found;
}

// The last `shared` layers read the cache of the last layer of their kind before them.
void share_caches(Draft& draft, const std::vector<LayerKind>& kinds, int shared, const std::string& where) {
    std::vector<LayerSpec>& layers = draft.spec.layers;
    const std::size_t first = layers.size() - static_cast<std::size_t>(shared);
    for (std::size_t i = first; i < layers.size(); ++i) {
        std::size_t source = first;
        while (source > 0 && kinds[source - 1] != kinds[i]) --source;
        if (source == 0) fail("{}: layer {} should share the cache of an earlier layer of its kind, but there is none", where, i);
        AttentionSpec& a = layers[i].attention;
        const AttentionSpec& from = layers[source - 1].attention;
        if (a.n_kv_heads != from.n_kv_heads || a.head_dim != from.head_dim)
            fail("{}: layers {} and {} share a cache, but their key-value heads differ", where, i, source - 1);
        a.kv_layer = static_cast<int>(source) - 1;
    }
}

// What both formats have in common, once heads, kinds and widths are known.
void finish(Draft& draft, double softcap, bool values_from_keys, const std::vector<LayerKind>& kinds) {
    draft.spec.final_softcap = static_cast<float>(softcap);
    for (std::size_t i = 0; i < kinds.size(); ++i) {
        AttentionSpec& a = draft.spec.layers[i].attention;
        a.v_norm = true;
        a.v_from_k = values_from_keys && kinds[i] == LayerKind::full;
    }
}

void set_gemma_experts(Draft& draft, MoeSpec moe) {
    moe.router = RouterKind::gemma4;
    moe.round_weights = false;
    moe.beside_dense = true;
    for (LayerSpec& layer : draft.spec.layers) layer.feed_forward.moe = moe;
}

void gemma4_layers(const ConfigReader& config, Draft& draft) {
    ModelSpec& spec = draft.spec;
    const std::size_t layers = spec.layers.size();
    auto kinds = layer_types(config, layers);
    if (!kinds) kinds = periodic_layers(layers, 6);
    kinds->back() = LayerKind::full;
    const bool values_from_keys = config.boolean("attention_k_eq_v").value_or(false);
    if (const auto table = config.object("per_layer_config")) {
        layer_overrides(*table, draft);
    } else {
        const int head_dim = config.count("global_head_dim", head_dim_range).value_or(512);
        const auto kv_heads = values_from_keys ? config.count("num_global_key_value_heads", head_range) : std::nullopt;
        for (std::size_t i = 0; i < layers; ++i) {
            if ((*kinds)[i] != LayerKind::full) continue;
            AttentionSpec& a = spec.layers[i].attention;
            a.head_dim = head_dim;
            a.n_kv_heads = kv_heads.value_or(a.n_kv_heads);
        }
    }
    const int full = head_dim_of(draft, *kinds, LayerKind::full), sliding = head_dim_of(draft, *kinds, LayerKind::sliding);
    set_layers(draft, *kinds, window_of(config, *draft.family), gemma4_rope(config, *draft.family, LayerKind::full, full),
               gemma4_rope(config, *draft.family, LayerKind::sliding, sliding), 1);
    const int shared = config.count("num_kv_shared_layers", {0, static_cast<std::int64_t>(layers) - 1}).value_or(0);
    share_caches(draft, *kinds, shared, config.where());
    if (config.boolean("use_double_wide_mlp").value_or(false))
        for (std::size_t i = layers - static_cast<std::size_t>(shared); i < layers; ++i) spec.layers[i].feed_forward.width *= 2;
    spec.ple_width = config.count("hidden_size_per_layer_input", {0, width_range.high}).value_or(draft.family->defaults.ple_width);
    if (config.boolean("enable_moe_block").value_or(false)) {
        MoeSpec moe;
        const auto required = [&](std::string_view key, Range range) {
            const auto value = config.count(key, range);
            if (!value) config.missing(key);
            return *value;
        };
        moe.experts = required("num_experts", {1, expert_range.high});
        moe.per_token = required("top_k_experts", {1, moe.experts});
        moe.width = required("moe_intermediate_size", width_range);
        set_gemma_experts(draft, moe);
    }
    finish(draft, config.number("final_logit_softcapping").value_or(0), values_from_keys, *kinds);
}

void gemma4_layers_gguf(const GgufKeys& keys, Draft& draft) {
    ModelSpec& spec = draft.spec;
    const std::size_t layers = spec.layers.size();
    const auto kinds = flagged_layers(keys, "attention.sliding_window_pattern", layers, 6, LayerKind::sliding);
    const int full = spec.layers.front().attention.head_dim;
    const int sliding = keys.count("attention.key_length_swa", head_dim_range).value_or(full);
    if (const auto values = keys.count("attention.value_length_swa", head_dim_range); values && *values != sliding)
        keys.refuse("attention.value_length_swa", "values of another length than keys are not implemented");
    const TensorRow& value_row = *draft.family->row(Role::attn_v);
    bool values_from_keys = false;
    const int shared = keys.count("attention.shared_kv_layers", {0, static_cast<std::int64_t>(layers) - 1}).value_or(0);
    for (std::size_t i = 0; i < layers; ++i) {
        if (kinds[i] == LayerKind::sliding) {
            spec.layers[i].attention.head_dim = sliding;
        } else if (!draft.file->tensors.empty() && i + static_cast<std::size_t>(shared) < layers) {
            // Not stored as a key: the value projection is simply not there.
            values_from_keys |= !draft.file->find(draft.names.layer(i, value_row.hf, value_row.gguf)) &&
                                !draft.file->find(draft.names.layer(i, "", "attn_qkv.weight"));
        }
    }
    set_layers(draft, kinds, keys.count("attention.sliding_window", {0, length_range.high}).value_or(0),
               rope_of_metadata(keys, draft, full), rope_of_metadata(keys, draft, sliding, "_swa"), 1);
    share_caches(draft, kinds, shared, keys.meta().source);
    spec.ple_width = keys.count("embedding_length_per_layer_input", {0, width_range.high}).value_or(0);
    MoeSpec moe;
    moe.experts = keys.count("expert_count", expert_range).value_or(0);
    if (moe.experts > 0) {
        moe.per_token = keys.required_count("expert_used_count", {1, moe.experts});
        moe.width = keys.required_count("expert_feed_forward_length", width_range);
        set_gemma_experts(draft, moe);
    }
    finish(draft, keys.number("final_logit_softcapping").value_or(0), values_from_keys, kinds);
}

std::vector<TensorRow> own_tensors() {
    using enum Extent;
    constexpr auto vector = std::nullopt;
    constexpr Need q = Need::required;
    return {
        {Role::attn_post_norm, "post_attention_layernorm.weight", "post_attention_norm.weight", hidden, vector},
        {Role::ffn_post_norm, "post_feedforward_layernorm.weight", "post_ffw_norm.weight", hidden, vector},
        {Role::layer_scale, "layer_scalar", "layer_output_scale.weight", one, vector, Need::optional},
        {Role::ple_gate, "per_layer_input_gate.weight", "inp_gate.weight", ple_width, hidden, q, When::per_layer},
        {Role::ple_proj, "per_layer_projection.weight", "proj.weight", hidden, ple_width, q, When::per_layer},
        {Role::ple_post_norm, "post_per_layer_input_norm.weight", "post_norm.weight", hidden, vector, q, When::per_layer},
        {Role::router, "router.proj.weight", "ffn_gate_inp.weight", experts, hidden, q, When::experts},
        {Role::router_scale, "router.scale", "ffn_gate_inp.scale", hidden, vector, q, When::experts},
        {Role::expert_scale, "router.per_expert_scale", "ffn_down_exps.scale", experts, vector, q, When::experts},
        {Role::expert_gate, "experts.switch_glu.gate_proj.weight", "ffn_gate_exps.weight", expert_width, hidden, q, When::experts},
        {Role::expert_up, "experts.switch_glu.up_proj.weight", "ffn_up_exps.weight", expert_width, hidden, q, When::experts},
        {Role::expert_down, "experts.switch_glu.down_proj.weight", "ffn_down_exps.weight", hidden, expert_width, q, When::experts},
        {Role::moe_norm, "pre_feedforward_layernorm_2.weight", "pre_ffw_norm_2.weight", hidden, vector, q, When::experts},
        {Role::ffn_post_norm_1, "post_feedforward_layernorm_1.weight", "post_ffw_norm_1.weight", hidden, vector, q, When::experts},
        {Role::moe_post_norm, "post_feedforward_layernorm_2.weight", "post_ffw_norm_2.weight", hidden, vector, q, When::experts},
    };
}

}  // namespace

Family gemma4_family() {
    Family family;
    family.name = "gemma4";
    family.model_types = {{"gemma4", true}, {"gemma4_text"}};
    family.gguf_archs = {{"gemma4"}};
    ConfigDefaults& d = family.defaults;
    d.hidden = 2304;
    d.width = 9216;
    d.layers = 30;
    d.heads = 8;
    d.kv_heads = 4;
    d.head_dim = 256;
    d.vocab = 262144;
    d.context = 131072;
    d.activation_key = "hidden_activation";
    d.activation = "gelu_pytorch_tanh";
    d.tied = true;
    d.stop_ids = {1};
    d.window = 512;
    d.ple_width = 256;
    family.hf_norm = family.gguf_norm = NormKind::one_rounding;
    family.qk_norm = true;
    family.scaled_embedding = true;
    family.tensors = decoder_tensors();
    for (TensorRow& row : family.tensors)
        if (row.role == Role::ffn_norm) row.hf = "pre_feedforward_layernorm.weight";
    for (const TensorRow& row : qk_norm_tensors()) family.tensors.push_back(row);
    for (const TensorRow& row : own_tensors()) family.tensors.push_back(row);
    family.alternatives = decoder_alternatives();
    family.alternatives.push_back({"experts.gate_up_proj", "ffn_gate_up_exps.weight", {Role::expert_gate, Role::expert_up}});
    family.alternatives.push_back({"experts.down_proj", "", {Role::expert_down}});
    family.refused_config = decoder_refused_config();
    for (RefusedKey& refused : family.refused_config)
        if (refused.key == "use_bidirectional_attention") refused.accepted = "\"vision\"";  // no image, no difference
    family.refused_metadata = decoder_refused_metadata();
    family.layers_from_config = gemma4_layers;
    family.layers_from_metadata = gemma4_layers_gguf;
    return family;
}

// The same text model with other defaults.
Family gemma4_unified_family() {
    Family family = gemma4_family();
    family.model_types = {{"gemma4_unified", true}, {"gemma4_unified_text"}};
    family.gguf_archs = {};
    family.defaults.window = 1024;
    family.defaults.ple_width = 0;
    return family;
}

}  // namespace forge
