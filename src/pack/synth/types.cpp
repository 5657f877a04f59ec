#include "types.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "pack/synth.h"

namespace forge {
namespace synth {
namespace {

constexpr Recipe recipes[] = {
    {"q4_0", GgufType::q4_0, 2, false, false},      {"q4_k_m", GgufType::q4_k, 15, false, true},
    {"q8_0", GgufType::q8_0, 7, false, false},      {"bf16", GgufType::bf16, 32, true, false},
    {"f16", GgufType::f16, 1, true, false},         {"f32", GgufType::f32, 0, true, false},
    {"q4_1", GgufType::q4_1, 3, false, false},      {"q5_0", GgufType::q5_0, 8, false, false},
    {"q5_1", GgufType::q5_1, 9, false, false},      {"q2_k", GgufType::q2_k, 10, false, false},
    {"q3_k", GgufType::q3_k, 11, false, false},     {"q4_k", GgufType::q4_k, 14, false, false},
    {"q5_k", GgufType::q5_k, 16, false, false},     {"q6_k", GgufType::q6_k, 18, false, false},
    {"iq4_nl", GgufType::iq4_nl, 25, false, false}, {"mxfp4", GgufType::mxfp4, 38, false, false},
};

// Layers whose attn_v and ffn_down get more bits: the first and the last eighth, and every third between.
bool favoured(int layer, int layers) {
    return layer < layers / 8 || layer >= 7 * layers / 8 || (layer - layers / 8) % 3 == 2;
}

GgufType wanted_type(const TensorPlan& tensor, const Shape& shape, const Recipe& recipe) {
    const bool is_head = tensor.use == Use::head || (tensor.use == Use::embedding && shape.tied);
    if (is_head) return recipe.type == GgufType::q8_0 ? GgufType::q8_0 : GgufType::q6_k;
    const bool mixed = recipe.medium && (tensor.use == Use::attn_v || tensor.use == Use::ffn_down);
    return mixed && favoured(tensor.layer, shape.layers) ? GgufType::q6_k : recipe.type;
}

GgufType replacement(GgufType type) {
    switch (type) {
        case GgufType::q2_k:
        case GgufType::q3_k:
            return GgufType::q4_0;
        case GgufType::q4_k:
            return GgufType::q5_0;
        case GgufType::q5_k:
            return GgufType::q5_1;
        case GgufType::q6_k:
            return GgufType::q8_0;
        default:
            return type;
    }
}

bool divides(GgufType type, std::int64_t cols) {
    return cols % gguf_block_size(static_cast<std::uint32_t>(type))->elements == 0;
}

}  // namespace

const Recipe& recipe_named(std::string_view name) {
    for (const Recipe& recipe : recipes)
        if (recipe.name == name) return recipe;
    fail("there is no type '{}' to synthesise; known are {}", name, fmt::join(synth_types(), ", "));
}

GgufType type_of(const TensorPlan& tensor, const Shape& shape, const Recipe& recipe) {
    if (tensor.kind != Kind::matrix || tensor.f32) return GgufType::f32;
    if (recipe.plain) return recipe.type;
    GgufType type = wanted_type(tensor, shape, recipe);
    if (!divides(type, tensor.cols)) type = replacement(type);
    return divides(type, tensor.cols) ? type : GgufType::f16;
}

}  // namespace synth

std::vector<std::string> synth_types() {
    std::vector<std::string> names;
    for (const synth::Recipe& recipe : synth::recipes) names.emplace_back(recipe.name);
    return names;
}

}  // namespace forge
