#include "chat/untrusted_text.h"

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace forge {
namespace {

using nlohmann::ordered_json;

void for_each_text(const ordered_json& json, const auto& visit) {
    if (json.is_string()) {
        visit(json.get_ref<const std::string&>());
    } else if (json.is_structured()) {
        for (const ordered_json& member : json) for_each_text(member, visit);
    }
}

// A private-use character of plane 15, so four bytes.
std::string utf8_of(char32_t c) {
    return {static_cast<char>(0xF0 | (c >> 18)), static_cast<char>(0x80 | ((c >> 12) & 63)),
            static_cast<char>(0x80 | ((c >> 6) & 63)), static_cast<char>(0x80 | (c & 63))};
}

// How JSON text with only ASCII spells it: two halves of a surrogate pair.
std::string escaped(std::string_view mark) {
    const auto byte = [&](std::size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(mark[i])); };
    const char32_t c = ((byte(0) & 7) << 18 | (byte(1) & 63) << 12 | (byte(2) & 63) << 6 | (byte(3) & 63)) - 0x10000;
    return fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + static_cast<unsigned>(c >> 10),
                       0xDC00 + static_cast<unsigned>(c & 0x3FF));
}

}  // namespace

SpecialTexts::SpecialTexts(std::vector<std::string> texts) : texts_(std::move(texts)) {
    std::erase(texts_, std::string());
    std::sort(texts_.begin(), texts_.end());
}

// Whether a special text begins here, or `text` ends before it can be told.
bool SpecialTexts::may_begin(std::string_view text) const {
    auto first = texts_.begin(), last = texts_.end();
    for (std::size_t i = 0; first != last; ++i) {
        if (i == text.size() || first->size() == i) return true;
        const auto c = static_cast<unsigned char>(text[i]);
        const auto at = [i](const std::string& s) { return static_cast<unsigned char>(s[i]); };
        first = std::partition_point(first, last, [&](const std::string& s) { return at(s) < c; });
        last = std::partition_point(first, last, [&](const std::string& s) { return at(s) == c; });
    }
    return false;
}

std::string SpecialTexts::marked(std::string_view text, std::string_view mark) const {
    std::string out;
    std::size_t from = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (!may_begin(text.substr(i))) continue;
        out.append(text, from, i - from).append(mark);
        from = i;
    }
    out.append(text, from);
    return out;
}

void mark_texts(ordered_json& json, const SpecialTexts& special, std::string_view mark) {
    if (json.is_string()) {
        std::string& text = json.get_ref<std::string&>();
        text = special.marked(text, mark);
    } else if (json.is_structured()) {
        for (ordered_json& member : json) mark_texts(member, special, mark);
    }
}

std::string unused_mark(const ordered_json& json) {
    constexpr char32_t first = 0xF0000, count = 4096;
    std::vector<bool> used(count);
    for_each_text(json, [&](const std::string& text) {
        for (std::size_t at = text.find("\xF3\xB0"); at != std::string::npos; at = text.find("\xF3\xB0", at + 1))
            if (at + 4 <= text.size())
                used[(text[at + 2] & 63u) << 6 | (text[at + 3] & 63u)] = true;
    });
    for (char32_t i = 0; i < count; ++i)
        if (!used[i]) return utf8_of(first + i);
    fail("The messages use all {} private-use characters from U+F0000 on; one must be left.",
         static_cast<unsigned>(count));
}

std::vector<std::size_t> take_marks(std::string& text, std::string_view mark) {
    const std::string other = escaped(mark);
    std::vector<std::size_t> places;
    std::string out;
    for (std::size_t from = 0;;) {
        const std::size_t plain = text.find(mark, from), json = text.find(other, from);
        const std::size_t at = std::min(plain, json);
        out.append(text, from, at == std::string::npos ? at : at - from);
        if (at == std::string::npos) break;
        if (places.empty() || places.back() != out.size()) places.push_back(out.size());
        from = at + (at == plain ? mark.size() : other.size());
    }
    text = std::move(out);
    return places;
}

}  // namespace forge
