#include "jinja/numbers.h"

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>

namespace forge::jinja {

std::string float_repr(double value) {
    if (std::isnan(value)) return "nan";
    if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
    char buffer[64];
    const auto end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific).ptr;
    std::string_view text(buffer, static_cast<std::size_t>(end - buffer));
    std::string out;
    if (text.front() == '-') {
        out = "-";
        text.remove_prefix(1);
    }
    const std::size_t e = text.find('e');
    const int exponent = std::atoi(std::string(text.substr(e + 1)).c_str());
    std::string digits;
    for (char c : text.substr(0, e))
        if (c != '.') digits += c;
    const int n = static_cast<int>(digits.size());
    if (exponent < -4 || exponent >= 16) {
        out += digits[0];
        if (n > 1) out += "." + digits.substr(1);
        out += exponent < 0 ? "e-" : "e+";
        const int magnitude = std::abs(exponent);
        if (magnitude < 10) out += '0';
        out += std::to_string(magnitude);
    } else if (exponent < 0) {
        out += "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + digits;
    } else if (n <= exponent + 1) {
        out += digits + std::string(static_cast<std::size_t>(exponent + 1 - n), '0') + ".0";
    } else {
        out += digits.substr(0, static_cast<std::size_t>(exponent + 1)) + "." +
               digits.substr(static_cast<std::size_t>(exponent + 1));
    }
    return out;
}

double parse_double(std::string_view text) {
#if defined(__cpp_lib_to_chars)
    double value = 0;
    if (!text.empty() && text.front() == '+') text.remove_prefix(1);
    const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
    if (result.ec != std::errc::result_out_of_range) return value;
#endif
    // Out of range: strtod tells overflow (infinity) from underflow (zero). Also the way
    // of standard libraries without from_chars for double; the program stays in the "C" locale.
    return std::strtod(std::string(text).c_str(), nullptr);
}

}  // namespace forge::jinja
