// Sets of Unicode code points, and how one is read: as bare UTF-8 or inside a JSON string.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "builder.h"

namespace forge::grammar {

struct Range {
    std::uint32_t lo, hi;
    bool operator==(const Range&) const = default;
    auto operator<=>(const Range&) const = default;
};
// Ascending, neither touching nor overlapping after normalize().
using Ranges = std::vector<Range>;

constexpr std::uint32_t last_code_point = 0x10FFFF;

void normalize(Ranges& ranges);         // sorted and joined; surrogates are taken out
Ranges complement(const Ranges& ranges);  // without surrogates
std::string utf8(std::uint32_t code_point);

// How a character is written in a JSON string: one way each. Quotes, backslashes and control characters
// are escaped (\n, \t, ..., else \u00xx), everything else stands as it is.
std::string json_character(std::uint32_t code_point);
// A whole string with its quotes, written like that.
std::string json_string(std::string_view text);

// Adds edges for characters to a Builder, sharing what several have in common.
class CharacterEdges {
  public:
    CharacterEdges(Builder& builder, bool json) : builder_(builder), json_(json) {}
    void add(NodeId from, const Ranges& ranges, NodeId to);

  private:
    void add_utf8(NodeId from, Range range, NodeId to);
    void sequence(NodeId from, const std::vector<Range>& bytes, NodeId to);
    NodeId rest(int count, NodeId to);   // before `count` continuation bytes, any

    Builder& builder_;
    bool json_;
    std::map<std::pair<int, NodeId>, NodeId> rests_;
};

}  // namespace forge::grammar
