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
        if constexpr (kind == CodeKind::nibbles_1 || kind == CodeKind::pairs_1) {
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

// Six bits: the bf16 word 0x4300 + q is 128 + q, so that a code needs no table, only its place in a word. What is too
// much, 128 + zero point, is taken off at once for a group (TileReader: `shift` times the sum of x).
template <>
struct TileWordPath<CodeKind::nibbles_2> {
    using X = bf16;
    static constexpr CodeKind code_kind = CodeKind::nibbles_2;
    static constexpr bool tiled = true;
    static constexpr int chunk = tile_chunk(code_kind), half = chunk / 2;
    float shift;
    explicit TileWordPath(const WeightFormat& format) : shift(128.0f + format.zero) {}

    struct Block {
        __m512i line[3];
    };
    static FORGE_INLINE Block load(const UnitCodes& unit, std::int64_t c) {
        const std::uint8_t* at = unit.low + c * 192;
        return {{load_codes(at), load_codes(at + 64), load_codes(at + 128)}};
    }
    template <int code>
    static FORGE_INLINE __m512i words(const Block& b) {
        const __m512i base = _mm512_set1_epi16(0x4300);
        if constexpr (code < 6) {
            const __m512i q = shift_words<code % 2 * 6>(b.line[code / 2]);
            return _mm512_ternarylogic_epi32(q, _mm512_set1_epi16(0x3f), base, 0xea);   // (q & mask) | base
        } else {
            const __m512i low = code == 6 ? shift_words<12>(b.line[0]) : shift_words<14>(b.line[1]);
            const __m512i high = code == 6 ? shift_words<8>(b.line[1]) : shift_words<10>(b.line[2]);
            const __m512i mask = _mm512_set1_epi16(code == 6 ? 0x30 : 0x3c);
            return _mm512_or_si512(_mm512_ternarylogic_epi32(low, high, mask, 0xf8), base);   // low | (high & mask)
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
            unroll<R>([&](auto r) __attribute__((always_inline)) {
                const __m512i w = words<j>(codes[r]);
                unroll<M>([&](auto m) __attribute__((always_inline)) { d[r][m][j % 2] = dot_words(d[r][m][j % 2], w, xs[m]); });
            });
        });
    }
    static void arrange(const float* natural, std::int64_t columns, bf16* out) { arrange_pairs<chunk>(natural, columns, out); }
};

template <CodeKind kind>
requires(!is_dense(kind) && kind != CodeKind::bytes_e4m3) struct TilePathFor<bf16, kind> {
    using type = TileWordPath<kind>;
};

}  // namespace forge::FORGE_SIMD
