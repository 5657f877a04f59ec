// Element types of plain (not block-quantised) arrays.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace forge {

enum class DType : std::uint8_t {
    f32, f16, bf16, f64,
    i8, u8, i16, u16, i32, u32, i64, u64, boolean,
    f8_e4m3, f8_e5m2,
};

// Bytes of one element.
std::size_t size_of(DType type);
// "f32", "bf16", ...
std::string_view name_of(DType type);

}  // namespace forge
