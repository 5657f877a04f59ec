// With small public models, where they can be had: FORGE_TEST_MODELS, else the cache that ./check fills.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>

#include "base/paths.h"
#include "run_forge.h"

namespace forge::test {
namespace {

using testing::HasSubstr;

std::string model_path(const std::string& name) {
    const char* folder = std::getenv("FORGE_TEST_MODELS");
    return ((folder && *folder ? std::filesystem::path(folder) : cache_folder() / "models") / (name + ".gguf")).string();
}

#define NEED_MODEL(variable, name)                                                                         \
    const std::string variable = model_path(name);                                                         \
    if (!std::filesystem::exists(variable))                                                                \
        GTEST_SKIP() << "the model " << name << " is not here (" << variable << "); ./check downloads it"

TEST(RealModels, SmolLM2AnswersAQuestion) {
    NEED_MODEL(model, "smollm2-135m-q4_1");
    const auto r = run_forge({"run", model, "--temp", "0", "-n", "30", "What is the capital of France?"}, {.timeout_seconds = 300});
    EXPECT_EQ(r.status, 0) << r.err;
    EXPECT_THAT(r.out, HasSubstr("Paris"));
    EXPECT_EQ(r.err, "");
}

TEST(RealModels, SmolLM2PredictsPlainTextWell) {
    NEED_MODEL(model, "smollm2-135m-q4_1");
    const std::string text = write_temporary("plain.txt",
        "The sun rose over the hills, and the village slowly came to life. People opened their windows, greeted each other, "
        "and began to prepare breakfast. The smell of fresh bread filled the streets. Children ran to school with their books "
        "under their arms, while their parents went to work in the fields and shops.");
    const auto r = run_forge({"eval", model, "-f", text, "-o", "json"}, {.timeout_seconds = 300});
    ASSERT_EQ(r.status, 0) << r.err;
    EXPECT_LT(nlohmann::json::parse(r.out)["ppl"].get<double>(), 20);
}

// The three largest logits after each token of "<bos>The capital of France is", computed by transformers
// 5.24 in float32 on the dequantised weights.
TEST(RealModels, Gemma3ComputesTheReferencesLogits) {
    NEED_MODEL(model, "gemma3-270m-q4_k_m");
    struct Candidate { std::size_t id; float logit; };
    const std::vector<std::vector<Candidate>> expected{
        {{184, 14.522f}, {198, 14.366f}, {255999, 14.204f}}, {{236743, 20.302f}, {1171, 18.651f}, {861, 18.040f}},
        {{529, 22.353f}, {3207, 21.589f}, {563, 20.829f}},   {{506, 20.574f}, {496, 17.294f}, {4257, 17.265f}},
        {{236764, 20.414f}, {563, 20.283f}, {815, 19.503f}}, {{506, 19.091f}, {496, 18.548f}, {9079, 18.269f}}};
    constexpr std::size_t vocab = 262144;
    const std::string out = write_temporary("gemma.f32", "");
    const auto r = run_forge({"eval", model, "-f", "-", "--dtype", "f32", "--logits", out},
                             {.input = "The capital of France is", .timeout_seconds = 300});
    ASSERT_EQ(r.status, 0) << r.err;
    std::vector<float> logits(expected.size() * vocab);
    std::ifstream file(out, std::ios::binary);
    file.read(reinterpret_cast<char*>(logits.data()), static_cast<std::streamsize>(logits.size() * 4));
    ASSERT_EQ(file.gcount(), static_cast<std::streamsize>(logits.size() * 4));
    for (std::size_t i = 0; i < expected.size(); ++i) {
        const std::span<const float> row(logits.data() + i * vocab, vocab);
        EXPECT_EQ(static_cast<std::size_t>(std::max_element(row.begin(), row.end()) - row.begin()), expected[i][0].id);
        for (const Candidate& c : expected[i]) EXPECT_NEAR(row[c.id], c.logit, 2e-3) << "position " << i;
    }
}

TEST(RealModels, TokensComeBackAsText) {
    for (const char* name : {"smollm2-135m-q4_1", "gemma3-270m-q4_k_m"}) {
        NEED_MODEL(model, name);
        const std::string text = "Grüße, 世界! 12345  tabs\tand\n\nlines 🙂";
        const auto ids = run_forge({"tokenize", model, text});
        EXPECT_EQ(ids.status, 0) << ids.err;
        EXPECT_EQ(run_forge({"tokenize", model, "--decode"}, {.input = ids.out}).out, text + "\n");
    }
}

}  // namespace
}  // namespace forge::test
