// AVX-512 (F, BW, VL, DQ, BF16): included by vec.h only.
#pragma once

#include <immintrin.h>

#define FORGE_SIMD_BF16_DOT 1

namespace forge::simd_avx512 {

inline constexpr int kLanes = 16;
struct F32 { __m512 v; };
struct Mask { __mmask16 v; };

FORGE_INLINE F32 zero() { return {_mm512_setzero_ps()}; }
FORGE_INLINE F32 set1(float x) { return {_mm512_set1_ps(x)}; }
FORGE_INLINE F32 operator+(F32 a, F32 b) { return {_mm512_add_ps(a.v, b.v)}; }
FORGE_INLINE F32 operator-(F32 a, F32 b) { return {_mm512_sub_ps(a.v, b.v)}; }
FORGE_INLINE F32 operator*(F32 a, F32 b) { return {_mm512_mul_ps(a.v, b.v)}; }
FORGE_INLINE F32 operator/(F32 a, F32 b) { return {_mm512_div_ps(a.v, b.v)}; }
// a * b + c, one rounding
FORGE_INLINE F32 fma(F32 a, F32 b, F32 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
// The larger; b when either is NaN.
FORGE_INLINE F32 max(F32 a, F32 b) { return {_mm512_max_ps(a.v, b.v)}; }
FORGE_INLINE F32 min(F32 a, F32 b) { return {_mm512_min_ps(a.v, b.v)}; }
FORGE_INLINE F32 abs(F32 a) { return {_mm512_abs_ps(a.v)}; }
FORGE_INLINE F32 nearest(F32 a) { return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)}; }
FORGE_INLINE Mask less(F32 a, F32 b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ)}; }
FORGE_INLINE Mask equal(F32 a, F32 b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_EQ_OQ)}; }
FORGE_INLINE F32 select(Mask m, F32 yes, F32 no) { return {_mm512_mask_blend_ps(m.v, no.v, yes.v)}; }
FORGE_INLINE F32 copy_sign(F32 magnitude, F32 sign) {
    return {_mm512_castsi512_ps(_mm512_ternarylogic_epi32(_mm512_set1_epi32(INT32_MIN), _mm512_castps_si512(sign.v),
                                                          _mm512_castps_si512(magnitude.v), 0xca))};
}
FORGE_INLINE std::uint32_t bits(Mask m) { return m.v; }
FORGE_INLINE float first_of(F32 a) { return _mm512_cvtss_f32(a.v); }
// Lanes 0..n-1
FORGE_INLINE Mask first_lanes(int n) {
    return {static_cast<__mmask16>(n >= 16 ? 0xffffu : (1u << (n < 0 ? 0 : n)) - 1u)};
}
FORGE_INLINE Mask operator&(Mask a, Mask b) { return {static_cast<__mmask16>(a.v & b.v)}; }
FORGE_INLINE Mask but_not(Mask a, Mask b) { return {static_cast<__mmask16>(a.v & ~b.v)}; }
// x * 2^n for integral n, right down to the subnormals
FORGE_INLINE F32 scale_by_power(F32 x, F32 n) { return {_mm512_scalef_ps(x.v, n.v)}; }
// x - floor(x), 0 for -inf; and p * 2^floor(x), 0 for x = -inf
FORGE_INLINE F32 above_floor(F32 x) { return {_mm512_reduce_ps(x.v, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC)}; }
FORGE_INLINE F32 scale_by_floor(F32 p, F32 x) { return {_mm512_scalef_ps(p.v, x.v)}; }
FORGE_INLINE float sum(F32 a) {
    const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
    __m128 x = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    x = _mm_add_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
}
FORGE_INLINE float largest(F32 a) {
    const __m256 half = _mm256_max_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
    __m128 x = _mm_max_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    x = _mm_max_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_max_ss(x, _mm_movehdup_ps(x)));
}

