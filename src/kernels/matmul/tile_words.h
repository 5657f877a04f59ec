// The AVX-512 way of multiplying tiled codes with bf16: as in bf16_path.h, codes become bf16 words by
// table and pairs of words are summed by vdpbf16ps. The u32 of a row's codes is two words, so a pair is
// elements j and j + chunk / 2 of a chunk, and x lies as such pairs.
#pragma once

#include "matmul/bf16_path.h"
#include "matmul/tiled.h"

namespace forge::FORGE_SIMD {

template <CodeKind kind, typename Derived>
struct TileWordBase {
    using X = bf16;
    static constexpr CodeKind code_kind = kind;
    static constexpr bool tiled = true;
    static constexpr int chunk = tile_chunk(kind), half = chunk / 2;

    template <int R, int M>
    FORGE_INLINE void dot(const UnitCodes (&units)[R], const int (&)[R], std::int64_t c, const bf16* const (&x)[M],
                          F32 (&d)[R][M][2]) const {
        const Derived& self = static_cast<const Derived&>(*this);
        typename Derived::Block codes[R];
        unroll<R>([&](auto r) __attribute__((always_inline)) { codes[r] = Derived::load(units[r], c); });
        unroll<half>([&](auto j) __attribute__((always_inline)) {
            __m512i xs[M];
            unroll<M>([&](auto m) __attribute__((always_inline)) {
                std::int32_t pair;
                std::memcpy(&pair, x[m] + c * chunk + 2 * j, sizeof pair);
                xs[m] = _mm512_set1_epi32(pair);
            });
            unroll<Derived::parts>([&](auto part) __attribute__((always_inline)) {
                unroll<R>([&](auto r) __attribute__((always_inline)) {
                    const __m512i words = self.template words<j, part>(codes[r]);
                    unroll<M>([&](auto m) __attribute__((always_inline)) {
                        d[r][m][j % 2] = dot_words(d[r][m][j % 2], words, xs[m]);
                    });
                });
            });
        });
    }
    // Sixteen pairs from 32 columns at a time; `natural` holds values of bf16.
    static void arrange(const float* natural, std::int64_t columns, bf16* out) {
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
};

FORGE_INLINE __m512i tile_codes(const UnitCodes& unit, std::int64_t c) { return load_codes(unit.low + c * 64); }

template <CodeKind kind>
struct TileWordPath;

template <CodeKind kind, int bits>
struct TileWordTable : TileWordBase<kind, TileWordTable<kind, bits>> {
    static constexpr int parts = 1;
    __m512i table;
    explicit TileWordTable(const WeightFormat& format) : table(WordPath<kind>(format).table) {}
    using Block = __m512i;
    static FORGE_INLINE Block load(const UnitCodes& unit, std::int64_t c) { return tile_codes(unit, c); }
    template <int j, int>
    FORGE_INLINE __m512i words(Block codes) const {
        return _mm512_permutexvar_epi16(shift_words<bits * j>(codes), table);
    }
};
template <>
struct TileWordPath<CodeKind::nibbles> : TileWordTable<CodeKind::nibbles, 4> {
    using TileWordTable::TileWordTable;
};
template <>
struct TileWordPath<CodeKind::pairs> : TileWordTable<CodeKind::pairs, 2> {
    using TileWordTable::TileWordTable;
};

template <CodeKind kind, int bits>
struct TileWordMasks : TileWordBase<kind, TileWordMasks<kind, bits>> {
    static constexpr int parts = 1, half = tile_chunk(kind) / 2;
    __m512i low, high;  // of codes without and with the bit above
    explicit TileWordMasks(const WeightFormat& format)
        : low(WordPath<kind>(format).low), high(WordPath<kind>(format).high) {}
    struct Block {
        __m512i codes;
        const std::uint8_t* masks;
    };
    static FORGE_INLINE Block load(const UnitCodes& unit, std::int64_t c) {
        return {tile_codes(unit, c), unit.high + c * half * 4};
    }
    template <int j, int>
    FORGE_INLINE __m512i words(const Block& b) const {
        const __m512i index = shift_words<bits * j>(b.codes);
        return _mm512_mask_permutexvar_epi16(_mm512_permutexvar_epi16(index, low), load_mask(b.masks + 4 * j), index,
                                             high);
    }
};
template <>
struct TileWordPath<CodeKind::nibbles_1> : TileWordMasks<CodeKind::nibbles_1, 4> {
    using TileWordMasks::TileWordMasks;
};
template <>
struct TileWordPath<CodeKind::pairs_1> : TileWordMasks<CodeKind::pairs_1, 2> {
    using TileWordMasks::TileWordMasks;
};

template <>
struct TileWordPath<CodeKind::nibbles_2> : TileWordBase<CodeKind::nibbles_2, TileWordPath<CodeKind::nibbles_2>> {
    static constexpr int parts = 2;
    __m512i low, high;  // of the low four bits and of the two above
    explicit TileWordPath(const WeightFormat& format)
        : low(WordPath<CodeKind::nibbles_2>(format).low), high(WordPath<CodeKind::nibbles_2>(format).high) {}
    struct Block {
        __m512i codes, twos;
    };
    static FORGE_INLINE Block load(const UnitCodes& unit, std::int64_t c) {
        const __m128i shift = _mm_cvtsi32_si128(static_cast<int>(c % 2 * 8));
        return {tile_codes(unit, c), _mm512_srl_epi16(_mm512_loadu_si512(unit.high + c / 2 * 64), shift)};
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
struct TileWordPath<CodeKind::bytes> : TileWordBase<CodeKind::bytes, TileWordPath<CodeKind::bytes>> {
    static constexpr int parts = 2;
    __m512i low, high;  // of a byte's nibbles; their sum is T(code)
    explicit TileWordPath(const WeightFormat& format)
        : low(WordPath<CodeKind::bytes>(format).low), high(WordPath<CodeKind::bytes>(format).high) {}
    using Block = __m512i;
    static FORGE_INLINE Block load(const UnitCodes& unit, std::int64_t c) { return tile_codes(unit, c); }
    template <int j, int part>
    FORGE_INLINE __m512i words(Block codes) const {
        return _mm512_permutexvar_epi16(shift_words<8 * j + 4 * part>(codes), part == 0 ? low : high);
    }
};

template <CodeKind kind>
requires(!is_dense(kind) && kind != CodeKind::bytes_e4m3) struct TilePathFor<bf16, kind> {
    using type = TileWordPath<kind>;
};

}  // namespace forge::FORGE_SIMD
