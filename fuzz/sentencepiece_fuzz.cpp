// Any bytes as a SentencePiece model (tokenizer.model): a tokenizer that works, or an Error.
#include <span>

#include "tokenizer_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    return forge::fuzz::tokenizer_input(data, size, [](std::string_view file) {
        return forge::Tokenizer::from_sentencepiece(std::as_bytes(std::span(file)), "", "fuzz");
    });
}
