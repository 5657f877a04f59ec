// Which block type each matrix gets.
#pragma once

#include <cstdint>
#include <string_view>

#include "quant/gguf_blocks.h"
#include "tensors.h"

namespace forge::synth {

struct Recipe {
    std::string_view name;
    GgufType type;            // of most matrices
    std::uint32_t file_type;  // general.file_type
    bool plain;               // f32, f16, bf16: every matrix has `type`
    bool medium;              // _m: the mix of llama.cpp's "medium" files
};

const Recipe& recipe_named(std::string_view name);  // Error lists the known names

// A type whose block does not divide the columns is replaced by the larger of
// 32 elements that llama.cpp takes, and by f16 where that does not fit either.
GgufType type_of(const TensorPlan& tensor, const Shape& shape, const Recipe& recipe);

}  // namespace forge::synth
