// Python's two ways to format: 'a %s' % x and 'a {}'.format(x).
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "jinja/evaluator.h"
#include "jinja/numbers.h"
#include "jinja/unicode.h"

namespace forge::jinja {
namespace {

struct Spec {
    std::string fill = " ";
    char align = '\0';  // < > ^ =, or 0 for the default
    char sign = '-';
    bool alternate = false, comma = false;
    std::int64_t width = 0, precision = -1;
    char type = '\0';
};

// Widths and precisions that a template may ask for.
constexpr std::int64_t max_width = 10000;

std::int64_t read_number(Evaluator& ev, std::string_view text, std::size_t& at) {
    std::int64_t n = 0;
    for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at) {
        n = n * 10 + (text[at] - '0');
        if (n > max_width) ev.fail("a format's width or precision is larger than {}", max_width);
    }
    return n;
}

std::string group_thousands(std::string digits) {
    const std::size_t end = std::min(digits.find_first_of(".e"), digits.size());
    for (std::size_t i = end; i > 3; i -= 3) digits.insert(i - 3, ",");
    return digits;
}

// Digits of a number without its sign.
std::string magnitude(Evaluator& ev, const Value& value, const Spec& spec) {
    const char type = spec.type;
    if (type == 'd' || type == 'x' || type == 'X' || type == 'o' || type == 'b' ||
        (type == '\0' && value.is_int_like())) {
        BigInt n = value.is(Kind::real) ? BigInt::from_double(value.as_real()) : value.to_big();
        if (n.is_negative()) n = -n;
        if (type == 'd' || type == '\0') return n.to_string();
        const int base = type == 'o' ? 8 : type == 'b' ? 2 : 16;
        const BigInt divisor(base);
        std::string out;
        while (!n.is_zero()) {
            ev.heap().step(n.size() * 8 + 1);
            const auto d = n.divide(divisor);
            const auto digit = static_cast<std::size_t>(*d.remainder.to_int64());
            out += (type == 'X' ? "0123456789ABCDEF" : "0123456789abcdef")[digit];
            n = d.quotient;
        }
        if (out.empty()) out = "0";
        std::reverse(out.begin(), out.end());
        if (spec.alternate) out = (base == 8 ? "0o" : base == 2 ? "0b" : type == 'X' ? "0X" : "0x") + out;
        return out;
    }
    double d = value.is(Kind::real) ? value.as_real() : value.to_big().to_double();
    d = std::fabs(d);
    if (type == '\0' && spec.precision < 0) return float_repr(d);
    if (!std::isfinite(d)) return std::isnan(d) ? "nan" : "inf";
    std::string out(static_cast<std::size_t>(std::max<std::int64_t>(spec.precision, 6)) + 340, '\0');
    const int precision = static_cast<int>(spec.precision < 0 ? 6 : spec.precision);
    int n = 0;
    const char kind = type == '%' ? 'f' : type == '\0' ? 'g' : type;
    if (type == '%') d *= 100;
    switch (kind) {
        case 'e':
            n = std::snprintf(out.data(), out.size(), "%.*e", precision, d);
            break;
        case 'E':
            n = std::snprintf(out.data(), out.size(), "%.*E", precision, d);
            break;
        case 'g':
            n = std::snprintf(out.data(), out.size(), "%.*g", precision, d);
            break;
        case 'G':
            n = std::snprintf(out.data(), out.size(), "%.*G", precision, d);
            break;
        default:
            n = std::snprintf(out.data(), out.size(), "%.*f", precision, d);
            break;
    }
    out.resize(static_cast<std::size_t>(n));
    if (type == '%') out += '%';
    return out;
}

std::string pad(std::string text, const std::string& sign, const Spec& spec, char default_align) {
    const char align = spec.align ? spec.align : default_align;
    const auto n = static_cast<std::int64_t>(code_point_count(text) + sign.size());
    if (spec.width <= n) return sign + text;
    const auto missing = static_cast<std::size_t>(spec.width - n);
    const auto fill = [&](std::size_t count) {
        std::string out;
        for (std::size_t i = 0; i < count; ++i) out += spec.fill;
        return out;
    };
    switch (align) {
        case '<':
            return sign + text + fill(missing);
        case '^':
            return fill(missing / 2) + sign + text + fill(missing - missing / 2);
        case '=':
            return sign + fill(missing) + text;
        default:
            return fill(missing) + sign + text;
    }
}

std::string format_value(Evaluator& ev, const Value& value, const Spec& spec) {
    if (value.is_number() && spec.type != 's' && !(value.is(Kind::boolean) && spec.type == '\0')) {
        if (value.is(Kind::real) && !std::isfinite(value.as_real()) &&
            (spec.type == 'd' || spec.type == 'x' || spec.type == 'o'))
            ev.fail("a float that is not finite cannot be formatted as an integer");
        const bool negative = value.is(Kind::real)
                                  ? std::signbit(value.as_real()) && !std::isnan(value.as_real())
                                  : value.to_big().is_negative();
        std::string text = magnitude(ev, value, spec);
        if (spec.comma) text = group_thousands(text);
        return pad(std::move(text),
                   negative           ? "-"
                   : spec.sign == '+' ? "+"
                   : spec.sign == ' ' ? " "
                                      : "",
                   spec, '>');
    }
    if (spec.type != '\0' && spec.type != 's')
        ev.fail("the format '{}' needs a number, but it is given {}", spec.type, indefinite_type_name(value));
    std::string text = ev.text(value);
    if (spec.precision >= 0) text.resize(code_point_offset(text, static_cast<std::size_t>(spec.precision)));
    return pad(std::move(text), "", spec, '<');
}

Spec parse_spec(Evaluator& ev, std::string_view text) {
    Spec spec;
    std::size_t at = 0;
    const auto is_align = [](char c) { return c == '<' || c == '>' || c == '^' || c == '='; };
    if (!text.empty()) {
        std::size_t after_fill = 0;
        next_code_point(text, after_fill);
        if (after_fill < text.size() && is_align(text[after_fill])) {
            spec.fill = text.substr(0, after_fill);
            spec.align = text[after_fill];
            at = after_fill + 1;
        } else if (is_align(text[0])) {
            spec.align = text[0];
            at = 1;
        }
    }
    if (at < text.size() && (text[at] == '+' || text[at] == '-' || text[at] == ' ')) spec.sign = text[at++];
    if (at < text.size() && text[at] == '#') spec.alternate = true, ++at;
    if (at < text.size() && text[at] == '0') {
        if (!spec.align) spec.fill = "0", spec.align = '=';
        ++at;
    }
    spec.width = read_number(ev, text, at);
    if (at < text.size() && text[at] == ',') spec.comma = true, ++at;
    if (at < text.size() && text[at] == '.') spec.precision = read_number(ev, text, ++at);
    if (at < text.size()) spec.type = text[at++];
    if (at != text.size() ||
        (spec.type != '\0' && std::string_view("sdxXobfFeEgG%").find(spec.type) == std::string_view::npos))
        ev.fail("the format '{}' is not supported", text);
    if (spec.type == 'F') spec.type = 'f';
    return spec;
}

}  // namespace

