// Tool calls as each family writes them: whole, cut at every byte, and wrong.
#include "chat/tool_calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace forge {
namespace {

using Json = nlohmann::ordered_json;

const Json& weather_tools() {
    static const Json tools = Json::parse(R"([
        {"type":"function","function":{"name":"get_weather","parameters":{"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer"},
            "metric":{"type":"boolean"},"where":{"type":"object"},"tags":{"type":"array"},"limit":{"anyOf":[{"type":"number"},{"type":"null"}]},"unit":{"$ref":"#/$defs/unit"}},
            "$defs":{"unit":{"enum":["c","f"]}}}}},
        {"type":"function","function":{"name":"now"}}])");
    return tools;
}

struct Result {
    std::string content;
    struct Call { std::string id, name, arguments; };
    std::vector<Call> calls;
    void add(const ToolCallParser::Delta& d) {
        content += d.content;
        for (const ToolCallDelta& c : d.calls) {
            ASSERT_GE(c.index, 0);
            ASSERT_LE(static_cast<std::size_t>(c.index), calls.size());
            if (static_cast<std::size_t>(c.index) == calls.size()) {
                EXPECT_FALSE(c.name.empty()) << "the first delta of a call has its name";
                EXPECT_FALSE(c.id.empty());
                calls.push_back({c.id, c.name, ""});
            } else {
                EXPECT_TRUE(c.name.empty());
            }
            calls[static_cast<std::size_t>(c.index)].arguments += c.arguments;
        }
    }
    // "content|name{...}|name{...}"
    std::string text() const {
        std::string out = content;
        for (const Call& c : calls) out += "|" + c.name + c.arguments;
        return out;
    }
};

Result parse(ToolFamily family, const std::vector<std::string>& pieces, bool cut = false, bool parallel = true) {
    const auto parser = make_tool_parser(family, {weather_tools(), parallel, 7});
    Result r;
    for (const std::string& p : pieces) r.add(parser->push(p));
    r.add(parser->finish(cut));
    EXPECT_EQ(static_cast<std::size_t>(parser->complete()), r.calls.size());
    return r;
}

struct Case { ToolFamily family; const char* text; const char* expected; };

