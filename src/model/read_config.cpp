// config.json -> the descriptor's numbers.
#include <filesystem>

#include "base/error.h"
#include "formats/forge_model.h"
#include "read_spec.h"

namespace forge {
namespace {

std::string config_name(const ModelFile& file) { return file.path + ": config.json"; }

// What a key that the config leaves out is, in order: the tensor that decides
// it, the class default, an error.
int known(const ConfigReader& config, std::string_view key, std::optional<int> from_tensor, std::optional<int> absent) {
    if (from_tensor) return *from_tensor;
    if (absent) return *absent;
    config.missing(key);
}

// Rows (or length) of a tensor of layer 0, when the file has it and the number is usable.
std::optional<int> rows_of(const Draft& draft, Role role, Range range, int divisor = 1) {
    const TensorRow* row = draft.family->row(role);
    if (!row) return std::nullopt;
    const Tensor* tensor = draft.file->find(draft.names.layer(0, row->hf, row->gguf));
    if (!tensor || tensor->shape.empty()) return std::nullopt;
    const std::int64_t rows = tensor->shape.front();
    if (rows % divisor != 0 || rows / divisor < range.low || rows / divisor > range.high) return std::nullopt;
    return static_cast<int>(rows / divisor);
}

void read_dimensions(const ConfigReader& config, Draft& draft) {
    const ConfigDefaults& absent = draft.family->defaults;
    ModelSpec& spec = draft.spec;
    const auto count = [&](std::string_view key, Range range, std::optional<int> from_tensor, std::optional<int> value) {
        const auto stated = config.count(key, range);
        return stated ? *stated : known(config, key, from_tensor, value);
    };
    spec.hidden = count("hidden_size", width_range, std::nullopt, absent.hidden);
    const int layers = count("num_hidden_layers", layer_range, std::nullopt, absent.layers);
    AttentionSpec attention;
    attention.n_heads = count("num_attention_heads", head_range, std::nullopt, absent.heads);
    attention.head_dim = count("head_dim", head_dim_range, rows_of(draft, Role::attn_q_norm, head_dim_range),
                               absent.head_dim ? absent.head_dim : spec.hidden / attention.n_heads);
    // Null means as many as query heads, absent the class default.
    const bool as_heads = config.stated("num_key_value_heads") || !absent.kv_heads;
    attention.n_kv_heads = count("num_key_value_heads", head_range, rows_of(draft, Role::attn_k, head_range, attention.head_dim),
                                 as_heads ? attention.n_heads : *absent.kv_heads);
    FeedForwardSpec feed_forward;
    feed_forward.width = count("intermediate_size", width_range, rows_of(draft, Role::ffn_gate, width_range), absent.width);
    feed_forward.activation = activation_named(config.text(absent.activation_key).value_or(std::string(absent.activation)),
                                               fmt::format("{}: '{}'", config.where(), absent.activation_key));
    spec.context_length = count("max_position_embeddings", length_range, std::nullopt, absent.context);
    const Tensor* embed = draft.file->find(draft.names.embed());
    spec.vocab = count("vocab_size", vocab_range, std::nullopt,
                       embed && embed->shape.size() == 2 && embed->shape[0] >= 1 && embed->shape[0] <= vocab_range.high
                           ? std::optional<int>(static_cast<int>(embed->shape[0])) : absent.vocab);
    draft.attention_bias = config.boolean("attention_bias").value_or(false);
    draft.mlp_bias = config.boolean("mlp_bias").value_or(false);
    if (attention.head_dim % 2 != 0)
        fail("{}: 'head_dim' is {}, but rotary embedding needs an even number", config.where(), attention.head_dim);
    LayerSpec layer;
    layer.attention = attention;
    layer.feed_forward = feed_forward;
    spec.layers.assign(static_cast<std::size_t>(layers), layer);
}

void refuse_keys(const ConfigReader& config, const std::vector<RefusedKey>& keys) {
    for (const RefusedKey& refused : keys) {
        const ConfigReader::Json* value = config.find(refused.key);
        if (!value || *value == false || *value == 0) {
            if (!value || refused.accepted != "true") continue;  // an accepted true makes false the odd one
        } else if (!refused.accepted.empty() && value->dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) == refused.accepted) {
            continue;
        }
        config.refuse(refused.key, refused.why);
    }
}

void read_stop_ids(const ModelFile& file, const ConfigReader& top, const ConfigReader& text, Draft& draft) {
    const auto add = [&](const ConfigReader::Json* value, const std::string& where) {
        if (!value) return;
        std::vector<std::int64_t> ids;
        const auto append = [&](const ConfigReader::Json& id) {
            if (!id.is_number_integer()) fail("{}: 'eos_token_id' should be a token id or a list of them", where);
            ids.push_back(id.is_number_unsigned() && id.get<std::uint64_t>() > static_cast<std::uint64_t>(vocab_range.high) ? -1 : id.get<std::int64_t>());
        };
        if (value->is_array()) {
            for (const auto& id : *value) append(id);
        } else {
            append(*value);
        }
        add_stop_ids(draft.spec, ids);
    };
    if (!file.generation_config.is_null()) {
        const ConfigReader generation(file.generation_config, file.path + ": generation_config.json");
        add(generation.find("eos_token_id"), generation.where());
    }
    add(top.find("eos_token_id"), top.where());
    if (&top != &text) add(text.find("eos_token_id"), text.where());
    if (draft.spec.stop_ids.empty())
        for (const std::int32_t id : draft.family->defaults.stop_ids) add_stop_ids(draft.spec, std::vector<std::int64_t>{id});
}

std::string folder_name(const ModelFile& file) {
    if (file.packed) {  // the folder that it was made from
        const auto& model = file.packed->manifest().model;
        const auto name = model.find("name");
        return name != model.end() && name->is_string() ? name->get<std::string>() : "";
    }
    std::filesystem::path path(file.path);
    if (path.has_extension() && path.extension() == ".safetensors") path = path.parent_path();
    if (!path.has_filename()) path = path.parent_path();
    return path.filename().string();
}

}  // namespace

Draft read_config(const ModelFile& file) {
    const ConfigReader top(file.config, config_name(file));
    const auto model_type = top.text("model_type");
    if (!model_type) top.missing("model_type");
    Draft draft;
    draft.file = &file;
    draft.family = &family_of_model_type(*model_type, top.where(), draft.spelling);
    draft.names = Names(file);
    draft.spec.architecture = draft.family->name;
    draft.spec.name = folder_name(file);
    // A wrapper may keep its text model's keys in text_config or leave them all out.
    static const ConfigReader::Json empty = ConfigReader::Json::object();
    std::optional<ConfigReader> nested;
    if (draft.spelling.wrapper) {
        nested = top.object("text_config");
        if (!nested) nested.emplace(empty, top.where() + " text_config");
    }
    const ConfigReader& config = nested ? *nested : top;

    refuse_keys(top, draft.family->refused_config);
    if (nested) refuse_keys(config, draft.family->refused_config);
    read_dimensions(config, draft);
    draft.norm = draft.family->hf_norm;
    draft.family->layers_from_config(config, draft);
    finish_dimensions(draft, config.number("rms_norm_eps").value_or(draft.family->defaults.eps));
    // The level that owns the head first. mlx-lm takes an absent key for true.
    auto tied = top.boolean("tie_word_embeddings");
    if (!tied) tied = config.boolean("tie_word_embeddings");
    draft.tied = tied.value_or(file.format == ModelFormat::mlx || draft.family->defaults.tied);
    read_stop_ids(file, top, config, draft);
    return draft;
}

}  // namespace forge
