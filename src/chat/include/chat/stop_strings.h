// Stop strings in streamed text.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace forge {

// Ends a text at the first stop string to be completed, whatever pieces the text arrives in:
// what could still become a stop string is held back. The result is the same for every way of
// cutting the text. When several end at the same place the longest counts.
class StopMatcher {
  public:
    // An empty stop string is an error: it would end every text at once.
    explicit StopMatcher(std::vector<std::string> stops);

    // The next piece of text; returns what may be shown. After a stop: nothing.
    std::string push(std::string_view piece);
    // At the end of the text: what was held back and belongs to it.
    std::string finish();

    bool stopped() const { return !matched_.empty(); }
    const std::string& matched() const { return matched_; }  // the stop string; empty before

  private:
    std::vector<std::string> stops_;
    std::string held_;
    std::string matched_;
};

// Length of the longest proper prefix of `marker` that `text` ends with.
std::size_t partial_suffix(std::string_view text, std::string_view marker);

}  // namespace forge
