#include "text.h"

#include <fmt/format.h>

#include <filesystem>
#include <iterator>

namespace forge {
namespace {

// Bytes of the UTF-8 sequence at the start of `text`, 0 when it is malformed.
// Overlong forms and surrogates are not worth telling apart in a message.
std::size_t sequence_length(std::string_view text) {
    const auto lead = static_cast<unsigned char>(text[0]);
    const std::size_t length = lead < 0x80                   ? 1
                               : lead >= 0xc2 && lead < 0xe0 ? 2
                               : lead >= 0xe0 && lead < 0xf0 ? 3
                               : lead >= 0xf0 && lead < 0xf5 ? 4
                                                             : 0;
    if (length == 0 || length > text.size()) return 0;
    for (std::size_t i = 1; i < length; ++i)
        if ((static_cast<unsigned char>(text[i]) & 0xc0) != 0x80) return 0;
    return length;
}

}  // namespace

std::string printable(std::string_view text, std::size_t limit) {
    std::string out;
    while (!text.empty()) {
        if (out.size() >= limit) return out + "...";
        const auto first = static_cast<unsigned char>(text[0]);
        const std::size_t length = sequence_length(text);
        if (length == 0 || first < 0x20 || first == 0x7f) {
            fmt::format_to(std::back_inserter(out), "\\x{:02x}", first);
            text.remove_prefix(1);
        } else {
            out += text.substr(0, length);
            text.remove_prefix(length);
        }
    }
    return out;
}

std::string base_name(std::string_view path) { return std::filesystem::path(path).filename().string(); }

}  // namespace forge
