#include "decoder.h"

#include "byte_alphabet.h"
#include "normalizer.h"
#include "unicode.h"

namespace forge {

std::string Decoder::token_bytes(const TokenTable& vocabulary, std::int32_t id, bool& is_byte) const {
    is_byte = false;
    if (!vocabulary.has(id)) return {};
    std::string text(vocabulary.text(id));
    TokenKind kind = vocabulary.kind(id);
    if (literal_added &&
        (kind == TokenKind::control || kind == TokenKind::user_defined || kind == TokenKind::unknown))
        return text;
    if (byte_level) {
        std::string out;
        byte_alphabet::append_unmapped(out, text);
        return out;
    }
    for (const Replacement& r : replacements) text = replace_all(text, r.from, r.to);
    if (byte_fallback && (!literal_added || kind == TokenKind::byte)) {
        if (auto value = byte_token_value(text)) {
            is_byte = true;
            return std::string(1, static_cast<char>(*value));
        }
    }
    return text;
}

void TokenJoiner::emit(std::string_view text, std::string& out) {
    if (at_start_ && decoder_->strip_count && !decoder_->strip_first_token) {
        while (stripped_ < decoder_->strip_count && text.starts_with(decoder_->strip)) {
            text.remove_prefix(decoder_->strip.size());
            ++stripped_;
        }
    }
    if (!text.empty()) at_start_ = false;
    out += text;
}

// Byte-level: text is what is valid, ill-formed subparts are replaced; the
// beginning of a sequence waits for the rest unless this is the end.
void TokenJoiner::drain(std::string& out, bool last) {
    std::string text;
    std::size_t i = 0;
    while (i < pending_.size()) {
        unicode::Decoded d = unicode::decode(pending_, i);
        if (d.incomplete && !last) break;
        if (d.valid) {
            text.append(pending_, i, d.length);
            i += d.length;
        } else {
            // A run of byte tokens gives one replacement per byte.
            std::size_t n = byte_run_ ? 1 : d.length;
            unicode::append(text, unicode::kReplacement);
            i += n;
        }
    }
    pending_.erase(0, i);
    emit(text, out);
}

void TokenJoiner::flush_byte_run(std::string& out) {
    if (!byte_run_) return;
    if (whole_ && !unicode::is_valid(pending_)) {
        std::string text;
        for (std::size_t i = 0; i < pending_.size(); ++i) unicode::append(text, unicode::kReplacement);
        pending_.clear();
        emit(text, out);
    } else {
        drain(out, true);
    }
    byte_run_ = false;
}

void TokenJoiner::push(std::string_view bytes, bool is_byte, std::string& out) {
    if (!is_byte) flush_byte_run(out);
    if (is_byte && !byte_run_) {
        drain(out, true);
        byte_run_ = true;
    }
    std::string_view strip = decoder_->strip;
    if (first_token_ && decoder_->strip_first_token && !strip.empty()) {
        std::string kept = replace_all(bytes, strip, "");
        pending_ += kept;
    } else {
        pending_ += bytes;
    }
    first_token_ = false;
    if (!whole_ || !is_byte) drain(out, false);
}

void TokenJoiner::finish(std::string& out) {
    flush_byte_run(out);
    drain(out, true);
}

}  // namespace forge
