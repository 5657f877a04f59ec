// Added tokens: contents that are cut out of the text before everything else.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "normalizer.h"
#include "string_ids.h"

namespace forge {

struct AddedToken {
    std::int32_t id = 0;
    std::string content;
    bool special = false;      // not matched in untrusted text; dropped by skip_special
    bool single_word = false;  // no word character may touch it
    bool lstrip = false;       // takes the white space before it along
    bool rstrip = false;       // and after it
    bool normalized = false;   // looked for in the normalised text, its content normalised too
    bool verbatim = false;     // but `content` already has its normalised form
};

class AddedTokens {
  public:
    struct Match {
        std::size_t begin, end;  // bytes
        std::int32_t id;
    };
    // A token with the content of an earlier one replaces its flags; the id of an
    // earlier one with other content is an error that the caller has excluded.
    void add(AddedToken token);
    const AddedToken* find(std::int32_t id) const;
    void finish(const Normalizer& normalizer);  // after the last add()

    const std::vector<AddedToken>& all() const { return tokens_; }
    const AddedToken* find(std::string_view content) const;
    bool any(bool normalized) const { return !tries_[normalized].nodes.empty(); }
    // Leftmost matches, at one place the longest, without overlaps. A special
    // token that may not match still covers its text: nothing shorter matches inside.
    // `plain_at`: ascending positions where special tokens may not begin; they cover no text there either.
    void find(std::string_view text, bool normalized, bool parse_special, std::span<const std::size_t> plain_at,
              std::vector<Match>& out) const;

  private:
    struct Trie {
        struct Node {
            std::vector<std::pair<unsigned char, std::uint32_t>> next;  // sorted by byte
            std::int32_t token = -1;                                    // index into tokens_
        };
        std::vector<Node> nodes;                 // empty: no tokens; else nodes[0] is the root
        std::array<std::uint32_t, 256> first{};  // children of the root, 0: none
        void insert(std::string_view content, std::int32_t token);
        // Longest token at `at`: its index, or -1.
        std::int32_t longest(std::string_view text, std::size_t at, std::size_t& length) const;
    };
    std::vector<AddedToken> tokens_;
    StringIds by_content_;  // content -> index into tokens_
    std::unordered_map<std::int32_t, std::size_t> by_id_;
    std::array<Trie, 2> tries_;  // raw, normalised
};

}  // namespace forge
