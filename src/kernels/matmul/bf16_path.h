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

// 32 bf16 words: sixteen floats, each exact in bf16, twice.
FORGE_INLINE __m512i word_table(const float* values) {
    const __m512i words = _mm512_srli_epi32(_mm512_loadu_si512(values), 16);
    return _mm512_broadcast_i64x4(_mm512_cvtepi32_epi16(words));
}
// step * (i % period) + from, as words
FORGE_INLINE __m512i word_table(int period, float step, float from) {
    float values[16];
    for (int i = 0; i < 16; ++i) values[i] = step * static_cast<float>(i & (period - 1)) + from;
    return word_table(values);
}

FORGE_INLINE F32 dot_words(F32 sum, __m512i a, __m512i b) {
    return {_mm512_dpbf16_ps(sum.v, (__m512bh)a, (__m512bh)b)};
}
template <int n>
FORGE_INLINE __m512i shift_words(__m512i v) {
    if constexpr (n == 0)
        return v;
    else
        return _mm512_srli_epi16(v, n);
}
// 64 bytes of codes, in a register: left to itself the compiler loads them again for every shift.
FORGE_INLINE __m512i load_codes(const std::uint8_t* p) {
    __m512i codes = _mm512_loadu_si512(p);
    asm("" : "+v"(codes));
    return codes;
}
FORGE_INLINE __mmask32 load_mask(const std::uint8_t* p) {
    std::uint32_t mask;
    std::memcpy(&mask, p, sizeof mask);
    return mask;
}

// What the paths below have in common. A path says how a block of one row is loaded and
// what the words of step j are; kinds whose codes come in two parts that add up give both.
template <CodeKind kind, typename Derived>
struct WordPathBase {
    using X = bf16;
    static constexpr bool tiled = false;
    static constexpr CodeKind code_kind = kind;
    static constexpr int lane_elements = stride_of(kind);
    static constexpr int block = steps_of(kind) * kLanes;
    static constexpr int steps = block / 32;

    // Rows inside steps: neighbouring instructions belong to different sums.
    template <int R, int M>
    FORGE_INLINE void dot(const RowCodes (&rows)[R], std::int64_t b, const bf16* const (&x)[M],
                          F32 (&d)[R][M]) const {
        const Derived& self = static_cast<const Derived&>(*this);
        typename Derived::Block codes[R];
        unroll<R>([&](auto r) __attribute__((always_inline)) {
            codes[r] = Derived::load(rows[r], b);
            unroll<M>([&](auto m) __attribute__((always_inline)) { d[r][m] = zero(); });
        });
        unroll<steps>([&](auto j) __attribute__((always_inline)) {
            __m512i xs[M];
            unroll<M>([&](auto m) __attribute__((always_inline)) {
                xs[m] = _mm512_loadu_si512(x[m] + b * block + 32 * j);
            });
            unroll<Derived::parts>([&](auto part) __attribute__((always_inline)) {
                unroll<R>([&](auto r) __attribute__((always_inline)) {
                    const __m512i words = self.template words<j, part>(codes[r]);
                    unroll<M>([&](auto m) __attribute__((always_inline)) {
                        d[r][m] = dot_words(d[r][m], words, xs[m]);
                    });
                });
            });
        });
    }
};

template <CodeKind kind>
struct WordPath;

// Pairs of neighbouring columns.
struct DenseWordPath {
    using X = bf16;
    static constexpr bool tiled = false;
    static constexpr CodeKind code_kind = CodeKind::dense_bf16;
    static constexpr int step = 32, step_bytes = 64;
    explicit DenseWordPath(const WeightFormat&) {}
    static FORGE_INLINE __m512i load_x(const X* x) { return _mm512_loadu_si512(x); }
    static FORGE_INLINE __m512i load_weights(const std::uint8_t* at) { return _mm512_loadu_si512(at); }
    static FORGE_INLINE F32 add(F32 sum, __m512i weights, __m512i x) { return dot_words(sum, weights, x); }
};

template <>
struct WordPath<CodeKind::nibbles> : WordPathBase<CodeKind::nibbles, WordPath<CodeKind::nibbles>> {
    static constexpr int parts = 1;
    __m512i table;
    explicit WordPath(const WeightFormat& format) : table(word_table(SmallTable(format).values)) {}
    using Block = __m512i;
    static FORGE_INLINE Block load(RowCodes row, std::int64_t b) { return load_codes(row.low + b * 64); }
    template <int j, int>
    FORGE_INLINE __m512i words(Block codes) const {
        return _mm512_permutexvar_epi16(shift_words<4 * j>(codes), table);
    }
};

