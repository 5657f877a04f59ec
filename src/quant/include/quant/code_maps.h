// The values behind codes and scale bytes: the tables and small floats that
// formats share. All are exact in bf16 but e8m0 scales, which are exact in f32.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <limits>

namespace forge {

// IQ4_NL and IQ4_XS.
inline constexpr std::array<float, 16> iq4nl_values = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                       1,    13,   25,  38,  53,  69,  89,  113};

// fp4: one sign, two exponent and one mantissa bit (MXFP4, NVFP4).
inline constexpr std::array<float, 16> e2m1_values = {0.0f, 0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                                      0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

// fp8 with four exponent and three mantissa bits; no infinity, 0x7f and 0xff are NaN (MXFP8).
inline float e4m3_value(std::uint8_t code) {
    const int exponent = (code >> 3) & 15, mantissa = code & 7;
    float value;
    if ((code & 0x7f) == 0x7f) {
        value = std::numeric_limits<float>::quiet_NaN();
    } else if (exponent == 0) {
        value = static_cast<float>(mantissa) * 0x1p-9f;
    } else {
        value = std::bit_cast<float>(static_cast<std::uint32_t>(exponent + 120) << 23 |
                                     static_cast<std::uint32_t>(mantissa) << 20);
    }
    return code & 0x80 ? -value : value;
}

// Scale of NVFP4: e4m3 whose sign bit is ignored, and 0x7f means zero.
inline float ue4m3_value(std::uint8_t code) {
    if (code == 0x7f) return 0;
    if ((code & 0x7f) == 0x7f) return 480;
    return e4m3_value(code & 0x7f);
}

// Scale of MXFP4 and MXFP8: 2^(code - 127); 0 is the subnormal 2^-127, 255 infinity.
inline float e8m0_value(std::uint8_t code) {
    return std::bit_cast<float>(code == 0 ? 0x00400000u : static_cast<std::uint32_t>(code) << 23);
}

}  // namespace forge
