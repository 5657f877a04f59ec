// Byte-pair encoding by a list of merges, or by token ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "string_ids.h"
#include "word_borders.h"
#include "word_model.h"

namespace forge {

struct BpeOptions {
    std::optional<std::int32_t> unknown;  // id of unk_token
    bool fuse_unknown = false;            // neighbouring unknown characters become one token
    bool byte_fallback = false;           // unknown characters become their <0xXX> tokens
    bool ignore_merges = false;           // a word that is a token is that token
};

class BpeModel : public WordModel {
  public:
    // Ranks follow the order of calls. Both parts and their concatenation must
    // be tokens; `where` names the file otherwise.
    BpeModel(StringIds ids, BpeOptions options, std::string_view where);
    void reserve_merges(std::size_t count);
    void add_merge(std::string_view left, std::string_view right);
    // Which words ignore_merges may emit directly; all tokens unless set.
    void set_whole_words(StringIds ids) { whole_words_ = std::move(ids), own_whole_words_ = true; }
    void finish();  // after the last merge

    void encode(std::string_view word, MergeScratch& scratch, std::vector<std::int32_t>& out) const override;
    std::size_t part_end(std::string_view word, std::size_t from) const override {
        return borders_.part_end(word, from);
    }

  private:
    struct Slot {
        std::uint64_t pair = kFree;  // left id << 32 | right id
        Merge merge{};
    };
    static constexpr std::uint64_t kFree = ~std::uint64_t{0};
    static std::size_t hash_pair(std::uint64_t pair) {
        pair *= 0x9E3779B97F4A7C15ull;
        return static_cast<std::size_t>(pair ^ pair >> 32);
    }
    std::optional<Merge> find_merge(std::int32_t left, std::int32_t right) const;
    void insert(std::uint64_t pair, Merge merge);

    StringIds ids_, whole_words_;
    bool own_whole_words_ = false;
    BpeOptions options_;
    std::string where_;
    std::vector<Slot> slots_;
    std::size_t merge_count_ = 0;
    std::uint32_t next_rank_ = 0;
    std::vector<std::int32_t> byte_ids_;  // of <0x00>..<0xFF>, -1 where missing
    std::vector<std::int32_t> low_ids_;   // of the characters below U+0180, -1 where missing
    WordBorders borders_;
    bool joins_special_ = false;  // a merge has the unknown or a byte token as a part
};

// Rank files (tekken, tiktoken): a pair merges when its concatenation is a
// token, and the token's id is its rank.
class RankModel : public WordModel {
  public:
    RankModel(StringIds ids, bool ignore_merges) : ids_(std::move(ids)), ignore_merges_(ignore_merges) {}
    void encode(std::string_view word, MergeScratch& scratch, std::vector<std::int32_t>& out) const override;
    std::size_t part_end(std::string_view word, std::size_t) const override { return word.size(); }

  private:
    StringIds ids_;  // keys in the byte alphabet
    bool ignore_merges_;
};

}  // namespace forge
