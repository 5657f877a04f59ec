#include <gtest/gtest.h>

#include <filesystem>
#include <random>

#include "formats/model_file.h"
#include "grammar_support.h"

namespace forge::test {
namespace {

// Pieces that JSON is made of, cut in awkward places, and single bytes so that everything can be spelled.
std::shared_ptr<const Vocabulary> pieces() {
    std::vector<std::string> tokens;
    for (int b = 1; b < 256; ++b) tokens.emplace_back(1, static_cast<char>(b));
    for (const char* t : {"{\"", "\":", "\": ", "\",\"", "\"}", "\"]", "},{", "null", "true", "fal", "se", "name", "na", "me\":\"", " \"", "Straße", "stra\xC3", "\x9F", "e\"", "\\u", "00e4", "\\u00", "\\n",
                          "123", "-0.5", "e+1", "12\"", "[[", "]]", "}}", "abcdefghijklmnopqrstuvwxyz", "abcdefghijklmnopqrstu\",", "\\\\\"", "日本", "\xE6\x97", "\xA5\xE6", "x\":", ",\"b\":", "1,", "1.5]"})
        tokens.emplace_back(t);
    tokens.emplace_back("");   // the end
    const auto end = static_cast<std::int32_t>(tokens.size() - 1);
    return std::make_shared<const Vocabulary>(std::move(tokens), std::vector<std::int32_t>{end});
}

// Two special tokens, of which the first is a quote.
std::shared_ptr<const Vocabulary> pieces_and_quotes() {
    std::vector<std::string> tokens;
    for (int b = 1; b < 0xF5; ++b)
        if (b != 0xC0 && b != 0xC1) tokens.emplace_back(1, static_cast<char>(b));
    for (const char* t : {"<|", "a<", "<<", "<a", "|b", "||", "name", "Straße", "stra\xC3", "\x9F<", "日本", "\xE6\x97", "\xA5|", "abcdefghijklmnopqrstuvwxyz", "|bcdefghijklmnopqrstuvwxyz", "{\"", "a:", ",b:", "<|q|>", "\n\n"})
        tokens.emplace_back(t);
    tokens.emplace_back("");   // the end
    const auto end = static_cast<std::int32_t>(tokens.size() - 1);
    tokens.emplace_back("<|q|>");
    tokens.emplace_back("<|other|>");
    return std::make_shared<const Vocabulary>(std::move(tokens), std::vector<std::int32_t>{end}, std::vector<std::int32_t>{end + 1, end + 2});
}

bool has(const std::uint32_t* mask, std::int32_t id) { return mask[id / 32] >> (id % 32) & 1; }

const char* const schemas[] = {
    R"({"type": "object"})",
    R"({"type": "object", "properties": {"name": {"type": "string"}, "na": {"type": "integer"}, "b": {"type": "array", "items": {"type": "number"}}}, "required": ["b"]})",
    R"({"type": "array", "items": {"type": "string", "minLength": 2, "maxLength": 25}})",
    R"({"type": "array", "items": {"type": "string", "maxLength": 5}, "minItems": 2, "maxItems": 3})",
    R"({"type": "string", "pattern": "^[a-zß]+$"})",
    R"({"anyOf": [{"enum": ["name", "Straße", 12]}, {"type": "string"}, {"type": "array", "items": {"$ref": "#"}}]})",
    R"({"type": "object", "additionalProperties": {"type": "integer", "minimum": -3, "maximum": 123}, "properties": {"name": {"type": "boolean"}}})",
};

// The mask is exactly the tokens whose bytes can follow, at every point of random texts.
TEST(Matcher, MaskIsWhatTheBytesSay) {
    const auto v = pieces();
    std::mt19937 random(3);
    for (const char* text : schemas) {
        const auto g = schema(text);
        for (int round = 0; round < 8; ++round) {
            Matcher matcher(g, v);
            std::string so_far;
            for (int n = 0; n < 40; ++n) {
                const std::uint32_t* mask = matcher.mask();
                const std::vector<std::uint32_t> kept(mask, mask + v->words());
                std::vector<std::int32_t> allowed;
                for (std::int32_t id = 0; id < static_cast<std::int32_t>(v->size()); ++id) {
                    if (id % 3 != round % 3 && id < 200) {   // single bytes by thirds
                        if (has(kept.data(), id)) allowed.push_back(id);
                        continue;
                    }
                    Matcher other(g, no_vocabulary());
                    ASSERT_TRUE(other.accept(so_far));
                    const bool end = id + 1 == static_cast<std::int32_t>(v->size());
                    const bool fits = end ? other.can_end() : !v->bytes(id).empty() && other.accept(v->bytes(id));
                    ASSERT_EQ(has(kept.data(), id), fits) << text << " after " << so_far << ": " << v->bytes(id);
                    if (fits) allowed.push_back(id);
                }
                ASSERT_FALSE(allowed.empty()) << text << " after " << so_far;   // no dead ends
                const std::int32_t id = allowed[random() % allowed.size()];
                if (v->bytes(id).empty()) break;
                ASSERT_TRUE(matcher.accept(id));
                so_far += v->bytes(id);
            }
        }
    }
}

// Texts between special tokens are counted without an automaton of their own. Their masks are those of the automaton,
// which is what a pattern that anything matches brings in.
TEST(Matcher, TextsBetweenSpecialTokensHaveTheMasksOfTheirAutomaton) {
    const auto v = pieces_and_quotes();
    const Notation notation{Notation::Kind::bare, Grammar::special_begin + std::string("<|q|>") + Grammar::special_end};
    std::mt19937 random(11);
    int closed = 0;
    for (const char* lengths : {R"({})", R"({"maxLength": 0})", R"({"maxLength": 3})", R"({"minLength": 2, "maxLength": 5})", R"({"minLength": 4})", R"({"maxLength": 40})"}) {
        Json text = Json::parse(lengths), slow = text;
        text["type"] = slow["type"] = "string";
        slow["pattern"] = "^[^]*$";
        const auto compiled = [&](const Json& member) {
            Json object = Json::parse(R"({"type": "object", "properties": {"a": 0, "b": {"anyOf": [0, {"enum": ["x", "<a"]}]}}, "required": ["a"]})");
            object["properties"]["a"] = object["properties"]["b"]["anyOf"][0] = member;
            return std::make_shared<const Grammar>(compile_forms({{{}, {}, {}, {{{"", &object, notation}}}, false}}));
        };
        const auto quick_grammar = compiled(text), slow_grammar = compiled(slow);
        for (int round = 0; round < 60; ++round) {
            Matcher quick(quick_grammar, v), other(slow_grammar, v);
            std::string so_far;
            for (int n = 0; n < 80; ++n) {
                const std::uint32_t* mask = quick.mask();
                const std::uint32_t* expected = other.mask();
                std::vector<std::int32_t> allowed, rare;
                for (std::int32_t id = 0; id < static_cast<std::int32_t>(v->size()); ++id) {
                    ASSERT_EQ(has(mask, id), has(expected, id)) << lengths << " after " << so_far << ": " << v->bytes(id);
                    if (!has(mask, id)) continue;
                    allowed.push_back(id);
                    if (const std::string& b = v->bytes(id); b.empty() || b.size() > 1 || b == "<" || b == "|") rare.push_back(id);
                }
                ASSERT_FALSE(allowed.empty()) << so_far;
                ASSERT_EQ(quick.can_end(), other.can_end());
                ASSERT_EQ(quick.forced_text(), other.forced_text()) << lengths << " after " << so_far;
                const auto& from = !rare.empty() && random() % 2 ? rare : allowed;
                const std::int32_t id = from[random() % from.size()];
                if (v->bytes(id).empty()) {
                    ++closed;
                    break;
                }
                ASSERT_TRUE(quick.accept(id));
                ASSERT_TRUE(other.accept(id));
                so_far += v->bytes(id);
            }
        }
    }
    EXPECT_GT(closed, 60);
}

TEST(Matcher, RefusesAndStaysWhereItWas) {
    Matcher m(schema(R"({"type": "array", "items": {"type": "boolean"}})"), pieces());
    EXPECT_TRUE(m.accept("[tr"));
    EXPECT_FALSE(m.accept("ust"));
    EXPECT_FALSE(m.accept(std::int32_t{-1}));
    EXPECT_FALSE(m.accept(std::int32_t{1 << 20}));
    EXPECT_TRUE(m.accept("ue]"));
    EXPECT_TRUE(m.finished());
    m.reset();
    EXPECT_FALSE(m.can_end());
    EXPECT_TRUE(m.accept("[]"));
}

TEST(Matcher, KnowsWhatMustFollow) {
    Matcher m(schema(R"({"type": "object", "properties": {"first": {"const": "only"}, "second": {"type": "integer"}}, "required": ["first", "second"]})"), pieces());
    EXPECT_EQ(m.forced_text(), "{\"first\":");
    ASSERT_TRUE(m.accept("{\"first\":\""));
    EXPECT_EQ(m.forced_text(), "only\",");
    ASSERT_TRUE(m.accept("only\", \""));
    EXPECT_EQ(m.forced_text(), "second\":");
    ASSERT_TRUE(m.accept("second\":1"));
    EXPECT_EQ(m.forced_text(), "");   // another digit, or the end
    ASSERT_TRUE(m.accept("}"));
    EXPECT_TRUE(m.finished());
    EXPECT_EQ(m.forced_text(), "");
}

// Memory does not grow with the text: what was remembered is dropped and made again.
TEST(Matcher, LongTexts) {
    const auto v = pieces();
    Matcher m(schema(R"({"$ref": "#/$defs/n", "$defs": {"n": {"type": "array", "items": {"$ref": "#/$defs/n"}}}})"), v);
    const std::int32_t open = 'Z' + ('[' - 'Z') - 1;
    ASSERT_EQ(v->bytes(open), "[");
    for (int i = 0; i < 40'000; ++i) {
        ASSERT_TRUE(has(m.mask(), open)) << i;
        ASSERT_TRUE(m.accept(open));
    }
    ASSERT_TRUE(m.accept(std::string(40'000, ']')));
    EXPECT_TRUE(m.finished());
}

// A real tokenizer: what is forced is spelled in its own tokens, and they fit the mask one after the other.
TEST(Matcher, ForcesTheTokenizersOwnTokens) {
    const std::filesystem::path folder = std::filesystem::path(FORGE_SHARED_DATA) / "data" / "vocab";
    if (!std::filesystem::exists(folder / "ggml-vocab-gpt-2.gguf")) GTEST_SKIP() << "needs vocabularies";
    const auto tokenizer = Tokenizer::from_gguf(open_gguf((folder / "ggml-vocab-gpt-2.gguf").string())->metadata);
    const auto v = std::make_shared<const Vocabulary>(tokenizer, tokenizer->size(), tokenizer->end_of_generation());
    Matcher m(schema(R"({"type": "object", "properties": {"temperature_in_celsius": {"type": "integer"}}, "required": ["temperature_in_celsius"]})"), v);
    const std::vector<std::int32_t> forced = m.forced();
    ASSERT_GT(forced.size(), 2u);
    std::string text;
    for (const std::int32_t id : forced) {
        ASSERT_TRUE(has(m.mask(), id)) << text;
        ASSERT_TRUE(m.accept(id));
        text += v->bytes(id);
    }
    EXPECT_EQ(std::string("{\"temperature_in_celsius\":").substr(0, text.size()), text);
    EXPECT_LT(text.size(), 26u);   // the last token may go on into the value
    EXPECT_TRUE(m.accept(std::string("{\"temperature_in_celsius\":").substr(text.size()) + " 21}"));
    EXPECT_TRUE(m.finished());
    EXPECT_TRUE(has(m.mask(), v->ends().at(0)));
}

}  // namespace
}  // namespace forge::test
