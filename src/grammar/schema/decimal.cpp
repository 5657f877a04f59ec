#include "decimal.h"

#include <fmt/format.h>

#include <algorithm>

namespace forge::grammar {
namespace {

std::strong_ordering compare_sizes(const Decimal& a, const Decimal& b) {
    if (a.whole.size() != b.whole.size()) return a.whole.size() <=> b.whole.size();
    if (const int c = a.whole.compare(b.whole); c != 0) return c <=> 0;
    return a.fraction.compare(b.fraction) <=> 0;
}

}  // namespace

std::strong_ordering Decimal::operator<=>(const Decimal& other) const {
    if (negative != other.negative) return negative ? std::strong_ordering::less : std::strong_ordering::greater;
    return negative ? compare_sizes(other, *this) : compare_sizes(*this, other);
}

Decimal decimal_of(const nlohmann::ordered_json& number) {
    std::string text = number.is_number_float() ? fmt::format("{}", number.get<double>()) : number.dump();
    Decimal d;
    if (text.starts_with('-')) {
        d.negative = true;
        text.erase(0, 1);
    }
    int exponent = 0;
    if (const std::size_t e = text.find('e'); e != std::string::npos) {
        exponent = std::stoi(text.substr(e + 1));
        text.resize(e);
    }
    std::string digits = text;
    std::size_t point = digits.find('.');
    if (point == std::string::npos) point = digits.size();
    else digits.erase(point, 1);
    std::ptrdiff_t at = static_cast<std::ptrdiff_t>(point) + exponent;
    if (at < 0) digits.insert(0, static_cast<std::size_t>(-at), '0'), at = 0;
    if (at > static_cast<std::ptrdiff_t>(digits.size())) digits.append(static_cast<std::size_t>(at) - digits.size(), '0');
    d.whole = digits.substr(0, static_cast<std::size_t>(at));
    d.fraction = digits.substr(static_cast<std::size_t>(at));
    d.whole.erase(0, d.whole.find_first_not_of('0'));
    if (d.whole.empty()) d.whole = "0";
    d.fraction.erase(d.fraction.find_last_not_of('0') + 1);
    if (d.zero()) d.negative = false;
    return d;
}

std::string to_text(const Decimal& d) { return (d.negative ? "-" : "") + d.whole + (d.fraction.empty() ? "" : "." + d.fraction); }

bool is_multiple(const Decimal& a, const Decimal& b) {
    if (b.zero()) return false;
    const std::size_t scale = std::max(a.fraction.size(), b.fraction.size());
    const auto scaled = [&](const Decimal& d) { return d.whole + d.fraction + std::string(scale - d.fraction.size(), '0'); };
    std::string divisor = scaled(b);
    divisor.erase(0, divisor.find_first_not_of('0'));
    // Long division; the divisor fits a machine word in every schema that is accepted.
    if (divisor.size() > 18) return a.zero();
    const unsigned long long m = std::stoull(divisor);
    unsigned __int128 rest = 0;
    for (const char c : scaled(a)) rest = (rest * 10 + static_cast<unsigned>(c - '0')) % m;
    return rest == 0;
}

}  // namespace forge::grammar
