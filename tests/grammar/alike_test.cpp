// Masks where characters or parts are counted: what is known of one count serves others, and is exact.
#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "alike_states.h"
#include "grammar/notation.h"
#include "grammar_support.h"

namespace forge::test {
namespace {

using grammar::always_alike;
using grammar::Likeness;
using grammar::ReadingState;

// Whether `text` (letters a to c, then perhaps a quote) can be read from a state.
bool reads(const std::vector<ReadingState>& states, std::uint32_t at, const std::string& text) {
    for (std::size_t i = 0; i < text.size(); ++i) {
        const ReadingState& s = states[at];
        if (s.free) {
            const std::size_t letters = text.find('"', i) == std::string::npos ? text.size() - i : text.find('"', i) - i;
            return letters <= s.most && (letters == text.size() - i || letters >= s.least);
        }
        if (text[i] == '"') return s.ends;
        const auto step = std::find_if(s.steps.begin(), s.steps.end(), [&](const auto& x) { return x.lo <= static_cast<std::uint32_t>(text[i]) && static_cast<std::uint32_t>(text[i]) <= x.hi; });
        if (step == s.steps.end()) return false;
        at = step->target;
    }
    return true;
}

void for_each_text(std::uint32_t length, const std::function<void(const std::string&)>& check) {
    for (std::uint32_t n = 0; n <= length; ++n) {
        std::uint32_t count = 1;
        for (std::uint32_t i = 0; i < n; ++i) count *= 3;
        for (std::uint32_t k = 0; k < count; ++k) {
            std::string text;
            for (std::uint32_t i = 0, rest = k; i < n; ++i, rest /= 3) text += static_cast<char>('a' + rest % 3);
            check(text);
            if (n > 0) text.back() = '"', check(text);
        }
    }
}

TEST(AlikeStates, ReadTheSameShortTexts) {
    std::mt19937 random(5);
    int alike = 0, always = 0;
    for (int round = 0; round < 300; ++round) {
        const bool chain = round % 2;   // a count, or anything
        const auto n = static_cast<std::uint32_t>(3 + random() % 9);
        std::vector<ReadingState> states(n);
        for (std::uint32_t s = 0; s < n; ++s) {
            ReadingState& state = states[s];
            if (random() % 6 == 0) {
                state.free = true, state.least = random() % 3, state.most = random() % 4 ? random() % 6 : Grammar::unlimited;
                continue;
            }
            state.ends = chain ? s + 2 >= n || n % 2 : random() % 3 == 0;
            for (std::uint32_t c = 'a'; c <= 'c'; ++c)
                if (chain ? s + 1 < n && (c < 'c' || round % 4 == 1) : random() % 4 > 0) state.steps.push_back({c, c, chain ? s + 1 : static_cast<std::uint32_t>(random() % n)});
        }
        grammar::leave_out_dead(states);
        const std::vector<Likeness> likeness = grammar::find_alike(states);
        const std::vector<std::uint32_t> longest = grammar::longest_texts(states);
        for (std::uint32_t s = 0; s < n; ++s) {
            const Likeness& like = likeness[s];
            if (like.agrees > 0) {
                ++alike, always += like.agrees == always_alike;
                ASSERT_LT(like.state, s);
                for_each_text(std::min(like.agrees, 6u), [&](const std::string& text) {
                    ASSERT_EQ(reads(states, s, text), reads(states, like.state, text)) << round << ": " << text << " from " << s << " and " << like.state << ", which agree on " << like.agrees;
                });
            }
            if (longest[s] < 7) {
                bool found = false;
                for_each_text(longest[s] + 1, [&](const std::string& text) {
                    if (text.find('"') != std::string::npos) return;
                    found = found || (text.size() == longest[s] && reads(states, s, text));
                    ASSERT_FALSE(text.size() > longest[s] && reads(states, s, text)) << text << " from " << s;
                });
                EXPECT_TRUE(found || (states[s].steps.empty() && !states[s].free) || states[s].least > states[s].most);
            }
        }
    }
    EXPECT_GT(alike, 500);
    EXPECT_GT(always, 50);
}

// A count of n characters is n states, and all but the last few agree with the first for long.
TEST(AlikeStates, OfACountAgreeUpToItsEnd) {
    std::vector<ReadingState> states(401);
    for (std::uint32_t s = 0; s < states.size(); ++s) {
        states[s].ends = true;
        if (s + 1 < states.size()) states[s].steps = {{0, 9, s + 1}, {11, 0x10FFFF, s + 1}};
    }
    const std::vector<Likeness> likeness = grammar::find_alike(states);
    EXPECT_EQ(likeness[0].agrees, 0u);
    for (std::uint32_t s = 1; s + 1 < states.size(); ++s) {
        EXPECT_EQ(likeness[s].state, 0u);
        EXPECT_EQ(likeness[s].agrees, std::min(256u, 400 - s));
    }
}

// Short and long tokens, cut inside characters, that stay in a string, close it and go on after it.
std::shared_ptr<const Vocabulary> counted_vocabulary() {
    std::vector<std::string> tokens;
    for (int b = 1; b < 0xF5; ++b)
        if (b != 0xC0 && b != 0xC1) tokens.emplace_back(1, static_cast<char>(b));
    for (const char* unit : {"a", "ab", "abc-", " ", "0", "ä", "日", "\\n", "=x"})
        for (const int n : {2, 3, 4, 5, 6, 7, 8, 11, 15, 16, 17, 23, 33, 70}) {
            std::string text;
            for (int i = 0; i < n; ++i) text += unit;
            tokens.push_back(text);
            tokens.push_back(text + "\"");
            if (n < 9) tokens.push_back(text + "\",\"");
            if (n < 9) tokens.push_back(text + "\"]");
            if (n < 6) tokens.push_back("b" + text + "\xE6\x97");
            if (n < 6) tokens.push_back(text + "\n");
            if (n < 4) tokens.push_back("\xA5" + text);
        }
    for (const char* t : {"\",\"", "\"]", "[\"", "\\", "\\u000", "n\"", "\\\"", "x", "x\""}) tokens.emplace_back(t);
    tokens.emplace_back("");   // the end
    const auto end = static_cast<std::int32_t>(tokens.size() - 1);
    tokens.emplace_back("<|q|>");
    return std::make_shared<const Vocabulary>(std::move(tokens), std::vector<std::int32_t>{end}, std::vector<std::int32_t>{end + 1});
}

// Draws random answers and compares every mask with what the bytes of each token say.
void check_masks(const std::shared_ptr<const Grammar>& grammar, const std::shared_ptr<const Vocabulary>& v, std::mt19937& random, const std::string& what) {
    Matcher matcher(grammar, v);
    for (int answer = 0; answer < 3; ++answer) {   // one matcher: its memory serves the next answer
        matcher.reset();
        std::string so_far;
        Matcher by_bytes(grammar, v);
        for (int n = 0; n < 60; ++n) {
            const std::uint32_t* mask = matcher.mask();
            std::vector<std::int32_t> allowed, lengthy, closing;
            for (std::int32_t id = 0; id < static_cast<std::int32_t>(v->size()); ++id) {
                const bool set = mask[id / 32] >> (id % 32) & 1;
                const std::string& bytes = v->bytes(id);
                bool fits = false;
                if (bytes.empty()) {
                    fits = matcher.can_end();
                } else if (by_bytes.accept(bytes)) {
                    fits = true;
                    by_bytes.reset();
                    ASSERT_TRUE(by_bytes.accept(so_far));
                }
                ASSERT_EQ(set, fits) << what << " after " << so_far << ": " << bytes;
                if (!set) continue;
                allowed.push_back(id);
                if (bytes.size() > 3) lengthy.push_back(id);
                if (bytes.empty() || bytes.find('"') != std::string::npos) closing.push_back(id);
            }
            ASSERT_FALSE(allowed.empty()) << what << " after " << so_far;   // no dead ends
            const unsigned kind = random() % 8;
            const auto& from = kind < 4 && !lengthy.empty() ? lengthy : kind == 4 && n > 20 && !closing.empty() ? closing : allowed;
            const std::int32_t id = from[random() % from.size()];
            if (v->bytes(id).empty()) break;
            ASSERT_TRUE(matcher.accept(id));
            ASSERT_TRUE(by_bytes.accept(id));
            so_far += v->bytes(id);
        }
    }
}

TEST(AlikeMasks, OfPatternsWithLengths) {
    const auto v = counted_vocabulary();
    std::mt19937 random(17);
    const char* const patterns[] = {"^[^\\n]*$", "^.{0,40}$", "^.{20,40}$", "^[^b]{3,}x?$", "[0-9]", "^[a-c]+(-[a-z0-9]+)*$", "^a.{0,12}b.*$", "^(ab|c){2,9}$", "^([^-]{0,9}-){0,3}$", "^[^]*$", "x$", "^(a|日){3,30}$", "^a.{5}"};
    int compiled = 0;
    for (int round = 0; round < 90; ++round) {
        Json text = {{"type", "string"}, {"pattern", patterns[static_cast<std::size_t>(round) % std::size(patterns)]}};
        if (random() % 4) text["maxLength"] = random() % 3 ? 1 + random() % 24 : 40 + random() % 200;
        if (random() % 3 == 0) text["minLength"] = random() % 3 ? random() % 12 : 30 + random() % 60;
        Json whole = text;
        if (round % 3 == 1) whole = {{"type", "array"}, {"items", text}, {"minItems", random() % 3}, {"maxItems", 5}};
        if (round % 3 == 2) whole = {{"anyOf", {text, {{"enum", {"abab", "日日", 7}}}, {{"type", "array"}, {"items", text}}}}};
        const bool special = round % 5 == 4;
        std::shared_ptr<const Grammar> g;
        try {
            if (special) {
                const Notation notation{Notation::Kind::bare, Grammar::special_begin + std::string("<|q|>") + Grammar::special_end};
                const Json object = {{"type", "object"}, {"properties", {{"a", whole}}}, {"required", {"a"}}};
                g = std::make_shared<const Grammar>(compile_forms({{{}, {}, {}, {{{"", &object, notation}}}, false}}));
            } else {
                g = schema(whole.dump());
            }
        } catch (const Error&) {
            continue;   // no text fits
        }
        ++compiled;
        check_masks(g, v, random, whole.dump() + (special ? " between special tokens" : ""));
        if (HasFatalFailure()) return;
    }
    EXPECT_GT(compiled, 60);
}

TEST(AlikeMasks, OfGrammarsWithRepetitions) {
    const auto v = counted_vocabulary();
    std::mt19937 random(17);
    for (int round = 0; round < 60; ++round) {
        const auto bounds = [&] {
            const unsigned least = random() % 3 ? random() % 8 : 20 + random() % 20, most = least + random() % (random() % 2 ? 6 : 60);
            return "{" + std::to_string(least) + (random() % 5 ? "," + std::to_string(std::max(1u, most)) : ",") + "}";
        };
        const char* const parts[] = {"[^\"\\n]", "char", "(\"ab\" | [c-z] \"-\"?)", "(\"a\"?)", "(word \" \")", "([ab]{0,7} \"=\")", "empty"};
        const std::string part = parts[static_cast<std::size_t>(round) % std::size(parts)];
        std::string text = "root ::= \"[\"? (\"\\\"\" " + part + bounds() + " \"\\\"\" \",\"?)" + (round % 2 ? "{1,3}" : "+") + " \"]\"?\n";
        text += "char ::= [^\"\\\\] | \"\\\\\" [nt\"]\nword ::= [a-c]" + bounds() + "\nempty ::= \"=x\" | \"\"\n";
        check_masks(gbnf(text), v, random, text);
        if (HasFatalFailure()) return;
    }
}

// Hundreds of characters and then the last: the masks of what is left are those of a string that is so short.
TEST(AlikeMasks, NearTheEndOfLongTexts) {
    const auto v = counted_vocabulary();
    Matcher matcher(schema(R"({"type": "string", "pattern": "^[^\\n]*$", "maxLength": 300})"), v);
    ASSERT_TRUE(matcher.accept("\""));
    for (int left = 300; left >= 0; --left) {
        const std::uint32_t* mask = matcher.mask();
        for (std::int32_t id = 0; id < static_cast<std::int32_t>(v->size()); ++id) {
            const std::string& b = v->bytes(id);
            const std::size_t letters = std::min(b.find('"'), b.size());
            if (b.empty() || b.find_first_not_of("ab \"") != std::string::npos || (letters < b.size() && letters + 1 < b.size())) continue;
            ASSERT_EQ(mask[id / 32] >> (id % 32) & 1, letters <= static_cast<std::size_t>(left)) << left << " left: " << b;
        }
        if (left > 0) { ASSERT_TRUE(matcher.accept("a")); }
    }
}

}  // namespace
}  // namespace forge::test
