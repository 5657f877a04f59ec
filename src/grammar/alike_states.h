// Which states of an automaton over characters read the same short texts.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "pattern_automaton.h"

namespace forge::grammar {

constexpr std::uint32_t always_alike = 0xFFFFFFFF;   // however long the text

struct ReadingState {
    std::vector<PatternAutomaton::Step> steps;   // to states of the same list
    bool ends = false;                           // the text may end here
    bool free = false;                           // all that is left is any text of least..most characters
    std::uint64_t least = 0, most = 0;           // most: Grammar::unlimited for no bound
};

// Texts of at most `agrees` characters, the end being one, can be read from a state just when they can be read from
// `state`; agrees 0: no such state is known. Of several, an early one that agrees long.
struct Likeness { std::uint32_t state = 0, agrees = 0; };

// The longest text that can be read from each state; always_alike where there is none.
std::vector<std::uint32_t> longest_texts(std::span<const ReadingState> states);

// States from which no end comes must be left out of the steps beforehand.
std::vector<Likeness> find_alike(std::span<const ReadingState> states);

// Takes steps to states out from which the text cannot end.
void leave_out_dead(std::span<ReadingState> states);

}  // namespace forge::grammar
