#include "jinja/lexer.h"

#include <algorithm>

#include "jinja/numbers.h"
#include "jinja/unicode.h"

namespace forge::jinja {

void syntax_error(int line, std::string_view message) {
    throw TemplateError(TemplateError::Cause::syntax,
                        fmt::format("The chat template has a syntax error in line {}: {}.", line, message));
}

namespace {

bool is_digit_char(char c) { return c >= '0' && c <= '9'; }

class Lexer {
  public:
    explicit Lexer(std::string source) : source_(std::move(source)) {}

    std::vector<Lexeme> run() {
        while (at_ < source_.size()) text();
        push(Token::end);
        return std::move(out_);
    }

  private:
    void push(Token token, std::string text = {}, Value value = {}) {
        out_.push_back({token, line_, std::move(text), std::move(value)});
    }

    void count_lines(std::size_t from, std::size_t to) {
        line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(from),
                                             source_.begin() + static_cast<std::ptrdiff_t>(to), '\n'));
    }
    void move_to(std::size_t position) {
        count_lines(at_, position);
        at_ = position;
    }
    bool starts(std::string_view what, std::size_t position) const {
        return source_.compare(position, what.size(), what) == 0;
    }
    std::size_t skip_space(std::size_t position) const {
        while (position < source_.size()) {
            std::size_t p = position;
            if (!is_space(next_code_point(source_, p))) break;
            position = p;
        }
        return position;
    }

    // Drops what a tag's opening (at the end of `text`) removes of the text before it.
    // line_start: the text begins at the start of a line.
    static std::string_view trim_before(std::string_view text, char sign, bool may_lstrip, bool line_start) {
        if (sign == '-') return strip(text, false, true);
        if (sign == '+' || !may_lstrip) return text;
        const std::size_t newline = text.rfind('\n');
        if (newline == std::string_view::npos && !line_start) return text;
        const std::size_t start = newline == std::string_view::npos ? 0 : newline + 1;
        return strip(text.substr(start), true, false).empty() ? text.substr(0, start) : text;
    }

    void data(std::string_view text) {
        if (!text.empty()) push(Token::data, std::string(text));
    }

    // The '-' or '+' after an opening delimiter, or 0.
    char sign_at(std::size_t position) const {
        const char c = position < source_.size() ? source_[position] : '\0';
        return c == '-' || c == '+' ? c : '\0';
    }

    // Text up to the next tag, then that tag.
    void text() {
        std::size_t tag = at_;
        for (;; ++tag) {
            tag = source_.find('{', tag);
            if (tag == std::string::npos || tag + 1 >= source_.size()) {
                data(std::string_view(source_).substr(at_));
                move_to(source_.size());
                return;
            }
            const char c = source_[tag + 1];
            if (c == '{' || c == '%' || c == '#') break;
        }
        const char opening = source_[tag + 1];
        const char sign = sign_at(tag + 2);
        const std::string_view before = std::string_view(source_).substr(at_, tag - at_);
        data(trim_before(before, sign, opening != '{', line_start_));
        move_to(tag);
        const std::size_t inside = tag + 2 + (sign ? 1 : 0);
        line_start_ = false;
        if (opening == '#') {
            comment(inside);
        } else if (opening == '{') {
            push(Token::print_begin);
            move_to(inside);
            expression(Token::print_end);
        } else if (!raw(inside)) {
            push(Token::block_begin);
            move_to(inside);
            expression(Token::block_end);
        }
    }

    // Moves past the end of a block or comment whose closing delimiter (2 characters)
    // begins at `close`; sign is what stands before it.
    void after_block(std::size_t close, char sign) {
        std::size_t next = close + 2;
        if (sign == '-')
            next = skip_space(next);
        else if (sign == '\0' && next < source_.size() && source_[next] == '\n')
            ++next;
        move_to(next);
        line_start_ = source_[next - 1] == '\n';
    }

