// Exact decimal numbers, as JSON writes them.
#pragma once

#include <compare>
#include <nlohmann/json.hpp>
#include <string>

namespace forge::grammar {

struct Decimal {
    bool negative = false;
    std::string whole = "0";   // digits without leading zeros
    std::string fraction;      // digits without trailing zeros

    bool zero() const { return whole == "0" && fraction.empty(); }
    std::strong_ordering operator<=>(const Decimal& other) const;
    bool operator==(const Decimal&) const = default;
};

Decimal decimal_of(const nlohmann::ordered_json& number);
std::string to_text(const Decimal& d);

// a / b is a whole number.
bool is_multiple(const Decimal& a, const Decimal& b);

}  // namespace forge::grammar
