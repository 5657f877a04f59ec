// The shapes that can be synthesised: one row a model.
#pragma once

#include <string_view>
#include <vector>

namespace forge::synth {

// What tells the families apart is in tensors.cpp (names), gguf_file.cpp and
// hf_folder.cpp (metadata) and tokenizer.cpp (special tokens).
enum class Family { llama, qwen3, gemma3, qwen3_moe, qwen35, qwen35_moe };

// Mixture of experts; 0 experts: none.
struct ExpertShape { int experts = 0, per_token = 0, width = 0, shared_width = 0; };

// Gated DeltaNet in all layers but every `interval`th; interval 0: none.
struct DeltaShape { int interval = 0, k_heads = 0, v_heads = 0, k_dim = 0, v_dim = 0; };

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

    bool recurrent(int layer) const { return delta.interval > 0 && (layer + 1) % delta.interval != 0; }
    int conv_channels() const { return 2 * delta.k_heads * delta.k_dim + delta.v_heads * delta.v_dim; }
};

const std::vector<Shape>& shapes();
const Shape& shape_named(std::string_view name);  // Error lists the known names

}  // namespace forge::synth
