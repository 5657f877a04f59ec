// Small vectors of floats, one set of functions for every instruction set, so
// that a kernel is written once. A source file that is compiled for one set
// names it (FORGE_TARGET_AVX512, _AVX2 or _NEON) and includes this header; all
// of it, and the kernel bodies, lie in a namespace of that set's own
// (FORGE_SIMD), so that no code of a wider set can be linked into a narrower one.
//
//   F32      kLanes floats        Mask     one truth value a lane
//   load<T>, load_first<T>, store<T>, store_first<T>: T is float, bf16 or f16;
//            stores round to nearest even, exactly as base/float16.h does;
//            the *_first forms touch n elements only (0 <= n <= kLanes)
//   Pairs    kLanes pairs of bf16 as two F32: first and second of each pair
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/float16.h"

#define FORGE_INLINE inline __attribute__((always_inline))

#if defined(FORGE_TARGET_AVX512)
#define FORGE_SIMD simd_avx512
#include "simd/vec_avx512.h"
#elif defined(FORGE_TARGET_AVX2)
#define FORGE_SIMD simd_avx2
#include "simd/vec_avx2.h"
#elif defined(FORGE_TARGET_NEON)
#define FORGE_SIMD simd_neon
#include "simd/vec_neon.h"
#else
#error "define FORGE_TARGET_AVX512, FORGE_TARGET_AVX2 or FORGE_TARGET_NEON before including vec.h"
#endif

namespace forge::FORGE_SIMD {

// x rounded to T and back; the identity for float.
template <typename T>
FORGE_INLINE F32 round_as(F32 x);
template <>
FORGE_INLINE F32 round_as<float>(F32 x) { return x; }
template <>
FORGE_INLINE F32 round_as<bf16>(F32 x) { return round_bf16(x); }
template <>
FORGE_INLINE F32 round_as<f16>(F32 x) { return round_f16(x); }

FORGE_INLINE void prefetch(const void* address) { __builtin_prefetch(address, 0, 3); }

}  // namespace forge::FORGE_SIMD
