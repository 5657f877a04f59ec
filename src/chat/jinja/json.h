// JSON text and values. Unlike the library's type, a Value keeps the difference between 1
// and 1.0, -0.0, and integers of any size.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "jinja/value.h"

namespace forge::jinja {

class Evaluator;

// Fails with the position on malformed text. NaN, Infinity and -Infinity are accepted, as
// Python's reader does; lone surrogate escapes become U+FFFD; of equal keys the last counts.
Value read_json(Heap& heap, std::string_view text);
Value from_json(Heap& heap, const nlohmann::ordered_json& json);

struct JsonStyle {
    bool ascii = false;                 // \u escapes for everything beyond ASCII
    std::optional<std::string> indent;  // of one level; absent: one line
    std::string item_separator = ", ";
    std::string key_separator = ": ";
    bool sort_keys = false;
};
std::string write_json(Evaluator& ev, const Value& value, const JsonStyle& style);

}  // namespace forge::jinja
