// Text of floating-point numbers, independent of the locale.
#pragma once

#include <string>
#include <string_view>

namespace forge::jinja {

// Python's repr: the shortest digits that read back the same; 1.0, 1e+16, 1e-05, inf, nan, -0.0.
std::string float_repr(double value);

// A decimal number with optional sign and exponent, rounded to nearest; beyond the
// range of double it is infinite. The caller has checked the syntax.
double parse_double(std::string_view text);

}  // namespace forge::jinja
