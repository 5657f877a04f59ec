// The rounding points are MLX's: codes are made with scales that are not yet
// rounded to the stored type (affine), or with numbers that are (the others).
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/float16.h"
#include "pack/mlx_encode.h"
#include "quant/code_maps.h"

namespace forge {
namespace {

float rounded(float value, DType type) {
    if (type == DType::bf16) return bf16_to_f32(f32_to_bf16(value));
    if (type == DType::f16) return f16_to_f32(f32_to_f16(value));
    return value;
}

void store(float value, DType type, std::byte* out) {
    if (type == DType::f32) {
        std::memcpy(out, &value, 4);
        return;
    }
    const std::uint16_t bits = type == DType::bf16 ? f32_to_bf16(value) : f32_to_f16(value);
    std::memcpy(out, &bits, 2);
}

// Codes as one little-endian bit stream.
class BitStream {
  public:
    explicit BitStream(std::byte* out) : out_(out) {}
    void put(unsigned code, int bits) {
        window_ |= static_cast<std::uint64_t>(code) << filled_;
        for (filled_ += bits; filled_ >= 8; filled_ -= 8, window_ >>= 8) *out_++ = static_cast<std::byte>(window_ & 255);
    }

  private:
    std::byte* out_;
    std::uint64_t window_ = 0;
    int filled_ = 0;
};

struct Affine { float scale, bias; };

Affine affine_of(std::span<const float> group, int bits) {
    const auto [low, high] = std::minmax_element(group.begin(), group.end());
    const float min = *low, max = *high;
    constexpr float least = 1e-7f;
    if (bits == 1) return {std::max(max - min, least), min};
    const float n = static_cast<float>((1 << bits) - 1);
    float scale = std::max((max - min) / n, least);
    // The end of larger magnitude is met exactly.
    const bool from_min = std::fabs(min) > std::fabs(max);
    const float edge = from_min ? min : max;
    if (!from_min) scale = -scale;
    const float k = std::rint(edge / scale);
    if (k == 0) return {scale, 0};
    return {edge / k, edge};
}

void encode_affine(const MlxFormat& format, DType type, std::span<const float> row, BitStream codes, std::byte* scales, std::byte* biases) {
    const auto group = static_cast<std::size_t>(format.group);
    const float most = static_cast<float>((1 << format.bits) - 1);
    for (std::size_t first = 0, g = 0; first < row.size(); first += group, ++g) {
        const auto part = row.subspan(first, group);
        const Affine a = affine_of(part, format.bits);
        for (const float value : part) codes.put(static_cast<unsigned>(std::clamp(std::rint((value - a.bias) / a.scale), 0.0f, most)), format.bits);
        store(a.scale, type, scales + g * size_of(type));
        store(a.bias, type, biases + g * size_of(type));
    }
}

// The nearest fp4 value; of two as near the smaller magnitude, and zero has no sign.
unsigned e2m1_code(float value) {
    const float magnitude = std::fabs(value);
    unsigned best = 0;
    for (unsigned code = 1; code < 8; ++code)
        if (magnitude > (e2m1_values[code - 1] + e2m1_values[code]) / 2) best = code;
    return best == 0 ? 0 : best | (std::signbit(value) ? 8u : 0u);
}

// The nearest fp8 value, halves to even, at most 448.
unsigned e4m3_code(float value) {
    const unsigned sign = std::signbit(value) ? 128 : 0;
    const float magnitude = std::min(std::fabs(value), 448.0f);
    if (magnitude < 0x1p-6f) return sign | static_cast<unsigned>(std::rint(magnitude * 0x1p9f));  // steps of 2^-9; 8 is the first normal
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(magnitude);
    const std::uint32_t kept = (bits + 0x7ffff + ((bits >> 20) & 1)) >> 20;  // three bits of mantissa
    return sign | (kept - (120u << 3));
}

std::uint8_t power_code(float t) {
    if (t == 0) return 127;
    int exponent = 0;
    const float fraction = std::frexp(t, &exponent);  // t = fraction * 2^exponent, fraction in [1/2, 1)
    const int up = fraction == 0.5f ? exponent - 1 : exponent;
    return static_cast<std::uint8_t>(std::clamp(127 + up, 0, 254));
}

void encode_scaled(const MlxFormat& format, DType type, std::span<const float> row, BitStream codes, std::byte* scales, float largest) {
    const auto group = static_cast<std::size_t>(format.group);
    const float top = format.mode == MlxMode::mxfp8 ? 448 : 6;
    const float factor = largest > 0 ? 448 * 6 / largest : 1;
    for (std::size_t first = 0, g = 0; first < row.size(); first += group, ++g) {
        const auto part = row.subspan(first, group);
        float most = 0;
        for (const float value : part) most = std::max(most, std::fabs(value));
        float scale;
        std::uint8_t code;
        if (format.mode == MlxMode::nvfp4) {
            code = static_cast<std::uint8_t>(e4m3_code(rounded(most / top, type) * factor));
            scale = e4m3_value(code);
        } else {
            code = power_code(rounded(most / top, type));
            scale = e8m0_value(code);
        }
        scales[g] = static_cast<std::byte>(code);
        for (const float value : part) {
            const float v = scale == 0 ? 0 : rounded(value / scale, type) * factor;
            codes.put(format.mode == MlxMode::mxfp8 ? e4m3_code(v) : e2m1_code(v), format.bits);
        }
    }
}

}  // namespace

MlxRowBytes mlx_row_bytes(const MlxFormat& format, std::int64_t cols, DType type) {
    const auto groups = static_cast<std::size_t>(cols / format.group);
    const bool affine = format.mode == MlxMode::affine;
    return {static_cast<std::size_t>(cols * format.bits / 8), groups * (affine ? size_of(type) : 1), affine ? groups * size_of(type) : 0};
}

void encode_mlx_row(const MlxFormat& format, DType type, std::span<const float> row, std::byte* codes, std::byte* scales,
                    std::byte* biases, float largest) {
    if (row.size() % static_cast<std::size_t>(format.group) != 0)
        fail(ErrorKind::internal, "a row of {} numbers is not whole groups of {}", row.size(), format.group);
    if (format.mode == MlxMode::affine) {
        encode_affine(format, type, row, BitStream(codes), scales, biases);
    } else {
        encode_scaled(format, type, row, BitStream(codes), scales, largest);
    }
}

}  // namespace forge
