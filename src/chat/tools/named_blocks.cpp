// Calls of which the name stands before the arguments, with marks between.
#include <algorithm>

#include "block_parts.h"

namespace forge::tools {

using State = Block::State;

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

}  // namespace forge::tools
