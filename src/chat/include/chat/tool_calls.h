// What a model says when it calls tools -> calls, as it comes.
//
// Each family of models writes calls in its own way (docs/tool-calls.md). A parser takes the text after
// the reasoning was split off, in pieces, and gives content and calls; the result is the same for
// every way of cutting the text, and nothing is ever taken back.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace forge {

enum class ToolFamily {
    none,         // nothing known: a bare JSON object with a declared tool's name, as the whole answer
    hermes,       // <tool_call>{"name": .., "arguments": ..}</tool_call>
    qwen_xml,     // <tool_call><function=N><parameter=K>..</parameter></function></tool_call>
    glm,          // <tool_call>N<arg_key>K</arg_key><arg_value>V</arg_value></tool_call>
    llama,        // a whole message {"name": .., "parameters": ..}, perhaps after <|python_tag|>
    mistral,      // [TOOL_CALLS][{..}] or [TOOL_CALLS]N[ARGS]{..}
    gemma4,       // <|tool_call>call:N{k:v}<tool_call|>
    gpt_oss,      // channels and recipients
    deepseek,     // <｜tool▁call▁begin｜>N<｜tool▁sep｜>{..}<｜tool▁call▁end｜>
    kimi,         // <|tool_call_begin|>functions.N:i<|tool_call_argument_begin|>{..}<|tool_call_end|>
    lfm2,         // <|tool_call_start|>[N(k=v)]<|tool_call_end|>
    granite3,     // <|tool_call|>[{..}]
    command_r,    // <|START_ACTION|>[{..}]<|END_ACTION|>
    functionary,  // <function=N>{..}</function>
};

// By what the template mentions, never by the model's name.
ToolFamily tool_family(std::string_view template_source);
std::string_view name_of(ToolFamily family);
// Texts that the parser looks for: tokens with these texts must reach it.
std::vector<std::string> tool_markers(ToolFamily family);

// The first delta of a call has its id and full name; all add to its arguments (the text of a JSON object).
struct ToolCallDelta {
    int index = 0;
    std::string id, name, arguments;
    bool operator==(const ToolCallDelta&) const = default;
};

class ToolCallParser {
  public:
    struct Delta {
        std::string content;
        std::vector<ToolCallDelta> calls;
        bool operator==(const Delta&) const = default;
    };
    struct Options {
        nlohmann::ordered_json tools;  // as in the OpenAI API: names and schemas
        bool parallel = true;          // false: one call at most
        unsigned long long id_seed = 0;
    };

    virtual ~ToolCallParser() = default;
    virtual Delta push(std::string_view text) = 0;
    // cut: the model did not end by itself (a limit of tokens); an open call is left incomplete.
    virtual Delta finish(bool cut) = 0;
    // Calls that are complete; with Options::parallel false the answer can end at one.
    virtual int complete() const = 0;
};

std::unique_ptr<ToolCallParser> make_tool_parser(ToolFamily family, ToolCallParser::Options options);

}  // namespace forge
