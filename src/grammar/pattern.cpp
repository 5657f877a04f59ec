#include "pattern.h"

#include <algorithm>

#include "base/error.h"

namespace forge::grammar {
namespace {

constexpr int most_depth = 100, most_repeats = 5000;
constexpr std::size_t most_pattern_nodes = 30'000;

const Ranges digits = {{'0', '9'}}, word = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}},
             space = {{9, 13}, {32, 32}, {0xA0, 0xA0}, {0x1680, 0x1680}, {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}},
             line_ends = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};

// Parses into a tree first, because a counted repetition copies its part.
struct Tree {
    enum Kind { empty, set, sequence, choice, repeat, start, end } kind = empty;
    Ranges ranges;
    std::vector<Tree> parts;
    int least = 0, most = -1;
};

class Parser {
  public:
    explicit Parser(std::string_view text) : text_(code_points(text)), source_(text) {}

    Tree parse() {
        Tree t = choice(0);
        if (at_ < text_.size()) wrong("there is a ) without its (");
        return t;
    }

  private:
    [[noreturn]] void wrong(std::string_view what) const { fail("the expression {:?} is not understood at character {}: {}", source_.substr(0, 200), at_ + 1, what); }
    [[noreturn]] void unsupported(std::string_view what) const {
        fail(ErrorKind::unsupported, "the expression {:?} has {} at character {}, which is not supported", source_.substr(0, 200), what, at_ + 1);
    }
    bool more() const { return at_ < text_.size(); }
    std::uint32_t peek(std::size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : 0xFFFFFFFF; }
    bool take(std::uint32_t c) {
        if (peek() != c) return false;
        ++at_;
        return true;
    }

    Tree choice(int depth) {
        if (depth > most_depth) wrong("groups are nested too deep");
        Tree t{.kind = Tree::choice, .ranges = {}, .parts = {}};
        do t.parts.push_back(sequence(depth));
        while (take('|'));
        if (t.parts.size() == 1) return Tree(std::move(t.parts[0]));
        return t;
    }

    Tree sequence(int depth) {
        Tree t{.kind = Tree::sequence, .ranges = {}, .parts = {}};
        while (more() && peek() != '|' && peek() != ')') t.parts.push_back(repeated(depth));
        return t;
    }

    Tree repeated(int depth) {
        Tree part = atom(depth);
        for (;;) {
            int least = 0, most = -1;
            if (take('*')) least = 0;
            else if (take('+')) least = 1;
            else if (take('?')) most = 1;
            else if (peek() == '{' && braces(least, most)) {}
            else return part;
            if (part.kind == Tree::start || part.kind == Tree::end) wrong("there is nothing to repeat");
            if (most >= 0 && most < least) wrong("a repetition's bounds are the wrong way round");
            if (least > most_repeats || most > most_repeats) unsupported(fmt::format("more than {} repetitions", most_repeats));
            take('?');   // lazy: the same language
            Tree t{.kind = Tree::repeat, .ranges = {}, .parts = {}, .least = least, .most = most};
            t.parts.push_back(std::move(part));
            part = std::move(t);
            if (peek() == '*' || peek() == '+' || peek() == '?') wrong("there is nothing to repeat");
        }
    }

    bool number(int& value) {
        if (peek() < '0' || peek() > '9') return false;
        value = 0;
        while (peek() >= '0' && peek() <= '9') value = std::min(1'000'000, value * 10 + static_cast<int>(text_[at_++] - '0'));
        return true;
    }

    bool braces(int& least, int& most) {
        const std::size_t before = at_++;
        if (!number(least)) return at_ = before, false;
        if (take('}')) return most = least, true;
        if (!take(',')) return at_ = before, false;
        if (take('}')) return most = -1, true;
        if (!number(most) || !take('}')) return at_ = before, false;
        return true;
    }

    static Tree set_of(Ranges ranges, bool negated = false) {
        normalize(ranges);
        return {.kind = Tree::set, .ranges = negated ? complement(ranges) : ranges, .parts = {}};
    }

    Tree atom(int depth) {
        const std::uint32_t c = peek();
        switch (c) {
            case '^': ++at_; return {.kind = Tree::start, .ranges = {}, .parts = {}};
            case '$': ++at_; return {.kind = Tree::end, .ranges = {}, .parts = {}};
            case '.': ++at_; return set_of(line_ends, true);
            case '[': return bracket();
            case '(': return group(depth);
            case '\\': {
                if (peek(1) == 'b' || peek(1) == 'B') unsupported("a word border");
                if (peek(1) >= '1' && peek(1) <= '9') unsupported("a back reference");
                if (peek(1) == 'k') unsupported("a back reference");
                Ranges ranges;
                escape(ranges, false);
                return set_of(std::move(ranges));
            }
            case '*': case '+': case '?': wrong("there is nothing to repeat");
            case '{': {
                int a = 0, b = 0;
                const std::size_t before = at_;
                if (braces(a, b)) wrong("there is nothing to repeat");
                at_ = before;
                break;
            }
            default: break;
        }
        ++at_;
        return set_of({{c, c}});
    }

