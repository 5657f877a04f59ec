// Keeps what users write from being read as special tokens once it stands in a rendered template.
//
// A message may hold "<|im_end|>". The template's own "<|im_end|>" must become a token, the user's must
// stay text. Before rendering, a mark (a character that occurs nowhere else) is put before every place
// in a given text where a special token could begin; after rendering the marks are taken out, and where
// they were no special token may begin. The text itself stays whole, so that what a template
// does with it (trim, split at "</think>") gives the same.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace forge {

class SpecialTexts {
  public:
    explicit SpecialTexts(std::vector<std::string> texts);
    SpecialTexts() = default;

    // Puts `mark` before every special text in `text`, and before an end that more text could complete.
    std::string marked(std::string_view text, std::string_view mark) const;
    bool empty() const { return texts_.empty(); }

  private:
    bool may_begin(std::string_view text) const;
    std::vector<std::string> texts_;  // sorted
};

// The same for every text value in `json` (names of members are left alone).
void mark_texts(nlohmann::ordered_json& json, const SpecialTexts& special, std::string_view mark);

// A character that occurs in none of the texts of `json`, as UTF-8. Error when there is none.
std::string unused_mark(const nlohmann::ordered_json& json);

// Takes the marks out of `text`; where they were (ascending byte positions in the result).
std::vector<std::size_t> take_marks(std::string& text, std::string_view mark);

}  // namespace forge
