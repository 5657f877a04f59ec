#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "run_forge.h"

namespace forge::test {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(Inspect, GgufSummary) {
    const auto r = run_forge({"inspect", tiny_model("gguf-llama-q4_0/model.gguf")});
    EXPECT_EQ(r.status, 0) << r.err;
    EXPECT_THAT(r.out, HasSubstr("GGUF"));
    EXPECT_THAT(r.out, testing::ContainsRegex("q4_0 +[0-9]+ .* 4\\.50\n"));
    EXPECT_THAT(r.out, Not(HasSubstr("blk.0.attn_q.weight")));
    EXPECT_EQ(r.err, "");
}

TEST(Inspect, TensorsAndMetadata) {
    const auto r = run_forge({"inspect", "-m", tiny_model("gguf-llama-q4_0/model.gguf"), "--tensors", "--metadata"});
    EXPECT_EQ(r.status, 0) << r.err;
    EXPECT_THAT(r.out, HasSubstr("blk.0.attn_q.weight"));
    EXPECT_THAT(r.out, HasSubstr("general.architecture = \"llama\"\n"));
}

TEST(Inspect, AsIfForAGpu) {
    for (const char* kind : {"metal", "cuda"}) {
        const auto r = run_forge({"inspect", tiny_model("gguf-llama-q4_0/model.gguf"), "--memory", "--as", kind});
        EXPECT_EQ(r.status, 0) << r.err;
        EXPECT_THAT(r.out, testing::ContainsRegex("in [0-9]+ launches with [0-9]+ barriers, [0-9]+ stages; 2 launches more where the device picks the next token"));
        EXPECT_THAT(r.out, HasSubstr("counted without a GPU"));
    }
    auto r = run_forge({"inspect", tiny_model("gguf-llama-q4_0/model.gguf"), "--memory", "--as", "tpu"});
    EXPECT_EQ(r.status, 2);
    EXPECT_THAT(r.err, HasSubstr("--as should be metal or cuda"));
    r = run_forge({"inspect", tiny_model("gguf-llama-q4_0/model.gguf"), "--memory", "--as", "metal", "--device", "cpu"});
    EXPECT_EQ(r.status, 2);
}

TEST(Inspect, HuggingFaceFolder) {
    const auto r = run_forge({"inspect", tiny_model("qwen3-tied"), "--tensors", "--metadata"});
    EXPECT_EQ(r.status, 0) << r.err;
    EXPECT_THAT(r.out, HasSubstr("Hugging Face safetensors"));
    EXPECT_THAT(r.out, HasSubstr("model.embed_tokens.weight"));
    EXPECT_THAT(r.out, HasSubstr("\"model_type\": \"qwen3\""));
}

TEST(Inspect, PackedModelsShowTheirPlanes) {
    const std::filesystem::path folder = std::filesystem::temp_directory_path() / ("forge-inspect-" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder);
    const std::string coded = folder / "coded.forge", plain = folder / "plain.forge";
    auto r = run_forge({"pack", tiny_model("gguf-llama-q4_0/model.gguf"), "-o", coded, "--no-proof", "--layout", "tiled16"});
    EXPECT_EQ(r.status, 0) << r.err;
    EXPECT_THAT(r.out, HasSubstr("layout tiled16"));
    r = run_forge({"pack", tiny_model("qwen3-tied"), "-o", plain, "--no-proof", "--layout", "tiled16"});
    EXPECT_THAT(r.out, HasSubstr("layout rows"));   // plain numbers have no tiles
    r = run_forge({"inspect", coded});
    EXPECT_EQ(r.status, 0) << r.err;
    EXPECT_THAT(r.out, HasSubstr(".forge made from GGUF"));
    EXPECT_THAT(r.out, HasSubstr("q4/32 f16"));
    EXPECT_THAT(r.out, testing::Not(HasSubstr(" 0 B")));
    std::filesystem::remove_all(folder);
}

TEST(Inspect, MissingAndWrongFilesAreSentences) {
    auto r = run_forge({"inspect"});
    EXPECT_EQ(r.status, 2);
    EXPECT_THAT(r.err, HasSubstr("MODEL is required"));
    r = run_forge({"inspect", "/no/such/model.gguf"});
    EXPECT_EQ(r.status, 1);
    EXPECT_THAT(r.err, HasSubstr("/no/such/model.gguf"));
    r = run_forge({"inspect", FORGE_BINARY});
    EXPECT_EQ(r.status, 1);
    EXPECT_THAT(r.err, HasSubstr(FORGE_BINARY));
    EXPECT_EQ(r.out, "");
}

}  // namespace
}  // namespace forge::test
