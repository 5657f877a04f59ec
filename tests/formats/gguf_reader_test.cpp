#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <limits>

#include "../support/expect_error.h"
#include "formats/model_file.h"
#include "raw_gguf.h"

namespace forge {
namespace {

using Raw = RawGguf;

ModelFile parse(const std::string& bytes) {
    ModelFile model;
    // A copy of exactly this size, so that a sanitizer sees a read past its end.
    const std::vector<char> copy(bytes.begin(), bytes.end());
    parse_gguf(std::as_bytes(std::span(copy)), "test.gguf", model);
    for (Tensor& tensor : model.tensors) tensor.data = {};  // they pointed into the copy
    return model;
}
ModelFile parse(const Raw& raw) { return parse(raw.bytes()); }

TEST(GgufReader, EveryValueTypeBecomesMetadata) {
    Raw raw;
    raw.pair("u8", 0, Raw::number<std::uint8_t>(200)).pair("i8", 1, Raw::number<std::int8_t>(-5));
    raw.pair("u16", 2, Raw::number<std::uint16_t>(60000)).pair("i16", 3, Raw::number<std::int16_t>(-300));
    raw.pair("u32", 4, Raw::number<std::uint32_t>(4000000000u)).pair("i32", 5, Raw::number<std::int32_t>(-7));
    raw.pair("f32", 6, Raw::number(0.1f)).pair("yes", 7, std::string(1, 1)).pair("no", 7, std::string(1, 0));
    raw.pair("text", 8, Raw::text("h\xc3\xa9"));
    raw.pair("u64", 10, Raw::number<std::uint64_t>(1ull << 63))
        .pair("i64", 11, Raw::number<std::int64_t>(-1));
    raw.pair("f64", 12, Raw::number(0.1));
    const auto array = [](std::uint32_t type, std::uint64_t count, const std::string& elements) {
        return Raw::number(type) + Raw::number(count) + elements;
    };
    raw.pair("strings", 9, array(8, 2, Raw::text("a") + Raw::text("")));
    raw.pair(
        "ints", 9,
        array(5, 3,
              Raw::number<std::int32_t>(-1) + Raw::number<std::int32_t>(2) + Raw::number<std::int32_t>(3)));
    raw.pair("bytes", 9, array(0, 2, "\xff\x01"));
    raw.pair("floats", 9, array(6, 2, Raw::number(1.5f) + Raw::number(-2.0f)));
    raw.pair("doubles", 9, array(12, 1, Raw::number(0.25)));
    raw.pair("flags", 9, array(7, 3, std::string("\1\0\1", 3)));
    raw.pair("empty", 9, array(4, 0, ""));
    raw.pair("nested", 9, array(9, 2, array(0, 1, "x") + array(8, 1, Raw::text("y"))));
    raw.pair("huge", 9, array(10, 1, Raw::number<std::uint64_t>(1ull << 63)));
    raw.pair("after", 4, Raw::number<std::uint32_t>(42));

    const Metadata meta = parse(raw).metadata;
    EXPECT_EQ(meta.source, "test.gguf");
    EXPECT_EQ(meta.integer("u8"), 200);
    EXPECT_EQ(meta.integer("i8"), -5);
    EXPECT_EQ(meta.integer("u16"), 60000);
    EXPECT_EQ(meta.integer("i16"), -300);
    EXPECT_EQ(meta.integer("u32"), 4000000000);
    EXPECT_EQ(meta.integer("i32"), -7);
    EXPECT_EQ(meta.number("f32", 0), static_cast<double>(0.1f));
    EXPECT_TRUE(meta.boolean("yes", false));
    EXPECT_FALSE(meta.boolean("no", true));
    EXPECT_EQ(meta.string("text"), "h\xc3\xa9");
    EXPECT_EQ(std::get<std::uint64_t>(*meta.find("u64")), 1ull << 63);
    EXPECT_EQ(meta.integer("i64"), -1);
    EXPECT_EQ(meta.number("f64", 0), 0.1);
    EXPECT_EQ(*meta.strings("strings"), (std::vector<std::string>{"a", ""}));
    EXPECT_EQ(*meta.integer_array("ints"), (std::vector<std::int64_t>{-1, 2, 3}));
    EXPECT_EQ(*meta.integer_array("bytes"), (std::vector<std::int64_t>{255, 1}));
    EXPECT_EQ(*meta.number_array("floats"), (std::vector<double>{1.5, -2}));
    EXPECT_EQ(*meta.number_array("doubles"), (std::vector<double>{0.25}));
    EXPECT_EQ(*meta.boolean_array("flags"), (std::vector<bool>{true, false, true}));
    EXPECT_TRUE(meta.integer_array("empty")->empty());
    EXPECT_FALSE(meta.has("nested"));  // skipped, and what follows is read correctly
    EXPECT_FALSE(meta.has("huge"));
    EXPECT_EQ(meta.integer("after"), 42);
}

TEST(GgufReader, TensorsHaveShapeTypeAndBytes) {
    Raw raw;
    raw.tensor("plain", {3, 2}, 0, 0).tensor("half", {5}, 1, 32).tensor("block", {64, 2, 3}, 2, 64);
    raw.tensor("ints", {2}, 26, 288);
    raw.data = std::string(24, 'p') + std::string(8, '\0') + std::string(10, 'h') + std::string(22, '\0') +
               std::string(216, 'b') + std::string(8, '\0') + std::string(8, 'i');
    const std::string bytes = raw.bytes();
    ModelFile model;
    parse_gguf(std::as_bytes(std::span(bytes)), "test.gguf", model);
    const auto content = [](const Tensor& t) {
        return std::string(reinterpret_cast<const char*>(t.data.data()), t.data.size());
    };
    EXPECT_EQ(model.format, ModelFormat::gguf);
    EXPECT_EQ(model.tensor_bytes(), 24u + 10 + 216 + 8);
    const Tensor& plain = model.get("plain");
    EXPECT_EQ(plain.shape, (std::vector<std::int64_t>{2, 3}));  // outermost first
    EXPECT_FALSE(plain.is_block);
    EXPECT_EQ(plain.dtype, DType::f32);
    EXPECT_EQ(content(plain), std::string(24, 'p'));
    EXPECT_EQ(plain.describe(), "plain [2, 3] f32");
    EXPECT_EQ(model.get("half").dtype, DType::f16);
    EXPECT_EQ(content(model.get("half")), std::string(10, 'h'));
    const Tensor& block = model.get("block");
    EXPECT_EQ(block.shape, (std::vector<std::int64_t>{3, 2, 64}));
    EXPECT_TRUE(block.is_block);
    EXPECT_EQ(block.block, GgufType::q4_0);
    EXPECT_EQ(block.rows(), 6);
    EXPECT_EQ(block.cols(), 64);
    EXPECT_EQ(block.elements(), 384);
    EXPECT_EQ(content(block), std::string(216, 'b'));
    EXPECT_EQ(model.get("ints").dtype, DType::i32);
    EXPECT_EQ(model.find("absent"), nullptr);
    EXPECT_ERROR(model.get("absent"), invalid_input, "test.gguf: there is no tensor 'absent' among its 4");
}

TEST(GgufReader, ReadsVersion2AndOtherAlignments) {
    Raw raw;
    raw.version = 2;
    raw.alignment = 64;
    raw.pair("general.alignment", 4, Raw::number<std::uint32_t>(64))
        .tensor("t", {2}, 0, 0)
        .tensor("u", {1}, 0, 64);
    raw.data = std::string(68, 'x');
    EXPECT_EQ(parse(raw).tensors.size(), 2u);
}

TEST(GgufReader, UndecodableTypesAreKeptWithTheirId) {
    Raw raw;
    raw.tensor("t", {256}, 16, 0);
    raw.data = std::string(66, 'x');
    const ModelFile model = parse(raw);
    EXPECT_TRUE(model.tensors[0].is_block);
    EXPECT_EQ(static_cast<std::uint32_t>(model.tensors[0].block), 16u);
    EXPECT_EQ(model.tensors[0].describe(), "t [256] iq2_xxs");
}

TEST(GgufReader, RefusesOtherFilesAndVersions) {
    EXPECT_ERROR(parse(std::string("hello, this is text")), invalid_input,
                 "test.gguf: this is no GGUF file (it does not begin with the letters GGUF)");
    EXPECT_ERROR(parse(std::string("GG")), invalid_input, "this is no GGUF file");
    Raw raw;
    raw.version = 0x03000000;
    EXPECT_ERROR(parse(raw), unsupported,
                 "this GGUF file is big-endian; Forge reads little-endian files only");
    raw.version = 1;
    EXPECT_ERROR(parse(raw), unsupported, "GGUF version 1 is not read (versions 2 and 3 are)");
    raw.version = 4;
    EXPECT_ERROR(parse(raw), unsupported, "GGUF version 4 is newer than this version of Forge");
}

TEST(GgufReader, RefusesCountsThatTheFileCannotHold) {
    Raw raw;
    raw.pair_count = 1ull << 60;
    EXPECT_ERROR(parse(raw), invalid_input,
                 "the header claims 1152921504606846976 metadata keys, more than a file of 32 bytes");
    raw.pair_count = 0;
    raw.tensor_count = ~0ull;
    EXPECT_ERROR(parse(raw), invalid_input,
                 "the header claims 18446744073709551615 tensors, more than a file of 32 bytes");

    Raw array;
    array.pair("tokens", 9, Raw::number<std::uint32_t>(8) + Raw::number<std::uint64_t>(1ull << 61));
    EXPECT_ERROR(parse(array), invalid_input,
                 "the value of metadata key 'tokens' claims 2305843009213693952 elements");
    Raw text;
    text.pair("text", 8, Raw::number<std::uint64_t>(~0ull));
    EXPECT_ERROR(parse(text), invalid_input, "the file ends in the value of metadata key 'text'");
    Raw many;
    many.pair("bytes", 9,
              Raw::number<std::uint32_t>(0) + Raw::number<std::uint64_t>((1u << 25) + 1) +
                  std::string((1u << 25) + 1, 0));
    EXPECT_ERROR(parse(many), invalid_input,
                 "brings the metadata to 33554433 array elements; at most 33554432 are read");
}

TEST(GgufReader, RefusesBadMetadata) {
    EXPECT_ERROR(parse(Raw().architecture().architecture()), invalid_input,
                 "metadata key 'general.architecture' appears twice");
    // Also when the first one was skipped.
    const std::string nested = Raw::number<std::uint32_t>(9) + Raw::number<std::uint64_t>(0);
    EXPECT_ERROR(parse(Raw().pair("k", 9, nested).pair("k", 9, nested)), invalid_input,
                 "metadata key 'k' appears twice");
    EXPECT_ERROR(parse(Raw().pair("k", 13, std::string(8, 0))), invalid_input,
                 "the value of metadata key 'k' has type 13, which GGUF does not define");
    EXPECT_ERROR(parse(Raw().pair("k", 9, Raw::number<std::uint32_t>(77) + Raw::number<std::uint64_t>(0))),
                 invalid_input, "has type 77, which GGUF does not define");
    EXPECT_ERROR(parse(Raw().pair("k", 7, std::string(1, 2))), invalid_input,
                 "should be a boolean (0 or 1), but its byte is 2");
    EXPECT_ERROR(parse(Raw().pair("", 7, std::string(1, 1))), invalid_input,
                 "a metadata key at byte 24 is empty");
    EXPECT_ERROR(parse(Raw().pair(std::string("a\0b", 3), 7, std::string(1, 1))), invalid_input,
                 "a metadata key 'a\\x00b' holds a zero byte");
    EXPECT_ERROR(parse(Raw().pair(std::string(70000, 'a'), 7, std::string(1, 1))), invalid_input,
                 "is 70000 bytes long; names have at most 65535");
    std::string deep;
    for (int i = 0; i < 5; ++i) deep += Raw::number<std::uint32_t>(9) + Raw::number<std::uint64_t>(1);
    EXPECT_ERROR(parse(Raw().pair("k", 9, deep + std::string(64, 0))), invalid_input,
                 "nests arrays more than 4 deep");
}

TEST(GgufReader, RefusesBadAlignment) {
    for (std::uint32_t bad : {0u, 3u, 48u, 0x80000000u})
        EXPECT_ERROR(parse(Raw().pair("general.alignment", 4, Raw::number(bad))), invalid_input,
                     "general.alignment is " + std::to_string(bad) + "; it must be a power of two");
    EXPECT_ERROR(parse(Raw().pair("general.alignment", 8, Raw::text("32"))), invalid_input,
                 "should be an integer");
}

TEST(GgufReader, RefusesBadTensorDescriptions) {
    const auto one = [](const std::vector<std::uint64_t>& ne, std::uint32_t type, std::uint64_t offset = 0) {
        Raw raw;
        raw.tensor("w", ne, type, offset);
        raw.data = std::string(64, 'x');
        return raw;
    };
    EXPECT_ERROR(parse(one({}, 0)), invalid_input,
                 "the description of tensor 'w' says 0 dimensions; GGUF tensors have 1 to 4");
    EXPECT_ERROR(parse(one({1, 1, 1, 1, 1}, 0)), invalid_input, "says 5 dimensions");
    EXPECT_ERROR(parse(one({4, 0}, 0)), invalid_input, "has a dimension of 0");
    EXPECT_ERROR(parse(one({1ull << 62, 4}, 0)), invalid_input, "has more elements than 63 bits can count");
    EXPECT_ERROR(parse(one({~0ull}, 0)), invalid_input, "has more elements than 63 bits can count");
    EXPECT_ERROR(parse(one({1ull << 62}, 0)), invalid_input, "has more bytes than 63 bits can count");
    EXPECT_ERROR(parse(one({32}, 4)), unsupported, "tensor 'w' has type id 4, which is withdrawn or newer");
    EXPECT_ERROR(parse(one({32}, 1000)), unsupported, "tensor 'w' has type id 1000");
    EXPECT_ERROR(parse(one({48}, 2)), invalid_input,
                 "tensor 'w' has rows of 48 elements, not a multiple of q4_0's block of 32");
    EXPECT_ERROR(parse(one({4}, 0, 8)), invalid_input,
                 "tensor 'w' starts at offset 8, not a multiple of the alignment 32");
    EXPECT_ERROR(parse(one({17}, 0)), invalid_input,
                 "tensor 'w' needs bytes 0 to 68 of the data section, which has 64");
    EXPECT_ERROR(parse(one({4}, 0, 1ull << 40)), invalid_input,
                 "of the data section, which has 64; the file is truncated");
    EXPECT_ERROR(parse(one({4}, 0, 0xffffffffffffffe0ull)), invalid_input,
                 "of the data section, which has 64");
    Raw twice = one({4}, 0);
    twice.tensor("w", {4}, 0, 32);
    EXPECT_ERROR(parse(twice), invalid_input, "two tensors are named 'w'");
    Raw overlap = one({9}, 0);
    overlap.tensor("v", {4}, 0, 32);
    EXPECT_ERROR(parse(overlap), invalid_input, "the data of tensors 'w' and 'v' overlap");
    EXPECT_ERROR(parse(Raw().tensor("", {1}, 0, 0)), invalid_input, "a tensor name at byte 24 is empty");
}

TEST(GgufReader, NamesAreMadePrintable) {
    Raw raw;
    raw.tensor("bad\x1b[31m\xff" + std::string(500, 'a'), {32}, 4, 0);
    EXPECT_ERROR(parse(raw), unsupported, "'bad\\x1b[31m\\xff" + std::string(62, 'a'));
}

std::string small_file() {
    Raw raw;
    raw.architecture();
    raw.pair(
        "tokens", 9,
        Raw::number<std::uint32_t>(8) + Raw::number<std::uint64_t>(2) + Raw::text("ab") + Raw::text("c"));
    raw.pair("flag", 7, std::string(1, 1)).pair("number", 4, Raw::number<std::uint32_t>(7));
    raw.tensor("a", {32, 2}, 2, 0).tensor("b", {3}, 0, 64);
    raw.data = std::string(76, 'x');
    return raw.bytes();
}

TEST(GgufReader, TruncationAnywhereIsAnError) {
    const std::string bytes = small_file();
    EXPECT_EQ(parse(bytes).tensors.size(), 2u);
    for (std::size_t size = 0; size < bytes.size(); ++size)
        EXPECT_THROW(parse(bytes.substr(0, size)), Error) << size;
}

// Any change of one byte gives a model or an Error.
TEST(GgufReader, ChangedBytesNeverCrash) {
    const std::string bytes = small_file();
    int accepted = 0, refused = 0;
    for (std::size_t at = 0; at < bytes.size(); ++at) {
        for (int change : {1, 0x20, 0x80, 0xff}) {
            std::string changed = bytes;
            changed[at] = static_cast<char>(changed[at] ^ change);
            try {
                parse(changed);
                ++accepted;
            } catch (const Error&) {
                ++refused;
            }
        }
    }
    EXPECT_GT(accepted, 0);
    EXPECT_GT(refused, 0);
}

TEST(GgufReader, LargeVocabulariesAreFast) {
    Raw raw;
    std::string tokens, merges, types;
    constexpr std::uint64_t count = 150000;
    for (std::uint64_t i = 0; i < count; ++i) {
        tokens += Raw::text("token" + std::to_string(i));
        merges += Raw::text("tok en" + std::to_string(i));
        types += Raw::number<std::int32_t>(1);
    }
    raw.pair("tokens", 9, Raw::number<std::uint32_t>(8) + Raw::number(count) + tokens);
    raw.pair("merges", 9, Raw::number<std::uint32_t>(8) + Raw::number(count) + merges);
    raw.pair("types", 9, Raw::number<std::uint32_t>(5) + Raw::number(count) + types);
    const std::string bytes = raw.bytes();
    double best = 1e9;
    for (int run = 0; run < 3; ++run) {
        ModelFile model;
        const auto start = std::chrono::steady_clock::now();
        parse_gguf(std::as_bytes(std::span(bytes)), "test.gguf", model);
        best = std::min(
            best,
            std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
        EXPECT_EQ(model.metadata.strings("merges")->back(), "tok en149999");
    }
    RecordProperty("milliseconds", static_cast<int>(best));
    EXPECT_LT(best, 500) << "150000 tokens should take some tens of milliseconds even in a slow build";
}

}  // namespace
}  // namespace forge
