// What the rows of kernels on simdgroup_matrix share.
#pragma once

#include "gpu/builder.h"

namespace forge::gpu {

// Bytes of threadgroup memory that a tile takes (text/simd_gemm.h), and its array.
int simd_tile_bytes(const SimdTile& tile);
// Template arguments: what tiles are made of.
const char* simd_units(const Common& c, const SimdTile& tile);
// BM, BN, BK, AHEAD.
std::string simd_literals(const SimdTile& tile);
inline constexpr int kSimdThreads = 128;

}  // namespace forge::gpu
