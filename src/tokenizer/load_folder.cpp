// Picks the tokenizer file of a model's folder.
#include "base/error.h"
#include "base/mapped_file.h"
#include "tokenizer/tokenizer.h"

namespace forge {
namespace {

std::string_view text_of(const std::shared_ptr<MappedFile>& file) {
    auto bytes = file->bytes();
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

std::shared_ptr<const Tokenizer> Tokenizer::from_folder(const std::filesystem::path& folder) {
    namespace fs = std::filesystem;
    std::error_code ignored;
    auto there = [&](const char* name) { return fs::is_regular_file(folder / name, ignored); };
    std::shared_ptr<MappedFile> config;
    if (there("tokenizer_config.json"))
        config = MappedFile::open((folder / "tokenizer_config.json").string());
    std::string_view config_text = config ? text_of(config) : std::string_view();

    if (there("tokenizer.json")) {
        auto file = MappedFile::open((folder / "tokenizer.json").string());
        return from_json(text_of(file), config_text, file->path());
    }
    if (there("tekken.json")) {
        auto file = MappedFile::open((folder / "tekken.json").string());
        return from_tekken(text_of(file), file->path());
    }
    if (there("tokenizer.model")) {
        auto file = MappedFile::open((folder / "tokenizer.model").string());
        return from_sentencepiece(file->bytes(), config_text, file->path());
    }
    fail(ErrorKind::not_found,
         "{} has no tokenizer: looked for tokenizer.json, tekken.json and tokenizer.model.", folder.string());
}

}  // namespace forge
