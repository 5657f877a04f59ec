#include <limits>
#include <nlohmann/json.hpp>

#include "jinja/json.h"
#include "jinja/numbers.h"
#include "jinja/unicode.h"

namespace forge::jinja {
namespace {

class Reader {
  public:
    Reader(Heap& heap, std::string_view text) : heap_(heap), text_(text) {}

    Value document() {
        Value out = value(1);
        space();
        if (at_ != text_.size()) error("the end of the JSON text");
        return out;
    }

  private:
    [[noreturn]] void error(std::string_view wanted) const {
        std::size_t line = 1, column = 1;
        for (std::size_t i = 0; i < at_ && i < text_.size(); ++i) {
            if (text_[i] == '\n')
                ++line, column = 1;
            else
                ++column;
        }
        fail("JSON input: {} was expected in line {}, column {}", wanted, line, column);
    }
    char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
    void space() {
        while (at_ < text_.size() &&
               (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n' || text_[at_] == '\r'))
            ++at_;
    }
    bool skip(std::string_view word) {
        if (text_.substr(at_, word.size()) != word) return false;
        at_ += word.size();
        return true;
    }

    Value value(int depth) {
        heap_.check_depth(depth);
        heap_.step();
        space();
        switch (peek()) {
            case '{':
                return object(depth);
            case '[':
                return array(depth);
            case '"':
                return make_string(heap_, string());
            case 't':
                if (skip("true")) return Value::boolean(true);
                break;
            case 'f':
                if (skip("false")) return Value::boolean(false);
                break;
            case 'n':
                if (skip("null")) return Value::none();
                break;
            case 'N':
                if (skip("NaN")) return Value::real(std::numeric_limits<double>::quiet_NaN());
                break;
            case 'I':
                if (skip("Infinity")) return Value::real(std::numeric_limits<double>::infinity());
                break;
            default:
                break;
        }
        if (skip("-Infinity")) return Value::real(-std::numeric_limits<double>::infinity());
        if (peek() == '-' || (peek() >= '0' && peek() <= '9')) return number();
        error("a value");
    }

    Value object(int depth) {
        ++at_;
        Dict map;
        map.heap = &heap_;
        space();
        if (peek() == '}') {
            ++at_;
            return make_dict(heap_, std::move(map));
        }
        while (true) {
            space();
            if (peek() != '"') error("a key in quotation marks");
            Value key = make_string(heap_, string());
            space();
            if (!skip(":")) error("':'");
            map.set(std::move(key), value(depth + 1));
            space();
            if (skip(",")) continue;
            if (skip("}")) return make_dict(heap_, std::move(map));
            error("',' or '}'");
        }
    }

    Value array(int depth) {
        ++at_;
        Values items;
        space();
        if (peek() == ']') {
            ++at_;
            return make_list(heap_, std::move(items));
        }
        while (true) {
            items.push_back(value(depth + 1));
            space();
            if (skip(",")) continue;
            if (skip("]")) return make_list(heap_, std::move(items));
            error("',' or ']'");
        }
    }

    std::size_t digits() {
        const std::size_t start = at_;
        while (peek() >= '0' && peek() <= '9') ++at_;
        return at_ - start;
    }

    Value number() {
        const std::size_t start = at_;
        const bool negative = skip("-");
        if (skip("0")) {
            if (peek() >= '0' && peek() <= '9') error("no digit after a leading 0");
        } else if (digits() == 0) {
            error("a digit");
        }
        const std::size_t integer_end = at_;
        bool real = false;
        if (peek() == '.') {
            ++at_;
            real = true;
            if (digits() == 0) error("a digit after '.'");
        }
        if (peek() == 'e' || peek() == 'E') {
            ++at_;
            real = true;
            if (peek() == '+' || peek() == '-') ++at_;
            if (digits() == 0) error("a digit in the exponent");
        }
        if (real) return Value::real(parse_double(text_.substr(start, at_ - start)));
        const std::size_t first = start + (negative ? 1 : 0);
        auto big = BigInt::parse(text_.substr(first, integer_end - first));
        if (!big) error(fmt::format("an integer of at most {} digits", BigInt::max_digits));
        return make_int(heap_, negative ? -*big : std::move(*big));
    }

    char32_t hex4() {
        if (at_ + 4 > text_.size()) error("four hexadecimal digits");
        char32_t out = 0;
        for (int i = 0; i < 4; ++i) {
            const char c = text_[at_];
            const char l = static_cast<char>(c | 0x20);
            if (c >= '0' && c <= '9')
                out = out * 16 + static_cast<char32_t>(c - '0');
            else if (l >= 'a' && l <= 'f')
                out = out * 16 + static_cast<char32_t>(l - 'a' + 10);
            else
                error("four hexadecimal digits");
            ++at_;
        }
        return out;
    }

    std::string string() {
        ++at_;
        std::string out;
        while (true) {
            if (at_ >= text_.size()) error("the end of a string");
            const unsigned char c = static_cast<unsigned char>(text_[at_]);
            if (c == '"') {
                ++at_;
                return out;
            }
            if (c < 0x20) error("an escape instead of a control character");
            if (c >= 0x80) {
                append_code_point(out, next_code_point(text_, at_));
                continue;
            }
            ++at_;
            if (c != '\\') {
                out += static_cast<char>(c);
                continue;
            }
            const char e = peek();
            ++at_;
            switch (e) {
                case '"':
                case '\\':
                case '/':
                    out += e;
                    break;
                case 'b':
                    out += '\b';
                    break;
                case 'f':
                    out += '\f';
                    break;
                case 'n':
                    out += '\n';
                    break;
                case 'r':
                    out += '\r';
                    break;
                case 't':
                    out += '\t';
                    break;
                case 'u': {
                    char32_t code = hex4();
                    if (code >= 0xd800 && code < 0xdc00 && text_.substr(at_, 2) == "\\u") {
                        const std::size_t before = at_;
                        at_ += 2;
                        const char32_t low = hex4();
                        if (low >= 0xdc00 && low < 0xe000)
                            code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
                        else
                            at_ = before;
                    }
                    append_code_point(out, code);
                    break;
                }
                default:
                    --at_;
                    error("an escape such as \\n");
            }
        }
    }

    Heap& heap_;
    std::string_view text_;
    std::size_t at_ = 0;
};

Value convert(Heap& heap, const nlohmann::ordered_json& json, int depth) {
    heap.check_depth(depth);
    heap.step();
    switch (json.type()) {
        case nlohmann::json::value_t::boolean:
            return Value::boolean(json.get<bool>());
        case nlohmann::json::value_t::number_integer:
            return Value::integer(json.get<std::int64_t>());
        case nlohmann::json::value_t::number_unsigned: {
            const auto u = json.get<std::uint64_t>();
            if (u <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
                return Value::integer(static_cast<std::int64_t>(u));
            return make_int(heap, *BigInt::parse(std::to_string(u)));
        }
        case nlohmann::json::value_t::number_float:
            return Value::real(json.get<double>());
        case nlohmann::json::value_t::string:
            return make_string(heap, valid_utf8(json.get_ref<const std::string&>()));
        case nlohmann::json::value_t::array: {
            Values items;
            for (const auto& item : json) items.push_back(convert(heap, item, depth + 1));
            return make_list(heap, std::move(items));
        }
        case nlohmann::json::value_t::object: {
            Dict map;
            map.heap = &heap;
            for (const auto& [key, value] : json.items())
                map.set(make_string(heap, valid_utf8(key)), convert(heap, value, depth + 1));
            return make_dict(heap, std::move(map));
        }
        default:
            return Value::none();
    }
}

}  // namespace

Value read_json(Heap& heap, std::string_view text) { return Reader(heap, text).document(); }
Value from_json(Heap& heap, const nlohmann::ordered_json& json) { return convert(heap, json, 1); }

}  // namespace forge::jinja
