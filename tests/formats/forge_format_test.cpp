// The parts of the .forge format: what is written is read again, and what is damaged is refused by name.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <random>

#include "../support/expect_error.h"
#include "formats/forge_container.h"
#include "formats/forge_manifest.h"
#include "formats/forge_metadata.h"
#include "formats/forge_shard.h"
#include "formats/xxh3.h"
#include "quant/convert.h"
#include "quant/tiles.h"

namespace forge {
namespace {

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

TEST(Xxh3, EqualsPublishedValuesWhateverThePieces) {
    EXPECT_EQ(xxh3({}), 0x2d06800538d394c2u);
    std::string text(300'000, '\0');
    for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * i >> 3);
    for (const std::size_t piece : {1u, 17u, 256u, 65'537u}) {
        Xxh3 hash;
        for (std::size_t at = 0; at < text.size(); at += piece) hash.update(bytes_of(text).subspan(at, std::min(piece, text.size() - at)));
        EXPECT_EQ(hash.finish(), xxh3(bytes_of(text))) << piece;
    }
}

Metadata sample_pairs() {
    Metadata m;
    m.set("a.bool", true);
    m.set("a.int", std::int64_t{-5});
    m.set("a.uint", std::uint64_t{1} << 63);
    m.set("a.number", 0.1);
    m.set("a.text", std::string("with \0 zero", 11));
    m.set("b.bools", std::vector<bool>{true, false, true});
    m.set("b.ints", std::vector<std::int64_t>{1, -2});
    m.set("b.numbers", std::vector<double>{1.5, -0.0});
    m.set("b.texts", std::vector<std::string>{"", "x", "yz"});
    m.set("b.none", std::vector<std::string>{});
    return m;
}

TEST(ForgePairs, AreReadAsTheyWereWritten) {
    const Metadata from = sample_pairs();
    const std::string all = encode_pairs(from, [](std::string_view) { return true; });
    Metadata to;
    decode_pairs(bytes_of(all), "t", to);
    EXPECT_EQ(to.all(), from.all());
    const std::string some = encode_pairs(from, [](std::string_view key) { return key.starts_with("a."); });
    Metadata part;
    decode_pairs(bytes_of(some), "t", part);
    EXPECT_EQ(part.all().size(), 5u);
    EXPECT_ERROR(decode_pairs(bytes_of(some), "t", part), invalid_input, "'a.bool' appears twice");
}

TEST(ForgePairs, TruncatedAtAnyByteAreRefused) {
    const std::string all = encode_pairs(sample_pairs(), [](std::string_view) { return true; });
    for (std::size_t size = 0; size < all.size(); ++size) {
        Metadata to;
        EXPECT_THROW(decode_pairs(bytes_of(all).first(size), "t", to), Error) << size;
    }
    Metadata to;
    EXPECT_ERROR(decode_pairs(bytes_of(all + "x"), "t", to), invalid_input, "1 bytes follow");
}

TEST(ForgeTensorList, KeepsShapesTypesAndSmallData) {
    std::vector<Tensor> tensors(2);
    tensors[0].name = "w";
    tensors[0].shape = {3, 256};
    tensors[0].is_block = true;
    tensors[0].block = GgufType::q4_k;
    const std::string data(8, 'd');
    tensors[1].name = "s";
    tensors[1].shape = {2};
    tensors[1].data = bytes_of(data);
    const std::string text = encode_tensor_list(tensors, [](const Tensor& t) { return t.name == "s"; });
    const std::vector<Tensor> read = decode_tensor_list(bytes_of(text), "t");
    ASSERT_EQ(read.size(), 2u);
    EXPECT_EQ(read[0].describe(), tensors[0].describe());
    EXPECT_TRUE(read[0].data.empty());
    EXPECT_EQ(read[1].describe(), tensors[1].describe());
    ASSERT_EQ(read[1].data.size(), 8u);
    EXPECT_EQ(std::memcmp(read[1].data.data(), data.data(), 8), 0);
    for (std::size_t size = 0; size < text.size(); ++size) EXPECT_THROW(decode_tensor_list(bytes_of(text).first(size), "t"), Error) << size;
}

// A shard of a plain, a quantised and a tiled weight, planes filled with `fill`.
std::string sample_shard(std::vector<PackedWeight>& weights, char fill = 'p') {
    weights.assign(3, {});
    weights[0].key = {"norm", 0, 0, true};
    weights[0].rows = 1;
    weights[0].cols = 5;
    weights[1].key = {"q", 2, 77, false};
    weights[1].format = format_of_gguf(GgufType::q4_k, "");
    weights[1].rows = 3;
    weights[1].cols = 512;
    weights[1].global_scale = 0.5f;
    weights[2].key = {"t", 0, 0, false};
    weights[2].format = format_of_gguf(GgufType::q6_k, "");
    weights[2].rows = 17;
    weights[2].cols = 256;
    weights[2].tiled = true;
    for (PackedWeight& w : weights) w.planes = packed_planes(w.format, w.rows, w.cols, w.tiled);
    std::string shard(lay_out_shard(weights), '\0');
    for (PackedWeight& w : weights)
        for (PackedPlane& plane : w.planes) {
            std::fill_n(shard.begin() + static_cast<std::ptrdiff_t>(plane.offset), plane.bytes, fill);
            plane.hash = xxh3(bytes_of(shard).subspan(plane.offset, plane.bytes));
        }
    const std::string header = shard_header(weights), tail = shard_tail(weights);
    shard.replace(0, header.size(), header);
    shard.replace(shard.size() - tail.size(), tail.size(), tail);
    return shard;
}

TEST(ForgeShard, IsReadAsItWasWritten) {
    std::vector<PackedWeight> weights;
    const std::string shard = sample_shard(weights);
    const ShardIndex index = read_shard(bytes_of(shard), "t");
    EXPECT_EQ(index.index_hash, shard_index_hash(weights));
    ASSERT_EQ(index.weights.size(), weights.size());
    for (std::size_t i = 0; i < weights.size(); ++i) {
        const PackedWeight &a = index.weights[i], &b = weights[i];
        EXPECT_EQ(a.key, b.key);
        EXPECT_EQ(a.format, b.format);
        EXPECT_EQ(a.rows, b.rows);
        EXPECT_EQ(a.cols, b.cols);
        EXPECT_EQ(a.tiled, b.tiled);
        EXPECT_EQ(a.global_scale, b.global_scale);
        ASSERT_EQ(a.planes.size(), b.planes.size());
        for (std::size_t p = 0; p < a.planes.size(); ++p) {
            EXPECT_EQ(a.planes[p].offset, b.planes[p].offset);
            EXPECT_EQ(a.planes[p].offset % kPlaneAlignment, 0u);
            EXPECT_EQ(a.planes[p].hash, b.planes[p].hash);
        }
    }
    EXPECT_EQ(weights[1].planes.size(), 5u);
    EXPECT_EQ(weights[2].planes.size(), 1u);
}

TEST(ForgeShard, TruncatedIsRefused) {
    std::vector<PackedWeight> weights;
    const std::string shard = sample_shard(weights);
    for (const std::size_t size : {std::size_t{0}, std::size_t{63}, std::size_t{64}, std::size_t{20'000}, shard.size() - 1})
        EXPECT_THROW(read_shard(bytes_of(shard).first(size), "t"), Error) << size;
    EXPECT_ERROR(read_shard(bytes_of(shard).first(shard.size() - 1), "t"), invalid_input, "truncated or was swapped");
    EXPECT_ERROR(read_shard(bytes_of(shard + "x"), "t"), invalid_input, "truncated or was swapped");
}

// The footer's own hashes of planes are no part of the index: all else is covered.
TEST(ForgeShard, EveryFlippedBitOfHeaderAndIndexIsNoticed) {
    std::vector<PackedWeight> weights;
    const std::string shard = sample_shard(weights);
    const std::string tail = shard_tail(weights);
    std::size_t planes = 0;
    for (const PackedWeight& w : weights) planes += w.planes.size();
    std::uint64_t index = 0;
    std::memcpy(&index, shard.data() + 24, 8);
    const auto flipped = [&](std::size_t at, int bit) {
        std::string damaged = shard;
        damaged[at] = static_cast<char>(damaged[at] ^ (1 << bit));
        return damaged;
    };
    for (std::size_t at = 0; at < 64; ++at) EXPECT_THROW(read_shard(bytes_of(flipped(at, static_cast<int>(at % 8))), "t"), Error) << at;
    for (std::size_t at = index; at < shard.size(); ++at) {
        if (at >= shard.size() - 24 - 8 * planes && at < shard.size() - 24) continue;
        EXPECT_THROW(read_shard(bytes_of(flipped(at, static_cast<int>(at % 8))), "t"), Error) << at;
    }
}

// Files hold tiles under the id tiled16: their bytes may not change. A layout that a kernel likes better
// needs an id of its own (docs/format.md), and a way back to rows for files of the old one.
TEST(ForgeShard, TilesHaveTheBytesThatTheFormatSays) {
    const std::pair<GgufType, std::uint64_t> pinned[] = {
        {GgufType::q4_0, 0x24dc33de54423a51}, {GgufType::q4_1, 0x5491e475cbc52de5}, {GgufType::q5_0, 0xe51d7225cd038c23},
        {GgufType::q5_1, 0x0ad231e06c43baf4}, {GgufType::q8_0, 0x28f6685cc77e040a}, {GgufType::q2_k, 0x965ab6f5b642b390},
        {GgufType::q3_k, 0xee4041f3621d455d}, {GgufType::q4_k, 0xe8d1b8e4b06b4005}, {GgufType::q5_k, 0xce65b85f64ad8ca7},
        {GgufType::q6_k, 0xaa5312d3f03aafae}, {GgufType::iq4_nl, 0x24dc33de54423a51}, {GgufType::iq4_xs, 0x44ba06cade852661},
        {GgufType::tq2_0, 0x07139be7b8431fe7}, {GgufType::mxfp4, 0x31a407655bd3a7ae}, {GgufType::nvfp4, 0x3e1fc1945536737c}};
    for (const auto& [type, hash] : pinned) {
        Weight planes;
        planes.format = format_of_gguf(type, "");
        planes.rows = 16;
        planes.cols = 512;
        allocate_planes(planes);
        const PlaneStrides s = tight_strides(planes.format, planes.cols);
        std::uint32_t state = 1;
        for (const auto& [plane, stride] : {std::pair{planes.codes, s.codes}, {planes.codes_high, s.codes_high}, {planes.scales, s.scales},
                                            {planes.offsets, s.offsets}, {planes.super_scales, s.super_scales}, {planes.super_mins, s.super_mins}})
            for (std::size_t i = 0; i < 16 * stride; ++i) {
                state = state * 1664525u + 1013904223u;
                const_cast<std::byte*>(plane.data)[i] = static_cast<std::byte>(state >> 24);
            }
        std::vector<std::byte> tile(tile_bytes(planes.format, planes.cols));
        write_tile(planes, 0, tile.data());
        EXPECT_EQ(xxh3(tile), hash) << gguf_type_name(static_cast<std::uint32_t>(type)) << fmt::format(" 0x{:016x}", xxh3(tile));
    }
}

TEST(ForgeContainer, IsReadAsItWasWrittenAndRefusedWhenDamaged) {
    std::string file = container_header();
    const std::vector<ContainedBlob> blobs{{{}, file.size(), 10}};
    file += std::string(kPlaneAlignment, 'b');
    file += container_tail("{\"manifest\": 1}", blobs, file.size());
    const Container read = read_container(bytes_of(file), "t");
    EXPECT_EQ(read.manifest, "{\"manifest\": 1}");
    ASSERT_EQ(read.blobs.size(), 1u);
    EXPECT_EQ(read.blobs[0].offset, kPlaneAlignment);
    for (std::size_t at = 2 * kPlaneAlignment; at < file.size(); ++at) {
        std::string damaged = file;
        damaged[at] = static_cast<char>(damaged[at] ^ 4);
        EXPECT_THROW(read_container(bytes_of(damaged), "t"), Error) << at;
        EXPECT_THROW(read_container(bytes_of(file).first(at), "t"), Error) << at;
    }
    EXPECT_ERROR(read_container(bytes_of("GGUF"), "t"), invalid_input, "this is no .forge file");
}

std::string sample_manifest(const std::function<void(nlohmann::ordered_json&)>& edit = {}) {
    nlohmann::ordered_json json = nlohmann::ordered_json::parse(R"({"format": "forge-manifest", "version": 1, "origin": "gguf", "layout": "rows",
        "model": {"name": "m"}, "provenance": {}, "blobs": [{"role": "shard", "name": "layer.0", "bytes": 5, "index_xxh3": "00ff00ff00ff00ff", "tensors": ["a"]}]})");
    json["blobs"][0]["digest"] = "blake3:" + std::string(64, 'a');
    if (edit) edit(json);
    return json.dump();
}

TEST(ForgeManifest, IsReadAsItWasWritten) {
    const Manifest m = Manifest::parse(sample_manifest(), "t");
    EXPECT_EQ(m.origin, "gguf");
    ASSERT_EQ(m.blobs.size(), 1u);
    EXPECT_EQ(m.blobs[0].index_hash, 0x00ff00ff00ff00ffu);
    EXPECT_EQ(m.bytes(), 5u);
    EXPECT_EQ(Manifest::parse(m.dump(), "t").dump(), m.dump());
    EXPECT_EQ(m.find("shard", "layer.0"), &m.blobs[0]);
    EXPECT_EQ(m.find("proof"), nullptr);
}

TEST(ForgeManifest, SaysWhatIsWrong) {
    using Json = nlohmann::ordered_json;
    const auto refused = [](const std::function<void(Json&)>& edit, const char* text, ErrorKind kind = ErrorKind::invalid_input) {
        try {
            Manifest::parse(sample_manifest(edit), "t");
            ADD_FAILURE() << "accepted; wanted: " << text;
        } catch (const Error& error) {
            EXPECT_EQ(error.kind(), kind) << error.what();
            EXPECT_THAT(std::string(error.what()), testing::HasSubstr(text));
        }
    };
    refused([](Json& j) { j["format"] = "x"; }, "no manifest of a .forge model");
    refused([](Json& j) { j["version"] = 2; }, "version 2", ErrorKind::unsupported);
    refused([](Json& j) { j["origin"] = "x"; }, "'origin' is 'x'");
    refused([](Json& j) { j["layout"] = 3; }, "'layout' should be a text");
    refused([](Json& j) { j.erase("model"); }, "'model' is missing");
    refused([](Json& j) { j["blobs"] = Json::array(); }, "'blobs' should be a list");
    refused([](Json& j) { j["blobs"][0]["role"] = "x"; }, "blob 0: the role 'x' is not known");
    refused([](Json& j) { j["blobs"][0]["digest"] = "blake3:" + std::string(64, 'A'); }, "64 hexadecimal digits");
    refused([](Json& j) { j["blobs"][0]["digest"] = std::string(64, 'a'); }, "64 hexadecimal digits");
    refused([](Json& j) { j["blobs"][0]["bytes"] = -1; }, "'bytes' should be a size");
    refused([](Json& j) { j["blobs"][0]["index_xxh3"] = "12"; }, "16 hexadecimal digits");
    for (const char* name : {"../x", "/x", "a/../b", ".x", "", "a\\b"})
        refused([&](Json& j) { j["blobs"][0] = {{"role", "file"}, {"name", name}, {"digest", "blake3:" + std::string(64, 'a')}, {"bytes", 1}}; }, "is no name for a file");
    EXPECT_ERROR(Manifest::parse("[]", "t"), invalid_input, "JSON object");
    EXPECT_ERROR(Manifest::parse("{", "t"), invalid_input, "no valid JSON");
}

}  // namespace
}  // namespace forge
