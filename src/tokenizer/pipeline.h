// Everything a tokenizer is made of; the loaders fill it in.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "added_tokens.h"
#include "decoder.h"
#include "normalizer.h"
#include "pre_tokenizer.h"
#include "tokenizer/tokenizer.h"
#include "vocabulary.h"
#include "word_borders.h"
#include "word_model.h"

namespace forge {

struct Tokenizer::Impl {
    std::string source;
    TokenTable vocabulary;
    StringIds ids;  // token text -> id, for token_id()

    bool unescape_first = false;  // U+2581 in the text is a space before anything is matched
    AddedTokens added;
    Normalizer normalizer;
    PreTokenizer pre_tokenizer;
    std::unique_ptr<const WordModel> model;
    std::vector<std::int32_t> prefix, suffix;  // what add_bos puts around a text
    Decoder decoder;

    std::optional<std::int32_t> bos, eos, pad, unk;
    std::vector<std::int32_t> end_of_generation;

    // What skip_special drops.
    bool is_special(std::int32_t id, TokenKind kind) const {
        if (kind == TokenKind::control) return true;
        if (kind != TokenKind::unknown) return false;
        const AddedToken* t = added.find(id);
        return t && t->special;
    }

    // After loading: fills `ids` and `end_of_generation` (eos, `also`, and the
    // tokens that are known by their text) and finishes `added`.
    void finish(const std::vector<std::int32_t>& also = {});
};

inline std::shared_ptr<const Tokenizer> make_tokenizer(std::unique_ptr<Tokenizer::Impl> impl) {
    return std::make_shared<const Tokenizer>(std::move(impl));
}

}  // namespace forge