    void comment(std::size_t inside) {
        const std::size_t close = source_.find("#}", inside);
        if (close == std::string::npos) syntax_error(line_, "the comment is not closed with '#}'");
        const char sign = close > inside ? sign_at(close - 1) : '\0';
        after_block(close, sign);
    }

    // {% raw %} ... {% endraw %}; false when the tag at `inside` is another one.
    bool raw(std::size_t inside) {
        std::size_t p = skip_space(inside);
        if (!starts("raw", p)) return false;
        p = skip_space(p + 3);
        const bool minus = starts("-%}", p);
        if (!minus && !starts("%}", p)) return false;
        p += minus ? 3 : 2;
        if (minus) p = skip_space(p);
        const bool starts_line = p > 0 && source_[p - 1] == '\n';
        for (std::size_t close = source_.find("{%", p); close != std::string::npos;
             close = source_.find("{%", close + 1)) {
            const char sign = sign_at(close + 2);
            std::size_t q = skip_space(close + 2 + (sign ? 1 : 0));
            if (!starts("endraw", q)) continue;
            q = skip_space(q + 6);
            const char end_sign = sign_at(q);
            if (!starts("%}", q + (end_sign ? 1 : 0))) continue;
            move_to(p);
            data(trim_before(std::string_view(source_).substr(p, close - p), sign, true, starts_line));
            move_to(q);
            after_block(q + (end_sign ? 1 : 0), end_sign);
            return true;
        }
        syntax_error(line_, "the raw block is not closed with '{% endraw %}'");
    }

    // Tokens up to the closing delimiter of a print or block tag.
    void expression(Token closing) {
        const std::string_view end = closing == Token::print_end ? "}}" : "%}";
        std::string open;  // brackets that wait for their closing one
        while (true) {
            move_to(skip_space(at_));
            if (at_ >= source_.size())
                syntax_error(line_, closing == Token::print_end ? "the template ends inside '{{ ... '"
                                                                : "the template ends inside '{% ... '");
            if (open.empty()) {
                const char sign = sign_at(at_);
                if (starts(end, at_) || (sign == '-' && starts(end, at_ + 1)) ||
                    (sign == '+' && closing == Token::block_end && starts(end, at_ + 1))) {
                    push(closing);
                    const std::size_t close = at_ + (starts(end, at_) ? 0 : 1);
                    const char used = close == at_ ? '\0' : sign;
                    if (closing == Token::block_end) {
                        after_block(close, used);
                    } else {
                        const std::size_t next = used == '-' ? skip_space(close + 2) : close + 2;
                        move_to(next);
                        line_start_ = source_[next - 1] == '\n';
                    }
                    return;
                }
            }
            const char c = source_[at_];
            if (is_digit_char(c))
                number();
            else if (c == '\'' || c == '"')
                string(c);
            else if (!name())
                operation(open);
        }
    }

    // Digits with single underscores between them, from p; returns the end.
    std::size_t digits(std::size_t p) const {
        if (p >= source_.size() || !is_digit_char(source_[p])) return p;
        while (p < source_.size()) {
            if (is_digit_char(source_[p]))
                ++p;
            else if (source_[p] == '_' && p + 1 < source_.size() && is_digit_char(source_[p + 1]))
                ++p;
            else
                break;
        }
        return p;
    }

    static std::string without_underscores(std::string_view text) {
        std::string out;
        std::copy_if(text.begin(), text.end(), std::back_inserter(out), [](char c) { return c != '_'; });
        return out;
    }

