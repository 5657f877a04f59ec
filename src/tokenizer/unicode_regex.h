// A tokenizer's regular expression, run by PCRE2 (JIT where it is available).
// unicode_regex.cpp is the only file that sees PCRE2.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "regex_pattern.h"

namespace forge {

// Byte range of a match in the text.
struct TextSpan {
    std::uint32_t begin, end;
};

// Buffers that one thread reuses from match to match.
class RegexScratch {
  public:
    RegexScratch();
    ~RegexScratch();
    RegexScratch(const RegexScratch&) = delete;
    RegexScratch& operator=(const RegexScratch&) = delete;

  private:
    friend class Regex;
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

class Regex {
  public:
    Regex(std::string_view pattern, std::string_view where);
    ~Regex();
    Regex(const Regex&) = delete;
    Regex& operator=(const Regex&) = delete;

    // Appends all matches of valid UTF-8 `text`, leftmost first, without
    // overlaps; an empty match directly after another match is skipped.
    // Throws when the pattern needs too much backtracking on this text.
    void find_all(std::string_view text, RegexScratch& scratch, std::vector<TextSpan>& matches) const;

  private:
    struct Code;
    std::string where_;
    TranslatedPattern pattern_;
    std::unique_ptr<Code> code_;
};

}  // namespace forge
