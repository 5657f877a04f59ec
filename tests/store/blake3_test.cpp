// BLAKE3 against published values, whatever the pieces.
#include "store/blake3.h"

#include <gtest/gtest.h>

#include <vector>

#include "../support/expect_error.h"
#include "base/paths.h"

namespace forge {
namespace {

// The input of the official vectors: bytes 0, 1, ..., 250, again and again.
std::vector<std::byte> input(std::size_t count) {
    std::vector<std::byte> out(count);
    for (std::size_t i = 0; i < count; ++i) out[i] = static_cast<std::byte>(i % 251);
    return out;
}

TEST(Blake3, EqualsTheOfficialVectors) {
    EXPECT_EQ(blake3({}).hex(), "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262");
    EXPECT_EQ(blake3(input(1)).hex(), "2d3adedff11b61f14c886e35afa036736dcd87a74d27b5c1510225d0f592e213");
    EXPECT_EQ(blake3(input(1024)).hex(), "42214739f095a406f3fc83deb889744ac00df831c10daa55189b5d121c855af7");
    EXPECT_EQ(blake3(input(31744)).hex(), "62b6960e1a44bcc1eb1a611a8d6235b6b4b78f32e7abc4fb4c6cdcce94895c47");
}

TEST(Blake3, DoesNotDependOnThePieces) {
    const auto bytes = input(100'000);
    const Digest whole = blake3(bytes);
    for (const std::size_t piece : {1u, 63u, 1024u, 4097u, 70'000u}) {
        Blake3 hasher;
        for (std::size_t at = 0; at < bytes.size(); at += piece) hasher.update(std::span(bytes).subspan(at, std::min<std::size_t>(piece, bytes.size() - at)));
        EXPECT_EQ(hasher.finish(), whole) << piece;
    }
    const TestFolder folder;
    write_file_atomically(folder / "f", {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    std::uint64_t told = 0;
    EXPECT_EQ(blake3_file(folder / "f", [&](std::uint64_t n) { told += n; }), whole);
    EXPECT_EQ(told, bytes.size());
    EXPECT_ERROR(blake3_file(folder / "absent"), not_found, "absent");
}

TEST(Digest, HasOneSpelling) {
    const std::string hex = blake3({}).hex();
    EXPECT_EQ(Digest::parse(hex), blake3({}));
    EXPECT_EQ(Digest::parse("blake3:" + hex), blake3({}));
    std::string upper = hex;
    upper[0] = 'A';
    for (const std::string& text : {upper, hex.substr(1), hex + "0", "sha256:" + hex, std::string()}) EXPECT_FALSE(Digest::parse(text)) << text;
}

}  // namespace
}  // namespace forge
