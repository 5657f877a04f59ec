// Small valid files for the fuzz targets to begin from: FOLDER/gguf, FOLDER/safetensors.
#include <fmt/format.h>

#include <filesystem>
#include <vector>

#include "base/error.h"
#include "base/paths.h"
#include "pack/gguf_writer.h"
#include "pack/safetensors_writer.h"

namespace {

using namespace forge;
namespace fs = std::filesystem;

void write_gguf_seed(const std::string& path, GgufType type, std::uint32_t alignment) {
    GgufWriter out(path, alignment);
    out.set_string("general.architecture", "llama");
    out.set_u16("split.count", 1);
    out.set_i32("i", -1);
    out.set_u64("u", 1);
    out.set_f32("f", 0.5f);
    out.set_bool("b", true);
    out.set_strings("tokens", std::vector<std::string>{"a", "bc"});
    out.set_i32s("types", std::vector<std::int32_t>{1, 3});
    out.set_f32s("scores", std::vector<float>{0, -1});
    out.set_bools("flags", {true, false});
    const BlockSize block = gguf_block_size(static_cast<std::uint32_t>(type)).value();
    out.add_tensor("w", std::vector<std::int64_t>{2, block.elements}, type);
    out.add_tensor("n", std::vector<std::int64_t>{1}, GgufType::f32);
    out.begin();
    out.write(std::vector<std::byte>(static_cast<std::size_t>(2 * block.bytes + 4), std::byte{0x31}));
    out.finish();
}

void write_safetensors_seed(const std::string& path) {
    SafetensorsWriter out(path);
    out.set_metadata("format", "pt");
    out.add_tensor("a", std::vector<std::int64_t>{2, 2}, DType::bf16);
    out.add_tensor("b", std::vector<std::int64_t>{3}, DType::u8);
    out.add_tensor("c", std::vector<std::int64_t>{0}, DType::f32);
    out.begin();
    out.write(std::vector<std::byte>(11));
    out.finish();
}

}  // namespace

int main(int count, char** arguments) {
    if (count != 2) {
        fmt::print(stderr, "usage: make_fuzz_seeds FOLDER\n");
        return 2;
    }
    try {
        const fs::path folder(arguments[1]);
        fs::create_directories(folder / "gguf");
        fs::create_directories(folder / "safetensors");
        for (std::uint32_t id = 0; id < 64; ++id)
            if (gguf_block_size(id))
                write_gguf_seed(folder / "gguf" / fmt::format("{}.gguf", gguf_type_name(id)),
                                static_cast<GgufType>(id), id % 2 ? 8 : 32);
        write_safetensors_seed(folder / "safetensors" / "padded.safetensors");
        // Only a header: the target adds the length.
        write_file_atomically(
            folder / "safetensors" / "header",
            R"({"__metadata__":{"format":"mlx"},"a":{"dtype":"F8_E4M3","shape":[1,3],"data_offsets":[0,3]}}xyz)");
    } catch (const Error& error) {
        fmt::print(stderr, "{}\n", error.what());
        return 1;
    }
}
