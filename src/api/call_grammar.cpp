#include "api/call_grammar.h"

#include <algorithm>
#include <cctype>

#include "base/error.h"
#include "grammar/compile.h"

namespace forge {
namespace {

using Json = nlohmann::ordered_json;

struct Tool {
    std::string name;
    Json schema;
    bool strict = false;
};

// Whether arguments of the schema can be written; an Error says why not.
void check_writable(const Json& schema, const Notation& notation) { compile_forms({{{}, {}, {}, {{{"", &schema, notation}}}, false}}); }

// The parameters as an object's schema; a schema that cannot be compiled becomes "any object" unless it is strict.
Tool tool_of(const Json& declared, const Notation& notation) {
    const Json& function = declared.contains("function") ? declared["function"] : declared;
    Tool tool{function.value("name", ""), {{"type", "object"}, {"additionalProperties", true}}, function.value("strict", Json(false)) == true};
    if (!function.contains("parameters") || !function["parameters"].is_object()) return tool;
    Json schema = function["parameters"];
    // Arguments are an object whatever else the schema says, or forgets to say.
    if (!schema.contains("type")) schema["type"] = "object";
    try {
        check_writable(schema, notation);
        tool.schema = std::move(schema);
    } catch (const Error& e) {
        if (tool.strict) fail(ErrorKind::unsupported, "the parameters of {}, which is strict: {}", tool.name.substr(0, 80), e.what());
    }
    return tool;
}

// How a family writes a call: the texts around the name and the arguments.
struct Words {
    std::string before, between, after;                  // around all calls
    std::string open, middle, close;                     // around name and arguments
    bool quoted = false;                                 // the name is a JSON string
    bool numbered = false;                               // a number stands between name and arguments (Kimi)
    bool several = true;
    std::vector<Trigger> triggers;                       // what begins a call, or the list of calls
    bool list = false;                                   // the trigger begins the list
    Notation notation = {};                              // of the arguments
};

Words words_of(ToolFamily family, std::string_view source, bool in_json = false) {
    const auto has = [&](std::string_view text) { return source.find(text) != std::string_view::npos; };
    switch (family) {
        case ToolFamily::hermes:
        case ToolFamily::qwen_xml:   // its parser reads this form too, and arguments are exactly typed in it
        case ToolFamily::glm:
            return {"", "\n", "", "<tool_call>\n{\"name\": \"", "\", \"arguments\": ", "}\n</tool_call>", true, false, true, {{"<tool_call>"}}, false};
        case ToolFamily::llama:
            return {"", "", "", "{\"name\": \"", "\", \"parameters\": ", "}", true, false, false, {{"{\"name\":", true}}, false};
        case ToolFamily::mistral:
            if (has("[ARGS]")) return {"", "", "", "[TOOL_CALLS]", "[ARGS]", "", false, false, true, {{"[TOOL_CALLS]"}}, false};
            return {"[TOOL_CALLS][", ", ", "]", "{\"name\": \"", "\", \"arguments\": ", "}", true, false, true, {{"[TOOL_CALLS]"}}, true};
        case ToolFamily::gemma4:
            if (has("<start_function_call>"))
                return {"", "", "", "<start_function_call>call:", "", "<end_function_call>", false, false, true, {{"<start_function_call>"}}, false, {Notation::Kind::bare, "<escape>"}};
            return {"", "", "", "<|tool_call>call:", "", "<tool_call|>", false, false, true, {{"<|tool_call>"}}, false, {Notation::Kind::bare, "<|\"|>"}};
        case ToolFamily::deepseek:
            if (has("```json"))
                return {"<｜tool▁calls▁begin｜>", "\n", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>function<｜tool▁sep｜>", "\n```json\n", "\n```<｜tool▁call▁end｜>", false, false, true, {{"<｜tool▁call▁begin｜>"}}, false};
            return {"<｜tool▁calls▁begin｜>", "", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>", false, false, true, {{"<｜tool▁call▁begin｜>"}}, false};
        case ToolFamily::kimi:
            return {"<|tool_calls_section_begin|>", "", "<|tool_calls_section_end|>", "<|tool_call_begin|>functions.", "<|tool_call_argument_begin|>", "<|tool_call_end|>", false, true, true, {{"<|tool_call_begin|>"}}, false};
        case ToolFamily::lfm2:   // a Python list, or JSON for what that cannot say
            if (in_json) return {"<|tool_call_start|>[", ", ", "]<|tool_call_end|>", "{\"name\": \"", "\", \"arguments\": ", "}", true, false, true, {{"<|tool_call_start|>"}}, true};
            return {"<|tool_call_start|>[", ", ", "]<|tool_call_end|>", "", "", "", false, false, true, {{"<|tool_call_start|>"}}, true, {Notation::Kind::call, ""}};
        case ToolFamily::gpt_oss:
            return {"", "<|start|>assistant", "", "<|channel|>commentary to=functions.", " <|constrain|>json<|message|>", "<|call|>", false, false, true, {{"<|channel|>commentary to=functions."}}, false};
        case ToolFamily::granite3: {
            const std::string marker = has("<|tool_call|>") ? "<|tool_call|>" : "<tool_call>";
            return {marker + "[", ", ", "]", "{\"name\": \"", "\", \"arguments\": ", "}", true, false, true, {{marker}}, true};
        }
        case ToolFamily::command_r:
            return {"<|START_ACTION|>[", ", ", "]<|END_ACTION|>", "{\"tool_call_id\": \"0\", \"tool_name\": \"", "\", \"parameters\": ", "}", true, false, true, {{"<|START_ACTION|>"}}, true};
        case ToolFamily::functionary:
            return {"", "", "", "<function=", ">", "</function>", false, false, true, {{"<function="}}, false};
        default:
            return {"", "", "", "{\"name\": \"", "\", \"arguments\": ", "}", true, false, false, {{"{\"name\":", true}}, false};
    }
}

// Marks the texts that are special tokens of this vocabulary, which can only come as those.
std::string with_specials(std::string text, ToolFamily family, const Vocabulary& vocabulary) {
    for (const std::string& marker : tool_markers(family)) {
        if (!vocabulary.special(marker)) continue;
        const std::string token = Grammar::special_begin + marker + Grammar::special_end;
        for (std::size_t at = text.find(marker); at != std::string::npos; at = text.find(marker, at + token.size())) {
            if (at > 0 && text[at - 1] == Grammar::special_begin) {
                at += marker.size() - token.size() + 1;   // it is part of a longer one that was marked
                continue;
            }
            text.replace(at, marker.size(), token);
        }
    }
    return text;
}

std::vector<Tool> tools_of(const CallRules& rules, const Notation& notation) {
    std::vector<Tool> tools;
    for (const Json& declared : rules.tools) {
        const Json& function = declared.contains("function") ? declared["function"] : declared;
        if (rules.only.empty() || function.value("name", "") == rules.only) tools.push_back(tool_of(declared, notation));
    }
    if (tools.empty()) fail("there is no tool to call");
    return tools;
}

// A family's words and the tools that are written in them.
struct Calls { Words words; std::vector<Tool> tools; };

bool is_python_name(const std::string& name) {
    return !name.empty() && std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '.'; });
}

Calls calls_of(const CallRules& rules, const Vocabulary& vocabulary) {
    const auto made = [&](bool in_json) {
        Calls calls{words_of(rules.family, rules.template_source, in_json), {}};
        calls.words.notation.quote = with_specials(calls.words.notation.quote, rules.family, vocabulary);
        calls.tools = tools_of(rules, calls.words.notation);
        return calls;
    };
    if (rules.family != ToolFamily::lfm2) return made(false);
    // Python names its arguments with less than JSON: all calls of an answer are in one form.
    const Calls json = made(true);
    const bool named = std::all_of(json.tools.begin(), json.tools.end(), [](const Tool& tool) {
        if (!is_python_name(tool.name)) return false;
        try {
            check_writable(tool.schema, {Notation::Kind::call, ""});
            return true;
        } catch (const Error&) {
            return false;
        }
    });
    return named ? made(false) : json;
}

Form form_of(const CallRules& rules, const Calls& calls, bool whole, const Vocabulary& vocabulary) {
    static const Json index = {{"type", "integer"}, {"minimum", 0}, {"maximum", 999}};
    const Words& words = calls.words;
    const auto text = [&](const std::string& t) { return with_specials(t, rules.family, vocabulary); };
    Form form;
    if (whole) form.before = text(words.before), form.between = text(words.between), form.after = text(words.after);
    form.several = whole && words.several && rules.parallel;
    for (const Tool& tool : calls.tools) {
        std::string name = tool.name;
        if (words.quoted) {
            name = Json(name).dump(-1, ' ', false, Json::error_handler_t::replace);
            name = name.substr(1, name.size() - 2);
        }
        std::vector<FormPiece> pieces;
        if (words.numbered) {
            pieces.push_back({text(words.open) + name + ":", &index});
            pieces.push_back({text(words.middle), &tool.schema});
        } else {
            pieces.push_back({text(words.open) + name + text(words.middle), &tool.schema, words.notation});
        }
        pieces.push_back({text(words.close), nullptr});
        form.alternatives.push_back(std::move(pieces));
    }
    return form;
}

}  // namespace

ConstraintMaker require_calls(const CallRules& rules, std::shared_ptr<const Vocabulary> vocabulary, const Json* otherwise) {
    const Calls calls = calls_of(rules, *vocabulary);
    std::vector<Form> forms{form_of(rules, calls, true, *vocabulary)};
    if (otherwise) forms.push_back({{}, {}, {}, {{{"", otherwise}}}, false});
    const auto grammar = std::make_shared<Grammar>(compile_forms(forms));
    return [grammar, vocabulary = std::move(vocabulary)] { return hold_to(grammar, vocabulary); };
}

ConstraintMaker check_calls(const CallRules& rules, std::shared_ptr<const Vocabulary> vocabulary) {
    const auto strict = [](const Json& t) { return (t.contains("function") ? t["function"] : t).value("strict", Json(false)) == true; };
    if (std::none_of(rules.tools.begin(), rules.tools.end(), strict)) return {};
    const Calls calls = calls_of(rules, *vocabulary);
    const auto grammar = std::make_shared<Grammar>(compile_forms({form_of(rules, calls, calls.words.list, *vocabulary)}));
    return [grammar, triggers = calls.words.triggers, vocabulary = std::move(vocabulary)] { return hold_after(triggers, grammar, vocabulary); };
}

}  // namespace forge
