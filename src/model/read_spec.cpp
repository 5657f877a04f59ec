#include "read_spec.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "resolve.h"

namespace forge {

Draft read_draft(const ModelFile& file) {
    return file.format == ModelFormat::gguf ? read_metadata(file) : read_config(file);
}

ModelSpec read_spec(const ModelFile& file) {
    Draft draft = read_draft(file);
    resolve_tensors(draft);
    return std::move(draft.spec);
}

void finish_dimensions(Draft& draft, double eps) {
    ModelSpec& spec = draft.spec;
    if (!(eps > 0 && eps < 1)) fail("{}: the norms' epsilon should be between 0 and 1, but it is {:g}", draft.file->path, eps);
    spec.norm = {draft.norm, static_cast<float>(eps)};
    spec.qk_norm = spec.norm;
    if (draft.family->scaled_embedding) spec.embed_scale = static_cast<float>(std::sqrt(static_cast<double>(spec.hidden)));
    for (std::size_t i = 0; i < spec.layers.size(); ++i) {
        AttentionSpec& a = spec.layers[i].attention;
        if (spec.layers[i].mixer != MixerKind::attention) continue;
        a.qk_norm = draft.family->qk_norm;
        if (a.head_dim % 2 != 0) fail("{}: layer {} has heads of {} dimensions, but rotary embedding needs an even number", draft.file->path, i, a.head_dim);
        if (a.n_heads % a.n_kv_heads != 0)
            fail("{}: layer {} has {} query heads, which {} key-value heads cannot share evenly", draft.file->path, i, a.n_heads, a.n_kv_heads);
    }
}

Activation activation_named(const std::string& name, const std::string& where) {
    if (name == "silu" || name == "swish") return Activation::silu;
    if (name == "gelu_pytorch_tanh") return Activation::gelu_tanh;
    fail(ErrorKind::unsupported, "{} is '{}', an activation that is not implemented (silu and gelu_pytorch_tanh are)", where, name);
}

void add_stop_ids(ModelSpec& spec, std::span<const std::int64_t> ids) {
    for (const std::int64_t id : ids) {
        if (id < 0 || id >= spec.vocab) continue;  // such an id is never produced
        const auto small = static_cast<std::int32_t>(id);
        if (std::find(spec.stop_ids.begin(), spec.stop_ids.end(), small) == spec.stop_ids.end()) spec.stop_ids.push_back(small);
    }
}

}  // namespace forge
