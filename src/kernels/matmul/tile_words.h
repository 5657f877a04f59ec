// The AVX-512 way of multiplying tiled codes with bf16: as in bf16_path.h, codes become bf16 words by
// table and pairs of words are summed by vdpbf16ps. The u32 of a row's codes is two words, so a pair is
// elements j and j + chunk / 2 of a chunk, and x lies as such pairs.
#pragma once

#include "matmul/bf16_path.h"
#include "matmul/tiled.h"

namespace forge::FORGE_SIMD {

// x as pairs of columns j and j + chunk / 2 of a chunk, sixteen pairs from 32 columns at a time; `natural` holds
// values of bf16.
template <int chunk>
void arrange_pairs(const float* natural, std::int64_t columns, bf16* out) {
    constexpr int half = chunk / 2;
    alignas(64) std::int32_t first[16];
    for (int i = 0; i < 16; ++i) first[i] = i / half * chunk + i % half;
    const __m512i low = _mm512_load_si512(first), high = _mm512_add_epi32(low, _mm512_set1_epi32(half));
    const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
    for (std::int64_t i = 0; i < columns; i += 32) {
        const __m512i a = _mm512_loadu_si512(natural + i), b = _mm512_loadu_si512(natural + i + 16);
        const __m512i l = _mm512_srli_epi32(_mm512_permutex2var_epi32(a, low, b), 16);
        const __m512i h = _mm512_and_si512(_mm512_permutex2var_epi32(a, high, b), upper);
        _mm512_storeu_si512(out + i, _mm512_or_si512(l, h));
    }
}

// The words of a block are those of the row's path (WordPath); only where a block is found differs.
template <CodeKind kind>
struct TileWordPath {
    using X = bf16;
    using Rows = WordPath<kind>;
    using Block = typename Rows::Block;
    static constexpr CodeKind code_kind = kind;
    static constexpr bool tiled = true;
    static constexpr int chunk = tile_chunk(kind), half = chunk / 2;
    Rows rows;
    static constexpr float shift = 0;
    explicit TileWordPath(const WeightFormat& format) : rows(format) {}

    static FORGE_INLINE Block load(const UnitCodes& unit, std::int64_t c) {
        const __m512i codes = load_codes(unit.low + c * 64);
        if constexpr (kind == CodeKind::pairs_1) {
            return {codes, unit.high + c * half * 4};
        } else {
            return codes;
        }
    }

    template <int R, int M>
    FORGE_INLINE void dot(const UnitCodes (&units)[R], const int (&)[R], std::int64_t c, const bf16* const (&x)[M],
                          F32 (&d)[R][M][2]) const {
        Block codes[R];
        unroll<R>([&](auto r) __attribute__((always_inline)) { codes[r] = load(units[r], c); });
        unroll<half>([&](auto j) __attribute__((always_inline)) {
            __m512i xs[M];
            unroll<M>([&](auto m) __attribute__((always_inline)) {
                std::int32_t pair;
                std::memcpy(&pair, x[m] + c * chunk + 2 * j, sizeof pair);
                xs[m] = _mm512_set1_epi32(pair);
            });
            unroll<Rows::parts>([&](auto part) __attribute__((always_inline)) {
                unroll<R>([&](auto r) __attribute__((always_inline)) {
                    const __m512i words = rows.template words<j, part>(codes[r]);
                    unroll<M>([&](auto m) __attribute__((always_inline)) {
                        d[r][m][j % 2] = dot_words(d[r][m][j % 2], words, xs[m]);
                    });
                });
            });
        });
    }
    static void arrange(const float* natural, std::int64_t columns, bf16* out) { arrange_pairs<chunk>(natural, columns, out); }
};

// Five and six bits: the bf16 word 0x4300 + q is 128 + q, so that a code needs no table, only its place in a word.
// What is too much, 128 + zero point, is taken off at once for a group (`shift`, see tiled.h). A line is in registers
// only while its codes are used; `left` gathers the codes that lie in several lines.
template <CodeKind kind>
struct WholeWordPath {
    using X = bf16;
    static constexpr CodeKind code_kind = kind;
    static constexpr bool tiled = true;
    static constexpr int chunk = tile_chunk(kind), half = chunk / 2, lines = tile_lines(kind);
    static constexpr int bits = kind == CodeKind::nibbles_1 ? 5 : 6, whole = 16 / bits;   // codes whole in a line
    static constexpr int rest = half - lines * whole;                                     // codes in several lines
    float shift;
    explicit WholeWordPath(const WeightFormat& format) : shift(128.0f + format.zero) {}

