#include "quant/tiles.h"

#include <algorithm>
#include <cstring>

#include "tile_rows.h"

namespace forge {
namespace {

using namespace tile;
using Rows = TileRows<const std::byte>;

// `count` elements of `bytes` bytes of each row, element by element.
void interleave(const Rows& rows, std::int64_t count, std::size_t bytes, std::byte* out) {
    for (int i = 0; i < kTiledRows; ++i) {
        if (!rows.at[i]) continue;
        const std::byte* from = rows.at[i];
        std::byte* to = out + static_cast<std::size_t>(i) * bytes;
        for (std::int64_t e = 0; e < count; ++e, from += bytes, to += kTiledRows * bytes)
            std::memcpy(to, from, bytes);
    }
}

// Codes' low bits: whole words, and the bytes of a last one that ends inside it.
void write_low(const Rows& rows, std::int64_t bytes, std::byte* out) {
    interleave(rows, bytes / 4, 4, out);
    const std::size_t whole = static_cast<std::size_t>(bytes / 4 * 4), rest = static_cast<std::size_t>(bytes % 4);
    if (rest == 0) return;
    for (int i = 0; i < kTiledRows; ++i)
        if (rows.at[i]) std::memcpy(out + whole * kTiledRows + 4 * i, rows.at[i] + whole, rest);
}

// Masks of the planes (bit w of mask j: element chunk / 2 * w + j) to masks of the tile.
void write_masks(const Rows& rows, std::int64_t columns, int chunk, std::byte* out) {
    const int masks = chunk / 2;             // of a chunk, and of a block of the plane
    const std::int64_t block = 32 * masks;   // columns whose bits the masks of the plane hold
    for (std::int64_t b = 0; b * block < columns; ++b)
        for (int j = 0; j < masks; ++j) {
            std::uint32_t of_row[kTiledRows];
            for (int i = 0; i < kTiledRows; ++i)
                of_row[i] = rows.at[i] ? load_u32(rows.at[i] + (b * masks + j) * 4) : 0;
            const std::int64_t chunks = std::min<std::int64_t>(16, ceil_div(columns - b * block, chunk));
            for (std::int64_t c = 0; c < chunks; ++c) {
                std::uint32_t mask = 0;
                for (int i = 0; i < kTiledRows; ++i) mask |= ((of_row[i] >> (2 * c)) & 3) << (2 * i);
                store_u32(out + ((b * 16 + c) * masks + j) * 4, mask);
            }
        }
}

// Codes of 5 and 6 bits from their planes. High bits: of 5, four masks for 128 columns, bit w of mask j is of element
// 4w + j; of 6, the byte 2w + h of a block of 256 columns has those of elements 128h + 4w and three more.
void write_whole(const Rows& low, const Rows& high, const TileUnit& unit, std::int64_t columns, std::byte* out) {
    const int bits = unit.low_bits, half = unit.chunk / 2, lines = unit.chunk * bits / 32;
    for (int i = 0; i < kTiledRows; ++i) {
        if (!low.at[i]) continue;
        const auto above = [&](std::int64_t e) {
            if (bits == 5) return load_u32(high.at[i] + e / 128 * 16 + e % 4 * 4) >> (e % 128 / 4) & 1;
            return std::to_integer<unsigned>(high.at[i][2 * (e % 128 / 4) + e / 128]) >> (2 * (e % 4)) & 3;
        };
        for (std::int64_t chunk = 0; chunk * unit.chunk < columns; ++chunk)
            for (int h = 0; h < 2; ++h) {
                unsigned codes[16] = {};
                for (int j = 0; j < half; ++j) {
                    const std::int64_t e = chunk * unit.chunk + h * half + j;
                    if (e < columns) codes[j] = (std::to_integer<unsigned>(low.at[i][e / 2]) >> (4 * (e % 2)) & 15) | above(e) << 4;
                }
                std::uint16_t words[5];
                pack_codes(bits, codes, words);
                for (int line = 0; line < lines; ++line)
                    std::memcpy(out + ((chunk * lines + line) * kTiledRows + i) * 4 + 2 * h, &words[line], 2);
            }
    }
}

std::size_t to_line(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

int low_bits_of(const WeightFormat& format) { return format.bits <= 3 ? 2 : format.bits <= 6 ? format.bits : 8; }

}  // namespace

void pack_codes(int bits, const unsigned* codes, std::uint16_t* words) {
    const int whole = bits == 5 ? 3 : 2, lines = bits == 5 ? 5 : 3;   // codes of a line
    const unsigned six[3] = {codes[6] & 15, codes[6] >> 4 | (codes[7] & 3) << 2, codes[7] >> 2};
    for (int line = 0; line < lines; ++line) {
        unsigned word = bits == 5 ? (codes[15] >> line & 1) << 15 : six[line] << 12;
        for (int j = 0; j < whole; ++j) word |= codes[line * whole + j] << (bits * j);
        words[line] = static_cast<std::uint16_t>(word);
    }
}

unsigned packed_code(int bits, const std::uint16_t* words, int code) {
    if (bits == 5) {
        if (code < 15) return words[code / 3] >> (5 * (code % 3)) & 31;
        unsigned last = 0;
        for (int line = 0; line < 5; ++line) last |= static_cast<unsigned>(words[line]) >> 15 << line;
        return last;
    }
    if (code < 6) return words[code / 2] >> (6 * (code % 2)) & 63;
    const unsigned middle = words[1] >> 12;
    return code == 6 ? words[0] >> 12 | (middle & 3) << 4 : middle >> 2 | words[2] >> 12 << 2;
}

bool can_tile(const WeightFormat& format) {
    if (format.is_dense()) return false;
    return format.packing != Packing::stream || format.bits == 2 || format.bits == 4 || format.bits == 8;
}

TileUnit tile_unit(const WeightFormat& format, std::int64_t columns) {
    TileUnit unit{};
    unit.low_bits = low_bits_of(format);
    unit.chunk = unit.low_bits == 5 ? 32 : unit.low_bits == 6 ? 16 : 32 / unit.low_bits;
    const std::size_t groups = static_cast<std::size_t>(ceil_div(columns, format.group));
    unit.scale_bytes = scale_bytes(format.scale);
    std::size_t at = groups * unit.scale_bytes * kTiledRows;
    unit.offsets = at;
    if (format.offset == OffsetKind::bias || format.offset == OffsetKind::sub_u8)
        at += groups * unit.scale_bytes * kTiledRows;
    unit.super_scales = at;
    if (format.scale == ScaleKind::sub_u8 || format.scale == ScaleKind::sub_i8 || format.scale == ScaleKind::sub_u4)
        at += 2 * kTiledRows;
    unit.super_mins = at;
    if (format.offset == OffsetKind::sub_u8 || format.offset == OffsetKind::sub_u4) at += 2 * kTiledRows;
    unit.low = at = to_line(at);
    const auto chunks = static_cast<std::size_t>(ceil_div(columns, unit.chunk));
    at += chunks * static_cast<std::size_t>(unit.chunk * unit.low_bits / 8) * kTiledRows;
    unit.high = at;
    if (format.bits - unit.low_bits == 1) at += chunks * 2 * static_cast<std::size_t>(unit.chunk);
    unit.bytes = to_line(at);
    return unit;
}

std::size_t tile_bytes(const WeightFormat& format, std::int64_t columns) {
    const std::size_t whole = static_cast<std::size_t>(columns / kUnitColumns) * tile_unit(format, kUnitColumns).bytes;
    return whole + (columns % kUnitColumns ? tile_unit(format, columns % kUnitColumns).bytes : 0);
}

void write_tile(const Weight& w, std::int64_t first, std::byte* tile) {
    const WeightFormat& format = w.format;
    std::memset(tile, 0, tile_bytes(format, w.cols));
    for (std::int64_t column = 0; column < w.cols; column += kUnitColumns) {
        const std::int64_t columns = std::min<std::int64_t>(kUnitColumns, w.cols - column);
        const TileUnit unit = tile_unit(format, columns);
        const std::int64_t groups = ceil_div(columns, format.group);
        const auto rows = [&](const Plane& plane, std::int64_t from) {
            return Rows(plane, first, w.rows, from);
        };
        if (unit.low_bits == 5 || unit.low_bits == 6)
            write_whole(rows(w.codes, column / 2), rows(w.codes_high, column * (unit.low_bits - 4) / 8), unit, columns, tile + unit.low);
        else
            write_low(rows(w.codes, column * unit.low_bits / 8), ceil_div(columns * unit.low_bits, 8), tile + unit.low);
        if (format.bits - unit.low_bits == 1)
            write_masks(rows(w.codes_high, column / 8), columns, unit.chunk, tile + unit.high);
        const std::int64_t scale_at = column / format.group * static_cast<std::int64_t>(unit.scale_bytes);
        interleave(rows(w.scales, scale_at), groups, unit.scale_bytes, tile);
        if (unit.super_scales > unit.offsets)
            interleave(rows(w.offsets, scale_at), groups, unit.scale_bytes, tile + unit.offsets);
        if (unit.super_mins > unit.super_scales)
            interleave(rows(w.super_scales, column / 128), 1, 2, tile + unit.super_scales);
        if (w.super_mins.data) interleave(rows(w.super_mins, column / 128), 1, 2, tile + unit.super_mins);
        tile += unit.bytes;
    }
}

}  // namespace forge
