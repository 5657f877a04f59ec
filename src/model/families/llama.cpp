// Llama 2 and 3.x, SmolLM2; Mistral, which differs by a sliding window in every
// layer (null in later releases); Mixtral, Mistral with experts. GGUF stores all as llama.
#include "../layer_rules.h"

namespace forge {
namespace {

std::vector<LayerKind> all(const Draft& draft, LayerKind kind) { return std::vector<LayerKind>(draft.spec.layers.size(), kind); }

int head_dim(const Draft& draft) { return draft.spec.layers.front().attention.head_dim; }

void llama_layers(const ConfigReader& config, Draft& draft) {
    set_layers(draft, all(draft, LayerKind::full), 0, rope_of_config(config, *draft.family, LayerKind::full, head_dim(draft)));
}

// Sliding windows are not stored by this architecture: every layer is full.
void llama_layers_gguf(const GgufKeys& keys, Draft& draft) {
    set_layers(draft, all(draft, LayerKind::full), 0, rope_of_metadata(keys, draft, head_dim(draft)));
    set_experts(keys, draft);
    for (LayerSpec& layer : draft.spec.layers) layer.feed_forward.moe.round_weights = false;
}

void mistral_layers(const ConfigReader& config, Draft& draft) {
    const int window = window_of(config, *draft.family);
    const LayerKind kind = window > 0 ? LayerKind::sliding : LayerKind::full;
    set_layers(draft, all(draft, kind), window, rope_of_config(config, *draft.family, kind, head_dim(draft)));
}

void mixtral_layers(const ConfigReader& config, Draft& draft) {
    mistral_layers(config, draft);
    set_experts(config, draft, "intermediate_size", false);
    for (LayerSpec& layer : draft.spec.layers) layer.feed_forward.moe.round_weights = false;
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
    family.alternatives = decoder_alternatives();
    add_expert_tensors(family);  // Mixtral is stored in GGUF as llama
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

Family mixtral_family() {
    Family family = mistral_family();
    family.name = "mixtral";
    family.model_types = {{"mixtral"}};
    family.defaults.window = 0;
    family.defaults.eps = 1e-5;
    family.defaults.experts = 8;
    family.defaults.experts_per_token = 2;
    family.defaults.expert_width = 14336;
    for (TensorRow& row : family.tensors) {
        if (row.role == Role::router) row.hf = "block_sparse_moe.gate.weight";
        if (row.role == Role::expert_gate) row.hf = "block_sparse_moe.experts.{}.w1.weight";
        if (row.role == Role::expert_up) row.hf = "block_sparse_moe.experts.{}.w3.weight";
        if (row.role == Role::expert_down) row.hf = "block_sparse_moe.experts.{}.w2.weight";
    }
    for (Alternative& place : family.alternatives) {
        if (place.hf == "mlp.switch_mlp.gate_proj.weight") place.hf = "block_sparse_moe.switch_mlp.gate_proj.weight";
        if (place.hf == "mlp.switch_mlp.up_proj.weight") place.hf = "block_sparse_moe.switch_mlp.up_proj.weight";
        if (place.hf == "mlp.switch_mlp.down_proj.weight") place.hf = "block_sparse_moe.switch_mlp.down_proj.weight";
    }
    family.layers_from_config = mixtral_layers;
    return family;
}

}  // namespace forge
