#include "config.h"

#include <algorithm>
#include <optional>

#include "base/log.h"

namespace forge::mlx {
namespace {

using Json = nlohmann::json;

const Json* object_at(const Json& json, const char* key) {
    const auto found = json.find(key);
    return found != json.end() && found->is_object() ? &*found : nullptr;
}

template <typename T>
void state(Json& config, const char* key, const T& value) {
    if (!config.contains(key)) config[key] = value;
}

// Layer i is of the `wanted` kind iff (i + 1) % n == 0; nullopt when no n says so.
std::optional<int> period(const ModelSpec& spec, bool (*wanted)(const LayerSpec&)) {
    const int layers = static_cast<int>(spec.layers.size());
    for (int n = 1; n <= layers; ++n) {
        bool fits = true;
        for (int i = 0; i < layers && fits; ++i) fits = wanted(spec.layers[static_cast<std::size_t>(i)]) == ((i + 1) % n == 0);
        if (fits) return n;
    }
    const bool none = std::none_of(spec.layers.begin(), spec.layers.end(), wanted);
    return none ? std::optional(layers + 1) : std::nullopt;
}

bool is_full_attention(const LayerSpec& layer) { return layer.mixer == MixerKind::attention && layer.attention.window == 0; }

// The old spelling: rope_theta and rope_scaling beside rope_parameters.
void state_rope(Json& config, const Json& parameters) {
    if (parameters.contains("rope_theta")) state(config, "rope_theta", parameters["rope_theta"]);
    if (parameters.contains("partial_rotary_factor")) state(config, "partial_rotary_factor", parameters["partial_rotary_factor"]);
    const auto type = parameters.find("rope_type");
    if (type == parameters.end() || *type == "default") return;
    Json scaling = parameters;
    scaling.erase("rope_theta");
    if (!object_at(config, "rope_scaling")) config["rope_scaling"] = scaling;
}

void warn_of_layers(const ModelFile& file, const char* key) {
    log_warn("{}: mlx-lm knows only layers that alternate regularly ('{}'), which these do not; it will compute something else", file.path, key);
}

void state_rope_and_layers(const ModelFile& file, Json& config, const ModelSpec& spec) {
    const std::string& family = spec.architecture;
    const Json* parameters = object_at(config, "rope_parameters");
    if (family == "gemma3") {
        if (parameters) {
            const Json rope = *parameters;
            if (const Json* full = object_at(rope, "full_attention")) state_rope(config, *full);
            if (const Json* sliding = object_at(rope, "sliding_attention")) state(config, "rope_local_base_freq", sliding->value("rope_theta", 10000.0));
        }
        const auto pattern = period(spec, is_full_attention);
        if (pattern) state(config, "sliding_window_pattern", *pattern);
        if (!pattern) warn_of_layers(file, "sliding_window_pattern");
        return;
    }
    if (family == "gemma4") return;
    if (family == "qwen3_5" || family == "qwen3_5_moe" || family == "qwen3_next") {
        const auto interval = period(spec, is_full_attention);
        if (interval) state(config, "full_attention_interval", *interval);
        if (!interval) warn_of_layers(file, "full_attention_interval");
        if (family != "qwen3_next") return;
        state(config, "partial_rotary_factor", 0.25);
    } else if (std::any_of(spec.layers.begin(), spec.layers.end(), [](const LayerSpec& l) { return l.attention.window > 0; })) {
        log_warn("{}: mlx-lm ignores the window of this family's attention; it will compute something else on longer texts", file.path);
    }
    if (parameters) state_rope(config, Json(*parameters));
}

// Keys that mlx-lm requires, or whose default there is another.
void state_family(Json& config, const ModelSpec& spec) {
    const std::string& family = spec.architecture;
    const LayerSpec& first = spec.layers.front();
    const auto last_moe = std::find_if(spec.layers.begin(), spec.layers.end(), [](const LayerSpec& l) { return l.feed_forward.moe.experts > 0; });
    if (family != "gemma3" && family != "gemma4") state(config, "rms_norm_eps", spec.norm.eps);
    if (last_moe != spec.layers.end() && family != "gemma4" && family != "mixtral") {
        const MoeSpec& moe = last_moe->feed_forward.moe;
        state(config, "num_experts", moe.experts);
        state(config, "num_experts_per_tok", moe.per_token);
        state(config, "moe_intermediate_size", moe.width);
        state(config, "norm_topk_prob", moe.normalise);
        state(config, "decoder_sparse_step", 1);
        state(config, "mlp_only_layers", Json::array());
        if (moe.shared_width > 0) state(config, "shared_expert_intermediate_size", moe.shared_width);
    }
    if (family != "gemma4" && family != "mixtral" && first.mixer == MixerKind::attention) state(config, "head_dim", first.attention.head_dim);
    if (family == "gemma4") {
        state(config, "final_logit_softcapping", spec.final_softcap > 0 ? Json(spec.final_softcap) : Json());
        const auto shared = std::count_if(spec.layers.begin(), spec.layers.end(), [&](const LayerSpec& l) { return l.attention.kv_layer != &l - spec.layers.data(); });
        state(config, "num_kv_shared_layers", shared);
        state(config, "use_double_wide_mlp", false);
        state(config, "hidden_size_per_layer_input", spec.ple_width);
        Json kinds = Json::array();
        for (const LayerSpec& layer : spec.layers) kinds.push_back(layer.attention.window > 0 ? "sliding_attention" : "full_attention");
        state(config, "layer_types", kinds);
        for (const LayerSpec& layer : spec.layers) {
            if (layer.attention.window > 0) continue;
            state(config, "global_head_dim", layer.attention.head_dim);
            state(config, "num_global_key_value_heads", layer.attention.n_kv_heads);
            break;
        }
    }
}

}  // namespace

Json config_of(const ModelFile& file, const ModelSpec& spec, const Layout& layout, const Json& quantization) {
    Json config = Json::parse(file.config.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
    config.erase("_name_or_path");
    config.erase("vision_config");
    if (layout.nested && !object_at(config, "text_config")) {
        // A text model's own config: mlx-lm has only the wrapper's class.
        Json wrapper;
        for (const char* key : {"dtype", "torch_dtype", "eos_token_id", "bos_token_id", "pad_token_id", "transformers_version"})
            if (config.contains(key)) wrapper[key] = config[key];
        std::string type = config.value("model_type", "");
        if (type.ends_with("_text")) type.resize(type.size() - 5);
        wrapper["model_type"] = type;
        wrapper["text_config"] = std::move(config);
        config = std::move(wrapper);
    }
    Json& text = layout.nested ? config["text_config"] : config;
    state_rope_and_layers(file, text, spec);
    state_family(text, spec);
    config["tie_word_embeddings"] = layout.tied;
    text["tie_word_embeddings"] = layout.tied;
    if (layout.nested) state(config, "vocab_size", spec.vocab);  // mlx-lm takes the wrapper's
    if (!quantization.empty()) config["quantization"] = config["quantization_config"] = quantization;
    return config;
}

}  // namespace forge::mlx
