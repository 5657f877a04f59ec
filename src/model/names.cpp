#include "model/names.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace forge {
namespace {

bool starts_with_any(std::string_view text, std::initializer_list<std::string_view> parts) {
    return std::any_of(parts.begin(), parts.end(), [&](std::string_view p) { return text.starts_with(p); });
}

}  // namespace

Names::Names(const ModelFile& file) : gguf_(file.format == ModelFormat::gguf) {
    if (gguf_) return;
    // The longest first: "model.language_model." also starts with "model.".
    constexpr std::array<std::string_view, 4> prefixes{"model.language_model.", "language_model.model.", "model.", ""};
    for (std::string_view prefix : prefixes) {
        if (!file.find(std::string(prefix) + "embed_tokens.weight")) continue;
        prefix_ = prefix;
        break;
    }
    constexpr std::string_view nested = "language_model.lm_head.weight";
    if (!file.find(head_) && file.find(nested)) head_ = nested;
}

std::string Names::embed() const { return gguf_ ? "token_embd.weight" : prefix_ + "embed_tokens.weight"; }
std::string Names::final_norm() const { return gguf_ ? "output_norm.weight" : prefix_ + "norm.weight"; }
std::string Names::head() const { return gguf_ ? "output.weight" : head_; }

std::string Names::top(std::string_view hf, std::string_view gguf) const {
    return gguf_ ? std::string(gguf) : prefix_ + std::string(hf);
}

std::string Names::layer(std::size_t index, std::string_view hf, std::string_view gguf) const {
    return gguf_ ? fmt::format("blk.{}.{}", index, gguf) : fmt::format("{}layers.{}.{}", prefix_, index, hf);
}

bool is_ignored_tensor(std::string_view name) {
    if (name.ends_with(".rotary_emb.inv_freq") || name.ends_with(".input_scale")) return true;
    if (name.starts_with("model.")) name.remove_prefix(6);
    return starts_with_any(name, {"vision_tower.", "vision_model.", "visual.", "multi_modal_projector.", "embed_vision.",
                                  "vision_embedder.", "audio_tower.", "embed_audio.", "mtp."});
}

}  // namespace forge
