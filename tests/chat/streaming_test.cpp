// Stop strings and the reasoning split, under every way of cutting the input.
#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "chat/reasoning.h"
#include "chat/stop_strings.h"

namespace forge {
namespace {

struct Stopped {
    std::string text, matched;
    bool operator==(const Stopped&) const = default;
};

Stopped run_stops(const std::vector<std::string>& stops, const std::vector<std::string>& pieces) {
    StopMatcher matcher(stops);
    Stopped out;
    for (const std::string& piece : pieces) out.text += matcher.push(piece);
    out.text += matcher.finish();
    out.matched = matcher.matched();
    return out;
}

// The definition: the first stop string to be completed, the longest of those ending there.
Stopped stops_by_definition(const std::vector<std::string>& stops, const std::string& text) {
    for (std::size_t end = 1; end <= text.size(); ++end) {
        std::string found;
        for (const std::string& stop : stops)
            if (stop.size() > found.size() && std::string_view(text).substr(0, end).ends_with(stop))
                found = stop;
        if (!found.empty()) return {text.substr(0, end - found.size()), found};
    }
    return {text, ""};
}

std::vector<std::string> cut(const std::string& text, unsigned long bits) {
    std::vector<std::string> pieces(1);
    for (std::size_t i = 0; i < text.size(); ++i) {
        pieces.back() += text[i];
        if (bits >> i & 1) pieces.emplace_back();
    }
    return pieces;
}

TEST(StopMatcher, EveryCutOfShortTexts) {
    const std::vector<std::vector<std::string>> sets = {
        {"ab"}, {"aab", "b"}, {"aba", "bab"}, {"abc", "bcd", "c"}, {"aaa"}, {"b", "ab", "aab"}};
    const std::vector<std::string> texts = {"",     "aaab",   "abab",   "xaabax",
                                            "abcd", "aaxaaa", "babaab", "aa\nb ab"};
    for (const auto& stops : sets)
        for (const std::string& text : texts)
            for (unsigned long bits = 0; bits < 1ul << text.size(); ++bits)
                ASSERT_EQ(run_stops(stops, cut(text, bits)), stops_by_definition(stops, text))
                    << text << " " << bits;
}

TEST(StopMatcher, RandomTexts) {
    std::mt19937 random(7);
    for (int round = 0; round < 5000; ++round) {
        const auto word = [&](int longest) {
            std::string out;
            for (int n = static_cast<int>(random() % static_cast<unsigned>(longest)) + 1; n > 0; --n)
                out += "abc"[random() % 3];
            return out;
        };
        std::vector<std::string> stops;
        for (unsigned n = random() % 3 + 1; n > 0; --n) stops.push_back(word(5));
        const std::string text = word(30);
        ASSERT_EQ(run_stops(stops, cut(text, random())), stops_by_definition(stops, text));
    }
}

TEST(StopMatcher, HoldsBackNoMoreThanNeeded) {
    StopMatcher matcher({"###", "\n\nUser:"});
    EXPECT_EQ(matcher.push("Hello"), "Hello");
    EXPECT_EQ(matcher.push(" a#"), " a");
    EXPECT_EQ(matcher.push("b"), "#b");
    EXPECT_EQ(matcher.push("\n\nUs"), "");
    EXPECT_EQ(matcher.push("e it"), "\n\nUse it");
    EXPECT_EQ(matcher.push("##"), "");
    EXPECT_EQ(matcher.push("#tail"), "");
    EXPECT_TRUE(matcher.stopped());
    EXPECT_EQ(matcher.matched(), "###");
    EXPECT_EQ(matcher.push("more"), "");
    EXPECT_EQ(matcher.finish(), "");
}

TEST(StopMatcher, RefusesAnEmptyStop) { EXPECT_THROW(StopMatcher({"a", ""}), Error); }

const ReasoningMarkers think{"<think>", "</think>", false, {}};
const ReasoningMarkers bracket{"[THINK]", "[/THINK]", true, {}};
const ReasoningMarkers harmony{"<|channel|>analysis<|message|>", "<|end|>", true, {}, true};
const ReasoningMarkers channel{"<|channel>thought\n", "<channel|>", true, "thought\n"};

ReasoningSplitter::Delta run_split(const ReasoningMarkers& markers, bool inside,
                                   const std::vector<std::string>& pieces) {
    ReasoningSplitter splitter(markers, inside);
    ReasoningSplitter::Delta out;
    const auto add = [&](const ReasoningSplitter::Delta& d) {
        out.reasoning += d.reasoning;
        out.content += d.content;
    };
    for (const std::string& piece : pieces) add(splitter.push(piece));
    add(splitter.finish());
    return out;
}

struct Split {
    ReasoningMarkers markers;
    bool inside;
    std::string text, reasoning, content;
};

std::vector<Split> splits() {
    return {
        {think, true, "why\n</think>\n\nso", "why", "so"},
        {think, true, "\nwhy\n\nnot\n</think>so", "why\n\nnot", "so"},
        {think, true, "<think>\nwhy</think>so", "why", "so"},  // a repeated opener
        {think, true, "never closed\n", "never closed", ""},
        {think, true, "half </thi", "half </thi", ""},
        {think, true, "</think>\n\nso", "", "so"},
        {think, true, "a</think>b</think>c", "a", "bc"},  // a stray closer
        {think, false, "<think>\nwhy\n</think>\n\nso\n", "why", "so\n"},
        {think, false, "\n\n <think>why</think>so", "why", "so"},
        {think, false, "plain <think> quoted", "", "plain <think> quoted"},
        {think, false, " plain\n", "", " plain\n"},
        {think, false, "<thin air", "", "<thin air"},
        {think, false, "<think>\n\n</think>\n\n", "", ""},
        {think, false, "</think>so", "", "so"},
        {bracket, false, "[THINK]a[/THINK]b[THINK]c[/THINK]d", "ac", "bd"},
        {channel, false, "<|channel>thought\nwhy\n<channel|>so", "why", "so"},
        {channel, false, "thought\nwhy\n<channel|>so", "why", "so"},  // unopened after a tool result
        {channel, false, "thoughtful", "", "thoughtful"},
        {channel, false, "so<|channel>thought\nwhy<channel|>!", "why", "so!"},
        {channel, true, "why<channel|>so", "why", "so"},
        {harmony, false, "<|channel|>analysis<|message|>why<|end|><|start|>assistant<|channel|>final<|message|>so", "why", "so"},
        {harmony, false, "<|channel|>analysis<|message|>a<|end|>\n<|start|>assistant<|channel|>analysis<|message|>b<|end|><|start|>assistant<|channel|>commentary<|message|>I look.<|end|>"
                         "<|start|>assistant to=functions.now<|channel|>commentary json<|message|>{}<|call|>",
         "a\n\nb", "I look.<|channel|>commentary to=functions.now <|message|>{}<|call|>"},
        {harmony, false, "<|channel|>commentary to=functions.now <|constrain|>json<|message|>{\"a\": ", "", "<|channel|>commentary to=functions.now <|message|>{\"a\": "},
        {harmony, false, "plain < text", "", "plain < text"},
        {harmony, false, "<|channel|>ana", "", ""},
        {harmony, false, "<|message|>so<|return|>", "", "so"},
        {think, false, "", "", ""},
        {think, true, "", "", ""},
    };
}

TEST(ReasoningSplitter, EveryCutInTwoOrThree) {
    for (const Split& s : splits()) {
        const ReasoningSplitter::Delta expected{s.reasoning, s.content};
        ASSERT_EQ(run_split(s.markers, s.inside, {s.text}), expected) << s.text;
        for (std::size_t i = 0; i <= s.text.size(); ++i)
            for (std::size_t k = i; k <= s.text.size(); ++k)
                ASSERT_EQ(run_split(s.markers, s.inside,
                                    {s.text.substr(0, i), s.text.substr(i, k - i), s.text.substr(k)}),
                          expected)
                    << s.text << " cut at " << i << ", " << k;
        std::vector<std::string> bytes;
        for (char c : s.text) bytes.emplace_back(1, c);
        ASSERT_EQ(run_split(s.markers, s.inside, bytes), expected) << s.text;
    }
}

// Random texts of marker fragments: any cutting gives the one-shot result.
TEST(ReasoningSplitter, CuttingNeverMatters) {
    std::mt19937 random(3);
    const std::vector<std::string> parts = {
        "<think>",    "</think>",  "<thi",       "nk>",     "\n",       " ",
        "a",          "</",        "think>",     "[THINK]", "[/THINK]", "<|channel>thought\n",
        "<|channel|>", "analysis", "<|message|>", "final", "<|end|>", "<|start|>", "assistant", " to=functions.f", "<|call|>", "<|",
        "<channel|>", "thought\n", "<|channel>", "thou",    "\r\n"};
    for (int round = 0; round < 20000; ++round) {
        std::string text;
        for (unsigned n = random() % 9; n > 0; --n) text += parts[random() % parts.size()];
        const ReasoningMarkers& markers = round % 4 == 0 ? think : round % 4 == 1 ? bracket : round % 4 == 2 ? harmony : channel;
        const bool inside = random() % 2;
        std::vector<std::string> pieces(1);
        for (char c : text) {
            pieces.back() += c;
            if (random() % 3 == 0) pieces.emplace_back();
        }
        ASSERT_EQ(run_split(markers, inside, pieces), run_split(markers, inside, {text})) << text;
    }
}

TEST(ReasoningSplitter, ShowsTextAsSoonAsItIsSure) {
    ReasoningSplitter splitter(think, false);
    EXPECT_EQ(splitter.push("Hello").content, "Hello");
    EXPECT_EQ(splitter.push(" <").content, " ");
    EXPECT_EQ(splitter.push("b>").content, "<b>");
    ReasoningSplitter inside(think, true);
    EXPECT_TRUE(inside.inside());
    EXPECT_EQ(inside.push("one\n").reasoning, "one");
    EXPECT_EQ(inside.push("two").reasoning, "\ntwo");
    EXPECT_EQ(inside.push("</think>x").content, "x");
    EXPECT_FALSE(inside.inside());
}

TEST(ReasoningSplitter, WithoutMarkersEverythingIsContent) {
    ReasoningSplitter splitter(std::nullopt, true);
    EXPECT_EQ(splitter.push("<think>a</think>").content, "<think>a</think>");
}

TEST(Reasoning, PromptTails) {
    EXPECT_TRUE(ends_in_reasoning("<|im_start|>assistant\n<think>\n", think));
    EXPECT_FALSE(ends_in_reasoning("<|im_start|>assistant\n<think>\n\n</think>\n\n", think));
    EXPECT_FALSE(ends_in_reasoning("<|im_start|>user\n<think>\n<|im_end|>\n<|im_start|>assistant\n", think));
    EXPECT_FALSE(ends_in_reasoning("", think));
    EXPECT_FALSE(ends_in_reasoning("<|turn>model\n<|channel>thought\n<channel|>", channel));
    EXPECT_TRUE(ends_in_reasoning("<|turn>model\n<|channel>thought\n", channel));
}

TEST(Reasoning, MarkersOfATemplate) {
    EXPECT_EQ(reasoning_markers("x '<think>\\n' y"), think);
    EXPECT_EQ(reasoning_markers("x.split('</think>')"), think);
    EXPECT_EQ(reasoning_markers("[THINK]"), bracket);
    EXPECT_EQ(reasoning_markers("'<|channel>thought' '<channel|>'"), channel);
    EXPECT_EQ(reasoning_markers("'<|channel|>analysis'"), harmony);
    EXPECT_EQ(reasoning_markers("plain"), std::nullopt);
}

}  // namespace
}  // namespace forge
