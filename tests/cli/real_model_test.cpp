// With small public models, where they can be had: FORGE_TEST_MODELS, else the cache that ./check fills.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

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

TEST(RealModels, Gemma3ContinuesAText) {
    NEED_MODEL(model, "gemma3-270m-q4_k_m");
    const auto r = run_forge({"run", model, "--raw", "--temp", "0", "-n", "12", "The capital of France is"}, {.timeout_seconds = 300});
    EXPECT_EQ(r.status, 0) << r.err;
    EXPECT_THAT(r.out, HasSubstr("Paris"));
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
