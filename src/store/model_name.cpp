#include <algorithm>

#include "store/store.h"

namespace forge {
namespace {

bool alphanumeric(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); }

bool is_word(std::string_view word) {
    return !word.empty() && word.size() <= 128 && alphanumeric(word.front()) &&
           std::all_of(word.begin(), word.end(), [](char c) { return alphanumeric(c) || c == '.' || c == '_' || c == '-'; });
}

}  // namespace

std::optional<ModelName> ModelName::parse(std::string_view text) {
    ModelName out;
    if (const std::size_t colon = text.find(':'); colon != std::string_view::npos) {
        out.tag = text.substr(colon + 1);
        text = text.substr(0, colon);
        if (!is_word(out.tag)) return std::nullopt;
    }
    out.name = text;
    if (out.name.size() + out.tag.size() > 200) return std::nullopt;  // file names have at most 255 bytes
    for (;;) {
        const std::size_t slash = text.find('/');
        if (!is_word(text.substr(0, slash))) return std::nullopt;
        if (slash == std::string_view::npos) return out;
        text.remove_prefix(slash + 1);
    }
}

}  // namespace forge
