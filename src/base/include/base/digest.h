// The name of a blob: the BLAKE3 of its bytes. Only the store computes one; everybody may carry it.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace forge {

struct Digest {
    std::array<std::uint8_t, 32> bytes{};

    std::string hex() const;                 // 64 lower-case digits
    std::string text() const;                // "blake3:" and those
    // From either spelling; nullopt for anything else (upper-case digits too: a digest has one spelling).
    static std::optional<Digest> parse(std::string_view text);
    auto operator<=>(const Digest&) const = default;
};

}  // namespace forge
