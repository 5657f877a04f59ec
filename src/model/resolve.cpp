#include "resolve.h"

#include <algorithm>
#include <unordered_set>

#include "base/error.h"
#include "tensor_data.h"

namespace forge {
namespace {

std::string shape_text(const std::vector<std::int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

// Leading ones do not change what a shape means (a [1, 576] norm is a vector of 576).
std::vector<std::int64_t> without_leading_ones(std::vector<std::int64_t> shape) {
    const auto first = std::find_if(shape.begin(), shape.end(), [](std::int64_t n) { return n != 1; });
    shape.erase(shape.begin(), first);
    return shape;
}

void check_shape(const Tensor& tensor, const std::vector<std::int64_t>& wanted, const ModelFile& file, std::string_view role) {
    if (without_leading_ones(tensor.shape) == without_leading_ones(wanted)) return;
    fail("{}: tensor {} should have the shape {} ({}, from the model's dimensions), but it has {}",
         tensor.file ? tensor.file->path() : file.path, tensor.name, shape_text(wanted), role, shape_text(tensor.shape));
}

class Resolver {
  public:
    explicit Resolver(Draft& draft) : draft_(draft), spec_(draft.spec), file_(*draft.file) {}

    Resolution run() {
        if (file_.tensors.empty()) {
            count_from_table();
            return {};
        }
        spec_.embed = whole(draft_.names.embed(), "embedding", spec_.vocab, spec_.hidden);
        for (std::size_t i = 0; i < spec_.layers.size(); ++i) layer(i);
        spec_.final_norm = whole(draft_.names.final_norm(), "final norm", 1, spec_.hidden, true);
        // A head of its own is used even when the config says that it is tied.
        if (draft_.tied && !file_.find(draft_.names.head())) {
            spec_.head = spec_.embed;
        } else {
            spec_.head = whole(draft_.names.head(), "output head", spec_.vocab, spec_.hidden);
        }
        find_unused();
        for (const TensorUse& use : out_.uses) spec_.parameters += static_cast<std::uint64_t>(use.rows * use.cols);
        return std::move(out_);
    }

  private:
    // A tensor of the model itself; missing ones are collected.
    WeightId whole(const std::string& name, std::string_view what, std::int64_t rows, std::int64_t cols, bool vector = false) {
        const Tensor* tensor = file_.find(name);
        if (!tensor) {
            out_.missing.push_back(name);
            return -1;
        }
        check_shape(*tensor, vector ? std::vector<std::int64_t>{cols} : std::vector<std::int64_t>{rows, cols}, file_, what);
        TensorUse use;
        use.tensor = tensor;
        use.rows = rows;
        use.cols = cols;
        use.vector = vector;
        return add(std::move(use));
    }

    WeightId add(TensorUse use) {
        used_.insert(use.tensor->name);
        use.global_scale = scale_beside(*use.tensor);
        out_.uses.push_back(std::move(use));
        return static_cast<WeightId>(out_.uses.size()) - 1;
    }

    // NAME.scale beside NAME.weight multiplies the product.
    float scale_beside(const Tensor& tensor) {
        if (!draft_.names.gguf() || !tensor.name.ends_with(".weight")) return 1;
        const Tensor* scale = file_.find(tensor.name.substr(0, tensor.name.size() - 6) + "scale");
        if (!scale) return 1;
        used_.insert(scale->name);
        if (scale->elements() != 1)
            fail(ErrorKind::unsupported, "{}: tensor {} has {} scales; one for the whole matrix is implemented", file_.path, scale->name, scale->elements());
        return floats_of(*scale).front();
    }

    bool needed(Need need) const {
        return need == Need::required || (need == Need::with_attention_bias && draft_.attention_bias) ||
               (need == Need::with_mlp_bias && draft_.mlp_bias);
    }

    TensorUse use_of(const TensorRow& row, const LayerSpec& layer) const {
        TensorUse use;
        use.vector = !row.cols;
        const std::int64_t rows = extent(row.rows, spec_, layer);
        use.rows = use.vector ? 1 : rows;
        use.cols = use.vector ? rows : extent(*row.cols, spec_, layer);
        const bool rotated = row.role == Role::attn_q || row.role == Role::attn_k || row.role == Role::attn_q_bias || row.role == Role::attn_k_bias;
        if (rotated && draft_.unpermute > 0) {
            use.head_dim = layer.attention.head_dim;
            use.unpermute = draft_.unpermute;
        }
        return use;
    }

    void layer(std::size_t index) {
        LayerSpec& layer = spec_.layers[index];
        fused_parts(index, layer);
        for (const TensorRow& row : draft_.family->tensors) {
            WeightId& id = layer.weights[static_cast<std::size_t>(row.role)];
            const std::string name = draft_.names.layer(index, row.hf, row.gguf);
            const Tensor* tensor = file_.find(name);
            if (!tensor) {
                if (id < 0 && needed(row.need)) out_.missing.push_back(name);
                continue;
            }
            TensorUse use = use_of(row, layer);
            use.tensor = tensor;
            check_shape(*tensor, use.vector ? std::vector<std::int64_t>{use.cols} : std::vector<std::int64_t>{use.rows, use.cols}, file_, name_of(row.role));
            id = add(std::move(use));
        }
    }

    // Parts of fused tensors, where the parts' own tensors are not there.
    void fused_parts(std::size_t index, LayerSpec& layer) {
        for (const FusedRow& fused : draft_.family->fused) {
            if ((draft_.names.gguf() ? fused.gguf : fused.hf).empty()) continue;
            const Tensor* tensor = file_.find(draft_.names.layer(index, fused.hf, fused.gguf));
            if (!tensor) continue;
            std::vector<TensorUse> parts;
            std::int64_t length = 0;
            for (const Role role : fused.parts) {
                TensorUse use = use_of(*draft_.family->row(role), layer);
                use.tensor = tensor;
                use.first_row = length;
                length += use.vector ? use.cols : use.rows;
                parts.push_back(std::move(use));
            }
            const bool vector = parts.front().vector;
            check_shape(*tensor, vector ? std::vector<std::int64_t>{length} : std::vector<std::int64_t>{length, parts.front().cols}, file_, "fused q, k and v");
            for (std::size_t i = 0; i < parts.size(); ++i) {
                const TensorRow& row = *draft_.family->row(fused.parts[i]);
                if (file_.find(draft_.names.layer(index, row.hf, row.gguf))) continue;
                layer.weights[static_cast<std::size_t>(row.role)] = add(std::move(parts[i]));
            }
        }
    }

    void find_unused() {
        // rope_freqs was read with the metadata.
        const auto known = [&](const std::string& name) { return used_.contains(name) || name == "rope_freqs.weight" || is_ignored_tensor(name); };
        for (const Tensor& tensor : file_.tensors)
            if (!known(tensor.name)) out_.unused.push_back(tensor.name);
    }

    // A config alone: the required tensors' sizes.
    void count_from_table() {
        const auto embed = static_cast<std::uint64_t>(spec_.vocab) * static_cast<std::uint64_t>(spec_.hidden);
        spec_.parameters = embed * (draft_.tied ? 1 : 2) + static_cast<std::uint64_t>(spec_.hidden);
        for (const LayerSpec& layer : spec_.layers)
            for (const TensorRow& row : draft_.family->tensors)
                if (needed(row.need)) {
                    const TensorUse use = use_of(row, layer);
                    spec_.parameters += static_cast<std::uint64_t>(use.rows * use.cols);
                }
    }

    Draft& draft_;
    ModelSpec& spec_;
    const ModelFile& file_;
    Resolution out_;
    std::unordered_set<std::string> used_;
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

}  // namespace forge
