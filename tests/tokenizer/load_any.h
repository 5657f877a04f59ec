// Loads a tokenizer from whatever a path names: a GGUF file, a folder, a
// tokenizer.json, a tekken*.json or a SentencePiece model.
#pragma once

#include <memory>
#include <string>

#include "base/mapped_file.h"
#include "formats/model_file.h"
#include "tokenizer/tokenizer.h"

namespace forge::testing {

inline std::shared_ptr<const Tokenizer> load_any(const std::string& path) {
    if (std::filesystem::is_directory(path)) return Tokenizer::from_folder(path);
    if (path.ends_with(".gguf")) return Tokenizer::from_gguf(open_gguf(path)->metadata);
    auto file = MappedFile::open(path);
    auto bytes = file->bytes();
    std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    std::string name = std::filesystem::path(path).filename().string();
    if (name.starts_with("tekken")) return Tokenizer::from_tekken(text, path);
    if (name.ends_with(".json")) return Tokenizer::from_json(text, "", path);
    return Tokenizer::from_sentencepiece(bytes, "", path);
}

}  // namespace forge::testing
