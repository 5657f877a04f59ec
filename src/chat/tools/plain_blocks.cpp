// Calls that are JSON or Python, with little or nothing around.
#include <algorithm>

#include "block_parts.h"

namespace forge::tools {

using State = Block::State;

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
