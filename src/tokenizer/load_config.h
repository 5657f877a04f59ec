// Shared by the loaders: added tokens and tokenizer_config.json.
#pragma once

#include <string>
#include <string_view>

#include "pipeline.h"

namespace forge {

// Adds a token to the vocabulary and the list of added tokens; an id or content
// that is already taken by another one is an error.
void add_token(Tokenizer::Impl& impl, AddedToken token, const std::string& where);

// added_tokens_decoder, the names of bos, eos, pad and unk, add_bos_token, add_eos_token.
void apply_tokenizer_config(Tokenizer::Impl& impl, std::string_view config_json, const std::string& source);

}  // namespace forge