    void number() {
        const std::size_t start = at_;
        std::size_t p = digits(start);
        bool real = false;
        // A number directly after a dot is an index (x.0.1), never a fraction.
        if (start == 0 || source_[start - 1] != '.') {
            std::size_t q = p;
            if (q < source_.size() && source_[q] == '.' && digits(q + 1) > q + 1) {
                q = digits(q + 1);
                real = true;
                p = q;
            }
            if (q < source_.size() && (source_[q] == 'e' || source_[q] == 'E')) {
                std::size_t e = q + 1;
                if (e < source_.size() && (source_[e] == '+' || source_[e] == '-')) ++e;
                if (digits(e) > e) {
                    real = true;
                    p = digits(e);
                }
            }
        }
        if (real) {
            push(Token::real, {},
                 Value::real(parse_double(without_underscores(source_.substr(start, p - start)))));
            move_to(p);
            return;
        }
        integer(start);
    }

    void integer(std::size_t start) {
        std::size_t p = start;
        int base = 10;
        if (source_[p] == '0' && p + 1 < source_.size()) {
            const char c = static_cast<char>(source_[p + 1] | 0x20);
            const int other = c == 'x' ? 16 : c == 'o' ? 8 : c == 'b' ? 2 : 10;
            const auto in_base = [&](char d) {
                const int v = is_digit_char(d)                         ? d - '0'
                              : (d | 0x20) >= 'a' && (d | 0x20) <= 'f' ? (d | 0x20) - 'a' + 10
                                                                       : 99;
                return v < other;
            };
            std::size_t q = p + 2;
            while (other != 10 && q < source_.size()) {
                if (in_base(source_[q]))
                    ++q;
                else if (source_[q] == '_' && q + 1 < source_.size() && in_base(source_[q + 1]))
                    q += 2;
                else
                    break;
            }
            if (other != 10 && q > p + 2) {
                base = other;
                p = q;
            }
        }
        std::string_view text;
        if (base != 10) {
            text = std::string_view(source_).substr(start + 2, p - start - 2);
        } else {
            p = digits(start);
            if (source_[start] == '0')  // 0 is the only number that begins with 0; 01 is two numbers
                for (p = start + 1; p < source_.size();) {
                    if (source_[p] == '0')
                        ++p;
                    else if (source_[p] == '_' && p + 1 < source_.size() && source_[p + 1] == '0')
                        p += 2;
                    else
                        break;
                }
            text = std::string_view(source_).substr(start, p - start);
        }
        auto value = BigInt::parse(without_underscores(text), base);
        if (!value) syntax_error(line_, "an integer has more than 4300 digits");
        push(Token::integer, {}, Value::literal(std::move(*value)));
        move_to(p);
    }

    bool name() {
        std::size_t p = at_;
        while (p < source_.size()) {
            std::size_t q = p;
            const char32_t c = next_code_point(source_, q);
            const bool part = c < 0x80 ? (c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
                                          (c >= 'A' && c <= 'Z'))
                                       : is_identifier_part(c);
            if (!part) break;
            p = q;
        }
        if (p == at_) return false;
        push(Token::name, source_.substr(at_, p - at_));
        move_to(p);
        return true;
    }

    void operation(std::string& open) {
        static constexpr std::string_view operators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                                         "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                         ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};
        for (std::string_view op : operators) {
            if (!starts(op, at_)) continue;
            if (op == "(" || op == "[" || op == "{") {
                open += op == "(" ? ')' : op == "[" ? ']' : '}';
            } else if (op == ")" || op == "]" || op == "}") {
                if (open.empty()) syntax_error(line_, fmt::format("'{}' closes nothing", op));
                if (open.back() != op[0])
                    syntax_error(line_, fmt::format("'{}' stands where '{}' is missing", op, open.back()));
                open.pop_back();
            }
            push(Token::op, std::string(op));
            move_to(at_ + op.size());
            return;
        }
        std::size_t p = at_;
        next_code_point(source_, p);
        syntax_error(line_, fmt::format("unexpected character '{}'", source_.substr(at_, p - at_)));
    }

