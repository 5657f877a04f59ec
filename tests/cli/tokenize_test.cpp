#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "run_forge.h"

namespace forge::test {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

// A byte-level tokenizer of 262 tokens: every byte (in byte order of GPT-2's alphabet) and a few words.
std::string write_tokenizer() {
    nlohmann::ordered_json vocab;
    int id = 0;
    const auto add_character = [&](int code) {
        std::string text;
        if (code < 0x80) {
            text = static_cast<char>(code);
        } else {
            text = {static_cast<char>(0xc0 | code >> 6), static_cast<char>(0x80 | (code & 0x3f))};
        }
        vocab[text] = id++;
    };
    int moved = 0x100;
    for (int byte = 0; byte < 256; ++byte) {
        const bool printable = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
        add_character(printable ? byte : moved++);
    }
    vocab["hi"] = 256;
    const nlohmann::ordered_json added = {{{"id", 257}, {"content", "<|end|>"}, {"special", true}, {"single_word", false},
                                           {"lstrip", false}, {"rstrip", false}, {"normalized", false}}};
    const nlohmann::ordered_json tokenizer = {
        {"version", "1.0"}, {"added_tokens", added}, {"normalizer", nullptr},
        {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}}},
        {"post_processor", {{"type", "TemplateProcessing"},
                            {"single", {{{"SpecialToken", {{"id", "<|end|>"}, {"type_id", 0}}}}, {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}},
                            {"pair", nlohmann::ordered_json::array()},
                            {"special_tokens", {{"<|end|>", {{"id", "<|end|>"}, {"ids", {257}}, {"tokens", {"<|end|>"}}}}}}}},
        {"decoder", {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}, {"use_regex", true}}},
        {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", {"h i"}}}}};
    return write_temporary("tokenizer/tokenizer.json", tokenizer.dump());
}

Finished tokenize(std::vector<std::string> arguments, const std::string& input = "") {
    static const std::string path = write_tokenizer();
    arguments.insert(arguments.begin(), {"tokenize", path});
    return run_forge(arguments, {.input = input});
}

TEST(Tokenize, PlainTextHasNoBosAndNoSpecialTokens) {
    EXPECT_EQ(tokenize({"hi"}).out, "256\n");
    const auto r = tokenize({"hi<|end|>"});
    EXPECT_EQ(r.status, 0) << r.err;
    EXPECT_THAT(r.out, StartsWith("256 60 124 101 110 100"));  // its characters
    EXPECT_EQ(tokenize({"hi<|end|>", "--no-special"}).out, r.out);
    EXPECT_EQ(tokenize({"hi<|end|>", "--no-special", "--special"}).status, 2);
    const std::string lines = write_temporary("special.jsonl", "{\"text\":\"hi<|end|>\"}\n");
    EXPECT_EQ(tokenize({"--jsonl", lines}).out, "{\"ids\":[256,257]}\n");
    EXPECT_THAT(tokenize({"--jsonl", lines, "--no-special"}).out, StartsWith("{\"ids\":[256,"));
    EXPECT_EQ(r.err, "");
}

TEST(Tokenize, BosAndSpecialOnRequest) {
    EXPECT_EQ(tokenize({"--special", "hi<|end|>"}).out, "256 257\n");
    EXPECT_EQ(tokenize({"--bos", "hi"}).out, "257 256\n");
}

TEST(Tokenize, ReadsStandardInputExactly) {
    EXPECT_EQ(tokenize({}, "hi\n").out, "256 10\n");
    EXPECT_EQ(tokenize({"-"}, "hi").out, "256\n");
    EXPECT_EQ(tokenize({"-f", "-"}, "hi").out, "256\n");
}

TEST(Tokenize, JsonLinesMatchSpecialTokensWithoutBos) {
    const auto r = tokenize({"--jsonl", "-"}, "{\"text\":\"hi<|end|>\"}\n\n{\"text\":\"\", \"more\": 1}\n");
    EXPECT_EQ(r.status, 0) << r.err;
    EXPECT_EQ(r.out, "{\"ids\":[256,257]}\n{\"ids\":[]}\n");
    const auto back = tokenize({"--jsonl", "-", "--decode"}, r.out);
    EXPECT_EQ(back.out, "{\"text\":\"hi<|end|>\"}\n{\"text\":\"\"}\n");
    const auto wrong = tokenize({"--jsonl", "-"}, "{\"text\":\"hi\"}\n{\"txt\":\"hi\"}\n");
    EXPECT_EQ(wrong.status, 1);
    EXPECT_THAT(wrong.err, HasSubstr("line 2"));
}

TEST(Tokenize, DecodesIdsHoweverSeparated) {
    EXPECT_EQ(tokenize({"--decode", "256 256,33"}).out, "hihi!\n");
    EXPECT_EQ(tokenize({"--decode"}, "[256, 257]\n").out, "hi<|end|>\n");
    EXPECT_EQ(tokenize({"--decode", "--skip-special", "256 257"}).out, "hi\n");
    auto r = tokenize({"--decode", "256 x"});
    EXPECT_EQ(r.status, 1);
    EXPECT_THAT(r.err, HasSubstr("found 'x'"));
    r = tokenize({"--decode", "258"});
    EXPECT_EQ(r.status, 1);
    EXPECT_THAT(r.err, HasSubstr("258"));
    EXPECT_EQ(r.out, "");
}

TEST(Tokenize, PiecesAndCount) {
    EXPECT_EQ(tokenize({"--pieces", "hi!"}).out, "    256  \"hi\"\n     33  \"!\"\n");
    EXPECT_EQ(tokenize({"--count", "hi!"}).out, "2\n");
}

TEST(Tokenize, ModelsWithoutATokenizerAndMissingOnesAreNamed) {
    auto r = run_forge({"tokenize", tiny_model("qwen3-tied"), "hi"});
    EXPECT_EQ(r.status, 1);
    EXPECT_THAT(r.err, HasSubstr("qwen3-tied"));
    r = run_forge({"tokenize", "/no/such/file.gguf", "hi"});
    EXPECT_EQ(r.status, 1);
    EXPECT_EQ(r.err, "error: there is no file or folder /no/such/file.gguf\n");
    r = run_forge({"tokenize", "qwen3:0.6b", "hi"});
    EXPECT_EQ(r.status, 1);
    EXPECT_THAT(r.err, HasSubstr("no model qwen3:0.6b in the store"));
    r = run_forge({"tokenize", "hf:org/name", "hi"});
    EXPECT_EQ(r.status, 1);
    EXPECT_THAT(r.err, HasSubstr("forge pull hf:org/name fetches it"));
}

}  // namespace
}  // namespace forge::test
