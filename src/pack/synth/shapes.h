// The shapes that can be synthesised: one row a model.
#pragma once

#include <string_view>
#include <vector>

namespace forge::synth {

// What tells the families apart is in tensors.cpp (names), gguf_file.cpp and
// hf_folder.cpp (metadata) and tokenizer.cpp (special tokens).
enum class Family { llama, qwen3, gemma3, gemma4, qwen3_moe, qwen35, qwen35_moe };

// Mixture of experts; 0 experts: none.
struct ExpertShape { int experts = 0, per_token = 0, width = 0, shared_width = 0; };

// Gated DeltaNet in all layers but every `interval`th; interval 0: none.
struct DeltaShape { int interval = 0, k_heads = 0, v_heads = 0, k_dim = 0, v_dim = 0; };

// Gemma 4: every `interval`th layer sees everything, with heads of its own width; the last `shared` layers read others'
// caches and have MLPs of twice the width; every layer takes `per_layer` numbers a token from an embedding of its own.
struct Gemma4Shape { int interval = 0, head_dim = 0, shared = 0, per_layer = 0; double softcap = 0; };

struct Shape {
    std::string_view name;
    std::string_view title;  // general.name
    Family family;
    int layers, hidden, heads, kv_heads, head_dim, feed_forward, vocab, context;
    bool tied;
    double rope_theta;
    double rope_factor;  // llama3 rope scaling (low 1, high 4, original context 8192); 0 = none
    int window;          // of the sliding layers, five of six; 0 = none
    double norm_eps;
    ExpertShape moe = {};
    DeltaShape delta = {};
    Gemma4Shape gemma4 = {};

    bool recurrent(int layer) const { return delta.interval > 0 && (layer + 1) % delta.interval != 0; }
    bool global(int layer) const { return (layer + 1) % (gemma4.interval > 0 ? gemma4.interval : 6) == 0; }   // of the Gemmas
    bool shares_cache(int layer) const { return layer >= layers - gemma4.shared; }
    int layer_head_dim(int layer) const { return gemma4.interval > 0 && global(layer) ? gemma4.head_dim : head_dim; }
    int layer_feed_forward(int layer) const { return shares_cache(layer) ? 2 * feed_forward : feed_forward; }
    int conv_channels() const { return 2 * delta.k_heads * delta.k_dim + delta.v_heads * delta.v_dim; }
};

const std::vector<Shape>& shapes();
const Shape& shape_named(std::string_view name);  // Error lists the known names

}  // namespace forge::synth
