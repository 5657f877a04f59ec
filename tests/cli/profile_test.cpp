#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "run_forge.h"

namespace forge::test {
namespace {

using testing::HasSubstr;
using Json = nlohmann::json;

Finished profile(const std::string& model, std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"profile", tiny_model(model), "--no-limits"});
    return run_forge(arguments);
}

// The kernel's line of one test.
Json line(const Json& phases, const std::string& test, const std::string& name) {
    for (const Json& phase : phases)
        if (phase["test"] == test)
            for (const Json& entry : phase["lines"])
                if (entry["name"] == name) return entry;
    return {};
}

TEST(Profile, CountsBytesAndOperations) {
    const auto r = profile("gguf-llama-q4_0/model.gguf", {"-p", "48", "-n", "4", "-d", "3", "-o", "json"});
    ASSERT_EQ(r.status, 0) << r.err;
    const Json phases = Json::parse(r.out);
    ASSERT_EQ(phases.size(), 2u);
    const Json token = line(phases, "tg4@d3", "matvec"), prompt = line(phases, "pp48@d3", "gemm");
    ASSERT_FALSE(token.is_null());
    ASSERT_FALSE(prompt.is_null());
    EXPECT_GT(token["seconds"].get<double>(), 0);
    // A matrix of R x C weights makes 2 R C operations a row.
    const double a_token = token["flops"].get<double>();
    EXPECT_GT(a_token, 0);
    EXPECT_GT(prompt["flops"].get<double>(), 40 * a_token * 0.5);   // without the head
    EXPECT_GT(token["bytes"].get<double>(), a_token / 2 * 0.5);    // 4.5 bits a weight and more
    EXPECT_LT(token["bytes"].get<double>(), a_token / 2 * 4);
}

TEST(Profile, ExpertsReadOnlyWhatATokenChooses) {
    const auto r = profile("../models-mixed/gguf-qwen3moe/model.gguf", {"-p", "0", "-n", "2", "-o", "json"});
    ASSERT_EQ(r.status, 0) << r.err;
    const Json phases = Json::parse(r.out);
    EXPECT_GT(line(phases, "tg2", "expert_matvec")["bytes"].get<double>(), 0);
}

TEST(Profile, LaunchesAndTrace) {
    const std::filesystem::path trace = std::filesystem::temp_directory_path() / "forge-profile-trace.json";
    const auto r = profile("gguf-llama-q4_0/model.gguf", {"-p", "16", "-n", "2", "--launches", "--trace", trace.string()});
    ASSERT_EQ(r.status, 0) << r.err;
    EXPECT_THAT(r.out, HasSubstr("matvec logits"));
    EXPECT_THAT(r.out, HasSubstr("| total "));
    std::ifstream in(trace);
    const Json json = Json::parse(in);
    std::filesystem::remove(trace);
    ASSERT_GT(json["traceEvents"].size(), 10u);
    double at = -1;
    for (const Json& event : json["traceEvents"]) {
        if (event["ph"] == "M") at = -1;
        if (event["ph"] != "X") continue;
        EXPECT_GE(event["ts"].get<double>(), at);   // one after the other on its track
        at = event["ts"].get<double>() + event["dur"].get<double>() - 1e-3;
    }
}

TEST(Profile, MistakesAreNamed) {
    EXPECT_EQ(profile("gguf-llama-q4_0/model.gguf", {"-p", "0", "-n", "0"}).status, 2);
    EXPECT_EQ(profile("gguf-llama-q4_0/model.gguf", {"-o", "xml"}).status, 2);
    EXPECT_THAT(profile("gguf-llama-q4_0/model.gguf", {"-c", "20"}).err, HasSubstr("--ctx gives 20"));
}

TEST(Inspect, BoundOfAChip) {
    const std::string model = tiny_model("gguf-llama-q4_0/model.gguf");
    const auto r = run_forge({"inspect", model, "--chip", "m4-pro"});
    EXPECT_EQ(r.status, 0) << r.err;
    EXPECT_THAT(r.out, HasSubstr("bound of m4-pro: 273 GB/s"));
    EXPECT_THAT(r.out, HasSubstr("not measured"));
    const auto wrong = run_forge({"inspect", model, "--chip", "z80"});
    EXPECT_EQ(wrong.status, 2);
    EXPECT_THAT(wrong.err, HasSubstr("m3-ultra"));
}

}  // namespace
}  // namespace forge::test
