#include "grammar/vocabulary.h"

#include <algorithm>
#include <map>

#include "grammar/grammar.h"
#include "json_text.h"

namespace forge {

ByteTrie ByteTrie::build(std::vector<std::pair<std::string, std::uint32_t>> strings) {
    std::erase_if(strings, [](const auto& s) { return s.first.empty() || s.first.size() > 65'000; });
    std::sort(strings.begin(), strings.end());
    ByteTrie t;
    std::vector<std::uint32_t> path;   // nodes of the string before
    std::string_view before;
    for (const auto& [text, item] : strings) {
        std::size_t common = 0;
        while (common < std::min(before.size(), text.size()) && before[common] == text[common]) ++common;
        while (path.size() > common) {
            t.nodes[path.back()].end = static_cast<std::uint32_t>(t.nodes.size());
            path.pop_back();
        }
        for (std::size_t i = common; i < text.size(); ++i) {
            path.push_back(static_cast<std::uint32_t>(t.nodes.size()));
            t.nodes.push_back({0, 0, 0, static_cast<std::uint16_t>(i + 1), static_cast<std::uint8_t>(text[i])});
        }
        Node& last = t.nodes[path.back()];
        if (last.count++ == 0) last.first = static_cast<std::uint32_t>(t.items.size());
        t.items.push_back(item);
        before = text;
    }
    for (const std::uint32_t n : path) t.nodes[n].end = static_cast<std::uint32_t>(t.nodes.size());
    return t;
}

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

Vocabulary::Vocabulary(std::vector<std::string> tokens, std::vector<std::int32_t> ends) : bytes_(std::move(tokens)), ends_(std::move(ends)) {
    for (std::string& text : bytes_)
        if (impossible(text)) text.clear();
    prepare();
}

void Vocabulary::prepare() {
    std::erase_if(ends_, [&](std::int32_t id) { return id < 0 || static_cast<std::size_t>(id) >= bytes_.size(); });
    for (const std::int32_t id : ends_) bytes_[static_cast<std::size_t>(id)].clear();   // they end and say nothing
    std::vector<std::pair<std::string, std::uint32_t>> strings;
    std::map<std::string, std::vector<Inside>> groups;
    for (std::uint32_t id = 0; id < bytes_.size(); ++id) {
        const std::string& text = bytes_[id];
        strings.emplace_back(text, id);
        std::uint8_t state = grammar::text_ground;
        std::uint32_t characters = 0;
        std::size_t i = 0;
        grammar::TextStep step{grammar::TextStep::inside, 0, false};
        for (; i < text.size() && step.kind == grammar::TextStep::inside; ++i) {
            step = grammar::text_step(state, static_cast<unsigned char>(text[i]));
            state = step.state;
            characters += step.begins;
        }
        if (text.empty() || step.kind == grammar::TextStep::dead) continue;
        if (step.kind == grammar::TextStep::inside) inside_.push_back({characters, id});
        else if (i == text.size()) closing_exactly_.push_back({characters, id});
        else groups[text.substr(i)].push_back({characters, id});
    }
    trie_ = ByteTrie::build(std::move(strings));
    std::stable_sort(inside_.begin(), inside_.end(), [](const Inside& a, const Inside& b) { return a.characters < b.characters; });
    inside_all_.assign(words(), 0);
    for (std::uint32_t n = 0, next = 0; n <= most_characters; ++n) {
        for (; next < inside_.size() && inside_[next].characters <= n; ++next) inside_all_[inside_[next].id / 32] |= 1u << (inside_[next].id % 32);
        inside_masks_.push_back(inside_all_);
    }
    for (const Inside& t : inside_) inside_all_[t.id / 32] |= 1u << (t.id % 32);
    std::vector<std::pair<std::string, std::uint32_t>> suffixes;
    for (auto& [suffix, tokens] : groups) {
        suffixes.emplace_back(suffix, static_cast<std::uint32_t>(closing_.size()));
        closing_.push_back(std::move(tokens));
    }
    after_quote_ = ByteTrie::build(std::move(suffixes));
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
