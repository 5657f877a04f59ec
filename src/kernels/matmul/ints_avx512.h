// AVX-512: included by ints.h only.
#pragma once

namespace forge::simd_avx512 {

struct U32 {
    __m512i v;
};

FORGE_INLINE U32 set1(std::uint32_t x) { return {_mm512_set1_epi32(static_cast<int>(x))}; }
FORGE_INLINE U32 load_ints(const void* p) { return {_mm512_loadu_si512(p)}; }
FORGE_INLINE U32 load_ints(const void* p, int bytes) {
    return {_mm512_maskz_loadu_epi8(bytes >= 64 ? ~0ull : (1ull << bytes) - 1, p)};
}
FORGE_INLINE U32 lane_index() {
    return {_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)};
}
FORGE_INLINE U32 operator+(U32 a, U32 b) { return {_mm512_add_epi32(a.v, b.v)}; }
FORGE_INLINE U32 operator&(U32 a, U32 b) { return {_mm512_and_si512(a.v, b.v)}; }
FORGE_INLINE U32 operator|(U32 a, U32 b) { return {_mm512_or_si512(a.v, b.v)}; }
template <int n>
FORGE_INLINE U32 shift_right(U32 a) {
    return {_mm512_srli_epi32(a.v, n)};
}
template <int n>
FORGE_INLINE U32 shift_left(U32 a) {
    return {_mm512_slli_epi32(a.v, n)};
}
FORGE_INLINE U32 operator>>(U32 a, U32 n) { return {_mm512_srlv_epi32(a.v, n.v)}; }
FORGE_INLINE F32 to_float(U32 a) { return {_mm512_cvtepi32_ps(a.v)}; }  // values below 2^31
FORGE_INLINE F32 as_float(U32 a) { return {_mm512_castsi512_ps(a.v)}; }
FORGE_INLINE U32 load_bytes(const std::uint8_t* p, int n) {
    if (n == 16) return {_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
    return {_mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(first_lanes(n).v, p))};
}
FORGE_INLINE F32 load_i8(const std::uint8_t* p, int n) {
    if (n == 16)
        return {
            _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))))};
    return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(first_lanes(n).v, p)))};
}
FORGE_INLINE F32 broadcast(const f16* p) {
    return {_mm512_cvtph_ps(_mm256_set1_epi16(static_cast<short>(p->bits)))};
}

struct Table {
    __m512 values;
};
FORGE_INLINE Table load_table(const float* sixteen) { return {_mm512_loadu_ps(sixteen)}; }
FORGE_INLINE F32 lookup(const Table& t, U32 index) { return {_mm512_permutexvar_ps(index.v, t.values)}; }
FORGE_INLINE F32 permute(F32 x, U32 index) { return {_mm512_permutexvar_ps(index.v, x.v)}; }
FORGE_INLINE void unzip(F32 a, F32 b, F32& even, F32& odd) {
    const __m512i index = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    even = {_mm512_permutex2var_ps(a.v, index, b.v)};
    odd = {_mm512_permutex2var_ps(a.v, _mm512_add_epi32(index, _mm512_set1_epi32(1)), b.v)};
}

// out[j][i] = in[i][j] for 16 x 16 words of 32 bits; strides in words.
FORGE_INLINE void transpose(const float* in, std::ptrdiff_t in_stride, float* out,
                            std::ptrdiff_t out_stride) {
    __m512 r[16], t[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) r[i] = _mm512_loadu_ps(in + i * in_stride);
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {  // pairs of rows
        t[2 * i] = _mm512_unpacklo_ps(r[2 * i], r[2 * i + 1]);
        t[2 * i + 1] = _mm512_unpackhi_ps(r[2 * i], r[2 * i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {  // fours: r[4i + c] holds column c of each 128-bit lane
        const auto d = [&](int k) { return _mm512_castps_pd(t[4 * i + k]); };
        r[4 * i] = _mm512_castpd_ps(_mm512_unpacklo_pd(d(0), d(2)));
        r[4 * i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(d(0), d(2)));
        r[4 * i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(d(1), d(3)));
        r[4 * i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(d(1), d(3)));
    }
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) {
        const __m512 a = _mm512_shuffle_f32x4(r[c], r[4 + c], 0x88),
                     b = _mm512_shuffle_f32x4(r[8 + c], r[12 + c], 0x88);
        const __m512 e = _mm512_shuffle_f32x4(r[c], r[4 + c], 0xdd),
                     f = _mm512_shuffle_f32x4(r[8 + c], r[12 + c], 0xdd);
        _mm512_storeu_ps(out + c * out_stride, _mm512_shuffle_f32x4(a, b, 0x88));
        _mm512_storeu_ps(out + (8 + c) * out_stride, _mm512_shuffle_f32x4(a, b, 0xdd));
        _mm512_storeu_ps(out + (4 + c) * out_stride, _mm512_shuffle_f32x4(e, f, 0x88));
        _mm512_storeu_ps(out + (12 + c) * out_stride, _mm512_shuffle_f32x4(e, f, 0xdd));
    }
}

}  // namespace forge::simd_avx512
