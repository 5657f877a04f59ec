#include "jinja/big_int.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "jinja/numbers.h"

namespace forge::jinja {

using Limbs = std::vector<std::uint32_t>;

BigInt::BigInt(std::int64_t value) : negative_(value < 0) {
    std::uint64_t u = value < 0 ? ~static_cast<std::uint64_t>(value) + 1 : static_cast<std::uint64_t>(value);
    for (; u; u /= base_) limbs_.push_back(static_cast<std::uint32_t>(u % base_));
}

void BigInt::trim() {
    while (!limbs_.empty() && limbs_.back() == 0) limbs_.pop_back();
    if (limbs_.empty()) negative_ = false;
}

int BigInt::compare_magnitude(const Limbs& a, const Limbs& b) {
    if (a.size() != b.size()) return a.size() < b.size() ? -1 : 1;
    for (std::size_t i = a.size(); i-- > 0;)
        if (a[i] != b[i]) return a[i] < b[i] ? -1 : 1;
    return 0;
}

std::optional<BigInt> BigInt::parse(std::string_view digits, int base) {
    if (digits.empty() || digits.size() > max_digits * 4) return std::nullopt;
    BigInt out;
    for (char ch : digits) {
        int digit = 99;
        if (ch >= '0' && ch <= '9')
            digit = ch - '0';
        else if (ch >= 'a' && ch <= 'z')
            digit = ch - 'a' + 10;
        else if (ch >= 'A' && ch <= 'Z')
            digit = ch - 'A' + 10;
        if (digit >= base) return std::nullopt;
        std::uint64_t carry = static_cast<std::uint64_t>(digit);
        for (std::uint32_t& limb : out.limbs_) {
            carry += static_cast<std::uint64_t>(limb) * static_cast<std::uint64_t>(base);
            limb = static_cast<std::uint32_t>(carry % base_);
            carry /= base_;
        }
        if (carry) out.limbs_.push_back(static_cast<std::uint32_t>(carry));
        if (out.too_large()) return std::nullopt;
    }
    return out;
}

BigInt BigInt::from_double(double value) {
    const std::string text = fmt::format("{:.0f}", std::trunc(std::fabs(value)));
    BigInt out = *parse(text);  // at most 309 digits
    out.negative_ = value < 0;
    out.trim();
    return out;
}

std::string BigInt::to_string() const {
    if (limbs_.empty()) return "0";
    std::string out = negative_ ? "-" : "";
    out += fmt::format("{}", limbs_.back());
    for (std::size_t i = limbs_.size() - 1; i-- > 0;) out += fmt::format("{:09}", limbs_[i]);
    return out;
}

double BigInt::to_double() const { return parse_double(to_string()); }

std::optional<std::int64_t> BigInt::to_int64() const {
    if (limbs_.size() > 3) return std::nullopt;
    unsigned __int128 u = 0;
    for (std::size_t i = limbs_.size(); i-- > 0;) u = u * base_ + limbs_[i];
    const auto limit = static_cast<unsigned __int128>(1) << 63;
    if (u > limit || (u == limit && !negative_)) return std::nullopt;
    const auto low = static_cast<std::uint64_t>(u);
    return static_cast<std::int64_t>(negative_ ? ~low + 1 : low);
}

BigInt BigInt::operator-() const {
    BigInt out = *this;
    out.negative_ = !negative_ && !limbs_.empty();
    return out;
}

BigInt BigInt::operator+(const BigInt& other) const {
    BigInt out;
    if (negative_ == other.negative_) {
        std::uint64_t carry = 0;
        for (std::size_t i = 0; i < std::max(limbs_.size(), other.limbs_.size()) || carry; ++i) {
            if (i < limbs_.size()) carry += limbs_[i];
            if (i < other.limbs_.size()) carry += other.limbs_[i];
            out.limbs_.push_back(static_cast<std::uint32_t>(carry % base_));
            carry /= base_;
        }
        out.negative_ = negative_;
    } else {
        const bool this_larger = compare_magnitude(limbs_, other.limbs_) >= 0;
        const Limbs& a = this_larger ? limbs_ : other.limbs_;
        const Limbs& b = this_larger ? other.limbs_ : limbs_;
        std::int64_t borrow = 0;
        for (std::size_t i = 0; i < a.size(); ++i) {
            std::int64_t d = static_cast<std::int64_t>(a[i]) - borrow - (i < b.size() ? b[i] : 0);
            borrow = d < 0;
            out.limbs_.push_back(static_cast<std::uint32_t>(d + (borrow ? base_ : 0)));
        }
        out.negative_ = this_larger ? negative_ : other.negative_;
    }
    out.trim();
    return out;
}

BigInt BigInt::operator*(const BigInt& other) const {
    BigInt out;
    out.limbs_.assign(limbs_.size() + other.limbs_.size(), 0);
    for (std::size_t i = 0; i < limbs_.size(); ++i) {
        std::uint64_t carry = 0;
        for (std::size_t j = 0; j < other.limbs_.size() || carry; ++j) {
            carry += out.limbs_[i + j];
            if (j < other.limbs_.size())
                carry += static_cast<std::uint64_t>(limbs_[i]) * static_cast<std::uint64_t>(other.limbs_[j]);
            out.limbs_[i + j] = static_cast<std::uint32_t>(carry % base_);
            carry /= base_;
        }
    }
    out.negative_ = negative_ != other.negative_;
    out.trim();
    return out;
}

BigInt::Division BigInt::divide(const BigInt& divisor) const {
    BigInt magnitude = divisor;
    magnitude.negative_ = false;
    Division out;
    out.quotient.limbs_.assign(limbs_.size(), 0);
    // Long division; each digit of the quotient by bisection.
    for (std::size_t i = limbs_.size(); i-- > 0;) {
        out.remainder.limbs_.insert(out.remainder.limbs_.begin(), limbs_[i]);
        out.remainder.trim();
        std::uint32_t low = 0, high = base_ - 1;
        while (low < high) {
            const std::uint32_t middle = low + (high - low + 1) / 2;
            const BigInt product = magnitude * BigInt(static_cast<std::int64_t>(middle));
            if (compare_magnitude(product.limbs_, out.remainder.limbs_) <= 0)
                low = middle;
            else
                high = middle - 1;
        }
        out.quotient.limbs_[i] = low;
        out.remainder = out.remainder - magnitude * BigInt(static_cast<std::int64_t>(low));
    }
    out.quotient.negative_ = negative_ != divisor.negative_;
    out.remainder.negative_ = negative_;
    out.quotient.trim();
    out.remainder.trim();
    if (!out.remainder.is_zero() && negative_ != divisor.negative_) {
        out.quotient = out.quotient - BigInt(1);
        out.remainder = out.remainder + divisor;
    }
    return out;
}

std::strong_ordering BigInt::operator<=>(const BigInt& other) const {
    if (negative_ != other.negative_)
        return negative_ ? std::strong_ordering::less : std::strong_ordering::greater;
    const int c =
        negative_ ? compare_magnitude(other.limbs_, limbs_) : compare_magnitude(limbs_, other.limbs_);
    return c <=> 0;
}

}  // namespace forge::jinja
