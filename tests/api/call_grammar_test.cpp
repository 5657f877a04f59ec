// Calls that a grammar makes are read by the family's parser: random texts under each family's grammar of calls.
#include "api/call_grammar.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "grammar/matcher.h"
#include "tokenizer/tokenizer.h"

namespace forge {
namespace {

using Json = nlohmann::ordered_json;

struct Family {
    ToolFamily family;
    const char* source;   // what its template mentions
    const char* marker;   // a text that its calls hold
};
const Family all_families[] = {
    {ToolFamily::none, "", "\"name\""},
    {ToolFamily::hermes, "<tool_call>", "<tool_call>"},
    {ToolFamily::llama, "<|start_header_id|> ipython", "\"parameters\""},
    {ToolFamily::mistral, "[TOOL_CALLS]", "[TOOL_CALLS]["},
    {ToolFamily::mistral, "[TOOL_CALLS] [ARGS]", "[ARGS]"},
    {ToolFamily::gemma4, "<|tool_call> <tool_call|>", "<|tool_call>call:"},
    {ToolFamily::gemma4, "<start_function_call>", "<start_function_call>call:"},
    {ToolFamily::gpt_oss, "<|channel|>", "<|channel|>commentary to=functions."},
    {ToolFamily::deepseek, "<｜tool▁calls▁begin｜>", "<｜tool▁sep｜>"},
    {ToolFamily::deepseek, "<｜tool▁calls▁begin｜> ```json", "```json"},
    {ToolFamily::kimi, "<|tool_calls_section_begin|>", "functions."},
    {ToolFamily::lfm2, "<|tool_call_start|>", "<|tool_call_start|>["},
    {ToolFamily::granite3, "<|tool_call|>", "<|tool_call|>["},
    {ToolFamily::command_r, "<|START_ACTION|>", "<|START_ACTION|>["},
    {ToolFamily::functionary, "<function=", "<function="},
};

const Json tools = Json::parse(R"([
    {"type": "function", "function": {"name": "get_weather", "strict": true, "parameters": {"type": "object", "properties": {
        "city": {"type": "string", "maxLength": 9}, "unit": {"enum": ["c", "f", null]}, "days": {"type": "integer", "minimum": -5, "maximum": 40}, "exact": {"type": "boolean"},
        "where": {"type": "object", "properties": {"lat": {"type": "number", "minimum": -9, "maximum": 9}, "note": {"type": ["string", "null"], "maxLength": 5}}, "required": ["note"], "additionalProperties": false},
        "tags": {"type": "array", "items": {"type": "string", "pattern": "^[a-d<|\"'\\\\]{0,3}$"}, "maxItems": 3}},
        "required": ["city", "unit", "exact", "where"], "additionalProperties": false}}},
    {"type": "function", "function": {"name": "now", "strict": true, "parameters": {"type": "object", "additionalProperties": false}}},
    {"type": "function", "function": {"name": "note", "parameters": {"type": "object", "additionalProperties": {"type": "string", "maxLength": 3}, "maxProperties": 2}}}])");

// What is wrong with the arguments; empty: nothing.
std::string fault(const std::string& name, const std::string& text) {
    const Json a = Json::parse(text, nullptr, false);
    if (!a.is_object()) return "not an object";
    if (name == "now") return a.empty() ? "" : "arguments";
    if (name == "note") {
        for (const auto& [key, value] : a.items())
            if (!value.is_string()) return key;
        return "";
    }
    if (name != "get_weather") return "name";
    for (const char* key : {"city", "unit", "exact", "where"})
        if (!a.contains(key)) return key;
    if (!a["city"].is_string()) return "city";
    if (!a["unit"].is_null() && a["unit"] != "c" && a["unit"] != "f") return "unit";
    if (!a["exact"].is_boolean()) return "exact";
    if (a.contains("days") && !(a["days"].is_number_integer() && a["days"] >= -5 && a["days"] <= 40)) return "days";
    const Json& where = a["where"];
    if (!where.is_object() || !where.contains("note") || !(where["note"].is_null() || where["note"].is_string())) return "note";
    if (where.contains("lat") && !(where["lat"].is_number() && where["lat"] >= -9 && where["lat"] <= 9)) return "lat";
    if (a.contains("tags")) {
        if (!a["tags"].is_array() || a["tags"].size() > 3) return "tags";
        for (const Json& tag : a["tags"])
            if (!tag.is_string() || tag.get<std::string>().find_first_not_of("abcd<|\"'\\") != std::string::npos) return "a tag";
    }
    return "";
}

// A token for each printable character and a few words, and each marker a special token.
std::shared_ptr<const Tokenizer> tokenizer_with(const std::vector<std::string>& specials) {
    Json vocab = Json::object(), added = Json::array();
    const auto add = [&](const std::string& symbol) { vocab.emplace(symbol, vocab.size()); };
    add("<end>");
    for (char c = '!'; c <= '~'; ++c) add(std::string(1, c));
    // GPT-2's stand-ins for other bytes: themselves, or U+0100 and on.
    const auto stand_in = [&](int code) { add({static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 63))}); };
    stand_in(0x120);   // a space
    stand_in(0x10A);   // a line end
    for (int b = 0xA1; b <= 0xFF; ++b)
        if (b != 0xAD) stand_in(b);
    for (int code = 0x121; code <= 0x143; ++code) stand_in(code);
    added.push_back({{"id", 0}, {"content", "<end>"}, {"special", true}, {"single_word", false}, {"lstrip", false}, {"rstrip", false}, {"normalized", false}});
    for (const std::string& s : specials) {
        added.push_back({{"id", vocab.size()}, {"content", s}, {"special", true}, {"single_word", false}, {"lstrip", false}, {"rstrip", false}, {"normalized", false}});
        vocab.emplace(s, vocab.size());
    }
    const Json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
    return Tokenizer::from_json(Json{{"version", "1.0"}, {"added_tokens", added}, {"normalizer", nullptr}, {"pre_tokenizer", bytes}, {"post_processor", bytes}, {"decoder", bytes},
                                     {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", Json::array()}}}}.dump(), "{\"eos_token\": \"<end>\"}", "test");
}

std::vector<std::string> markers_of(const Family& f) {
    std::vector<std::string> markers = tool_markers(f.family);
    std::sort(markers.begin(), markers.end());
    markers.erase(std::unique(markers.begin(), markers.end()), markers.end());
    return markers;
}

struct Parsed {
    std::string content;
    std::vector<std::pair<std::string, std::string>> calls;
};

Parsed parse(ToolFamily family, const std::string& text) {
    const auto parser = make_tool_parser(family, {tools, true, 1});
    Parsed out;
    const auto add = [&](const ToolCallParser::Delta& d) {
        out.content += d.content;
        for (const ToolCallDelta& c : d.calls) {
            if (static_cast<std::size_t>(c.index) >= out.calls.size()) out.calls.resize(static_cast<std::size_t>(c.index) + 1);
            out.calls[static_cast<std::size_t>(c.index)].first += c.name;
            out.calls[static_cast<std::size_t>(c.index)].second += c.arguments;
        }
    };
    for (const char c : text) add(parser->push(std::string(1, c)));
    add(parser->finish(false));
    return out;
}

// A random answer under the constraint, to its end; empty when it takes too long.
std::string random_answer(TokenConstraint& constraint, const Vocabulary& vocabulary, std::mt19937& rng) {
    std::string text;
    for (int step = 0; step < 3000; ++step) {
        const std::uint32_t* mask = constraint.mask();
        std::vector<std::int32_t> allowed;
        for (std::size_t id = 0; id < vocabulary.size(); ++id)
            if (mask[id / 32] >> (id % 32) & 1) allowed.push_back(static_cast<std::int32_t>(id));
        if (allowed.empty()) return "nothing can follow " + text;
        if (allowed.size() == 1 && allowed[0] == 0) return text;
        // The end, when it may come, comes soon; and so does what closes something.
        std::int32_t chosen = allowed[rng() % allowed.size()];
        if (allowed[0] == 0 && rng() % 2) return text;
        if (rng() % 3 == 0)
            for (const std::int32_t id : allowed)
                if (const std::string& b = vocabulary.bytes(id); !b.empty() && std::string_view("\"}])'\xFF,:").find(b[0]) != std::string_view::npos && rng() % 2) chosen = id;
        if (chosen == 0) return text;
        for (const char c : vocabulary.bytes(chosen))
            if (c != Grammar::special_begin && c != Grammar::special_end) text += c;
        constraint.accept(chosen);
        if (constraint.finished()) return text;
    }
    return "";
}

TEST(CallGrammar, WhatItMakesIsReadByTheFamilysParser) {
    for (const Family& f : all_families)
        for (const bool special : {true, false}) {
            const auto tokenizer = tokenizer_with(special ? markers_of(f) : std::vector<std::string>());
            const auto vocabulary = std::make_shared<const Vocabulary>(tokenizer, tokenizer->size(), std::vector<std::int32_t>{0});
            const ConstraintMaker make = require_calls({f.family, f.source, tools, "", true}, vocabulary);
            std::mt19937 rng(5);
            int whole = 0;
            std::set<std::string> names;
            for (int round = 0; round < 60; ++round) {
                const auto constraint = make();
                const std::string text = random_answer(*constraint, *vocabulary, rng);
                if (text.empty()) continue;
                ++whole;
                const Parsed parsed = parse(f.family, text);
                EXPECT_EQ(parsed.content, "") << name_of(f.family) << ": " << text;
                EXPECT_NE(text.find(f.marker), std::string::npos) << text;
                ASSERT_FALSE(parsed.calls.empty()) << name_of(f.family) << ": " << text;
                for (const auto& [name, arguments] : parsed.calls) {
                    names.insert(name);
                    ASSERT_EQ(fault(name, arguments), "") << name_of(f.family) << ": " << text << "\n" << name << arguments;
                }
            }
            EXPECT_GE(whole, 40) << name_of(f.family);
            EXPECT_EQ(names.size(), 3u) << name_of(f.family);
        }
}

// Gemma's and LFM2's own forms, not JSON in their frame.
TEST(CallGrammar, FamiliesWriteTheirOwnForm) {
    const auto tokenizer = tokenizer_with({});
    const auto vocabulary = std::make_shared<const Vocabulary>(tokenizer, tokenizer->size(), std::vector<std::int32_t>{0});
    const auto takes = [&](ToolFamily family, const char* source, const std::string& text) {
        const auto constraint = require_calls({family, source, tools, "", true}, vocabulary)();
        try {
            for (const std::int32_t id : tokenizer->encode(text, {})) constraint->accept(id);
        } catch (const std::exception&) {
            return false;
        }
        const std::uint32_t* mask = constraint->mask();
        return constraint->finished() || (mask[0] & 1) != 0;
    };
    const char* gemma = "<|tool_call> <tool_call|>";
    EXPECT_TRUE(takes(ToolFamily::gemma4, gemma, "<|tool_call>call:now{}<tool_call|>"));
    EXPECT_TRUE(takes(ToolFamily::gemma4, gemma, R"(<|tool_call>call:get_weather{city:<|"|>a "b" \<|"|>,unit:<|"|>c<|"|>,exact:true,where:{note:null}}<tool_call|>)"));
    EXPECT_TRUE(takes(ToolFamily::gemma4, gemma, R"(<|tool_call>call:note{any_name:<|"|>x<|"|>}<tool_call|>)"));
    EXPECT_FALSE(takes(ToolFamily::gemma4, gemma, R"(<|tool_call>call:get_weather{"city":"a","unit":"c","exact":true,"where":{"note":null}}<tool_call|>)"));
    EXPECT_FALSE(takes(ToolFamily::gemma4, gemma, R"(<|tool_call>call:note{a:<|"|><|<|"|>}<tool_call|>)"));
    EXPECT_TRUE(takes(ToolFamily::lfm2, "<|tool_call_start|>", R"(<|tool_call_start|>[get_weather(city="a \"b\"", unit=None, exact=False, where={"note": None})]<|tool_call_end|>)"));
    EXPECT_TRUE(takes(ToolFamily::lfm2, "<|tool_call_start|>", R"(<|tool_call_start|>[now(), note(x="y")]<|tool_call_end|>)"));
    EXPECT_FALSE(takes(ToolFamily::lfm2, "<|tool_call_start|>", R"(<|tool_call_start|>[{"name": "now", "arguments": {}}]<|tool_call_end|>)"));
    // A name that Python cannot say: JSON for all.
    const Json odd = Json::parse(R"([{"type": "function", "function": {"name": "a", "parameters": {"type": "object", "properties": {"odd name": {"const": 1}}, "required": ["odd name"], "additionalProperties": false}}}])");
    const auto constraint = require_calls({ToolFamily::lfm2, "<|tool_call_start|>", odd, "", false}, vocabulary)();
    for (const std::int32_t id : tokenizer->encode(R"(<|tool_call_start|>[{"name": "a", "arguments": {"odd name": 1}}]<|tool_call_end|>)", {})) constraint->accept(id);
    EXPECT_TRUE(constraint->finished());
}

// A strict tool's calls are held to its parameters where they come by themselves.
TEST(CallGrammar, StrictToolsWakeAtTheirTrigger) {
    for (const Family& f : all_families) {
        const auto tokenizer = tokenizer_with(markers_of(f));
        const auto vocabulary = std::make_shared<const Vocabulary>(tokenizer, tokenizer->size(), std::vector<std::int32_t>{0});
        const ConstraintMaker make = check_calls({f.family, f.source, tools, "", true}, vocabulary);
        ASSERT_TRUE(make) << name_of(f.family);
        EXPECT_EQ(make()->mask(), nullptr);
    }
    EXPECT_FALSE(check_calls({ToolFamily::hermes, "", Json::array({tools[2]}), "", true}, nullptr));
}

}  // namespace
}  // namespace forge
