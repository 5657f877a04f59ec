// The tokenizer of a synthetic model: byte-level BPE with the 256 byte tokens,
// a few two-letter merges, unreachable filler up to the vocabulary's size, and
// the family's special tokens at the end. Any text can be written with it.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "shapes.h"

namespace forge::synth {

struct Tokenizer {
    std::vector<std::string> tokens;  // by id, in the byte alphabet; special tokens literally
    std::vector<std::pair<std::string, std::string>> merges;
    int first_special = 0;             // ids from here on are special
    int bos = -1, eos = -1, pad = -1;  // bos -1: none
    std::vector<int> stop;             // every id that ends a turn, eos first
    bool add_bos = false;
    bool ignore_merges = false;  // a word that is a token is taken whole
    std::string gguf_pre;        // tokenizer.ggml.pre
    std::string split_regex;     // the pre-tokenizer of tokenizer.json; empty: GPT-2's own
    bool nfc = false;
    std::string chat_template;
};

Tokenizer make_tokenizer(const Shape& shape);

}  // namespace forge::synth
