// Finds where a document that is one word can be cut: before a U+2581 that
// follows another character, unless some merge joins that character and U+2581.
#pragma once

#include <string_view>

#include "code_point_set.h"

namespace forge {

inline constexpr std::string_view kEscapedSpace = "\xE2\x96\x81";  // U+2581

class WordBorders {
  public:
    void disable() { enabled_ = false; }
    void enable() { enabled_ = true; }
    bool enabled() const { return enabled_; }
    // A merge exists that joins `left` and `right`.
    void note_merge(std::string_view left, std::string_view right);
    // A token exists with this text (where any concatenation that is a token is a merge).
    void note_token(std::string_view text);
    std::size_t part_end(std::string_view word, std::size_t from) const;

  private:
    void note_joiner(std::string_view text, std::size_t end);
    bool joins(char32_t c) const;
    bool enabled_ = false;
    std::vector<char32_t> joiners_;  // sorted; characters that some merge joins with a U+2581 after them
};

}  // namespace forge
