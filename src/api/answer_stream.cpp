#include "api/answer_stream.h"

#include <algorithm>

namespace forge {
namespace {

std::vector<std::int32_t> marker_ids(const Tokenizer& tokenizer, const std::optional<ReasoningMarkers>& reasoning,
                                     std::vector<std::string> markers) {
    if (reasoning) markers.insert(markers.end(), {reasoning->open, reasoning->close});
    if (reasoning && reasoning->channels) markers.insert(markers.end(), {"<|start|>", "<|channel|>", "<|message|>", "<|call|>"});
    std::vector<std::int32_t> ids;
    if (markers.empty()) return ids;
    for (const std::string& text : tokenizer.special_texts()) {
        if (std::none_of(markers.begin(), markers.end(), [&](const std::string& m) { return m.find(text) != std::string::npos; })) continue;
        if (const auto id = tokenizer.token_id(text)) ids.push_back(*id);
    }
    return ids;
}

}  // namespace

AnswerStream::AnswerStream(std::shared_ptr<const Tokenizer> tokenizer, const Prompt& prompt,
                           std::vector<std::string> stops, bool split_reasoning, const std::vector<std::string>& markers)
    : tokenizer_(tokenizer),
      decoder_(tokenizer),
      splitter_(split_reasoning ? prompt.reasoning : std::nullopt, prompt.in_reasoning),
      stops_(std::move(stops)),
      markers_(marker_ids(*tokenizer, split_reasoning ? prompt.reasoning : std::nullopt, markers)) {}

AnswerStream::Delta AnswerStream::split(const std::string& text, bool last) {
    Delta out;
    if (stopped()) return out;
    ReasoningSplitter::Delta parts = splitter_.push(text);
    out.reasoning = std::move(parts.reasoning);
    out.content = stops_.push(parts.content);
    if (!last || stopped()) return out;
    parts = splitter_.finish();
    out.reasoning += parts.reasoning;
    out.content += stops_.push(parts.content);
    if (!stopped()) out.content += stops_.finish();
    return out;
}

AnswerStream::Delta AnswerStream::push(std::int32_t token) {
    const bool special = tokenizer_->kind(token) == TokenKind::control;
    if (special && std::find(markers_.begin(), markers_.end(), token) == markers_.end()) return {};
    return split(decoder_.push(token), false);
}

AnswerStream::Delta AnswerStream::finish() { return split(decoder_.finish(), true); }

}  // namespace forge
