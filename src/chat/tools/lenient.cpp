#include "lenient.h"

#include <charconv>

namespace forge::tools {

bool is_white(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

std::size_t skip_white(std::string_view text, std::size_t at) {
    while (at < text.size() && is_white(text[at])) ++at;
    return at;
}

std::string_view trimmed(std::string_view text) {
    const std::size_t first = skip_white(text, 0);
    std::size_t last = text.size();
    while (last > first && is_white(text[last - 1])) --last;
    return text.substr(first, last - first);
}

namespace {

// Calls fn(position, bracket) for every bracket outside strings until it says false; whether the text ends inside
// a string.
template <typename Fn>
bool each_bracket(std::string_view text, Fn&& fn) {
    bool in_string = false;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        if (in_string) {
            if (c == '\\') ++i;
            else if (c == '"') in_string = false;
        } else if (c == '"') {
            in_string = true;
        } else if ((c == '{' || c == '[' || c == '}' || c == ']') && !fn(i, c)) {
            break;
        }
    }
    return in_string;
}

}  // namespace

std::size_t balanced_end(std::string_view text) {
    int depth = 0;
    std::size_t end = std::string_view::npos;
    each_bracket(text, [&](std::size_t i, char c) {
        const bool opens = c == '{' || c == '[';
        depth += opens ? 1 : -1;
        if (!opens && depth == 0) end = i + 1;
        return end == std::string_view::npos;
    });
    return end;
}

std::optional<std::string> closed(std::string_view text) {
    std::string ends;
    bool matched = true;
    const bool in_string = each_bracket(text, [&](std::size_t, char c) {
        if (c == '{' || c == '[') {
            ends.insert(ends.begin(), c == '{' ? '}' : ']');
            return true;
        }
        matched = !ends.empty() && ends[0] == c;
        if (matched) ends.erase(ends.begin());
        return matched;
    });
    if (!matched) return std::nullopt;
    if (in_string) return std::nullopt;
    return std::string(text) + ends;
}

namespace {

void append_utf8(std::string& out, unsigned c) {
    if (c < 0x80) {
        out += static_cast<char>(c);
    } else if (c < 0x800) {
        out += {static_cast<char>(0xC0 | c >> 6), static_cast<char>(0x80 | (c & 63))};
    } else if (c < 0x10000) {
        out += {static_cast<char>(0xE0 | c >> 12), static_cast<char>(0x80 | (c >> 6 & 63)), static_cast<char>(0x80 | (c & 63))};
    } else {
        out += {static_cast<char>(0xF0 | c >> 18), static_cast<char>(0x80 | (c >> 12 & 63)), static_cast<char>(0x80 | (c >> 6 & 63)), static_cast<char>(0x80 | (c & 63))};
    }
}

class Reader {
  public:
    Reader(std::string_view text, const LenientOptions& options) : text_(text), options_(options) {}
    std::size_t at = 0;

    std::optional<Json> value(int depth = 0) {
        if (depth > 100) return std::nullopt;
        skip();
        if (at >= text_.size()) return std::nullopt;
        if (!options_.quote.empty() && rest().starts_with(options_.quote)) return raw_string();
        const char c = text_[at];
        if (c == '{') return object(depth);
        if (c == '[' || c == '(') return list(depth, c == '[' ? ']' : ')');
        if (c == '"' || c == '\'') return string();
        return word();
    }

