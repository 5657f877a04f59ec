// Where the codes of a row start, unpacked first when the stream's width asks for it.
#pragma once

#include "matmul/codec.h"
#include "quant/weight.h"

namespace forge::FORGE_SIMD {

// A stream of any width to one byte a code; count is a multiple of 8.
inline void unpack_stream(const std::uint8_t* stream, int bits, std::int64_t count, std::uint8_t* out) {
    const std::uint64_t mask = (1u << bits) - 1;
    for (std::int64_t e = 0; e < count; e += 8, stream += bits) {  // eight codes are `bits` bytes
        std::uint64_t eight = 0;
        std::memcpy(&eight, stream, static_cast<std::size_t>(bits));
        for (int i = 0; i < 8; ++i) out[e + i] = static_cast<std::uint8_t>(eight >> (i * bits) & mask);
    }
}

// Codes of row `row` from column `from` (a multiple of 256) on; `unpacked` holds `count` bytes.
inline RowCodes row_codes(const Weight& w, std::int64_t row, std::int64_t from, std::int64_t count,
                          std::uint8_t* unpacked) {
    const auto plane = [row](const Plane& p) {
        return reinterpret_cast<const std::uint8_t*>(p.data) + static_cast<std::size_t>(row) * p.stride;
    };
    const std::uint8_t* low = plane(w.codes);
    const std::uint8_t* high = w.codes_high.data ? plane(w.codes_high) : nullptr;
    switch (w.format.packing) {
        case Packing::dense:
        case Packing::stream:
            low += from * w.format.bits / 8;
            break;
        case Packing::split_4_1:
            low += from / 2, high += from / 128 * 16;
            break;
        case Packing::split_4_2:
            low += from / 2, high += from / 256 * 64;
            break;
        case Packing::split_2_1:
            low += from / 4, high += from / 256 * 32;
            break;
    }
    if (needs_unpacking(w.format)) {
        unpack_stream(low, w.format.bits, count, unpacked);
        low = unpacked;
    }
    return {low, high};
}

}  // namespace forge::FORGE_SIMD
