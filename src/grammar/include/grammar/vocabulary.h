// A model's vocabulary as a trie of byte strings, with what all strings of a kind share worked out.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "grammar/byte_trie.h"
#include "grammar/string_tokens.h"
#include "tokenizer/tokenizer.h"

namespace forge {

class Vocabulary {
  public:
    // ids from `limit` on are never allowed; `ends`: ids that end an answer, allowed where a text may end.
    Vocabulary(std::shared_ptr<const Tokenizer> tokenizer, std::int32_t limit, std::vector<std::int32_t> ends);
    // For tests: tokens[i] are the bytes of id i; `specials` are control tokens.
    Vocabulary(std::vector<std::string> tokens, std::vector<std::int32_t> ends, const std::vector<std::int32_t>& specials = {});

    std::size_t size() const { return bytes_.size(); }
    std::size_t words() const { return (bytes_.size() + 31) / 32; }   // of a mask
    const ByteTrie& trie() const { return trie_; }
    // Bits of the tokens of at most `length` bytes, as the grammar sees them, for the lengths of `lengths`.
    static constexpr std::array<std::uint32_t, 11> lengths{4, 5, 6, 8, 10, 12, 16, 24, 32, 64, 128};
    const std::vector<std::uint32_t>& not_longer(std::size_t index) const { return not_longer_[index]; }
    // As the grammar sees the token; empty for one that never comes.
    const std::string& bytes(std::int32_t id) const { return bytes_[static_cast<std::size_t>(id)]; }
    const std::vector<std::int32_t>& ends() const { return ends_; }
    // Whether `text` is a control token, which can only come as this token.
    bool special(std::string_view text) const;
    // `text` (of a grammar's language) as ids; empty when the tokenizer does not give its bytes back.
    std::vector<std::int32_t> encode(std::string_view text) const;

    // Worked out when a kind of string is first asked for, once.
    const StringTokens& strings(const Grammar::Text& text) const;

  private:
    void prepare();
    std::shared_ptr<const Tokenizer> tokenizer_;
    std::vector<std::string> bytes_;
    std::vector<std::pair<std::string, std::int32_t>> specials_;   // sorted by text
    std::vector<std::int32_t> ends_;
    ByteTrie trie_;
    std::array<std::vector<std::uint32_t>, lengths.size()> not_longer_;
    mutable std::mutex strings_mutex_;
    mutable std::map<std::pair<unsigned char, unsigned char>, std::unique_ptr<StringTokens>> strings_;   // by first and second
};

}  // namespace forge
