// Models on disk: split GGUF files, folders, and what is refused.
#include <gtest/gtest.h>

#include <cstring>

#include "../support/expect_error.h"
#include "base/paths.h"
#include "formats/model_file.h"
#include "raw_gguf.h"

namespace forge {
namespace {

namespace fs = std::filesystem;
using Raw = RawGguf;

Raw model_gguf() {
    Raw raw;
    raw.architecture().tensor("w", {4}, 0, 0);
    raw.data = std::string(16, 'x');
    return raw;
}

TEST(OpenGguf, OneFileByAnyName) {
    const TestFolder folder;
    write_file_atomically(folder / "m.gguf", model_gguf().bytes());
    write_file_atomically(folder / "blob", model_gguf().bytes());
    for (const char* name : {"m.gguf", "blob"}) {
        const auto model = open_model_file(folder / name);
        EXPECT_EQ(model->format, ModelFormat::gguf);
        EXPECT_EQ(model->path, folder / name);
        ASSERT_EQ(model->files.size(), 1u);
        EXPECT_EQ(model->get("w").file, model->files[0]);
        EXPECT_EQ(model->get("w").data.size(), 16u);
        EXPECT_EQ(model->metadata.string("general.architecture"), "llama");
    }
}

TEST(OpenGguf, RefusesFilesThatAreNoTextModel) {
    const TestFolder folder;
    const std::string path = folder / "m.gguf";
    const auto open_type = [&](const std::string& type) {
        write_file_atomically(path, Raw().architecture().pair("general.type", 8, Raw::text(type)).bytes());
        open_gguf(path);
    };
    EXPECT_ERROR(open_type("adapter"), unsupported, "this is a LoRA adapter; adapters are not supported");
    EXPECT_ERROR(open_type("imatrix"), invalid_input, "this is an importance matrix");
    EXPECT_ERROR(open_type("mmproj"), unsupported, "this is the image or audio encoder of a model");
    EXPECT_ERROR(open_type("other"), unsupported, "general.type is 'other'");
    open_type("model");
    write_file_atomically(path, Raw().architecture("clip").bytes());
    EXPECT_ERROR(open_gguf(path), unsupported, "this is the image or audio encoder of a model");
    write_file_atomically(path, Raw().bytes());
    EXPECT_ERROR(open_gguf(path), invalid_input, path + ": metadata key 'general.architecture' is missing");
}

// Part `no` (from 0) of three; the first has metadata and no tensor.
Raw part(int no, int count = 3, int tensors = 3) {
    Raw raw;
    if (no == 0) raw.architecture("qwen3");
    raw.pair("split.no", 2, Raw::number(static_cast<std::uint16_t>(no)));
    raw.pair("split.count", 2, Raw::number(static_cast<std::uint16_t>(count)));
    raw.pair("split.tensors.count", 5, Raw::number<std::int32_t>(tensors));
    if (no == 1) raw.tensor("a", {4}, 0, 0).tensor("b", {4}, 0, 32);
    if (no == 2) raw.tensor("c", {4}, 0, 0);
    raw.data = std::string(no == 1 ? 48 : 16, static_cast<char>('0' + no));
    return raw;
}

TEST(OpenGguf, SplitFilesOpenFromAnyPart) {
    const TestFolder folder;
    const auto name = [&](int i) { return folder / ("m-0000" + std::to_string(i + 1) + "-of-00003.gguf"); };
    for (int i = 0; i < 3; ++i) write_file_atomically(name(i), part(i).bytes());
    for (int i = 0; i < 3; ++i) {
        const auto model = open_model_file(name(i));
        EXPECT_EQ(model->files.size(), 3u);
        EXPECT_EQ(model->tensors.size(), 3u);
        EXPECT_EQ(model->metadata.string("general.architecture"), "qwen3");
        EXPECT_EQ(static_cast<char>(model->get("c").data[0]), '2');
        EXPECT_EQ(model->get("c").file->path(), name(2));
        EXPECT_EQ(static_cast<char>(model->get("b").data[0]), '1');
    }
}

TEST(OpenGguf, SplitFilesThatDoNotFit) {
    const TestFolder folder;
    const auto name = [&](int i) { return folder / ("m-0000" + std::to_string(i + 1) + "-of-00003.gguf"); };
    for (int i : {0, 2}) write_file_atomically(name(i), part(i).bytes());
    EXPECT_ERROR(open_gguf(name(0)), not_found,
                 "the model is split into 3 files and part 2 is missing: " + name(1));
    write_file_atomically(name(1), part(2).bytes());
    EXPECT_ERROR(open_gguf(name(0)), invalid_input,
                 "by its name this is part 2 of 3, but its metadata says 3 of 3");
    write_file_atomically(name(1), Raw().bytes());
    EXPECT_ERROR(open_gguf(name(0)), invalid_input,
                 "by its name this is part 2 of 3, but its metadata has no split.no");
    write_file_atomically(name(1), part(1).bytes());
    write_file_atomically(name(0), part(0, 3, 4).bytes());
    EXPECT_ERROR(open_gguf(name(0)), invalid_input,
                 "the parts hold 3 tensors together, but the first one says 4");
    write_file_atomically(name(0), part(0, 2).bytes());
    EXPECT_ERROR(open_gguf(name(0)), invalid_input,
                 "by its name the model is split into 3 files, but its metadata says 2");
    write_file_atomically(folder / "renamed.gguf", part(1).bytes());
    EXPECT_ERROR(open_gguf(folder / "renamed.gguf"), invalid_input,
                 "its name does not end in -00001-of-00003.gguf");
    Raw duplicate = part(2);
    duplicate.tensor("a", {1}, 0, 32);
    duplicate.data = std::string(36, 'x');
    write_file_atomically(name(2), duplicate.bytes());
    write_file_atomically(name(0), part(0, 3, 4).bytes());
    EXPECT_ERROR(open_gguf(name(0)), invalid_input, "two tensors are named 'a'");
}

std::string tensors_file(const std::vector<std::string>& names, const std::string& metadata = "") {
    std::string header = "{" + metadata;
    for (std::size_t i = 0; i < names.size(); ++i) {
        if (header.size() > 1) header += ",";
        header += "\"" + names[i] + "\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[" +
                  std::to_string(2 * i) + "," + std::to_string(2 * i + 2) + "]}";
    }
    header += "}";
    const std::uint64_t length = header.size();
    std::string bytes(8, '\0');
    std::memcpy(bytes.data(), &length, 8);
    return bytes + header + std::string(2 * names.size(), 'x');
}

struct HfFolder : TestFolder {
    HfFolder() { config(R"({"model_type": "llama"})"); }
    void config(const std::string& text) { put("config.json", text); }
    void put(const std::string& name, const std::string& text) { write_file_atomically(*this / name, text); }
};

TEST(OpenFolder, OneFileWithConfigs) {
    HfFolder folder;
    folder.put("model.safetensors", tensors_file({"a", "b"}));
    const std::string path = folder.path().string();
    auto model = open_model_file(path);
    EXPECT_EQ(model->format, ModelFormat::huggingface);
    EXPECT_EQ(model->config.at("model_type"), "llama");
    EXPECT_TRUE(model->generation_config.is_null());
    EXPECT_EQ(model->tensors.size(), 2u);
    EXPECT_EQ(model->get("b").file->path(), folder / "model.safetensors");
    folder.put("generation_config.json", R"({"eos_token_id": [1, 2]})");
    EXPECT_EQ(open_model_file(path + "/")->generation_config.at("eos_token_id").size(), 2u);
    model = open_model_file(folder / "model.safetensors");
    EXPECT_EQ(model->config.at("model_type"), "llama");
    EXPECT_EQ(model->path, folder / "model.safetensors");
}

TEST(OpenFolder, ShardsByIndex) {
    HfFolder folder;
    folder.put("model-00001-of-00002.safetensors", tensors_file({"a"}));
    folder.put("model-00002-of-00002.safetensors", tensors_file({"b", "c"}));
    folder.put("model-extra.safetensors", tensors_file({"not-in-the-index"}));
    const auto index = [&](const std::string& map) {
        folder.put("model.safetensors.index.json",
                   R"({"metadata": {"total_size": 6}, "weight_map": )" + map + "}");
    };
    const std::string first = "model-00001-of-00002.safetensors", second = "model-00002-of-00002.safetensors";
    index(R"({"a":")" + first + R"(","b":")" + second + R"(","c":")" + second + "\"}");
    const std::string path = folder.path().string();
    EXPECT_EQ(open_model_file(path)->tensors.size(), 3u);
    EXPECT_EQ(open_model_file(folder / second)->tensors.size(), 3u);
    EXPECT_ERROR(open_model_file(folder / "model-extra.safetensors"), invalid_input,
                 "this file is not one of the model in its folder");

