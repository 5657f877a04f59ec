#include <algorithm>

#include "jinja/filters.h"
#include "jinja/json.h"
#include "jinja/unicode.h"

namespace forge::jinja::filters {
namespace {

// The input as text; a safe string stays safe through most text filters.
struct Text {
    Text(Evaluator& ev, const Value& input) : text(ev.text(input)), safe(input.is_string() && input.safe()) {
        ev.heap().work(text.size() * 4);
        ev.check_size(text.size() * 4);
    }
    std::string text;
    bool safe;
};

}  // namespace

Value trim(Evaluator& ev, const Value& input, Arguments& arguments) {
    const auto a = bind(ev, "trim", arguments, {"chars"});
    const Text t(ev, input);
    if (!a[0] || a[0]->is_none()) return ev.string(std::string(strip(t.text, true, true)), t.safe);
    return ev.string(std::string(strip(t.text, to_string_argument(ev, "trim", *a[0]), true, true)), t.safe);
}

Value upper(Evaluator& ev, const Value& input, Arguments& arguments) {
    bind(ev, "upper", arguments, {});
    const Text t(ev, input);
    return ev.string(to_upper(t.text), t.safe);
}

Value lower(Evaluator& ev, const Value& input, Arguments& arguments) {
    bind(ev, "lower", arguments, {});
    const Text t(ev, input);
    return ev.string(to_lower(t.text), t.safe);
}

Value capitalize(Evaluator& ev, const Value& input, Arguments& arguments) {
    bind(ev, "capitalize", arguments, {});
    const Text t(ev, input);
    return ev.string(to_capitalized(t.text), t.safe);
}

// Words are separated by whitespace, '-' and opening brackets; unlike str.title().
Value title(Evaluator& ev, const Value& input, Arguments& arguments) {
    bind(ev, "title", arguments, {});
    const Text t(ev, input);
    std::string out;
    std::size_t word = 0;
    const auto finish = [&](std::size_t end) {
        if (word >= end) return;
        const std::string_view text = std::string_view(t.text).substr(word, end - word);
        std::size_t first = 0;
        next_code_point(text, first);
        out += to_upper(text.substr(0, first));
        out += to_lower(text.substr(first));
    };
    for (std::size_t i = 0; i < t.text.size();) {
        const std::size_t at = i;
        const char32_t c = next_code_point(t.text, i);
        if (!is_space(c) && c != '-' && c != '(' && c != '{' && c != '[' && c != '<') continue;
        finish(at);
        out += t.text.substr(at, i - at);
        word = i;
    }
    finish(t.text.size());
    return ev.string(std::move(out));
}

Value replace(Evaluator& ev, const Value& input, Arguments& arguments) {
    const auto a = bind(ev, "replace", arguments, {"old", "new", "count"}, 2);
    Arguments inner;
    inner.positional = {ev.string(ev.text(*a[0])), ev.string(ev.text(*a[1]))};
    if (a[2] && !a[2]->is_none()) inner.positional.push_back(*a[2]);
    const Value text = ev.string(ev.text(input));
    return find_method(ev, text, "replace")(ev, text, inner);
}

Value string(Evaluator& ev, const Value& input, Arguments& arguments) {
    bind(ev, "string", arguments, {});
    return input.is_string() ? input : ev.string(ev.text(input));
}

Value safe(Evaluator& ev, const Value& input, Arguments& arguments) {
    bind(ev, "safe", arguments, {});
    return ev.string(ev.text(input), true);
}

Value escape(Evaluator& ev, const Value& input, Arguments& arguments) {
    bind(ev, "escape", arguments, {});
    return ev.string(escaped_text(ev, input), true);
}

Value forceescape(Evaluator& ev, const Value& input, Arguments& arguments) {
    bind(ev, "forceescape", arguments, {});
    const Text t(ev, input);
    ev.check_size(t.text.size() * 5);
    return ev.string(escape_html(t.text), true);
}

Value indent(Evaluator& ev, const Value& input, Arguments& arguments) {
    const auto a = bind(ev, "indent", arguments, {"width", "first", "blank"});
    std::string prefix(4, ' ');
    if (a[0]) {
        if (a[0]->is_string()) {
            prefix = a[0]->text();
        } else {
            const std::int64_t width = std::max<std::int64_t>(to_index(ev, "indent", *a[0]), 0);
            ev.check_size(static_cast<std::size_t>(width));
            prefix.assign(static_cast<std::size_t>(width), ' ');
        }
    }
    const bool first = a[1] && truthy(*a[1]), blank = a[2] && truthy(*a[2]);
    ev.need_defined(input);
    const std::string& text = to_string_argument(ev, "indent", input);
    const std::size_t lines = static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n')) + 1;
    if (prefix.size() > ev.heap().limits().memory / lines) ev.check_size(ev.heap().limits().memory + 1);
    ev.check_size(text.size() + lines * prefix.size());
    ev.heap().work(text.size() + lines * prefix.size());
    std::string out = first ? prefix : "";
    bool first_line = true;
    Arguments none;
    // The added line end makes a final one a line of its own.
    const Value all = ev.string(text + "\n");
    const Value lines_of_text = find_method(ev, all, "splitlines")(ev, all, none);
    for (const Value& line : lines_of_text.list().items) {
        if (!first_line) {
            out += '\n';
            if (blank || !line.text().empty()) out += prefix;
        }
        out += line.text();
        first_line = false;
    }
    return ev.string(std::move(out), input.safe());
}

Value center(Evaluator& ev, const Value& input, Arguments& arguments) {
    const auto a = bind(ev, "center", arguments, {"width"});
    const Value text = ev.string(ev.text(input), input.is_string() && input.safe());
    Arguments inner;
    inner.positional.push_back(a[0] ? *a[0] : Value::integer(80));
    return find_method(ev, text, "center")(ev, text, inner);
}

Value truncate(Evaluator& ev, const Value& input, Arguments& arguments) {
    const auto b = bind(ev, "truncate", arguments, {"length", "killwords", "end", "leeway"});
    const std::int64_t length = b[0] ? to_index(ev, "truncate", *b[0]) : 255;
    const bool kill_words = b[1] && truthy(*b[1]);
    const std::string end = b[2] ? to_string_argument(ev, "truncate", *b[2]) : "...";
    const std::int64_t leeway = b[3] && !b[3]->is_none() ? to_index(ev, "truncate", *b[3]) : 5;
    const auto end_length = static_cast<std::int64_t>(code_point_count(end));
    if (length < end_length)
        ev.fail("'truncate' needs a length of at least {}, that of its end text", end_length);
    if (leeway < 0) ev.fail("'truncate' needs a leeway of at least 0");
    // What has a length may pass as it is; only strings can be cut.
    if (ev.length(input) - length <= leeway) return input;
    const std::string& text = to_string_argument(ev, "truncate", input);
    ev.heap().work(text.size());
    std::string out = text.substr(0, code_point_offset(text, static_cast<std::size_t>(length - end_length)));
    if (!kill_words) {
        const std::size_t space = out.rfind(' ');
        if (space != std::string::npos) out.resize(space);
    }
    return ev.string(out + end, input.safe());
}

Value wordcount(Evaluator& ev, const Value& input, Arguments& arguments) {
    bind(ev, "wordcount", arguments, {});
    const Text t(ev, input);
    std::int64_t words = 0;
    bool inside = false;
    for (std::size_t i = 0; i < t.text.size();) {
        const char32_t c = next_code_point(t.text, i);
        const bool part = c == '_' || is_alpha(c) || is_numeric(c);
        words += part && !inside;
        inside = part;
    }
    return Value::integer(words);
}

Value format(Evaluator& ev, const Value& input, Arguments& arguments) {
    if (!arguments.positional.empty() && !arguments.keyword.empty())
        ev.fail("'format' takes either positional or keyword arguments, not both");
    Value values;
    if (arguments.keyword.empty()) {
        values = make_tuple(ev.heap(), arguments.positional);
    } else {
        Dict map;
        for (const auto& [name, value] : arguments.keyword) map.set(ev.string(name), value);
        values = make_dict(ev.heap(), std::move(map));
    }
    const Text t(ev, input);
    return ev.string(percent_format(ev, t.text, values), t.safe);
}

namespace {
std::string quoted_url(std::string_view text, bool keep_slash) {
    std::string out;
    for (char ch : text) {
        const auto c = static_cast<unsigned char>(ch);
        const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                           c == '_' || c == '.' || c == '-' || c == '~' || (keep_slash && c == '/');
        if (plain)
            out += ch;
        else
            out += fmt::format("%{:02X}", c);
    }
    return out;
}
}  // namespace

Value urlencode(Evaluator& ev, const Value& input, Arguments& arguments) {
    bind(ev, "urlencode", arguments, {});
    const auto checked = [&](const Value& v) {
        Text t(ev, v);
        return std::move(t.text);
    };
    if (input.is_string() || !(input.is(Kind::dict) || input.is_sequence_object() || input.is(Kind::view)))
        return ev.string(quoted_url(checked(input), true));
    std::string out;
    const auto pair = [&](const Value& key, const Value& value) {
        if (!out.empty()) out += '&';
        out += quoted_url(checked(key), false) + "=" + quoted_url(checked(value), false);
        ev.check_size(out.size());
    };
    if (input.is(Kind::dict)) {
        for (const Dict::Entry& e : input.dict().map.entries()) pair(e.key, e.value);
    } else {
        for (const Value& item : ev.collect(input)) {
            const Values parts = ev.collect(item);
            if (parts.size() != 2) ev.fail("'urlencode' needs pairs of a key and a value");
            pair(parts[0], parts[1]);
        }
    }
    return ev.string(std::move(out));
}

Value tojson(Evaluator& ev, const Value& input, Arguments& arguments) {
    const auto a = bind(ev, "tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
    JsonStyle style;
    style.ascii = a[0] && truthy(*a[0]);
    if (a[1] && !a[1]->is_none()) {
        if (a[1]->is_string()) {
            style.indent = a[1]->text();
        } else {
            const std::int64_t width = std::max<std::int64_t>(to_index(ev, "tojson", *a[1]), 0);
            ev.check_size(static_cast<std::size_t>(width));
            style.indent = std::string(static_cast<std::size_t>(width), ' ');
        }
        style.item_separator = ",";
    }
    if (a[2] && !a[2]->is_none()) {
        const Values parts = ev.collect(*a[2]);
        if (parts.size() != 2) ev.fail("'tojson' needs two separators, but {} are given", parts.size());
        style.item_separator = to_string_argument(ev, "tojson", parts[0]);
        style.key_separator = to_string_argument(ev, "tojson", parts[1]);
    }
    style.sort_keys = a[3] && truthy(*a[3]);
    return ev.string(write_json(ev, input, style));
}

}  // namespace forge::jinja::filters
