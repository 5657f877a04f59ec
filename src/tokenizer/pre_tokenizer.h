// The pre-tokenizer: a list of steps, each applied to every piece that the
// step before it made.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "unicode_regex.h"

namespace forge {

// Consecutive pieces of one buffer. No piece is empty.
struct Pieces {
    std::string text;
    std::vector<std::uint32_t> ends;  // piece i is [ends[i-1], ends[i])
    bool at_text_start = false;       // the first piece is at the very start of the input

    void assign(std::string whole) {
        text = std::move(whole);
        ends.clear();
        if (!text.empty()) ends.push_back(static_cast<std::uint32_t>(text.size()));
    }
};

enum class SplitBehavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

struct SplitStep {
    std::string literal;  // what to split on, unless `regex`
    std::shared_ptr<const Regex> regex;
    SplitBehavior behavior = SplitBehavior::isolated;
    bool invert = false;
};
struct DigitsStep {
    bool individual = false;
};
struct ByteLevelStep {
    bool add_prefix_space = false;
    std::shared_ptr<const Regex> regex;  // GPT-2's pattern, or null
};
struct MetaspaceStep {
    enum class Prepend { always, first, never };
    std::string replacement;
    Prepend prepend = Prepend::always;
    bool split = true;
};

class PreTokenizer {
  public:
    using Step = std::variant<SplitStep, DigitsStep, ByteLevelStep, MetaspaceStep>;
    void add(Step step) { steps_.push_back(std::move(step)); }
    void apply(Pieces& pieces, RegexScratch& scratch) const;

  private:
    std::vector<Step> steps_;
};

}  // namespace forge