const std::vector<Case>& cases() {
    using F = ToolFamily;
    static const std::vector<Case> all = {
        {F::hermes, "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rome\"}}\n</tool_call>", "|get_weather{\"city\":\"Rome\"}"},
        {F::hermes, "Let me look.\n\n<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"a</tool_call>b\", \"days\": 3}}\n</tool_call>",
         "Let me look.|now{}|get_weather{\"city\":\"a</tool_call>b\",\"days\":3}"},
        {F::hermes, "No calls here, a < b and <tool> too.", "No calls here, a < b and <tool> too."},
        {F::hermes, "<tool_call>\n{\"name\": \"now\"}\n</tool_call> and so on", "and so on|now{}"},
        {F::hermes, "<tool_call>{\"name\": \"now\", \"arguments\": \"{}\"}}</tool_call>", "|now{}"},                       // a text, a stray bracket
        {F::hermes, "<tool_call>{'name': 'get_weather', 'arguments': {'city': 'Rome', 'metric': True,}}</tool_call>", "|get_weather{\"city\":\"Rome\",\"metric\":true}"},
        {F::hermes, "<tool_call>{\"name\": \"get_weather\", \"arguments\": {\"city\": \"C:\\dir\nx\"}}</tool_call>", "|get_weather{\"city\":\"C:\\\\dir\\nx\"}"},
        {F::hermes, "<tool_call>\n{\"name\": \"functions.now\", \"parameters\": null}\n", "|now{}"},                    // alias, prefix, no closer
        {F::hermes, "<tool_call>{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rome\"}", "|get_weather{\"city\":\"Rome\"}"},   // a bracket is missing
        {F::hermes, "<tool_call>{\"name\": \"other\", \"arguments\": {}}</tool_call>", "|other{}"},                     // not declared, but marked
        {F::hermes, "<tool_call>what is this?</tool_call> text", "<tool_call>what is this?</tool_call> text"},
        {F::hermes, "<tool_call>[{\"name\": \"now\"}, 5, {\"function\": {\"name\": \"get_weather\", \"arguments\": {}}}]</tool_call>", "|now{}|get_weather{}"},
        {F::hermes, "{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rome\"}}", "|get_weather{\"city\":\"Rome\"}"},   // no opener, at the beginning
        {F::hermes, "{\"name\": \"Ann\", \"age\": 5}", "{\"name\": \"Ann\", \"age\": 5}"},
        {F::hermes, "{\"a\": 1}<tool_call>{\"name\":\"now\"}</tool_call>", "{\"a\": 1}|now{}"},
        {F::hermes, "  text  ", "  text  "},
        {F::qwen_xml, "<tool_call>\n<function=get_weather>\n<parameter=city>\nRome\n</parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>", "|get_weather{\"city\":\"Rome\",\"days\":3}"},
        {F::qwen_xml, "<tool_call>\n<function=get_weather>\n<parameter=city>\nnull\n</parameter>\n<parameter=metric>\nTrue\n</parameter>\n<parameter=limit>\nNone\n</parameter>\n<parameter=unit>\nc\n</parameter>\n</function>\n</tool_call>",
         "|get_weather{\"city\":\"null\",\"metric\":true,\"limit\":null,\"unit\":\"c\"}"},
        {F::qwen_xml, "<tool_call><function=get_weather><parameter=city>\nline\n\n</parameter> in it\n</parameter><parameter=where>{\"a\": [1, 2.0]}</parameter><parameter=tags>['x']</parameter></function></tool_call>",
         "|get_weather{\"city\":\"line\\n\\n</parameter> in it\",\"where\":{\"a\":[1,2.0]},\"tags\":[\"x\"]}"},
        {F::qwen_xml, "Sure.\n<function=now>\n</function>\n</tool_call>", "Sure.|now{}"},                                 // no opener
        {F::qwen_xml, "Say <function=now> or\n<function=unknown></function>", "Say <function=now> or\n<function=unknown></function>"},
        {F::qwen_xml, "<tool_call>\n<function=now>\n</function>\n<function=get_weather>\n<parameter=days>\nmany\n</parameter>\n</function>\n</tool_call>", "|now{}|get_weather{\"days\":\"many\"}"},
        {F::qwen_xml, "<tool_call>\n<function=get_weather>\n<parameter=city>\nRome\n</parameter>\n</tool_call>", "|get_weather{\"city\":\"Rome\"}"},
        {F::glm, "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Rome</arg_value>\n<arg_key>days</arg_key>\n<arg_value>2</arg_value>\n</tool_call>", "|get_weather{\"city\":\"Rome\",\"days\":2}"},
        {F::glm, "<tool_call>now</tool_call><tool_call>get_weather<arg_key>city</arg_key><arg_value>a</arg_value></tool_call>", "|now{}|get_weather{\"city\":\"a\"}"},
        {F::llama, "{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Rome\"}}", "|get_weather{\"city\":\"Rome\"}"},
        {F::llama, "<|python_tag|>{\"name\": \"now\", \"parameters\": {}}", "|now{}"},
        {F::llama, "{\"name\": \"now\", \"parameters\": {}}; {\"name\": \"get_weather\", \"parameters\": {\"days\": 1}}", "|now{}|get_weather{\"days\":1}"},
        {F::llama, "<|python_tag|>brave_search.call(query=\"x y\")", "|brave_search{\"query\":\"x y\"}"},
        {F::llama, "[get_weather(city='Rome', days=2), now()]", "|get_weather{\"city\":\"Rome\",\"days\":2}|now{}"},
        {F::llama, "[1, 2] is a list", "[1, 2] is a list"},
        {F::mistral, "[TOOL_CALLS][{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rome\"}, \"id\": \"abcdefghi\"}, {\"name\": \"now\", \"arguments\": {}}]", "|get_weather{\"city\":\"Rome\"}|now{}"},
        {F::mistral, "Yes[TOOL_CALLS]get_weather[CALL_ID]123456789[ARGS]{\"city\": \"[TOOL_CALLS]\"}[TOOL_CALLS]now[ARGS]{}", "Yes|get_weather{\"city\":\"[TOOL_CALLS]\"}|now{}"},
        {F::gemma4, "<|tool_call>call:get_weather{city:<|\"|>Ro}me \"x\"<|\"|>,days:3,where:{a:[1,true,null]}}<tool_call|>", "|get_weather{\"city\":\"Ro}me \\\"x\\\"\",\"days\":3,\"where\":{\"a\":[1,true,null]}}"},
        {F::gemma4, "<|tool_call>call:now{}<tool_call|><|tool_call>call:get_weather{city:<|\"|><|\"|>}<tool_call|>", "|now{}|get_weather{\"city\":\"\"}"},
        {F::gemma4, "<start_function_call>call:get_weather{city:<escape>Rome<escape>}<end_function_call>", "|get_weather{\"city\":\"Rome\"}"},
        {F::gpt_oss, "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{\"city\": \"Rome <|call|>\"}<|call|>", "|get_weather{\"city\":\"Rome <|call|>\"}"},
        {F::gpt_oss, "I look.<|channel|>commentary to=functions.now<|message|>{}<|call|><|start|>assistant<|channel|>analysis to=functions.get_weather code<|message|>{\"days\": 2}", "I look.|now{}|get_weather{\"days\":2}"},
        {F::gpt_oss, "a <| b <|channel>", "a <| b <|channel>"},
        {F::deepseek, "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{\"city\": \"Rome\"}<｜tool▁call▁end｜><｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>", "|get_weather{\"city\":\"Rome\"}|now{}"},
        {F::deepseek, "Hm.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n{\"city\": \"Rome\"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>", "Hm.|get_weather{\"city\":\"Rome\"}"},
        {F::kimi, "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{\"city\": \"Rome\"}<|tool_call_end|><|tool_calls_section_end|>", "|get_weather{\"city\":\"Rome\"}"},
        {F::lfm2, "<|tool_call_start|>[get_weather(city=\"Rome\", metric=False), now()]<|tool_call_end|>Done", "Done|get_weather{\"city\":\"Rome\",\"metric\":false}|now{}"},
        {F::lfm2, "<|tool_call_start|>[{\"name\": \"now\", \"arguments\": {}}]<|tool_call_end|>", "|now{}"},
        {F::granite3, "<|tool_call|>[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rome\"}}]", "|get_weather{\"city\":\"Rome\"}"},
        {F::granite3, "<tool_call>[{\"name\": \"now\", \"arguments\": {}}]", "|now{}"},
        {F::command_r, "<|START_ACTION|>[\n{\"tool_call_id\": \"0\", \"tool_name\": \"get_weather\", \"parameters\": {\"city\": \"Rome\"}}\n]<|END_ACTION|>", "|get_weather{\"city\":\"Rome\"}"},
        {F::command_r, "<|START_RESPONSE|>Hello<|END_RESPONSE|>", "Hello"},
        {F::functionary, "<function=get_weather>{\"city\": \"Rome\"}</function><function=now>{}</function>", "|get_weather{\"city\":\"Rome\"}|now{}"},
        {F::none, "```json\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rome\"}}\n```", "|get_weather{\"city\":\"Rome\"}"},
        {F::none, "```json\n{\"x\": 1}\n```", "```json\n{\"x\": 1}\n```"},
        {F::none, "{\"name\": \"unknown\", \"arguments\": {}}", "{\"name\": \"unknown\", \"arguments\": {}}"},
    };
    return all;
}

