#include "family.h"

#include <algorithm>

#include "base/error.h"

namespace forge {
namespace {

using SpellingsOf = std::vector<Spelling> Family::*;

const Family& find_family(SpellingsOf spellings, const std::string& name, const std::string& where,
                          std::string_view what, Spelling& spelling) {
    std::string known;
    for (const Family& family : families()) {
        for (const Spelling& s : family.*spellings) {
            if (s.name == name) {
                spelling = s;
                return family;
            }
            known += (known.empty() ? "" : ", ") + std::string(s.name);
        }
    }
    fail(ErrorKind::unsupported, "{}: {} '{}' is not implemented; Forge knows {}", where, what, name, known);
}

}  // namespace

bool Family::has(Role role) const { return row(role) != nullptr; }

const TensorRow* Family::row(Role role) const {
    const auto it = std::find_if(tensors.begin(), tensors.end(), [&](const TensorRow& r) { return r.role == role; });
    return it == tensors.end() ? nullptr : &*it;
}

std::span<const Family> families() {
    static const std::vector<Family> all{llama_family(), mistral_family(), qwen2_family(), qwen3_family(), gemma3_family(),
                                         mixtral_family(), qwen3_moe_family(), qwen3_next_family(), qwen35_family(),
                                         qwen35_moe_family(), gemma4_family(), gemma4_unified_family()};
    return all;
}

const Family& family_of_model_type(const std::string& model_type, const std::string& where, Spelling& spelling) {
    return find_family(&Family::model_types, model_type, where, "model_type", spelling);
}

const Family& family_of_gguf(const std::string& arch, const std::string& where, Spelling& spelling) {
    return find_family(&Family::gguf_archs, arch, where, "general.architecture", spelling);
}

std::int64_t extent(Extent what, const ModelSpec& spec, const LayerSpec& layer) {
    const AttentionSpec& a = layer.attention;
    const DeltaSpec& d = layer.delta;
    const MoeSpec& moe = layer.feed_forward.moe;
    switch (what) {
        case Extent::one: return 1;
        case Extent::hidden: return spec.hidden;
        case Extent::q_rows: return std::int64_t{a.n_heads} * a.head_dim * (a.gated ? 2 : 1);
        case Extent::q_width: return std::int64_t{a.n_heads} * a.head_dim;
        case Extent::kv_width: return std::int64_t{a.n_kv_heads} * a.head_dim;
        case Extent::head_dim: return a.head_dim;
        case Extent::ffn_width: return layer.feed_forward.width;
        case Extent::conv_channels: return d.conv_channels();
        case Extent::conv_kernel: return d.conv_kernel;
        case Extent::delta_value: return std::int64_t{d.n_v_heads} * d.v_dim;
        case Extent::delta_heads: return d.n_v_heads;
        case Extent::delta_v_dim: return d.v_dim;
        case Extent::experts: return moe.experts;
        case Extent::expert_width: return moe.width;
        case Extent::shared_width: return moe.shared_width;
        case Extent::ple_width: return spec.ple_width;
    }
    return 0;
}

bool applies(When when, const ModelSpec& spec, std::size_t index) {
    const LayerSpec& layer = spec.layers[index];
    const bool attention = layer.mixer == MixerKind::attention;
    const bool own = attention && layer.attention.kv_layer == static_cast<int>(index);
    switch (when) {
        case When::always: return true;
        case When::attention: return attention;
        case When::own_keys: return own;
        case When::own_values: return own && !layer.attention.v_from_k;
        case When::delta: return !attention;
        case When::dense: return layer.feed_forward.width > 0;
        case When::experts: return layer.feed_forward.moe.experts > 0;
        case When::shared_expert: return layer.feed_forward.moe.shared_width > 0;
        case When::per_layer: return spec.ple_width > 0;
    }
    return false;
}

}  // namespace forge