    index(R"({"a":")" + second + R"(","b":")" + first + "\"}");
    EXPECT_ERROR(open_model_file(path), invalid_input,
                 "the index says that tensor 'a' is in " + second + ", but it is not there");
    index(R"({"a":"model-00009.safetensors"})");
    EXPECT_ERROR(open_model_file(path), not_found,
                 "the index names model-00009.safetensors, which is not in the folder");
    for (const char* outside : {"../x.safetensors", "/etc/passwd", "..", ""}) {
        index(std::string(R"({"a":")") + outside + "\"}");
        EXPECT_ERROR(open_model_file(path), invalid_input, "which is no file name within the folder");
    }
    index(R"({"a":1})");
    EXPECT_ERROR(open_model_file(path), invalid_input, "the file of tensor 'a' is not given as text");
    folder.put("model.safetensors.index.json", "{}");
    EXPECT_ERROR(open_model_file(path), invalid_input, "the index lacks its 'weight_map'");
    // MLX reads all model*.safetensors, whatever an index says.
    folder.config(R"({"quantization": {"group_size": 64, "bits": 4}})");
    EXPECT_EQ(open_model_file(path)->tensors.size(), 4u);
}

TEST(OpenFolder, ShardsWithoutIndex) {
    HfFolder folder;
    folder.put("model-2.safetensors", tensors_file({"b"}));
    folder.put("model-1.safetensors", tensors_file({"a"}));
    folder.put("adapter.safetensors", tensors_file({"x"}));
    const auto model = open_model_file(folder.path().string());
    ASSERT_EQ(model->tensors.size(), 2u);
    EXPECT_EQ(model->tensors[0].name, "a");
    folder.put("model-3.safetensors", tensors_file({"a"}));
    EXPECT_ERROR(open_model_file(folder.path().string()), invalid_input, "two tensors are named 'a'");
}

