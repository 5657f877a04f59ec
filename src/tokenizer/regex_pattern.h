// Rewrites a tokenizer's pattern (Oniguruma syntax, Unicode classes) into a
// pattern over one-byte symbols.
//
// Every class and literal of the pattern is a set of code points. Code points
// that lie in exactly the same sets are interchangeable for the pattern, so
// they share one symbol (an "atom"; the families' patterns need 5 to 25). Text
// is matched as its string of atoms: the classes are ours (Unicode 16) and not
// the regex library's, \p{L} with its 650 ranges costs one bitmap look-up, and
// no UTF-8 is decoded inside the match.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace forge {

// code point -> atom, in blocks of 256.
class AtomTable {
  public:
    std::uint8_t operator[](char32_t c) const {
        return c < 0x110000 ? blocks_[std::size_t{index_[c >> 8]} << 8 | (c & 0xFF)] : std::uint8_t{0};
    }
    // Takes a flat table of 0x110000 atoms.
    void build(const std::vector<std::uint8_t>& flat);

  private:
    std::array<std::uint16_t, 0x1100> index_{};
    std::vector<std::uint8_t> blocks_ = std::vector<std::uint8_t>(256);
};

struct TranslatedPattern {
    std::string pcre;  // over atoms, no UTF mode
    AtomTable atoms;
};

// Syntax that is not implemented is refused by name; `where` names the file and
// the component.
TranslatedPattern translate_pattern(std::string_view pattern, std::string_view where);

}  // namespace forge
