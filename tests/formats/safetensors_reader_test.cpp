#include <gtest/gtest.h>

#include <cstring>

#include "../support/expect_error.h"
#include "formats/model_file.h"

namespace forge {
namespace {

std::string file_of(const std::string& header, const std::string& buffer) {
    const std::uint64_t length = header.size();
    std::string bytes(8, '\0');
    std::memcpy(bytes.data(), &length, 8);
    return bytes + header + buffer;
}

ModelFile parse_bytes(const std::string& bytes) {
    ModelFile model;
    const std::vector<char> copy(bytes.begin(), bytes.end());
    parse_safetensors(std::as_bytes(std::span(copy)), "test.safetensors", model);
    for (Tensor& tensor : model.tensors) tensor.data = {};
    return model;
}
ModelFile parse(const std::string& header, const std::string& buffer) {
    return parse_bytes(file_of(header, buffer));
}

std::string entry(const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return R"({"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}

TEST(SafetensorsReader, ReadsTensorsInFileOrderAtAnyAddress) {
    // The header has an odd length, and the tensors are listed in no order.
    const std::string header = R"({"b":)" + entry("BF16", "[2,3]", "[5,17]") +
                               R"(,"__metadata__":{"format":"mlx"},"a":)" + entry("U8", "[5]", "[0,5]") +
                               R"(,"empty":)" + entry("F32", "[0,7]", "[5,5]") + R"(,"s":)" +
                               entry("F32", "[]", "[17,21]") + "}   ";
    const std::string bytes = file_of(header, "aaaaabbbbbbbbbbbbssss");
    ModelFile model;
    parse_safetensors(std::as_bytes(std::span(bytes)), "test.safetensors", model);
    ASSERT_EQ(model.tensors.size(), 4u);
    EXPECT_EQ(model.tensors[0].name, "a");
    EXPECT_EQ(model.tensors[1].name, "empty");
    EXPECT_EQ(model.tensors[2].name, "b");
    EXPECT_EQ(model.get("b").shape, (std::vector<std::int64_t>{2, 3}));
    EXPECT_EQ(model.get("b").dtype, DType::bf16);
    EXPECT_FALSE(model.get("b").is_block);
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(model.get("b").data.data()), 12), "bbbbbbbbbbbb");
    EXPECT_EQ(model.get("s").elements(), 1);
    EXPECT_EQ(model.get("empty").elements(), 0);
    EXPECT_EQ(model.metadata.string("format"), "mlx");
    EXPECT_EQ(model.tensor_bytes(), 21u);
}

TEST(SafetensorsReader, KnowsEveryType) {
    const std::pair<const char*, DType> types[] = {
        {"BOOL", DType::boolean},    {"U8", DType::u8},   {"I8", DType::i8},   {"F8_E4M3", DType::f8_e4m3},
        {"F8_E5M2", DType::f8_e5m2}, {"U16", DType::u16}, {"I16", DType::i16}, {"F16", DType::f16},
        {"BF16", DType::bf16},       {"U32", DType::u32}, {"I32", DType::i32}, {"F32", DType::f32},
        {"U64", DType::u64},         {"I64", DType::i64}, {"F64", DType::f64}};
    for (const auto& [name, type] : types) {
        const std::size_t size = 3 * size_of(type);
        EXPECT_EQ(parse(R"({"t":)" + entry(name, "[3]", "[0," + std::to_string(size) + "]") + "}",
                        std::string(size, 'x'))
                      .tensors[0]
                      .dtype,
                  type)
            << name;
    }
    EXPECT_ERROR(parse(R"({"t":)" + entry("F8_E8M0", "[3]", "[0,3]") + "}", "xxx"), unsupported,
                 "test.safetensors: tensor 't' has dtype F8_E8M0, which this version of Forge does not read");
}

