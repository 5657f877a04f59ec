// Planes of a converted GGUF tensor decode to the same bits as the blocks.
#include "quant/convert.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "base/error.h"
#include "base/float16.h"
#include "quant/tiles.h"
#include "quant/untile.h"

namespace forge {
namespace {

constexpr GgufType all_types[] = {
    GgufType::f32,  GgufType::f16,    GgufType::bf16,   GgufType::q4_0,  GgufType::q4_1,  GgufType::q5_0,
    GgufType::q5_1, GgufType::q8_0,   GgufType::q2_k,   GgufType::q3_k,  GgufType::q4_k,  GgufType::q5_k,
    GgufType::q6_k, GgufType::iq4_nl, GgufType::iq4_xs, GgufType::tq2_0, GgufType::mxfp4, GgufType::nvfp4};

// Where a block's f16 fields and exponent bytes are, so that random blocks hold finite numbers.
void make_finite(GgufType type, std::byte* block) {
    const auto half = [&](int at, float value) {
        const std::uint16_t bits = f32_to_f16(value);
        std::memcpy(block + at, &bits, 2);
    };
    switch (type) {
        case GgufType::q4_0:
        case GgufType::q5_0:
        case GgufType::q8_0:
        case GgufType::iq4_nl:
        case GgufType::iq4_xs:
            half(0, 0.0137f);
            break;
        case GgufType::q4_1:
        case GgufType::q5_1:
        case GgufType::q4_k:
        case GgufType::q5_k:
            half(0, 0.0137f), half(2, -0.31f);
            break;
        case GgufType::q2_k:
            half(80, 0.0137f), half(82, 0.0031f);
            break;
        case GgufType::q3_k:
            half(108, -0.0137f);
            break;
        case GgufType::q6_k:
            half(208, 0.0137f);
            break;
        case GgufType::tq2_0:
            half(64, 0.0137f);
            break;
        case GgufType::mxfp4:
            if (block[0] == std::byte{255}) block[0] = std::byte{0};
            break;
        default:
            break;
    }
}

struct Tensor {
    std::vector<std::byte> bytes;
    std::size_t row_bytes;
};

Tensor random_tensor(GgufType type, std::int64_t rows, std::int64_t cols, unsigned seed) {
    const BlockSize size = *gguf_block_size(static_cast<std::uint32_t>(type));
    const auto row_bytes = static_cast<std::size_t>(cols / size.elements * size.bytes);
    Tensor tensor{std::vector<std::byte>(row_bytes * static_cast<std::size_t>(rows)), row_bytes};
    std::mt19937 random(seed);
    for (std::byte& byte : tensor.bytes) byte = static_cast<std::byte>(random());
    for (std::size_t at = 0; at < tensor.bytes.size(); at += static_cast<std::size_t>(size.bytes))
        make_finite(type, &tensor.bytes[at]);
    return tensor;
}

Weight planes(GgufType type, std::int64_t rows, std::int64_t cols) {
    Weight weight;
    weight.name = "blk.0.ffn_up.weight";
    weight.format = format_of_gguf(type, weight.name);
    weight.rows = rows;
    weight.cols = cols;
    allocate_planes(weight);
    return weight;
}

TEST(Convert, PlanesHoldTheSameBits) {
    for (const GgufType type : all_types) {
        const int block = gguf_block_size(static_cast<std::uint32_t>(type))->elements;
        for (const std::int64_t cols :
             {std::int64_t{block}, std::int64_t{3} * block, std::int64_t{9} * block, std::int64_t{1024}}) {
            SCOPED_TRACE(testing::Message()
                         << gguf_type_name(static_cast<std::uint32_t>(type)) << " x " << cols);
            constexpr std::int64_t rows = 5;
            const Tensor tensor = random_tensor(type, rows, cols, static_cast<unsigned>(cols));
            Weight weight = planes(type, rows, cols);
            convert_gguf_rows(type, tensor.bytes.data(), 0, 2, nullptr, weight);
            convert_gguf_rows(type, tensor.bytes.data(), 2, rows, nullptr, weight);
            std::vector<float> want(static_cast<std::size_t>(cols)), got(want.size() + 1, -7.0f);
            for (std::int64_t row = 0; row < rows; ++row) {
                decode_gguf_row(type, tensor.bytes.data() + static_cast<std::size_t>(row) * tensor.row_bytes,
                                cols, want.data());
                decode_row(weight, row, got.data());
                for (std::size_t e = 0; e < want.size(); ++e) {
                    if (std::isnan(want[e]) && std::isnan(got[e])) continue;
                    // -0 and +0 are the same weight (code 8 of e2m1 in the two definitions).
                    if (want[e] == 0 && got[e] == 0) continue;
                    ASSERT_EQ(std::bit_cast<std::uint32_t>(want[e]), std::bit_cast<std::uint32_t>(got[e]))
                        << "row " << row << " element " << e << ": " << want[e] << " became " << got[e];
                }
                EXPECT_EQ(got.back(), -7.0f);
            }
        }
    }
}

// Every plane, byte for byte, padding of a row's masks included.
TEST(Tiles, GoBackToThePlanesTheyWereMadeOf) {
    for (const GgufType type : all_types) {
        const int block = gguf_block_size(static_cast<std::uint32_t>(type))->elements;
        if (!can_tile(format_of_gguf(type, ""))) continue;
        for (const std::int64_t cols : {std::int64_t{block}, std::int64_t{3} * block, std::int64_t{9} * block, std::int64_t{1024}})
            for (const std::int64_t rows : {16, 17, 40}) {
                SCOPED_TRACE(testing::Message() << gguf_type_name(static_cast<std::uint32_t>(type)) << " " << rows << " x " << cols);
                const Tensor tensor = random_tensor(type, rows, cols, static_cast<unsigned>(rows));
                Weight want = planes(type, rows, cols), got = planes(type, rows, cols), tiled = want;
                convert_gguf_rows(type, tensor.bytes.data(), 0, rows, nullptr, want);
                tiled.codes = tiled.codes_high = tiled.scales = tiled.offsets = tiled.super_scales = tiled.super_mins = {};
                allocate_tiles(tiled);
                convert_gguf_rows(type, tensor.bytes.data(), 0, rows, nullptr, tiled);
                for (std::int64_t t = 0; t * kTiledRows < rows; ++t) read_tile(tiled.codes.data + static_cast<std::size_t>(t) * tiled.codes.stride, t * kTiledRows, got);
                for (const auto plane : {&Weight::codes, &Weight::codes_high, &Weight::scales, &Weight::offsets, &Weight::super_scales, &Weight::super_mins}) {
                    ASSERT_EQ((want.*plane).stride, (got.*plane).stride);
                    if ((want.*plane).data) {
                        ASSERT_EQ(std::memcmp((want.*plane).data, (got.*plane).data, static_cast<std::size_t>(rows) * (want.*plane).stride), 0);
                    }
                }
            }
    }
}

TEST(Convert, RowMapReordersRows) {
    const Tensor tensor = random_tensor(GgufType::q6_k, 4, 512, 3);
    Weight straight = planes(GgufType::q6_k, 4, 512), mapped = planes(GgufType::q6_k, 4, 512);
    const std::int64_t map[] = {2, 0, 3, 1};
    convert_gguf_rows(GgufType::q6_k, tensor.bytes.data(), 0, 4, nullptr, straight);
    convert_gguf_rows(GgufType::q6_k, tensor.bytes.data(), 0, 4, map, mapped);
    std::vector<float> a(512), b(512);
    for (std::int64_t row = 0; row < 4; ++row) {
        decode_row(mapped, row, a.data());
        decode_row(straight, map[row], b.data());
        EXPECT_EQ(a, b) << row;
    }
}

TEST(Convert, BytesAreTheBlocksBytesOrLess) {
    // Nothing is stored that the file does not have, but byte scales where it has six bits.
    const Weight q4_0 = planes(GgufType::q4_0, 8, 256), q6_k = planes(GgufType::q6_k, 8, 256);
    EXPECT_EQ(q4_0.bytes(), 8u * 256 / 32 * 18);
    EXPECT_EQ(q6_k.bytes(), 8u * 210);
    EXPECT_EQ(planes(GgufType::q4_k, 8, 256).bytes(), 8u * (128 + 16 + 4));
}

TEST(Convert, UnknownTypesAreRefusedByName) {
    try {
        format_of_gguf(static_cast<GgufType>(16), "blk.1.attn_q.weight");
        FAIL();
    } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::unsupported);
        EXPECT_NE(std::string(error.what()).find("iq2_xxs"), std::string::npos);
        EXPECT_NE(std::string(error.what()).find("blk.1.attn_q.weight"), std::string::npos);
    }
}

