#include "channels.h"

#include <algorithm>
#include <utility>

#include "chat/stop_strings.h"

namespace forge {
namespace {

constexpr std::string_view white = " \t\r\n", channel = "<|channel|>", message = "<|message|>", start = "<|start|>", call = "<|call|>", to = "to=";
constexpr std::string_view ends[] = {"<|end|>", call, "<|return|>"};
constexpr std::size_t longest_header = 300;

// The word that follows `mark`, if that is there.
std::string_view word_after(std::string_view text, std::string_view mark) {
    const std::size_t at = text.find(mark);
    if (at == std::string_view::npos) return {};
    text.remove_prefix(at + mark.size());
    return text.substr(0, text.find_first_of(" \t\r\n<"));
}

}  // namespace

void ChannelReader::push(std::string_view text, ReasoningSplitter::Delta& out) {
    pending_ += text;
    while (step(out, false)) {
    }
}

void ChannelReader::finish(ReasoningSplitter::Delta& out) {
    while (step(out, true)) {
    }
}

// True when there may be more to do.
bool ChannelReader::step(ReasoningSplitter::Delta& out, bool last) {
    switch (state_) {
        case State::between:
            if (!begin_message(last)) return false;
            if (state_ == State::body) begin_body(Kind::content, out);
            return true;
        case State::header: return read_header(out, last);
        case State::body: return read_body(out, last);
    }
    return false;
}

// A message with a header, or text without one, which is content.
bool ChannelReader::begin_message(bool last) {
    pending_.erase(0, std::min(pending_.find_first_not_of(white), pending_.size()));
    if (pending_.empty()) return false;
    for (const std::string_view end : ends)   // of a message that ended
        if (pending_.starts_with(end)) return pending_.erase(0, end.size()), true;
    for (const std::string_view mark : {start, channel, message, to})
        if (pending_.starts_with(mark)) return state_ = State::header, true;
    const auto begins = [&](std::string_view mark) { return mark.starts_with(pending_); };
    if (!last && (begins(start) || begins(channel) || begins(message) || begins(to) || std::any_of(std::begin(ends), std::end(ends), begins))) return false;
    state_ = State::body;
    return true;
}

bool ChannelReader::read_header(ReasoningSplitter::Delta& out, bool last) {
    const std::size_t at = pending_.find(message);
    if (at > longest_header && (at != std::string::npos || pending_.size() > longest_header + message.size())) {
        begin_body(Kind::content, out);   // that is no header: nothing is lost
        if (pending_.starts_with(start) || pending_.starts_with(channel)) {
            const std::size_t mark = pending_.find('>') + 1;
            out.content.append(pending_, 0, mark);
            pending_.erase(0, mark);
        }
        return true;
    }
    if (at == std::string::npos) {
        if (last) pending_.clear();
        return false;
    }
    const std::string header = pending_.substr(0, at);
    pending_.erase(0, at + message.size());
    const std::string_view recipient = word_after(header, to);
    if (!recipient.empty() && recipient != "assistant" && recipient != "user" && recipient != "all") {
        begin_body(Kind::call, out);
        out.content += std::string(channel) + "commentary to=" + std::string(recipient) + " " + std::string(message);
    } else {
        begin_body(word_after(header, channel) == "analysis" ? Kind::reasoning : Kind::content, out);
    }
    return true;
}

void ChannelReader::begin_body(Kind kind, ReasoningSplitter::Delta& out) {
    state_ = State::body;
    kind_ = kind;
    if (kind == Kind::reasoning && std::exchange(reasoned_, true)) out.reasoning += "\n\n";
    if (kind == Kind::content && std::exchange(said_, true)) out.content += "\n\n";
}

bool ChannelReader::read_body(ReasoningSplitter::Delta& out, bool last) {
    std::size_t end = std::string::npos, held = 0;
    for (const std::string_view mark : {ends[0], ends[1], ends[2], start, channel}) {
        end = std::min(end, pending_.find(mark));
        if (!last) held = std::max(held, partial_suffix(pending_, mark));
    }
    const bool over = end != std::string::npos;
    const std::size_t ready = over ? end : pending_.size() - held;
    (kind_ == Kind::reasoning ? out.reasoning : out.content).append(pending_, 0, ready);
    pending_.erase(0, ready);
    if (!over) return false;
    if (kind_ == Kind::call) out.content += call;
    state_ = State::between;
    return true;
}

}  // namespace forge
