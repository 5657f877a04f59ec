// Regular expressions as JSON Schema means them (ECMA-262, the part that is regular).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "char_ranges.h"

namespace forge::grammar {

// A nondeterministic automaton over code points.
struct PatternNode {
    enum Kind : std::uint8_t { characters, split, at_start, at_end, match } kind;
    std::uint32_t a = 0, b = 0;   // where it goes on; b: of a split
    std::uint32_t set = 0;        // of characters: an index into Pattern::sets
};

struct Pattern {
    std::vector<PatternNode> nodes;
    std::vector<Ranges> sets;
    std::uint32_t start = 0;
};

// Errors say what is not supported or wrong, and where in the expression.
Pattern parse_pattern(std::string_view expression);

// A ready-made text for parse_pattern that matches exactly `text`.
std::string escaped(std::string_view text);

std::vector<std::uint32_t> code_points(std::string_view text);   // ill-formed bytes as U+FFFD

}  // namespace forge::grammar
