#include "word_borders.h"

#include <algorithm>

namespace forge {
namespace {

char32_t character_before(std::string_view text, std::size_t end) {
    std::size_t begin = end - 1;
    while (begin > 0 && unicode::is_continuation(text[begin])) --begin;
    return unicode::decode(text, begin).code_point;
}

}  // namespace

void WordBorders::note_joiner(std::string_view text, std::size_t end) {
    char32_t c = character_before(text, end);
    auto place = std::lower_bound(joiners_.begin(), joiners_.end(), c);
    if (place == joiners_.end() || *place != c) joiners_.insert(place, c);
}

bool WordBorders::joins(char32_t c) const { return std::binary_search(joiners_.begin(), joiners_.end(), c); }

void WordBorders::note_merge(std::string_view left, std::string_view right) {
    if (!left.empty() && right.starts_with(kEscapedSpace) && !left.ends_with(kEscapedSpace))
        note_joiner(left, left.size());
}

void WordBorders::note_token(std::string_view text) {
    for (std::size_t at = text.find(kEscapedSpace, 1); at != std::string_view::npos;
         at = text.find(kEscapedSpace, at + kEscapedSpace.size())) {
        if (!text.substr(0, at).ends_with(kEscapedSpace)) note_joiner(text, at);
    }
}

std::size_t WordBorders::part_end(std::string_view word, std::size_t from) const {
    if (!enabled_) return word.size();
    for (std::size_t at = word.find(kEscapedSpace, from + 1); at != std::string_view::npos;
         at = word.find(kEscapedSpace, at + kEscapedSpace.size())) {
        if (word.substr(from, at - from).ends_with(kEscapedSpace)) continue;
        if (!joins(character_before(word, at))) return at;
    }
    return word.size();
}

}  // namespace forge
