// SentencePiece's BPE: a pair may merge when its concatenation is a token, and
// the token with the highest score goes first.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "string_ids.h"
#include "word_borders.h"
#include "word_model.h"

namespace forge {

class SpmModel : public WordModel {
  public:
    // `ids` holds the tokens that merges may make (normal, user-defined and
    // unused ones); `scores` is indexed by id; `byte_ids` has the 256 byte tokens
    // (-1: missing) or is empty; `unused[id]` marks tokens that are taken apart
    // again at the end.
    SpmModel(StringIds ids, std::vector<float> scores, std::vector<std::int32_t> byte_ids,
             std::vector<bool> unused, std::optional<std::int32_t> unknown);
    // Declares a text of `ids` for finding word borders.
    void note_token(std::string_view text) { borders_.note_token(text); }

    void encode(std::string_view word, MergeScratch& scratch, std::vector<std::int32_t>& out) const override;
    std::size_t part_end(std::string_view word, std::size_t from) const override {
        return borders_.part_end(word, from);
    }

  private:
    void encode_bytes(std::string_view text, std::vector<std::int32_t>& out, bool& after_unknown) const;

    StringIds ids_;
    std::vector<std::uint32_t> ranks_;  // by id; lower is better
    std::vector<std::int32_t> byte_ids_;
    std::vector<bool> unused_;
    bool any_unused_ = false;
    std::optional<std::int32_t> unknown_;
    WordBorders borders_;
};

}  // namespace forge
