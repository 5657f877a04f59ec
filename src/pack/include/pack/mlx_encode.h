// Numbers -> MLX's planes, bit for bit as MLX's CPU backend makes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/dtype.h"
#include "quant/mlx_format.h"

namespace forge {

// Bytes that a row of `cols` numbers (whole groups) takes in each plane. The type of affine scales
// and biases is that of the numbers; the other modes have one byte a group and no biases.
struct MlxRowBytes { std::size_t codes, scales, biases; };
MlxRowBytes mlx_row_bytes(const MlxFormat& format, std::int64_t cols, DType type);

// Encodes a row of numbers of `type` (bf16, f16 or f32). biases: affine only. largest: the largest
// magnitude of the matrix, for nvfp4 with a global scale; 0 = without.
void encode_mlx_row(const MlxFormat& format, DType type, std::span<const float> row, std::byte* codes, std::byte* scales,
                    std::byte* biases, float largest = 0);

}  // namespace forge
