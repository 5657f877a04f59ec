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
    //  tied, rope_theta, rope_factor, window, norm_eps, {experts, per token, width, shared width},
    //  {interval of full attention, key heads, value heads, key and value dimensions},
    //  {interval and head width of full attention, layers that share caches, numbers a layer takes, softcap}
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
        {"qwen3-30b-a3b", "Synthetic Qwen3 30B-A3B", qwen3_moe, 48, 2048, 32, 4, 128, 6144, 151936, 40960, false, 1e6, 0,
         0, 1e-6, {128, 8, 768, 0}},
        {"qwen3.5-0.8b", "Synthetic Qwen3.5 0.8B", qwen35, 24, 1024, 8, 2, 256, 3584, 248320, 262144, true, 1e7, 0,
         0, 1e-6, {}, {4, 16, 16, 128, 128}},
        {"qwen3.5-4b", "Synthetic Qwen3.5 4B", qwen35, 32, 2560, 16, 4, 256, 9216, 248320, 262144, true, 1e7, 0,
         0, 1e-6, {}, {4, 16, 32, 128, 128}},
        {"qwen3.6-35b-a3b", "Synthetic Qwen3.6 35B-A3B", qwen35_moe, 40, 2048, 16, 2, 256, 0, 248320, 262144, false, 1e7, 0,
         0, 1e-6, {256, 8, 512, 512}, {4, 16, 32, 128, 128}},
        {"gemma-4-e2b", "Synthetic Gemma 4 E2B", gemma4, 35, 1536, 8, 1, 256, 6144, 262144, 131072, true, 1e6, 0,
         512, 1e-6, {}, {}, {5, 512, 20, 256, 30}},
        {"qwen3-moe-tiny", "Synthetic Qwen3 MoE tiny", qwen3_moe, 3, 256, 4, 2, 64, 768, 2048, 4096, false, 1e6, 0,
         0, 1e-6, {8, 2, 256, 0}},
        {"qwen3.5-tiny", "Synthetic Qwen3.5 tiny", qwen35, 4, 256, 4, 2, 64, 768, 2048, 4096, true, 1e7, 0,
         0, 1e-6, {}, {4, 2, 4, 64, 64}},
        {"qwen3.5-moe-tiny", "Synthetic Qwen3.5 MoE tiny", qwen35_moe, 4, 256, 4, 2, 64, 0, 2048, 4096, false, 1e7, 0,
         0, 1e-6, {8, 2, 256, 256}, {4, 2, 2, 64, 64}},
        // Small ones for tests; gemma3-tiny's columns are no multiple of 256.
        {"llama-tiny", "Synthetic Llama tiny", llama, 4, 256, 4, 2, 64, 768, 2048, 4096,
         false, 5e5, 8, 0, 1e-5},
        {"gemma3-tiny", "Synthetic Gemma 3 tiny", gemma3, 6, 160, 4, 1, 64, 544, 1024, 4096,
         true, 1e6, 0, 32, 1e-6},
        {"gemma4-tiny", "Synthetic Gemma 4 tiny", gemma4, 6, 160, 4, 1, 32, 544, 1024, 4096,
         true, 1e6, 0, 32, 1e-6, {}, {}, {2, 64, 2, 32, 30}},
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
