// Values as models write them: JSON, or nearly.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace forge::tools {

using Json = nlohmann::ordered_json;

struct LenientOptions {
    std::string_view quote;   // a text that begins and ends strings without escapes in them, or empty
};

// A value at the beginning of `text`; `used` is its length. Besides JSON: single quotes, line ends and unknown
// escapes in strings (kept as they are), True, False, None, bare names of members, trailing commas, tuples.
std::optional<Json> lenient_value(std::string_view text, std::size_t& used, const LenientOptions& options = {});

// name(key=value, ...) at the beginning of `text`.
struct PythonCall { std::string name; Json arguments; };
std::optional<PythonCall> python_call(std::string_view text, std::size_t& used);

// Where the value that begins at text[0], a { or [, ends (the byte after it); npos when it does not.
// Brackets in strings between double quotes do not count.
std::size_t balanced_end(std::string_view text);

// With the brackets that are missing at the end; nullopt when it ends in a string or has other faults.
std::optional<std::string> closed(std::string_view text);

std::string_view trimmed(std::string_view text);
bool is_white(char c);
std::size_t skip_white(std::string_view text, std::size_t at);

}  // namespace forge::tools
