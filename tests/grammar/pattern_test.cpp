#include <gtest/gtest.h>

#include <regex>

#include "grammar_support.h"
#include "pattern_automaton.h"

namespace forge::grammar {
namespace {

bool matches(const std::string& pattern, const std::string& text) {
    const PatternAutomaton a = build_automaton({parse_pattern(pattern)}, 1);
    const auto* end = a.read(text);
    return end && (end->matches & 1);
}

TEST(Pattern, AnchorsBindAndTheRestIsFoundAnywhere) {
    EXPECT_TRUE(matches("b", "abc"));
    EXPECT_FALSE(matches("^b", "abc"));
    EXPECT_FALSE(matches("b$", "abc"));
    EXPECT_TRUE(matches("^abc$", "abc"));
    EXPECT_TRUE(matches("^a|c$", "xc"));
    EXPECT_TRUE(matches("^$", ""));
    EXPECT_FALSE(matches("^$", "a"));
    EXPECT_TRUE(matches("", "anything"));
    EXPECT_FALSE(matches("^a$", "a\n"));   // $ is the very end
}

TEST(Pattern, ClassesEscapesAndCounts) {
    EXPECT_TRUE(matches("^\\d{3}-[A-F\\x30-\\x39]{2,}$", "123-A9F"));
    EXPECT_FALSE(matches("^\\d{3}-[A-F]{2,}$", "123-A"));
    EXPECT_TRUE(matches("^[^\\s\\w]+$", "-+=€"));
    EXPECT_FALSE(matches("^\\d$", "٣"));   // ASCII only
    EXPECT_TRUE(matches("^\\u{1F600}\\ud83d\\ude01.$", "😀😁ä"));
    EXPECT_TRUE(matches("^[\\]\\-a]+$", "]-a"));
    EXPECT_TRUE(matches("^a{,2}$", "a{,2}"));
    EXPECT_TRUE(matches("^(?:ab|a(?<name>c+?)){2}$", "abacc"));
}

// What std::regex says about the same (ECMAScript, ASCII).
TEST(Pattern, AgreesWithTheStandardLibrary) {
    const std::vector<std::string> patterns = {"a*b|c", "^(a|b)*abb$", "(ab?){2,3}c", "^[abc]{1,2}$|d", "a(b|)c$", "^(aa|aab)(ab|b)?$", "(^a|b)(c|$)", "a+?b*", "^.b.$", "[^b]c"};
    for (const std::string& p : patterns) {
        const std::regex expected(p);
        const PatternAutomaton a = build_automaton({parse_pattern(p)}, 1);
        for (int n = 0; n < 4 * 4 * 4 * 4 * 4 * 2; ++n) {
            std::string text;
            for (int k = n; k > 0; k /= 5)
                if (k % 5 > 0) text += static_cast<char>('a' + k % 5 - 1);
            const auto* end = a.read(text);
            EXPECT_EQ(end && end->matches, std::regex_search(text, expected)) << p << " on " << text;
        }
    }
}

TEST(Pattern, SeveralAtOnce) {
    const PatternAutomaton a = build_automaton({parse_pattern("^a"), parse_pattern("b$"), parse_pattern("x")}, 0);
    EXPECT_EQ(a.read("ab")->matches, 3u);
    EXPECT_EQ(a.read("axb")->matches, 7u);
    EXPECT_EQ(a.read("bx")->matches, 4u);
    const PatternAutomaton both = build_automaton({parse_pattern("^a"), parse_pattern("^b")}, 3);
    EXPECT_TRUE(both.states[0].steps.empty());
}

TEST(Pattern, NamesAreTold) {
    const PatternAutomaton a = name_automaton({"id", "idea", "näme"});
    for (const char* name : {"id", "idea", "näme"}) EXPECT_EQ(a.read(name)->matches, 1u) << name;
    for (const char* name : {"", "i", "ide", "ideas", "name"}) EXPECT_EQ(a.read(name)->matches, 0u) << name;
}

TEST(Pattern, WhatIsNotRegularIsRefusedByName) {
    EXPECT_REFUSED(parse_pattern("(?=a)"), "look-around");
    EXPECT_REFUSED(parse_pattern("(?<!a)b"), "look-around");
    EXPECT_REFUSED(parse_pattern("(a)\\1"), "back reference");
    EXPECT_REFUSED(parse_pattern("\\bword"), "word border");
    EXPECT_REFUSED(parse_pattern("\\p{L}"), "Unicode property");
    EXPECT_REFUSED(parse_pattern("(a"), "( has no )");
    EXPECT_REFUSED(parse_pattern("[a"), "[ has no ]");
    EXPECT_REFUSED(parse_pattern("a)"), ") without its (");
    EXPECT_REFUSED(parse_pattern("*a"), "nothing to repeat");
    EXPECT_REFUSED(parse_pattern("\\a"), "means nothing");
    EXPECT_REFUSED(parse_pattern("a{9999}"), "repetitions");
}

TEST(Pattern, HostileExpressionsEnd) {
    EXPECT_REFUSED(build_automaton({parse_pattern("(a|b)*a(a|b){14}$")}, 1), "states");
    EXPECT_REFUSED(parse_pattern("((a{100}){100}){100}"), "too large");
    EXPECT_REFUSED(parse_pattern(std::string(500, '(')), "too deep");
}

}  // namespace
}  // namespace forge::grammar
