#include "base/digest.h"

namespace forge {

std::string Digest::hex() const {
    constexpr std::string_view digits = "0123456789abcdef";
    std::string out;
    for (const std::uint8_t byte : bytes) {
        out += digits[byte >> 4];
        out += digits[byte & 15];
    }
    return out;
}

std::string Digest::text() const { return "blake3:" + hex(); }

std::optional<Digest> Digest::parse(std::string_view text) {
    constexpr std::string_view prefix = "blake3:";
    if (text.starts_with(prefix)) text.remove_prefix(prefix.size());
    Digest digest;
    if (text.size() != 2 * digest.bytes.size()) return std::nullopt;
    const auto value = [](char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1; };
    for (std::size_t i = 0; i < digest.bytes.size(); ++i) {
        const int high = value(text[2 * i]), low = value(text[2 * i + 1]);
        if (high < 0 || low < 0) return std::nullopt;
        digest.bytes[i] = static_cast<std::uint8_t>(high * 16 + low);
    }
    return digest;
}

}  // namespace forge
