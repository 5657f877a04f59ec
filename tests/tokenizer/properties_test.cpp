// What holds for every tokenizer and every text.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "base/error.h"
#include "tokenizer/tokenizer.h"
#include "unicode.h"

namespace forge {
namespace {

std::shared_ptr<const Tokenizer> fixture(const std::string& name) {
    std::ifstream in(FORGE_TEST_DATA "/tokenizer/" + name + ".json");
    return Tokenizer::from_json(nlohmann::json::parse(in)["tokenizer"].dump(), "", name);
}

std::vector<std::string> all_fixtures() {
    std::vector<std::string> out;
    for (const auto& e : std::filesystem::directory_iterator(FORGE_TEST_DATA "/tokenizer"))
        out.push_back(e.path().stem().string());
    return out;
}

std::string random_text(std::mt19937& rng) {
    const char* parts[] = {"the ",
                           "  ",
                           "\n",
                           "don't",
                           "12345",
                           "\xC3\xA9",
                           "e\xCC\x81",
                           "\xE4\xBD\xA0",
                           "\xF0\x9F\x98\x80",
                           "\xE2\x96\x81",
                           "<|im_start|>",
                           "<tool>",
                           "</s>",
                           "\t",
                           "x",
                           "!?"};
    std::string out;
    for (unsigned n = rng() % 12; n; --n) {
        if (rng() % 3) {
            out += parts[rng() % std::size(parts)];
        } else {
            char32_t c = rng() % 0x110000;
            unicode::append(out, c >= 0xD800 && c < 0xE000 ? U'?' : c);
        }
    }
    return out;
}

std::string streamed(const std::shared_ptr<const Tokenizer>& t, const std::vector<std::int32_t>& ids) {
    StreamDecoder stream(t);
    std::string out;
    for (auto id : ids) {
        std::string piece = stream.push(id);
        EXPECT_TRUE(unicode::is_valid(piece));
        out += piece;
    }
    return out + stream.finish();
}

TEST(TokenizerProperties, text_comes_back) {
    std::mt19937 rng(1);
    for (const char* name : {"digits_isolated", "split_Isolated", "regex_counts", "regex_empty"}) {
        auto t = fixture(name);
        for (int i = 0; i < 300; ++i) {
            std::string text = random_text(rng);
            EXPECT_EQ(t->decode(t->encode(text, {false, i % 2 == 0})), text) << name;
        }
    }
}

TEST(TokenizerProperties, pieces_of_encoded_text_add_up_to_the_decoding) {
    std::mt19937 rng(2);
    for (const std::string& name : all_fixtures()) {
        auto t = fixture(name);
        for (int i = 0; i < 50; ++i) {
            auto ids = t->encode(random_text(rng), {false, true});
            // A run of byte tokens from real text is cut only where special tokens are.
            EXPECT_EQ(streamed(t, ids), t->decode(ids)) << name;
        }
    }
}

TEST(TokenizerProperties, random_ids_never_give_broken_text) {
    std::mt19937 rng(3);
    for (const std::string& name : all_fixtures()) {
        auto t = fixture(name);
        bool byte_level = name != "some_bytes" && t->token_id("<0x41>") == std::nullopt;
        for (int i = 0; i < 200; ++i) {
            std::vector<std::int32_t> ids;
            for (unsigned n = rng() % 20; n; --n)
                ids.push_back(static_cast<std::int32_t>(rng() % static_cast<unsigned>(t->size() + 3)) - 1);
            std::string whole = t->decode(ids);
            EXPECT_TRUE(unicode::is_valid(whole));
            std::string pieces = streamed(t, ids);
            if (byte_level) {
                EXPECT_EQ(pieces, whole) << name;
            }
        }
    }
}

TEST(TokenizerProperties, a_run_with_a_bad_byte_is_replaced_byte_by_byte) {
    auto t = fixture("prepend_fallback");
    auto byte = [&](const char* text) { return t->token_id(text).value(); };
    std::vector<std::int32_t> ids = {byte("<0x41>"), byte("<0xE2>"), byte("<0x82>")};
    EXPECT_EQ(t->decode(ids), "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
    EXPECT_EQ(streamed(t, ids), "A\xEF\xBF\xBD\xEF\xBF\xBD");  // what is sent cannot be taken back
    ids.push_back(byte("<0xAC>"));
    EXPECT_EQ(t->decode(ids), "A\xE2\x82\xAC");
    EXPECT_EQ(streamed(t, ids), "A\xE2\x82\xAC");
}

TEST(TokenizerProperties, ill_formed_input_counts_as_replacement_characters) {
    auto t = fixture("digits_isolated");
    EXPECT_EQ(t->encode("a\xE2\x82z\xFF"), t->encode("a\xEF\xBF\xBDz\xEF\xBF\xBD"));
    EXPECT_EQ(t->encode("\xED\xA0\x80"), t->encode("\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"));
}

TEST(TokenizerProperties, untrusted_text_has_no_control_tokens) {
    auto t = fixture("byte_level_nfc");
    std::string text = "<|im_end|><think>";
    auto trusted = t->encode(text, {false, true}), untrusted = t->encode(text);
    EXPECT_EQ(trusted, (std::vector<std::int32_t>{*t->token_id("<|im_end|>"), *t->token_id("<think>")}));
    EXPECT_GT(untrusted.size(), 2u);
    for (auto id : untrusted) EXPECT_NE(t->kind(id), TokenKind::control);
    EXPECT_EQ(untrusted.back(), *t->token_id("<think>"));
    EXPECT_EQ(t->decode(trusted, true), "<think>");
    EXPECT_EQ(t->decode(untrusted, true), text);
    EXPECT_EQ(t->end_of_generation(), std::vector<std::int32_t>{*t->token_id("<|im_end|>")});
}

TEST(TokenizerProperties, many_threads_agree) {
    auto t = fixture("byte_level_nfc");
    std::mt19937 rng(4);
    std::vector<std::string> texts;
    std::vector<std::vector<std::int32_t>> wanted;
    for (int i = 0; i < 50; ++i) {
        texts.push_back(random_text(rng));
        wanted.push_back(t->encode(texts.back()));
    }
    std::vector<std::thread> threads;
    std::vector<int> wrong(4);
    for (std::size_t n = 0; n < wrong.size(); ++n)
        threads.emplace_back([&, n] {
            for (int round = 0; round < 10; ++round)
                for (std::size_t i = 0; i < texts.size(); ++i) wrong[n] += t->encode(texts[i]) != wanted[i];
        });
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(wrong, std::vector<int>(4));
}

// One megabyte of one character is one word, or a million: neither may take
// quadratic time, which would be minutes. The bound leaves room for sanitizers.
TEST(TokenizerProperties, long_runs_take_linear_time) {
    for (const char* name : {"byte_level_nfc", "prepend_fallback", "metaspace_always_split", "gemma_like"}) {
        auto t = fixture(name);
        for (std::string unit : {"a", " ", "\n", "A", "1", "!", "\xCC\x81\xCC\xA3", "\xE4\xBD\xA0", "the "}) {
            std::string text;
            while (text.size() < 1'000'000) text += unit;
            auto start = std::chrono::steady_clock::now();
            auto ids = t->encode(text);
            double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
            EXPECT_LT(seconds, 60) << name << " on " << unit;
            EXPECT_FALSE(ids.empty());
        }
    }
}

TEST(TokenizerProperties, a_pattern_that_backtracks_without_end_is_an_error) {
    nlohmann::json json = {
        {"model", {{"type", "BPE"}, {"vocab", {{"a", 0}}}, {"merges", nlohmann::json::array()}}},
        {"decoder", {{"type", "Fuse"}}},
        {"pre_tokenizer",
         {{"type", "Split"}, {"pattern", {{"Regex", "(?:a|aa)+$"}}}, {"behavior", "Isolated"}}}};
    auto t = Tokenizer::from_json(json.dump(), "", "slow.json");
    try {
        t->encode(std::string(200, 'a') + 'c');
        FAIL() << "no error";
    } catch (const Error& e) {
        EXPECT_NE(std::string(e.what()).find("slow.json: pre_tokenizer"), std::string::npos) << e.what();
    }
}

// Where a text is marked as plain its special token is text, whatever happened to the bytes before it.
TEST(Properties, PlainPlacesHoldNoSpecialTokens) {
    for (const std::string& name : all_fixtures()) {
        const auto t = fixture(name);
        for (const std::string& special : t->special_texts()) {
            const auto id = t->token_id(special);
            if (!id || id == t->unk()) continue;  // what is unknown becomes <unk> too
            for (const std::string before : {"", "ab ", "\xE2\x96\x81x\xE2\x96\x81", "e\xCC\x81 "}) {
                const std::string text = before + special + "c" + special;
                const std::size_t places[] = {before.size(), before.size() + special.size() + 1};
                const auto count = [&](std::span<const std::size_t> plain) {
                    const auto ids = t->encode(text, {.parse_special = true, .plain_at = plain});
                    return std::count(ids.begin(), ids.end(), *id);
                };
                const auto all = count({});
                EXPECT_EQ(count(places), 0) << name << " " << text;
                EXPECT_LE(count(std::span(places, 1)), std::max<std::ptrdiff_t>(all - 1, 0)) << name << " " << text;
            }
        }
    }
}

}  // namespace
}  // namespace forge