    Tree group(int depth) {
        ++at_;
        if (take('?')) {
            if (take(':')) {
            } else if (peek() == '<' && peek(1) != '=' && peek(1) != '!') {
                while (more() && !take('>')) ++at_;
            } else if (peek() == '=' || peek() == '!' || peek() == '<') {
                unsupported("a look-around");
            } else {
                unsupported("a group with options");
            }
        }
        Tree t = choice(depth + 1);
        if (!take(')')) wrong("a ( has no )");
        return t;
    }

    std::uint32_t hex(int count) {
        std::uint32_t value = 0;
        for (int i = 0; i < count; ++i) {
            const std::uint32_t c = peek();
            const int digit = c >= '0' && c <= '9' ? static_cast<int>(c - '0') : c >= 'a' && c <= 'f' ? static_cast<int>(c - 'a' + 10) : c >= 'A' && c <= 'F' ? static_cast<int>(c - 'A' + 10) : -1;
            if (digit < 0) wrong("hexadecimal digits should follow");
            value = value * 16 + static_cast<std::uint32_t>(digit);
            ++at_;
        }
        return value;
    }

    // After a backslash, which is the current character. Adds what it stands for; a single character's code is
    // returned, for ranges in brackets, else -1.
    std::int64_t escape(Ranges& out, bool in_bracket) {
        ++at_;
        if (!more()) wrong("it ends in a backslash");
        const auto all_of = [&](const Ranges& r, bool negated) -> std::int64_t {
            const Ranges set = negated ? complement(r) : r;
            out.insert(out.end(), set.begin(), set.end());
            return -1;
        };
        const auto one = [&](std::uint32_t c) -> std::int64_t {
            out.push_back({c, c});
            return c;
        };
        const std::uint32_t c = text_[at_++];
        switch (c) {
            case 'd': return all_of(digits, false);
            case 'D': return all_of(digits, true);
            case 'w': return all_of(word, false);
            case 'W': return all_of(word, true);
            case 's': return all_of(space, false);
            case 'S': return all_of(space, true);
            case 't': return one('\t');
            case 'n': return one('\n');
            case 'r': return one('\r');
            case 'f': return one('\f');
            case 'v': return one('\v');
            case 'b': if (in_bracket) return one('\b'); break;
            case '0': if (!(peek() >= '0' && peek() <= '9')) return one(0); break;
            case 'c':
                if ((peek() >= 'a' && peek() <= 'z') || (peek() >= 'A' && peek() <= 'Z')) return one(text_[at_++] % 32);
                wrong("a letter should follow \\c");
            case 'x': return one(hex(2));
            case 'u': {
                if (take('{')) {
                    std::uint32_t value = 0;
                    do value = value * 16 + hex(1);
                    while (value <= last_code_point && peek() != '}');
                    if (value > last_code_point || !take('}')) wrong("\\u{...} is no character");
                    return one(value);
                }
                std::uint32_t value = hex(4);
                if (value >= 0xD800 && value < 0xDC00 && peek() == '\\' && peek(1) == 'u') {
                    at_ += 2;
                    const std::uint32_t low = hex(4);
                    if (low < 0xDC00 || low > 0xDFFF) wrong("half a surrogate pair");
                    value = 0x10000 + ((value - 0xD800) << 10) + (low - 0xDC00);
                }
                return one(value);
            }
            case 'p': case 'P': --at_; unsupported("a Unicode property");
            default: break;
        }
        if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9')) {
            --at_;
            wrong(fmt::format("\\{} means nothing", utf8(c)));
        }
        return one(c);
    }

    Tree bracket() {
        ++at_;
        const bool negated = take('^');
        Ranges ranges;
        const auto member = [&]() -> std::int64_t {
            if (peek() == '\\') return escape(ranges, true);
            const std::uint32_t c = text_[at_++];
            ranges.push_back({c, c});
            return c;
        };
        for (;;) {
            if (!more()) wrong("a [ has no ]");
            if (take(']')) break;
            const std::int64_t lo = member();
            if (peek() != '-' || peek(1) == ']' || peek(1) == 0xFFFFFFFF) continue;
            ++at_;
            const std::int64_t hi = member();
            if (lo < 0 || hi < 0) {
                ranges.push_back({'-', '-'});
                continue;
            }
            if (hi < lo) wrong("a range's ends are the wrong way round");
            ranges.push_back({static_cast<std::uint32_t>(lo), static_cast<std::uint32_t>(hi)});
        }
        return set_of(std::move(ranges), negated);
    }

    std::vector<std::uint32_t> text_;
    std::string_view source_;
    std::size_t at_ = 0;
};

