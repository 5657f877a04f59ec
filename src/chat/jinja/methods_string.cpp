#include <algorithm>
#include <unordered_map>

#include "jinja/methods.h"
#include "jinja/unicode.h"

namespace forge::jinja::methods {
namespace {

Value piece(Evaluator& ev, const Value& self, std::string_view text) {
    return ev.string(std::string(text), self.safe());
}

void work(Evaluator& ev, const Value& self) {
    ev.heap().work(self.text().size() * 4);
    ev.check_size(self.text().size() * 4);
}

template <std::string (*convert)(std::string_view)>
Value converted(Evaluator& ev, const Value& self, Arguments& arguments) {
    bind(ev, "str", arguments, {});
    work(ev, self);
    return ev.string(convert(self.text()), self.safe());
}

template <bool left, bool right>
Value stripped(Evaluator& ev, const Value& self, Arguments& arguments) {
    const auto a = bind(ev, "strip", arguments, {"chars"});
    work(ev, self);
    if (!a[0] || a[0]->is_none()) return piece(ev, self, strip(self.text(), left, right));
    const std::string& characters = to_string_argument(ev, "strip", *a[0]);
    ev.heap().step(self.text().size() / 16 * (characters.size() / 16 + 1));
    return piece(ev, self, strip(self.text(), characters, left, right));
}

// How often to split; a negative number means without limit.
std::size_t split_limit(Evaluator& ev, const Value* value) {
    const std::int64_t n = value ? to_index(ev, "split", *value) : -1;
    return n < 0 ? std::string::npos : static_cast<std::size_t>(n);
}

const std::string& separator(Evaluator& ev, std::string_view name, const Value& value) {
    const std::string& text = to_string_argument(ev, name, value);
    if (text.empty()) ev.fail("'{}' needs a separator that is not empty", name);
    return text;
}

Value split(Evaluator& ev, const Value& self, Arguments& arguments) {
    const auto a = bind(ev, "split", arguments, {"sep", "maxsplit"});
    const std::size_t limit = split_limit(ev, a[1]);
    work(ev, self);
    std::string_view rest = self.text();
    Values out;
    const auto add = [&](std::string_view text) {
        ev.heap().step();
        out.push_back(piece(ev, self, text));
    };
    if (a[0] && !a[0]->is_none()) {
        const std::string& by = separator(ev, "split", *a[0]);
        while (out.size() < limit) {
            const std::size_t at = rest.find(by);
            if (at == std::string_view::npos) break;
            add(rest.substr(0, at));
            rest.remove_prefix(at + by.size());
        }
        add(rest);
        return make_list(ev.heap(), std::move(out), false);
    }
    while (true) {
        rest = strip(rest, true, false);
        if (rest.empty()) break;
        if (out.size() == limit) {
            add(strip(rest, false, true));
            break;
        }
        std::size_t end = 0;
        while (end < rest.size()) {
            std::size_t p = end;
            if (is_space(next_code_point(rest, p))) break;
            end = p;
        }
        add(rest.substr(0, end));
        rest.remove_prefix(end);
    }
    return make_list(ev.heap(), std::move(out), false);
}

Value rsplit(Evaluator& ev, const Value& self, Arguments& arguments) {
    const auto a = bind(ev, "rsplit", arguments, {"sep", "maxsplit"});
    const std::size_t limit = split_limit(ev, a[1]);
    work(ev, self);
    std::string_view rest = self.text();
    Values out;
    const auto add = [&](std::string_view text) {
        ev.heap().step();
        out.push_back(piece(ev, self, text));
    };
    if (a[0] && !a[0]->is_none()) {
        const std::string& by = separator(ev, "rsplit", *a[0]);
        while (out.size() < limit) {
            const std::size_t at = rest.rfind(by);
            if (at == std::string_view::npos) break;
            add(rest.substr(at + by.size()));
            rest = rest.substr(0, at);
        }
        add(rest);
    } else {
        while (true) {
            rest = strip(rest, false, true);
            if (rest.empty()) break;
            if (out.size() == limit) {
                add(strip(rest, true, false));
                break;
            }
            std::size_t start = rest.size();
            while (start > 0) {
                std::size_t p = start - 1;
                while (p > 0 && (static_cast<unsigned char>(rest[p]) & 0xc0) == 0x80) --p;
                std::size_t q = p;
                if (is_space(next_code_point(rest, q))) break;
                start = p;
            }
            add(rest.substr(start));
            rest = rest.substr(0, start);
        }
    }
    std::reverse(out.begin(), out.end());
    return make_list(ev.heap(), std::move(out), false);
}

// Lines end at every line boundary that Python knows.
Value splitlines(Evaluator& ev, const Value& self, Arguments& arguments) {
    const auto a = bind(ev, "splitlines", arguments, {"keepends"});
    const bool keep = a[0] && truthy(*a[0]);
    work(ev, self);
    const std::string_view text = self.text();
    Values out;
    std::size_t start = 0;
    for (std::size_t i = 0; i < text.size();) {
        const std::size_t at = i;
        const char32_t c = next_code_point(text, i);
        const bool ends =
            (c >= 0x0a && c <= 0x0d) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 || c == 0x2029;
        if (!ends) continue;
        if (c == '\r' && i < text.size() && text[i] == '\n') ++i;
        ev.heap().step();
        out.push_back(piece(ev, self, text.substr(start, (keep ? i : at) - start)));
        start = i;
    }
    if (start < text.size()) out.push_back(piece(ev, self, text.substr(start)));
    return make_list(ev.heap(), std::move(out), false);
}

// The part of the text between code points start and end, as find() and startswith() count.
struct Window {
    Window(Evaluator& ev, const Value& self, const Value* start, const Value* end) : text(self.text()) {
        work(ev, self);
        const auto n = static_cast<std::int64_t>(code_point_count(text));
        const auto place = [&](const Value* v, std::int64_t absent) {
            if (!v || v->is_none()) return absent;
            std::int64_t i = to_index(ev, "str", *v);
            if (i < 0) i = std::max<std::int64_t>(i + n, 0);
            return i;
        };
        first = place(start, 0);
        const std::int64_t last = std::min(place(end, n), n);
        valid = first <= last;
        if (!valid) return;
        offset = code_point_offset(text, static_cast<std::size_t>(first));
        part = text.substr(offset, code_point_offset(text, static_cast<std::size_t>(last)) - offset);
    }
    // Index of the code point at byte `at` of the part.
    std::int64_t index(std::size_t at) const {
        return first + static_cast<std::int64_t>(code_point_count(part.substr(0, at)));
    }

