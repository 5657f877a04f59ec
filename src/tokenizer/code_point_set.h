// A set of code points as sorted, disjoint, non-adjacent ranges.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "unicode.h"

namespace forge::unicode {

class CodePointSet {
  public:
    void add(char32_t first, char32_t last) { ranges_.push_back({first, last}), sorted_ = false; }
    void add(char32_t c) { add(c, c); }
    void add(const CodePointSet& other);
    // Everything up to U+10FFFF that is not in this set.
    CodePointSet complement() const;
    const std::vector<Range>& ranges() const;

    // `name` as in \p{name}: a general category ("Lu") or the letter of a group ("L").
    // False when the name is none of these.
    static bool property(std::string_view name, CodePointSet& out);
    static CodePointSet white_space();  // \s
    static CodePointSet word();         // \w: Alphabetic, M, Nd, Pc

  private:
    mutable std::vector<Range> ranges_;
    mutable bool sorted_ = true;
};

}  // namespace forge::unicode