class Assembler {
  public:
    Pattern pattern;

    // Where to begin so that `t` is read and then `next` follows.
    std::uint32_t build(const Tree& t, std::uint32_t next) {
        switch (t.kind) {
            case Tree::empty: return next;
            case Tree::set:
                pattern.sets.push_back(t.ranges);
                return node({PatternNode::characters, next, 0, static_cast<std::uint32_t>(pattern.sets.size() - 1)});
            case Tree::start: return node({PatternNode::at_start, next});
            case Tree::end: return node({PatternNode::at_end, next});
            case Tree::sequence:
                for (std::size_t i = t.parts.size(); i-- > 0;) next = build(t.parts[i], next);
                return next;
            case Tree::choice: {
                std::uint32_t at = build(t.parts.back(), next);
                for (std::size_t i = t.parts.size() - 1; i-- > 0;) {
                    const std::uint32_t first = build(t.parts[i], next);
                    at = node({PatternNode::split, first, at});
                }
                return at;
            }
            case Tree::repeat: {
                const Tree& part = t.parts[0];
                if (t.most < 0) {
                    const std::uint32_t loop = node({PatternNode::split, 0, next});
                    const std::uint32_t body = build(part, loop);
                    pattern.nodes[loop].a = body;
                    next = loop;
                } else {
                    const std::uint32_t end = next;
                    for (int i = t.least; i < t.most; ++i) {
                        const std::uint32_t body = build(part, next);
                        next = node({PatternNode::split, body, end});
                    }
                }
                for (int i = 0; i < t.least; ++i) next = build(part, next);
                return next;
            }
        }
        return next;
    }

    std::uint32_t node(PatternNode n) {
        if (pattern.nodes.size() >= most_pattern_nodes || pattern.sets.size() > most_pattern_nodes)
            fail(ErrorKind::unsupported, "the expression is too large: its repetitions make more than {} states", most_pattern_nodes);
        pattern.nodes.push_back(n);
        return static_cast<std::uint32_t>(pattern.nodes.size() - 1);
    }
};

}  // namespace

std::vector<std::uint32_t> code_points(std::string_view text) {
    std::vector<std::uint32_t> out;
    for (std::size_t i = 0; i < text.size();) {
        const auto at = [&](std::size_t k) { return i + k < text.size() ? static_cast<unsigned char>(text[i + k]) : 0u; };
        const unsigned b = at(0);
        const int n = b < 0x80 ? 0 : b >= 0xC2 && b < 0xE0 ? 1 : b >= 0xE0 && b < 0xF0 ? 2 : b >= 0xF0 && b < 0xF5 ? 3 : -1;
        std::uint32_t c = n == 0 ? b : n == 1 ? b & 0x1F : n == 2 ? b & 0x0F : b & 0x07;
        bool good = n >= 0;
        for (int k = 1; k <= n && good; ++k) {
            good = (at(static_cast<std::size_t>(k)) & 0xC0) == 0x80;
            c = c << 6 | (at(static_cast<std::size_t>(k)) & 0x3F);
        }
        good = good && !(n == 2 && (c < 0x800 || (c >= 0xD800 && c < 0xE000))) && !(n == 3 && (c < 0x10000 || c > last_code_point));
        out.push_back(good ? c : 0xFFFD);
        i += good ? static_cast<std::size_t>(n) + 1 : 1;
    }
    return out;
}

Pattern parse_pattern(std::string_view expression) {
    if (expression.size() > 20'000) fail(ErrorKind::unsupported, "an expression of {} bytes is too large", expression.size());
    const Tree tree = Parser(expression).parse();
    Assembler assembler;
    const std::uint32_t match = assembler.node({PatternNode::match});
    const std::uint32_t start = assembler.build(tree, match);
    assembler.pattern.start = start;
    return std::move(assembler.pattern);
}

std::string escaped(std::string_view text) {
    std::string out;
    for (const char c : text) {
        if (std::string_view("^$\\.*+?()[]{}|/").find(c) != std::string_view::npos) out += '\\';
        out += c;
    }
    return out;
}

}  // namespace forge::grammar
