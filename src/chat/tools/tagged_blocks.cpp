// Calls in tags: <tool_call>, <function=N>, <arg_key>.
#include <algorithm>

#include "block_parts.h"
#include "typed_value.h"

namespace forge::tools {

using State = Block::State;

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

}  // namespace forge::tools
