#include <cmath>
#include <cstdio>

#include "jinja/filters.h"
#include "jinja/numbers.h"

namespace forge::jinja::filters {

Value default_(Evaluator& ev, const Value& input, Arguments& arguments) {
    const auto a = bind(ev, "default", arguments, {"default_value", "boolean"});
    if (input.is_undefined() || (a[1] && truthy(*a[1]) && !truthy(input)))
        return a[0] ? *a[0] : ev.string("");
    return input;
}

// The attribute only, never an item.
Value attr(Evaluator& ev, const Value& input, Arguments& arguments) {
    const auto a = bind(ev, "attr", arguments, {"name"}, 1);
    const std::string name = to_string_argument(ev, "attr", *a[0]);
    ev.need_defined(input);
    if (input.is(Kind::dict) && !find_method(ev, input, name))
        return make_undefined(ev.heap(), fmt::format("a dict has no attribute '{}'", name));
    return ev.attribute(input, name);
}

namespace {

// The integer part of a float; nothing for NaN and infinities.
std::optional<BigInt> whole(double d) {
    if (!std::isfinite(d)) return std::nullopt;
    return BigInt::from_double(d);
}

}  // namespace

Value int_(Evaluator& ev, const Value& input, Arguments& arguments) {
    const auto a = bind(ev, "int", arguments, {"default", "base"});
    const Value otherwise = a[0] ? *a[0] : Value::integer(0);
    const std::int64_t base = a[1] ? to_index(ev, "int", *a[1]) : 10;
    if (base != 0 && (base < 2 || base > 36)) return otherwise;
    ev.need_defined(input);
    if (input.is_int_like()) return make_int(ev.heap(), input.to_big());
    std::optional<BigInt> value;
    if (input.is_string()) {
        ev.heap().work(input.text().size() * 16);
        value = parse_int(input.text(), static_cast<int>(base));
        // "3.7" is 3.
        if (!value)
            if (const auto d = parse_float(input.text())) value = whole(*d);
    } else if (input.is(Kind::real)) {
        if (std::isinf(input.as_real())) ev.fail("an infinite float is no integer");
        value = whole(input.as_real());
    }
    return value ? make_int(ev.heap(), std::move(*value)) : otherwise;
}

Value float_(Evaluator& ev, const Value& input, Arguments& arguments) {
    const auto a = bind(ev, "float", arguments, {"default"});
    const Value otherwise = a[0] ? *a[0] : Value::real(0.0);
    ev.need_defined(input);
    if (input.is(Kind::real)) return input;
    if (input.is(Kind::big_integer)) {
        const double d = input.big().to_double();
        if (std::isinf(d)) ev.fail("an integer is too large for a float");
        return Value::real(d);
    }
    if (input.is_int_like()) return Value::real(static_cast<double>(input.as_int()));
    if (input.is_string()) {
        ev.heap().work(input.text().size() * 4);
        if (const auto d = parse_float(input.text())) return Value::real(*d);
    }
    return otherwise;
}

Value abs(Evaluator& ev, const Value& input, Arguments& arguments) {
    bind(ev, "abs", arguments, {});
    ev.need_defined(input);
    if (input.is(Kind::real)) return Value::real(std::fabs(input.as_real()));
    if (!input.is_int_like())
        ev.fail("'abs' needs a number, but it is given {}", indefinite_type_name(input));
    BigInt value = input.to_big();
    return make_int(ev.heap(), value.is_negative() ? -value : value);
}

Value round(Evaluator& ev, const Value& input, Arguments& arguments) {
    const auto a = bind(ev, "round", arguments, {"precision", "method"});
    const std::int64_t precision = a[0] ? to_index(ev, "round", *a[0]) : 0;
    const std::string method = a[1] ? ev.text(*a[1]) : "common";
    if (method != "common" && method != "ceil" && method != "floor")
        ev.fail("'round' knows the methods common, ceil and floor, not '{}'", method);
    ev.need_defined(input);
    if (!input.is_number())
        ev.fail("'round' needs a number, but it is given {}", indefinite_type_name(input));
    if (precision < -400 || precision > 400)
        ev.fail("'round' needs a precision between -400 and 400, not {}", precision);
    if (method == "common" && input.is_int_like()) {
        if (precision >= 0) return make_int(ev.heap(), input.to_big());
        // To a multiple of 10^-precision; a tie goes to the even multiple.
        const BigInt unit = *BigInt::parse("1" + std::string(static_cast<std::size_t>(-precision), '0'));
        const BigInt::Division d = input.to_big().divide(unit);
        const BigInt twice = d.remainder + d.remainder;
        const bool up = twice > unit || (twice == unit && d.quotient.is_odd());
        return make_int(ev.heap(), (up ? d.quotient + BigInt(1) : d.quotient) * unit);
    }
    const double value = input.is(Kind::real)          ? input.as_real()
                         : input.is(Kind::big_integer) ? input.big().to_double()
                                                       : static_cast<double>(input.as_int());
    if (!std::isfinite(value)) {
        if (method == "common") return Value::real(value);
        ev.fail("an infinite float cannot be rounded");
    }
    const double scale = std::pow(10.0, static_cast<double>(precision));
    if (method != "common")
        return Value::real((method == "ceil" ? std::ceil(value * scale) : std::floor(value * scale)) / scale);
    if (precision < 0) return Value::real(std::nearbyint(value * scale) / scale);
    // Printing rounds the exact value, ties to even.
    char buffer[800];
    std::snprintf(buffer, sizeof buffer, "%.*f", static_cast<int>(precision), value);
    return Value::real(parse_double(buffer));
}

}  // namespace forge::jinja::filters
