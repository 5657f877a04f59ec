// Files that are malformed or ask for what is not implemented: a sentence each.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "tokenizer/tokenizer.h"

namespace forge {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

json minimal() {
    return json::parse(
        R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]]},
                           "decoder": {"type": "ByteLevel"}})");
}

std::string error_of(const std::string& text, const std::string& config = "") {
    try {
        Tokenizer::from_json(text, config, "t.json");
    } catch (const Error& e) {
        EXPECT_NE(e.kind(), ErrorKind::internal);
        return e.what();
    }
    return "no error";
}

std::string error_with(const char* pointer, json value) {
    json j = minimal();
    j[json::json_pointer(pointer)] = std::move(value);
    return error_of(j.dump());
}

TEST(TokenizerErrors, the_minimal_file_is_right) {
    auto t = Tokenizer::from_json(minimal().dump(), "", "t.json");
    EXPECT_EQ(t->encode("abba"), (std::vector<std::int32_t>{2, 1, 0}));
    EXPECT_EQ(t->size(), 3);
}

TEST(TokenizerErrors, malformed_json) {
    EXPECT_THAT(error_of("{\"a\": }"), HasSubstr("t.json is not valid JSON"));
    EXPECT_THAT(error_of("{\"a\": }"), HasSubstr("column 7"));
    EXPECT_THAT(error_of(""), HasSubstr("not valid JSON"));
    EXPECT_THAT(error_of("[]"), HasSubstr("holds an object"));
    EXPECT_THAT(error_of(std::string(100000, '[')), HasSubstr("nested deeper"));
    EXPECT_THAT(error_of(minimal().dump(), "[1"), HasSubstr("tokenizer_config.json"));
}

TEST(TokenizerErrors, components_are_refused_by_name) {
    EXPECT_THAT(error_with("/model/type", "Unigram"), HasSubstr("\"Unigram\" is not implemented"));
    EXPECT_THAT(error_with("/normalizer", {{"type", "BertNormalizer"}}), HasSubstr("\"BertNormalizer\""));
    EXPECT_THAT(error_with("/pre_tokenizer", {{"type", "Whitespace"}}), HasSubstr("\"Whitespace\""));
    EXPECT_THAT(error_with("/post_processor", {{"type", "RobertaProcessing"}}),
                HasSubstr("\"RobertaProcessing\""));
    EXPECT_THAT(error_with("/decoder", {{"type", "WordPiece"}}), HasSubstr("\"WordPiece\""));
    EXPECT_THAT(error_with("/decoder", nullptr), HasSubstr("decoder"));
    EXPECT_THAT(error_with("/model/dropout", 0.1), HasSubstr("dropout"));
    EXPECT_THAT(error_with("/model/continuing_subword_prefix", "##"), HasSubstr("continuing_subword_prefix"));
    EXPECT_THAT(
        error_with("/pre_tokenizer",
                   json::parse(R"({"type": "Sequence", "pretokenizers": [{"type": "UnicodeScripts"}]})")),
        HasSubstr("pre_tokenizer[0]/UnicodeScripts"));
}

TEST(TokenizerErrors, vocabulary_and_merges) {
    EXPECT_THAT(error_with("/model/vocab/a", -1), HasSubstr("token \"a\""));
    EXPECT_THAT(error_with("/model/vocab/a", 1e9), HasSubstr("token \"a\""));
    EXPECT_THAT(error_with("/model/vocab/a", 4294967296), HasSubstr("4294967296"));
    EXPECT_THAT(error_with("/model/merges/0", json::array({"a", "c"})), HasSubstr("needs the token \"c\""));
    EXPECT_THAT(error_with("/model/merges/0", "a b c"), HasSubstr("merge 0"));
    EXPECT_THAT(error_with("/model/merges/0", 7), HasSubstr("merge 0"));
    EXPECT_THAT(error_with("/model/unk_token", "<unk>"), HasSubstr("<unk>"));
    EXPECT_THAT(
        error_with("/added_tokens", json::parse(R"([{"id": 2, "content": "x"}, {"id": 2, "content": "y"}])")),
        HasSubstr("both \"x\" and \"y\""));
}

TEST(TokenizerErrors, patterns) {
    auto error = [](const std::string& pattern) {
        return error_with("/pre_tokenizer",
                          {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}});
    };
    EXPECT_EQ(error(R"(\p{L}+|[^a-z\s]{2,3}|(?i:'s)|x(?!y))"), "no error");
    EXPECT_THAT(error("(a"), HasSubstr("no ')'"));
    EXPECT_THAT(error("a)"), HasSubstr("without '('"));
    EXPECT_THAT(error("[a"), HasSubstr("no ']'"));
    EXPECT_THAT(error("*a"), HasSubstr("nothing to repeat"));
    EXPECT_THAT(error("a**"), HasSubstr("quantifier on a quantifier"));
    EXPECT_THAT(error(R"(\p{Klingon})"), HasSubstr("'Klingon'"));
    EXPECT_THAT(error(R"(\bword)"), HasSubstr(R"('\b')"));
    EXPECT_THAT(error("[a&&b]"), HasSubstr("'&&'"));
    EXPECT_THAT(error("[a[b]]"), HasSubstr("class inside a class"));
    EXPECT_THAT(error("(?<name>a)"), HasSubstr("'(?'"));
    EXPECT_THAT(error("(?i:ss)"), HasSubstr("'ss'"));
    EXPECT_THAT(error("a{99999}"), HasSubstr("10000"));
    EXPECT_THAT(error("[b-a]"), HasSubstr("ends before it begins"));
    EXPECT_THAT(error("(?<=a+)b"), HasSubstr("does not compile"));
    EXPECT_THAT(error(std::string(200, '(')), HasSubstr("nested"));
    EXPECT_THAT(error(std::string(20000, 'a')), HasSubstr("20000 bytes"));
}