// Codes of 5 and 3 bits: low bits by one of two tables, which the mask of high bits chooses.
template <CodeKind kind>
struct MaskedWordPath : WordPathBase<kind, MaskedWordPath<kind>> {
    static constexpr int parts = 1, bits = code_bits(kind), masks = 16 / bits;   // masks of a block
    __m512i low, high;  // of codes without and with the highest bit
    explicit MaskedWordPath(const WeightFormat& format)
        : low(word_table(1 << bits, 1, -format.zero)),
          high(word_table(1 << bits, 1, static_cast<float>(1 << bits) - format.zero)) {}
    struct Block {
        __m512i codes;
        const std::uint8_t* masks;
    };
    static FORGE_INLINE Block load(RowCodes row, std::int64_t b) {
        return {load_codes(row.low + b * 64), row.high + b * 4 * masks};
    }
    template <int j, int>
    FORGE_INLINE __m512i words(const Block& b) const {
        const __m512i index = shift_words<bits * j>(b.codes);
        return _mm512_mask_permutexvar_epi16(_mm512_permutexvar_epi16(index, low), load_mask(b.masks + 4 * j),
                                             index, high);
    }
};
template <>
struct WordPath<CodeKind::nibbles_1> : MaskedWordPath<CodeKind::nibbles_1> {
    using MaskedWordPath::MaskedWordPath;
};
template <>
struct WordPath<CodeKind::pairs_1> : MaskedWordPath<CodeKind::pairs_1> {
    using MaskedWordPath::MaskedWordPath;
};

template <>
struct WordPath<CodeKind::nibbles_2> : WordPathBase<CodeKind::nibbles_2, WordPath<CodeKind::nibbles_2>> {
    static constexpr int parts = 2;
    __m512i low, high;  // of the low four bits and of the two above; their sum is T(code)
    explicit WordPath(const WeightFormat& format)
        : low(word_table(16, 1, 0)), high(word_table(4, 16, -format.zero)) {}
    struct Block {
        __m512i codes, twos;
    };
    static FORGE_INLINE Block load(RowCodes row, std::int64_t b) {
        const __m128i shift = _mm_cvtsi32_si128(static_cast<int>(b % 2 * 8));
        return {load_codes(row.low + b * 64),
                _mm512_srl_epi16(_mm512_loadu_si512(row.high + b / 2 * 64), shift)};
    }
    template <int j, int part>
    FORGE_INLINE __m512i words(const Block& b) const {
        if constexpr (part == 0)
            return _mm512_permutexvar_epi16(shift_words<4 * j>(b.codes), low);
        else
            return _mm512_permutexvar_epi16(shift_words<2 * j>(b.twos), high);
    }
};

template <>
struct WordPath<CodeKind::pairs> : WordPathBase<CodeKind::pairs, WordPath<CodeKind::pairs>> {
    static constexpr int parts = 1;
    __m512i table;
    explicit WordPath(const WeightFormat& format) : table(word_table(4, 1, -format.zero)) {}
    using Block = __m512i;
    static FORGE_INLINE Block load(RowCodes row, std::int64_t b) { return load_codes(row.low + b * 64); }
    template <int j, int>
    FORGE_INLINE __m512i words(Block codes) const {
        return _mm512_permutexvar_epi16(shift_words<2 * j>(codes), table);
    }
};

template <>
struct WordPath<CodeKind::bytes> : WordPathBase<CodeKind::bytes, WordPath<CodeKind::bytes>> {
    static constexpr int parts = 2;
    __m512i low, high;  // of a byte's nibbles; their sum is T(code)
    explicit WordPath(const WeightFormat& format)
        : low(word_table(16, 1, 0)), high(word_table(16, 16, -format.zero)) {}
    using Block = __m512i;
    static FORGE_INLINE Block load(RowCodes row, std::int64_t b) { return load_codes(row.low + b * 64); }
    template <int j, int part>
    FORGE_INLINE __m512i words(Block codes) const {
        return _mm512_permutexvar_epi16(shift_words<8 * j + 4 * part>(codes), part == 0 ? low : high);
    }
};

// Weights whose values are not exact in bf16, and e4m3, are multiplied as floats.
template <CodeKind kind>
requires(kind != CodeKind::dense_f32 && kind != CodeKind::dense_f16 &&
         kind != CodeKind::bytes_e4m3) struct PathFor<bf16, kind> {
    using type = std::conditional_t<is_dense(kind), DenseWordPath, WordPath<kind>>;
};

}  // namespace forge::FORGE_SIMD
