#include "layer_rules.h"

#include <cmath>

#include "base/error.h"
#include "tensor_data.h"

namespace forge {
namespace {

RopeType rope_type_of(const ConfigReader& dict) {
    const std::string_view key = dict.find("rope_type") ? "rope_type" : "type";
    const std::string name = dict.text(key).value_or("default");
    // For text the position axes of multimodal rope are equal: it is the default one.
    if (name == "default" || name == "mrope") return RopeType::standard;
    if (name == "linear") return RopeType::linear;
    if (name == "llama3") return RopeType::llama3;
    if (name == "yarn") return RopeType::yarn;
    if (name == "proportional") return RopeType::proportional;
    dict.refuse(key, "this rope type is not implemented (default, linear, llama3, yarn and proportional are)");
}

}  // namespace

std::optional<std::vector<LayerKind>> layer_types(const ConfigReader& config, std::size_t layers, LayerKind second) {
    const ConfigReader::Json* list = config.find("layer_types");
    if (!list) return std::nullopt;
    if (!list->is_array() || list->size() != layers)
        fail("{}: 'layer_types' should list {} layers, as num_hidden_layers says, but it {}", config.where(), layers,
             list->is_array() ? fmt::format("lists {}", list->size()) : "is no list");
    const std::string_view other = second == LayerKind::sliding ? "sliding_attention" : "linear_attention";
    std::vector<LayerKind> kinds;
    for (const auto& entry : *list) {
        if (entry != "full_attention" && entry != other)
            fail(ErrorKind::unsupported, "{}: 'layer_types' names {}, a kind of layer that this architecture does not have in Forge (full_attention and {} are implemented)",
                 config.where(), entry.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace), other);
        kinds.push_back(entry == other ? second : LayerKind::full);
    }
    return kinds;
}

std::vector<LayerKind> periodic_layers(std::size_t layers, int period, LayerKind other) {
    std::vector<LayerKind> kinds(layers, other);
    const auto step = static_cast<std::size_t>(period);
    for (std::size_t i = step - 1; i < layers; i += step) kinds[i] = LayerKind::full;
    return kinds;
}

std::vector<LayerKind> flagged_layers(const GgufKeys& keys, std::string_view key, std::size_t layers, int period, LayerKind other) {
    const MetaValue* value = keys.meta().find(keys.name(key));
    if (!value) return periodic_layers(layers, period, other);
    if (!std::holds_alternative<std::vector<bool>>(*value)) return periodic_layers(layers, keys.required_count(key, layer_range), other);
    // Layers that only predict further tokens come last in the list and are not run.
    const auto& flags = std::get<std::vector<bool>>(*value);
    if (flags.size() < layers) fail("{} has {} entries, but the model has {} layers", keys.where(key), flags.size(), layers);
    std::vector<LayerKind> kinds;
    for (std::size_t i = 0; i < layers; ++i) kinds.push_back(flags[i] ? other : LayerKind::full);
    return kinds;
}

int window_of(const ConfigReader& config, const Family& family) {
    if (!config.stated("sliding_window")) return family.defaults.window;
    return config.count("sliding_window", length_range).value_or(0);
}

RopeParams rope_of_dict(const ConfigReader& dict, const ConfigReader& top, const Family& family, double theta, int head_dim) {
    RopeParams p;
    p.type = rope_type_of(dict);
    p.theta = dict.number("rope_theta").value_or(theta);
    p.rotary_dim = head_dim;
    const auto share = dict.find("partial_rotary_factor") ? dict.number("partial_rotary_factor") : top.number("partial_rotary_factor");
    if (share && !(*share > 0 && *share <= 1))
        fail("{}: 'partial_rotary_factor' should be above 0 and at most 1, but it is {:g}", dict.where(), *share);
    // The default type of most families rotates the whole head whatever the share is.
    const double rotated = head_dim * share.value_or(family.defaults.rotary_share);
    if (p.type == RopeType::standard) {
        if (family.partial_default_rope) p.rotary_dim = static_cast<int>(rotated);
        return p;
    }
    if (p.type == RopeType::proportional) {
        p.rotated_share = share.value_or(1);
        p.factor = dict.number("factor").value_or(1);
        return p;
    }
    p.rotary_dim = static_cast<int>(rotated);
    const double context = top.count("max_position_embeddings", length_range).value_or(0);
    // A top-level original_max_position_embeddings wins, as in the reference.
    p.original_context = top.number("original_max_position_embeddings")
                             .value_or(dict.number("original_max_position_embeddings").value_or(context));
    const auto factor = dict.number("factor");
    if (!factor && p.type != RopeType::yarn) dict.missing("factor");
    p.factor = factor.value_or(p.original_context > 0 ? context / p.original_context : 0);
    if (p.type == RopeType::llama3) {
        const auto low = dict.number("low_freq_factor"), high = dict.number("high_freq_factor");
        if (!low) dict.missing("low_freq_factor");
        if (!high) dict.missing("high_freq_factor");
        p.low_freq_factor = *low;
        p.high_freq_factor = *high;
    }
    if (p.type == RopeType::yarn) {
        const auto or_default = [&](std::string_view key, double value) {
            const double given = dict.number(key).value_or(0);
            return given == 0 ? value : given;
        };
        p.beta_fast = or_default("beta_fast", 32);
        p.beta_slow = or_default("beta_slow", 1);
        p.truncate = dict.boolean("truncate").value_or(true);
        p.attention_factor = dict.number("attention_factor");
        p.mscale = dict.number("mscale");
        p.mscale_all_dim = dict.number("mscale_all_dim");
    }
    return p;
}

