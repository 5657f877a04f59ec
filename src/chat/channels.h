// gpt-oss' answers: messages, each with a channel and perhaps a recipient, such as
//   <|channel|>analysis<|message|>..<|end|><|start|>assistant<|channel|>final<|message|>..<|return|>
// The analysis is reasoning, calls keep their marks for the parser of calls, everything else is content.
#pragma once

#include <string>
#include <string_view>

#include "chat/reasoning.h"

namespace forge {

class ChannelReader {
  public:
    void push(std::string_view text, ReasoningSplitter::Delta& out);
    void finish(ReasoningSplitter::Delta& out);
    bool in_reasoning() const { return state_ == State::body && kind_ == Kind::reasoning; }

  private:
    enum class State { between, header, body };
    enum class Kind { reasoning, content, call };
    bool step(ReasoningSplitter::Delta& out, bool last);
    bool begin_message(bool last);
    bool read_header(ReasoningSplitter::Delta& out, bool last);
    bool read_body(ReasoningSplitter::Delta& out, bool last);
    void begin_body(Kind kind, ReasoningSplitter::Delta& out);

    State state_ = State::between;
    Kind kind_ = Kind::content;
    bool reasoned_ = false, said_ = false;   // a message of the kind was there before
    std::string pending_;
};

}  // namespace forge
