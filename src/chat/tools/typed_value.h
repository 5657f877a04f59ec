// The raw text of an argument (Qwen's XML, GLM) as the value that the tool's schema asks for.
#pragma once

#include "lenient.h"

namespace forge::tools {

// parameters: the tool's schema, or null. Never an error: what fits no type is a string.
Json typed_value(std::string_view raw, const Json& parameters, const std::string& key);

}  // namespace forge::tools
