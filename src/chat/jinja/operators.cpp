#include <algorithm>
#include <cmath>

#include "jinja/evaluator.h"
#include "jinja/numbers.h"
#include "jinja/unicode.h"

namespace forge::jinja {

void Evaluator::bad_operands(std::string_view op, const Value& a, const Value& b) {
    need_defined(a);
    need_defined(b);
    fail("{} {} {} is not possible", indefinite_type_name(a), op, indefinite_type_name(b));
}

double Evaluator::to_real(const Value& number) {
    if (number.is(Kind::real)) return number.as_real();
    if (!number.is(Kind::big_integer)) return static_cast<double>(number.as_int());
    const double d = number.big().to_double();
    if (std::isinf(d)) fail("an integer is too large for a float");
    return d;
}

Value Evaluator::binary(std::string_view op, const Value& a, const Value& b) {
    if (op == "+") return add(a, b);
    if (op == "*") return multiply(a, b);
    if (op == "-") {
        if (!a.is_number() || !b.is_number()) bad_operands(op, a, b);
        if (a.is(Kind::real) || b.is(Kind::real)) return Value::real(to_real(a) - to_real(b));
        std::int64_t r = 0;
        if (!a.is(Kind::big_integer) && !b.is(Kind::big_integer) &&
            !__builtin_sub_overflow(a.as_int(), b.as_int(), &r))
            return Value::integer(r);
        return make_int(heap_, a.to_big() - b.to_big());
    }
    if (op == "**") return power(a, b);
    if (op == "%" && a.is_string()) {
        return string(percent_format(*this, a.text(), b), a.safe());
    }
    return divide(op, a, b);
}

Value Evaluator::add(const Value& a, const Value& b) {
    if (a.is_string() && b.is_string()) {
        check_size(a.text().size() + b.text().size());
        heap_.work(a.text().size() + b.text().size());
        if (a.safe() || b.safe()) return string(escaped_text(*this, a) + escaped_text(*this, b), true);
        return string(a.text() + b.text());
    }
    if (a.is_number() && b.is_number()) {
        if (a.is(Kind::real) || b.is(Kind::real)) return Value::real(to_real(a) + to_real(b));
        std::int64_t r = 0;
        if (!a.is(Kind::big_integer) && !b.is(Kind::big_integer) &&
            !__builtin_add_overflow(a.as_int(), b.as_int(), &r))
            return Value::integer(r);
        BigInt sum = a.to_big() + b.to_big();
        if (sum.too_large()) fail("an integer has more than {} digits", BigInt::max_digits);
        return make_int(heap_, std::move(sum));
    }
    if (a.is_sequence_object() && a.kind() == b.kind()) {
        const Values &x = a.list().items, &y = b.list().items;
        check_size((x.size() + y.size()) * sizeof(Value));
        heap_.step(x.size() + y.size());
        Values items = x;
        items.insert(items.end(), y.begin(), y.end());
        return a.is(Kind::list) ? make_list(heap_, std::move(items), false)
                                : make_tuple(heap_, std::move(items));
    }
    bad_operands("+", a, b);
}

Value Evaluator::repeat(const Value& sequence, const Value& count) {
    if (count.is(Kind::big_integer)) fail("a text or list cannot be repeated so often");
    const auto n = static_cast<std::size_t>(std::max<std::int64_t>(count.as_int(), 0));
    const std::size_t size =
        sequence.is_string() ? sequence.text().size() : sequence.list().items.size() * sizeof(Value);
    if (size != 0 && n > heap_.limits().memory / size) check_size(heap_.limits().memory + 1);
    check_size(n * size);
    heap_.work(n * size);
    if (sequence.is_string()) {
        std::string out;
        if (size == 0) return string({}, sequence.safe());
        out.reserve(n * size);
        for (std::size_t i = 0; i < n; ++i) out += sequence.text();
        return string(std::move(out), sequence.safe());
    }
    Values items;
    if (size != 0)
        for (std::size_t i = 0; i < n; ++i)
            items.insert(items.end(), sequence.list().items.begin(), sequence.list().items.end());
    return sequence.is(Kind::list) ? make_list(heap_, std::move(items), false)
                                   : make_tuple(heap_, std::move(items));
}

Value Evaluator::multiply(const Value& a, const Value& b) {
    if (a.is_number() && b.is_number()) {
        if (a.is(Kind::real) || b.is(Kind::real)) return Value::real(to_real(a) * to_real(b));
        std::int64_t r = 0;
        if (!a.is(Kind::big_integer) && !b.is(Kind::big_integer) &&
            !__builtin_mul_overflow(a.as_int(), b.as_int(), &r))
            return Value::integer(r);
        const BigInt x = a.to_big(), y = b.to_big();
        heap_.step(x.size() * y.size() / 16 + 1);
        if (x.size() + y.size() > BigInt::max_digits / 9 + 2)
            fail("an integer has more than {} digits", BigInt::max_digits);
        return make_int(heap_, x * y);
    }
    if ((a.is_string() || a.is_sequence_object()) && b.is_int_like()) return repeat(a, b);
    if ((b.is_string() || b.is_sequence_object()) && a.is_int_like()) return repeat(b, a);
    bad_operands("*", a, b);
}

// "/", "//" and "%" with Python's signs: the remainder has the sign of the divisor.
Value Evaluator::divide(std::string_view op, const Value& a, const Value& b) {
    if (!a.is_number() || !b.is_number()) bad_operands(op, a, b);
    const bool zero = b.is(Kind::real) ? b.as_real() == 0 : b.to_big().is_zero();
    if (zero) fail("division by zero");
    if (op == "/") return Value::real(to_real(a) / to_real(b));
    if (a.is(Kind::real) || b.is(Kind::real)) {
        const double x = to_real(a), y = to_real(b);
        double remainder = std::fmod(x, y);
        double quotient = (x - remainder) / y;
        if (remainder != 0) {
            if ((y < 0) != (remainder < 0)) {
                remainder += y;
                quotient -= 1;
            }
        } else {
            remainder = std::copysign(0.0, y);
        }
        if (op == "%") return Value::real(remainder);
        if (quotient == 0) return Value::real(std::copysign(0.0, x / y));
        double whole = std::floor(quotient);
        if (quotient - whole > 0.5) whole += 1;
        return Value::real(whole);
    }
    const BigInt x = a.to_big(), y = b.to_big();
    heap_.step(x.size() * y.size() * 4 + 1);
    BigInt::Division d = x.divide(y);
    return make_int(heap_, op == "%" ? std::move(d.remainder) : std::move(d.quotient));
}

Value Evaluator::power(const Value& a, const Value& b) {
    if (!a.is_number() || !b.is_number()) bad_operands("**", a, b);
    const bool real = a.is(Kind::real) || b.is(Kind::real);
    if (!real && !b.to_big().is_negative()) {
        BigInt base = a.to_big(), result(1);
        const auto exponent = b.to_big().to_int64();
        const bool trivial = base == BigInt(0) || base == BigInt(1) || base == BigInt(-1);
        if (trivial)
            return make_int(heap_, b.to_big().is_zero()                         ? BigInt(1)
                                   : base == BigInt(-1) && !b.to_big().is_odd() ? BigInt(1)
                                                                                : base);
        if (!exponent || *exponent > 64 * static_cast<std::int64_t>(BigInt::max_digits))
            fail("an integer has more than {} digits", BigInt::max_digits);
        for (std::int64_t e = *exponent; e > 0; e >>= 1) {
            heap_.step(base.size() * base.size() / 16 + 1);
            if (e & 1) result = result * base;
            if (e > 1) base = base * base;
            if (result.too_large() || base.size() > BigInt::max_digits / 9 * 2 + 8)
                fail("an integer has more than {} digits", BigInt::max_digits);
        }
        return make_int(heap_, std::move(result));
    }
    const double x = to_real(a), y = to_real(b);
    if (x == 0 && y < 0) fail("zero cannot be raised to a negative power");
    if (x < 0 && std::isfinite(x) && std::isfinite(y) && y != std::floor(y))
        fail("a negative number to the power of a fraction is not a real number");
    const double r = std::pow(x, y);
    if (std::isinf(r) && std::isfinite(x) && std::isfinite(y)) fail("the power is too large for a float");
    return Value::real(r);
}

bool Evaluator::compare(std::string_view op, const Value& a, const Value& b) {
    if (op == "==") return equal(&heap_, a, b);
    if (op == "!=") return !equal(&heap_, a, b);
    if (op == "in") return contains(b, a);
    if (op == "not in") return !contains(b, a);
    return order(op, a, b);
}

bool Evaluator::order(std::string_view op, const Value& a, const Value& b) {
    heap_.step();
    int c = 2;  // unordered
    if (a.is_number() && b.is_number()) {
        c = compare_numbers(a, b);
    } else if (a.is_string() && b.is_string()) {
        heap_.work(std::min(a.text().size(), b.text().size()));
        const int r = a.text().compare(b.text());  // UTF-8 keeps the order of code points
        c = r < 0 ? -1 : r > 0;
    } else if (a.is_sequence_object() && a.kind() == b.kind()) {
        const Level level(*this);
        const Values &x = a.list().items, &y = b.list().items;
        for (std::size_t i = 0; i < std::min(x.size(), y.size()); ++i)
            if (!equal(&heap_, x[i], y[i])) return order(op, x[i], y[i]);
        c = x.size() < y.size() ? -1 : x.size() > y.size();
    } else {
        need_defined(a);
        need_defined(b);
        fail("{} and {} cannot be ordered by '{}'", indefinite_type_name(a), indefinite_type_name(b), op);
    }
    if (c == 2) return false;
    if (op == "<") return c < 0;
    if (op == "<=") return c <= 0;
    if (op == ">") return c > 0;
    return c >= 0;
}

bool Evaluator::contains(const Value& container, const Value& item) {
    switch (container.kind()) {
        case Kind::undefined:
            return false;
        case Kind::string:
            need_defined(item);
            if (!item.is_string())
                fail("only a string can be 'in' a string, but {} is asked for", indefinite_type_name(item));
            heap_.work(container.text().size());
            return container.text().find(item.text()) != std::string::npos;
        case Kind::dict: {
            std::size_t hash = 0;
            if (!hash_value(item, hash)) fail("{} cannot be the key of a dict", indefinite_type_name(item));
            return container.dict().map.find(item) != nullptr;
        }
        case Kind::list:
        case Kind::tuple: {
            for (const Value& x : container.list().items)
                if (equal(&heap_, x, item)) return true;
            return false;
        }
        case Kind::none:
        case Kind::boolean:
        case Kind::integer:
        case Kind::big_integer:
        case Kind::real:
        case Kind::name_space:
        case Kind::function:
            fail("nothing can be 'in' {}", indefinite_type_name(container));
        default: {
            const Next next = iterate(container);
            Value x;
            while (next(x))
                if (equal(&heap_, x, item)) return true;
            return false;
        }
    }
}

Value Evaluator::slice(const Value& object, const Value* start, const Value* stop, const Value* step) {
    need_defined(object);
    if (!object.is_string() && !object.is_sequence_object() && !object.is(Kind::range))
        fail("{} cannot be sliced", indefinite_type_name(object));
    const auto bound = [&](const Value& v, std::int64_t absent) {
        need_defined(v);
        if (v.is_none()) return absent;
        if (v.is(Kind::big_integer))
            return v.big().is_negative() ? std::numeric_limits<std::int64_t>::min() / 2
                                         : std::numeric_limits<std::int64_t>::max() / 2;
        if (!v.is_int_like())
            fail("the bounds of a slice must be integers, but one is {}", indefinite_type_name(v));
        return std::clamp(v.as_int(), std::numeric_limits<std::int64_t>::min() / 2,
                          std::numeric_limits<std::int64_t>::max() / 2);
    };
    const std::int64_t by = bound(*step, 1);
    if (by == 0) fail("the step of a slice must not be zero");
    std::u32string points;
    Values collected;
    std::int64_t n = 0;
    const bool ascii = object.is_string() && is_ascii(object.text());
    if (object.is_string()) {
        heap_.work(object.text().size() * (ascii ? 1 : 4));
        if (!ascii) {
            check_size(object.text().size() * 4);
            for (std::size_t i = 0; i < object.text().size();) points += next_code_point(object.text(), i);
        }
        n = static_cast<std::int64_t>(ascii ? object.text().size() : points.size());
    } else {
        if (object.is(Kind::range)) collected = collect(object);
        n = static_cast<std::int64_t>(object.is(Kind::range) ? collected.size() : object.list().items.size());
    }
    const std::int64_t low = by > 0 ? 0 : -1, high = by > 0 ? n : n - 1;
    const auto place = [&](std::int64_t i) { return std::clamp(i < 0 ? i + n : i, low, high); };
    const std::int64_t from = start->is_none() ? (by > 0 ? low : high) : place(bound(*start, 0));
    const std::int64_t to = stop->is_none() ? (by > 0 ? high : low) : place(bound(*stop, 0));
    if (ascii && by == 1)
        return string(from < to ? object.text().substr(static_cast<std::size_t>(from),
                                                       static_cast<std::size_t>(to - from))
                                : std::string(),
                      object.safe());
    std::string text;
    Values items;
    for (std::int64_t i = from; by > 0 ? i < to : i > to; i += by) {
        heap_.step();
        const auto k = static_cast<std::size_t>(i);
        if (ascii)
            text += object.text()[k];
        else if (object.is_string())
            append_code_point(text, points[k]);
        else
            items.push_back(object.is(Kind::range) ? collected[k] : object.list().items[k]);
    }
    if (object.is_string()) return string(std::move(text), object.safe());
    return object.is(Kind::tuple) ? make_tuple(heap_, std::move(items))
                                  : make_list(heap_, std::move(items), false);
}

}  // namespace forge::jinja
