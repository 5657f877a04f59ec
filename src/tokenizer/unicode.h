// UTF-8 and the character classes that tokenizers ask for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "unicode_tables.h"

namespace forge::unicode {

inline constexpr char32_t kReplacement = 0xFFFD;

// One step of decoding. `length` >= 1 always. When `valid` is false the bytes
// are a maximal ill-formed subpart (WHATWG): `code_point` is U+FFFD, and
// `incomplete` says that the text ended inside a sequence that more bytes
// could complete.
struct Decoded {
    char32_t code_point = kReplacement;
    std::uint32_t length = 1;
    bool valid = false;
    bool incomplete = false;
};
Decoded decode(std::string_view text, std::size_t at);

void append(std::string& out, char32_t code_point);

bool is_valid(std::string_view text);
// Every maximal ill-formed subpart becomes one U+FFFD.
std::string replace_invalid(std::string_view text);

// Length of a sequence by its first byte, for text known to be valid.
inline std::uint32_t sequence_length(char lead) {
    auto b = static_cast<unsigned char>(lead);
    return b < 0x80 ? 1 : b < 0xE0 ? 2 : b < 0xF0 ? 3 : 4;
}
// Decodes at a character border of text known to be valid.
inline char32_t decode_valid(std::string_view text, std::size_t at, std::uint32_t& length) {
    auto b = [&](std::size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(text[at + i])); };
    char32_t lead = b(0);
    if (lead < 0x80) return length = 1, lead;
    if (lead < 0xE0) return length = 2, (lead & 0x1F) << 6 | (b(1) & 0x3F);
    if (lead < 0xF0) return length = 3, (lead & 0x0F) << 12 | (b(1) & 0x3F) << 6 | (b(2) & 0x3F);
    return length = 4, (lead & 0x07) << 18 | (b(1) & 0x3F) << 12 | (b(2) & 0x3F) << 6 | (b(3) & 0x3F);
}
inline bool is_continuation(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

Category category(char32_t code_point);
bool is_white_space(char32_t code_point);  // the 25 of property White_Space
bool is_word(char32_t code_point);         // Alphabetic, M, Nd, Pc, U+200C, U+200D
bool is_numeric(char32_t code_point);      // Nd, Nl, No of Unicode 17
bool is_younger_than_9(char32_t code_point);

// Circled and squared letters: Alphabetic although their category is So.
inline constexpr Range kAlphabeticSymbols[] = {
    {0x24B6, 0x24E9}, {0x1F130, 0x1F149}, {0x1F150, 0x1F169}, {0x1F170, 0x1F189}};
inline constexpr Range kWhiteSpace[] = {
    {0x9, 0xD},       {0x20, 0x20},     {0x85, 0x85},     {0xA0, 0xA0},     {0x1680, 0x1680},
    {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}};
// Digits that Unicode 17 added.
inline constexpr Range kNumericOf17[] = {{0x11DE0, 0x11DE9}, {0x16FF4, 0x16FF6}};

}  // namespace forge::unicode
