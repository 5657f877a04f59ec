// Small things about text that several rooms need.
#pragma once

#include <string>
#include <string_view>

namespace forge {

// A to Z as a to z, everything else as it is: for names in protocols, not for people's words.
std::string ascii_lower(std::string_view text);

// The environment variable, empty when it is not set.
std::string environment(const char* name);

}  // namespace forge
