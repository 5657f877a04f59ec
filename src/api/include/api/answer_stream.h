// Token ids of an answer -> its reasoning and its text, piece by piece, up to a stop string.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "api/model_text.h"
#include "chat/reasoning.h"
#include "chat/stop_strings.h"
#include "tokenizer/tokenizer.h"

namespace forge {

class AnswerStream {
  public:
    struct Delta {
        std::string reasoning, content;
        bool empty() const { return reasoning.empty() && content.empty(); }
    };

    // stops: texts that end the answer and are not part of it; they count in the content, not in the
    // reasoning. Special tokens are left out of the text but for those that mark reasoning.
    // split_reasoning: false leaves all in the content. `markers`: more special tokens that are to reach
    // the text, as parts of these.
    AnswerStream(std::shared_ptr<const Tokenizer> tokenizer, const Prompt& prompt, std::vector<std::string> stops,
                 bool split_reasoning = true, const std::vector<std::string>& markers = {});

    // The output does not depend on how the text was cut into tokens, and is valid UTF-8 in each piece.
    Delta push(std::int32_t token);
    Delta finish();  // what was held back
    bool stopped() const { return stops_.stopped(); }
    const std::string& stop_text() const { return stops_.matched(); }
    bool in_reasoning() const { return splitter_.inside(); }

  private:
    Delta split(const std::string& text, bool last);

    std::shared_ptr<const Tokenizer> tokenizer_;
    StreamDecoder decoder_;
    ReasoningSplitter splitter_;
    StopMatcher stops_;
    std::vector<std::int32_t> markers_;  // special tokens that reach the text
};

}  // namespace forge
