// Floats as an activation type lies in memory.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

#include "base/float16.h"

namespace forge::tune {

inline float rounded(DType type, float x) { return type == DType::bf16 ? round_to<bf16>(x) : type == DType::f16 ? round_to<f16>(x) : x; }

inline void encode(DType type, std::span<const float> values, std::byte* out) {
    if (type == DType::f32) {
        std::memcpy(out, values.data(), values.size_bytes());
        return;
    }
    for (std::size_t i = 0; i < values.size(); ++i) {
        const std::uint16_t bits = type == DType::bf16 ? f32_to_bf16(values[i]) : f32_to_f16(values[i]);
        std::memcpy(out + 2 * i, &bits, 2);
    }
}

inline void decode(DType type, const std::byte* in, std::span<float> values) {
    if (type == DType::f32) {
        std::memcpy(values.data(), in, values.size_bytes());
        return;
    }
    for (std::size_t i = 0; i < values.size(); ++i) {
        std::uint16_t bits;
        std::memcpy(&bits, in + 2 * i, 2);
        values[i] = type == DType::bf16 ? bf16_to_f32(bits) : f16_to_f32(bits);
    }
}

}  // namespace forge::tune
