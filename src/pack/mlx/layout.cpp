#include "layout.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <optional>
#include <unordered_map>

#include "base/error.h"
#include "model/names.h"

namespace forge::mlx {
namespace {

constexpr std::string_view weight = ".weight";

bool is_hybrid(const ModelSpec& spec) {
    return std::any_of(spec.layers.begin(), spec.layers.end(), [](const LayerSpec& l) { return l.mixer == MixerKind::gated_delta; });
}

// "layers.12.rest" -> 12 and "rest".
std::optional<std::pair<std::size_t, std::string_view>> split_layer(std::string_view name) {
    constexpr std::string_view start = "layers.";
    if (!name.starts_with(start)) return std::nullopt;
    name.remove_prefix(start.size());
    std::size_t layer = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), layer);
    if (error != std::errc() || end == name.data() + name.size() || *end != '.') return std::nullopt;
    return std::pair(layer, name.substr(static_cast<std::size_t>(end - name.data()) + 1));
}

// An expert's own tensor: "mlp.experts.3.up_proj.weight" -> where the stack of all lies, and 3.
struct ExpertName { std::string stack; std::int64_t expert; };

std::optional<ExpertName> expert_of(std::string_view rest) {
    for (const std::string_view block : {"mlp.", "block_sparse_moe."}) {
        const std::string start = std::string(block) + "experts.";
        if (!rest.starts_with(start)) continue;
        std::string_view tail = rest.substr(start.size());
        std::int64_t expert = 0;
        const auto [end, error] = std::from_chars(tail.data(), tail.data() + tail.size(), expert);
        if (error != std::errc() || end == tail.data()) return std::nullopt;
        tail.remove_prefix(static_cast<std::size_t>(end - tail.data()));
        constexpr std::array<std::pair<std::string_view, std::string_view>, 6> parts{{{".gate_proj.weight", "gate_proj"}, {".up_proj.weight", "up_proj"},
            {".down_proj.weight", "down_proj"}, {".w1.weight", "gate_proj"}, {".w3.weight", "up_proj"}, {".w2.weight", "down_proj"}}};
        for (const auto& [spelling, part] : parts)
            if (tail == spelling) return ExpertName{std::string(block) + "switch_mlp." + std::string(part) + std::string(weight), expert};
    }
    return std::nullopt;
}

class Builder {
  public:
    Builder(const ModelFile& file, const ModelSpec& spec) : file_(file), spec_(spec), names_(file) {
        const std::string model_type = file.config.value("model_type", "");
        out_.nested = spec.architecture == "qwen3_5" || spec.architecture == "qwen3_5_moe" || model_type == "gemma3" || model_type == "gemma4" ||
                      model_type == "gemma4_unified";
        shifted_ = is_hybrid(spec) && norms_are_raw();
    }

    Layout build() {
        out_.tied = is_tied();
        for (const Tensor& tensor : file_.tensors) {
            if (is_ignored_tensor(tensor.name)) continue;
            if (tensor.name == names_.head()) {
                if (!out_.tied) add(std::string(out_.nested ? "language_model." : "") + "lm_head.weight", tensor.shape, {{&tensor, 0, tensor.rows()}});
                continue;
            }
            if (!tensor.name.starts_with(names_.prefix())) continue;
            inner(tensor, std::string_view(tensor.name).substr(names_.prefix().size()));
        }
        check_stacks();
        return std::move(out_);
    }

  private:
    // MLX's own convolution has its single input channel last, and its norms hold 1 + w then.
    bool norms_are_raw() const {
        return std::none_of(file_.tensors.begin(), file_.tensors.end(), [](const Tensor& t) {
            return t.name.ends_with("linear_attn.conv1d.weight") && t.shape.size() == 3 && t.shape[2] == 1;
        });
    }

    // Without a head, or with one that only repeats the embedding.
    bool is_tied() const {
        const Tensor* head = file_.find(names_.head());
        if (!head) return true;
        const Tensor& embed = file_.get(names_.embed());
        return head->dtype == embed.dtype && head->data.size() == embed.data.size() &&
               std::memcmp(head->data.data(), embed.data.data(), embed.data.size()) == 0;
    }

    std::string outer(std::string_view inner) const { return (out_.nested ? "language_model.model." : "model.") + std::string(inner); }

    OutTensor& add(std::string name, std::vector<std::int64_t> shape, std::vector<RowSpan> rows) {
        OutTensor tensor;
        tensor.name = std::move(name);
        tensor.shape = std::move(shape);
        tensor.rows = std::move(rows);
        tensor.module = tensor.shape.size() >= 2 && tensor.name.ends_with(weight) && !tensor.name.ends_with("conv1d.weight");
        out_.tensors.push_back(std::move(tensor));
        return out_.tensors.back();
    }

