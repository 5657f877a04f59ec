// Splits what a model says into its reasoning and its answer.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace forge {

// How a family marks reasoning.
struct ReasoningMarkers {
    std::string open, close;
    // Special tokens of the vocabulary: reasoning may open again later in the answer. The
    // others are plain text, which an answer may quote, and count only at its beginning.
    bool anywhere = false;
    // A reply that begins with this (and no opener) began inside the reasoning.
    std::string bare_open;
    // gpt-oss: every message has a header, and `open` is that of one kind.
    bool channels = false;

    bool operator==(const ReasoningMarkers&) const = default;
};

// The markers that a chat template mentions: <think>, [THINK], Gemma 4's thought channel or gpt-oss' channels.
std::optional<ReasoningMarkers> reasoning_markers(std::string_view template_source);

// Whether a prompt ends inside the reasoning: an opener is the last thing but whitespace.
bool ends_in_reasoning(std::string_view prompt, const ReasoningMarkers& markers);

// Streaming. Output only grows, and is the same for every way of cutting the input; what
// may be part of a marker, or whitespace that a marker removes, is held back.
class ReasoningSplitter {
  public:
    struct Delta {
        std::string reasoning, content;
        bool operator==(const Delta&) const = default;
    };

    // Without markers everything is content.
    ReasoningSplitter(std::optional<ReasoningMarkers> markers, bool starts_inside);
    ~ReasoningSplitter();

    Delta push(std::string_view piece);
    Delta finish();  // what was held back
    bool inside() const;

  private:
    enum class State {
        start,    // nothing but whitespace so far: an opener may come
        opening,  // just inside: line ends and repeated openers are dropped
        reasoning,
        closed,  // after a closer: line ends are dropped
        content,
    };
    bool step(Delta& out, bool last);

    std::optional<ReasoningMarkers> markers_;
    State state_;
    std::string pending_;
    std::unique_ptr<class ChannelReader> channels_;   // does it all, where there are channels
};

}  // namespace forge
