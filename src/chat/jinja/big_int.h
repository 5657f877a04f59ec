// Integers of any size, for the JSON numbers and template arithmetic that leave 64 bits.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace forge::jinja {

class BigInt {
  public:
    // As Python: numbers of more decimal digits cannot be printed, so none are made.
    static constexpr std::size_t max_digits = 4300;

    BigInt() = default;
    explicit BigInt(std::int64_t value);
    // Digits of the given base (2..16), without sign or separators. Empty optional
    // when a character is no digit or the number has more than max_digits.
    static std::optional<BigInt> parse(std::string_view digits, int base = 10);
    // The integer part of a finite number.
    static BigInt from_double(double value);

    std::string to_string() const;
    double to_double() const;                      // nearest; infinite beyond the range of double
    std::optional<std::int64_t> to_int64() const;  // empty when it does not fit
    bool is_zero() const { return limbs_.empty(); }
    bool is_negative() const { return negative_; }
    bool is_odd() const { return !limbs_.empty() && limbs_[0] % 2 != 0; }
    std::size_t size() const { return limbs_.size(); }  // limbs of 9 digits
    bool too_large() const { return limbs_.size() > max_digits / 9 + 1; }

    BigInt operator-() const;
    BigInt operator+(const BigInt& other) const;
    BigInt operator-(const BigInt& other) const { return *this + -other; }
    BigInt operator*(const BigInt& other) const;
    // Quotient rounded towards minus infinity and the remainder of the divisor's sign.
    // The divisor is not zero.
    struct Division;
    Division divide(const BigInt& divisor) const;

    std::strong_ordering operator<=>(const BigInt& other) const;
    bool operator==(const BigInt& other) const = default;

  private:
    static constexpr std::uint32_t base_ = 1'000'000'000;
    static int compare_magnitude(const std::vector<std::uint32_t>& a, const std::vector<std::uint32_t>& b);
    void trim();

    bool negative_ = false;             // never for zero
    std::vector<std::uint32_t> limbs_;  // base 10^9, least significant first, no leading zeros
};

struct BigInt::Division {
    BigInt quotient, remainder;
};

}  // namespace forge::jinja