TEST(SafetensorsReader, RefusesBadLengths) {
    EXPECT_ERROR(parse_bytes("short"), invalid_input,
                 "begins with 8 bytes of length, but this one has 5 bytes");
    std::string bytes = file_of("{}", "");
    const std::uint64_t huge = ~0ull, large = 100'000'001, more = 3;
    std::memcpy(bytes.data(), &huge, 8);
    EXPECT_ERROR(parse_bytes(bytes), invalid_input,
                 "the header claims 18446744073709551615 bytes; safetensors allow 100000000");
    std::memcpy(bytes.data(), &large, 8);
    EXPECT_ERROR(parse_bytes(bytes), invalid_input,
                 "safetensors allow 100000000, so this is no safetensors file");
    std::memcpy(bytes.data(), &more, 8);
    EXPECT_ERROR(parse_bytes(bytes), invalid_input, "the header claims 3 bytes, but only 2 follow");
    EXPECT_ERROR(parse("", ""), invalid_input, "the header should begin with '{'");
    EXPECT_ERROR(parse(" {}", ""), invalid_input, "the header should begin with '{'");
}

TEST(SafetensorsReader, RefusesBadHeaders) {
    EXPECT_ERROR(parse("{\"a\"", ""), invalid_input, "the header is no valid JSON at its byte 5");
    EXPECT_ERROR(parse("{}}", ""), invalid_input, "the header is no valid JSON at its byte 3");
    EXPECT_ERROR(parse("{\"\xff\":1}", ""), invalid_input, "the header is no valid JSON");
    EXPECT_ERROR(parse(R"({"a":1})", ""), invalid_input,
                 "the header has a number in the description of tensor 'a'");
    EXPECT_ERROR(parse(R"({"a":[]})", ""), invalid_input,
                 "the header has an array in the description of tensor 'a'");
    EXPECT_ERROR(parse(R"({"a":null})", ""), invalid_input,
                 "the header has null in the description of tensor 'a'");
    EXPECT_ERROR(parse(R"({"a":true})", ""), invalid_input, "the header has a boolean in");
    EXPECT_ERROR(parse(R"({"a":{"dtype":{}}})", ""), invalid_input, "the header has an object in");
    EXPECT_ERROR(parse(R"({"a":{"shape":["x"]}})", ""), invalid_input, "the header has a string in");
    EXPECT_ERROR(parse(R"({"a":{"shape":[-1]}})", ""), invalid_input, "the header has a negative number in");
    EXPECT_ERROR(parse(R"({"a":{"shape":[1.5]}})", ""), invalid_input, "the header has a fraction in");
    EXPECT_ERROR(parse(R"({"__metadata__":{"a":1}})", ""), invalid_input,
                 "a number in __metadata__ (strings only)");
    EXPECT_ERROR(parse(R"({"__metadata__":{"a":{}}})", ""), invalid_input,
                 "an object in __metadata__ (strings only)");
    EXPECT_ERROR(parse(R"({"a":{}})", ""), invalid_input, "tensor 'a' lacks its dtype in the header");
    EXPECT_ERROR(parse(R"({"a":{"dtype":"U8"}})", ""), invalid_input, "tensor 'a' lacks its shape");
    EXPECT_ERROR(parse(R"({"a":{"dtype":"U8","shape":[]}})", ""), invalid_input,
                 "tensor 'a' lacks its data_offsets");
    EXPECT_ERROR(parse(R"({"a":{"dtype":"U8","dtype":"U8"}})", ""), invalid_input,
                 "tensor 'a' has its dtype twice");
    EXPECT_ERROR(parse(R"({"a":{"what":1}})", ""), invalid_input, "tensor 'a' has an unknown field 'what'");
    const std::string a = R"("a":)" + entry("U8", "[1]", "[0,1]");
    EXPECT_ERROR(parse("{" + a + "," + a + "}", "x"), invalid_input, "the header names 'a' twice");
    EXPECT_ERROR(parse(R"({"a":{"shape":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]}})", ""), invalid_input,
                 "the shape of tensor 'a' is implausible");
    EXPECT_ERROR(parse(R"({"a":{"data_offsets":[0,1,2]}})", ""), invalid_input, "more than two data_offsets");
    EXPECT_ERROR(parse(R"({"a":)" + entry("U8", "[1]", "[0]") + "}", "x"), invalid_input,
                 "has 1 data_offsets instead of two");
    EXPECT_ERROR(parse("{" + std::string(100000, '{'), ""), invalid_input,
                 "test.safetensors: the header is no valid JSON");
    EXPECT_ERROR(parse(R"({"a":)" + std::string(100000, '['), ""), invalid_input,
                 "the header has an array in");
}

