// The pieces of the norms (N1, N2, N3 of docs/numerics.md) that every kernel
// with a norm shares, so that fused and separate forms give the same bits.
// Include after vec.h.
#pragma once

#include <cmath>

#include "kernels/matmul/matmul.h"
#include "simd/vec.h"

namespace forge::FORGE_SIMD {

// Sum of squares of x[0..n), in a fixed order: eight running sums of vectors, then pairwise.
template <typename T>
FORGE_INLINE float sum_of_squares(const T* x, int n) {
    F32 sums[8];
    for (F32& s : sums) s = zero();
    int i = 0;
    for (; i + 8 * kLanes <= n; i += 8 * kLanes)
#pragma GCC unroll 8
        for (int j = 0; j < 8; ++j) {
            const F32 v = load(x + i + j * kLanes);
            sums[j] = fma(v, v, sums[j]);
        }
    for (int j = 0; i < n; i += kLanes, ++j) {
        const F32 v = load_first(x + i, n - i < kLanes ? n - i : kLanes);
        sums[j] = fma(v, v, sums[j]);
    }
    return sum(((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7])));
}

// 1 / sqrt(mean of squares + eps)
template <typename T>
FORGE_INLINE float norm_factor(const T* x, int n, float eps) {
    return 1.0f / std::sqrt(sum_of_squares(x, n) / static_cast<float>(n) + eps);
}

// n = x * factor is normalised already; the weight is applied as the formula rounds.
template <typename T>
FORGE_INLINE F32 normed(NormFormula formula, F32 n, F32 weight) {
    switch (formula) {
        case NormFormula::two_rounding: return round_as<T>(weight * round_as<T>(n));
        case NormFormula::one_plus: return round_as<T>(n * (set1(1.0f) + weight));
        case NormFormula::one_rounding: break;
    }
    return round_as<T>(n * weight);
}

}  // namespace forge::FORGE_SIMD
