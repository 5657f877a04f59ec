// AVX2 with FMA and F16C: included by vec.h only.
#pragma once

#include <immintrin.h>

namespace forge::simd_avx2 {

inline constexpr int kLanes = 8;
struct F32 { __m256 v; };
struct Mask { __m256 v; };  // all ones or all zeros a lane

FORGE_INLINE F32 zero() { return {_mm256_setzero_ps()}; }
FORGE_INLINE F32 set1(float x) { return {_mm256_set1_ps(x)}; }
FORGE_INLINE F32 operator+(F32 a, F32 b) { return {_mm256_add_ps(a.v, b.v)}; }
FORGE_INLINE F32 operator-(F32 a, F32 b) { return {_mm256_sub_ps(a.v, b.v)}; }
FORGE_INLINE F32 operator*(F32 a, F32 b) { return {_mm256_mul_ps(a.v, b.v)}; }
FORGE_INLINE F32 operator/(F32 a, F32 b) { return {_mm256_div_ps(a.v, b.v)}; }
FORGE_INLINE F32 fma(F32 a, F32 b, F32 c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
FORGE_INLINE F32 max(F32 a, F32 b) { return {_mm256_max_ps(a.v, b.v)}; }
FORGE_INLINE F32 min(F32 a, F32 b) { return {_mm256_min_ps(a.v, b.v)}; }
FORGE_INLINE F32 abs(F32 a) { return {_mm256_andnot_ps(_mm256_set1_ps(-0.0f), a.v)}; }
FORGE_INLINE F32 nearest(F32 a) { return {_mm256_round_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)}; }
FORGE_INLINE Mask less(F32 a, F32 b) { return {_mm256_cmp_ps(a.v, b.v, _CMP_LT_OQ)}; }
FORGE_INLINE Mask equal(F32 a, F32 b) { return {_mm256_cmp_ps(a.v, b.v, _CMP_EQ_OQ)}; }
FORGE_INLINE F32 select(Mask m, F32 yes, F32 no) { return {_mm256_blendv_ps(no.v, yes.v, m.v)}; }
FORGE_INLINE F32 copy_sign(F32 magnitude, F32 sign) {
    return {_mm256_or_ps(_mm256_andnot_ps(_mm256_set1_ps(-0.0f), magnitude.v), _mm256_and_ps(_mm256_set1_ps(-0.0f), sign.v))};
}
FORGE_INLINE float first_of(F32 a) { return _mm256_cvtss_f32(a.v); }
FORGE_INLINE std::uint32_t bits(Mask m) { return static_cast<std::uint32_t>(_mm256_movemask_ps(m.v)); }
FORGE_INLINE __m256i first_lanes_epi32(int n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
FORGE_INLINE Mask first_lanes(int n) { return {_mm256_castsi256_ps(first_lanes_epi32(n))}; }
FORGE_INLINE Mask operator&(Mask a, Mask b) { return {_mm256_and_ps(a.v, b.v)}; }
FORGE_INLINE Mask but_not(Mask a, Mask b) { return {_mm256_andnot_ps(b.v, a.v)}; }
FORGE_INLINE __m256 power_of_two(__m256i n) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23)); }
// |n| <= 250; in two steps, because 2^n itself may be out of range
FORGE_INLINE F32 scale_by_power(F32 x, F32 n) {
    const __m256i whole = _mm256_cvtps_epi32(n.v);
    const __m256i half = _mm256_srai_epi32(whole, 1);
    return {_mm256_mul_ps(_mm256_mul_ps(x.v, power_of_two(half)), power_of_two(_mm256_sub_epi32(whole, half)))};
}
// x - floor(x), 0 for -inf; and p * 2^floor(x), 0 for x = -inf (x at most 250)
FORGE_INLINE F32 floor_above_150(F32 x) { return {_mm256_floor_ps(_mm256_max_ps(_mm256_set1_ps(-150.0f), x.v))}; }
FORGE_INLINE F32 above_floor(F32 x) { return max(set1(-150.0f), x) - floor_above_150(x); }
FORGE_INLINE F32 scale_by_floor(F32 p, F32 x) { return scale_by_power(p, floor_above_150(x)); }
FORGE_INLINE float sum(F32 a) {
    __m128 x = _mm_add_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
    x = _mm_add_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
}
FORGE_INLINE float largest(F32 a) {
    __m128 x = _mm_max_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
    x = _mm_max_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_max_ss(x, _mm_movehdup_ps(x)));
}

