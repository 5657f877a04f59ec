#include "api/answer_guide.h"

namespace forge {
namespace {

bool ends_with_closer(std::string_view prompt, std::string_view closer) {
    const std::size_t end = prompt.find_last_not_of(" \t\r\n");
    return end != std::string_view::npos && prompt.substr(0, end + 1).ends_with(closer);
}

}  // namespace

AnswerGuide::AnswerGuide(const TextModel& model, const Prompt& prompt, std::shared_ptr<TokenConstraint> constraint, bool splits_reasoning)
    : constraint_(std::move(constraint)) {
    if (!constraint_ || !splits_reasoning || !prompt.chat || !prompt.reasoning || prompt.in_reasoning) return;
    if (ends_with_closer(prompt.text, prompt.reasoning->close)) return;   // thinking is off
    const auto ids = model.tokenizer()->encode(prompt.reasoning->open, {.parse_special = true});
    if (ids.size() != 1 || ids[0] >= model.id_limit()) return;
    opener_ = ids[0];
    words_ = model.vocabulary()->words();
}

const std::uint32_t* AnswerGuide::mask(bool in_reasoning) {
    if (!constraint_ || in_reasoning) return nullptr;
    const std::uint32_t* mask = constraint_->mask();
    if (!first_ || opener_ < 0 || !mask) return mask;
    with_opener_.assign(mask, mask + words_);
    with_opener_[static_cast<std::size_t>(opener_) / 32] |= 1u << (opener_ % 32);
    return with_opener_.data();
}

void AnswerGuide::accept(std::int32_t token, bool in_reasoning) {
    const bool opens = first_ && token == opener_;
    first_ = false;
    if (constraint_ && !in_reasoning && !opens) constraint_->accept(token);
}

std::vector<std::int32_t> AnswerGuide::forced(bool in_reasoning) {
    if (!constraint_ || in_reasoning || (first_ && opener_ >= 0)) return {};
    return constraint_->forced();
}

}  // namespace forge
