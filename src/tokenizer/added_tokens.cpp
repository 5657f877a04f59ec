#include "added_tokens.h"

#include <algorithm>

#include "unicode.h"

namespace forge {
namespace {

// The character that ends at `end`, and where it begins.
char32_t before(std::string_view text, std::size_t end, std::size_t& begin) {
    begin = end - 1;
    while (begin > 0 && unicode::is_continuation(text[begin])) --begin;
    std::uint32_t length;
    return unicode::decode_valid(text, begin, length);
}

bool word_before(std::string_view text, std::size_t end) {
    std::size_t begin;
    return end > 0 && unicode::is_word(before(text, end, begin));
}

bool word_after(std::string_view text, std::size_t at) {
    std::uint32_t length;
    return at < text.size() && unicode::is_word(unicode::decode_valid(text, at, length));
}

}  // namespace

void AddedTokens::add(AddedToken token) {
    std::int32_t index = by_content_.find(token.content);
    if (index >= 0) {
        tokens_[static_cast<std::size_t>(index)] = std::move(token);
        return;
    }
    by_content_.add(token.content, static_cast<std::int32_t>(tokens_.size()));
    by_id_.emplace(token.id, tokens_.size());
    tokens_.push_back(std::move(token));
}

const AddedToken* AddedTokens::find(std::string_view content) const {
    std::int32_t index = by_content_.find(content);
    return index < 0 ? nullptr : &tokens_[static_cast<std::size_t>(index)];
}

const AddedToken* AddedTokens::find(std::int32_t id) const {
    auto entry = by_id_.find(id);
    return entry == by_id_.end() ? nullptr : &tokens_[entry->second];
}

void AddedTokens::Trie::insert(std::string_view content, std::int32_t token) {
    if (content.empty()) return;
    if (nodes.empty()) nodes.emplace_back();
    std::uint32_t node = 0;
    for (char c : content) {
        auto byte = static_cast<unsigned char>(c);
        auto& next = nodes[node].next;
        auto place = std::lower_bound(next.begin(), next.end(), byte,
                                      [](auto& e, unsigned char b) { return e.first < b; });
        if (place != next.end() && place->first == byte) {
            node = place->second;
            continue;
        }
        auto fresh = static_cast<std::uint32_t>(nodes.size());
        next.insert(place, {byte, fresh});
        if (node == 0) first[byte] = fresh;
        nodes.emplace_back();
        node = fresh;
    }
    if (nodes[node].token < 0) nodes[node].token = token;
}

std::int32_t AddedTokens::Trie::longest(std::string_view text, std::size_t at, std::size_t& length) const {
    std::int32_t found = -1;
    std::uint32_t node = first[static_cast<unsigned char>(text[at])];
    for (std::size_t i = at + 1; node; ++i) {
        if (nodes[node].token >= 0) found = nodes[node].token, length = i - at;
        if (i >= text.size()) break;
        auto byte = static_cast<unsigned char>(text[i]);
        const auto& next = nodes[node].next;
        auto place = std::lower_bound(next.begin(), next.end(), byte,
                                      [](auto& e, unsigned char b) { return e.first < b; });
        node = place != next.end() && place->first == byte ? place->second : 0;
    }
    return found;
}

void AddedTokens::finish(const Normalizer& normalizer) {
    RegexScratch scratch;
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
        const AddedToken& t = tokens_[i];
        std::string content = t.normalized && !t.verbatim ? normalizer.apply(t.content, scratch) : t.content;
        tries_[t.normalized].insert(content, static_cast<std::int32_t>(i));
    }
}

void AddedTokens::find(std::string_view text, bool normalized, bool parse_special,
                       std::span<const std::size_t> plain_at, std::vector<Match>& out) const {
    const Trie& trie = tries_[normalized];
    if (trie.nodes.empty()) return;
    // End of the last match, white space that it absorbed included. A token that
    // lies in absorbed white space still matches, as in the reference, and what
    // follows it is text again: `taken` may step back.
    std::size_t taken = 0;
    for (std::size_t at = 0; at < text.size();) {
        std::size_t length = 0;
        std::int32_t index = trie.longest(text, at, length);
        if (index < 0) {
            ++at;
            continue;
        }
        const AddedToken& t = tokens_[static_cast<std::size_t>(index)];
        std::size_t begin = at, end = at + length;
        at = end;
        if (t.special && (!parse_special || std::binary_search(plain_at.begin(), plain_at.end(), begin))) continue;
        if (t.single_word && (word_before(text, begin) || word_after(text, end))) continue;
        if (t.lstrip) {
            for (std::size_t start; begin > taken && unicode::is_white_space(before(text, begin, start));)
                begin = start;
        }
        if (t.rstrip) {
            std::uint32_t n;
            while (end < text.size() && unicode::is_white_space(unicode::decode_valid(text, end, n)))
                end += n;
        }
        out.push_back({begin, end, t.id});
        taken = end;
    }
}

}  // namespace forge
