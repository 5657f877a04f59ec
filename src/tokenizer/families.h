// The pre-tokenizers of the model families, for files that name one instead of
// describing it (GGUF's tokenizer.ggml.pre).
#pragma once

#include <string_view>

#include "normalizer.h"
#include "pre_tokenizer.h"

namespace forge {

extern const std::string_view kGpt2Pattern;  // what ByteLevel's use_regex applies

struct TokenizerFamily {
    PreTokenizer pre_tokenizer;
    bool nfc = false;
    bool ignore_merges = false;
    bool adds_bos = false;  // when the file does not say
};
// Throws Error naming `pre` when no family has this name.
TokenizerFamily family_by_name(std::string_view pre, std::string_view source);

}  // namespace forge
