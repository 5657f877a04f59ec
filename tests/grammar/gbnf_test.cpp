#include <gtest/gtest.h>

#include "grammar_support.h"

namespace forge::test {
namespace {

TEST(Gbnf, SequencesChoicesAndClasses) {
    const auto g = gbnf(R"(
# an answer
root ::= "yes" | "no" (" " reason)?
reason ::= [a-z]+ | "\"" [^"\n]* "\""
)");
    for (const char* good : {"yes", "no", "no because", "no \"Käse, 3\""}) EXPECT_TRUE(accepts(g, good)) << good;
    for (const char* bad : {"", "maybe", "yes because", "no ", "no Because", "no \"a\nb\"", "no \"a"}) EXPECT_FALSE(accepts(g, bad)) << bad;
}

TEST(Gbnf, Repetitions) {
    const auto g = gbnf("root ::= \"a\"{2} \"b\"{1,3} \"c\"{2,} (\"d\" \"e\"?)*");
    for (const char* good : {"aabcc", "aabbbcccc", "aabccdeded"}) EXPECT_TRUE(accepts(g, good)) << good;
    for (const char* bad : {"abcc", "aacc", "aabbbbcc", "aabc", "aabcce"}) EXPECT_FALSE(accepts(g, bad)) << bad;
}

TEST(Gbnf, RecursionInTheMiddle) {
    const auto g = gbnf("root ::= \"(\" root \")\" | \"x\"");
    EXPECT_TRUE(accepts(g, "x"));
    EXPECT_TRUE(accepts(g, "(((x)))"));
    EXPECT_FALSE(accepts(g, "((x)"));
    EXPECT_FALSE(accepts(g, "(x))"));
    const std::string deep(20000, '(');
    EXPECT_TRUE(accepts(g, deep + "x" + std::string(20000, ')')));
}

// Two ways at every level, which must not double the work of each.
TEST(Gbnf, AmbiguityIsShared) {
    const auto g = gbnf("root ::= \"a\" root \"b\" | \"a\" root \"c\" | \"x\"");
    EXPECT_TRUE(accepts(g, std::string(3000, 'a') + "x" + std::string(1500, 'b') + std::string(1500, 'c')));
    EXPECT_FALSE(accepts(g, std::string(3000, 'a') + "x" + std::string(2999, 'b')));
}

TEST(Gbnf, CharactersBeyondAscii) {
    const auto g = gbnf("root ::= [à-ü]+ \"\\u00df\" [^\\x00-\\U0000FFFF] .");
    EXPECT_TRUE(accepts(g, "éàß😀€"));
    EXPECT_FALSE(accepts(g, "eß😀€"));
    EXPECT_FALSE(accepts(g, "éß€€"));
}

TEST(Gbnf, LinesBelongToTheirRules) {
    EXPECT_TRUE(accepts(gbnf("root ::= a\n  | b\na ::= \"1\"\nb ::= (\"2\"\n  \"3\")"), "23"));
    EXPECT_TRUE(accepts(gbnf("root ::= a b # both\r\na ::= \"1\"\r\nb ::= \"\""), "1"));
}

TEST(Gbnf, ErrorsNameTheLine) {
    EXPECT_REFUSED(compile_gbnf("root ::= \"a\"\nroot ::= \"b\""), "line 2", "twice");
    EXPECT_REFUSED(compile_gbnf("a ::= \"a\""), "no rule named root");
    EXPECT_REFUSED(compile_gbnf("root ::= missing"), "missing", "line 1");
    EXPECT_REFUSED(compile_gbnf("root ::= (\"a\""), "( has no )");
    EXPECT_REFUSED(compile_gbnf("root ::= \"a\n"), "no closing quote");
    EXPECT_REFUSED(compile_gbnf("root ::= [a-"), "[ has no ]");
    EXPECT_REFUSED(compile_gbnf("root ::= \"a\"{3,2}"), "wrong way round");
    EXPECT_REFUSED(compile_gbnf("root ::= *"), "nothing to repeat");
    EXPECT_REFUSED(compile_gbnf("root ::= root \"a\" | \"b\""), "left recursion");
    EXPECT_REFUSED(compile_gbnf("root ::= a root \"x\" | \"b\"\na ::= \"\" | \"c\""), "left recursion");
    EXPECT_REFUSED(compile_gbnf("root ::= \"a\" root"), "never come to an end");
    EXPECT_REFUSED(compile_gbnf("root ::= ((((\"a\"{1000}){1000}){1000}){1000})"), "states");
}

}  // namespace
}  // namespace forge::test
