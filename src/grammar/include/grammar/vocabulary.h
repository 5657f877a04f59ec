// A model's vocabulary as a trie of byte strings, with what every JSON string shares worked out.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace forge {

// Byte strings with numbers, in preorder: a node's subtree is the range up to its `end`.
struct ByteTrie {
    struct Node {
        std::uint32_t end;          // the node after the subtree
        std::uint32_t first, count; // numbers of the strings that end here, in `items`
        std::uint16_t depth;        // 1: the first byte
        std::uint8_t byte;
    };
    std::vector<Node> nodes;
    std::vector<std::uint32_t> items;

    // Strings may repeat; empty ones and those of more than 65,000 bytes are left out.
    static ByteTrie build(std::vector<std::pair<std::string, std::uint32_t>> strings);
};

class Vocabulary {
  public:
    // ids from `limit` on are never allowed; `ends`: ids that end an answer, allowed where a text may end.
    Vocabulary(std::shared_ptr<const Tokenizer> tokenizer, std::int32_t limit, std::vector<std::int32_t> ends);
    // For tests: tokens[i] are the bytes of id i; no special ones.
    Vocabulary(std::vector<std::string> tokens, std::vector<std::int32_t> ends);

    std::size_t size() const { return bytes_.size(); }
    std::size_t words() const { return (bytes_.size() + 31) / 32; }   // of a mask
    const ByteTrie& trie() const { return trie_; }
    // As the grammar sees the token; empty for one that never comes.
    const std::string& bytes(std::int32_t id) const { return bytes_[static_cast<std::size_t>(id)]; }
    const std::vector<std::int32_t>& ends() const { return ends_; }
    // Whether `text` is a control token, which can only come as this token.
    bool special(std::string_view text) const;
    // `text` (of a grammar's language) as ids; empty when the tokenizer does not give its bytes back.
    std::vector<std::int32_t> encode(std::string_view text) const;

    // Tokens that stay in a JSON string, begun between two characters.
    struct Inside { std::uint32_t characters, id; };
    const std::vector<Inside>& inside() const { return inside_; }   // characters ascending
    static constexpr std::uint32_t most_characters = 16;
    // Bits of the inside tokens with at most `n` characters (n <= most_characters), or of all.
    const std::vector<std::uint32_t>& inside_mask(std::uint32_t n) const { return inside_masks_[n]; }
    const std::vector<std::uint32_t>& inside_all() const { return inside_all_; }
    // Tokens that close it: what follows the quote, as a trie over numbers of `closing` groups.
    const ByteTrie& after_quote() const { return after_quote_; }
    const std::vector<std::vector<Inside>>& closing() const { return closing_; }
    const std::vector<Inside>& closing_exactly() const { return closing_exactly_; }   // the quote is the last byte

  private:
    void prepare();
    std::shared_ptr<const Tokenizer> tokenizer_;
    std::vector<std::string> bytes_;
    std::vector<std::pair<std::string, std::int32_t>> specials_;   // sorted by text
    std::vector<std::int32_t> ends_;
    ByteTrie trie_, after_quote_;
    std::vector<Inside> inside_, closing_exactly_;
    std::vector<std::vector<std::uint32_t>> inside_masks_;
    std::vector<std::uint32_t> inside_all_;
    std::vector<std::vector<Inside>> closing_;
};

}  // namespace forge
