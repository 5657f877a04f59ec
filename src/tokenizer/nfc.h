// Unicode normalisation form C with the tables of Unicode 9.0, as the reference
// tokenizers have them: a character added later is inert (it neither
// decomposes, composes nor is reordered, and nothing crosses it).
#pragma once

#include <string>
#include <string_view>

namespace forge {

std::string nfc(std::string_view text);  // valid UTF-8

}  // namespace forge
