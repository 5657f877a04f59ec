// A constraint on an answer that may begin with reasoning: it holds for what comes after it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "api/text_model.h"

namespace forge {

class AnswerGuide {
  public:
    // constraint: may be null. splits_reasoning: the reasoning is told apart; otherwise the answer is all of it.
    AnswerGuide(const TextModel& model, const Prompt& prompt, std::shared_ptr<TokenConstraint> constraint, bool splits_reasoning);

    // in_reasoning: as the answer stands before the token. A model that thinks by itself may begin to.
    const std::uint32_t* mask(bool in_reasoning);
    void accept(std::int32_t token, bool in_reasoning);
    std::vector<std::int32_t> forced(bool in_reasoning);
    bool finished() const { return constraint_ && constraint_->finished(); }
    bool active() const { return constraint_ != nullptr; }

  private:
    std::shared_ptr<TokenConstraint> constraint_;
    std::int32_t opener_ = -1;             // begins the reasoning, where the prompt leaves that to the model
    bool first_ = true;
    std::vector<std::uint32_t> with_opener_;
    std::size_t words_ = 0;
};

}  // namespace forge