TEST(OpenFolder, QuantisationDecidesTheFormat) {
    HfFolder folder;
    folder.put("model.safetensors", tensors_file({"a"}));
    const auto format = [&](const std::string& config) {
        folder.config(config);
        return open_model_file(folder.path().string())->format;
    };
    EXPECT_EQ(format(R"({})"), ModelFormat::huggingface);
    EXPECT_EQ(format(R"({"quantization": null, "quantization_config": null})"), ModelFormat::huggingface);
    EXPECT_EQ(format(R"({"quantization": {"group_size": 64, "bits": 4}})"), ModelFormat::mlx);
    EXPECT_EQ(format(R"({"quantization_config": {"group_size": 64, "bits": 4}})"), ModelFormat::mlx);
    for (const char* method : {"gptq", "awq", "fp8", "bitsandbytes", "compressed-tensors", "mxfp4"})
        EXPECT_ERROR(format(std::string(R"({"quantization_config": {"quant_method": ")") + method +
                            R"(", "bits": 4, "group_size": 8}})"),
                     unsupported,
                     std::string("the weights are quantised with '") + method + "', which is not supported");
    EXPECT_ERROR(format(R"({"text_config": {"quantization_config": {"quant_method": "fp8"}}})"), unsupported,
                 "quantised with 'fp8'");
    EXPECT_ERROR(format(R"({"quantization_config": {"quant_method": 7}})"), unsupported,
                 "quantised with '7'");
    EXPECT_ERROR(format(R"({"quantization_config": {"bits": 4}})"), unsupported,
                 "names no method and is not MLX's");
}

