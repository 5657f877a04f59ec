#include <cmath>

#include "jinja/evaluator.h"
#include "jinja/json.h"
#include "jinja/numbers.h"
#include "jinja/stable_sort.h"
#include "jinja/unicode.h"

namespace forge::jinja {
namespace {

class Writer {
  public:
    Writer(Evaluator& ev, const JsonStyle& style) : ev_(ev), style_(style) {}

    std::string run(const Value& value) {
        write(value, 0);
        return std::move(out_);
    }

  private:
    void line(int level) {
        if (!style_.indent) return;
        out_ += '\n';
        for (int i = 0; i < level; ++i) out_ += *style_.indent;
    }

    void number(double d) {
        if (std::isnan(d))
            out_ += "NaN";
        else if (std::isinf(d))
            out_ += d < 0 ? "-Infinity" : "Infinity";
        else
            out_ += float_repr(d);
    }

    void string(std::string_view text) {
        ev_.heap().work(text.size());
        out_ += '"';
        for (std::size_t i = 0; i < text.size();) {
            const std::size_t start = i;
            const char32_t c = next_code_point(text, i);
            switch (c) {
                case '"':
                    out_ += "\\\"";
                    continue;
                case '\\':
                    out_ += "\\\\";
                    continue;
                case '\n':
                    out_ += "\\n";
                    continue;
                case '\r':
                    out_ += "\\r";
                    continue;
                case '\t':
                    out_ += "\\t";
                    continue;
                case '\b':
                    out_ += "\\b";
                    continue;
                case '\f':
                    out_ += "\\f";
                    continue;
                default:
                    break;
            }
            if (c < 0x20 || (style_.ascii && c >= 0x7f && c < 0x10000)) {
                out_ += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
            } else if (style_.ascii && c >= 0x10000) {
                const unsigned low = static_cast<unsigned>(c) - 0x10000;
                out_ += fmt::format("\\u{:04x}\\u{:04x}", 0xd800 + (low >> 10), 0xdc00 + (low & 0x3ff));
            } else {
                out_.append(text.substr(start, i - start));
            }
        }
        out_ += '"';
    }

    void key(const Value& k) {
        switch (k.kind()) {
            case Kind::string:
                string(k.text());
                break;
            case Kind::none:
                out_ += "\"null\"";
                break;
            case Kind::boolean:
                out_ += k.as_bool() ? "\"true\"" : "\"false\"";
                break;
            case Kind::integer:
            case Kind::big_integer:
                out_ += '"' + k.to_big().to_string() + '"';
                break;
            case Kind::real:
                out_ += '"';
                number(k.as_real());
                out_ += '"';
                break;
            default:
                ev_.fail("{} cannot be the key of a JSON object", indefinite_type_name(k));
        }
    }

    void array(const Values& items, int level) {
        out_ += '[';
        for (std::size_t i = 0; i < items.size(); ++i) {
            if (i) out_ += style_.item_separator;
            line(level + 1);
            write(items[i], level + 1);
        }
        if (!items.empty()) line(level);
        out_ += ']';
    }

    void object(const Dict& map, int level) {
        std::vector<const Dict::Entry*> entries;
        for (const Dict::Entry& e : map.entries()) entries.push_back(&e);
        if (style_.sort_keys) {
            const auto by_key = [&](std::size_t a, std::size_t b) {
                return ev_.less(map.entries()[a].key, map.entries()[b].key);
            };
            const std::vector<std::size_t> order = sorted_order(entries.size(), by_key);
            for (std::size_t i = 0; i < order.size(); ++i) entries[i] = &map.entries()[order[i]];
        }
        out_ += '{';
        for (std::size_t i = 0; i < entries.size(); ++i) {
            if (i) out_ += style_.item_separator;
            line(level + 1);
            key(entries[i]->key);
            out_ += style_.key_separator;
            write(entries[i]->value, level + 1);
        }
        if (!entries.empty()) line(level);
        out_ += '}';
    }

    void write(const Value& value, int level) {
        const Evaluator::Level guard(ev_);
        ev_.heap().step();
        ev_.check_size(out_.size());
        switch (value.kind()) {
            case Kind::none:
                out_ += "null";
                break;
            case Kind::boolean:
                out_ += value.as_bool() ? "true" : "false";
                break;
            case Kind::integer:
                out_ += std::to_string(value.as_int());
                break;
            case Kind::big_integer:
                out_ += value.big().to_string();
                break;
            case Kind::real:
                number(value.as_real());
                break;
            case Kind::string:
                string(value.text());
                break;
            case Kind::list:
            case Kind::tuple:
                array(value.list().items, level);
                break;
            case Kind::dict:
                object(value.dict().map, level);
                break;
            default:
                ev_.need_defined(value);
                ev_.fail("{} cannot be written as JSON", indefinite_type_name(value));
        }
    }

    Evaluator& ev_;
    const JsonStyle& style_;
    std::string out_;
};

}  // namespace

std::string write_json(Evaluator& ev, const Value& value, const JsonStyle& style) {
    return Writer(ev, style).run(value);
}

}  // namespace forge::jinja
