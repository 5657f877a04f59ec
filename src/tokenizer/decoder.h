// Ids to text. A decoder is a per-token rule and a rule for the whole.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "vocabulary.h"

namespace forge {

struct Decoder {
    struct Replacement {
        std::string from, to;
    };
    bool byte_level = false;                // token texts are in the byte alphabet
    bool byte_fallback = false;             // <0xXX> tokens are bytes
    bool literal_added = false;             // (GGUF) control and user-defined tokens stand for their own text
    std::vector<Replacement> replacements;  // applied to each token's text
    // Characters to drop at the start: of the whole text (Strip after Fuse, at
    // most strip_count), or of the first token (Metaspace, all of them).
    std::string strip;
    std::size_t strip_count = 0;
    bool strip_first_token = false;

    // What the token contributes. `is_byte` is set when it is one byte by fallback.
    std::string token_bytes(const TokenTable& vocabulary, std::int32_t id, bool& is_byte) const;
};

// Joins tokens one at a time. Text comes out as soon as it is certain; with
// `whole` it comes out only from finish(), exactly as the reference decodes a
// complete list (they differ where a run of byte tokens holds an invalid byte).
class TokenJoiner {
  public:
    TokenJoiner(const Decoder& decoder, bool whole) : decoder_(&decoder), whole_(whole) {}
    void push(std::string_view bytes, bool is_byte, std::string& out);
    void finish(std::string& out);

  private:
    void flush_byte_run(std::string& out);
    void drain(std::string& out, bool last);
    void emit(std::string_view text, std::string& out);

    const Decoder* decoder_;
    bool whole_;
    bool first_token_ = true;
    std::size_t stripped_ = 0;
    bool at_start_ = true;
    std::string pending_;    // bytes that are not yet text
    bool byte_run_ = false;  // pending_ comes from byte-fallback tokens
};

}  // namespace forge
