// Bytes from the host to device memory as fast as the bus takes them.
#pragma once

#include <cstddef>
#include <functional>
#include <span>

#include "driver.h"

namespace forge::cuda {

struct Piece {
    const std::byte* data;
    std::size_t bytes;
    Pointer to;
};

// Copies pieces in their order. `fillers` threads put them into `places` places of `place_bytes` bytes each
// in `staging`, which is pinned memory; the caller's thread alone hands these to the driver, whose calls
// would wait for each other. submitted(bytes) is called on it after each piece. The context is the caller's
// current one. Returns when all is there; when it throws (the driver's words), nothing reads `staging` or the
// pieces any more.
void upload(const Driver& driver, std::span<const Piece> pieces, std::byte* staging, std::size_t places,
            std::size_t place_bytes, std::size_t fillers, const std::function<void(std::size_t)>& submitted);

}  // namespace forge::cuda
