#include "chat/reasoning.h"

#include <algorithm>
#include <utility>

#include "channels.h"
#include "chat/stop_strings.h"

namespace forge {
namespace {

constexpr std::string_view white = " \t\r\n";

// Text that may still become `marker`: a proper prefix of it.
bool could_become(std::string_view text, std::string_view marker) {
    return text.size() < marker.size() && marker.starts_with(text);
}

}  // namespace

std::optional<ReasoningMarkers> reasoning_markers(std::string_view source) {
    const auto has = [&](std::string_view text) { return source.find(text) != std::string_view::npos; };
    if (has("<|channel|>")) return ReasoningMarkers{"<|channel|>analysis<|message|>", "<|end|>", true, {}, true};
    if (has("<|channel>") && has("<channel|>"))
        return ReasoningMarkers{"<|channel>thought\n", "<channel|>", true, "thought\n", false};
    if (has("[THINK]")) return ReasoningMarkers{"[THINK]", "[/THINK]", true, {}, false};
    if (has("<think>") || has("</think>")) return ReasoningMarkers{"<think>", "</think>", false, {}, false};
    return std::nullopt;
}

bool ends_in_reasoning(std::string_view prompt, const ReasoningMarkers& markers) {
    const auto trimmed = [](std::string_view text) {
        const std::size_t last = text.find_last_not_of(white);
        return text.substr(0, last == std::string_view::npos ? 0 : last + 1);
    };
    return trimmed(prompt).ends_with(trimmed(markers.open));
}

ReasoningSplitter::ReasoningSplitter(std::optional<ReasoningMarkers> markers, bool starts_inside)
    : markers_(std::move(markers)),
      state_(!markers_       ? State::content
             : starts_inside ? State::opening
                             : State::start) {
    if (markers_ && markers_->channels) channels_ = std::make_unique<ChannelReader>();
}

ReasoningSplitter::~ReasoningSplitter() = default;

bool ReasoningSplitter::inside() const {
    return channels_ ? channels_->in_reasoning() : state_ == State::opening || state_ == State::reasoning;
}

ReasoningSplitter::Delta ReasoningSplitter::push(std::string_view piece) {
    Delta out;
    if (channels_) return channels_->push(piece, out), out;
    pending_ += piece;
    while (step(out, false)) {
    }
    return out;
}

ReasoningSplitter::Delta ReasoningSplitter::finish() {
    Delta out;
    if (channels_) return channels_->finish(out), out;
    while (step(out, true)) {
    }
    return out;
}

// Moves text from pending_ to out; true when the state changed and there may be more to do.
// last: no more text will come.
bool ReasoningSplitter::step(Delta& out, bool last) {
    if (!markers_) {
        out.content += std::exchange(pending_, {});
        return false;
    }
    const ReasoningMarkers& m = *markers_;
    switch (state_) {
        case State::start: {
            const std::size_t first = std::min(pending_.find_first_not_of(white), pending_.size());
            const std::string_view text = std::string_view(pending_).substr(first);
            const bool bare = !m.bare_open.empty();
            if (!last && (could_become(text, m.open) || (bare && could_become(text, m.bare_open))))
                return false;
            if (text.starts_with(m.open)) {
                pending_.erase(0, first + m.open.size());
                state_ = State::opening;
            } else if (bare && text.starts_with(m.bare_open)) {
                pending_.erase(0, first + m.bare_open.size());
                state_ = State::opening;
            } else {
                state_ = State::content;
            }
            return true;
        }
        case State::opening: {
            pending_.erase(0, std::min(pending_.find_first_not_of("\r\n"), pending_.size()));
            const std::size_t first = std::min(pending_.find_first_not_of(white), pending_.size());
            const std::string_view text = std::string_view(pending_).substr(first);
            if (!last && could_become(text, m.open)) return false;
            if (text.starts_with(m.open)) {
                pending_.erase(0, first + m.open.size());
                return true;  // line ends, even another opener, may follow
            }
            state_ = State::reasoning;
            return true;
        }
        case State::reasoning: {
            const std::size_t close = pending_.find(m.close);
            std::size_t end = close;
            if (close == std::string::npos)
                end = pending_.size() - (last ? 0 : partial_suffix(pending_, m.close));
            // Line ends before a closer, or at the very end, are not part of the reasoning.
            const std::size_t kept = pending_.find_last_not_of("\r\n", end == 0 ? 0 : end - 1);
            const std::size_t ready = end == 0 || kept == std::string::npos ? 0 : kept + 1;
            out.reasoning.append(pending_, 0, ready);
            if (close == std::string::npos) {
                pending_.erase(0, last ? pending_.size() : ready);
                return false;
            }
            pending_.erase(0, close + m.close.size());
            state_ = State::closed;
            return true;
        }
        case State::closed:
            pending_.erase(0, std::min(pending_.find_first_not_of("\r\n"), pending_.size()));
            if (pending_.empty()) return false;
            state_ = State::content;
            return true;
        case State::content: {
            const std::size_t close = pending_.find(m.close);
            const std::size_t open = m.anywhere ? pending_.find(m.open) : std::string::npos;
            if (close == std::string::npos && open == std::string::npos) {
                std::size_t held = 0;
                if (!last) {
                    held = partial_suffix(pending_, m.close);
                    if (m.anywhere) held = std::max(held, partial_suffix(pending_, m.open));
                }
                out.content.append(pending_, 0, pending_.size() - held);
                pending_.erase(0, pending_.size() - held);
                return false;
            }
            const std::size_t at = std::min(open, close);
            out.content.append(pending_, 0, at);
            // A closer without an opener says nothing and is dropped.
            pending_.erase(0, at + (at == open ? m.open.size() : m.close.size()));
            if (at == open) state_ = State::opening;
            return true;
        }
    }
    return false;
}

}  // namespace forge
