#include <gtest/gtest.h>

#include "grammar/vocabulary.h"

namespace forge {
namespace {

TEST(ByteTrie, HoldsItsStringsInPreorder) {
    const ByteTrie t = ByteTrie::build({{"ab", 1}, {"a", 2}, {"b", 3}, {"abc", 4}, {"ab", 5}, {"", 6}});
    ASSERT_EQ(t.nodes.size(), 4u);
    EXPECT_EQ(t.nodes[0].byte, 'a');
    EXPECT_EQ(t.nodes[0].end, 3u);
    EXPECT_EQ(t.nodes[1].count, 2u);   // "ab" twice
    EXPECT_EQ(t.nodes[2].depth, 3u);
    EXPECT_EQ(t.nodes[3].end, 4u);
    EXPECT_EQ(t.items, (std::vector<std::uint32_t>{2, 1, 5, 4, 3}));
}

TEST(Vocabulary, SortsTokensByWhatTheyDoInAString) {
    const Vocabulary v({"ab", "\"", "a\",", "\n", "ä", "\xC3", "\\\"x", "\",", "\xFF", "\xA4z"}, {});
    const StringTokens& json = v.strings({0, 5});
    std::vector<std::pair<std::uint32_t, std::uint32_t>> inside;
    for (const auto& t : json.inside) inside.emplace_back(t.id, t.characters);
    EXPECT_EQ(inside, (std::vector<std::pair<std::uint32_t, std::uint32_t>>{{4, 1}, {5, 1}, {0, 2}, {6, 2}}));
    ASSERT_EQ(json.closing_exactly.size(), 1u);
    EXPECT_EQ(json.closing_exactly[0].id, 1u);
    ASSERT_EQ(json.closing.size(), 1u);         // both end in ,
    EXPECT_EQ(json.closing[0].size(), 2u);
    EXPECT_EQ(json.inside_masks[1][0], 1u << 4 | 1u << 5);
    EXPECT_TRUE(v.bytes(8).empty());
    EXPECT_EQ(&v.strings({2, 9}), &json);       // whatever the length
}

TEST(Vocabulary, SortsTokensByWhatTheyDoBetweenSpecialTokens) {
    const Vocabulary v({"ab", "\"", "a<|", "|b", "<", "\n", "<\\", "<|q|>", "<|r|>"}, {}, {7, 8});
    const StringTokens& plain = v.strings({0, 5, '<', '|'});
    std::vector<std::pair<std::uint32_t, std::uint32_t>> inside;
    for (const auto& t : plain.inside) inside.emplace_back(t.id, t.characters);
    EXPECT_EQ(inside, (std::vector<std::pair<std::uint32_t, std::uint32_t>>{{1, 1}, {4, 1}, {5, 1}, {0, 2}, {3, 2}, {6, 2}}));
    EXPECT_EQ(plain.after_first[0], 1u << 3);
    EXPECT_TRUE(plain.closing_exactly.empty());
    ASSERT_EQ(plain.closing.size(), 2u);        // each special token says something else after its first byte
    EXPECT_NE(&v.strings({0, 5}), &plain);
}

}  // namespace
}  // namespace forge
