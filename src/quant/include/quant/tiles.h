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
//   low    codes' low bits (2 for 2 and 3 bits, 4 for 4, 5 and 6, else 8): a u32 of a row's next
//          `chunk` = 32 / low bits codes, lowest first, then the next row's; then the next chunk
//   high   the bit above (3, 5 bits): per chunk a u32 mask for each j < chunk / 2, whose bit
//          2 * row + h is of the chunk's code j + h * chunk / 2;
//          the two bits above (6 bits): per sixteen columns a u32 a row, the byte 2 * h + c of which
//          has codes 8c + 4h .. 8c + 4h + 3, lowest first
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
    int low_bits, chunk;  // bits of a code in `low`, codes of a u32 there
    std::size_t offsets, super_scales, super_mins, low, high;  // scales are at 0
    std::size_t scale_bytes;                                      // of one scale or offset
    std::size_t bytes;
};
TileUnit tile_unit(const WeightFormat& format, std::int64_t columns);

// Whether a format has such a layout: all coded ones but streams of 1, 3, 5 and 6 bits.
bool can_tile(const WeightFormat& format);

// Bytes of a tile of `columns` columns: the stride of the plane.
std::size_t tile_bytes(const WeightFormat& format, std::int64_t columns);

// Writes rows [first, first + 16) of a weight in planes, those that exist, as one tile.
void write_tile(const Weight& planes, std::int64_t first, std::byte* tile);

// Allocates the tiles of a weight, whose planes must be absent, and marks it as tiled.
void allocate_tiles(Weight& weight);

}  // namespace forge