TEST(SafetensorsReader, RefusesBadPlaces) {
    const auto one = [](const std::string& dtype, const std::string& shape, const std::string& offsets) {
        return "{\"a\":" + entry(dtype, shape, offsets) + "}";
    };
    EXPECT_ERROR(parse(one("U8", "[4]", "[0,4]"), "xxx"), invalid_input,
                 "tensor 'a' lies at bytes 0 to 4 of a buffer of 3");
    EXPECT_ERROR(parse(one("U8", "[1]", "[2,1]"), "xxx"), invalid_input, "tensor 'a' lies at bytes 2 to 1");
    EXPECT_ERROR(parse(one("F32", "[4]", "[0,3]"), "xxx"), invalid_input,
                 "tensor 'a' has 3 bytes of data, which is not what its shape and dtype F32 need");
    EXPECT_ERROR(parse(one("F32", "[4611686018427387904,4]", "[0,3]"), "xxx"), invalid_input,
                 "not what its shape and dtype");
    EXPECT_ERROR(parse(one("U8", "[9223372036854775807,9223372036854775807,0]", "[0,3]"), "xxx"),
                 invalid_input, "not what its shape and dtype");
    EXPECT_ERROR(parse(one("U8", "[18446744073709551615]", "[0,3]"), "xxx"), invalid_input, "is implausible");
    EXPECT_ERROR(parse(one("U8", "[2]", "[0,2]"), "xxx"), invalid_input,
                 "the last 1 bytes belong to no tensor");
    EXPECT_ERROR(parse(one("U8", "[2]", "[1,3]"), "xxx"), invalid_input,
                 "1 bytes before tensor 'a' belong to no tensor");
    EXPECT_ERROR(parse("{}", "xxx"), invalid_input, "the last 3 bytes belong to no tensor");
    const std::string two =
        "{\"a\":" + entry("U8", "[2]", "[0,2]") + ",\"b\":" + entry("U8", "[2]", "[1,3]") + "}";
    EXPECT_ERROR(parse(two, "xxx"), invalid_input, "the data of tensors 'a' and 'b' overlap");
    EXPECT_TRUE(parse("{}", "").tensors.empty());
}

std::string small_file() {
    return file_of(R"({"__metadata__":{"format":"pt"},"a":)" + entry("F32", "[2]", "[0,8]") + R"(,"b":)" +
                       entry("U8", "[3]", "[8,11]") + "}",
                   "aaaaaaaabbb");
}

TEST(SafetensorsReader, TruncationAnywhereIsAnError) {
    const std::string bytes = small_file();
    EXPECT_EQ(parse_bytes(bytes).tensors.size(), 2u);
    for (std::size_t size = 0; size < bytes.size(); ++size)
        EXPECT_THROW(parse_bytes(bytes.substr(0, size)), Error) << size;
}

TEST(SafetensorsReader, ChangedBytesNeverCrash) {
    const std::string bytes = small_file();
    int accepted = 0, refused = 0;
    for (std::size_t at = 0; at < bytes.size(); ++at) {
        for (int change : {1, 0x20, 0x80, 0xff}) {
            std::string changed = bytes;
            changed[at] = static_cast<char>(changed[at] ^ change);
            try {
                parse_bytes(changed);
                ++accepted;
            } catch (const Error&) {
                ++refused;
            }
        }
    }
    EXPECT_GT(accepted, 0);
    EXPECT_GT(refused, 0);
}

}  // namespace
}  // namespace forge