    void inner(const Tensor& tensor, std::string_view name) {
        const auto split = split_layer(name);
        if (split && split->first < spec_.layers.size()) {
            const auto& [layer, rest] = *split;
            const std::string stem(name.substr(0, name.size() - rest.size()));
            if (unused(spec_.layers[layer], layer, rest)) return;
            const auto expert = expert_of(rest);
            if (expert && expert->expert >= 0 && expert->expert < spec_.layers[layer].feed_forward.moe.experts) return stack(tensor, outer(stem + expert->stack), *expert);
            if (fused(tensor, stem, rest)) return;
        }
        std::vector<std::int64_t> shape = tensor.shape;
        if (name.ends_with("conv1d.weight") && shape.size() == 3 && shape[1] == 1) std::swap(shape[1], shape[2]);
        OutTensor& out = add(outer(name), std::move(shape), {{&tensor, 0, tensor.rows()}});
        const bool norm = name == "norm.weight" || name.ends_with(".input_layernorm.weight") || name.ends_with(".post_attention_layernorm.weight") ||
                          name.ends_with(".q_norm.weight") || name.ends_with(".k_norm.weight");
        out.plus_one = shifted_ && norm && tensor.shape.size() == 1;
        out.keep_type = out_.nested && name.ends_with("A_log");
    }

    // Keys and values of layers that read another's cache.
    static bool unused(const LayerSpec& layer, std::size_t index, std::string_view rest) {
        return layer.mixer == MixerKind::attention && layer.attention.kv_layer != static_cast<int>(index) &&
               (rest.starts_with("self_attn.k_proj") || rest.starts_with("self_attn.v_proj") || rest.starts_with("self_attn.k_norm"));
    }

    // All experts in one tensor, gate and up together.
    bool fused(const Tensor& tensor, const std::string& stem, std::string_view rest) {
        const bool direct = rest.starts_with("experts.");  // Gemma 4
        const std::string block = direct ? "experts.switch_glu." : "mlp.switch_mlp.";
        if (!direct && !rest.starts_with("mlp.experts.")) return false;
        if (tensor.shape.size() != 3) return false;
        const std::int64_t experts = tensor.shape[0], rows = tensor.shape[1], cols = tensor.shape[2];
        const auto part = [&](std::string_view name, std::int64_t first, std::int64_t count) {
            std::vector<RowSpan> spans;
            for (std::int64_t e = 0; e < experts; ++e) spans.push_back({&tensor, e * rows + first, count});
            add(outer(stem + block + std::string(name) + ".weight"), {experts, count, cols}, std::move(spans)).experts = true;
        };
        if (rest.ends_with("experts.gate_up_proj")) {
            part("gate_proj", 0, rows / 2);
            part("up_proj", rows / 2, rows / 2);
            return true;
        }
        if (!rest.ends_with("experts.down_proj")) return false;
        part("down_proj", 0, rows);
        return true;
    }

    void stack(const Tensor& tensor, std::string name, const ExpertName& expert) {
        const auto known = stacks_.find(name);
        std::size_t index;
        if (known == stacks_.end()) {
            index = out_.tensors.size();
            stacks_.emplace(name, index);
            add(std::move(name), {0, tensor.rows(), tensor.cols()}, {}).experts = true;
        } else {
            index = known->second;
        }
        OutTensor& out = out_.tensors[index];
        out.rows.resize(std::max<std::size_t>(out.rows.size(), static_cast<std::size_t>(expert.expert) + 1), RowSpan{});
        out.rows[static_cast<std::size_t>(expert.expert)] = {&tensor, 0, tensor.rows()};
        out.shape[0] = static_cast<std::int64_t>(out.rows.size());
    }

    void check_stacks() const {
        for (const auto& [name, index] : stacks_)
            for (const RowSpan& span : out_.tensors[index].rows)
                if (!span.tensor) fail("{}: experts are missing from {}", file_.path, name);
    }

    const ModelFile& file_;
    const ModelSpec& spec_;
    const Names names_;
    Layout out_;
    bool shifted_ = false;
    std::unordered_map<std::string, std::size_t> stacks_;
};

}  // namespace

std::string OutTensor::path() const { return name.ends_with(weight) ? name.substr(0, name.size() - weight.size()) : name; }

Layout layout_of(const ModelFile& file, const ModelSpec& spec) { return Builder(file, spec).build(); }

}  // namespace forge::mlx
