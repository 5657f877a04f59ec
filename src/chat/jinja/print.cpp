// str() and repr() of values.
#include "jinja/evaluator.h"
#include "jinja/numbers.h"
#include "jinja/unicode.h"

namespace forge::jinja {
namespace {

void append_quoted(std::string& out, std::string_view text) {
    const char quote =
        text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos ? '"' : '\'';
    out += quote;
    for (std::size_t i = 0; i < text.size();) {
        const std::size_t start = i;
        const char32_t c = next_code_point(text, i);
        if (c == '\\' || c == static_cast<char32_t>(quote)) {
            out += '\\';
            out += static_cast<char>(c);
        } else if (c == '\n') {
            out += "\\n";
        } else if (c == '\r') {
            out += "\\r";
        } else if (c == '\t') {
            out += "\\t";
        } else if (c < 0x20 || c == 0x7f) {
            out += fmt::format("\\x{:02x}", static_cast<unsigned>(c));
        } else if (c < 0x7f || is_printable(c)) {
            out.append(text.substr(start, i - start));
        } else if (c < 0x100) {
            out += fmt::format("\\x{:02x}", static_cast<unsigned>(c));
        } else if (c < 0x10000) {
            out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
        } else {
            out += fmt::format("\\U{:08x}", static_cast<unsigned>(c));
        }
    }
    out += quote;
}

}  // namespace

std::string Evaluator::text(const Value& value) {
    if (value.is_string()) return value.text();
    std::string out;
    append_text(out, value);
    return out;
}

void Evaluator::append_text(std::string& out, const Value& value) {
    if (value.is_string()) {
        heap_.work(value.text().size());
        check_size(out.size() + value.text().size());
        out += value.text();
    } else if (!value.is_undefined()) {
        append_repr(out, value);
    }
}

void Evaluator::append_repr(std::string& out, const Value& value) {
    const Level level(*this);
    heap_.step();
    check_size(out.size());
    const auto list = [&](const Values& items) {
        for (std::size_t i = 0; i < items.size(); ++i) {
            if (i) out += ", ";
            append_repr(out, items[i]);
        }
    };
    const auto map = [&](const Dict& dict) {
        out += '{';
        bool first = true;
        for (const Dict::Entry& e : dict.entries()) {
            if (!std::exchange(first, false)) out += ", ";
            append_repr(out, e.key);
            out += ": ";
            append_repr(out, e.value);
        }
        out += '}';
    };
    switch (value.kind()) {
        case Kind::undefined:
            out += "Undefined";
            break;
        case Kind::none:
            out += "None";
            break;
        case Kind::boolean:
            out += value.as_bool() ? "True" : "False";
            break;
        case Kind::integer:
            out += std::to_string(value.as_int());
            break;
        case Kind::big_integer:
            out += value.big().to_string();
            break;
        case Kind::real:
            out += float_repr(value.as_real());
            break;
        case Kind::string:
            heap_.work(value.text().size() * 4);
            if (value.safe()) out += "Markup(";
            append_quoted(out, value.text());
            if (value.safe()) out += ')';
            break;
        case Kind::list:
            out += '[';
            list(value.list().items);
            out += ']';
            break;
        case Kind::tuple:
            out += '(';
            list(value.list().items);
            out += value.list().items.size() == 1 ? ",)" : ")";
            break;
        case Kind::dict:
            map(value.dict().map);
            break;
        case Kind::range: {
            const RangeObject& r = value.range();
            out += fmt::format("range({}, {}", r.start, r.stop);
            out += r.step == 1 ? ")" : fmt::format(", {})", r.step);
            break;
        }
        case Kind::view: {
            const auto what = value.view().what;
            out += what == ViewObject::What::keys     ? "dict_keys(["
                   : what == ViewObject::What::values ? "dict_values(["
                                                      : "dict_items([";
            list(collect(value));
            out += "])";
            break;
        }
        case Kind::name_space:
            out += "<Namespace ";
            map(value.name_space().attributes);
            out += '>';
            break;
        case Kind::generator:
            out += "<generator object>";
            break;
        case Kind::loop:
            out += fmt::format("<LoopContext {}/{}>", value.loop().index0 + 1, value.loop().count());
            break;
        case Kind::function:
            out += fmt::format("<function '{}'>", value.function().name);
            break;
    }
}

}  // namespace forge::jinja
