// The encode pipeline and decoding; loading is in load_*.cpp.
#include "tokenizer/tokenizer.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "pipeline.h"
#include "unicode.h"

namespace forge {
namespace {

constexpr std::size_t kMaxTextBytes = std::size_t{1} << 30;

// Remembers where the ids of a word stand in the output, so that a repeated
// word is copied. Lives for one piece of text, whose words it points into.
class WordCache {
  public:
    explicit WordCache(std::size_t words) {
        if (words < 32) return;  // not worth the table
        std::size_t size = 64;
        while (size < words && size < (1 << 15)) size *= 2;
        slots_.resize(size);
    }
    // Appends the ids if the word is known.
    bool copy(std::string_view word, std::vector<std::int32_t>& out) {
        if (slots_.empty() || word.size() > kMaxWord) return false;
        const Slot& s = slot(word);
        if (s.length != word.size() || std::string_view(s.text, s.length) != word) return false;
        std::size_t old = out.size();
        out.resize(old + s.count);
        std::copy_n(out.begin() + static_cast<std::ptrdiff_t>(s.at), s.count,
                    out.begin() + static_cast<std::ptrdiff_t>(old));
        return true;
    }
    void remember(std::string_view word, std::size_t at, std::size_t count) {
        if (slots_.empty() || word.size() > kMaxWord) return;
        slot(word) = {word.data(), static_cast<std::uint32_t>(word.size()), static_cast<std::uint32_t>(count),
                      at};
    }

  private:
    static constexpr std::size_t kMaxWord = 64;
    struct Slot {
        const char* text = nullptr;
        std::uint32_t length = 0, count = 0;
        std::size_t at = 0;
    };
    Slot& slot(std::string_view word) { return slots_[hash_bytes(word) & (slots_.size() - 1)]; }
    std::vector<Slot> slots_;
};

class Encoder {
  public:
    Encoder(const Tokenizer::Impl& t, const EncodeOptions& options)
        : t_(t), parse_special_(options.parse_special), plain_at_(options.plain_at) {}
    std::vector<std::int32_t> out;

    void run(std::string_view text) {
        split_on_added(text, false, parse_special_, plain_at_, true, [&](std::string_view piece, bool at_start) {
            std::string normal =
                t_.normalizer.empty() ? std::string(piece) : t_.normalizer.apply(std::string(piece), regex_);
            // Positions do not survive normalisation: a piece with one of them matches no special token.
            const auto begin = static_cast<std::size_t>(piece.data() - text.data());
            const auto next = std::lower_bound(plain_at_.begin(), plain_at_.end(), begin);
            const bool trusted = next == plain_at_.end() || *next >= begin + piece.size();
            split_on_added(normal, true, parse_special_ && trusted, {}, at_start,
                           [&](std::string_view part, bool start) { words(part, start); });
        });
    }

  private:
    // Calls `ordinary(piece, at_start)` for the text between added tokens, whose ids it emits.
    template <typename F>
    void split_on_added(std::string_view text, bool normalized, bool parse_special,
                        std::span<const std::size_t> plain_at, bool at_start, const F& ordinary) {
        if (!t_.added.any(normalized)) return ordinary(text, at_start);
        std::vector<AddedTokens::Match> matches;
        t_.added.find(text, normalized, parse_special, plain_at, matches);
        std::size_t from = 0;
        for (const auto& m : matches) {
            if (m.begin > from) ordinary(text.substr(from, m.begin - from), at_start && from == 0);
            out.push_back(m.id);
            from = m.end;
        }
        if (from < text.size()) ordinary(text.substr(from), at_start && from == 0);
    }

