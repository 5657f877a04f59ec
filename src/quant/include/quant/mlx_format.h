// MLX's ways of quantising a matrix, and the planes that each of them is.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/dtype.h"
#include "quant/weight.h"

namespace forge {

enum class MlxMode : std::uint8_t { affine, mxfp4, mxfp8, nvfp4 };
inline constexpr std::array<std::string_view, 4> mlx_mode_names{"affine", "mxfp4", "mxfp8", "nvfp4"};   // by MlxMode

struct MlxFormat {
    MlxMode mode = MlxMode::affine;
    int bits = 4, group = 64;   // group: neighbouring numbers of a row that share a scale
    bool operator==(const MlxFormat&) const = default;
};

std::string_view name_of(MlxMode mode);
std::optional<MlxMode> mlx_mode(std::string_view name);

// What MLX takes where bits and group are not stated; the modes with floating codes have no others.
MlxFormat mlx_default(MlxMode mode);

// The planes of a matrix. `scales`: f32, f16 or bf16, the type of an affine matrix's scales and biases; the
// other modes have one byte a group and no biases.
WeightFormat mlx_planes(const MlxFormat& format, DType scales);

}  // namespace forge
