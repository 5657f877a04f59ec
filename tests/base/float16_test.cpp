#include "base/float16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace forge {
namespace {

// Every 16-bit pattern survives a round trip through float (NaN stays NaN).
TEST(Float16, EveryPatternRoundTrips) {
    for (std::uint32_t bits = 0; bits < 65536; ++bits) {
        const auto u = static_cast<std::uint16_t>(bits);
        const float h = f16_to_f32(u), b = bf16_to_f32(u);
        if (std::isnan(h)) EXPECT_TRUE(std::isnan(f16_to_f32(f32_to_f16(h)))); else EXPECT_EQ(f32_to_f16(h), u);
        if (std::isnan(b)) EXPECT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(b)))); else EXPECT_EQ(f32_to_bf16(b), u);
    }
}

// Between two neighbours the nearer wins and a tie goes to the even pattern.
TEST(Float16, RoundsToNearestEven) {
    for (std::uint16_t u = 0; u < 0x7bff; ++u) {
        const double low = f16_to_f32(u), high = f16_to_f32(u + 1), middle = (low + high) / 2;
        EXPECT_EQ(f32_to_f16(static_cast<float>(middle)), u % 2 == 0 ? u : u + 1) << u;
        EXPECT_EQ(f32_to_f16(std::nextafter(static_cast<float>(middle), 0.0f)), u) << u;
        EXPECT_EQ(f32_to_f16(std::nextafter(static_cast<float>(middle), 1e30f)), u + 1) << u;
    }
    for (std::uint32_t u = 0; u < 0x7f7f; ++u) {
        const float middle = std::bit_cast<float>((u << 16) | 0x8000u);
        EXPECT_EQ(f32_to_bf16(middle), u % 2 == 0 ? u : u + 1);
    }
}

TEST(Float16, OverflowAndSigns) {
    EXPECT_EQ(f32_to_f16(65520.0f), 0x7c00);
    EXPECT_EQ(f32_to_f16(65519.99f), 0x7bff);
    EXPECT_EQ(f32_to_f16(-std::numeric_limits<float>::infinity()), 0xfc00);
    EXPECT_EQ(f32_to_f16(-0.0f), 0x8000);
    EXPECT_EQ(f32_to_bf16(std::numeric_limits<float>::max()), 0x7f80);
}

}  // namespace
}  // namespace forge
