// Dates in English, whatever the locale.
#pragma once

#include <ctime>
#include <string>
#include <string_view>

namespace forge::jinja {

// Appends the time formatted as strftime does in the "C" locale. False for a directive it
// does not know, which is then in `unknown`.
bool format_time(std::string_view format, const std::tm& time, std::string& out, std::string& unknown);

}  // namespace forge::jinja
