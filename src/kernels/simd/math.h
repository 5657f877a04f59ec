// exp, tanh, sigmoid, silu and gelu of vectors, to within about two ulp of f32
// (docs/numerics.md has the measured errors). Include after vec.h.
#pragma once

#include "simd/vec.h"

namespace forge::FORGE_SIMD {

// e^x. 0 below -104, infinity above 88.73, NaN stays NaN.
// x = n ln2 + r, |r| <= ln2/2; e^r = 1 + r + r^2 q(r), q fitted for least relative error.
FORGE_INLINE F32 exp(F32 x) {
    // Written so that NaN passes: max and min return their second operand for NaN.
    const F32 clamped = min(set1(89.0f), max(set1(-104.0f), x));
    const F32 n = nearest(clamped * set1(1.44269504088896341f));
    F32 r = fma(n, set1(-0.693145751953125f), clamped);   // ln2 in two parts; n times the first is exact
    r = fma(n, set1(-1.42860682029e-6f), r);
    F32 q = set1(1.381446685e-3f);
    q = fma(q, r, set1(8.368780418e-3f));
    q = fma(q, r, set1(4.166839422e-2f));
    q = fma(q, r, set1(1.666652011e-1f));
    q = fma(q, r, set1(4.999999341e-1f));
    const F32 e = fma(q, r * r, r) + set1(1.0f);
    return scale_by_power(e, n);
}

// 2^x for x <= 0 within 4e-6 of it; 0 for -inf. For weights that are rounded to 16 bits.
// x = n + f with n = floor(x); 2^f by a polynomial.
FORGE_INLINE F32 exp2_short(F32 x) {
    const F32 f = above_floor(x);
    F32 p = set1(1.342668441e-02f);
    p = fma(p, f, set1(5.224247390e-02f));
    p = fma(p, f, set1(2.412802050e-01f));
    p = fma(p, f, set1(6.930448449e-01f));
    p = fma(p, f, set1(1.0f));
    return scale_by_floor(p, x);
}

// Below 0.625 an odd polynomial, above 1 - 2 / (e^2|x| + 1).
FORGE_INLINE F32 tanh(F32 x) {
    const F32 magnitude = abs(x);
    const F32 z = x * x;
    F32 p = set1(-5.704986770e-3f);
    p = fma(p, z, set1(2.063908700e-2f));
    p = fma(p, z, set1(-5.373971500e-2f));
    p = fma(p, z, set1(1.333144220e-1f));
    p = fma(p, z, set1(-3.333328194e-1f));
    const F32 small = fma(p * z, x, x);
    const F32 large = set1(1.0f) - set1(2.0f) / (exp(magnitude + magnitude) + set1(1.0f));
    return select(less(magnitude, set1(0.625f)), small, copy_sign(large, x));
}

// 1 / (1 + e^-x), by e^-|x| so that nothing overflows and small results keep their bits.
FORGE_INLINE F32 sigmoid(F32 x) {
    const F32 t = exp(zero() - abs(x));
    return select(less(x, zero()), t, set1(1.0f)) / (set1(1.0f) + t);
}

FORGE_INLINE F32 silu(F32 x) { return x * sigmoid(x); }

// 0.5 x (1 + tanh(u)), u = sqrt(2/pi) (x + 0.044715 x^3), which is x sigmoid(2u)
// without the cancellation for negative x.
FORGE_INLINE F32 gelu_tanh(F32 x) {
    const F32 cubic = fma(x * x, x * set1(0.044715f), x);
    return x * sigmoid(cubic * set1(1.59576912160573071f));
}

}  // namespace forge::FORGE_SIMD