TEST(TokenizerErrors, post_processor_ids_exist) {
    json post = json::parse(R"({"type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [77]}}})");
    EXPECT_THAT(error_with("/post_processor", post), HasSubstr("77"));
}

Metadata gguf() {
    Metadata m;
    m.source = "m.gguf";
    m.set("tokenizer.ggml.model", std::string("gpt2"));
    m.set("tokenizer.ggml.pre", std::string("qwen2"));
    m.set("tokenizer.ggml.tokens", std::vector<std::string>{"a", "b", "ab", "<|im_end|>", "</s>"});
    m.set("tokenizer.ggml.token_type", std::vector<std::int64_t>{1, 1, 1, 3, 1});
    m.set("tokenizer.ggml.merges", std::vector<std::string>{"a b"});
    m.set("tokenizer.ggml.eos_token_id", std::int64_t{1});
    return m;
}

std::string gguf_error(const char* key, MetaValue value) {
    Metadata m = gguf();
    m.set(key, std::move(value));
    try {
        Tokenizer::from_gguf(m);
    } catch (const Error& e) {
        return e.what();
    }
    return "no error";
}

TEST(TokenizerErrors, gguf) {
    auto t = Tokenizer::from_gguf(gguf());
    EXPECT_EQ(t->encode("ab<|im_end|>", {false, true}), (std::vector<std::int32_t>{2, 3}));
    // An ordinary "</s>" is not a stop.
    EXPECT_EQ(t->end_of_generation(), (std::vector<std::int32_t>{1, 3}));
    EXPECT_THAT(gguf_error("tokenizer.ggml.pre", std::string("deepseek-llm")), HasSubstr("deepseek-llm"));
    EXPECT_THAT(gguf_error("tokenizer.ggml.model", std::string("bert")), HasSubstr("\"bert\""));
    EXPECT_THAT(gguf_error("tokenizer.ggml.model", std::string("llama")), HasSubstr("tokenizer.ggml.scores"));
    EXPECT_THAT(gguf_error("tokenizer.ggml.merges", std::vector<std::string>{"ab"}),
                HasSubstr("merge \"ab\""));
    EXPECT_THAT(gguf_error("tokenizer.ggml.merges", std::vector<std::string>{""}), HasSubstr("merge \"\""));
    EXPECT_THAT(gguf_error("tokenizer.ggml.merges", std::vector<std::string>{"b a"}), HasSubstr("\"ba\""));
    EXPECT_THAT(gguf_error("tokenizer.ggml.token_type", std::vector<std::int64_t>{1}),
                HasSubstr("token_type"));
    EXPECT_THAT(gguf_error("tokenizer.ggml.token_type", std::vector<std::int64_t>{1, 1, 1, 9, 1}),
                HasSubstr("9"));
    EXPECT_THAT(gguf_error("tokenizer.ggml.eos_token_id", std::int64_t{5}), HasSubstr("eos_token_id"));
}

TEST(TokenizerErrors, sentencepiece_and_tekken) {
    auto spm = [](std::string_view bytes) -> std::string {
        try {
            Tokenizer::from_sentencepiece(std::as_bytes(std::span(bytes)), "", "t.model");
        } catch (const Error& e) {
            return e.what();
        }
        return "no error";
    };
    EXPECT_THAT(spm(""), HasSubstr("t.model"));
    EXPECT_THAT(spm("\x0a\x7f"), HasSubstr("cut off"));
    EXPECT_THAT(spm("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), HasSubstr("cut off"));
    EXPECT_THAT(spm(std::string_view("\x0a\x03\x0a\x01"
                                     "a",
                                     5)),
                HasSubstr("UNIGRAM"));
    EXPECT_THAT(spm("\x0b"), HasSubstr("wire type"));
    auto tekken = [](const std::string& text) -> std::string {
        try {
            Tokenizer::from_tekken(text, "tekken.json");
        } catch (const Error& e) {
            return e.what();
        }
        return "no error";
    };
    EXPECT_THAT(tekken("{}"), HasSubstr("\"config\" and \"vocab\""));
    EXPECT_THAT(tekken(R"({"vocab":[{"rank":1,"token_bytes":"AA=="}]})"), HasSubstr("rank 0 was expected"));
    EXPECT_THAT(tekken(R"({"vocab":[{"rank":0,"token_bytes":"A*=="}]})"), HasSubstr("base64"));
    EXPECT_THAT(tekken(R"({"vocab":[{"rank":0,"token_bytes":"AA=="}],
                           "config":{"pattern":".","default_vocab_size":1,"default_num_special_tokens":0}})"),
                HasSubstr("lacks the byte 01"));
}

TEST(TokenizerErrors, folder_without_a_tokenizer) {
    EXPECT_THROW(Tokenizer::from_folder("/nonexistent-folder"), Error);
}

}  // namespace
}  // namespace forge