FORGE_INLINE __m256i bf16_bits(F32 x) {
    const __m256i u = _mm256_castps_si256(x.v);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7fff)), odd), 16);
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x.v, x.v, _CMP_UNORD_Q));
    return _mm256_blendv_epi8(rounded, _mm256_or_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(0x40)), nan);
}
FORGE_INLINE F32 from_bf16_bits(__m256i low) { return {_mm256_castsi256_ps(_mm256_slli_epi32(low, 16))}; }
FORGE_INLINE F32 round_bf16(F32 x) { return from_bf16_bits(bf16_bits(x)); }
FORGE_INLINE __m128i pack_low_halves(__m256i x) {
    return _mm_packus_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
}
FORGE_INLINE __m128i f16_bits(F32 x) { return _mm256_cvtps_ph(x.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
FORGE_INLINE F32 round_f16(F32 x) { return {_mm256_cvtph_ps(f16_bits(x))}; }

FORGE_INLINE __m128i copy_in_16(const void* p, int n) {
    alignas(16) std::uint16_t raw[8] = {};
    __builtin_memcpy(raw, p, 2 * static_cast<std::size_t>(n));
    return _mm_load_si128(reinterpret_cast<const __m128i*>(raw));
}
FORGE_INLINE void copy_out_16(void* p, __m128i x, int n) {
    alignas(16) std::uint16_t raw[8];
    _mm_store_si128(reinterpret_cast<__m128i*>(raw), x);
    __builtin_memcpy(p, raw, 2 * static_cast<std::size_t>(n));
}
FORGE_INLINE F32 load(const float* p) { return {_mm256_loadu_ps(p)}; }
FORGE_INLINE F32 load(const bf16* p) { return from_bf16_bits(_mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))); }
FORGE_INLINE F32 load(const f16* p) { return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))}; }
FORGE_INLINE void store(float* p, F32 x) { _mm256_storeu_ps(p, x.v); }
FORGE_INLINE void store(bf16* p, F32 x) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), pack_low_halves(bf16_bits(x))); }
FORGE_INLINE void store(f16* p, F32 x) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), f16_bits(x)); }
FORGE_INLINE F32 load_first(const float* p, int n) { return {_mm256_maskload_ps(p, first_lanes_epi32(n))}; }
FORGE_INLINE F32 load_first(const bf16* p, int n) { return from_bf16_bits(_mm256_cvtepu16_epi32(copy_in_16(p, n))); }
FORGE_INLINE F32 load_first(const f16* p, int n) { return {_mm256_cvtph_ps(copy_in_16(p, n))}; }
FORGE_INLINE void store_first(float* p, F32 x, int n) { _mm256_maskstore_ps(p, first_lanes_epi32(n), x.v); }
FORGE_INLINE void store_first(bf16* p, F32 x, int n) { copy_out_16(p, pack_low_halves(bf16_bits(x)), n); }
FORGE_INLINE void store_first(f16* p, F32 x, int n) { copy_out_16(p, f16_bits(x), n); }

struct Pairs { F32 first, second; };
FORGE_INLINE Pairs load_pairs(const bf16* p) {
    const __m256i u = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return {{_mm256_castsi256_ps(_mm256_slli_epi32(u, 16))},
            {_mm256_castsi256_ps(_mm256_and_si256(u, _mm256_set1_epi32(static_cast<int>(0xffff0000u))))}};
}

}  // namespace forge::simd_avx2
