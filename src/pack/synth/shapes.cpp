#include "shapes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "pack/synth.h"

namespace forge {
namespace synth {

const std::vector<Shape>& shapes() {
    using enum Family;
    //  name, title, family, layers, hidden, heads, kv_heads, head_dim, feed_forward, vocab, context,
    //  tied, rope_theta, rope_factor, window, norm_eps
    // clang-format off
    static const std::vector<Shape> table = {
        {"qwen3-0.6b", "Synthetic Qwen3 0.6B", qwen3, 28, 1024, 16, 8, 128, 3072, 151936, 40960, true, 1e6, 0,
         0, 1e-6},
        {"qwen3-tiny", "Synthetic Qwen3 tiny", qwen3, 4, 256, 4, 2, 64, 768, 2048, 4096, true, 1e6, 0, 0,
         1e-6},
        {"llama-3.2-1b", "Synthetic Llama 3.2 1B", llama, 16, 2048, 32, 8, 64, 8192, 128256, 131072, true,
         5e5, 32, 0, 1e-5},
        {"llama-3.1-8b", "Synthetic Llama 3.1 8B", llama, 32, 4096, 32, 8, 128, 14336, 128256, 131072, false,
         5e5, 8, 0, 1e-5},
        {"gemma3-270m", "Synthetic Gemma 3 270M", gemma3, 18, 640, 4, 1, 256, 2048, 262144, 32768, true, 1e6,
         0, 512, 1e-6},
        // Small ones for tests; gemma3-tiny's columns are no multiple of 256.
        {"llama-tiny", "Synthetic Llama tiny", llama, 4, 256, 4, 2, 64, 768, 2048, 4096,
         false, 5e5, 8, 0, 1e-5},
        {"gemma3-tiny", "Synthetic Gemma 3 tiny", gemma3, 6, 160, 4, 1, 64, 544, 1024, 4096,
         true, 1e6, 0, 32, 1e-6},
    };
    // clang-format on
    return table;
}

const Shape& shape_named(std::string_view name) {
    for (const Shape& shape : shapes())
        if (shape.name == name) return shape;
    fail("there is no shape '{}' to synthesise; known are {}", name, fmt::join(synth_shapes(), ", "));
}

}  // namespace synth

std::vector<std::string> synth_shapes() {
    std::vector<std::string> names;
    for (const synth::Shape& shape : synth::shapes()) names.emplace_back(shape.name);
    return names;
}

}  // namespace forge
