// What writing tiles and reading them back have in common.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "quant/tiles.h"

namespace forge::tile {

inline std::uint32_t load_u32(const std::byte* at) {
    std::uint32_t value;
    std::memcpy(&value, at, sizeof value);
    return value;
}
inline void store_u32(std::byte* at, std::uint32_t value) { std::memcpy(at, &value, sizeof value); }

inline std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// The rows of a tile in one plane, from a column's byte on; null past the last row. Byte: std::byte to write them.
template <typename Byte>
struct TileRows {
    Byte* at[kTiledRows];
    TileRows(const Plane& plane, std::int64_t first, std::int64_t rows, std::int64_t from) {
        for (int i = 0; i < kTiledRows; ++i)
            at[i] = plane.data && first + i < rows
                        ? const_cast<Byte*>(plane.data) + static_cast<std::size_t>(first + i) * plane.stride + from
                        : nullptr;
    }
};

}  // namespace forge::tile
