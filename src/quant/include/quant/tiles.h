// Weights in tiles of sixteen rows, for kernels that give each lane of a vector a row: one stream
// holds everything about sixteen rows, no scale is spread over lanes and no sum runs across them.
// Only weights that Forge converts anyway are laid out so; mapped files keep their rows.
//
// A tiled weight has one plane, `codes`: tile t starts at t * stride and holds rows 16t .. 16t + 15
// (rows past the last are zero) as units of 256 columns, the last unit shorter. A unit has what a
// kernel reads in the order in which it is read, each for all sixteen rows:
//
//   scales, offsets   per group one element a row
//   super scales, super minima   one f16 a row, and then padding to 64 bytes
//   low    codes' low bits (2 for 2 and 3 bits, 4 for 4, else 8): a u32 of a row's next
//          `chunk` = 32 / low bits codes, lowest first, then the next row's; then the next chunk
//   high   the bit above (3 bits): per chunk a u32 mask for each j < chunk / 2, whose bit
//          2 * row + h is of the chunk's code j + h * chunk / 2
//
// Codes of 5 and 6 bits lie whole in `low`, as lines with a u32 a row: five lines for a chunk of 32 columns, three for
// one of sixteen. Bits 0-15 of a u32 are of the first half of the chunk's columns, bits 16-31 of the second, so that
// both make a pair of words. What a line does not hold whole are the half's last codes:
//
//   5 bits   line l has codes 3l, 3l + 1, 3l + 2 in bits 0-4, 5-9, 10-14, and in bit 15 bit l of code 15
//   6 bits   line l has codes 2l, 2l + 1 in bits 0-5, 6-11; bits 12-15 of the lines hold in this order bits 0-3 of
//            code 6; its bits 4-5 and then bits 0-1 of code 7; bits 2-5 of code 7
//
// Low and high parts are whole lines of 64 bytes but in a unit shorter than 32 columns, which is padded.
#pragma once

#include <cstddef>
#include <cstdint>

#include "quant/weight.h"

namespace forge {

inline constexpr int kTiledRows = 16;      // rows of a tile
inline constexpr int kUnitColumns = 256;  // columns of a unit

// Where things lie in a unit of `columns` columns, bytes.
struct TileUnit {
    int low_bits, chunk;  // bits of a code in `low`, codes of a row that lie together there
    std::size_t offsets, super_scales, super_mins, low, high;  // scales are at 0
    std::size_t scale_bytes;                                      // of one scale or offset
    std::size_t bytes;
};
TileUnit tile_unit(const WeightFormat& format, std::int64_t columns);

// A half chunk's codes of 5 or 6 bits (16, 8) to the words of its lines (5, 3), and one of them back.
void pack_codes(int bits, const unsigned* codes, std::uint16_t* words);
unsigned packed_code(int bits, const std::uint16_t* words, int code);

// Whether a format has such a layout: all coded ones but streams of 1, 3, 5 and 6 bits.
bool can_tile(const WeightFormat& format);

// Bytes of a tile of `columns` columns: the stride of the plane.
std::size_t tile_bytes(const WeightFormat& format, std::int64_t columns);

// Writes rows [first, first + 16) of a weight in planes, those that exist, as one tile.
void write_tile(const Weight& planes, std::int64_t first, std::byte* tile);

// Allocates the tiles of a weight, whose planes must be absent, and marks it as tiled.
void allocate_tiles(Weight& weight);

}  // namespace forge
