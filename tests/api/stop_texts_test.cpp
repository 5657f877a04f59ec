#include "stop_texts.h"

#include <gtest/gtest.h>

#include <random>

namespace forge {
namespace {

TEST(StopTexts, EndsBeforeTheText) {
    StopTexts stops({"END"});
    EXPECT_EQ(stops.push("one E"), "one ");
    EXPECT_EQ(stops.push("N"), "");
    EXPECT_EQ(stops.push("ough EN"), "ENough ");
    EXPECT_EQ(stops.push("D more"), "");
    EXPECT_TRUE(stops.found());
    EXPECT_EQ(stops.push("END"), "");
}

TEST(StopTexts, WhatWaitsComesOutAtTheEnd) {
    StopTexts stops({"END", ""});
    EXPECT_EQ(stops.push("the EN"), "the ");
    EXPECT_EQ(stops.finish(), "EN");
    EXPECT_FALSE(stops.found());
}

TEST(StopTexts, EqualsASearchInTheWholeTextHoweverItIsCut) {
    std::mt19937 random(1);
    for (int round = 0; round < 2000; ++round) {
        const auto word = [&](int most) {
            std::string text;
            for (int n = 1 + static_cast<int>(random() % static_cast<unsigned>(most)); n > 0; --n) text += static_cast<char>('a' + random() % 2);
            return text;
        };
        const std::vector<std::string> list{word(5), word(4)};
        const std::string text = word(30);
        std::size_t expected = std::string::npos;  // where the text begins that ends first
        for (std::size_t end = 1; end <= text.size() && expected == std::string::npos; ++end)
            for (const std::string& stop : list)
                if (end >= stop.size() && text.compare(end - stop.size(), stop.size(), stop) == 0) expected = std::min(expected, end - stop.size());
        StopTexts stops(list);
        std::string out;
        for (std::size_t at = 0; at < text.size();) {
            const std::size_t n = 1 + random() % 4;
            out += stops.push(text.substr(at, n));
            at += n;
        }
        const bool found = stops.found();
        out += stops.finish();
        EXPECT_EQ(found, expected != std::string::npos) << text;
        EXPECT_EQ(out, text.substr(0, expected)) << text << " " << list[0] << " " << list[1];
    }
}

}  // namespace
}  // namespace forge
