#include "pack/gguf_encode.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "../support/expect_error.h"
#include "base/float16.h"

namespace forge {
namespace {

struct Bound {
    GgufType type;
    double error;  // largest relative RMS error on normal values: about a tenth above what was measured
};
constexpr Bound bounds[] = {{GgufType::q4_0, 0.088}, {GgufType::q4_1, 0.078},   {GgufType::q5_0, 0.043},
                            {GgufType::q5_1, 0.038}, {GgufType::q8_0, 0.0058},  {GgufType::q2_k, 0.30},
                            {GgufType::q3_k, 0.158}, {GgufType::q4_k, 0.079},   {GgufType::q5_k, 0.0395},
                            {GgufType::q6_k, 0.019}, {GgufType::iq4_nl, 0.083}, {GgufType::mxfp4, 0.122},
                            {GgufType::f16, 3e-4},   {GgufType::bf16, 2e-3},    {GgufType::f32, 0}};

std::vector<float> round_trip(GgufType type, const std::vector<float>& in) {
    const BlockSize size = gguf_block_size(static_cast<std::uint32_t>(type)).value();
    std::vector<std::byte> row(
        in.size() / static_cast<std::size_t>(size.elements) * static_cast<std::size_t>(size.bytes) + 1,
        std::byte{0xa5});
    encode_gguf_row(type, in.data(), static_cast<std::int64_t>(in.size()), row.data());
    EXPECT_EQ(row.back(), std::byte{0xa5}) << "wrote past the row";
    std::vector<float> out(in.size());
    decode_gguf_row(type, row.data(), static_cast<std::int64_t>(in.size()), out.data());
    return out;
}

double relative_error(const std::vector<float>& in, const std::vector<float>& out) {
    double difference = 0, square = 0;
    for (std::size_t i = 0; i < in.size(); ++i) {
        difference += (in[i] - out[i]) * static_cast<double>(in[i] - out[i]);
        square += in[i] * static_cast<double>(in[i]);
    }
    return std::sqrt(difference / square);
}

std::vector<float> normal(std::size_t count, float scale, float mean = 0) {
    std::mt19937 random(7);
    std::normal_distribution<float> draw(mean, scale);
    std::vector<float> values(count);
    for (float& value : values) value = draw(random);
    return values;
}

std::string name(GgufType type) { return std::string(gguf_type_name(static_cast<std::uint32_t>(type))); }

TEST(GgufEncode, ErrorOnNormalValuesIsThatOfTheFormat) {
    for (float scale : {0.02f, 1.0f}) {
        const std::vector<float> values = normal(64 * 256, scale);
        for (const Bound& bound : bounds) {
            const double error = relative_error(values, round_trip(bound.type, values));
            EXPECT_LE(error, bound.error) << name(bound.type) << " at scale " << scale;
            EXPECT_GE(error, bound.error / 2) << name(bound.type) << ": better than the format can be";
        }
    }
}

// Types with an offset use it: values far from zero cost no accuracy.
TEST(GgufEncode, OffsetsFollowTheMean) {
    const std::vector<float> values = normal(16 * 256, 0.02f, 1.0f),
                             negative = normal(16 * 256, 0.02f, -1.0f);
    for (GgufType type : {GgufType::q4_1, GgufType::q5_1}) {
        EXPECT_LT(relative_error(values, round_trip(type, values)), 0.0025) << name(type);
        EXPECT_LT(relative_error(negative, round_trip(type, negative)), 0.0025) << name(type);
    }
    for (GgufType type : {GgufType::q4_k, GgufType::q5_k})  // minima are only subtracted
        EXPECT_LT(relative_error(negative, round_trip(type, negative)), 0.02) << name(type);
}

TEST(GgufEncode, ExtremesKeepTheirPlace) {
    for (const Bound& bound : bounds) {
        for (float extreme : {3.0f, -3.0f}) {
            std::vector<float> values(256, 0.0f);
            values[77] = extreme;
            const std::vector<float> out = round_trip(bound.type, values);
            for (std::size_t i = 0; i < out.size(); ++i)
                EXPECT_NEAR(out[i], values[i], 0.25)
                    << name(bound.type) << " element " << i << " extreme " << extreme;
        }
    }
}

TEST(GgufEncode, ZerosStayZero) {
    const std::vector<float> zeros(256, 0.0f);
    for (const Bound& bound : bounds) {
        for (float value : round_trip(bound.type, zeros)) ASSERT_EQ(value, 0.0f) << name(bound.type);
    }
}

TEST(GgufEncode, ConstantsAreClose) {
    for (float constant : {0.5f, -0.5f}) {
        const std::vector<float> values(256, constant);
        for (const Bound& bound : bounds) {
            for (float value : round_trip(bound.type, values))
                ASSERT_NEAR(value, constant, 0.02) << name(bound.type);
        }
    }
}

TEST(GgufEncode, EncodingAgainChangesNothing) {
    // Values on the grid of the format are found again.
    for (const Bound& bound : bounds) {
        const std::vector<float> once = round_trip(bound.type, normal(256, 0.02f));
        EXPECT_LE(relative_error(once, round_trip(bound.type, once)), bound.error / 3) << name(bound.type);
    }
}

TEST(GgufEncode, NonFiniteAndHugeValuesDoNotCrash) {
    const float nan = std::numeric_limits<float>::quiet_NaN(),
                infinity = std::numeric_limits<float>::infinity();
    for (float bad : {nan, infinity, -infinity, 3.4e38f, -3.4e38f, 1e-42f}) {
        std::vector<float> values = normal(256, 1.0f);
        values[3] = bad;
        values[200] = -bad;
        for (const Bound& bound : bounds) {
            if (bound.type == GgufType::f32) continue;
            round_trip(bound.type, values);
            round_trip(bound.type, std::vector<float>(256, bad));
        }
    }
}

TEST(GgufEncode, PlainTypesRound) {
    std::vector<float> values = {1.0f, -2.5f, 65504.0f, 1e-7f, 0.1f};
    const std::vector<float> half = round_trip(GgufType::f16, values),
                             brain = round_trip(GgufType::bf16, values);
    EXPECT_EQ(round_trip(GgufType::f32, values), values);
    for (std::size_t i = 0; i < values.size(); ++i) {
        EXPECT_EQ(half[i], f16_to_f32(f32_to_f16(values[i])));
        EXPECT_EQ(brain[i], bf16_to_f32(f32_to_bf16(values[i])));
    }
}

TEST(GgufEncode, RefusesWhatItCannotEncode) {
    const std::vector<float> values(256);
    std::vector<std::byte> row(512);
    EXPECT_FALSE(gguf_encodable(GgufType::iq4_xs));
    EXPECT_TRUE(gguf_encodable(GgufType::q3_k));
    EXPECT_ERROR(encode_gguf_row(GgufType::iq4_xs, values.data(), 256, row.data()), unsupported,
                 "tensor type iq4_xs cannot be encoded by this version of Forge");
    EXPECT_ERROR(encode_gguf_row(GgufType::q4_k, values.data(), 64, row.data()), internal,
                 "a row of 64 elements is not a whole number of q4_k blocks of 256 elements");
}

}  // namespace
}  // namespace forge
