// Reads lines: with editing and history on a terminal, plainly from a pipe.
#pragma once

#include <memory>
#include <string>

namespace forge::cli {

class LineEditor {
  public:
    // history: a file that keeps what was typed; created when absent.
    explicit LineEditor(std::string history);
    ~LineEditor();

    enum class Result { line, end, interrupted };
    // The line without its newline. `interrupted`: Ctrl-C was pressed, what was typed is dropped.
    Result read(const std::string& prompt, std::string& line);
    bool terminal() const;

  private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace forge::cli
