// GGUF metadata -> the descriptor's numbers.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "read_spec.h"

namespace forge {

std::optional<int> GgufKeys::count(std::string_view key, Range range) const {
    if (!has(key)) return std::nullopt;
    const std::int64_t value = meta_.integer(name(key));
    if (value < range.low || value > range.high)
        fail("{} should be a number from {} to {}, but it is {}", where(key), range.low, range.high, value);
    return static_cast<int>(value);
}

int GgufKeys::required_count(std::string_view key, Range range) const {
    const auto value = count(key, range);
    if (!value) fail("{}: metadata key '{}' is missing", meta_.source, name(key));
    return *value;
}

std::optional<double> GgufKeys::number(std::string_view key) const {
    if (!has(key)) return std::nullopt;
    const double value = meta_.number(name(key), 0);
    if (!std::isfinite(value)) fail("{} is not a finite number", where(key));
    return value;
}

std::vector<int> GgufKeys::counts(std::string_view key, std::size_t layers, Range range, int absent) const {
    std::vector<int> out;
    for (const std::int64_t value : meta_.integers(name(key), layers, absent)) {
        if (value < range.low || value > range.high)
            fail("{} should hold numbers from {} to {}, but it holds {}", where(key), range.low, range.high, value);
        out.push_back(static_cast<int>(value));
    }
    return out;
}

void GgufKeys::refuse(std::string_view key, std::string_view why) const {
    const MetaValue* value = meta_.find(name(key));
    std::string shown = "set";
    if (value) {
        if (const auto* text = std::get_if<std::string>(value)) shown = "'" + *text + "'";
        if (const auto* flag = std::get_if<bool>(value)) shown = *flag ? "true" : "false";
        if (const auto* number = std::get_if<double>(value)) shown = fmt::format("{:g}", *number);
        if (const auto* number = std::get_if<std::int64_t>(value)) shown = fmt::format("{}", *number);
        if (const auto* number = std::get_if<std::uint64_t>(value)) shown = fmt::format("{}", *number);
    }
    fail(ErrorKind::unsupported, "{} is {}: {}", where(key), shown, why);
}

namespace {

void refuse_keys(const GgufKeys& keys, const std::vector<RefusedKey>& refused) {
    for (const RefusedKey& r : refused) {
        const MetaValue* value = keys.meta().find(keys.name(r.key));
        if (!value) continue;
        if (const auto* flag = std::get_if<bool>(value)) {
            if (*flag == (r.accepted == "true")) continue;
        } else if (std::holds_alternative<std::int64_t>(*value) || std::holds_alternative<std::uint64_t>(*value) ||
                   std::holds_alternative<double>(*value)) {
            if (keys.meta().number(keys.name(r.key), 0) == 0) continue;
        }
        keys.refuse(r.key, r.why);
    }
}

void read_dimensions(const GgufKeys& keys, Draft& draft) {
    ModelSpec& spec = draft.spec;
    spec.hidden = keys.required_count("embedding_length", width_range);
    // Blocks that predict further tokens are counted too, and come last.
    const auto blocks = static_cast<std::size_t>(keys.required_count("block_count", layer_range));
    draft.prediction_layers = keys.count("nextn_predict_layers", {0, static_cast<std::int64_t>(blocks) - 1}).value_or(0);
    const std::size_t layers = blocks - static_cast<std::size_t>(draft.prediction_layers);
    spec.context_length = keys.required_count("context_length", length_range);
    const auto required = [&](std::string_view key, Range range) {
        if (!keys.has(key)) fail("{}: metadata key '{}' is missing", keys.meta().source, keys.name(key));
        return keys.counts(key, blocks, range, 0);
    };
    const auto heads = required("attention.head_count", head_range);
    // Models whose layers all have experts may state no width of a dense MLP.
    const bool experts = keys.count("expert_count", expert_range).value_or(0) > 0;
    const auto widths = experts ? keys.counts("feed_forward_length", blocks, {0, width_range.high}, 0) : required("feed_forward_length", width_range);
    const auto kv_heads = keys.has("attention.head_count_kv") ? keys.counts("attention.head_count_kv", blocks, head_range, 0) : heads;
    const auto head_dim = keys.count("attention.key_length", head_dim_range);
    if (const auto value_length = keys.count("attention.value_length", head_dim_range);
        value_length && value_length != head_dim.value_or(spec.hidden / heads.front()))
        keys.refuse("attention.value_length", "values of another length than keys are not implemented");
    const Activation activation = activation_named(std::string(draft.family->defaults.activation), draft.file->path);
    for (std::size_t i = 0; i < layers; ++i) {
        LayerSpec layer;
        layer.attention.n_heads = heads[i];
        layer.attention.n_kv_heads = kv_heads[i];
        layer.attention.head_dim = head_dim.value_or(spec.hidden / heads.front());
        layer.feed_forward.width = widths[i];
        layer.feed_forward.activation = activation;
        spec.layers.push_back(layer);
    }
    const int resulting = spec.layers.front().attention.head_dim;
    if (resulting < head_dim_range.low || resulting > head_dim_range.high || resulting % 2 != 0)
        fail("{}: heads of {} dimensions cannot be rotated in pairs; an even number from {} to {} is needed",
             keys.meta().source, resulting, head_dim_range.low, head_dim_range.high);
}

// Rows of the embedding decide; the vocab_size key may differ.
int vocab_of(const GgufKeys& keys, const Draft& draft) {
    const Tensor* embed = draft.file->find(draft.names.embed());
    if (embed && embed->shape.size() == 2 && embed->shape[0] >= 1 && embed->shape[0] <= vocab_range.high)
        return static_cast<int>(embed->shape[0]);
    if (const auto stated = keys.count("vocab_size", vocab_range)) return *stated;
    if (const auto* tokens = keys.meta().strings("tokenizer.ggml.tokens"); tokens && !tokens->empty() && tokens->size() <= static_cast<std::size_t>(vocab_range.high))
        return static_cast<int>(tokens->size());
    fail("{}: neither the tensor {} nor {} says how large the vocabulary is", keys.meta().source, draft.names.embed(), keys.name("vocab_size"));
}

void read_stop_ids(const Metadata& meta, ModelSpec& spec) {
    constexpr std::string_view eos = "tokenizer.ggml.eos_token_id";
    std::vector<std::int64_t> ids;
    if (!meta.has(eos)) {
        // What the two tokenizer kinds mean by an absent key.
        const std::string kind = meta.string("tokenizer.ggml.model", "");
        if (kind == "llama") ids.push_back(2);
        if (kind == "gpt2") ids.push_back(11);
    }
    for (const std::string_view key : {eos, std::string_view("tokenizer.ggml.eot_token_id"), std::string_view("tokenizer.ggml.eom_token_id")})
        if (meta.has(key)) ids.push_back(meta.integer(key));
    add_stop_ids(spec, ids);
}

}  // namespace

Draft read_metadata(const ModelFile& file) {
    const Metadata& meta = file.metadata;
    if (const std::string type = meta.string("general.type", "model"); type != "model")
        fail(ErrorKind::unsupported, "{}: general.type is '{}': this file is no text model and cannot be run by itself", file.path, type);
    const std::string arch = meta.string("general.architecture");
    Draft draft;
    draft.file = &file;
    draft.family = &family_of_gguf(arch, file.path, draft.spelling);
    draft.names = Names(file);
    draft.spec.architecture = draft.family->name;
    draft.spec.name = meta.string("general.name", "");
    const GgufKeys keys(meta, arch);
    refuse_keys(keys, draft.family->refused_metadata);
    read_dimensions(keys, draft);
    draft.spec.vocab = vocab_of(keys, draft);
    const auto eps = keys.number("attention.layer_norm_rms_epsilon");
    if (!eps) fail("{}: metadata key '{}' is missing", meta.source, keys.name("attention.layer_norm_rms_epsilon"));
    draft.norm = draft.family->gguf_norm;
    draft.family->layers_from_metadata(keys, draft);
    finish_dimensions(draft, *eps);
    if (draft.spelling.interleaved_qk) {
        const int head_dim = draft.spec.layers.front().attention.head_dim;
        draft.unpermute = keys.count("rope.dimension_count", {2, head_dim}).value_or(head_dim);
    }
    draft.tied = !file.find(draft.names.head());
    read_stop_ids(meta, draft.spec);
    return draft;
}

}  // namespace forge
