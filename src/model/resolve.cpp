#include "resolve.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <unordered_set>

#include "base/error.h"
#include "tensor_data.h"

namespace forge {
namespace {

using Shape = std::vector<std::int64_t>;

// Ones do not change what a shape means: a [1, 576] norm, a [channels, 1, 4] convolution.
Shape without_ones(Shape shape) {
    std::erase(shape, 1);
    return shape;
}

void check_shape(const Tensor& tensor, Shape wanted, const ModelFile& file, std::string_view role,
                 const std::optional<QuantisedTensor>& quantised) {
    if (quantised) wanted.back() = wanted.back() * quantised->format.bits / 32;  // words of codes
    if (without_ones(tensor.shape) == without_ones(wanted)) return;
    fail("{}: tensor {} should have the shape [{}] ({}, from the model's dimensions), but it has [{}]",
         tensor.file ? tensor.file->path() : file.path, tensor.name, fmt::join(wanted, ", "), role,
         fmt::join(tensor.shape, ", "));
}

bool is_expert(Role role) { return role == Role::expert_gate || role == Role::expert_up || role == Role::expert_down; }
bool is_rotated(Role role) {
    return role == Role::attn_q || role == Role::attn_k || role == Role::attn_q_bias || role == Role::attn_k_bias;
}

// "mlp.experts.{}.up_proj.weight" -> expert 3's name.
std::string numbered(std::string_view name, std::int64_t expert) {
    const std::size_t at = name.find("{}");
    if (at == std::string_view::npos) return std::string(name);
    return fmt::format("{}{}{}", name.substr(0, at), expert, name.substr(at + 2));
}

class Resolver {
  public:
    explicit Resolver(Draft& draft) : draft_(draft), spec_(draft.spec), file_(*draft.file), quantisation_(file_) {}

    Resolution run() {
        if (file_.tensors.empty()) {
            count_from_table();
            return {};
        }
        claim_scales();
        spec_.embed = whole(draft_.names.embed(), "embedding", {spec_.vocab, spec_.hidden});
        if (spec_.ple_width > 0) per_layer_embedding();
        for (std::size_t i = 0; i < spec_.layers.size(); ++i) layer(i);
        spec_.final_norm = whole(draft_.names.final_norm(), "final norm", {spec_.hidden});
        // A head of its own is used even when the config says that it is tied.
        spec_.head = draft_.tied && !file_.find(draft_.names.head())
                         ? spec_.embed
                         : whole(draft_.names.head(), "output head", {spec_.vocab, spec_.hidden});
        find_unused();
        for (const TensorUse& use : out_.uses) spec_.parameters += static_cast<std::uint64_t>(use.rows * use.cols);
        return std::move(out_);
    }

  private:
    // A tensor of the model itself, a vector or a matrix; missing ones are collected.
    WeightId whole(const std::string& name, std::string_view what, const Shape& shape) {
        const Tensor* tensor = file_.find(name);
        if (!tensor) {
            out_.missing.push_back(name);
            return -1;
        }
        TensorUse use;
        use.tensor = tensor;
        use.as_f32 = shape.size() == 1;
        if (!use.as_f32) use.quantised = quantisation_.of(*tensor, shape.back());
        check_shape(*tensor, shape, file_, what, use.quantised);
        use.rows = use.as_f32 ? 1 : shape[0];
        use.cols = shape.back();
        return add(std::move(use));
    }

    // Gemma 4: rows for every id, a strip of ple_width for every layer.
    void per_layer_embedding() {
        const auto strips = static_cast<std::int64_t>(spec_.layers.size()) * spec_.ple_width;
        spec_.ple_embed = whole(draft_.names.top("embed_tokens_per_layer.weight", "per_layer_token_embd.weight"),
                                "per-layer embedding", {spec_.vocab, strips});
        spec_.ple_proj = whole(draft_.names.top("per_layer_model_projection.weight", "per_layer_model_proj.weight"),
                               "projection to the per-layer inputs", {strips, spec_.hidden});
        spec_.ple_norm = whole(draft_.names.top("per_layer_projection_norm.weight", "per_layer_proj_norm.weight"),
                               "norm of the per-layer inputs", {spec_.ple_width});
    }

    WeightId add(TensorUse use, std::int64_t expert = 0) {
        used_.insert(use.tensor->name);
        use.global_scale = scale_beside(*use.tensor, expert);
        if (use.quantised) {
            for (const Tensor* plane : {use.quantised->scales, use.quantised->biases, use.quantised->global_scale})
                if (plane) used_.insert(plane->name);
            use.global_scale = use.quantised->scale_of(expert);
        }
        out_.uses.push_back(std::move(use));
        return static_cast<WeightId>(out_.uses.size()) - 1;
    }

