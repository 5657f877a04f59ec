// The normaliser of a tokenizer: a list of steps on a piece of text.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "unicode_regex.h"

namespace forge {

struct NfcStep {};
struct PrependStep {
    std::string text;  // put before every piece that is not empty
};
struct ReplaceStep {
    std::string literal;  // what to replace, unless `regex`
    std::shared_ptr<const Regex> regex;
    std::string content;
};

// Replaces every occurrence of a non-empty literal, from the left.
std::string replace_all(std::string_view text, std::string_view literal, std::string_view content);

class Normalizer {
  public:
    using Step = std::variant<NfcStep, PrependStep, ReplaceStep>;
    void add(Step step) { steps_.push_back(std::move(step)); }
    bool empty() const { return steps_.empty(); }
    std::string apply(std::string text, RegexScratch& scratch) const;

  private:
    std::vector<Step> steps_;
};

}  // namespace forge
