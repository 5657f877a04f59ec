// Ids in, pieces out: nothing lost before a stop, nothing after it, valid UTF-8 in every piece.
#include "api/answer_stream.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

namespace forge {
namespace {

std::shared_ptr<const Tokenizer> byte_level() {
    std::ifstream in(FORGE_TEST_DATA "/tokenizer/ignore_merges.json");
    return Tokenizer::from_json(nlohmann::json::parse(in)["tokenizer"].dump(), "", "ignore_merges");
}

bool valid(const std::string& text) { return nlohmann::json::accept(nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)) && nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).find("\xEF\xBF\xBD") == std::string::npos; }

// Tokens at random, so that characters, stops and markers are cut in every way.
TEST(AnswerStream, EqualsTheWholeTextForRandomTokensAndStops) {
    const auto tokenizer = byte_level();
    std::mt19937 rng(3);
    const char* words[] = {"a", "ab", "b", " ", "\n", "stop", "st", "op", "\xC3\xA9", "\xE4\xBD\xA0\xE5\xA5\xBD", "\xF0\x9F\x98\x80", "<think>", "</think>", "</thi", "x"};
    for (int round = 0; round < 5000; ++round) {
        std::string text;
        for (unsigned n = rng() % 14; n; --n) text += words[rng() % std::size(words)];
        std::vector<std::int32_t> ids = tokenizer->encode(text);
        text = tokenizer->decode(ids);   // what this tokenizer makes of it
        std::vector<std::string> stops;
        for (unsigned n = rng() % 4; n; --n) {
            std::string stop;
            for (unsigned k = 1 + rng() % 2; k; --k) stop += words[rng() % std::size(words)];
            stops.push_back(stop);
        }
        // The stop that is complete first ends the text; of several that end at one place the longest.
        std::size_t end = std::string::npos, begin = text.size();
        for (const std::string& stop : stops) {
            const std::size_t at = text.find(stop);
            if (at == std::string::npos || (end != std::string::npos && at + stop.size() > end)) continue;
            begin = at + stop.size() == end ? std::min(begin, at) : at;
            end = at + stop.size();
        }
        Prompt prompt;
        AnswerStream stream(tokenizer, prompt, stops);
        std::string out;
        for (const std::int32_t id : ids) {
            const AnswerStream::Delta d = stream.push(id);
            EXPECT_TRUE(valid(d.content)) << d.content;
            out += d.content;
            if (stream.stopped()) break;
        }
        out += stream.finish().content;
        EXPECT_EQ(out, text.substr(0, begin)) << text;
        EXPECT_EQ(stream.stopped(), end != std::string::npos) << text;
    }
}

TEST(AnswerStream, StopsCountInTheAnswerAndNotInTheReasoning) {
    const auto tokenizer = byte_level();
    Prompt prompt;
    prompt.reasoning = ReasoningMarkers{"<think>", "</think>", false, {}};
    AnswerStream stream(tokenizer, prompt, {"ab"});
    AnswerStream::Delta all;
    for (const std::int32_t id : tokenizer->encode("<think>ab x</think>b a ab b")) {
        const AnswerStream::Delta d = stream.push(id);
        all.reasoning += d.reasoning;
        all.content += d.content;
    }
    EXPECT_EQ(all.reasoning, "ab x");
    EXPECT_EQ(all.content, "b a ");
    EXPECT_EQ(stream.stop_text(), "ab");
}

}  // namespace
}  // namespace forge