    // (q & mask) | base, and low | (high & mask)
    static FORGE_INLINE __m512i mask_or(__m512i q, __m512i mask, __m512i base) { return _mm512_ternarylogic_epi32(q, mask, base, 0xea); }
    static FORGE_INLINE __m512i or_masked(__m512i low, __m512i high, int mask) {
        return _mm512_ternarylogic_epi32(low, high, _mm512_set1_epi16(static_cast<short>(mask)), 0xf8);
    }
    // Adds what line l has of the codes in several lines.
    template <int l>
    static FORGE_INLINE void gather(__m512i line, __m512i (&left)[rest]) {
        if constexpr (bits == 5) {
            if constexpr (l == 0) left[0] = shift_words<15>(line);
            else left[0] = or_masked(left[0], shift_words<15 - l>(line), 1 << l);
        } else if constexpr (l == 0) {
            left[0] = shift_words<12>(line);
        } else if constexpr (l == 1) {
            left[0] = or_masked(left[0], shift_words<8>(line), 0x30);
            left[rest - 1] = shift_words<14>(line);
        } else {
            left[rest - 1] = or_masked(left[rest - 1], shift_words<10>(line), 0x3c);
        }
    }

    template <int R, int M>
    FORGE_INLINE void dot(const UnitCodes (&units)[R], const int (&)[R], std::int64_t c, const bf16* const (&x)[M],
                          F32 (&d)[R][M][2]) const {
        const __m512i mask = _mm512_set1_epi16((1 << bits) - 1), base = _mm512_set1_epi16(0x4300);
        const auto multiply = [&](auto j, const __m512i (&words)[R]) __attribute__((always_inline)) {
            unroll<M>([&](auto m) __attribute__((always_inline)) {
                std::int32_t pair;
                std::memcpy(&pair, x[m] + c * chunk + 2 * j, sizeof pair);
                const __m512i xs = _mm512_set1_epi32(pair);
                unroll<R>([&](auto r) __attribute__((always_inline)) { d[r][m][j % 2] = dot_words(d[r][m][j % 2], words[r], xs); });
            });
        };
        __m512i left[R][rest], words[R];
        unroll<lines>([&](auto l) __attribute__((always_inline)) {
            __m512i line[R];
            unroll<R>([&](auto r) __attribute__((always_inline)) {
                line[r] = load_codes(units[r].low + (c * lines + l) * 64);
                gather<l>(line[r], left[r]);
            });
            unroll<whole>([&](auto i) __attribute__((always_inline)) {
                unroll<R>([&](auto r) __attribute__((always_inline)) { words[r] = mask_or(shift_words<bits * i>(line[r]), mask, base); });
                multiply(std::integral_constant<int, l * whole + i>{}, words);
            });
        });
        unroll<rest>([&](auto i) __attribute__((always_inline)) {
            unroll<R>([&](auto r) __attribute__((always_inline)) { words[r] = _mm512_or_si512(left[r][i], base); });
            multiply(std::integral_constant<int, lines * whole + i>{}, words);
        });
    }
    static void arrange(const float* natural, std::int64_t columns, bf16* out) { arrange_pairs<chunk>(natural, columns, out); }
};
template <>
struct TileWordPath<CodeKind::nibbles_1> : WholeWordPath<CodeKind::nibbles_1> {
    using WholeWordPath::WholeWordPath;
};
template <>
struct TileWordPath<CodeKind::nibbles_2> : WholeWordPath<CodeKind::nibbles_2> {
    using WholeWordPath::WholeWordPath;
};

template <CodeKind kind>
requires(!is_dense(kind) && kind != CodeKind::bytes_e4m3) struct TilePathFor<bf16, kind> {
    using type = TileWordPath<kind>;
};

}  // namespace forge::FORGE_SIMD
