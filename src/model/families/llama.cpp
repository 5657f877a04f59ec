// Llama 2 and 3.x, SmolLM2; Mistral, which differs by a sliding window in every
// layer (null in later releases) and is stored in GGUF as llama.
#include "../layer_rules.h"

namespace forge {
namespace {

std::vector<LayerKind> all(const Draft& draft, LayerKind kind) { return std::vector<LayerKind>(draft.spec.layers.size(), kind); }

void llama_layers(const ConfigReader& config, Draft& draft) {
    set_layers(draft, all(draft, LayerKind::full), 0,
               rope_of_config(config, LayerKind::full, draft.spec.layers.front().attention.head_dim));
}

// Sliding windows are not stored by this architecture: every layer is full.
void llama_layers_gguf(const GgufKeys& keys, Draft& draft) {
    set_layers(draft, all(draft, LayerKind::full), 0,
               rope_of_metadata(keys, draft, keys.number("rope.freq_base").value_or(10000), true));
}

void mistral_layers(const ConfigReader& config, Draft& draft) {
    // Absent means 4096, null means none.
    const int window = config.stated("sliding_window") ? config.count("sliding_window", length_range).value_or(0) : 4096;
    const LayerKind kind = window > 0 ? LayerKind::sliding : LayerKind::full;
    set_layers(draft, all(draft, kind), window,
               rope_of_config(config, kind, draft.spec.layers.front().attention.head_dim));
}

}  // namespace

Family llama_family() {
    Family family;
    family.name = "llama";
    family.model_types = {{"llama"}};
    family.gguf_archs = {{"llama", false, true}, {"mistral3", false, true}};
    family.defaults.context = 2048;
    family.defaults.stop_ids = {2};
    family.tensors = decoder_tensors();
    family.fused = decoder_fused();
    family.refused_config = decoder_refused_config();
    family.refused_metadata = decoder_refused_metadata();
    family.layers_from_config = llama_layers;
    family.layers_from_metadata = llama_layers_gguf;
    return family;
}

Family mistral_family() {
    Family family = llama_family();
    family.name = "mistral";
    family.model_types = {{"mistral"}};
    family.gguf_archs = {};
    family.defaults.context = 131072;
    family.defaults.kv_heads = 8;
    family.layers_from_config = mistral_layers;
    family.layers_from_metadata = nullptr;
    return family;
}

}  // namespace forge