    std::optional<std::string> name() {
        const std::size_t first = at;
        while (at < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at])) || text_[at] == '_' || text_[at] == '-' || text_[at] == '.' || static_cast<unsigned char>(text_[at]) >= 0x80)) ++at;
        if (at == first) return std::nullopt;
        return std::string(text_.substr(first, at - first));
    }

    bool eat(char c) {
        skip();
        if (at >= text_.size() || text_[at] != c) return false;
        ++at;
        return true;
    }
    void skip() { at = skip_white(text_, at); }

  private:
    std::string_view rest() const { return text_.substr(at); }

    std::optional<Json> raw_string() {
        at += options_.quote.size();
        const std::size_t end = text_.find(options_.quote, at);
        if (end == std::string_view::npos) return std::nullopt;
        Json out = std::string(text_.substr(at, end - at));
        at = end + options_.quote.size();
        return out;
    }

    std::optional<Json> object(int depth) {
        ++at;
        Json out = Json::object();
        for (;;) {
            if (eat('}')) return out;
            std::optional<std::string> key;
            skip();
            if (at < text_.size() && (text_[at] == '"' || text_[at] == '\'' || (!options_.quote.empty() && rest().starts_with(options_.quote)))) {
                const auto text = value(depth + 1);
                if (!text || !text->is_string()) return std::nullopt;
                key = text->get<std::string>();
            } else {
                key = name();
            }
            if (!key || !eat(':')) return std::nullopt;
            auto member = value(depth + 1);
            if (!member) return std::nullopt;
            if (!out.contains(*key)) out[*key] = std::move(*member);   // of two the first counts
            if (!eat(',')) {
                if (eat('}')) return out;
                return std::nullopt;
            }
        }
    }

    std::optional<Json> list(int depth, char close) {
        ++at;
        Json out = Json::array();
        for (;;) {
            if (eat(close)) return out;
            auto element = value(depth + 1);
            if (!element) return std::nullopt;
            out.push_back(std::move(*element));
            if (!eat(',')) {
                if (eat(close)) return out;
                return std::nullopt;
            }
        }
    }

    std::optional<unsigned> hex4(std::size_t from) const {
        if (from + 4 > text_.size()) return std::nullopt;
        unsigned code = 0;
        const auto r = std::from_chars(text_.data() + from, text_.data() + from + 4, code, 16);
        if (r.ptr != text_.data() + from + 4) return std::nullopt;
        return code;
    }

    std::optional<Json> string() {
        const char quote = text_[at++];
        std::string out;
        for (; at < text_.size(); ++at) {
            const char c = text_[at];
            if (c == quote) {
                ++at;
                return Json(out);
            }
            if (c != '\\') {
                out += c;
                continue;
            }
            if (++at >= text_.size()) return std::nullopt;
            switch (text_[at]) {
                case 'n': out += '\n'; break;
                case 't': out += '\t'; break;
                case 'r': out += '\r'; break;
                case 'b': out += '\b'; break;
                case 'f': out += '\f'; break;
                case '"': case '\'': case '\\': case '/': out += text_[at]; break;
                case 'u': {
                    const auto code = hex4(at + 1);
                    if (!code) { out += "\\u"; break; }
                    unsigned c32 = *code;
                    at += 4;
                    if (c32 >= 0xD800 && c32 < 0xDC00 && text_.substr(at + 1, 2) == "\\u") {
                        const auto low = hex4(at + 3);
                        if (low && *low >= 0xDC00 && *low < 0xE000) {
                            c32 = 0x10000 + ((c32 - 0xD800) << 10) + (*low - 0xDC00);
                            at += 6;
                        }
                    }
                    append_utf8(out, c32 >= 0xD800 && c32 < 0xE000 ? 0xFFFD : c32);
                    break;
                }
                default: out += {'\\', text_[at]};   // \d: the backslash was meant
            }
        }
        return std::nullopt;
    }

    std::optional<Json> word() {
        const std::size_t first = at;
        while (at < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at])) || text_[at] == '_' || text_[at] == '-' || text_[at] == '+' || text_[at] == '.')) ++at;
        const std::string_view word = text_.substr(first, at - first);
        if (word == "true" || word == "True") return Json(true);
        if (word == "false" || word == "False") return Json(false);
        if (word == "null" || word == "None") return Json(nullptr);
        if (!word.empty() && word.find_first_not_of("0123456789+-.eE") == std::string_view::npos) {
            Json number = Json::parse(word[0] == '+' ? word.substr(1) : word, nullptr, false);
            if (number.is_number()) return number;
        }
        at = first;
        return std::nullopt;
    }

    std::string_view text_;
    const LenientOptions& options_;
};

}  // namespace

std::optional<Json> lenient_value(std::string_view text, std::size_t& used, const LenientOptions& options) {
    Reader reader(text, options);
    auto value = reader.value();
    used = reader.at;
    return value;
}

std::optional<PythonCall> python_call(std::string_view text, std::size_t& used) {
    const LenientOptions options;
    Reader reader(text, options);
    reader.skip();
    const auto name = reader.name();
    if (!name || !reader.eat('(')) return std::nullopt;
    PythonCall call{*name, Json::object()};
    while (!reader.eat(')')) {
        reader.skip();
        const auto key = reader.name();
        if (!key || !reader.eat('=')) return std::nullopt;
        auto value = reader.value();
        if (!value) return std::nullopt;
        call.arguments[*key] = std::move(*value);
        if (reader.eat(',')) continue;
        if (!reader.eat(')')) return std::nullopt;
        break;
    }
    used = reader.at;
    return call;
}

}  // namespace forge::tools
