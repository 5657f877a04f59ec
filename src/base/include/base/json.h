// JSON from outside. nlohmann's parser takes any depth, but whoever walks, copies or prints a
// document recurses, so one of a million brackets would overflow the stack: it is refused here.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "base/error.h"

namespace forge {

inline constexpr int kMaxJsonDepth = 100;

// `text` as a document, or a discarded value where it is no JSON and `invalid_throws` is false
// (J::parse_error otherwise). Error, naming `where`, when it is nested more than kMaxJsonDepth deep.
template <typename J>
J parse_json(std::string_view text, std::string_view where, bool invalid_throws) {
    const auto limit = [&](int depth, typename J::parse_event_t event, J&) {
        using Event = typename J::parse_event_t;
        if (depth >= kMaxJsonDepth && (event == Event::object_start || event == Event::array_start))
            fail("{}: the JSON is nested more than {} levels deep, which nothing here needs", where,
                 kMaxJsonDepth);
        return true;
    };
    return J::parse(text.begin(), text.end(), limit, invalid_throws);
}

}  // namespace forge
