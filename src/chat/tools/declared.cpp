// The tools of a request.
#include <algorithm>

#include "block_parts.h"

namespace forge::tools {

Declared::Declared(const Json& list) {
    if (!list.is_array()) return;
    for (const Json& tool : list) {
        const Json& function = tool.is_object() && tool.contains("function") ? tool["function"] : tool;
        if (function.is_object() && function.contains("name") && function["name"].is_string())
            tools.emplace_back(function["name"].get<std::string>(), function.contains("parameters") ? function["parameters"] : Json());
    }
}

bool Declared::has(std::string_view name) const {
    return std::any_of(tools.begin(), tools.end(), [&](const auto& t) { return t.first == name; });
}

const Json& Declared::parameters(std::string_view name) const {
    static const Json none;
    for (const auto& [known, schema] : tools)
        if (known == name) return schema;
    return none;
}

std::string Declared::name(std::string_view written) const {
    written = trimmed(written);
    if (!has(written)) {
        for (const char separator : {'.', ':'}) {
            const std::size_t at = written.rfind(separator);
            if (at != npos && has(written.substr(at + 1))) return std::string(written.substr(at + 1));
        }
        if (const std::size_t marker = written.find('<'); marker != npos && has(trimmed(written.substr(0, marker)))) return std::string(trimmed(written.substr(0, marker)));
    }
    return std::string(written);
}

}  // namespace forge::tools
