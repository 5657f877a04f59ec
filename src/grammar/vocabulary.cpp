#include "grammar/vocabulary.h"

#include <algorithm>

#include "grammar/grammar.h"

namespace forge {

namespace {

// Bytes that no UTF-8 text has: a token with one never fits, and two of them mark special tokens.
bool impossible(std::string_view bytes) {
    return std::any_of(bytes.begin(), bytes.end(), [](char c) {
        const auto b = static_cast<unsigned char>(c);
        return b == 0xC0 || b == 0xC1 || b >= 0xF5;
    });
}

}  // namespace

Vocabulary::Vocabulary(std::shared_ptr<const Tokenizer> tokenizer, std::int32_t limit, std::vector<std::int32_t> ends)
    : tokenizer_(std::move(tokenizer)), bytes_(static_cast<std::size_t>(std::max(0, limit))), ends_(std::move(ends)) {
    for (std::int32_t id = 0; id < limit; ++id) {
        const TokenKind kind = tokenizer_->kind(id);
        if (kind == TokenKind::unused || kind == TokenKind::unknown) continue;
        std::string text = tokenizer_->token_bytes(id);
        if (text.empty() || impossible(text)) continue;
        if (kind == TokenKind::control) {
            specials_.emplace_back(text, id);
            text = Grammar::special_begin + text + Grammar::special_end;
        }
        bytes_[static_cast<std::size_t>(id)] = std::move(text);
    }
    std::sort(specials_.begin(), specials_.end());
    prepare();
}

Vocabulary::Vocabulary(std::vector<std::string> tokens, std::vector<std::int32_t> ends, const std::vector<std::int32_t>& specials) : bytes_(std::move(tokens)), ends_(std::move(ends)) {
    for (std::string& text : bytes_)
        if (impossible(text)) text.clear();
    for (const std::int32_t id : specials) {
        std::string& text = bytes_.at(static_cast<std::size_t>(id));
        specials_.emplace_back(text, id);
        text = Grammar::special_begin + text + Grammar::special_end;
    }
    std::sort(specials_.begin(), specials_.end());
    prepare();
}

void Vocabulary::prepare() {
    std::erase_if(ends_, [&](std::int32_t id) { return id < 0 || static_cast<std::size_t>(id) >= bytes_.size(); });
    for (const std::int32_t id : ends_) bytes_[static_cast<std::size_t>(id)].clear();   // they end and say nothing
    std::vector<std::pair<std::string, std::uint32_t>> strings;
    for (std::uint32_t id = 0; id < bytes_.size(); ++id) strings.emplace_back(bytes_[id], id);
    trie_ = ByteTrie::build(std::move(strings));
    for (std::size_t i = 0; i < lengths.size(); ++i) {
        not_longer_[i].assign(words(), 0);
        for (std::uint32_t id = 0; id < bytes_.size(); ++id)
            if (bytes_[id].size() <= lengths[i]) not_longer_[i][id / 32] |= 1u << (id % 32);
    }
}

const StringTokens& Vocabulary::strings(const Grammar::Text& text) const {
    std::lock_guard lock(strings_mutex_);
    auto& tokens = strings_[{text.first, text.second}];
    if (!tokens) tokens = std::make_unique<StringTokens>(bytes_, text);
    return *tokens;
}

bool Vocabulary::special(std::string_view text) const {
    const auto it = std::lower_bound(specials_.begin(), specials_.end(), text, [](const auto& s, std::string_view t) { return s.first < t; });
    return it != specials_.end() && it->first == text;
}

std::vector<std::int32_t> Vocabulary::encode(std::string_view text) const {
    std::vector<std::int32_t> ids;
    if (!tokenizer_) return ids;
    for (std::size_t at = 0; at < text.size();) {
        if (text[at] == Grammar::special_begin) {
            const std::size_t end = text.find(Grammar::special_end, at);
            if (end == std::string_view::npos) return ids;
            const std::string_view name = text.substr(at + 1, end - at - 1);
            const auto it = std::lower_bound(specials_.begin(), specials_.end(), name, [](const auto& s, std::string_view t) { return s.first < t; });
            if (it == specials_.end() || it->first != name) return ids;
            ids.push_back(it->second);
            at = end + 1;
            continue;
        }
        const std::string_view plain = text.substr(at, text.find(Grammar::special_begin, at) - at);
        std::string back;
        const std::vector<std::int32_t> part = tokenizer_->encode(plain);
        for (const std::int32_t id : part) {
            if (id < 0 || static_cast<std::size_t>(id) >= bytes_.size()) return ids;
            back += bytes_[static_cast<std::size_t>(id)];
        }
        if (back != plain) return ids;
        ids.insert(ids.end(), part.begin(), part.end());
        at += plain.size();
    }
    return ids;
}

}  // namespace forge
