// The formats of strings that are checked, as patterns.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace forge::grammar {

struct FormatRule {
    enum Kind { ignored, pattern, refused } kind = ignored;   // ignored: no format of JSON Schema, only a remark
    std::vector<std::string> patterns;                         // all must match
};

FormatRule format_rule(std::string_view name);

}  // namespace forge::grammar
