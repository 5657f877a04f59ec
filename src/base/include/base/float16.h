// IEEE half and bfloat16: storage types with exact conversions to float and
// round-to-nearest-even conversions from it. Portable and bit-exact; kernels
// use the machine's own instructions and are tested against these.
#pragma once

#include <bit>
#include <cstdint>

namespace forge {

inline float bf16_to_f32(std::uint16_t bits) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

inline std::uint16_t f32_to_bf16(float value) {
    const auto u = std::bit_cast<std::uint32_t>(value);
    if ((u & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((u >> 16) | 0x40u);  // NaN stays NaN
    return static_cast<std::uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

inline float f16_to_f32(std::uint16_t bits) {
    const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
    const std::uint32_t exponent = (bits >> 10) & 31u;
    const std::uint32_t mantissa = bits & 0x3ffu;
    if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
    if (exponent == 0) {  // zero or subnormal: mantissa * 2^-24 is exact in float
        const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
        return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
    }
    return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

inline std::uint16_t f32_to_f16(float value) {
    const auto u = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = (u >> 16) & 0x8000u;
    const std::uint32_t magnitude = u & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return static_cast<std::uint16_t>(sign | 0x7e00u);
    if (magnitude >= 0x477ff000u) return static_cast<std::uint16_t>(sign | 0x7c00u);  // rounds to infinity
    if (magnitude < 0x38800000u) {  // subnormal half: let float addition round to a multiple of 2^-24
        const float sum = std::bit_cast<float>(magnitude) + 0.5f;  // 0.5 has ulp 2^-24
        return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(sum) - 0x3f000000u));
    }
    const std::uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
    return static_cast<std::uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

// Storage wrappers, so that templates can be written over the activation type.
struct bf16 {
    std::uint16_t bits = 0;
    bf16() = default;
    explicit bf16(float value) : bits(f32_to_bf16(value)) {}
    explicit operator float() const { return bf16_to_f32(bits); }
};
struct f16 {
    std::uint16_t bits = 0;
    f16() = default;
    explicit f16(float value) : bits(f32_to_f16(value)) {}
    explicit operator float() const { return f16_to_f32(bits); }
};
static_assert(sizeof(bf16) == 2 && sizeof(f16) == 2);

// round_to<T>(x): the r16 of docs/numerics.md; the identity for float.
template <typename T>
inline float round_to(float value) { return static_cast<float>(T(value)); }

}  // namespace forge
