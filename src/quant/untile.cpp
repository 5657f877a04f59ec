#include "quant/untile.h"

#include <algorithm>
#include <cstring>

#include "tile_rows.h"

namespace forge {
namespace {

using namespace tile;
using Rows = TileRows<std::byte>;

// `count` elements of `bytes` bytes of each row, which lie row after row for each element.
void separate(const std::byte* from, std::int64_t count, std::size_t bytes, const Rows& rows) {
    for (int i = 0; i < kTiledRows; ++i) {
        if (!rows.at[i]) continue;
        const std::byte* in = from + static_cast<std::size_t>(i) * bytes;
        for (std::int64_t e = 0; e < count; ++e, in += kTiledRows * bytes)
            std::memcpy(rows.at[i] + static_cast<std::size_t>(e) * bytes, in, bytes);
    }
}

// Codes' low bits: whole words, and the bytes of a last one that ends inside it.
void read_low(const std::byte* from, std::int64_t bytes, const Rows& rows) {
    separate(from, bytes / 4, 4, rows);
    const std::size_t whole = static_cast<std::size_t>(bytes / 4 * 4), rest = static_cast<std::size_t>(bytes % 4);
    if (rest == 0) return;
    for (int i = 0; i < kTiledRows; ++i)
        if (rows.at[i]) std::memcpy(rows.at[i] + whole, from + whole * kTiledRows + 4 * i, rest);
}

// One bit a code: masks of the tile to masks of the planes.
void read_masks(const std::byte* from, std::int64_t columns, int chunk, const Rows& rows) {
    const int masks = chunk / 2;
    const std::int64_t block = 32 * masks;
    for (std::int64_t b = 0; b * block < columns; ++b)
        for (int j = 0; j < masks; ++j) {
            std::uint32_t of_row[kTiledRows] = {};
            const std::int64_t chunks = std::min<std::int64_t>(16, ceil_div(columns - b * block, chunk));
            for (std::int64_t c = 0; c < chunks; ++c) {
                const std::uint32_t mask = load_u32(from + ((b * 16 + c) * masks + j) * 4);
                for (int i = 0; i < kTiledRows; ++i) of_row[i] |= ((mask >> (2 * i)) & 3) << (2 * c);
            }
            for (int i = 0; i < kTiledRows; ++i)
                if (rows.at[i]) std::memcpy(rows.at[i] + (b * masks + j) * 4, &of_row[i], 4);
        }
}

// Codes of 5 and 6 bits, which lie whole in a tile: nibbles to one plane, the bits above to the other. Of 5 bits bit w
// of mask j of 128 columns is element 4w + j; of 6 the byte 2w + h of 256 columns has elements 128h + 4w and three more.
void read_whole(const std::byte* from, const TileUnit& unit, std::int64_t columns, const Rows& low, const Rows& high) {
    const int bits = unit.low_bits, half = unit.chunk / 2, lines = unit.chunk * bits / 32;
    for (int i = 0; i < kTiledRows; ++i) {
        if (!low.at[i]) continue;
        const std::size_t high_bytes = static_cast<std::size_t>(bits == 5 ? ceil_div(columns, 128) * 16 : ceil_div(columns, 256) * 64);
        std::memset(high.at[i], 0, high_bytes);
        std::uint16_t words[5] = {};
        std::memset(low.at[i], 0, static_cast<std::size_t>(ceil_div(columns, 2)));
        for (std::int64_t e = 0; e < columns; ++e) {
            const std::int64_t chunk = e / unit.chunk, h = e % unit.chunk / half;
            if (e % half == 0) {
                for (int line = 0; line < lines; ++line)
                    std::memcpy(&words[line], from + ((chunk * lines + line) * kTiledRows + i) * 4 + 2 * h, 2);
            }
            const unsigned code = packed_code(bits, words, static_cast<int>(e % half));
            low.at[i][e / 2] |= static_cast<std::byte>((code & 15) << (4 * (e % 2)));
            if (bits == 5) {
                high.at[i][e / 128 * 16 + e % 4 * 4 + e % 128 / 4 / 8] |= static_cast<std::byte>(code >> 4 << (e % 128 / 4 % 8));
            } else {
                high.at[i][2 * (e % 128 / 4) + e / 128] |= static_cast<std::byte>(code >> 4 << (2 * (e % 4)));
            }
        }
    }
}

}  // namespace

void read_tile(const std::byte* tile, std::int64_t first, Weight& w) {
    const WeightFormat& format = w.format;
    for (std::int64_t column = 0; column < w.cols; column += kUnitColumns) {
        const std::int64_t columns = std::min<std::int64_t>(kUnitColumns, w.cols - column);
        const TileUnit unit = tile_unit(format, columns);
        const std::int64_t groups = ceil_div(columns, format.group);
        const auto rows = [&](const Plane& plane, std::int64_t from) { return Rows(plane, first, w.rows, from); };
        if (unit.low_bits == 5 || unit.low_bits == 6) {
            read_whole(tile + unit.low, unit, columns, rows(w.codes, column / 2), rows(w.codes_high, column * (unit.low_bits - 4) / 8));
        } else {
            read_low(tile + unit.low, ceil_div(columns * unit.low_bits, 8), rows(w.codes, column * unit.low_bits / 8));
            if (format.bits > unit.low_bits) read_masks(tile + unit.high, columns, unit.chunk, rows(w.codes_high, column / 8));
        }
        const std::int64_t scale_at = column / format.group * static_cast<std::int64_t>(unit.scale_bytes);
        separate(tile, groups, unit.scale_bytes, rows(w.scales, scale_at));
        if (unit.super_scales > unit.offsets) separate(tile + unit.offsets, groups, unit.scale_bytes, rows(w.offsets, scale_at));
        if (unit.super_mins > unit.super_scales) separate(tile + unit.super_scales, 1, 2, rows(w.super_scales, column / 128));
        if (w.super_mins.data) separate(tile + unit.super_mins, 1, 2, rows(w.super_mins, column / 128));
        tile += unit.bytes;
    }
}

}  // namespace forge
