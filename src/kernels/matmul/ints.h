// Vectors of u32 for unpacking codes, on top of simd/vec.h (include that first).
//
//   load_ints(p), load_ints(p, bytes): kLanes u32; the second reads `bytes` bytes and zeros
//   Table      16 floats in registers; lookup(table, i) uses the low four bits of each lane
//   permute    lanes of a float vector by index (0..kLanes-1)
//   broadcast  a half to all lanes
//   unzip      even and odd elements of two vectors
//   transpose  kLanes x kLanes words
#pragma once

#include <cstdint>
#include <cstring>

#include "simd/vec.h"

#if defined(FORGE_TARGET_AVX512)
#include "matmul/ints_avx512.h"
#elif defined(FORGE_TARGET_AVX2)
#include "matmul/ints_avx2.h"
#else
#include "matmul/ints_neon.h"
#endif
