// Character classes and NFC. The counts are those that the reference
// implementation's regular expressions and normaliser have.
#include "unicode.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "nfc.h"
#include "unicode_regex.h"

namespace forge {
namespace {

std::size_t count(const char* pattern) {
    static const std::string all = [] {
        std::string text;
        for (char32_t c = 0; c < 0x110000; ++c)
            if (c < 0xD800 || c >= 0xE000) unicode::append(text, c);
        return text;
    }();
    RegexScratch scratch;
    std::vector<TextSpan> found;
    Regex(pattern, "test").find_all(all, scratch, found);
    return found.size();
}

TEST(Unicode, classes_are_those_of_unicode_16) {
    const std::pair<const char*, std::size_t> wanted[] = {
        {R"(\p{L})", 141028}, {R"(\p{Lu})", 1858},   {R"(\p{Ll})", 2258},
        {R"(\p{Lt})", 31},    {R"(\p{Lm})", 404},    {R"(\p{Lo})", 136477},
        {R"(\p{M})", 2501},   {R"(\p{N})", 1911},    {R"(\p{Nd})", 760},
        {R"(\d)", 760},       {R"(\p{P})", 855},     {R"(\p{S})", 8514},
        {R"(\p{Z})", 19},     {R"(\p{Cn})", 819533}, {R"(\s)", 25},
        {R"(\w)", 144671},    {R"([\w])", 144665},   {R"([^\s\p{L}])", 971011},
        {"(?i:s)", 3},        {"(?i:k)", 3},         {"(?i:[a-z])", 54},
        {".", 1112063}};
    for (auto [pattern, n] : wanted) EXPECT_EQ(count(pattern), n) << pattern;
}

TEST(Unicode, properties_of_single_characters) {
    EXPECT_EQ(unicode::category(0x295), unicode::Category::Ll);  // Lo from Unicode 17 on
    EXPECT_TRUE(unicode::is_numeric(0x11DE0));                   // new in Unicode 17
    EXPECT_TRUE(unicode::is_word(0x24B6));
    EXPECT_TRUE(unicode::is_word(0x200D));
    EXPECT_FALSE(unicode::is_word('-'));
    EXPECT_TRUE(unicode::is_white_space(0x3000));
    EXPECT_FALSE(unicode::is_white_space(0x200B));
    EXPECT_FALSE(unicode::is_white_space(0x1C));
}

std::string utf8(std::u32string_view text) {
    std::string out;
    for (char32_t c : text) unicode::append(out, c);
    return out;
}

TEST(Nfc, composes_orders_and_replaces) {
    const std::pair<std::u32string, std::u32string> wanted[] = {
        {U"abc", U"abc"},
        {U"e\u0301", U"\u00E9"},
        {U"a\u0301\u0323", U"\u1EA1\u0301"},  // ordered, then composed
        {U"\u0344", U"\u0308\u0301"},         // decomposes for good
        {U"\u1100\u1161\u11A8", U"\uAC01"},   // Hangul
        {U"\u212A\u2126\u2000", U"K\u03A9\u2002"},
        {U"\uF900\U0002F800", U"\u8C48\u4E3D"},
        {U"\u0958", U"\u0915\u093C"},  // composition exclusion
        // Younger than Unicode 9: inert, and nothing crosses them.
        {U"e\u07FD\u0301", U"e\u07FD\u0301"},
        {U"\U00011935\U00011930", U"\U00011935\U00011930"},
        {U"a\u0323\u1ABF\u0301", U"\u1EA1\u1ABF\u0301"},
    };
    for (const auto& [in, out] : wanted) EXPECT_EQ(nfc(utf8(in)), utf8(out));
}

TEST(Utf8, ill_formed_subparts) {
    EXPECT_EQ(unicode::replace_invalid("\xF0\x9F\x98"), "\xEF\xBF\xBD");          // one subpart
    EXPECT_EQ(unicode::replace_invalid("\xC0\x80"), "\xEF\xBF\xBD\xEF\xBF\xBD");  // overlong
    EXPECT_EQ(unicode::replace_invalid("\xE2\x28\xA1"), "\xEF\xBF\xBD(\xEF\xBF\xBD");
    EXPECT_EQ(unicode::replace_invalid("\xF4\x90\x80\x80"),
              "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
    EXPECT_TRUE(unicode::decode("\xE2\x82", 0).incomplete);
    EXPECT_FALSE(unicode::decode("\xE2\x28", 0).incomplete);
}

std::vector<std::string> matches(const char* pattern, const std::string& text) {
    RegexScratch scratch;
    std::vector<TextSpan> found;
    Regex(pattern, "test").find_all(text, scratch, found);
    std::vector<std::string> out;
    for (TextSpan m : found) out.push_back(text.substr(m.begin, m.end - m.begin));
    return out;
}

using Strings = std::vector<std::string>;

TEST(Regex, the_classic_mistakes) {
    const char* qwen =
        R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
    EXPECT_EQ(matches(qwen, "a \n\n b"), (Strings{"a", " \n\n", " b"}));
    EXPECT_EQ(matches(qwen, "a   b"), (Strings{"a", "  ", " b"}));
    EXPECT_EQ(matches(qwen, "!!\n\n x"), (Strings{"!!\n\n", " x"}));
    EXPECT_EQ(matches(qwen, "it'\xC5\xBFs"), (Strings{"it", "'\xC5\xBF", "s"}));
    EXPECT_EQ(matches(qwen, "I'LL"), (Strings{"I", "'LL"}));
    EXPECT_EQ(matches(qwen, "a  "), (Strings{"a", "  "}));
    EXPECT_EQ(matches(qwen, "\xC3\xA9t\xC3\xA9 12"), (Strings{"\xC3\xA9t\xC3\xA9", " ", "1", "2"}));
}

TEST(Regex, empty_matches_and_anchors) {
    EXPECT_EQ(matches("x*", "axxb"), (Strings{"", "xx", ""}));
    EXPECT_EQ(matches("^.", "ab\ncd\n"), (Strings{"a", "c"}));
    EXPECT_EQ(matches(".$", "ab\ncd"), (Strings{"b", "d"}));
    EXPECT_EQ(matches("(?<=b)c|a(?=b)", "abc"), (Strings{"a", "c"}));
}

}  // namespace
}  // namespace forge
