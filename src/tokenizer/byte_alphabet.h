// The byte alphabet of GPT-2: every byte is written as one printable character.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace forge::byte_alphabet {

// byte -> code point: 21-7E, A1-AC, AE-FF stand for themselves, the other 68 in
// ascending order for U+0100, U+0101, ...
const std::array<char32_t, 256>& code_points();
// code point -> byte, or -1.
int byte_of(char32_t code_point);

void append_mapped(std::string& out, std::string_view bytes);
// Maps a token's text back to bytes, appended to `out`. A token with any
// character outside the alphabet stands for its own UTF-8.
void append_unmapped(std::string& out, std::string_view token);

}  // namespace forge::byte_alphabet