    void words(std::string_view text, bool at_start) {
        Pieces pieces;
        pieces.assign(std::string(text));
        pieces.at_text_start = at_start;
        t_.pre_tokenizer.apply(pieces, regex_);
        // A piece that is a document is encoded in parts (about one a word).
        WordCache cache(std::max(pieces.ends.size(), pieces.text.size() / 16));
        std::string_view all = pieces.text;
        std::size_t begin = 0;
        for (std::uint32_t end : pieces.ends) {
            std::string_view piece = all.substr(begin, end - begin);
            for (std::size_t from = 0; from < piece.size();) {
                std::size_t to = t_.model->part_end(piece, from);
                std::string_view word = piece.substr(from, to - from);
                from = to;
                if (cache.copy(word, out)) continue;
                std::size_t at = out.size();
                t_.model->encode(word, merges_, out);
                cache.remember(word, at, out.size() - at);
            }
            begin = end;
        }
    }

    const Tokenizer::Impl& t_;
    bool parse_special_;
    std::span<const std::size_t> plain_at_;
    RegexScratch regex_;
    MergeScratch merges_;
};

// change() of the parts between positions, joined; the positions move along.
std::string change_parts(std::string_view text, std::vector<std::size_t>& positions, const auto& change) {
    std::string out;
    std::size_t from = 0;
    for (std::size_t& position : positions) {
        const std::size_t to = std::clamp(position, from, text.size());
        out += change(text.substr(from, to - from));
        from = to;
        position = out.size();
    }
    return out += change(text.substr(from));
}

// Control tokens with one of these texts end a turn in every model that has them.
constexpr std::array<std::string_view, 14> kEndTexts = {"<|eot_id|>",
                                                        "<|im_end|>",
                                                        "<|end|>",
                                                        "<end_of_turn>",
                                                        "<|endoftext|>",
                                                        "</s>",
                                                        "<|eom_id|>",
                                                        "<|end_of_text|>",
                                                        "<eos>",
                                                        "<turn|>",
                                                        "<|tool_response>",
                                                        "<|return|>",
                                                        "<|call|>",
                                                        "<\xEF\xBD\x9C"
                                                        "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>"};

}  // namespace

void Tokenizer::Impl::finish(const std::vector<std::int32_t>& also) {
    added.finish(normalizer);
    for (const AddedToken& t : added.all()) ids.add(t.content, t.id);
    for (std::int32_t id = 0; id < vocabulary.size(); ++id)
        if (vocabulary.has(id)) ids.add(vocabulary.text(id), id);

    auto special = [&](std::string_view text) -> std::optional<std::int32_t> {
        std::int32_t id = ids.find(text);
        if (id < 0) return std::nullopt;
        TokenKind kind = vocabulary.kind(id);
        if (kind == TokenKind::control || (kind == TokenKind::user_defined && text != "</s>")) return id;
        return std::nullopt;
    };
    bool harmony = special("<|return|>") && special("<|call|>");  // there <|end|> only ends a message
    bool gemma4 = special("<|tool_response>").has_value();        // there </s> is text
    std::vector<std::int32_t> ends = also;
    if (eos) ends.push_back(*eos);
    for (std::string_view text : kEndTexts) {
        if ((harmony && text == "<|end|>") || (gemma4 && text == "</s>")) continue;
        if (auto id = special(text)) ends.push_back(*id);
    }
    std::sort(ends.begin(), ends.end());
    ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
    end_of_generation = std::move(ends);
}

Tokenizer::Tokenizer(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::~Tokenizer() = default;

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
    if (text.size() > kMaxTextBytes)
        fail("The text has {} bytes; at most {} can be tokenised at once.", text.size(), kMaxTextBytes);
    std::string repaired, unescaped;
    std::vector<std::size_t> plain_at(options.plain_at.begin(), options.plain_at.end());
    options.plain_at = plain_at;
    if (!unicode::is_valid(text)) text = repaired = change_parts(text, plain_at, unicode::replace_invalid);
    if (impl_->unescape_first && text.find(kEscapedSpace) != std::string_view::npos)
        text = unescaped = change_parts(text, plain_at, [](std::string_view part) { return replace_all(part, kEscapedSpace, " "); });

    Encoder encoder(*impl_, options);
    if (options.add_bos) encoder.out = impl_->prefix;
    if (!text.empty()) encoder.run(text);
    if (options.add_bos) encoder.out.insert(encoder.out.end(), impl_->suffix.begin(), impl_->suffix.end());
    return std::move(encoder.out);
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids, bool skip_special) const {
    TokenJoiner joiner(impl_->decoder, true);
    std::string out;
    for (std::int32_t id : ids) {
        TokenKind kind = impl_->vocabulary.kind(id);
        if (!impl_->vocabulary.has(id)) continue;
        if (skip_special && impl_->is_special(id, kind)) continue;
        bool is_byte;
        std::string bytes = impl_->decoder.token_bytes(impl_->vocabulary, id, is_byte);
        joiner.push(bytes, is_byte, out);
    }
    joiner.finish(out);
    return out;
}

std::string Tokenizer::token_bytes(std::int32_t id) const {
    bool is_byte;
    return impl_->decoder.token_bytes(impl_->vocabulary, id, is_byte);
}

std::string Tokenizer::token_text(std::int32_t id) const {
    std::string bytes = token_bytes(id), out;
    for (std::size_t i = 0; i < bytes.size();) {
        unicode::Decoded d = unicode::decode(bytes, i);
        if (d.valid) {
            out.append(bytes, i, d.length);
        } else {
            for (std::size_t k = 0; k < d.length; ++k)
                out += byte_token_text(static_cast<std::uint8_t>(bytes[i + k]));
        }
        i += d.length;
    }
    return out;
}

std::int32_t Tokenizer::size() const { return impl_->vocabulary.size(); }

std::vector<std::string> Tokenizer::special_texts() const {
    std::vector<std::string> out;
    for (const AddedToken& t : impl_->added.all())
        if (t.special) out.push_back(t.content);
    return out;
}

std::optional<std::int32_t> Tokenizer::token_id(std::string_view content) const {
    std::int32_t id = impl_->ids.find(content);
    if (id < 0) return std::nullopt;
    return id;
}

TokenKind Tokenizer::kind(std::int32_t id) const { return impl_->vocabulary.kind(id); }
std::optional<std::int32_t> Tokenizer::bos() const { return impl_->bos; }
std::optional<std::int32_t> Tokenizer::eos() const { return impl_->eos; }
std::optional<std::int32_t> Tokenizer::pad() const { return impl_->pad; }
std::optional<std::int32_t> Tokenizer::unk() const { return impl_->unk; }
bool Tokenizer::adds_bos() const {
    return impl_->bos && !impl_->prefix.empty() && impl_->prefix.front() == *impl_->bos;
}
const std::vector<std::int32_t>& Tokenizer::end_of_generation() const { return impl_->end_of_generation; }

struct StreamDecoder::State {
    std::shared_ptr<const Tokenizer> tokenizer;
    bool skip_special;
    TokenJoiner joiner;
};

StreamDecoder::StreamDecoder(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special) {
    const Decoder& decoder = tokenizer->impl_->decoder;
    state_ = std::make_unique<State>(State{std::move(tokenizer), skip_special, TokenJoiner(decoder, false)});
}
StreamDecoder::~StreamDecoder() = default;
StreamDecoder::StreamDecoder(StreamDecoder&&) noexcept = default;
StreamDecoder& StreamDecoder::operator=(StreamDecoder&&) noexcept = default;

std::string StreamDecoder::push(std::int32_t id) {
    const Tokenizer::Impl& t = *state_->tokenizer->impl_;
    std::string out;
    if (!t.vocabulary.has(id)) return out;
    if (state_->skip_special && t.is_special(id, t.vocabulary.kind(id))) return out;
    bool is_byte;
    std::string bytes = t.decoder.token_bytes(t.vocabulary, id, is_byte);
    state_->joiner.push(bytes, is_byte, out);
    return out;
}

std::string StreamDecoder::finish() {
    std::string out;
    state_->joiner.finish(out);
    state_->joiner = TokenJoiner(state_->tokenizer->impl_->decoder, false);
    return out;
}

}  // namespace forge