TEST(Weight, DescribeNamesTheFormat) {
    EXPECT_EQ(describe(format_of_gguf(GgufType::q4_0, "w")), "q4/32 f16 z8");
    EXPECT_EQ(describe(format_of_gguf(GgufType::bf16, "w")), "bf16");
    EXPECT_EQ(describe(format_of_gguf(GgufType::q4_k, "w")), "q4/32 u8 -min");
}

// The MLX stream: code e is bits [e * bits, (e + 1) * bits) of the row.
TEST(Weight, StreamsOfEveryWidth) {
    for (const int bits : {1, 2, 3, 4, 5, 6, 8}) {
        WeightFormat format{
            CodeMap::integer, DType::f32,      Packing::stream, static_cast<std::uint8_t>(bits), 32, 0,
            ScaleKind::bf16,  OffsetKind::bias};
        Weight weight;
        weight.format = format;
        weight.rows = 1, weight.cols = 96;
        allocate_planes(weight);
        auto* codes = const_cast<std::byte*>(weight.codes.data);
        std::memset(codes, 0, weight.codes.stride);
        std::mt19937 random(static_cast<unsigned>(bits));
        std::vector<unsigned> want(96);
        for (std::size_t e = 0; e < 96; ++e) {
            want[e] = random() & ((1u << bits) - 1);
            for (std::size_t bit = 0; bit < static_cast<std::size_t>(bits); ++bit)
                if (want[e] >> bit & 1)
                    codes[(e * static_cast<std::size_t>(bits) + bit) / 8] |=
                        static_cast<std::byte>(1u << ((e * static_cast<std::size_t>(bits) + bit) % 8));
        }
        const std::uint16_t scales[] = {f32_to_bf16(0.5f), f32_to_bf16(-2.0f), f32_to_bf16(1.0f)};
        const std::uint16_t biases[] = {f32_to_bf16(1.0f), f32_to_bf16(3.0f), f32_to_bf16(-4.0f)};
        std::memcpy(const_cast<std::byte*>(weight.scales.data), scales, sizeof scales);
        std::memcpy(const_cast<std::byte*>(weight.offsets.data), biases, sizeof biases);
        std::vector<float> got(96);
        decode_row(weight, 0, got.data());
        for (std::size_t e = 0; e < 96; ++e)
            EXPECT_EQ(got[e],
                      bf16_to_f32(scales[e / 32]) * static_cast<float>(want[e]) + bf16_to_f32(biases[e / 32]))
                << bits << " bits, element " << e;
    }
}

}  // namespace
}  // namespace forge
