#include "block_parts.h"

namespace forge::tools {

using State = Block::State;

Block give_up(std::string_view body, bool last, std::string_view closer) {
    const std::size_t at = closer.empty() ? npos : body.find(closer);
    if (at != npos) return hopeless(at + closer.size());
    return last || closer.empty() ? hopeless(body.size()) : more();
}

std::string dumped(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

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

namespace {

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

}  // namespace

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

Block closed_by(std::string_view body, std::size_t at, bool last, std::string_view closer, std::vector<ParsedCall> calls) {
    if (closer.empty()) return {State::done, at, std::move(calls)};
    std::size_t p = skip_white(body, at);
    while (p < body.size() && (body[p] == '}' || body[p] == ']')) p = skip_white(body, p + 1);
    const std::string_view rest = body.substr(p);
    if (rest.starts_with(closer)) return {State::done, p + closer.size(), std::move(calls)};
    if (!last && closer.starts_with(rest)) return {State::tail, 0, {}};
    return {State::done, at, std::move(calls)};   // no closer: what follows is text, or the next opener
}

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

std::size_t value_end(std::string_view body, std::size_t from, std::string_view closer, std::initializer_list<std::string_view> followers, bool last) {
    for (std::size_t at = body.find(closer, from); at != npos; at = body.find(closer, at + 1)) {
        const std::string_view rest = body.substr(skip_white(body, at + closer.size()));
        if (rest.empty() && last) return at;
        for (const std::string_view f : followers)
            if (rest.starts_with(f)) return at;
    }
    return npos;
}

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

}  // namespace forge::tools
