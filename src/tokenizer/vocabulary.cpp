#include "vocabulary.h"

#include "base/error.h"

namespace forge {

void TokenTable::set(std::int32_t id, std::string_view text, TokenKind kind) {
    if (id < 0 || id > kMaxId) fail(ErrorKind::internal, "Token id {} is outside 0..{}.", id, kMaxId);
    if (index(id) >= entries_.size()) entries_.resize(index(id) + 1);
    entries_[index(id)] = {arena_.size(), static_cast<std::uint32_t>(text.size()), kind, true};
    arena_.append(text);
}

std::optional<std::uint8_t> byte_token_value(std::string_view text) {
    if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return std::nullopt;
    int value = 0;
    for (char c : text.substr(3, 2)) {
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                           : -1;
        if (digit < 0) return std::nullopt;
        value = value * 16 + digit;
    }
    return static_cast<std::uint8_t>(value);
}

std::string byte_token_text(std::uint8_t byte) { return fmt::format("<0x{:02X}>", byte); }

}  // namespace forge
