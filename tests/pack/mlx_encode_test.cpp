// Rows encoded as MLX does it: equal to its planes byte for byte, and decoded
// by the planes' own reference.
#include "pack/mlx_encode.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/float16.h"

namespace forge {
namespace {

using Json = nlohmann::json;

std::vector<std::byte> from_hex(const std::string& text) {
    std::vector<std::byte> out;
    for (std::size_t i = 0; i + 1 < text.size(); i += 2) out.push_back(static_cast<std::byte>(std::stoi(text.substr(i, 2), nullptr, 16)));
    return out;
}

std::vector<float> floats(const std::vector<std::byte>& bytes, DType type) {
    std::vector<float> out(bytes.size() / size_of(type));
    for (std::size_t i = 0; i < out.size(); ++i) {
        std::uint16_t half = 0;
        if (type == DType::f32) {
            std::memcpy(&out[i], &bytes[4 * i], 4);
        } else {
            std::memcpy(&half, &bytes[2 * i], 2);
            out[i] = type == DType::bf16 ? bf16_to_f32(half) : f16_to_f32(half);
        }
    }
    return out;
}

DType type_named(const std::string& name) { return name == "f32" ? DType::f32 : name == "f16" ? DType::f16 : DType::bf16; }

TEST(MlxEncode, EqualsMlxByteForByte) {
    std::ifstream in(FORGE_TEST_DATA "/quant/mlx_encode.json");
    const Json vectors = Json::parse(in);
    const auto cols = vectors["cols"].get<std::int64_t>(), count = vectors["count"].get<std::int64_t>();
    for (const Json& c : vectors["cases"]) {
        const std::string mode = c["mode"];
        MlxFormat format{mode == "affine" ? MlxMode::affine : mode == "mxfp4" ? MlxMode::mxfp4 : mode == "mxfp8" ? MlxMode::mxfp8 : MlxMode::nvfp4,
                         c["bits"], c["group"]};
        const DType type = type_named(c["type"]);
        SCOPED_TRACE(mode + " " + std::to_string(format.bits) + "/" + std::to_string(format.group) + " " + c["type"].get<std::string>());
        const std::vector<float> values = floats(from_hex(vectors["rows"][c["type"].get<std::string>()]), type);
        const auto codes = from_hex(c["codes"]), scales = from_hex(c["scales"]), biases = from_hex(c.value("biases", ""));
        const MlxRowBytes bytes = mlx_row_bytes(format, cols, type);
        ASSERT_EQ(codes.size(), bytes.codes * static_cast<std::size_t>(count));
        ASSERT_EQ(scales.size(), bytes.scales * static_cast<std::size_t>(count));
        ASSERT_EQ(biases.size(), bytes.biases * static_cast<std::size_t>(count));
        for (std::size_t r = 0; r < static_cast<std::size_t>(count); ++r) {
            std::vector<std::byte> code(bytes.codes, std::byte{0xee}), scale(bytes.scales, std::byte{0xee}), bias(bytes.biases, std::byte{0xee});
            const auto row = std::span(values).subspan(r * static_cast<std::size_t>(cols), static_cast<std::size_t>(cols));
            encode_mlx_row(format, type, row, code.data(), scale.data(), bias.data(), c.value("largest", 0.0f));
            EXPECT_EQ(std::memcmp(scale.data(), &scales[r * bytes.scales], bytes.scales), 0) << "scales of row " << r;
            EXPECT_TRUE(bytes.biases == 0 || std::memcmp(bias.data(), &biases[r * bytes.biases], bytes.biases) == 0) << "biases of row " << r;
            EXPECT_EQ(std::memcmp(code.data(), &codes[r * bytes.codes], bytes.codes), 0) << "codes of row " << r;
        }
    }
}

}  // namespace
}  // namespace forge
