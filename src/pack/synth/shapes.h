// The shapes that can be synthesised: one row a model.
#pragma once

#include <string_view>
#include <vector>

namespace forge::synth {

// What tells the families apart is in tensors.cpp (names), gguf_file.cpp and
// hf_folder.cpp (metadata) and tokenizer.cpp (special tokens).
enum class Family { llama, qwen3, gemma3 };

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
};

const std::vector<Shape>& shapes();
const Shape& shape_named(std::string_view name);  // Error lists the known names

}  // namespace forge::synth
