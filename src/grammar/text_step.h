// The inside of a string, byte by byte: UTF-8, in JSON without control characters and with escapes of which a surrogate
// always has its partner, between special tokens as it stands.
#pragma once

#include <cstdint>

#include "grammar/grammar.h"

namespace forge::grammar {

struct TextStep {
    enum Kind : std::uint8_t { dead, inside, closed };
    Kind kind = dead;
    std::uint8_t state = 0;
    bool begins = false;  // this byte is the first of a character
};

constexpr std::uint8_t text_ground = 0;        // between two characters
constexpr std::uint8_t text_after_first = 20;  // likewise, and the last one was the text's `first`

// All that may come is known beforehand but for the length.
inline bool between_characters(std::uint8_t state) { return state == text_ground || state == text_after_first; }

TextStep text_step(const Grammar::Text& text, std::uint8_t state, unsigned char byte);

// The byte that closes it.
inline unsigned char closing_byte(const Grammar::Text& text) { return text.between_specials() ? static_cast<unsigned char>(Grammar::special_begin) : '"'; }

}  // namespace forge::grammar
