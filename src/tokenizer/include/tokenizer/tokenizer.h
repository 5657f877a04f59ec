// Text to token ids and back.
//
// A Tokenizer is immutable after loading; all its functions may be called from
// many threads at once. Text is UTF-8; ill-formed bytes count as U+FFFD.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/metadata.h"

namespace forge {

struct EncodeOptions {
    // Add what the model's own tokenizer adds around a text (BOS, rarely EOS).
    // Chat templates usually write BOS themselves.
    bool add_bos = false;
    // Match the texts of control tokens ("<|im_end|>"). Leave off for text that
    // is not trusted: then only tokens that are not special are matched.
    bool parse_special = false;
    // Byte positions in the text, ascending, where nevertheless no special token begins: a part of the
    // text that is not trusted. The ids are those of a text without that token's meaning there.
    std::span<const std::size_t> plain_at = {};
};

enum class TokenKind { normal, unknown, control, user_defined, unused, byte };

class Tokenizer {
  public:
    // From a GGUF file's tokenizer.ggml.* keys.
    static std::shared_ptr<const Tokenizer> from_gguf(const Metadata& metadata);
    // From tokenizer.json; `tokenizer_config_json` may be empty. `source` names
    // the file in messages.
    static std::shared_ptr<const Tokenizer> from_json(std::string_view tokenizer_json,
                                                      std::string_view tokenizer_config_json,
                                                      std::string source);
    // From a SentencePiece model of type BPE (tokenizer.model).
    static std::shared_ptr<const Tokenizer> from_sentencepiece(std::span<const std::byte> model,
                                                               std::string_view tokenizer_config_json,
                                                               std::string source);
    // From Mistral's tekken.json.
    static std::shared_ptr<const Tokenizer> from_tekken(std::string_view tekken_json, std::string source);
    // From a model's folder: tokenizer.json, else tekken.json, else tokenizer.model.
    static std::shared_ptr<const Tokenizer> from_folder(const std::filesystem::path& folder);

    ~Tokenizer();

    std::vector<std::int32_t> encode(std::string_view text, EncodeOptions options = {}) const;
    // Always valid UTF-8. skip_special drops control tokens.
    std::string decode(std::span<const std::int32_t> ids, bool skip_special = false) const;

    // For display: valid UTF-8; bytes that are no character read as <0xE2>.
    std::string token_text(std::int32_t id) const;
    // The bytes that decode() gets from this token alone, without the trimming
    // at the start of a text; a token may hold a part of a character. Empty for
    // ids that are not in the vocabulary.
    std::string token_bytes(std::int32_t id) const;

    std::int32_t size() const;  // largest id + 1
    // The texts that parse_special matches and that are not matched without it.
    std::vector<std::string> special_texts() const;
    // The id of the token whose text, as stored in the file, is `content`.
    std::optional<std::int32_t> token_id(std::string_view content) const;
    TokenKind kind(std::int32_t id) const;  // unused for ids not in the vocabulary

    std::optional<std::int32_t> bos() const;
    std::optional<std::int32_t> eos() const;
    std::optional<std::int32_t> pad() const;
    std::optional<std::int32_t> unk() const;
    bool adds_bos() const;  // whether add_bos puts bos() first
    // Ids after which a model has finished its turn, ascending.
    const std::vector<std::int32_t>& end_of_generation() const;

    struct Impl;
    explicit Tokenizer(std::unique_ptr<const Impl> impl);

  private:
    friend class StreamDecoder;
    std::unique_ptr<const Impl> impl_;
};

// Decodes ids one at a time. Never returns a part of a character: at most three
// bytes wait for the rest of theirs. The pieces add up to what decode() gives,
// but for byte-fallback runs that hold an invalid byte, of which the valid
// beginning has already been returned.
class StreamDecoder {
  public:
    explicit StreamDecoder(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special = false);
    ~StreamDecoder();
    StreamDecoder(StreamDecoder&&) noexcept;
    StreamDecoder& operator=(StreamDecoder&&) noexcept;

    std::string push(std::int32_t id);
    std::string finish();  // what still waits, an unfinished character as U+FFFD; then starts afresh

  private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace forge
