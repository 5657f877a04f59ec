// Folders quantised from the sources of the committed MLX folders: the tensors
// of mlx-lm, byte for byte. And the recipes' grammar.
#include "pack/quantize.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "../support/expect_error.h"
#include "formats/model_file.h"
#include "model/bind.h"
#include "pack/safetensors_writer.h"

namespace forge {
namespace {

namespace fs = std::filesystem;

const std::string sources = FORGE_TEST_DATA "/mlx-sources/", converted = FORGE_TEST_DATA "/models-mlx/";

QuantizeOptions options(const std::string& source, const std::string& output, std::vector<std::string> recipes) {
    QuantizeOptions o;
    o.source = source;
    o.output = output;
    o.recipes = std::move(recipes);
    o.threads = 2;
    return o;
}

void expect_equal_folders(const std::string& made, const std::string& expected) {
    const auto a = open_model_file(made), b = open_model_file(expected);
    EXPECT_EQ(a->tensors.size(), b->tensors.size());
    for (const Tensor& wanted : b->tensors) {
        const Tensor* found = a->find(wanted.name);
        ASSERT_TRUE(found) << wanted.name;
        EXPECT_EQ(found->shape, wanted.shape) << wanted.name;
        EXPECT_EQ(name_of(found->dtype), name_of(wanted.dtype)) << wanted.name;
        ASSERT_EQ(found->data.size(), wanted.data.size()) << wanted.name;
        EXPECT_EQ(std::memcmp(found->data.data(), wanted.data.data(), wanted.data.size()), 0) << wanted.name;
    }
    EXPECT_EQ(nlohmann::json(a->config["quantization"]), nlohmann::json(b->config["quantization"]));
    EXPECT_EQ(a->config["quantization"], a->config["quantization_config"]);
}

TEST(Quantize, EqualsMlxLmOfADenseModel) {
    TestFolder folder;
    const QuantizeSummary made = quantize(options(sources + "llama-4bit-g64", folder / "out", {"q4g64"}));
    expect_equal_folders(folder / "out", converted + "llama-4bit-g64");
    EXPECT_EQ(made.quantised, 15u);
    EXPECT_EQ(made.files, 1u);
    EXPECT_TRUE(fs::exists(folder / "out/model.safetensors.index.json"));
}

TEST(Quantize, EqualsMlxLmOfSeparateExperts) {
    TestFolder folder;
    quantize(options(sources + "qwen3-moe-mxfp4", folder / "out", {"mxfp4"}));
    expect_equal_folders(folder / "out", converted + "qwen3-moe-mxfp4");
}

TEST(Quantize, EqualsMlxLmOfFusedExpertsShiftedNormsAndNestedNames) {
    TestFolder folder;
    quantize(options(sources + "qwen3.5-moe-4bit", folder / "out", {"q4g32"}));
    expect_equal_folders(folder / "out", converted + "qwen3.5-moe-4bit");
    QuantizeOptions scaled = options(sources + "qwen3.5-moe-4bit", folder / "scaled", {"nvfp4"});  // the same seed's checkpoint
    scaled.global_scale = true;
    quantize(scaled);
    expect_equal_folders(folder / "scaled", converted + "qwen3.5-moe-nvfp4");
}

// Formats of the bound weights by part of the name.
std::vector<std::string> formats(const std::string& folder, const std::string& part) {
    ThreadPool pool(1);
    const auto model = bind_model(*open_model_file(folder), pool);
    std::vector<std::string> found;
    for (const Weight& weight : model->weights)
        if (weight.name.find(part) != std::string::npos && weight.rows > 1) found.push_back(describe(weight.format));
    return found;
}

TEST(Quantize, PatternsChooseOtherRecipes) {
    TestFolder folder;
    quantize(options(sources + "llama-4bit-g64", folder / "out", {"q3g32", "*down_proj=q8g64", "*.layers.0.mlp.*=plain", "*embed_tokens=mxfp8"}));
    EXPECT_EQ(formats(folder / "out", "embed_tokens"), std::vector<std::string>{"e4m3/32 e8m0"});
    EXPECT_EQ(formats(folder / "out", "layers.0.mlp.down"), std::vector<std::string>{"bf16"});
    EXPECT_EQ(formats(folder / "out", "layers.1.mlp.down"), std::vector<std::string>{"q8/64 bf16 +bias"});
    EXPECT_EQ(formats(folder / "out", "layers.1.mlp.up"), std::vector<std::string>{"q3/32 bf16 +bias"});
}

TEST(Quantize, RowsThatAreNotWholeGroupsStayPlain) {
    TestFolder folder;
    quantize(options(sources + "qwen3-moe-mxfp4", folder / "out", {"q4g64"}));  // experts of 64 x 32
    EXPECT_EQ(formats(folder / "out", "layers.1.mlp.switch_mlp.down"), std::vector<std::string>(6, "bf16"));
    EXPECT_EQ(formats(folder / "out", "layers.1.mlp.switch_mlp.up"), std::vector<std::string>(6, "q4/64 bf16 +bias"));
}

TEST(Quantize, RefusesWhatItCannotDo) {
    TestFolder folder;
    const std::string source = sources + "llama-4bit-g64", out = folder / "out";
    for (const char* recipe : {"q7", "q", "q4g48", "q4g", "int4", "mixed_5_6", "mixed_4", "q4 ", "", "q4g64x"})
        EXPECT_ERROR(quantize(options(source, out, {recipe})), invalid_input, "is no recipe");
    EXPECT_ERROR(quantize(options(source, out, {"q4", "q8"})), invalid_input, "two recipes");
    EXPECT_ERROR(quantize(options(source, out, {"q4", "*=mixed"})), invalid_input, "PATTERN=RECIPE");
    EXPECT_ERROR(quantize(options(source, out, {"q4", "*q_proj=q4g128"})), invalid_input, "whole groups of 128");
    EXPECT_ERROR(quantize(options(source, out, {"plain"})), invalid_input, "nothing would be quantised");
    EXPECT_ERROR(quantize(options(converted + "llama-4bit-g64", out, {"q4"})), invalid_input, "quantised already");
    EXPECT_ERROR(quantize(options(FORGE_TEST_DATA "/models/gguf-llama-f32/model.gguf", out, {"q4"})), unsupported, "Hugging Face folder");
    EXPECT_ERROR(quantize(options(folder / "nothing", out, {"q4"})), not_found, "nothing");
    EXPECT_FALSE(fs::exists(out));
    fs::create_directories(out);
    EXPECT_ERROR(quantize(options(source, out, {"q4g32"})), invalid_input, "exists already");
    QuantizeOptions forced = options(source, out, {"q4g32"});
    forced.overwrite = true;
    EXPECT_NO_THROW(quantize(forced));
    for (const auto& entry : fs::directory_iterator(folder.path())) EXPECT_EQ(entry.path().filename(), "out") << "a partial folder was left";
}

TEST(Quantize, NumbersThatAreNotFiniteAreRefusedAndNothingIsLeft) {
    TestFolder folder;
    fs::copy(sources + "llama-4bit-g64", folder / "source");
    fs::permissions(folder / "source/model.safetensors", fs::perms::owner_all);
    std::fstream file(folder / "source/model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
    const auto model = open_model_file(folder / "source");
    const Tensor& tensor = model->get("model.layers.1.mlp.up_proj.weight");
    file.seekp(tensor.data.data() - model->files[0]->bytes().data() + 10);
    const std::uint16_t infinity = 0x7f80;
    file.write(reinterpret_cast<const char*>(&infinity), 2);
    file.close();
    EXPECT_ERROR(quantize(options(folder / "source", folder / "out", {"q4"})), invalid_input, "model.layers.1.mlp.up_proj.weight");
    EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()), 1);
}

}  // namespace
}  // namespace forge
