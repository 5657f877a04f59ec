// How the tokens of a vocabulary stand to one kind of string: which stay inside, which close it and with what after.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "grammar/byte_trie.h"
#include "grammar/grammar.h"

namespace forge {

struct StringTokens {
    struct Token { std::uint32_t characters, id; };
    static constexpr std::uint32_t most_characters = 16;

    // Begun between two characters. `text`: which kind of string; its length does not matter.
    StringTokens(const std::vector<std::string>& bytes, const Grammar::Text& text);

    std::vector<Token> inside;                              // tokens that stay in the string; characters ascending
    std::vector<std::vector<std::uint32_t>> inside_masks;   // bits of those with at most n characters (n <= most_characters)
    std::vector<std::uint32_t> inside_all;
    std::vector<std::uint32_t> after_first;                 // where the text's `first` was the last character: of those, the ones that cannot come
    std::vector<Token> closing_exactly;                     // the byte that closes the string is their last
    ByteTrie after;                                         // what others have after that byte, over numbers of `closing`
    std::vector<std::vector<Token>> closing;
    ByteTrie closing_whole;                                 // all tokens that close, with all their bytes
};

}  // namespace forge
