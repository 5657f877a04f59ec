// Least-squares fits of a group of values to scaled integers.
#pragma once

#include <cstdint>

namespace forge {

// Nearest integer in [lo, hi], halves to even; NaN gives lo. |lo|, |hi| < 2^22.
int nearest_in(float x, int lo, int hi);

// As f16 bits, kept finite.
std::uint16_t finite_half(float x);

// s minimising sum w (x - s q)^2 over q in [lo, hi] with lo < 0 < hi and |lo| >= hi,
// by trying scales around the one that puts the largest value at lo. n <= 256.
float fit_scale(const float* x, int n, int lo, int hi);

// scale >= 0 and minimum >= 0 minimising sum w (x - (scale q - minimum))^2 over q in [0, hi]. n <= 256.
struct AffineFit {
    float scale, minimum;
};
AffineFit fit_affine(const float* x, int n, int hi);

}  // namespace forge
