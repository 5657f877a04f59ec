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
    static const std::vector<Family> all{llama_family(), mistral_family(), qwen2_family(), qwen3_family(), gemma3_family()};
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
    switch (what) {
        case Extent::hidden: return spec.hidden;
        case Extent::q_width: return std::int64_t{a.n_heads} * a.head_dim;
        case Extent::kv_width: return std::int64_t{a.n_kv_heads} * a.head_dim;
        case Extent::head_dim: return a.head_dim;
        case Extent::ffn_width: return layer.feed_forward.width;
    }
    return 0;
}

}  // namespace forge
