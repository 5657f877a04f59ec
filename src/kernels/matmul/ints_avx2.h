// AVX2: included by ints.h only.
#pragma once

namespace forge::simd_avx2 {

struct U32 {
    __m256i v;
};

FORGE_INLINE U32 set1(std::uint32_t x) { return {_mm256_set1_epi32(static_cast<int>(x))}; }
FORGE_INLINE U32 load_ints(const void* p) { return {_mm256_loadu_si256(static_cast<const __m256i*>(p))}; }
FORGE_INLINE U32 load_ints(const void* p, int bytes) {
    alignas(32) std::uint8_t copy[32] = {};
    std::memcpy(copy, p, static_cast<std::size_t>(bytes < 32 ? bytes : 32));
    return {_mm256_load_si256(reinterpret_cast<const __m256i*>(copy))};
}
FORGE_INLINE U32 lane_index() { return {_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)}; }
FORGE_INLINE U32 operator+(U32 a, U32 b) { return {_mm256_add_epi32(a.v, b.v)}; }
FORGE_INLINE U32 operator&(U32 a, U32 b) { return {_mm256_and_si256(a.v, b.v)}; }
FORGE_INLINE U32 operator|(U32 a, U32 b) { return {_mm256_or_si256(a.v, b.v)}; }
template <int n>
FORGE_INLINE U32 shift_right(U32 a) {
    return {_mm256_srli_epi32(a.v, n)};
}
template <int n>
FORGE_INLINE U32 shift_left(U32 a) {
    return {_mm256_slli_epi32(a.v, n)};
}
FORGE_INLINE U32 operator>>(U32 a, U32 n) { return {_mm256_srlv_epi32(a.v, n.v)}; }
FORGE_INLINE F32 to_float(U32 a) { return {_mm256_cvtepi32_ps(a.v)}; }
FORGE_INLINE F32 as_float(U32 a) { return {_mm256_castsi256_ps(a.v)}; }
FORGE_INLINE __m128i eight_bytes(const std::uint8_t* p, int n) {
    std::uint64_t copy = 0;
    std::memcpy(&copy, p, static_cast<std::size_t>(n < 8 ? n : 8));
    return _mm_cvtsi64_si128(static_cast<long long>(copy));
}
FORGE_INLINE U32 load_bytes(const std::uint8_t* p, int n) {
    return {_mm256_cvtepu8_epi32(eight_bytes(p, n))};
}
FORGE_INLINE F32 load_i8(const std::uint8_t* p, int n) {
    return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(eight_bytes(p, n)))};
}
FORGE_INLINE F32 broadcast(const f16* p) {
    return {_mm256_cvtph_ps(_mm_set1_epi16(static_cast<short>(p->bits)))};
}

struct Table {
    __m256 low, high;
};
FORGE_INLINE Table load_table(const float* sixteen) {
    return {_mm256_loadu_ps(sixteen), _mm256_loadu_ps(sixteen + 8)};
}
FORGE_INLINE F32 lookup(const Table& t, U32 index) {
    return {_mm256_blendv_ps(_mm256_permutevar8x32_ps(t.low, index.v),
                             _mm256_permutevar8x32_ps(t.high, index.v),
                             _mm256_castsi256_ps(_mm256_slli_epi32(index.v, 28)))};
}
FORGE_INLINE F32 permute(F32 x, U32 index) { return {_mm256_permutevar8x32_ps(x.v, index.v)}; }
FORGE_INLINE void unzip(F32 a, F32 b, F32& even, F32& odd) {
    const __m256 e = _mm256_shuffle_ps(a.v, b.v, 0x88), o = _mm256_shuffle_ps(a.v, b.v, 0xdd);
    even = {_mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(e), 0xd8))};
    odd = {_mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(o), 0xd8))};
}

// out[j][i] = in[i][j] for 8 x 8 words of 32 bits; strides in words.
FORGE_INLINE void transpose(const float* in, std::ptrdiff_t in_stride, float* out,
                            std::ptrdiff_t out_stride) {
    __m256 t[8];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
        const __m256 a = _mm256_loadu_ps(in + 2 * i * in_stride),
                     b = _mm256_loadu_ps(in + (2 * i + 1) * in_stride);
        t[2 * i] = _mm256_unpacklo_ps(a, b);
        t[2 * i + 1] = _mm256_unpackhi_ps(a, b);
    }
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) {
        const int from = c / 2, select = c % 2;
        const __m256 a = select ? _mm256_shuffle_ps(t[from], t[2 + from], 0xee)
                                : _mm256_shuffle_ps(t[from], t[2 + from], 0x44);
        const __m256 b = select ? _mm256_shuffle_ps(t[4 + from], t[6 + from], 0xee)
                                : _mm256_shuffle_ps(t[4 + from], t[6 + from], 0x44);
        _mm256_storeu_ps(out + c * out_stride, _mm256_permute2f128_ps(a, b, 0x20));
        _mm256_storeu_ps(out + (4 + c) * out_stride, _mm256_permute2f128_ps(a, b, 0x31));
    }
}

}  // namespace forge::simd_avx2