std::string percent_format(Evaluator& ev, const std::string& format, const Value& arguments) {
    std::string out;
    std::size_t used = 0;
    const bool is_tuple = arguments.is(Kind::tuple);
    const std::size_t available = is_tuple ? arguments.list().items.size() : 1;
    const auto next_argument = [&]() -> const Value& {
        if (used >= available) ev.fail("a format has more places than the {} values it is given", available);
        const Value& v = is_tuple ? arguments.list().items[used] : arguments;
        ++used;
        return v;
    };
    for (std::size_t i = 0; i < format.size();) {
        if (format[i] != '%') {
            out += format[i++];
            continue;
        }
        if (++i >= format.size()) ev.fail("a format ends after '%'");
        if (format[i] == '%') {
            out += '%';
            ++i;
            continue;
        }
        const Value* named = nullptr;
        if (format[i] == '(') {
            const std::size_t close = format.find(')', i);
            if (close == std::string::npos || !arguments.is(Kind::dict))
                ev.fail("a format with names needs a dict");
            const std::string name = format.substr(i + 1, close - i - 1);
            named = arguments.dict().map.find(std::string_view(name));
            if (!named) ev.fail("a format names '{}', which it is not given", name);
            used = available;
            i = close + 1;
        }
        Spec spec;
        spec.align = '>';
        for (; i < format.size() && std::string_view("-+ #0").find(format[i]) != std::string_view::npos;
             ++i) {
            if (format[i] == '-')
                spec.align = '<', spec.fill = " ";
            else if (format[i] == '0' && spec.align != '<')
                spec.align = '=', spec.fill = "0";
            else if (format[i] == '+')
                spec.sign = '+';
            else if (format[i] == ' ' && spec.sign != '+')
                spec.sign = ' ';
            else if (format[i] == '#')
                spec.alternate = true;
        }
        spec.width = read_number(ev, format, i);
        if (i < format.size() && format[i] == '.') spec.precision = read_number(ev, format, ++i);
        if (i >= format.size()) ev.fail("a format ends inside a place for a value");
        const char type = format[i++];
        const Value& value = named ? *named : next_argument();
        if (type == 's' || type == 'r') {
            std::string text;
            if (type == 's')
                ev.append_text(text, value);
            else
                ev.append_repr(text, value);
            if (spec.precision >= 0)
                text.resize(code_point_offset(text, static_cast<std::size_t>(spec.precision)));
            if (spec.align == '=') spec.align = '>', spec.fill = " ";
            out += pad(std::move(text), "", spec, '>');
        } else if (std::string_view("diuxXofFeEgG").find(type) != std::string_view::npos) {
            ev.need_defined(value);
            if (!value.is_number())
                ev.fail("the format '%{}' needs a number, but it is given {}", type,
                        indefinite_type_name(value));
            spec.type = type == 'i' || type == 'u' ? 'd' : type == 'F' ? 'f' : type;
            out += format_value(ev, value, spec);
        } else {
            ev.fail("the format '%{}' is not supported", type);
        }
        ev.heap().step();
        ev.check_size(out.size());
    }
    // A dict, list or undefined value may stay unused.
    const bool may_stay = arguments.is(Kind::dict) || arguments.is(Kind::list) || arguments.is(Kind::range) ||
                          arguments.is_undefined();
    if (used < available && !may_stay)
        ev.fail("a format has {} places, but is given {} values", used, available);
    return out;
}

