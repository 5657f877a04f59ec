// MSL tokens, and the integer expressions of attributes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace metal_emu {

enum class Kind : std::uint8_t { identifier, number, punctuation, space, directive, string };

struct Token {
    Kind kind;
    std::string text;
};

// Comments become spaces, so that lines and columns stay.
std::vector<Token> tokenize(const std::string& source);

// + - * / and parentheses over integers.
long evaluate(const std::string& expression);

}  // namespace metal_emu
