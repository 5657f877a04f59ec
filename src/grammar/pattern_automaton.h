// Several patterns at once, read deterministically: after each character it is known which of them match.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "pattern.h"

namespace forge::grammar {

struct PatternAutomaton {
    struct Step { std::uint32_t lo, hi, target; };
    struct State {
        std::vector<Step> steps;      // ascending ranges; what none holds leads nowhere
        std::uint64_t matches = 0;    // bit i: pattern i matches a text that ends here
        bool settled = false;         // every text from here has these matches
    };
    std::vector<State> states;        // the first is the start

    const State* read(std::string_view text) const;   // null: it led nowhere
};

// patterns: at most 64; a text matches one that it contains (^ and $ bind). needed: bits of patterns that
// must match in the end; states from which they cannot are left out.
PatternAutomaton build_automaton(const std::vector<Pattern>& patterns, std::uint64_t needed);

// One "pattern", bit 0: the text is one of `names`. For long lists of property names.
PatternAutomaton name_automaton(const std::vector<std::string>& names);

}  // namespace forge::grammar
