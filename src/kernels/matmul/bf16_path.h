// The AVX-512 way of multiplying codes with bf16: codes become bf16 words by
// table (vpermw reads the low five bits of each word, so a table of 32 words with
// period 16 or 4 needs no masks) and pairs of words are summed by vdpbf16ps.
// Products are exact and sums f32; subnormal bf16 values count as zero.
//
// x lies as [step][word]: step j of word w is element steps * w + j of the block,
// so that lane i of every sum holds the same elements as in FloatPath.
#pragma once

#include "matmul/matvec.h"

namespace forge::FORGE_SIMD {

// 32 bf16 words: value(i) for i in 0..31, each exact.
template <typename Fn>
FORGE_INLINE __m512i word_table(Fn&& value) {
    alignas(64) std::uint16_t words[32];
    for (int i = 0; i < 32; ++i)
        words[i] =
            static_cast<std::uint16_t>(__builtin_bit_cast(std::uint32_t, static_cast<float>(value(i))) >> 16);
    return _mm512_load_si512(words);
}

FORGE_INLINE F32 dot_words(F32 sum, __m512i a, __m512i b) {
    return {_mm512_dpbf16_ps(sum.v, (__m512bh)a, (__m512bh)b)};
}
template <int M>
FORGE_INLINE void dot_words(F32 (&sums)[M], __m512i words, const bf16* const (&x)[M], std::int64_t at) {
    for (int m = 0; m < M; ++m) sums[m] = dot_words(sums[m], words, _mm512_loadu_si512(x[m] + at));
}
FORGE_INLINE __mmask32 load_mask(const std::uint8_t* p) {
    std::uint32_t mask;
    std::memcpy(&mask, p, sizeof mask);
    return mask;
}

template <CodeKind kind>
struct WordPathBase {
    using X = bf16;
    static constexpr CodeKind code_kind = kind;
    static constexpr bool scaled = !is_dense(kind);
    static constexpr int lane_elements = stride_of(kind);
    static constexpr int block = steps_of(kind) * kLanes;
    static FORGE_INLINE void prefetch_codes(RowCodes row, std::int64_t b) {
        constexpr std::int64_t bytes = static_cast<std::int64_t>(block) * code_bits(kind) / 8;
        for (std::int64_t at = 0; at < bytes; at += 64) prefetch(row.low + b * bytes + at + kAhead);
    }
};

template <CodeKind kind>
struct WordPath;

template <>
struct WordPath<CodeKind::dense_bf16> : WordPathBase<CodeKind::dense_bf16> {
    explicit WordPath(const WeightFormat&) {}
    template <int M>
    FORGE_INLINE void dot(RowCodes row, std::int64_t b, const bf16* const (&x)[M], F32 (&d)[M]) const {
        for (F32& sum : d) sum = zero();
        unroll<4>([&](auto j) __attribute__((always_inline)) {
            dot_words<M>(d, _mm512_loadu_si512(row.low + b * block * 2 + 64 * j), x, b * block + 32 * j);
        });
    }
};

template <>
struct WordPath<CodeKind::nibbles> : WordPathBase<CodeKind::nibbles> {
    __m512i table;
    explicit WordPath(const WeightFormat& format) {
        const SmallTable small(format);
        table = word_table([&](int i) { return small.values[i % 16]; });
    }
    template <int M>
    FORGE_INLINE void dot(RowCodes row, std::int64_t b, const bf16* const (&x)[M], F32 (&d)[M]) const {
        const __m512i codes = _mm512_loadu_si512(row.low + b * 64);
        for (F32& sum : d) sum = zero();
        unroll<4>([&](auto j) __attribute__((always_inline)) {
            dot_words<M>(d, _mm512_permutexvar_epi16(_mm512_srli_epi16(codes, 4 * j), table), x,
                         b * block + 32 * j);
        });
    }
};

template <>
struct WordPath<CodeKind::nibbles_1> : WordPathBase<CodeKind::nibbles_1> {
    __m512i low, high;  // of codes without and with the fifth bit
    explicit WordPath(const WeightFormat& format)
        : low(word_table([&](int i) { return i % 16 - format.zero; })),
          high(word_table([&](int i) { return i % 16 + 16 - format.zero; })) {}
    template <int M>
    FORGE_INLINE void dot(RowCodes row, std::int64_t b, const bf16* const (&x)[M], F32 (&d)[M]) const {
        const __m512i codes = _mm512_loadu_si512(row.low + b * 64);
        for (F32& sum : d) sum = zero();
        unroll<4>([&](auto j) __attribute__((always_inline)) {
            const __m512i index = _mm512_srli_epi16(codes, 4 * j);
            const __m512i words = _mm512_mask_permutexvar_epi16(
                _mm512_permutexvar_epi16(index, low), load_mask(row.high + b * 16 + 4 * j), index, high);
            dot_words<M>(d, words, x, b * block + 32 * j);
        });
    }
};

template <>
struct WordPath<CodeKind::nibbles_2> : WordPathBase<CodeKind::nibbles_2> {
    __m512i low, high;  // of the low four bits and of the two above; their sum is T(code)
    explicit WordPath(const WeightFormat& format)
        : low(word_table([](int i) { return i % 16; })),
          high(word_table([&](int i) { return i % 4 * 16 - format.zero; })) {}
    template <int M>
    FORGE_INLINE void dot(RowCodes row, std::int64_t b, const bf16* const (&x)[M], F32 (&d)[M]) const {
        const __m512i codes = _mm512_loadu_si512(row.low + b * 64);
        const __m512i twos = _mm512_srl_epi16(_mm512_loadu_si512(row.high + b / 2 * 64),
                                              _mm_cvtsi32_si128(static_cast<int>(b % 2 * 8)));
        for (F32& sum : d) sum = zero();
        unroll<4>([&](auto j) __attribute__((always_inline)) {
            dot_words<M>(d, _mm512_permutexvar_epi16(_mm512_srli_epi16(codes, 4 * j), low), x,
                         b * block + 32 * j);
            dot_words<M>(d, _mm512_permutexvar_epi16(_mm512_srli_epi16(twos, 2 * j), high), x,
                         b * block + 32 * j);
        });
    }
};

template <>
struct WordPath<CodeKind::pairs> : WordPathBase<CodeKind::pairs> {
    __m512i table;
    explicit WordPath(const WeightFormat& format)
        : table(word_table([&](int i) { return i % 4 - format.zero; })) {}
    template <int M>
    FORGE_INLINE void dot(RowCodes row, std::int64_t b, const bf16* const (&x)[M], F32 (&d)[M]) const {
        const __m512i codes = _mm512_loadu_si512(row.low + b * 64);
        for (F32& sum : d) sum = zero();
        unroll<8>([&](auto j) __attribute__((always_inline)) {
            dot_words<M>(d, _mm512_permutexvar_epi16(_mm512_srli_epi16(codes, 2 * j), table), x,
                         b * block + 32 * j);
        });
    }
};

template <>
struct WordPath<CodeKind::pairs_1> : WordPathBase<CodeKind::pairs_1> {
    __m512i low, high;
    explicit WordPath(const WeightFormat& format)
        : low(word_table([&](int i) { return i % 4 - format.zero; })),
          high(word_table([&](int i) { return i % 4 + 4 - format.zero; })) {}
    template <int M>
    FORGE_INLINE void dot(RowCodes row, std::int64_t b, const bf16* const (&x)[M], F32 (&d)[M]) const {
        const __m512i codes = _mm512_loadu_si512(row.low + b * 64);
        for (F32& sum : d) sum = zero();
        unroll<8>([&](auto j) __attribute__((always_inline)) {
            const __m512i index = _mm512_srli_epi16(codes, 2 * j);
            const __m512i words = _mm512_mask_permutexvar_epi16(
                _mm512_permutexvar_epi16(index, low), load_mask(row.high + b * 32 + 4 * j), index, high);
            dot_words<M>(d, words, x, b * block + 32 * j);
        });
    }
};

template <>
struct WordPath<CodeKind::bytes> : WordPathBase<CodeKind::bytes> {
    __m512i low, high;  // of a byte's nibbles; their sum is T(code)
    explicit WordPath(const WeightFormat& format)
        : low(word_table([](int i) { return i % 16; })),
          high(word_table([&](int i) { return i % 16 * 16 - format.zero; })) {}
    template <int M>
    FORGE_INLINE void dot(RowCodes row, std::int64_t b, const bf16* const (&x)[M], F32 (&d)[M]) const {
        const __m512i codes = _mm512_loadu_si512(row.low + b * 64);
        for (F32& sum : d) sum = zero();
        unroll<2>([&](auto j) __attribute__((always_inline)) {
            dot_words<M>(d, _mm512_permutexvar_epi16(_mm512_srli_epi16(codes, 8 * j), low), x,
                         b * block + 32 * j);
            dot_words<M>(d, _mm512_permutexvar_epi16(_mm512_srli_epi16(codes, 8 * j + 4), high), x,
                         b * block + 32 * j);
        });
    }
};

// Weights whose values are not exact in bf16, and e4m3, are multiplied as floats.
template <CodeKind kind>
requires(kind != CodeKind::dense_f32 && kind != CodeKind::dense_f16 &&
         kind != CodeKind::bytes_e4m3) struct PathFor<bf16, kind> {
    using type = WordPath<kind>;
};

}  // namespace forge::FORGE_SIMD
