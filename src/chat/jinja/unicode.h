// UTF-8 and the character facts of Python's str methods, which chat templates rely on.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace forge::jinja {

// Reads the code point at `position` and moves past it. A malformed byte reads as
// U+FFFD and moves by one.
char32_t next_code_point(std::string_view text, std::size_t& position);
void append_code_point(std::string& out, char32_t c);  // surrogates and values past U+10FFFF: U+FFFD

// The text with every malformed byte replaced by U+FFFD.
std::string valid_utf8(std::string_view text);

bool is_ascii(std::string_view text);
std::size_t code_point_count(std::string_view text);
// Byte offset of code point `index` of valid text; text.size() when there are fewer.
std::size_t code_point_offset(std::string_view text, std::size_t index);

bool is_space(char32_t c);
bool is_printable(char32_t c);
bool is_alpha(char32_t c);
bool is_decimal(char32_t c);
bool is_digit(char32_t c);
bool is_numeric(char32_t c);
bool is_identifier_part(char32_t c);
bool is_upper_case(char32_t c);
bool is_lower_case(char32_t c);
bool is_title_case(char32_t c);

std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
std::string to_title(std::string_view text);        // every word, as str.title()
std::string to_capitalized(std::string_view text);  // first letter, as str.capitalize()

// Bounds of the text without Python whitespace (or without the code points in
// `characters`) at its ends.
std::string_view strip(std::string_view text, bool left, bool right);
std::string_view strip(std::string_view text, std::string_view characters, bool left, bool right);

}  // namespace forge::jinja