TEST(ToolCalls, EachFamilyWhole) {
    for (const Case& c : cases()) EXPECT_EQ(parse(c.family, {c.text}).text(), c.expected) << name_of(c.family) << ": " << c.text;
}

TEST(ToolCalls, AnyCutGivesTheSame) {
    std::mt19937 rng(1);
    for (const Case& c : cases()) {
        const std::string text = c.text, whole = parse(c.family, {text}).text();
        for (std::size_t i = 0; i <= text.size(); ++i)
            EXPECT_EQ(parse(c.family, {text.substr(0, i), text.substr(i)}).text(), whole) << c.text << " at " << i;
        for (int round = 0; round < 10; ++round) {
            std::vector<std::string> pieces;
            for (std::size_t at = 0; at < text.size();) {
                const std::size_t n = 1 + rng() % 5;
                pieces.push_back(text.substr(at, n));
                at += n;
            }
            EXPECT_EQ(parse(c.family, pieces).text(), whole) << c.text;
        }
    }
}

// An answer cut anywhere by a limit of tokens: no exception, calls are complete or absent, and what was
// said is a beginning of what the whole says.
TEST(ToolCalls, TruncatedAnywhere) {
    for (const Case& c : cases()) {
        const std::string text = c.text;
        const Result whole = parse(c.family, {text});
        for (std::size_t i = 0; i < text.size(); ++i) {
            const Result r = parse(c.family, {text.substr(0, i)}, true);
            EXPECT_LE(r.calls.size(), whole.calls.size()) << c.text << " at " << i;
            for (std::size_t k = 0; k < r.calls.size(); ++k) EXPECT_EQ(r.calls[k].arguments, whole.calls[k].arguments) << c.text << " at " << i;
            for (const auto& call : parse(c.family, {text.substr(0, i)}).calls) EXPECT_TRUE(Json::accept(call.arguments)) << call.arguments;
        }
    }
}

