// Binding and converting the arguments of filters, tests, methods and globals.
#include "jinja/evaluator.h"
#include "jinja/numbers.h"
#include "jinja/unicode.h"

namespace forge::jinja {

std::vector<const Value*> bind(Evaluator& ev, std::string_view function, const Arguments& arguments,
                               std::initializer_list<std::string_view> parameters, std::size_t required) {
    std::vector<const Value*> out(parameters.size(), nullptr);
    if (arguments.positional.size() > parameters.size())
        ev.fail("'{}' takes at most {} arguments, but {} are given", function, parameters.size(),
                arguments.positional.size());
    for (std::size_t i = 0; i < arguments.positional.size(); ++i) out[i] = &arguments.positional[i];
    for (const auto& [name, value] : arguments.keyword) {
        std::size_t i = 0;
        for (std::string_view parameter : parameters) {
            if (parameter == name) break;
            ++i;
        }
        if (i == parameters.size()) ev.fail("'{}' has no argument '{}'", function, name);
        if (out[i]) ev.fail("'{}' gets its argument '{}' twice", function, name);
        out[i] = &value;
    }
    for (std::size_t i = 0; i < required; ++i)
        if (!out[i]) ev.fail("'{}' needs its argument '{}'", function, *(parameters.begin() + i));
    return out;
}

std::int64_t to_index(Evaluator& ev, std::string_view function, const Value& value) {
    ev.need_defined(value);
    if (!value.is_int_like() || value.is(Kind::big_integer))
        ev.fail("'{}' needs an integer, but it is given {}", function,
                value.is(Kind::big_integer) ? "one beyond 64 bits" : indefinite_type_name(value));
    return value.as_int();
}

const std::string& to_string_argument(Evaluator& ev, std::string_view function, const Value& value) {
    ev.need_defined(value);
    if (!value.is_string())
        ev.fail("'{}' needs a string, but it is given {}", function, indefinite_type_name(value));
    return value.text();
}

std::string escape_html(std::string_view text) {
    std::string out;
    out.reserve(text.size());
    for (char c : text) switch (c) {
            case '&':
                out += "&amp;";
                break;
            case '<':
                out += "&lt;";
                break;
            case '>':
                out += "&gt;";
                break;
            case '"':
                out += "&#34;";
                break;
            case '\'':
                out += "&#39;";
                break;
            default:
                out += c;
        }
    return out;
}

std::string escaped_text(Evaluator& ev, const Value& value) {
    if (value.is_string() && value.safe()) return value.text();
    const std::string text = ev.text(value);
    ev.heap().work(text.size());
    ev.check_size(text.size() * 5);
    return escape_html(text);
}

std::optional<BigInt> parse_int(std::string_view text, int base) {
    text = strip(text, true, true);
    bool negative = false;
    if (!text.empty() && (text[0] == '+' || text[0] == '-')) {
        negative = text[0] == '-';
        text.remove_prefix(1);
    }
    if (text.size() > 2 && text[0] == '0') {
        const char c = static_cast<char>(text[1] | 0x20);
        const int prefix = c == 'x' ? 16 : c == 'o' ? 8 : c == 'b' ? 2 : 0;
        if (prefix && (base == prefix || base == 0)) {
            base = prefix;
            text.remove_prefix(2);
            if (!text.empty() && text[0] == '_') text.remove_prefix(1);
        }
    }
    if (base == 0) {
        base = 10;
        if (text.size() > 1 && text[0] == '0' && text.find_first_not_of("0_") != std::string_view::npos)
            return std::nullopt;
    }
    std::string digits;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] == '_') {
            if (i == 0 || i + 1 == text.size() || text[i + 1] == '_') return std::nullopt;
            continue;
        }
        digits += text[i];
    }
    auto value = BigInt::parse(digits, base);
    if (value && negative) *value = -*value;
    return value;
}

std::optional<double> parse_float(std::string_view text) {
    text = strip(text, true, true);
    std::string_view rest = text;
    const bool negative = !rest.empty() && rest[0] == '-';
    if (!rest.empty() && (rest[0] == '-' || rest[0] == '+')) rest.remove_prefix(1);
    const std::string word = to_lower(rest);
    if (word == "inf" || word == "infinity")
        return negative ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::infinity();
    if (word == "nan") return std::numeric_limits<double>::quiet_NaN();
    std::string digits;
    bool any = false, point = false, exponent = false, last_digit = false;
    for (std::size_t i = 0; i < rest.size(); ++i) {
        const char c = rest[i];
        if (c >= '0' && c <= '9') {
            any = last_digit = true;
        } else if (c == '_') {
            if (!last_digit || i + 1 == rest.size() || rest[i + 1] < '0' || rest[i + 1] > '9')
                return std::nullopt;
            last_digit = false;
            continue;
        } else if (c == '.' && !point && !exponent) {
            point = true;
            last_digit = false;
        } else if ((c == 'e' || c == 'E') && any && !exponent) {
            exponent = true;
            any = last_digit = false;
            digits += c;
            if (i + 1 < rest.size() && (rest[i + 1] == '+' || rest[i + 1] == '-')) digits += rest[++i];
            continue;
        } else {
            return std::nullopt;
        }
        digits += c;
    }
    if (!any) return std::nullopt;
    const double value = parse_double(digits);
    return negative ? -value : value;
}

}  // namespace forge::jinja
