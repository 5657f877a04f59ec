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

std::optional<std::vector<LayerKind>> layer_types(const ConfigReader& config, std::size_t layers) {
    const ConfigReader::Json* list = config.find("layer_types");
    if (!list) return std::nullopt;
    if (!list->is_array() || list->size() != layers)
        fail("{}: 'layer_types' should list {} layers, as num_hidden_layers says, but it {}", config.where(), layers,
             list->is_array() ? fmt::format("lists {}", list->size()) : "is no list");
    std::vector<LayerKind> kinds;
    for (const auto& entry : *list) {
        if (entry == "full_attention") {
            kinds.push_back(LayerKind::full);
        } else if (entry == "sliding_attention") {
            kinds.push_back(LayerKind::sliding);
        } else {
            fail(ErrorKind::unsupported, "{}: layer_types names {}, a kind of layer that this architecture does not have in Forge (full_attention and sliding_attention are implemented)",
                 config.where(), entry.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
        }
    }
    return kinds;
}

std::vector<LayerKind> periodic_layers(std::size_t layers, int period) {
    std::vector<LayerKind> kinds(layers, LayerKind::sliding);
    const auto step = static_cast<std::size_t>(period);
    for (std::size_t i = step - 1; i < layers; i += step) kinds[i] = LayerKind::full;
    return kinds;
}

RopeParams rope_of_dict(const ConfigReader& dict, const ConfigReader& top, double theta, int head_dim) {
    RopeParams p;
    p.type = rope_type_of(dict);
    p.theta = dict.number("rope_theta").value_or(theta);
    p.rotary_dim = head_dim;
    const auto share = dict.find("partial_rotary_factor") ? dict.number("partial_rotary_factor") : top.number("partial_rotary_factor");
    if (share && !(*share > 0 && *share <= 1))
        fail("{}: 'partial_rotary_factor' should be above 0 and at most 1, but it is {:g}", dict.where(), *share);
    if (p.type == RopeType::standard) return p;  // the default type of these families rotates the whole head
    if (p.type == RopeType::proportional) {
        p.rotated_share = share.value_or(1);
        p.factor = dict.number("factor").value_or(1);
        return p;
    }
    p.rotary_dim = static_cast<int>(head_dim * share.value_or(1));
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

RopeParams rope_of_config(const ConfigReader& config, LayerKind kind, int head_dim) {
    const double theta = config.number("rope_theta").value_or(10000);
    auto dict = config.object("rope_scaling");
    if (!dict) dict = config.object("rope_parameters");
    if (dict && (dict->stated("full_attention") || dict->stated("sliding_attention"))) {
        const std::string_view key = kind == LayerKind::full ? "full_attention" : "sliding_attention";
        const auto entry = dict->object(key);
        if (!entry) dict->missing(key);
        return rope_of_dict(*entry, config, theta, head_dim);
    }
    if (dict) return rope_of_dict(*dict, config, theta, head_dim);
    RopeParams p;
    p.theta = theta;
    p.rotary_dim = head_dim;
    return p;
}

RopeParams rope_of_metadata(const GgufKeys& keys, const Draft& draft, double theta, bool scaling) {
    RopeParams p;
    p.theta = theta;
    const int head_dim = draft.spec.layers.front().attention.head_dim;
    p.rotary_dim = keys.count("rope.dimension_count", {2, head_dim}).value_or(head_dim);
    if (!scaling) return p;
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
    for (std::size_t i = 0; i < spec.layers.size(); ++i) {
        AttentionSpec& attention = spec.layers[i].attention;
        const bool slides = kinds[i] == LayerKind::sliding;
        attention.window = slides ? window : 0;
        attention.kv_layer = static_cast<int>(i);
        attention.scale = static_cast<float>(scale);
    }
    // One rope a kind: resolved once, not once a layer.
    int rope_of_kind[2] = {-1, -1};
    for (std::size_t i = 0; i < spec.layers.size(); ++i) {
        int& index = rope_of_kind[static_cast<std::size_t>(kinds[i])];
        if (index < 0) index = add_rope(spec.ropes, resolve_rope(kinds[i] == LayerKind::sliding ? sliding : full, where));
        spec.layers[i].attention.rope = index;
    }
}

void set_layers(Draft& draft, const std::vector<LayerKind>& kinds, int window, const RopeParams& rope) {
    set_layers(draft, kinds, window, rope, rope, 1 / std::sqrt(static_cast<double>(draft.spec.layers.front().attention.head_dim)));
}

}  // namespace forge
