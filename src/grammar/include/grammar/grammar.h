// A language of byte strings: what JSON Schema and GBNF compile to.
//
// A pushdown automaton. Each rule is a nondeterministic automaton over bytes that ends in accepting
// nodes; an edge may call another rule and goes on where that one accepts. The texts of the language are
// UTF-8. A special token of the vocabulary is written as special_begin, its text, special_end: bytes that
// UTF-8 does not have, so that no text can spell it.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace forge {

struct Grammar {
    static constexpr char special_begin = '\xFF', special_end = '\xFE';
    static constexpr std::uint32_t unlimited = 0xFFFFFFFF;

    enum class EdgeKind : std::uint8_t {
        bytes,    // one byte of lo..hi
        epsilon,  // nothing
        call,     // what rule `value` accepts
        text,     // the rest of a string (texts[value]) after its opening quote, with the byte that closes it
    };
    struct Edge {
        EdgeKind kind;
        std::uint8_t lo, hi;
        std::uint32_t value, target;  // target: a node
    };
    struct Node {
        std::uint32_t first, count;   // edges
        bool accept;                  // the rule may end here
        // Texts of at most `agrees` bytes can be read from here just when they can be read from `alike`, a node of
        // the same rule; 0 = nothing is known. Where characters are counted, what is known of one count serves others.
        std::uint32_t alike = 0, agrees = 0;
        std::uint32_t inside = no_inside;   // an index of `insides`
        static constexpr std::uint32_t no_inside = 0xFFFFFFFF;
    };
    // Of a node between two characters of a string in which all is text of the kind `text` (an index of `texts`; its
    // length does not matter) up to what closes it: at most `room` characters can come before that, and up to `agrees`
    // of them can be read just when they can be read from the node `alike`.
    struct Inside {
        std::uint32_t text, room, alike, agrees;
    };
    struct Text {
        std::uint32_t least, most;    // characters; most: `unlimited` for no bound
        // A JSON string, which a quote closes; or, with two ASCII characters here, a text that the first byte of a
        // special token closes and in which `second` never follows `first`.
        unsigned char first = 0, second = 0;
        bool between_specials() const { return second != 0; }
        bool operator==(const Text&) const = default;
        auto operator<=>(const Text&) const = default;
    };

    std::vector<Node> nodes;
    std::vector<Edge> edges;
    std::vector<Text> texts;
    std::vector<Inside> insides;
    std::vector<std::uint32_t> rules;  // the node where each begins
    std::uint32_t start = 0;           // a rule
};

}  // namespace forge
