// What the writers write, the readers read.
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "../support/expect_error.h"
#include "base/paths.h"
#include "formats/model_file.h"
#include "pack/gguf_writer.h"
#include "pack/safetensors_writer.h"

namespace forge {
namespace {

namespace fs = std::filesystem;

std::vector<std::byte> pattern(std::size_t size, int start) {
    std::vector<std::byte> bytes(size);
    for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(start + static_cast<int>(i) * 7);
    return bytes;
}

bool same(std::span<const std::byte> a, std::span<const std::byte> b) {
    return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin());
}

using Dims = std::vector<std::int64_t>;

TEST(GgufWriter, ReaderReadsItBack) {
    for (std::uint32_t alignment : {32u, 256u}) {
        const TestFolder folder;
        const std::string path = folder / "m.gguf";
        const std::vector<std::byte> a = pattern(36, 1), b = pattern(7 * 4, 2),
                                     c = pattern(2 * 3 * 256 / 256 * 144, 3);
        {
            GgufWriter out(path, alignment);
            out.set_string("general.architecture", "llama");
            out.set_u16("u16", 65535);
            out.set_u32("u32", 4000000000u);
            out.set_i32("i32", -4);
            out.set_u64("u64", 1ull << 40);
            out.set_f32("f32", 0.5f);
            out.set_bool("bool", true);
            out.set_strings("strings", std::vector<std::string>{"a", "",
                                                                "\xc4\xa0"
                                                                "b"});
            out.set_i32s("i32s", std::vector<std::int32_t>{1, -2});
            out.set_f32s("f32s", std::vector<float>{1.5f, -0.25f});
            out.set_bools("bools", {true, false, true});
            out.add_tensor("a", Dims{2, 32}, GgufType::q4_0);
            out.add_tensor("b", Dims{7}, GgufType::f32);
            out.add_tensor("c", Dims{2, 3, 256}, GgufType::q4_k);
            EXPECT_EQ(out.data_bytes(), a.size() + b.size() + c.size());
            out.begin();
            // In pieces that do not respect tensor boundaries.
            std::vector<std::byte> all = a;
            all.insert(all.end(), b.begin(), b.end());
            all.insert(all.end(), c.begin(), c.end());
            for (std::size_t at = 0; at < all.size(); at += 50)
                out.write(std::span(all).subspan(at, std::min<std::size_t>(50, all.size() - at)));
            EXPECT_FALSE(fs::exists(path)) << "the name appears before the file is complete";
            out.finish();
        }
        const auto model = open_gguf(path);
        const Metadata& meta = model->metadata;
        EXPECT_EQ(meta.integer("u16"), 65535);
        EXPECT_EQ(meta.integer("u32"), 4000000000);
        EXPECT_EQ(meta.integer("i32"), -4);
        EXPECT_EQ(meta.integer("u64"), std::int64_t{1} << 40);
        EXPECT_EQ(meta.number("f32", 0), 0.5);
        EXPECT_TRUE(meta.boolean("bool", false));
        EXPECT_EQ(meta.strings("strings")->at(2),
                  "\xc4\xa0"
                  "b");
        EXPECT_EQ(*meta.integer_array("i32s"), (std::vector<std::int64_t>{1, -2}));
        EXPECT_EQ(*meta.number_array("f32s"), (std::vector<double>{1.5, -0.25}));
        EXPECT_EQ(*meta.boolean_array("bools"), (std::vector<bool>{true, false, true}));
        EXPECT_TRUE(same(model->get("a").data, a));
        EXPECT_TRUE(same(model->get("b").data, b));
        EXPECT_TRUE(same(model->get("c").data, c));
        EXPECT_EQ(model->get("c").shape, (Dims{2, 3, 256}));
        EXPECT_EQ((model->get("c").data.data() - model->files[0]->bytes().data()) % alignment, 0);
        for (const auto& entry : fs::directory_iterator(folder.path()))
            EXPECT_EQ(entry.path().string(), path);
    }
}

TEST(GgufWriter, MisuseIsAnErrorAndLeavesNoFile) {
    const TestFolder folder;
    {
        GgufWriter out(folder / "m.gguf");
        out.set_u32("k", 1);
        EXPECT_ERROR(out.set_u32("k", 2), internal, "metadata key 'k' is set twice");
        EXPECT_ERROR(out.write(pattern(4, 0)), internal, "before the GGUF header");
        EXPECT_ERROR(out.add_tensor("t", Dims{}, GgufType::f32), internal, "has 0 dimensions");
        EXPECT_ERROR(out.add_tensor("u", Dims{1, 33}, GgufType::q8_0), internal,
                     "not a multiple of q8_0's block");
        EXPECT_ERROR(out.add_tensor("v", Dims{0, 32}, GgufType::q8_0), internal, "has a dimension of 0");
        out.add_tensor("w", Dims{4}, GgufType::f32);
        EXPECT_ERROR(out.add_tensor("w", Dims{4}, GgufType::f32), internal, "tensor 'w' is added twice");
        out.begin();
        EXPECT_ERROR(out.begin(), internal, "written twice");
        EXPECT_ERROR(out.set_u32("late", 2), internal, "after the header");
        EXPECT_ERROR(out.add_tensor("late", Dims{4}, GgufType::f32), internal, "after the header");
        out.write(pattern(15, 0));
        EXPECT_ERROR(out.finish(), internal, "tensor 'w' has 15 of 16 bytes");
        EXPECT_ERROR(out.write(pattern(2, 0)), internal, "1 bytes are written after the last tensor");
        EXPECT_ERROR(GgufWriter(folder / "x", 24), internal, "24 is no power of two");
    }
    EXPECT_TRUE(fs::is_empty(folder.path())) << "an unfinished file stayed behind";
    EXPECT_ERROR(GgufWriter(folder / "none/m.gguf"), io,
                 "cannot create " + (folder / "none/m.gguf.partial-"));
}

TEST(SafetensorsWriter, ReaderReadsItBackAligned) {
    const TestFolder folder;
    const std::string path = folder / "model.safetensors";
    const std::vector<std::vector<std::byte>> data = {pattern(3, 0), pattern(12, 1), pattern(0, 2),
                                                      pattern(10, 3), pattern(16, 4)};
    {
        SafetensorsWriter out(path);
        out.set_metadata("format", "pt");
        out.add_tensor("bytes", Dims{3}, DType::u8);
        out.add_tensor("floats \"quoted\" \xc3\xa9", Dims{3, 1}, DType::f32);
        out.add_tensor("empty", Dims{0, 4}, DType::f32);
        out.add_tensor("halves", Dims{5}, DType::bf16);
        out.add_tensor("wide", Dims{2}, DType::i64);
        EXPECT_EQ(out.data_bytes(), 41u);
        const std::vector<std::size_t> order = out.begin();
        EXPECT_EQ(order, (std::vector<std::size_t>{4, 1, 2, 3, 0}));
        for (std::size_t i : order) out.write(data[i]);
        EXPECT_FALSE(fs::exists(path));
        out.finish();
    }
    const std::string bytes = read_file(path);
    ModelFile model;
    parse_safetensors(std::as_bytes(std::span(bytes)), path, model);
    EXPECT_EQ(model.metadata.string("format"), "pt");
    const char* names[] = {"bytes", "floats \"quoted\" \xc3\xa9", "empty", "halves", "wide"};
    for (std::size_t i = 0; i < 5; ++i) {
        const Tensor& tensor = model.get(names[i]);
        EXPECT_TRUE(same(tensor.data, data[i])) << names[i];
        const auto offset =
            static_cast<std::size_t>(reinterpret_cast<const char*>(tensor.data.data()) - bytes.data());
        EXPECT_EQ(offset % size_of(tensor.dtype), 0u) << names[i];
    }
    EXPECT_EQ(model.get("empty").shape, (Dims{0, 4}));
    std::uint64_t header;
    std::memcpy(&header, bytes.data(), 8);
    EXPECT_EQ((8 + header) % 64, 0u);
}

TEST(SafetensorsWriter, MisuseIsAnErrorAndLeavesNoFile) {
    const TestFolder folder;
    {
        SafetensorsWriter out(folder / "m.safetensors");
        out.add_tensor("t", Dims{4}, DType::u8);
        EXPECT_ERROR(out.add_tensor("t", Dims{4}, DType::u8), internal, "tensor name 't' is taken");
        EXPECT_ERROR(out.add_tensor("__metadata__", Dims{4}, DType::u8), internal, "is taken");
        EXPECT_ERROR(out.add_tensor("n", Dims{-1}, DType::u8), internal, "has a dimension of -1");
        EXPECT_ERROR(out.write(pattern(1, 0)), internal, "before the safetensors header");
        out.begin();
        EXPECT_ERROR(out.finish(), internal, "the tensors have 4 bytes, but 0 were written");
    }
    EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(PartialFile, ReplacesOnlyWhenFinished) {
    const TestFolder folder;
    const std::string path = folder / "file";
    write_file_atomically(path, "old");
    {
        PartialFile file(path);
        file.write("new");
    }
    EXPECT_EQ(read_file(path), "old");
    {
        PartialFile file(path);
        file.write("new");
        file.pad(5000);
        EXPECT_EQ(file.position(), 5003u);
        file.finish();
    }
    EXPECT_EQ(read_file(path), "new" + std::string(5000, '\0'));
    EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()), 1);
}

}  // namespace
}  // namespace forge
