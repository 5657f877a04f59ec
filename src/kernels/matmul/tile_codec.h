// Codes of sixteen rows of a tiled weight (quant/tiles.h) as floats: a vector holds one column's
// codes of kLanes rows, so that it meets one element of x in all lanes.
#pragma once

#include "matmul/codec.h"
#include "quant/tiles.h"

namespace forge::FORGE_SIMD {

inline constexpr int kParts = kTiledRows / kLanes;  // vectors of a column

// Bits of a code below `high`, and how many columns a u32 of them covers.
constexpr int tile_chunk(CodeKind kind) { return 32 / code_bits(kind); }

// A unit as the codecs read it: where its codes are, from this vector's first row on.
struct UnitCodes {
    const std::uint8_t* low;
    const std::uint8_t* high;  // of the unit, all rows
};
FORGE_INLINE U32 tile_low(const UnitCodes& unit, std::int64_t chunk) {
    return load_ints(unit.low + chunk * 4 * kTiledRows);
}

// value<e>(block): element e of the chunk for each row; part: which kLanes rows of the tile.
template <CodeKind kind>
struct TileCodec;

template <CodeKind kind, int bits>
struct TileTable {
    Table table;
    explicit TileTable(const WeightFormat& format) : table(load_table(SmallTable(format).values)) {}
    using Block = U32;
    static FORGE_INLINE Block load(const UnitCodes& unit, std::int64_t chunk, int) { return tile_low(unit, chunk); }
    template <int e>
    FORGE_INLINE F32 value(Block b) const {
        return lookup(table, shift_right<bits * e>(b));
    }
};
template <>
struct TileCodec<CodeKind::nibbles> : TileTable<CodeKind::nibbles, 4> {
    using TileTable::TileTable;
};
template <>
struct TileCodec<CodeKind::pairs> : TileTable<CodeKind::pairs, 2> {
    using TileTable::TileTable;
};

// One bit more, in masks.
template <CodeKind kind, int bits>
struct TileMasks {
    static constexpr int half = tile_chunk(kind) / 2;
    F32 zero_point;
    explicit TileMasks(const WeightFormat& format) : zero_point(set1(static_cast<float>(format.zero))) {}
    struct Block {
        U32 low;
        const std::uint8_t* masks;
        U32 bit;  // of a row's element in the chunk's first half
    };
    static FORGE_INLINE Block load(const UnitCodes& unit, std::int64_t chunk, int part) {
        const U32 row = lane_index() + set1(static_cast<std::uint32_t>(part * kLanes));
        return {tile_low(unit, chunk), unit.high + chunk * half * 4, row + row};
    }
    template <int e>
    FORGE_INLINE F32 value(const Block& b) const {
        const U32 high = mask_bits(b.masks, e % half, e < half ? b.bit : b.bit + set1(std::uint32_t{1}));
        const U32 low = shift_right<bits * e>(b.low) & set1((1u << bits) - 1);
        return to_float(low | shift_left<bits>(high)) - zero_point;
    }
};
template <>
struct TileCodec<CodeKind::nibbles_1> : TileMasks<CodeKind::nibbles_1, 4> {
    using TileMasks::TileMasks;
};
template <>
struct TileCodec<CodeKind::pairs_1> : TileMasks<CodeKind::pairs_1, 2> {
    using TileMasks::TileMasks;
};

template <>
struct TileCodec<CodeKind::nibbles_2> {
    F32 zero_point;
    explicit TileCodec(const WeightFormat& format) : zero_point(set1(static_cast<float>(format.zero))) {}
    struct Block {
        U32 low, high;  // high: bits of the chunk's codes at 0, 2, 4, 6 and 16, 18, 20, 22
    };
    static FORGE_INLINE Block load(const UnitCodes& unit, std::int64_t chunk, int part) {
        const U32 twos = load_ints(unit.high + (chunk / 2 * kTiledRows + part * kLanes) * 4);
        return {tile_low(unit, chunk), twos >> set1(static_cast<std::uint32_t>(chunk % 2 * 8))};
    }
    template <int e>
    FORGE_INLINE F32 value(const Block& b) const {
        const U32 high = shift_right<e / 4 * 16 + e % 4 * 2>(b.high) & set1(std::uint32_t{3});
        return to_float((shift_right<4 * e>(b.low) & set1(std::uint32_t{15})) | shift_left<4>(high)) - zero_point;
    }
};

// Bytes: as in a row, whose codec reads a lane's u32 the same way.
template <CodeKind kind>
struct TileBytes : Codec<kind> {
    using Codec<kind>::Codec;
    using Block = U32;
    static FORGE_INLINE Block load(const UnitCodes& unit, std::int64_t chunk, int) { return tile_low(unit, chunk); }
};
template <>
struct TileCodec<CodeKind::bytes> : TileBytes<CodeKind::bytes> {
    using TileBytes::TileBytes;
};
template <>
struct TileCodec<CodeKind::bytes_e4m3> : TileBytes<CodeKind::bytes_e4m3> {
    using TileBytes::TileBytes;
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
