// FNV-1a: names of files and kernels by what they hold. Against accidents, not against intent.
#pragma once

#include <cstdint>
#include <string_view>

namespace forge {

inline std::uint64_t fnv1a(std::string_view text) {
    std::uint64_t hash = 14695981039346656037ull;
    for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ull;
    return hash;
}

}  // namespace forge