TEST(OpenFolder, BadJsonIsNamedWithItsLine) {
    HfFolder folder;
    folder.put("model.safetensors", tensors_file({"a"}));
    folder.config("{\n  \"a\": 1,\n  oops\n}");
    EXPECT_ERROR(open_model_file(folder.path().string()), invalid_input,
                 (folder / "config.json") + ": line 3 is no valid JSON");
    folder.config(R"({"model_type": "llama", "quantization_config": {"quant_method": )" + std::string(1'000'000, '['));
    EXPECT_ERROR(open_model_file(folder.path().string()), invalid_input,
                 (folder / "config.json") + ": the JSON is nested more than 100 levels deep");
    folder.config("[1]");
    EXPECT_ERROR(open_model_file(folder.path().string()), invalid_input,
                 "should hold a JSON object, but it holds array");
    folder.config("");
    EXPECT_ERROR(open_model_file(folder.path().string()), invalid_input, "line 1 is no valid JSON");
}

TEST(OpenModel, SaysWhatAPathHolds) {
    const TestFolder folder;
    const std::string path = folder.path().string();
    EXPECT_ERROR(open_model_file(folder / "absent"), not_found,
                 "there is no file or folder " + (folder / "absent"));
    EXPECT_ERROR(open_model_file(std::string(5000, 'x')), io, "cannot open xxxxx");
    EXPECT_ERROR(open_model_file(path), invalid_input, path + " holds no model: wanted config.json");
    write_file_atomically(folder / "pytorch_model.bin", "x");
    EXPECT_ERROR(open_model_file(path), unsupported, "holds PyTorch's pickled weights, which are not read");
    EXPECT_ERROR(open_model_file(folder / "pytorch_model.bin"), unsupported,
                 "PyTorch's pickled weights are not read");
    write_file_atomically(folder / "m.forge", "x");
    EXPECT_ERROR(open_model_file(folder / "m.forge"), invalid_input, "this is no .forge file");
    EXPECT_ERROR(open_model_file(path), invalid_input, "it holds a .forge file, so name that: " + (folder / "m.forge"));
    write_file_atomically(folder / "model.safetensors", tensors_file({"a"}));
    EXPECT_ERROR(open_model_file(path), invalid_input, "holds safetensors but no config.json");
    EXPECT_ERROR(open_model_file(folder / "model.safetensors"), invalid_input,
                 "config.json should be beside it");
    EXPECT_ERROR(open_model_file(folder / "none.safetensors"), not_found, "there is no file");
    write_file_atomically(folder / "b.gguf", "x");
    write_file_atomically(folder / "a.gguf", "x");
    EXPECT_ERROR(open_model_file(path), invalid_input,
                 "it holds GGUF, so name the file itself: " + (folder / "a.gguf"));
    write_file_atomically(folder / "notes.txt", "hello");
    EXPECT_ERROR(open_model_file(folder / "notes.txt"), invalid_input,
                 "is no model that Forge reads: wanted a GGUF file");
    fs::remove_all(folder.path());
    fs::create_directories(folder.path());
    write_file_atomically(folder / "config.json", "{}");
    EXPECT_ERROR(open_model_file(path), invalid_input, "there is config.json but no model.safetensors");
}

}  // namespace
}  // namespace forge