std::string brace_format(Evaluator& ev, const std::string& format, const Arguments& arguments) {
    std::string out;
    std::size_t automatic = 0;
    for (std::size_t i = 0; i < format.size();) {
        const char c = format[i];
        if (c == '}' || (c == '{' && i + 1 < format.size() && format[i + 1] == '{')) {
            if (i + 1 >= format.size() || format[i + 1] != c) ev.fail("a format has a single '{}'", c);
            out += c;
            i += 2;
            continue;
        }
        if (c != '{') {
            out += format[i++];
            continue;
        }
        const std::size_t close = format.find('}', i);
        if (close == std::string::npos) ev.fail("a format has a '{{' that is not closed");
        const std::string field = format.substr(i + 1, close - i - 1);
        i = close + 1;
        const std::size_t colon = field.find(':');
        std::string name = field.substr(0, colon);
        bool repr = false;
        if (name.ends_with("!r"))
            repr = true, name.resize(name.size() - 2);
        else if (name.ends_with("!s"))
            name.resize(name.size() - 2);
        const Value* value = nullptr;
        const bool number =
            std::all_of(name.begin(), name.end(), [](char d) { return d >= '0' && d <= '9'; });
        if (number) {
            std::size_t at = 0;
            const std::size_t index =
                name.empty() ? automatic++ : static_cast<std::size_t>(read_number(ev, name, at));
            if (index >= arguments.positional.size())
                ev.fail("a format names value {}, but is given {}", index, arguments.positional.size());
            value = &arguments.positional[index];
        } else {
            for (const auto& [key, v] : arguments.keyword)
                if (key == name) value = &v;
            if (!value) ev.fail("a format names '{}', which it is not given", name);
        }
        const Spec spec = parse_spec(
            ev, colon == std::string::npos ? std::string_view() : std::string_view(field).substr(colon + 1));
        if (repr) {
            std::string text;
            ev.append_repr(text, *value);
            out += pad(std::move(text), "", spec, '<');
        } else {
            out += format_value(ev, *value, spec);
        }
        ev.heap().step();
        ev.check_size(out.size());
    }
    return out;
}

}  // namespace forge::jinja
