#include "quant/gguf_blocks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/float16.h"

namespace forge {
namespace {

using Bytes = std::vector<std::byte>;

constexpr std::pair<const char*, GgufType> block_types[] = {
    {"q4_0", GgufType::q4_0},     {"q4_1", GgufType::q4_1},     {"q5_0", GgufType::q5_0},
    {"q5_1", GgufType::q5_1},     {"q8_0", GgufType::q8_0},     {"q2_K", GgufType::q2_k},
    {"q3_K", GgufType::q3_k},     {"q4_K", GgufType::q4_k},     {"q5_K", GgufType::q5_k},
    {"q6_K", GgufType::q6_k},     {"iq4_nl", GgufType::iq4_nl}, {"iq4_xs", GgufType::iq4_xs},
    {"tq2_0", GgufType::tq2_0},   {"mxfp4", GgufType::mxfp4},   {"nvfp4", GgufType::nvfp4}};

BlockSize size_of_type(GgufType type) { return gguf_block_size(static_cast<std::uint32_t>(type)).value(); }

Bytes zero_block(GgufType type) { return Bytes(static_cast<std::size_t>(size_of_type(type).bytes)); }

Bytes from_hex(const std::string& hex) {
    Bytes bytes;
    for (std::size_t i = 0; i < hex.size(); i += 2)
        bytes.push_back(static_cast<std::byte>(std::stoi(hex.substr(i, 2), nullptr, 16)));
    return bytes;
}

std::vector<float> decode(GgufType type, const Bytes& row) {
    const BlockSize size = size_of_type(type);
    const auto cols = static_cast<std::int64_t>(row.size()) / size.bytes * size.elements;
    std::vector<float> out(static_cast<std::size_t>(cols) + 1, -123.0f);
    decode_gguf_row(type, row.data(), cols, out.data());
    EXPECT_EQ(out.back(), -123.0f) << "wrote past the row";
    out.pop_back();
    return out;
}

nlohmann::json vectors() {
    std::ifstream in(FORGE_TEST_DATA "/quant/gguf_blocks.json");
    return nlohmann::json::parse(in);
}

TEST(GgufBlocks, VectorsMatchBitForBit) {
    const nlohmann::json all = vectors();
    for (const auto& [name, type] : block_types) {
        ASSERT_TRUE(all.contains(name)) << name;
        const auto& vector = all.at(name);
        EXPECT_EQ(vector.at("block_bytes"), size_of_type(type).bytes) << name;
        EXPECT_EQ(vector.at("block_elems"), size_of_type(type).elements) << name;
        const std::vector<float> values = decode(type, from_hex(vector.at("hex")));
        ASSERT_EQ(values.size(), vector.at("values").size()) << name;
        for (std::size_t i = 0; i < values.size(); ++i) {
            const auto expected = vector.at("values").at(i).get<float>();
            ASSERT_EQ(values[i], expected) << name << " element " << i;
        }
    }
    for (const auto& [name, vector] : all.items()) {
        if (!vector.is_object() || !vector.contains("hex")) continue;
        EXPECT_TRUE(std::any_of(std::begin(block_types), std::end(block_types),
                                [&name = name](const auto& t) { return name == t.first; }))
            << name << " has no test";
    }
}

// A row of several blocks is the blocks one after the other, also at an odd address.
TEST(GgufBlocks, RowsOfSeveralBlocksAtAnyAddress) {
    const nlohmann::json all = vectors();
    for (const auto& [name, type] : block_types) {
        const Bytes block = from_hex(all.at(name).at("hex"));
        const std::vector<float> one = decode(type, block);
        Bytes shifted(1, std::byte{0xff});
        for (int copy = 0; copy < 3; ++copy) shifted.insert(shifted.end(), block.begin(), block.end());
        std::vector<float> three(3 * one.size());
        decode_gguf_row(type, shifted.data() + 1, static_cast<std::int64_t>(three.size()), three.data());
        for (std::size_t i = 0; i < three.size(); ++i) ASSERT_EQ(three[i], one[i % one.size()]) << name << " " << i;
    }
}

template <typename T>
void append(Bytes& bytes, T value) {
    for (const std::byte b : std::bit_cast<std::array<std::byte, sizeof value>>(value)) bytes.push_back(b);
}

TEST(GgufBlocks, PlainTypesKeepEveryBit) {
    Bytes f32, f16, bf16;
    const std::vector<std::uint32_t> patterns = {0, 0x80000000u, 1, 0x7f800000u, 0x7fc12345u, 0x3f800001u};
    for (std::uint32_t p : patterns) append(f32, p);
    std::vector<float> out(patterns.size());
    decode_gguf_row(GgufType::f32, f32.data(), 6, out.data());
    for (std::size_t i = 0; i < 6; ++i) EXPECT_EQ(std::bit_cast<std::uint32_t>(out[i]), patterns[i]);

    // Largest subnormal half, smallest one, -0, infinity, 65504.
    for (std::uint16_t h : {0x03ff, 0x0001, 0x8000, 0x7c00, 0x7bff}) append(f16, h);
    decode_gguf_row(GgufType::f16, f16.data(), 5, out.data());
    EXPECT_EQ(out[0], 1023 * 0x1p-24f);
    EXPECT_EQ(out[1], 0x1p-24f);
    EXPECT_TRUE(out[2] == 0 && std::signbit(out[2]));
    EXPECT_TRUE(std::isinf(out[3]));
    EXPECT_EQ(out[4], 65504.0f);

    for (std::uint16_t h : {0x3f80, 0x0001, 0xff80}) append(bf16, h);
    decode_gguf_row(GgufType::bf16, bf16.data(), 3, out.data());
    EXPECT_EQ(out[0], 1.0f);
    EXPECT_EQ(std::bit_cast<std::uint32_t>(out[1]), 0x00010000u);
    EXPECT_EQ(out[2], -std::numeric_limits<float>::infinity());
}

// Where the f16 scales of a block lie; NaN there must reach every element.
struct ScalePlace {
    const char* name;
    GgufType type;
    std::size_t offset;
};
constexpr ScalePlace scale_places[] = {
    {"q4_0", GgufType::q4_0, 0},       {"q4_1", GgufType::q4_1, 0},   {"q4_1 m", GgufType::q4_1, 2},
    {"q5_0", GgufType::q5_0, 0},       {"q5_1", GgufType::q5_1, 0},   {"q5_1 m", GgufType::q5_1, 2},
    {"q8_0", GgufType::q8_0, 0},       {"q2_K", GgufType::q2_k, 80},  {"q2_k min", GgufType::q2_k, 82},
    {"q3_K", GgufType::q3_k, 108},     {"q4_K", GgufType::q4_k, 0},   {"q4_k min", GgufType::q4_k, 2},
    {"q5_K", GgufType::q5_k, 0},       {"q5_k min", GgufType::q5_k, 2}, {"q6_K", GgufType::q6_k, 208},
    {"iq4_nl", GgufType::iq4_nl, 0},   {"iq4_xs", GgufType::iq4_xs, 0}, {"tq2_0", GgufType::tq2_0, 64}};

TEST(GgufBlocks, NanScaleReachesEveryElement) {
    for (const ScalePlace& place : scale_places) {
        Bytes block = zero_block(place.type);
        block[place.offset] = std::byte{0x01};
        block[place.offset + 1] = std::byte{0x7e};
        for (float value : decode(place.type, block)) ASSERT_TRUE(std::isnan(value)) << place.name;
    }
}

TEST(GgufBlocks, SubnormalScalesAreExact) {
    for (const auto& [type, zero] : {std::pair(GgufType::q4_0, 8), std::pair(GgufType::q5_0, 16)}) {
        Bytes block = zero_block(type);
        block[0] = std::byte{3};  // d = 3 * 2^-24, codes 0
        for (float value : decode(type, block)) ASSERT_EQ(value, static_cast<float>(-zero * 3) * 0x1p-24f);
    }
    Bytes block = zero_block(GgufType::q8_0);
    std::fill(block.begin() + 2, block.end(), std::byte{0x80});  // codes -128
    block[0] = std::byte{1};
    for (float value : decode(GgufType::q8_0, block)) ASSERT_EQ(value, -128 * 0x1p-24f);
}

TEST(GgufBlocks, Mxfp4ScalesReachSubnormalsAndInfinity) {
    const auto first = [](int e, int code) {
        Bytes block = zero_block(GgufType::mxfp4);
        block[0] = static_cast<std::byte>(e);
        block[1] = static_cast<std::byte>(code);
        return decode(GgufType::mxfp4, block)[0];
    };
    EXPECT_EQ(first(127, 2), 1.0f);
    EXPECT_EQ(first(0, 2), 0x1p-127f);  // float subnormals
    EXPECT_EQ(first(0, 1), 0x1p-128f);
    EXPECT_EQ(first(1, 7), 6 * 0x1p-126f);
    EXPECT_EQ(first(254, 2), 0x1p127f);
    EXPECT_TRUE(std::isinf(first(255, 7)));  // 6 * 2^128
    EXPECT_EQ(first(127, 9), -0.5f);
    EXPECT_FALSE(std::signbit(first(127, 8)));  // code 8 is plain zero
}

TEST(GgufBlocks, Nvfp4ScaleCodes) {
    const auto value = [](int scale) {
        Bytes block = zero_block(GgufType::nvfp4);
        block[0] = static_cast<std::byte>(scale);
        block[4] = std::byte{2};  // element 0: 1.0
        return decode(GgufType::nvfp4, block)[0];
    };
    EXPECT_EQ(value(0), 0.0f);
    EXPECT_EQ(value(0x7f), 0.0f);
    EXPECT_EQ(value(1), 0x1p-9f);
    EXPECT_EQ(value(7 << 3), 1.0f);
    EXPECT_EQ(value(15 << 3 | 6), 448.0f);
}

TEST(GgufBlocks, NamesAndSizes) {
    EXPECT_EQ(gguf_type_name(12), "q4_k");
    EXPECT_EQ(gguf_type_name(16), "iq2_xxs");
    EXPECT_EQ(gguf_type_name(99), "type 99");
    EXPECT_FALSE(gguf_block_size(4).has_value());
    EXPECT_FALSE(gguf_block_size(31).has_value());
    EXPECT_FALSE(gguf_block_size(43).has_value());
    EXPECT_EQ(gguf_block_size(15)->bytes, 292);
    EXPECT_TRUE(gguf_decodable(40));
    EXPECT_FALSE(gguf_decodable(16));
    EXPECT_FALSE(gguf_decodable(4));
}

TEST(GgufBlocks, RefusesWhatItCannotDecode) {
    const std::vector<std::byte> block(512);
    std::vector<float> out(512);
    try {
        decode_gguf_row(static_cast<GgufType>(16), block.data(), 256, out.data());
        FAIL() << "accepted";
    } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::unsupported);
        EXPECT_STREQ(error.what(), "tensor type iq2_xxs cannot be decoded by this version of Forge");
    }
    EXPECT_THROW(decode_gguf_row(GgufType::q4_k, block.data(), 128, out.data()), Error);
}

}  // namespace
}  // namespace forge