    void string(char quote) {
        std::string out;
        std::size_t p = at_ + 1;
        while (p < source_.size() && source_[p] != quote) {
            if (source_[p] != '\\') {
                out += source_[p++];
                continue;
            }
            if (p + 1 >= source_.size()) break;
            p = escape(p + 1, out);
        }
        if (p >= source_.size()) syntax_error(line_, fmt::format("a string is not closed with {}", quote));
        push(Token::string, std::move(out));
        move_to(p + 1);
    }

    // Decodes the escape whose character after the backslash is at p; returns what follows it.
    std::size_t escape(std::size_t p, std::string& out) {
        const char c = source_[p];
        switch (c) {
            case '\n':
                return p + 1;  // an escaped line end joins the lines
            case '\\':
            case '\'':
            case '"':
                out += c;
                return p + 1;
            case 'a':
                out += '\a';
                return p + 1;
            case 'b':
                out += '\b';
                return p + 1;
            case 'f':
                out += '\f';
                return p + 1;
            case 'n':
                out += '\n';
                return p + 1;
            case 'r':
                out += '\r';
                return p + 1;
            case 't':
                out += '\t';
                return p + 1;
            case 'v':
                out += '\v';
                return p + 1;
            case 'x':
                return hex(p + 1, 2, out);
            case 'u':
                return hex(p + 1, 4, out);
            case 'U':
                return hex(p + 1, 8, out);
            case 'N':
                syntax_error(line_, "characters by name (\\N{...}) are not supported; write \\uXXXX");
            default:
                break;
        }
        if (c >= '0' && c <= '7') {
            char32_t value = 0;
            std::size_t n = 0;
            for (; n < 3 && p + n < source_.size() && source_[p + n] >= '0' && source_[p + n] <= '7'; ++n)
                value = value * 8 + static_cast<char32_t>(source_[p + n] - '0');
            append_code_point(out, value);
            return p + n;
        }
        out += '\\';  // an unknown escape stays as it is written
        return p;
    }

    std::size_t hex(std::size_t p, std::size_t n, std::string& out) {
        char32_t value = hex_value(p, n);
        if (value >= 0xd800 && value < 0xdc00 && n == 4 && starts("\\u", p + 4)) {
            const char32_t low = hex_value(p + 6, 4);
            if (low >= 0xdc00 && low < 0xe000) {
                append_code_point(out, 0x10000 + ((value - 0xd800) << 10) + (low - 0xdc00));
                return p + 10;
            }
        }
        append_code_point(out, value);
        return p + n;
    }

    char32_t hex_value(std::size_t p, std::size_t n) {
        if (p + n > source_.size()) syntax_error(line_, "the template ends inside an escape");
        char32_t value = 0;
        for (std::size_t i = 0; i < n; ++i) {
            const char c = source_[p + i];
            const char l = static_cast<char>(c | 0x20);
            if (is_digit_char(c))
                value = value * 16 + static_cast<char32_t>(c - '0');
            else if (l >= 'a' && l <= 'f')
                value = value * 16 + static_cast<char32_t>(l - 'a' + 10);
            else
                syntax_error(line_, fmt::format("an escape in a string needs {} hexadecimal digits", n));
        }
        if (value > 0x10ffff) syntax_error(line_, "an escape names a character beyond U+10FFFF");
        return value;
    }

    std::string source_;
    std::size_t at_ = 0;
    int line_ = 1;
    bool line_start_ = true;  // the text at at_ begins at the start of a line
    std::vector<Lexeme> out_;
};

// CRLF and CR become LF; one final line end is dropped.
std::string normalize(std::string_view source) {
    const std::string text = valid_utf8(source);
    std::string out;
    out.reserve(text.size());
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] != '\r') {
            out += text[i];
            continue;
        }
        out += '\n';
        if (i + 1 < text.size() && text[i + 1] == '\n') ++i;
    }
    if (!out.empty() && out.back() == '\n') out.pop_back();
    return out;
}

}  // namespace

std::vector<Lexeme> tokenize(std::string_view source) { return Lexer(normalize(source)).run(); }

}  // namespace forge::jinja
