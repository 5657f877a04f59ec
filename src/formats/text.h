// Text from a file, made fit for a message.
#pragma once

#include <string>
#include <string_view>

namespace forge {

// Control characters and bytes that are not UTF-8 become \xNN; long text is cut with "...".
std::string printable(std::string_view text, std::size_t limit = 80);

// The last component of a path, for messages.
std::string base_name(std::string_view path);

}  // namespace forge
