// Tiles of sixteen rows (quant/tiles.h) back into planes, for backends that read rows.
#pragma once

#include <cstddef>
#include <cstdint>

#include "quant/weight.h"

namespace forge {

// The inverse of write_tile: rows [first, first + 16) of the planes, those that exist.
void read_tile(const std::byte* tile, std::int64_t first, Weight& planes);

}  // namespace forge