// Noise of markers, brackets and bytes: never an exception, arguments always an object, every cut the same.
TEST(ToolCalls, NoiseIsHarmless) {
    std::mt19937 rng(5);
    for (const Case& base : cases()) {
        std::vector<std::string> parts = {"{", "}", "[", "]", "\"", "'", "\\", "\n", " ", "<", ">", "name", ":", ",", "now", "\xff", "\xE2\x80", "(", ")", "=", "`"};
        for (const std::string& m : tool_markers(base.family)) parts.push_back(m);
        const std::string text = base.text;
        for (int round = 0; round < 40; ++round) {
            std::string noise = text.substr(0, rng() % (text.size() + 1));
            for (unsigned n = rng() % 8; n; --n) noise += parts[rng() % parts.size()];
            noise += text.substr(rng() % (text.size() + 1));
            const Result one = parse(base.family, {noise});
            for (const auto& call : one.calls) EXPECT_TRUE(Json::parse(call.arguments, nullptr, false).is_object()) << call.arguments;
            const std::size_t i = rng() % (noise.size() + 1);
            EXPECT_EQ(parse(base.family, {noise.substr(0, i), noise.substr(i)}).text(), one.text()) << noise;
        }
    }
}

TEST(ToolCalls, OneCallWhenOnlyOneIsWanted) {
    const std::string call = "<tool_call>{\"name\": \"now\"}</tool_call>";
    EXPECT_EQ(parse(ToolFamily::hermes, {call + call}, false, false).calls.size(), 1u);
    const Result r = parse(ToolFamily::hermes, {call + call});
    ASSERT_EQ(r.calls.size(), 2u);
    EXPECT_NE(r.calls[0].id, r.calls[1].id);
    EXPECT_EQ(r.calls[0].id.size(), 29u);
    EXPECT_EQ(parse(ToolFamily::mistral, {"[TOOL_CALLS][{\"name\": \"now\", \"arguments\": {}}]"}).calls[0].id.size(), 9u);
    EXPECT_EQ(parse(ToolFamily::kimi, {"<|tool_call_begin|>functions.now:3<|tool_call_argument_begin|>{}<|tool_call_end|>"}).calls[0].id, "functions.now:3");
}

// Text that cannot become a call is passed on at once, not at the end.
TEST(ToolCalls, ContentIsNotHeldBack) {
    const auto parser = make_tool_parser(ToolFamily::hermes, {weather_tools(), true, 0});
    EXPECT_EQ(parser->push("Hello").content, "Hello");
    EXPECT_EQ(parser->push(" <tool").content, "");
    EXPECT_EQ(parser->push("s> {").content, " <tools> {");
    const auto json = make_tool_parser(ToolFamily::none, {weather_tools(), true, 0});
    EXPECT_EQ(json->push("{\"answer\"").content, "{\"answer\"");
}

TEST(ToolCalls, LongArgumentsTakeLinearTime) {
    std::string code;
    for (int i = 0; i < 3000; ++i) code += "if (x) { y[i] = 'a'; } ";
    const std::string text = "<tool_call>{\"name\": \"now\", \"arguments\": {\"code\": \"" + code + "\"}}</tool_call>";
    EXPECT_EQ(Json::parse(parse(ToolFamily::hermes, {text}).calls.at(0).arguments)["code"], code);
}

}  // namespace
}  // namespace forge
