// Streaming an answer to the terminal and saying how fast it was.
#pragma once

#include <string_view>

#include "api/text_model.h"

namespace forge::cli {

// The answer goes to stdout as it comes; reasoning goes to stderr (dim on a terminal), so that a pipe
// gets the answer alone.
class AnswerPrinter {
  public:
    explicit AnswerPrinter(bool show_reasoning);
    void print(PieceKind kind, std::string_view text);
    // Ends the line on a terminal, and in a pipe when the text does not.
    void finish();

  private:
    bool show_reasoning_, colours_;
    bool in_reasoning_ = false, any_ = false;
    char last_ = '\n';
};

// A progress line on stderr while a long prompt is read: nothing in pipes, nothing for the first half second.
class PromptProgress {
  public:
    bool operator()(int done, int total);
    ~PromptProgress() { clear(); }
    void clear();

  private:
    double start_ = -1, last_ = 0;
    bool drawn_ = false;
};

// "prompt eval: 12 tokens in 0.05 s (240.0 tokens/s)" and so on, on stderr.
void print_timings(const Reply& reply, double load_seconds);

}  // namespace forge::cli