// Bits of a bf16 in the low half of each lane. vcvtneps2bf16 would flush subnormals.
FORGE_INLINE __m512i bf16_bits(F32 x) {
    const __m512i u = _mm512_castps_si512(x.v);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    const __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)), odd), 16);
    const __mmask16 nan = _mm512_cmp_ps_mask(x.v, x.v, _CMP_UNORD_Q);
    return _mm512_mask_or_epi32(rounded, nan, _mm512_srli_epi32(u, 16), _mm512_set1_epi32(0x40));
}
FORGE_INLINE F32 from_bf16_bits(__m512i low) { return {_mm512_castsi512_ps(_mm512_slli_epi32(low, 16))}; }
FORGE_INLINE F32 round_bf16(F32 x) { return from_bf16_bits(bf16_bits(x)); }
FORGE_INLINE __m256i f16_bits(F32 x) { return _mm512_cvtps_ph(x.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
FORGE_INLINE F32 round_f16(F32 x) { return {_mm512_cvtph_ps(f16_bits(x))}; }

FORGE_INLINE F32 load(const float* p) { return {_mm512_loadu_ps(p)}; }
FORGE_INLINE F32 load(const bf16* p) { return from_bf16_bits(_mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))); }
FORGE_INLINE F32 load(const f16* p) { return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))}; }
FORGE_INLINE void store(float* p, F32 x) { _mm512_storeu_ps(p, x.v); }
FORGE_INLINE void store(bf16* p, F32 x) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(bf16_bits(x))); }
FORGE_INLINE void store(f16* p, F32 x) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), f16_bits(x)); }
FORGE_INLINE F32 load_first(const float* p, int n) { return {_mm512_maskz_loadu_ps(first_lanes(n).v, p)}; }
FORGE_INLINE F32 load_first(const bf16* p, int n) { return from_bf16_bits(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(first_lanes(n).v, p))); }
FORGE_INLINE F32 load_first(const f16* p, int n) { return {_mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first_lanes(n).v, p))}; }
FORGE_INLINE void store_first(float* p, F32 x, int n) { _mm512_mask_storeu_ps(p, first_lanes(n).v, x.v); }
FORGE_INLINE void store_first(bf16* p, F32 x, int n) { _mm256_mask_storeu_epi16(p, first_lanes(n).v, _mm512_cvtepi32_epi16(bf16_bits(x))); }
FORGE_INLINE void store_first(f16* p, F32 x, int n) { _mm256_mask_storeu_epi16(p, first_lanes(n).v, f16_bits(x)); }

struct Pairs { F32 first, second; };
FORGE_INLINE Pairs load_pairs(const bf16* p) {
    const __m512i u = _mm512_loadu_si512(p);
    return {{_mm512_castsi512_ps(_mm512_slli_epi32(u, 16))},
            {_mm512_castsi512_ps(_mm512_and_si512(u, _mm512_set1_epi32(static_cast<int>(0xffff0000u))))}};
}

// acc + a.first * b.first + a.second * b.second per lane: the machine's own bf16
// product, exact products and sums in f32 with subnormals taken as zero.
struct BfPairs { __m512i v; };
FORGE_INLINE BfPairs load_bf_pairs(const bf16* p) { return {_mm512_loadu_si512(p)}; }
FORGE_INLINE BfPairs set1_bf_pair(std::uint32_t pair) { return {_mm512_set1_epi32(static_cast<int>(pair))}; }
FORGE_INLINE F32 dot_pairs(F32 acc, BfPairs a, BfPairs b) { return {_mm512_dpbf16_ps(acc.v, (__m512bh)a.v, (__m512bh)b.v)}; }
// Rounds to bf16 with subnormals flushed to zero: for probabilities.
FORGE_INLINE void store_flushed(bf16* p, F32 x) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), (__m256i)_mm512_cvtneps_pbh(x.v)); }

}  // namespace forge::simd_avx512