RopeParams rope_of_config(const ConfigReader& config, const Family& family, LayerKind kind, int head_dim) {
    const double theta = config.number("rope_theta").value_or(10000);
    auto dict = config.object("rope_scaling");
    if (!dict) dict = config.object("rope_parameters");
    if (dict && (dict->stated("full_attention") || dict->stated("sliding_attention"))) {
        const std::string_view key = kind == LayerKind::sliding ? "sliding_attention" : "full_attention";
        const auto entry = dict->object(key);
        if (!entry) dict->missing(key);
        return rope_of_dict(*entry, config, family, theta, head_dim);
    }
    static const ConfigReader::Json empty = ConfigReader::Json::object();
    return rope_of_dict(dict ? *dict : ConfigReader(empty, config.where()), config, family, theta, head_dim);
}

RopeParams rope_of_metadata(const GgufKeys& keys, const Draft& draft, int head_dim, std::string_view suffix) {
    RopeParams p;
    p.theta = keys.number("rope.freq_base" + std::string(suffix)).value_or(10000);
    p.rotary_dim = keys.count("rope.dimension_count" + std::string(suffix), {2, head_dim}).value_or(head_dim);
    if (!suffix.empty()) return p;
    const Tensor* divisors = draft.file->find("rope_freqs.weight");
    if (divisors) p.divisors = floats_of(*divisors);
    for (const char* name : {"rope_factors_long.weight", "rope_factors_short.weight"})
        if (draft.file->find(name))
            fail(ErrorKind::unsupported, "{}: the tensor {} means that this model uses longrope, which is not implemented", keys.meta().source, name);
    const std::string old_factor = "rope.scale_linear";
    const auto factor = keys.has("rope.scaling.factor") ? keys.number("rope.scaling.factor") : keys.number(old_factor);
    // llama3 scaling is in rope_freqs already; a factor beside it is the same one.
    const std::string type = keys.meta().string(keys.name("rope.scaling.type"), factor && !divisors ? "linear" : "none");
    if (type == "none" || (type == "llama3" && divisors)) return p;
    if (type != "linear" && type != "yarn") keys.refuse("rope.scaling.type", "this rope type is not implemented (none, linear and yarn are; llama3 needs the tensor rope_freqs.weight)");
    p.type = type == "linear" ? RopeType::linear : RopeType::yarn;
    if (factor && *factor == 0) {  // written by some converters for "no scaling"
        p.type = RopeType::standard;
        return p;
    }
    p.original_context = keys.count("rope.scaling.original_context_length", {0, length_range.high}).value_or(0);
    if (p.original_context == 0) p.original_context = draft.spec.context_length;
    p.factor = factor.value_or(p.type == RopeType::yarn ? draft.spec.context_length / p.original_context : 1);
    if (p.type == RopeType::yarn) {
        p.beta_fast = keys.number("rope.scaling.yarn_beta_fast").value_or(32);
        p.beta_slow = keys.number("rope.scaling.yarn_beta_slow").value_or(1);
        p.attention_factor = keys.number("rope.scaling.yarn_attn_factor");
        p.extra_scale = keys.number("rope.scaling.attn_factor").value_or(1);
    }
    return p;
}

