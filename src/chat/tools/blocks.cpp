#include "blocks.h"

#include <algorithm>

#include "typed_value.h"

namespace forge::tools {
namespace {

constexpr std::size_t npos = std::string_view::npos;
using State = Block::State;

Block more() { return {}; }
Block hopeless(std::size_t used) { return {State::hopeless, used, {}}; }

// Neither complete nor about to be: up to the closer it is text.
Block give_up(std::string_view body, bool last, std::string_view closer) {
    const std::size_t at = closer.empty() ? npos : body.find(closer);
    if (at != npos) return hopeless(at + closer.size());
    return last || closer.empty() ? hopeless(body.size()) : more();
}

std::string dumped(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

// The arguments as a text: an object, or the text of one; anything else counts as none.
std::string arguments_of(const Json& value) {
    if (value.is_object()) return dumped(value);
    if (value.is_string()) {
        const std::string& text = value.get_ref<const std::string&>();
        std::size_t used = 0;
        const auto parsed = lenient_value(text, used);
        if (parsed && parsed->is_object() && skip_white(text, used) == text.size()) return dumped(*parsed);
    }
    return "{}";
}

// {"name", "arguments"} under the names that models use for them.
std::optional<ParsedCall> call_of(const Json& json, const Declared& declared) {
    if (!json.is_object()) return std::nullopt;
    if (json.contains("function") && json["function"].is_object()) {
        auto call = call_of(json["function"], declared);
        if (call && call->id.empty() && json.contains("id") && json["id"].is_string()) call->id = json["id"].get<std::string>();
        return call;
    }
    const auto first = [&](std::initializer_list<const char*> names) -> const Json* {
        for (const char* name : names)
            if (const auto it = json.find(name); it != json.end()) return &*it;
        return nullptr;
    };
    const Json* name = first({"name", "tool_name", "function"});
    if (!name || !name->is_string() || trimmed(name->get_ref<const std::string&>()).empty()) return std::nullopt;
    ParsedCall call;
    call.name = declared.name(name->get_ref<const std::string&>());
    const Json* arguments = first({"arguments", "parameters", "args", "input"});
    call.arguments = arguments ? arguments_of(*arguments) : "{}";
    if (const Json* id = first({"id", "tool_call_id"}); id && id->is_string()) call.id = id->get<std::string>();
    return call;
}

std::vector<ParsedCall> calls_of(const Json& json, const Declared& declared) {
    std::vector<ParsedCall> calls;
    if (json.is_array()) {
        for (const Json& element : json)   // a bad one keeps its siblings
            if (auto call = call_of(element, declared)) calls.push_back(std::move(*call));
    } else if (auto call = call_of(json, declared)) {
        calls.push_back(std::move(*call));
    }
    return calls;
}

// The JSON value at body[at]; where it ends. nullopt with end = npos: not yet complete.
std::optional<Json> json_at(std::string_view body, std::size_t at, bool last, std::size_t& end) {
    const std::string_view text = body.substr(at);
    const std::size_t length = balanced_end(text);
    end = npos;
    if (length != npos) {
        Json strict = Json::parse(text.substr(0, length), nullptr, false);
        if (!strict.is_discarded()) {
            end = at + length;
            return strict;
        }
        std::size_t used = 0;
        if (auto value = lenient_value(text, used)) {
            end = at + used;
            return value;
        }
        if (last) end = at + length;
        return std::nullopt;
    }
    if (!last) return std::nullopt;
    std::size_t used = 0;
    if (auto value = lenient_value(text, used)) {   // single quotes may have hidden the end
        end = at + used;
        return value;
    }
    if (const auto whole = closed(trimmed(text))) {
        if (auto value = lenient_value(*whole, used)) {
            end = body.size();
            return value;
        }
    }
    return std::nullopt;
}

// After a call: white space, stray brackets, and the closer if it comes.
Block closed_by(std::string_view body, std::size_t at, bool last, std::string_view closer, std::vector<ParsedCall> calls) {
    if (closer.empty()) return {State::done, at, std::move(calls)};
    std::size_t p = skip_white(body, at);
    while (p < body.size() && (body[p] == '}' || body[p] == ']')) p = skip_white(body, p + 1);
    const std::string_view rest = body.substr(p);
    if (rest.starts_with(closer)) return {State::done, p + closer.size(), std::move(calls)};
    if (!last && closer.starts_with(rest)) return {State::tail, 0, {}};
    return {State::done, at, std::move(calls)};   // no closer: what follows is text, or the next opener
}

// A call whose name is known, or empty for none that is declared: JSON from body[from] on, then the closer.
Block with_arguments(ParsedCall call, std::string_view body, std::size_t from, bool last, std::string_view closer) {
    const std::size_t at = skip_white(body, from);
    if (at == body.size()) return last ? hopeless(at) : more();
    if (call.name.empty() || body[at] != '{') return give_up(body, last, closer);
    std::size_t end = 0;
    const auto value = json_at(body, at, last, end);
    if (!value) return last ? hopeless(body.size()) : more();
    call.arguments = arguments_of(*value);
    return closed_by(body, end, last, closer, {std::move(call)});
}

// Where a value ends: at a closer that something fitting follows. npos: not known yet.
std::size_t value_end(std::string_view body, std::size_t from, std::string_view closer, std::initializer_list<std::string_view> followers, bool last) {
    for (std::size_t at = body.find(closer, from); at != npos; at = body.find(closer, at + 1)) {
        const std::string_view rest = body.substr(skip_white(body, at + closer.size()));
        if (rest.empty() && last) return at;
        for (const std::string_view f : followers)
            if (rest.starts_with(f)) return at;
    }
    return npos;
}

}  // namespace

Declared::Declared(const Json& list) {
    if (!list.is_array()) return;
    for (const Json& tool : list) {
        const Json& function = tool.is_object() && tool.contains("function") ? tool["function"] : tool;
        if (function.is_object() && function.contains("name") && function["name"].is_string())
            tools.emplace_back(function["name"].get<std::string>(), function.contains("parameters") ? function["parameters"] : Json());
    }
}

bool Declared::has(std::string_view name) const {
    return std::any_of(tools.begin(), tools.end(), [&](const auto& t) { return t.first == name; });
}

const Json& Declared::parameters(std::string_view name) const {
    static const Json none;
    for (const auto& [known, schema] : tools)
        if (known == name) return schema;
    return none;
}

std::string Declared::name(std::string_view written) const {
    written = trimmed(written);
    if (!has(written)) {
        for (const char separator : {'.', ':'}) {
            const std::size_t at = written.rfind(separator);
            if (at != npos && has(written.substr(at + 1))) return std::string(written.substr(at + 1));
        }
        if (const std::size_t marker = written.find('<'); marker != npos && has(trimmed(written.substr(0, marker)))) return std::string(trimmed(written.substr(0, marker)));
    }
    return std::string(written);
}

Block read_json(std::string_view body, bool last, const Declared& declared, std::string_view closer) {
    const std::size_t at = skip_white(body, 0);
    if (at == body.size()) return last ? hopeless(at) : more();
    if (body[at] != '{' && body[at] != '[') return give_up(body, last, closer);
    std::size_t end = 0;
    const auto value = json_at(body, at, last, end);
    if (!value) {
        if (!closer.empty() && body.find(closer, at) != npos && balanced_end(body.substr(at)) != npos) return give_up(body, last, closer);
        return last ? hopeless(body.size()) : more();
    }
    auto calls = calls_of(*value, declared);
    if (calls.empty()) return give_up(body, last, closer);
    return closed_by(body, end, last, closer, std::move(calls));
}

Block read_functions(std::string_view body, bool last, const Declared& declared, bool json_arguments) {
    constexpr std::string_view open = "<function=", close = "</function>", parameter = "<parameter=", end_parameter = "</parameter>", outer = "</tool_call>";
    Block block;
    std::size_t at = skip_white(body, 0);
    for (;;) {
        const std::size_t name_end = body.find('>', at + open.size());
        if (name_end == npos) break;
        ParsedCall call;
        call.name = declared.name(body.substr(at + open.size(), name_end - at - open.size()));
        if (call.name.empty()) return give_up(body, last, close);
        Json arguments = Json::object();
        std::size_t p = skip_white(body, name_end + 1);
        if (json_arguments) {
            std::size_t end = 0;
            const auto value = p < body.size() && body[p] == '{' ? json_at(body, p, last, end) : std::nullopt;
            if (!value) {
                if (p < body.size() && body[p] != '{' && !close.starts_with(body.substr(p)) && !body.substr(p).starts_with(close)) return give_up(body, last, close);
                if (!body.substr(p).starts_with(close)) break;
                end = p;
            }
            call.arguments = value ? arguments_of(*value) : "{}";
            p = skip_white(body, end);
        } else {
            while (body.substr(p).starts_with(parameter)) {
                const std::size_t key_end = body.find('>', p);
                if (key_end == npos) return last ? (block.calls.empty() ? hopeless(body.size()) : Block{State::done, body.size(), block.calls}) : more();
                const std::string key(trimmed(body.substr(p + parameter.size(), key_end - p - parameter.size())));
                std::size_t end = value_end(body, key_end + 1, end_parameter, {parameter, close, outer}, last), next = end + end_parameter.size();
                if (const std::size_t function_end = body.find(close, key_end + 1); end == npos && last && function_end != npos) end = next = function_end;   // its closer is missing
                if (end == npos) return last ? (block.calls.empty() ? hopeless(body.size()) : Block{State::done, body.size(), block.calls}) : more();
                if (!arguments.contains(key)) arguments[key] = typed_value(body.substr(key_end + 1, end - key_end - 1), declared.parameters(call.name), key);
                p = skip_white(body, next);
            }
            call.arguments = dumped(arguments);
        }
        const std::string_view rest = body.substr(p);
        if (rest.starts_with(close)) {
            p += close.size();
        } else if (rest.starts_with(outer)) {
            // the function's own closer is missing
        } else if (!last && (close.starts_with(rest) || outer.starts_with(rest) || parameter.starts_with(rest))) {
            break;
        } else if (!(last && rest.empty())) {
            return block.calls.empty() ? give_up(body, last, json_arguments ? close : outer) : Block{State::done, at, block.calls};
        }
        block.calls.push_back(std::move(call));
        const std::size_t after = p;
        p = skip_white(body, p);
        const std::string_view next = body.substr(p);
        if (next.starts_with(open)) {
            at = p;
            continue;
        }
        if (!json_arguments && next.starts_with(outer)) return {State::done, p + outer.size(), std::move(block.calls)};
        if (!last && (open.starts_with(next) || (!json_arguments && outer.starts_with(next)))) return {State::tail, 0, {}};
        return {State::done, after, std::move(block.calls)};
    }
    if (!last) return more();
    return block.calls.empty() ? hopeless(body.size()) : Block{State::done, body.size(), std::move(block.calls)};
}

namespace {

// N <arg_key>K</arg_key> <arg_value>V</arg_value> ... </tool_call>
Block read_glm(std::string_view body, bool last, const Declared& declared) {
    constexpr std::string_view key_open = "<arg_key>", key_close = "</arg_key>", value_open = "<arg_value>", value_close = "</arg_value>", closer = "</tool_call>";
    std::size_t p = std::min(body.find(key_open), body.find(closer));
    if (p == npos) return last && declared.has(trimmed(body)) ? Block{State::done, body.size(), {{std::string(trimmed(body)), "", "{}"}}} : last ? hopeless(body.size()) : more();
    ParsedCall call;
    call.name = declared.name(body.substr(0, p));
    if (call.name.empty() || call.name.find('\n') != npos || call.name.find(' ') != npos) return give_up(body, last, closer);
    Json arguments = Json::object();
    for (;;) {
        p = skip_white(body, p);
        const std::string_view rest = body.substr(p);
        if (rest.starts_with(closer) || (last && rest.empty())) break;
        if (!rest.starts_with(key_open)) {
            if (!last && (key_open.starts_with(rest) || closer.starts_with(rest))) return more();
            return give_up(body, last, closer);
        }
        const std::size_t key_end = body.find(key_close, p);
        if (key_end == npos) return last ? hopeless(body.size()) : more();
        const std::string key(trimmed(body.substr(p + key_open.size(), key_end - p - key_open.size())));
        const std::size_t value = skip_white(body, key_end + key_close.size());
        if (!body.substr(value).starts_with(value_open)) {
            if (!last && value_open.starts_with(body.substr(value))) return more();
            return give_up(body, last, closer);
        }
        const std::size_t end = value_end(body, value + value_open.size(), value_close, {key_open, closer}, last);
        if (end == npos) return last ? hopeless(body.size()) : more();
        if (!arguments.contains(key)) arguments[key] = typed_value(body.substr(value + value_open.size(), end - value - value_open.size()), declared.parameters(call.name), key);
        p = end + value_close.size();
    }
    call.arguments = dumped(arguments);
    return {State::done, std::min(body.size(), p + closer.size()), {std::move(call)}};
}

}  // namespace

Block read_tagged(std::string_view body, bool last, const Declared& declared, bool glm) {
    constexpr std::string_view closer = "</tool_call>", function = "<function=";
    const std::string_view rest = body.substr(skip_white(body, 0));
    if (rest.empty()) return last ? hopeless(body.size()) : more();
    if (rest[0] == '{' || rest[0] == '[') return read_json(body, last, declared, closer);
    if (rest.starts_with(function)) return read_functions(body, last, declared, false);
    if (!last && function.starts_with(rest)) return more();
    if (glm) return read_glm(body, last, declared);
    return give_up(body, last, closer);
}

Block read_mistral(std::string_view body, bool last, const Declared& declared) {
    constexpr std::string_view arguments = "[ARGS]", id = "[CALL_ID]";
    const std::size_t at = skip_white(body, 0);
    if (at == body.size()) return last ? hopeless(at) : more();
    if (body[at] == '[' && !arguments.starts_with(body.substr(at, arguments.size())) && !id.starts_with(body.substr(at, id.size()))) return read_json(body, last, declared, "");
    const std::size_t brace = body.find('{', at);
    if (brace == npos) {
        if (body.size() - at > 200 || body.find('\n', at) != npos) return hopeless(body.size());
        return last ? hopeless(body.size()) : more();
    }
    std::string_view head = body.substr(at, brace - at);
    ParsedCall call;
    if (head.empty()) return read_json(body, last, declared, "");
    if (const std::size_t mark = head.find(arguments); mark != npos) head = head.substr(0, mark);
    if (const std::size_t mark = head.find(id); mark != npos) {
        call.id = std::string(trimmed(head.substr(mark + id.size())));
        head = head.substr(0, mark);
    }
    call.name = declared.name(head);
    if (call.name.empty() || call.name.size() > 200) return hopeless(body.size());
    std::size_t end = 0;
    const auto value = json_at(body, brace, last, end);
    if (!value) return last ? hopeless(body.size()) : more();
    call.arguments = arguments_of(*value);
    return {State::done, end, {std::move(call)}};
}

Block read_gemma4(std::string_view body, bool last, const Declared& declared) {
    constexpr std::string_view closer = "<tool_call|>", prefix = "call:";
    std::size_t at = skip_white(body, 0);
    if (!last && prefix.starts_with(body.substr(at, prefix.size())) && body.size() - at < prefix.size()) return more();
    if (body.substr(at).starts_with(prefix)) at += prefix.size();
    const std::size_t brace = body.find('{', at);
    if (brace == npos) return give_up(body, last, closer);
    ParsedCall call;
    call.name = declared.name(body.substr(at, brace - at));
    if (call.name.empty() || call.name.size() > 200 || call.name.find('\n') != npos) return give_up(body, last, closer);
    for (const std::string_view quote : {std::string_view("<|\"|>"), std::string_view("<escape>")}) {
        std::size_t used = 0;
        const auto value = lenient_value(body.substr(brace), used, {quote});
        if (!value || !value->is_object()) continue;
        call.arguments = dumped(*value);
        return closed_by(body, brace + used, last, closer, {std::move(call)});
    }
    // A closer that stands in no string: it cannot become a call any more.
    if (const std::size_t end = body.find(closer, brace); end != npos) {
        std::size_t quotes = 0;
        for (std::size_t q = body.find("<|\"|>", brace); q < end; q = body.find("<|\"|>", q + 1)) ++quotes;
        if (quotes % 2 == 0) return hopeless(end + closer.size());
    }
    return last ? hopeless(body.size()) : more();
}

Block read_deepseek(std::string_view body, bool last, const Declared& declared) {
    constexpr std::string_view closer = "<｜tool▁call▁end｜>", separator = "<｜tool▁sep｜>";
    const std::size_t mark = body.find(separator);
    if (mark == npos) return give_up(body, last, closer);
    const std::string_view head = trimmed(body.substr(0, mark));
    std::size_t at = skip_white(body, mark + separator.size());
    ParsedCall call;
    if (at == body.size()) return last ? hopeless(at) : more();
    if (body[at] == '{') {
        call.name = declared.name(head);   // N, separator, JSON
    } else {
        const std::size_t line = body.find('\n', at), brace = body.find('{', at);   // a type word, separator, N, JSON in a fence
        if (brace == npos) return give_up(body, last, closer);
        call.name = declared.name(body.substr(at, std::min(line, brace) - at));
        at = brace;
    }
    if (call.name.empty()) return give_up(body, last, closer);
    std::size_t end = 0;
    const auto value = json_at(body, at, last, end);
    if (!value) return last || (end == npos && balanced_end(body.substr(at)) != npos && body.find(closer, at) != npos) ? give_up(body, last, closer) : more();
    call.arguments = arguments_of(*value);
    end = skip_white(body, end);
    const std::string_view fence = "```";
    if (body.substr(end).starts_with(fence)) end += fence.size();
    else if (!last && end < body.size() && fence.starts_with(body.substr(end))) return {State::tail, 0, {}};
    return closed_by(body, end, last, closer, {std::move(call)});
}

Block read_channel(std::string_view body, bool last, const Declared& declared) {
    constexpr std::string_view closer = "<|call|>", message = "<|message|>", to = "to=";
    constexpr std::size_t longest_header = 300;
    const std::size_t mark = body.find(message), recipient = body.substr(0, mark).find(to);
    if (mark == npos) return last || body.size() > longest_header ? hopeless(body.size()) : more();
    if (recipient == npos) return hopeless(mark + message.size());
    std::string_view name = body.substr(recipient + to.size(), mark - recipient - to.size());
    name = name.substr(0, name.find_first_of(" \t\r\n<"));
    if (name.starts_with("functions.")) name.remove_prefix(10);
    ParsedCall call;
    call.name = declared.name(name);
    return with_arguments(std::move(call), body, mark + message.size(), last, closer);
}

Block read_kimi(std::string_view body, bool last, const Declared& declared) {
    constexpr std::string_view closer = "<|tool_call_end|>", separator = "<|tool_call_argument_begin|>";
    const std::size_t mark = body.find(separator);
    if (mark == npos) return give_up(body, last, closer);
    ParsedCall call;
    call.id = std::string(trimmed(body.substr(0, mark)));
    std::string_view name = call.id;
    name = name.substr(0, name.rfind(':'));
    if (name.starts_with("functions.")) name.remove_prefix(10);
    call.name = declared.name(name);
    return with_arguments(std::move(call), body, mark + separator.size(), last, closer);
}

namespace {

// [N(k=v), M()] at body[at]; end = npos when it is not complete.
std::vector<ParsedCall> python_list(std::string_view body, std::size_t at, const Declared& declared, bool only_declared, std::size_t& end) {
    end = npos;
    std::vector<ParsedCall> calls;
    std::size_t p = at + 1;
    for (;;) {
        std::size_t used = 0;
        const auto call = python_call(body.substr(p), used);
        if (!call || (only_declared && !declared.has(declared.name(call->name)))) return {};
        calls.push_back({declared.name(call->name), "", dumped(call->arguments)});
        p = skip_white(body, p + used);
        if (p < body.size() && body[p] == ',') { ++p; continue; }
        if (p >= body.size() || body[p] != ']') return {};
        end = p + 1;
        return calls;
    }
}

}  // namespace

Block read_lfm2(std::string_view body, bool last, const Declared& declared) {
    constexpr std::string_view closer = "<|tool_call_end|>";
    const std::size_t at = skip_white(body, 0);
    if (at == body.size()) return last ? hopeless(at) : more();
    if (body[at] == '[') {
        std::size_t end = 0;
        auto calls = python_list(body, at, declared, false, end);
        if (!calls.empty()) return closed_by(body, end, last, closer, std::move(calls));
    } else {
        std::size_t used = 0;   // without the brackets
        if (const auto call = python_call(body, used)) return closed_by(body, used, last, closer, {{declared.name(call->name), "", dumped(call->arguments)}});
    }
    if (body[at] == '[' || body[at] == '{') return read_json(body, last, declared, closer);
    return give_up(body, last, closer);
}

Block read_python_tag(std::string_view body, bool last, const Declared& declared) {
    const std::size_t at = skip_white(body, 0);
    if (at == body.size()) return last ? hopeless(at) : more();
    if (body[at] == '{' || body[at] == '[') return read_json(body, last, declared, "");
    std::size_t used = 0;
    if (auto call = python_call(body, used)) {
        std::string name = call->name;   // N.call(k="v")
        if (name.ends_with(".call")) name.resize(name.size() - 5);
        return {State::done, used, {{declared.name(name), "", dumped(call->arguments)}}};
    }
    return last ? hopeless(body.size()) : more();
}

Block read_bare(std::string_view body, bool last, const Declared& declared) {
    std::size_t at = skip_white(body, 0);
    if (at == body.size()) return last ? hopeless(at) : more();
    std::string_view rest = body.substr(at);
    bool fenced = false;
    if (rest[0] == '`') {
        for (const std::string_view fence : {std::string_view("```json\n"), std::string_view("```\n")}) {
            if (rest.starts_with(fence)) {
                fenced = true;
                at = skip_white(body, at + fence.size());
            } else if (!last && fence.starts_with(rest)) {
                return more();
            }
        }
        if (!fenced) return hopeless(body.size());
        rest = body.substr(at);
        if (rest.empty()) return last ? hopeless(body.size()) : more();
    }
    if (rest[0] == '[' && !fenced) {
        std::size_t end = 0;
        if (auto calls = python_list(body, at, declared, true, end); !calls.empty()) return {State::done, end, std::move(calls)};
        // A list of calls begins with a declared name, or with an object.
        const std::size_t p = skip_white(body, at + 1), paren = body.find('(', p);
        if (p < body.size() && body[p] != '{') {
            const std::string_view name = body.substr(p, paren == npos ? npos : paren - p);
            const bool possible = std::any_of(declared.tools.begin(), declared.tools.end(), [&](const auto& t) { return paren == npos ? t.first.starts_with(name) : t.first == trimmed(name); });
            if (!possible || last) return hopeless(body.size());
            return more();
        }
        if (p == body.size()) return last ? hopeless(body.size()) : more();
    } else if (rest[0] != '{') {
        return hopeless(body.size());
    }
    // Decides as soon as the first member shows that it is something else.
    const std::size_t open = body.find('{', at), quote = open == npos ? npos : skip_white(body, open + 1);
    if (quote != npos && quote < body.size()) {
        if (body[quote] != '"') return hopeless(body.size());
        const std::size_t end = body.find('"', quote + 1);
        const std::string_view key = body.substr(quote + 1, end == npos ? npos : end - quote - 1);
        bool possible = false;
        for (const std::string_view known : {"name", "function", "tool_name", "type", "id", "arguments", "parameters"}) possible |= end == npos ? known.starts_with(key) : known == key;
        if (!possible) return hopeless(body.size());
        if (key == "name" && end != npos) {
            const std::size_t colon = skip_white(body, end + 1), value = colon < body.size() && body[colon] == ':' ? skip_white(body, colon + 1) : npos;
            if (value != npos && value < body.size()) {
                const std::size_t value_close = body[value] == '"' ? body.find('"', value + 1) : value;
                if (value_close == value) return hopeless(body.size());
                if (value_close != npos && !declared.has(declared.name(body.substr(value + 1, value_close - value - 1)))) return hopeless(body.size());
            }
        }
    }
    std::size_t end = 0;
    const auto value = json_at(body, at, last, end);
    if (!value) return last || end != npos ? hopeless(body.size()) : more();
    auto calls = calls_of(*value, declared);
    if (calls.empty() || !std::all_of(calls.begin(), calls.end(), [&](const ParsedCall& c) { return declared.has(c.name); })) return hopeless(body.size());
    if (fenced) return closed_by(body, end, last, "```", std::move(calls));
    return {State::done, end, std::move(calls)};
}

}  // namespace forge::tools