    std::string_view text, part;
    std::int64_t first = 0;
    std::size_t offset = 0;
    bool valid = false;
};

template <bool at_end>
Value has_affix(Evaluator& ev, const Value& self, Arguments& arguments) {
    const std::string_view name = at_end ? "endswith" : "startswith";
    const auto a = bind(ev, name, arguments, {"affix", "start", "end"}, 1);
    const Window w(ev, self, a[1], a[2]);
    const auto matches = [&](const Value& affix) {
        const std::string& text = to_string_argument(ev, name, affix);
        return w.valid && (at_end ? w.part.ends_with(text) : w.part.starts_with(text));
    };
    if (!a[0]->is(Kind::tuple)) return Value::boolean(matches(*a[0]));
    for (const Value& affix : a[0]->list().items)
        if (matches(affix)) return Value::boolean(true);
    return Value::boolean(false);
}

template <bool from_right, bool must_exist>
Value found(Evaluator& ev, const Value& self, Arguments& arguments) {
    const auto a = bind(ev, "find", arguments, {"sub", "start", "end"}, 1);
    const std::string& sub = to_string_argument(ev, "find", *a[0]);
    const Window w(ev, self, a[1], a[2]);
    const std::size_t at = !w.valid ? std::string::npos : from_right ? w.part.rfind(sub) : w.part.find(sub);
    if (at != std::string::npos) return Value::integer(w.index(at));
    if (must_exist) ev.fail("the text that 'index' looks for is not in the string");
    return Value::integer(-1);
}

Value count(Evaluator& ev, const Value& self, Arguments& arguments) {
    const auto a = bind(ev, "count", arguments, {"sub", "start", "end"}, 1);
    const std::string& sub = to_string_argument(ev, "count", *a[0]);
    const Window w(ev, self, a[1], a[2]);
    if (!w.valid) return Value::integer(0);
    if (sub.empty()) return Value::integer(static_cast<std::int64_t>(code_point_count(w.part)) + 1);
    std::int64_t n = 0;
    for (std::size_t at = w.part.find(sub); at != std::string::npos; at = w.part.find(sub, at + sub.size()))
        ++n;
    return Value::integer(n);
}

Value replace(Evaluator& ev, const Value& self, Arguments& arguments) {
    const auto a = bind(ev, "replace", arguments, {"old", "new", "count"}, 2);
    const std::string& from = to_string_argument(ev, "replace", *a[0]);
    to_string_argument(ev, "replace", *a[1]);
    const std::string to = self.safe() ? escaped_text(ev, *a[1]) : a[1]->text();
    const std::size_t limit = split_limit(ev, a[2]);
    work(ev, self);
    const std::string& text = self.text();
    std::string out;
    std::size_t done = 0;
    const auto grow = [&](std::string_view more) {
        ev.heap().work(more.size());
        out += more;
        ev.check_size(out.size());
    };
    if (from.empty()) {
        for (std::size_t i = 0; done < limit; ++done) {
            grow(to);
            if (i >= text.size()) break;
            const std::size_t start = i;
            next_code_point(text, i);
            out.append(text, start, i - start);
            if (done + 1 >= limit) {
                grow(std::string_view(text).substr(i));
                break;
            }
        }
        return ev.string(limit == 0 ? text : std::move(out), self.safe());
    }
    std::size_t start = 0;
    for (; done < limit; ++done) {
        const std::size_t at = text.find(from, start);
        if (at == std::string::npos) break;
        grow(std::string_view(text).substr(start, at - start));
        grow(to);
        start = at + from.size();
    }
    grow(std::string_view(text).substr(start));
    return ev.string(std::move(out), self.safe());
}

Value join(Evaluator& ev, const Value& self, Arguments& arguments) {
    const auto a = bind(ev, "join", arguments, {"iterable"}, 1);
    ev.need_defined(*a[0]);
    std::string out;
    std::size_t i = 0;
    const Next next = ev.iterate(*a[0]);
    Value item;
    for (; next(item); ++i) {
        if (!item.is_string() && !self.safe())
            ev.fail("'join' needs strings, but item {} is {}", i, indefinite_type_name(item));
        if (i) out += self.text();
        out += self.safe() ? escaped_text(ev, item) : item.text();
        ev.heap().work(item.is_string() ? item.text().size() : 0);
        ev.check_size(out.size());
    }
    return ev.string(std::move(out), self.safe());
}

template <bool from_right>
Value partition(Evaluator& ev, const Value& self, Arguments& arguments) {
    const auto a = bind(ev, "partition", arguments, {"sep"}, 1);
    const std::string& by = separator(ev, "partition", *a[0]);
    work(ev, self);
    const std::string_view text = self.text();
    const std::size_t at = from_right ? text.rfind(by) : text.find(by);
    if (at == std::string_view::npos) {
        if (from_right) return make_tuple(ev.heap(), {ev.string(""), ev.string(""), self});
        return make_tuple(ev.heap(), {self, ev.string(""), ev.string("")});
    }
    return make_tuple(ev.heap(), {piece(ev, self, text.substr(0, at)), piece(ev, self, by),
                                  piece(ev, self, text.substr(at + by.size()))});
}

template <bool at_end>
Value without_affix(Evaluator& ev, const Value& self, Arguments& arguments) {
    const auto a = bind(ev, "removeprefix", arguments, {"affix"}, 1);
    const std::string& affix = to_string_argument(ev, at_end ? "removesuffix" : "removeprefix", *a[0]);
    work(ev, self);
    std::string_view text = self.text();
    if (at_end ? text.ends_with(affix) : text.starts_with(affix)) {
        if (at_end)
            text.remove_suffix(affix.size());
        else
            text.remove_prefix(affix.size());
    }
    return piece(ev, self, text);
}

enum class Side { left, right, both };
template <Side side>
Value padded(Evaluator& ev, const Value& self, Arguments& arguments) {
    const auto a = bind(ev, "ljust", arguments, {"width", "fillchar"}, 1);
    const std::int64_t width = to_index(ev, "ljust", *a[0]);
    const std::string fill = a[1] ? to_string_argument(ev, "ljust", *a[1]) : " ";
    if (code_point_count(fill) != 1) ev.fail("the fill character must be one character");
    work(ev, self);
    const auto n = static_cast<std::int64_t>(code_point_count(self.text()));
    if (width <= n) return self;
    const auto missing = static_cast<std::size_t>(width - n);
    if (missing > ev.heap().limits().memory / fill.size()) ev.check_size(ev.heap().limits().memory + 1);
    ev.check_size(missing * fill.size());
    ev.heap().work(missing * fill.size());
    // An odd rest goes to the left when the width is odd, as in Python.
    const std::size_t before = side == Side::left ? 0
                               : side == Side::right
                                   ? missing
                                   : missing / 2 + (missing & static_cast<std::size_t>(width) & 1);
    std::string out;
    for (std::size_t i = 0; i < before; ++i) out += fill;
    out += self.text();
    for (std::size_t i = before; i < missing; ++i) out += fill;
    return ev.string(std::move(out), self.safe());
}

Value zfill(Evaluator& ev, const Value& self, Arguments& arguments) {
    const auto a = bind(ev, "zfill", arguments, {"width"}, 1);
    const std::int64_t width = to_index(ev, "zfill", *a[0]);
    work(ev, self);
    const std::string& text = self.text();
    const auto n = static_cast<std::int64_t>(code_point_count(text));
    if (width <= n) return self;
    ev.check_size(static_cast<std::size_t>(width - n) + text.size());
    ev.heap().work(static_cast<std::size_t>(width - n));
    const bool sign = !text.empty() && (text[0] == '+' || text[0] == '-');
    return ev.string(
        text.substr(0, sign) + std::string(static_cast<std::size_t>(width - n), '0') + text.substr(sign),
        self.safe());
}

// Every character satisfies the predicate, and there is one.
template <bool (*predicate)(char32_t)>
Value all_are(Evaluator& ev, const Value& self, Arguments& arguments) {
    bind(ev, "str", arguments, {});
    work(ev, self);
    const std::string_view text = self.text();
    for (std::size_t i = 0; i < text.size();)
        if (!predicate(next_code_point(text, i))) return Value::boolean(false);
    return Value::boolean(!text.empty());
}

bool is_alphanumeric(char32_t c) { return is_alpha(c) || is_decimal(c) || is_digit(c) || is_numeric(c); }

// There are letters with case, and all of them have the wanted one.
template <bool upper>
Value all_case(Evaluator& ev, const Value& self, Arguments& arguments) {
    bind(ev, "str", arguments, {});
    work(ev, self);
    const std::string_view text = self.text();
    bool any = false;
    for (std::size_t i = 0; i < text.size();) {
        const char32_t c = next_code_point(text, i);
        if ((upper ? is_lower_case(c) : is_upper_case(c)) || is_title_case(c)) return Value::boolean(false);
        any = any || (upper ? is_upper_case(c) : is_lower_case(c));
    }
    return Value::boolean(any);
}

Value isascii(Evaluator& ev, const Value& self, Arguments& arguments) {
    bind(ev, "isascii", arguments, {});
    work(ev, self);
    return Value::boolean(is_ascii(self.text()));
}

Value swapcase(Evaluator& ev, const Value& self, Arguments& arguments) {
    bind(ev, "swapcase", arguments, {});
    work(ev, self);
    const std::string_view text = self.text();
    std::string out;
    for (std::size_t i = 0; i < text.size();) {
        const std::size_t start = i;
        const char32_t c = next_code_point(text, i);
        const std::string_view one = text.substr(start, i - start);
        if (is_upper_case(c))
            out += to_lower(one);
        else if (is_lower_case(c))
            out += to_upper(one);
        else
            out += one;
    }
    return ev.string(std::move(out), self.safe());
}

Value format(Evaluator& ev, const Value& self, Arguments& arguments) {
    work(ev, self);
    return ev.string(brace_format(ev, self.text(), arguments), self.safe());
}

}  // namespace

Method find_string(std::string_view name) {
    static const std::unordered_map<std::string_view, Method> table = {
        {"capitalize", converted<to_capitalized>},
        {"casefold", converted<to_lower>},
        {"center", padded<Side::both>},
        {"count", count},
        {"endswith", has_affix<true>},
        {"find", found<false, false>},
        {"format", format},
        {"index", found<false, true>},
        {"isalnum", all_are<is_alphanumeric>},
        {"isalpha", all_are<is_alpha>},
        {"isascii", isascii},
        {"isdecimal", all_are<is_decimal>},
        {"isdigit", all_are<is_digit>},
        {"islower", all_case<false>},
        {"isnumeric", all_are<is_numeric>},
        {"isspace", all_are<is_space>},
        {"isupper", all_case<true>},
        {"join", join},
        {"ljust", padded<Side::left>},
        {"lower", converted<to_lower>},
        {"lstrip", stripped<true, false>},
        {"partition", partition<false>},
        {"removeprefix", without_affix<false>},
        {"removesuffix", without_affix<true>},
        {"replace", replace},
        {"rfind", found<true, false>},
        {"rindex", found<true, true>},
        {"rjust", padded<Side::right>},
        {"rpartition", partition<true>},
        {"rsplit", rsplit},
        {"rstrip", stripped<false, true>},
        {"split", split},
        {"splitlines", splitlines},
        {"startswith", has_affix<false>},
        {"strip", stripped<true, true>},
        {"swapcase", swapcase},
        {"title", converted<to_title>},
        {"upper", converted<to_upper>},
        {"zfill", zfill},
    };
    const auto it = table.find(name);
    return it == table.end() ? nullptr : it->second;
}

}  // namespace forge::jinja::methods
