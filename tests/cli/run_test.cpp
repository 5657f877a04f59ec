#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "run_forge.h"
#include "tiny_chat.h"

namespace forge::test {
namespace {

using testing::HasSubstr;
using testing::Not;

// The tiny model's greedy reference: prompts as text, and what transformers continued with.
struct Reference { std::string prompt, answer; };
std::vector<Reference> references() {
    std::ifstream file(tiny_model("qwen3-tied") + "/reference.jsonl");
    std::vector<Reference> result;
    for (std::string line; std::getline(file, line);) {
        const auto record = nlohmann::json::parse(line);
        if (!record.contains("kind") || record["kind"] != "greedy") continue;
        auto tokens = record["tokens"].get<std::vector<std::int32_t>>();
        tokens.erase(std::find(tokens.begin(), tokens.end(), 2), tokens.end());  // the answer ends there
        std::erase(tokens, 0);                                                   // special tokens are not shown
        std::erase(tokens, 1);
        result.push_back({tiny_text(record["ids"].get<std::vector<std::int32_t>>()), tiny_text(tokens)});
    }
    return result;
}

Finished run(std::vector<std::string> arguments, const RunOptions& options = {}) {
    arguments.insert(arguments.begin(), {"run", tiny_chat_model(), "--dtype", "f32", "--temp", "0", "-t", "1"});
    return run_forge(arguments, options);
}

std::string with_newline(std::string text) { return text.empty() || text.back() == '\n' ? text : text + '\n'; }

TEST(Run, RawTextContinuesAsTheReferenceDoes) {
    ASSERT_GE(references().size(), 2u);
    for (const Reference& reference : references()) {
        const auto r = run({"--raw", "-n", "48", "-p", reference.prompt});
        EXPECT_EQ(r.status, 0) << r.err;
        EXPECT_EQ(r.out, with_newline(reference.answer));
        EXPECT_EQ(r.err, "");
    }
}

TEST(Run, PromptFromFileStandardInputOrBoth) {
    const std::string prompt = references()[0].prompt, expected = with_newline(references()[0].answer);
    EXPECT_EQ(run({"--raw", "-n", "48", "-f", write_temporary("prompt.txt", prompt)}).out, expected);
    EXPECT_EQ(run({"--raw", "-n", "48"}, {.input = prompt}).out, expected);
    EXPECT_EQ(run({"--raw", "-n", "48", "-"}, {.input = prompt}).out, expected);
    EXPECT_EQ(run({"--raw", "-n", "0", "--echo", "one", "-f", "-"}, {.input = "two"}).out, "one\n\ntwo\n");
    const auto r = run({"--raw"}, {.input = ""});
    EXPECT_EQ(r.status, 1);
    EXPECT_EQ(r.err, "error: the prompt is empty\n");
}

// Reasoning goes to standard error, or nowhere; the answer alone to standard output.
TEST(Run, ThinkingIsSplitFromTheAnswer) {
    const std::string folder = tiny_chat_model() + "-thinking";
    std::filesystem::create_directories(folder);
    for (const char* name : {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"})
        std::filesystem::copy_file(tiny_chat_model() + "/" + name, folder + "/" + name, std::filesystem::copy_options::skip_existing);
    std::ofstream(folder + "/chat_template.jinja") << "{% for m in messages %}{{ m.content }}{% endfor %}{{ '<think>' }}";
    const std::vector<std::string> run = {"run", folder, "--dtype", "f32", "--temp", "0", "-n", "12", "Hello"};
    auto r = run_forge(run);  // a random model never closes it: all is reasoning
    EXPECT_EQ(r.status, 0) << r.err;
    EXPECT_EQ(r.out, "");
    EXPECT_NE(r.err, "");
    auto hidden = run;
    hidden.push_back("--hide-thinking");
    r = run_forge(hidden);
    EXPECT_EQ(r.out, "");
    EXPECT_EQ(r.err, "");
    auto raw = run;
    raw.insert(raw.end() - 1, "--raw");
    raw.back() = "Hello<think>";  // the same ids without a template: no reasoning is told apart
    EXPECT_NE(run_forge(raw).out, "");
}

TEST(Run, ChatTemplateSystemMessageAndVariables) {
    EXPECT_EQ(run({"-n", "0", "--echo", "Hi", "--system", "Be brief."}).out,
              "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
    EXPECT_THAT(run({"-n", "0", "--echo", "Hi", "--no-think"}).out, HasSubstr("assistant\nFalse\n"));
    EXPECT_THAT(run({"-n", "0", "--echo", "Hi", "--think"}).out, HasSubstr("assistant\nTrue\n"));
    EXPECT_THAT(run({"-n", "0", "--echo", "Hi", "--template-var", "enable_thinking=7"}).out, HasSubstr("assistant\n7\n"));
    const auto r = run({"--raw", "Hi", "--system", "Be brief."});
    EXPECT_EQ(r.status, 1);
    EXPECT_THAT(r.err, HasSubstr("--raw uses none"));
}

TEST(Run, SameSeedSameTextAnotherSeedAnother) {
    const std::vector<std::string> base{"run", tiny_chat_model(), "Hi", "--temp", "1", "--top-k", "0", "--top-p", "1", "--min-p", "0", "-n", "40", "--ignore-eos"};
    const auto with = [&](std::vector<std::string> more) {
        more.insert(more.begin(), base.begin(), base.end());
        return run_forge(more).out;
    };
    const std::string first = with({"--seed", "1"});
    EXPECT_EQ(first, with({"--seed", "1", "-t", "2"}));
    EXPECT_NE(first, with({"--seed", "2"}));
    EXPECT_NE(with({}), with({}));
}

TEST(Run, StopTextsAndCounts) {
    const Reference reference = references()[0];
    const std::string stop = reference.answer.substr(4, 2);
    EXPECT_EQ(run({"--raw", "-n", "48", "-p", reference.prompt, "--stop", stop}).out,
              with_newline(reference.answer.substr(0, reference.answer.find(stop))));
    EXPECT_EQ(run({"--raw", "-n", "3", "-p", reference.prompt}).out, with_newline(reference.answer.substr(0, 3)));
}

TEST(Run, StatsGoToStandardError) {
    const auto r = run({"--raw", "-n", "3", "-p", references()[0].prompt, "--stats"});
    EXPECT_EQ(r.out, with_newline(references()[0].answer.substr(0, 3)));
    EXPECT_THAT(r.err, HasSubstr("prompt eval:     21 tokens in"));
    EXPECT_THAT(r.err, HasSubstr("eval:             3 tokens in"));
    EXPECT_THAT(r.err, Not(HasSubstr("\033")));
}

TEST(Run, FullContextEndsTheAnswerWithAWarning) {
    const auto r = run({"--raw", "-c", "30", "--ignore-eos", "-p", references()[0].prompt});
    EXPECT_EQ(r.status, 0);
    EXPECT_THAT(r.err, HasSubstr("the context of 30 tokens is full"));
    const auto too_long = run({"--raw", "-c", "20", "-p", references()[0].prompt});
    EXPECT_EQ(too_long.status, 1);
    EXPECT_THAT(too_long.err, HasSubstr("the prompt has 21 tokens, and the context holds 20"));
    EXPECT_EQ(too_long.out, "");
}

TEST(Run, CtrlCEndsTheAnswerWithStatus130) {
    bool sent = false;
    const auto r = run({"--raw", "-c", "100000", "--ignore-eos", "-p", "Hi"}, {.on_output = [&](const std::string& out) {
        if (sent || out.size() < 5) return 0;
        sent = true;
        return SIGINT;
    }});
    EXPECT_EQ(r.status, 130) << r.err;
    EXPECT_GE(r.out.size(), 5u);
    EXPECT_EQ(r.out.back(), '\n');
}

TEST(Run, OptionsOutOfRangeAreSentences) {
    auto r = run_forge({"run", tiny_chat_model(), "Hi", "--top-p", "1.5"});
    EXPECT_EQ(r.status, 1);
    EXPECT_EQ(r.err, "error: top-p must be between 0 and 1, found 1.5\n");
    r = run_forge({"run", tiny_chat_model(), "Hi", "--dtype", "int8"});
    EXPECT_EQ(r.status, 2);
    EXPECT_THAT(r.err, HasSubstr("should be bf16, f16 or f32, found int8"));
    r = run_forge({"run", tiny_chat_model(), "Hi", "--device", "tpu"});
    EXPECT_EQ(r.status, 1);
    EXPECT_THAT(r.err, HasSubstr("device 'tpu' is not built into this forge"));
    r = run_forge({"run", tiny_chat_model(), "Hi", "--temp", "warm"});
    EXPECT_EQ(r.status, 2);
    EXPECT_THAT(r.err, HasSubstr("warm"));
    r = run_forge({"run", tiny_chat_model(), "Hi", "--logit-bias", "5"});
    EXPECT_EQ(r.status, 2);
    EXPECT_THAT(r.err, HasSubstr("should look like 42=-5, found 5"));
    r = run_forge({"run", "/no/such/model", "Hi"});
    EXPECT_EQ(r.status, 1);
    EXPECT_EQ(r.out, "");
}

TEST(Run, LogitBiasForcesAToken) {
    const auto r = run({"--raw", "Hi", "-n", "4", "--logit-bias", "3=1e6", "--logit-bias", "2=-inf"});
    EXPECT_EQ(r.out, "    \n") << r.err;
}

TEST(Run, TextThatIsNotUtf8IsNoCrash) {
    const auto r = run({"-n", "2", "-p", "caf\xe9 \xff\xfe"});
    EXPECT_TRUE(r.status == 0 || r.status == 1) << r.status << r.err;
}

}  // namespace
}  // namespace forge::test