    // Names that end in .scale and are roles of their own.
    void claim_scales() {
        for (std::size_t i = 0; i < spec_.layers.size(); ++i)
            for (const TensorRow& row : draft_.family->tensors)
                if (row.gguf.ends_with(".scale")) claimed_.insert(draft_.names.layer(i, row.hf, row.gguf));
    }

    // NAME.scale beside NAME.weight multiplies the product: one number, or one an expert.
    float scale_beside(const Tensor& tensor, std::int64_t expert) {
        if (!draft_.names.gguf() || !tensor.name.ends_with(".weight")) return 1;
        const Tensor* scale = file_.find(tensor.name.substr(0, tensor.name.size() - 6) + "scale");
        if (!scale || claimed_.contains(scale->name)) return 1;
        used_.insert(scale->name);
        const bool stacked = tensor.shape.size() == 3 && scale->elements() == tensor.shape[0];
        if (scale->elements() != 1 && !stacked)
            fail(ErrorKind::unsupported, "{}: tensor {} has {} scales; one for the whole matrix, or one an expert, is implemented",
                 file_.path, scale->name, scale->elements());
        return floats_of(*scale)[static_cast<std::size_t>(stacked ? expert : 0)];
    }

    bool needed(Need need) const {
        return need == Need::required || (need == Need::with_attention_bias && draft_.attention_bias) ||
               (need == Need::with_mlp_bias && draft_.mlp_bias);
    }

    struct Size {
        std::int64_t rows, cols;  // of one expert's matrix; a vector has `rows` elements and cols 1
        bool vector;
    };
    Size size_of_row(const TensorRow& row, const LayerSpec& layer) const {
        return {extent(row.rows, spec_, layer), row.cols ? extent(*row.cols, spec_, layer) : 1, !row.cols};
    }

    void layer(std::size_t index) {
        for (const TensorRow& row : draft_.family->tensors) {
            if (!applies(row.when, spec_, index)) {
                // A layer that reads another's cache may still have its own projections in the file.
                if (row.when == When::own_keys || row.when == When::own_values)
                    if (spec_.layers[index].mixer == MixerKind::attention) used_.insert(draft_.names.layer(index, row.hf, row.gguf));
                continue;
            }
            const Alternative own{row.hf, row.gguf, {row.role}};
            bool found = bind(index, own, row.role);
            for (const Alternative& place : draft_.family->alternatives) {
                if (found) break;
                if (std::find(place.parts.begin(), place.parts.end(), row.role) != place.parts.end()) found = bind(index, place, row.role);
            }
            if (!found && needed(row.need)) out_.missing.push_back(draft_.names.layer(index, numbered(row.hf, 0), numbered(row.gguf, 0)));
        }
    }

    // Binds one role of a layer to its part of `place`; false when the file does not have that.
    bool bind(std::size_t index, const Alternative& place, Role role) {
        LayerSpec& layer = spec_.layers[index];
        const std::string_view pattern = draft_.names.gguf() ? place.gguf : place.hf;
        if (pattern.empty() || !file_.find(draft_.names.layer(index, numbered(place.hf, 0), numbered(place.gguf, 0)))) return false;
        // Where this role's rows are among those of all parts, in one expert's matrix.
        std::int64_t total = 0, offset = 0;
        Size mine{};
        for (const Role part : place.parts) {
            const Size size = size_of_row(*draft_.family->row(part), layer);
            if (part == role) {
                mine = size;
                offset = total;
            }
            total += size.rows;
        }
        const bool experts = is_expert(role), stacked = experts && pattern.find("{}") == std::string_view::npos;
        const std::int64_t count = experts ? layer.feed_forward.moe.experts : 1;
        Shape shape{total};
        if (!mine.vector) shape.push_back(mine.cols);
        if (stacked) shape.insert(shape.begin(), count);
        for (std::int64_t e = 0; e < count; ++e) {
            const std::string name = draft_.names.layer(index, numbered(place.hf, e), numbered(place.gguf, e));
            const Tensor* tensor = file_.find(name);
            if (!tensor) {
                out_.missing.push_back(name);
                continue;
            }
            TensorUse use;
            use.tensor = tensor;
            use.as_f32 = mine.vector || role == Role::delta_conv;
            if (!use.as_f32) use.quantised = quantisation_.of(*tensor, mine.cols);
            check_shape(*tensor, shape, file_, name_of(role), use.quantised);
            use.first_row = offset + (stacked ? e * total : 0);
            use.rows = mine.vector ? 1 : mine.rows;
            use.cols = mine.vector ? mine.rows : mine.cols;
            if (place.by_key_head) {
                use.first_row = 0;
                use.row_map = grouped_delta_rows(role, layer.delta);
            } else if (is_rotated(role) && draft_.unpermute > 0) {
                use.row_map = interleaved_rows(mine.rows, layer.attention.head_dim, draft_.unpermute);
            }
            const WeightId id = add(std::move(use), e);
            if (e == 0) layer.weights[static_cast<std::size_t>(role)] = id;
        }
        return true;
    }