void set_layers(Draft& draft, const std::vector<LayerKind>& kinds, int window, const RopeParams& full,
                const RopeParams& sliding, double scale) {
    ModelSpec& spec = draft.spec;
    const std::string where = fmt::format("{}: rope", draft.file->path);
    int rope_of_kind[2] = {-1, -1};  // resolved once, not once a layer
    for (std::size_t i = 0; i < spec.layers.size(); ++i) {
        LayerSpec& layer = spec.layers[i];
        if (kinds[i] == LayerKind::linear) {
            layer.mixer = MixerKind::gated_delta;
            continue;
        }
        const bool slides = kinds[i] == LayerKind::sliding;
        int& rope = rope_of_kind[slides];
        if (rope < 0) rope = add_rope(spec.ropes, resolve_rope(slides ? sliding : full, where));
        layer.attention.rope = rope;
        layer.attention.window = slides ? window : 0;
        layer.attention.kv_layer = static_cast<int>(i);
        layer.attention.scale = static_cast<float>(scale);
    }
}

void set_layers(Draft& draft, const std::vector<LayerKind>& kinds, int window, const RopeParams& rope) {
    set_layers(draft, kinds, window, rope, rope, 1 / std::sqrt(static_cast<double>(draft.spec.layers.front().attention.head_dim)));
}

void set_experts(const ConfigReader& config, Draft& draft, std::string_view width_key, bool sparse_keys) {
    const ConfigDefaults& absent = draft.family->defaults;
    MoeSpec moe;
    // The newer name is what newer releases of the reference write.
    const std::string_view key = config.find("num_experts") ? "num_experts" : "num_local_experts";
    moe.experts = config.count(key, expert_range).value_or(absent.experts);
    if (moe.experts == 0) return;
    moe.per_token = config.count("num_experts_per_tok", {1, moe.experts}).value_or(absent.experts_per_token);
    if (moe.per_token > moe.experts)
        fail("{}: {} of {} experts cannot be chosen", config.where(), moe.per_token, moe.experts);
    moe.width = config.count(width_key, width_range).value_or(absent.expert_width);
    moe.normalise = absent.normalise_experts;
    if (sparse_keys) moe.normalise = config.boolean("norm_topk_prob").value_or(absent.normalise_experts);
    if (absent.shared_width > 0)
        moe.shared_width = config.count("shared_expert_intermediate_size", width_range).value_or(absent.shared_width);
    const int step = sparse_keys ? config.count("decoder_sparse_step", layer_range).value_or(1) : 1;
    std::vector<bool> dense(draft.spec.layers.size());
    if (const auto* list = sparse_keys ? config.find("mlp_only_layers") : nullptr) {
        if (!list->is_array()) fail("{}: 'mlp_only_layers' should be a list of layers", config.where());
        for (const auto& entry : *list) {
            if (!entry.is_number_integer()) fail("{}: 'mlp_only_layers' should list layer numbers", config.where());
            const auto index = entry.get<std::int64_t>();
            if (index >= 0 && index < static_cast<std::int64_t>(dense.size())) dense[static_cast<std::size_t>(index)] = true;
        }
    }
    for (std::size_t i = 0; i < dense.size(); ++i) {
        if (dense[i] || (i + 1) % static_cast<std::size_t>(step) != 0) continue;
        draft.spec.layers[i].feed_forward.moe = moe;
        draft.spec.layers[i].feed_forward.width = 0;
    }
}

void set_experts(const GgufKeys& keys, Draft& draft) {
    MoeSpec moe;
    moe.experts = keys.count("expert_count", expert_range).value_or(0);
    if (moe.experts == 0) return;
    moe.per_token = keys.required_count("expert_used_count", {1, moe.experts});
    const int whole = keys.count("feed_forward_length", {0, width_range.high}).value_or(0);
    const int absent = draft.family->defaults.expert_width == 0 ? whole : whole / moe.per_token;
    moe.width = keys.count("expert_feed_forward_length", width_range).value_or(absent);
    if (moe.width == 0) moe.width = keys.required_count("expert_feed_forward_length", width_range);
    if (draft.family->defaults.shared_width > 0)
        moe.shared_width = keys.count("expert_shared_feed_forward_length", width_range).value_or(moe.width);
    for (LayerSpec& layer : draft.spec.layers) {
        layer.feed_forward.moe = moe;
        layer.feed_forward.width = 0;
    }
}

}  // namespace forge
