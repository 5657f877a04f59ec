// The inside of a JSON string, byte by byte: UTF-8 without control characters, and escapes of which a
// surrogate always has its partner.
#pragma once

#include <cstdint>

namespace forge::grammar {

struct TextStep {
    enum Kind : std::uint8_t { dead, inside, closed };
    Kind kind = dead;
    std::uint8_t state = 0;
    bool begins = false;  // this byte is the first of a character
};

constexpr std::uint8_t text_ground = 0;  // between two characters
constexpr int text_states = 20;

TextStep text_step(std::uint8_t state, unsigned char byte);

}  // namespace forge::grammar
