// Codes of sixteen rows of a tiled weight (quant/tiles.h) as floats: a vector holds one column's
// codes of kLanes rows, so that it meets one element of x in all lanes.
#pragma once

#include "matmul/codec.h"
#include "quant/tiles.h"

namespace forge::FORGE_SIMD {

inline constexpr int kParts = kTiledRows / kLanes;  // vectors of a column

// Columns whose codes lie together, and the lines of 64 bytes that they take.
constexpr int tile_chunk(CodeKind kind) {
    return kind == CodeKind::nibbles_1 ? 32 : kind == CodeKind::nibbles_2 ? 16 : 32 / code_bits(kind);
}
constexpr int tile_lines(CodeKind kind) { return kind == CodeKind::nibbles_1 ? 5 : kind == CodeKind::nibbles_2 ? 3 : 1; }

// A unit as the codecs read it: where its codes are, from this vector's first row on.
struct UnitCodes {
    const std::uint8_t* low;
    const std::uint8_t* high;  // of the unit, all rows
};
FORGE_INLINE U32 tile_low(const UnitCodes& unit, std::int64_t chunk) {
    return load_ints(unit.low + chunk * 4 * kTiledRows);
}

// A u32 of codes means the same in a tile as in a row, so value<e>(block), element e of the chunk for each
// row, is the row codec's; only where a block is found differs. `part`: which kLanes rows of the tile.
template <CodeKind kind>
struct TileCodec : Codec<kind> {
    using Codec<kind>::Codec;
    using Block = typename Codec<kind>::Block;
    static FORGE_INLINE Block load(const UnitCodes& unit, std::int64_t chunk, int part) {
        const U32 low = tile_low(unit, chunk);
        if constexpr (kind == CodeKind::pairs_1) {
            const U32 row = lane_index() + set1(static_cast<std::uint32_t>(part * kLanes));
            return {low, unit.high + chunk * (tile_chunk(kind) / 2) * 4, row + row};
        } else {
            return low;
        }
    }
};

// Five and six bits lie whole, otherwise than in a row.
template <CodeKind kind>
struct WholeTileCodec {
    static constexpr int lines = tile_lines(kind);
    struct Block {
        U32 line[lines];
    };
    F32 zero_point;
    explicit WholeTileCodec(const WeightFormat& format) : zero_point(set1(static_cast<float>(format.zero))) {}
    static FORGE_INLINE Block load(const UnitCodes& unit, std::int64_t chunk, int) {
        Block block;
        unroll<lines>([&](auto l) __attribute__((always_inline)) { block.line[l] = tile_low(unit, lines * chunk + l); });
        return block;
    }
    // `count` bits of a line from bit `from` on.
    template <int from, int count>
    static FORGE_INLINE U32 bits(U32 line) {
        return shift_right<from>(line) & set1((std::uint32_t{1} << count) - 1);
    }
    template <int e>
    FORGE_INLINE F32 value(const Block& b) const {
        constexpr int half = tile_chunk(kind) / 2, from = e / half * 16, code = e % half;
        U32 q;
        if constexpr (kind == CodeKind::nibbles_1 && code < 15) {
            q = bits<from + code % 3 * 5, 5>(b.line[code / 3]);
        } else if constexpr (kind == CodeKind::nibbles_1) {
            q = bits<from + 15, 1>(b.line[0]) | shift_left<1>(bits<from + 15, 1>(b.line[1])) | shift_left<2>(bits<from + 15, 1>(b.line[2])) |
                shift_left<3>(bits<from + 15, 1>(b.line[3])) | shift_left<4>(bits<from + 15, 1>(b.line[4]));
        } else if constexpr (code < 6) {
            q = bits<from + code % 2 * 6, 6>(b.line[code / 2]);
        } else if constexpr (code == 6) {
            q = bits<from + 12, 4>(b.line[0]) | shift_left<4>(bits<from + 12, 2>(b.line[1]));
        } else {
            q = bits<from + 14, 2>(b.line[1]) | shift_left<2>(bits<from + 12, 4>(b.line[2]));
        }
        return to_float(q) - zero_point;
    }
};
template <>
struct TileCodec<CodeKind::nibbles_1> : WholeTileCodec<CodeKind::nibbles_1> {
    using WholeTileCodec::WholeTileCodec;
};
template <>
struct TileCodec<CodeKind::nibbles_2> : WholeTileCodec<CodeKind::nibbles_2> {
    using WholeTileCodec::WholeTileCodec;
};

// Scales and offsets of a unit's groups for kLanes rows: [group][kLanes]; offsets only where the format
// has them. `unit` points at the unit, `rows` says which part of it.
inline void load_unit_scales(const WeightFormat& format, const TileUnit& at, const std::uint8_t* unit, int part,
                             int groups, float* scales, float* offsets) {
    const int row = part * kLanes;
    const std::uint8_t* s = unit + static_cast<std::size_t>(row) * at.scale_bytes;
    const std::uint8_t* o = unit + at.offsets + static_cast<std::size_t>(row) * at.scale_bytes;
    const auto halves = [&](std::size_t from) __attribute__((always_inline)) {
        return load(reinterpret_cast<const f16*>(unit + from) + row);
    };
    const auto each = [&](auto&& scale) __attribute__((always_inline)) {
        for (int g = 0; g < groups; ++g) store(scales + g * kLanes, scale(s + g * kTiledRows));
    };
    const auto copy = [&](const std::uint8_t* from, float* to) __attribute__((always_inline)) {
        for (int g = 0; g < groups; ++g) {
            const int e = g * kTiledRows;
            store(to + g * kLanes, format.scale == ScaleKind::f16    ? load(reinterpret_cast<const f16*>(from) + e)
                                   : format.scale == ScaleKind::bf16 ? load(reinterpret_cast<const bf16*>(from) + e)
                                                                     : load(reinterpret_cast<const float*>(from) + e));
        }
    };
    switch (format.scale) {
        case ScaleKind::f16:
        case ScaleKind::bf16:
        case ScaleKind::f32:
            copy(s, scales);
            if (format.offset == OffsetKind::bias) copy(o, offsets);
            break;
        case ScaleKind::sub_u8: {
            const F32 super = halves(at.super_scales);
            each([&](const std::uint8_t* p) { return super * to_float(load_bytes(p, kLanes)); });
            break;
        }
        case ScaleKind::sub_i8: {
            const F32 super = halves(at.super_scales);
            each([&](const std::uint8_t* p) { return super * load_i8(p, kLanes); });
            break;
        }
        case ScaleKind::sub_u4: {
            const F32 super = halves(at.super_scales);
            each([&](const std::uint8_t* p) {
                return super * to_float(load_bytes(p, kLanes) & set1(std::uint32_t{15}));
            });
            break;
        }
        case ScaleKind::e8m0:
            each([&](const std::uint8_t* p) {
                return scale_by_power(set1(1.0f), to_float(load_bytes(p, kLanes)) - set1(127.0f));
            });
            break;
        case ScaleKind::ue4m3:
            each([&](const std::uint8_t* p) { return ue4m3(load_bytes(p, kLanes)); });
            break;
        case ScaleKind::none:
            break;
    }
    if (format.offset == OffsetKind::sub_u8) {
        const F32 super = halves(at.super_mins);
        for (int g = 0; g < groups; ++g)
            store(offsets + g * kLanes, super * (zero() - to_float(load_bytes(o + g * kTiledRows, kLanes))));
    } else if (format.offset == OffsetKind::sub_u4) {
        const F32 super = halves(at.super_mins);
        for (int g = 0; g < groups; ++g)
            store(offsets + g * kLanes,
                  super * (zero() - to_float(shift_right<4>(load_bytes(s + g * kTiledRows, kLanes)))));
    }
}

}  // namespace forge::FORGE_SIMD