    // Layers of a GGUF beyond those that run predict further tokens.
    bool is_later_layer(const std::string& name) const {
        if (!draft_.names.gguf() || !name.starts_with("blk.")) return false;
        const char* digits = name.c_str() + 4;
        char* end = nullptr;
        const unsigned long long layer = std::strtoull(digits, &end, 10);
        return end != digits && *end == '.' && layer >= spec_.layers.size() &&
               layer < spec_.layers.size() + static_cast<std::size_t>(draft_.prediction_layers);
    }

    void find_unused() {
        // rope_freqs was read with the metadata.
        const auto known = [&](const std::string& name) {
            return used_.contains(name) || name == "rope_freqs.weight" || is_ignored_tensor(name) || is_later_layer(name);
        };
        for (const Tensor& tensor : file_.tensors)
            if (!known(tensor.name)) out_.unused.push_back(tensor.name);
    }

    // A config alone: the required tensors' sizes.
    void count_from_table() {
        const auto hidden = static_cast<std::uint64_t>(spec_.hidden), vocab = static_cast<std::uint64_t>(spec_.vocab);
        const auto strips = spec_.layers.size() * static_cast<std::uint64_t>(spec_.ple_width);
        spec_.parameters = vocab * hidden * (draft_.tied ? 1 : 2) + hidden;
        if (strips > 0) spec_.parameters += strips * (vocab + hidden) + static_cast<std::uint64_t>(spec_.ple_width);
        for (std::size_t i = 0; i < spec_.layers.size(); ++i) {
            for (const TensorRow& row : draft_.family->tensors) {
                if (!needed(row.need) || !applies(row.when, spec_, i)) continue;
                const Size size = size_of_row(row, spec_.layers[i]);
                const std::int64_t count = is_expert(row.role) ? spec_.layers[i].feed_forward.moe.experts : 1;
                spec_.parameters += static_cast<std::uint64_t>(size.rows * size.cols * count);
            }
        }
    }

    Draft& draft_;
    ModelSpec& spec_;
    const ModelFile& file_;
    MlxQuantisation quantisation_;
    Resolution out_;
    std::unordered_set<std::string> used_, claimed_;
};

}  // namespace

Resolution resolve_tensors(Draft& draft) { return Resolver(draft).run(); }

std::vector<std::int64_t> interleaved_rows(std::int64_t rows, int head_dim, int unpermute) {
    std::vector<std::int64_t> source(static_cast<std::size_t>(rows));
    const std::int64_t half = unpermute / 2;
    for (std::int64_t row = 0; row < rows; ++row) {
        const std::int64_t head = row / head_dim * head_dim, within = row % head_dim;
        const std::int64_t stored = within < unpermute ? 2 * (within % half) + within / half : within;
        source[static_cast<std::size_t>(row)] = head + stored;
    }
    return source;
}

std::vector<std::int64_t> grouped_delta_rows(Role role, const DeltaSpec& d) {
    const std::int64_t per_key = d.n_v_heads / d.n_k_heads;  // value heads of a key head
    const std::int64_t key = d.k_dim, value = per_key * d.v_dim;
    std::vector<std::int64_t> source;
    // `count` rows from `start` of every key head's group of `group` rows.
    const auto take = [&](std::int64_t group, std::int64_t start, std::int64_t count) {
        for (std::int64_t g = 0; g < d.n_k_heads; ++g)
            for (std::int64_t i = 0; i < count; ++i) source.push_back(g * group + start + i);
    };
    const std::int64_t qkvz = 2 * key + 2 * value, ba = 2 * per_key;
    if (role == Role::delta_qkv) {
        take(qkvz, 0, key);
        take(qkvz, key, key);
        take(qkvz, 2 * key, value);
    } else if (role == Role::delta_z) {
        take(qkvz, 2 * key + value, value);
    } else if (role == Role::delta_b) {
        take(ba, 0, per_key);
    } else if (role == Role::delta_a) {
        take(ba, per_key, per_key);
    }
    return source;
}

}  // namespace forge
