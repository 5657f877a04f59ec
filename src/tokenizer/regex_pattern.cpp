#include "regex_pattern.h"

#include <algorithm>
#include <map>
#include <optional>

#include "base/error.h"
#include "code_point_set.h"
#include "unicode.h"

namespace forge {
namespace {

using unicode::CodePointSet;

constexpr std::size_t kMaxPatternBytes = 16384;
constexpr std::size_t kMaxRanges = 400000;  // of all sets together; bounds the time of partition()
constexpr int kMaxDepth = 64;
constexpr int kMaxRepeat = 10000;
constexpr int kMaxAtoms = 255;

class Parser {
  public:
    Parser(std::string_view pattern, std::string_view where) : pattern_(pattern), where_(where) {}

    void parse() {
        if (pattern_.size() > kMaxPatternBytes)
            fail(ErrorKind::unsupported, "{}: the pattern has {} bytes; at most {} are accepted.", where_,
                 pattern_.size(), kMaxPatternBytes);
        if (!unicode::is_valid(pattern_)) fail("{}: the pattern is not valid UTF-8.", where_);
        alternation(false, 0);
        if (at_ < pattern_.size()) fail("{}: the pattern has a ')' without '(' at byte {}.", where_, at_);
    }

    // A piece is either literal PCRE2 syntax or a reference to a set.
    struct Piece {
        std::string syntax;
        int set = -1;
    };
    std::vector<Piece> pieces;
    std::vector<CodePointSet> sets;

  private:
    bool more() const { return at_ < pattern_.size(); }
    char peek(std::size_t ahead = 0) const {
        return at_ + ahead < pattern_.size() ? pattern_[at_ + ahead] : '\0';
    }
    bool starts(std::string_view s) const { return pattern_.substr(at_).starts_with(s); }
    bool eat(std::string_view s) {
        if (!starts(s)) return false;
        at_ += s.size();
        return true;
    }
    [[noreturn]] void refuse(std::string_view what) const {
        fail(ErrorKind::unsupported, "{}: the pattern uses {} at byte {}, which Forge does not implement.",
             where_, what, at_);
    }
    [[noreturn]] void wrong(std::string_view what) const {
        fail("{}: the pattern is malformed at byte {}: {}.", where_, at_, what);
    }
    void emit(std::string_view syntax) { pieces.push_back({std::string(syntax), -1}); }
    void emit(const CodePointSet& set) {
        total_ranges_ += set.ranges().size();
        if (total_ranges_ > kMaxRanges) refuse("too many character classes");
        pieces.push_back({"", static_cast<int>(sets.size())});
        sets.push_back(set);
    }

    void alternation(bool fold, int depth) {
        if (depth > kMaxDepth) refuse("groups nested this deep");
        sequence(fold, depth);
        while (eat("|")) {
            emit("|");
            sequence(fold, depth);
        }
    }

    void sequence(bool fold, int depth) {
        char32_t before = 0;  // the literal before, for multi-character case folding
        while (more() && peek() != '|' && peek() != ')') {
            char32_t literal = item(fold, depth);
            if (fold && folds_to_one(before, literal))
                refuse("a case-insensitive 'ss', 'ff', 'fi', 'fl' or 'st'");
            before = literal;
            if (quantifier()) before = 0;
        }
    }

    // Pairs that Oniguruma also matches as one character (ss: U+00DF, fi: U+FB01, ...).
    static bool folds_to_one(char32_t a, char32_t b) {
        auto low = [](char32_t c) { return c >= 'A' && c <= 'Z' ? c + 32 : c; };
        a = low(a), b = low(b);
        return (a == 's' && (b == 's' || b == 't')) || (a == 'f' && (b == 'f' || b == 'i' || b == 'l'));
    }

    // Returns the character if the item is a plain literal, else 0.
    char32_t item(bool fold, int depth) {
        char c = peek();
        if (c == '(') return group(fold, depth), 0;
        if (c == '[') return emit(bracket(fold)), 0;
        if (c == '*' || c == '+' || c == '?') wrong("a quantifier has nothing to repeat");
        if (eat(".")) {
            CodePointSet newline;
            newline.add('\n');
            return emit(newline.complement()), 0;
        }
        CodePointSet newline;
        newline.add('\n');
        if (eat("^")) {  // start of any line, as Oniguruma's
            emit("(?:\\A|(?<=");
            emit(newline);
            emit(")(?!\\z))");
            return 0;
        }
        if (eat("$")) {
            emit("(?:\\z|(?=");
            emit(newline);
            emit("))");
            return 0;
        }
        if (eat("\\A")) return emit("\\A"), 0;
        if (eat("\\z")) return emit("\\z"), 0;
        CodePointSet set;
        std::optional<char32_t> literal;
        if (c == '\\') {
            literal = escape(set, fold, false);
        } else {
            literal = next_char();
        }
        if (literal) add_range(set, *literal, *literal, fold);
        emit(set);
        return literal.value_or(0);
    }

    void group(bool fold, int depth) {
        ++at_;
        std::string_view open = "(?:";
        if (peek() == '?') {
            if (eat("?:")) {
            } else if (eat("?i:")) {
                fold = true;
            } else if (eat("?-i:")) {
                fold = false;
            } else if (eat("?=")) {
                open = "(?=";
            } else if (eat("?!")) {
                open = "(?!";
            } else if (eat("?<=")) {
                open = "(?<=";
            } else if (eat("?<!")) {
                open = "(?<!";
            } else if (eat("?>")) {
                open = "(?>";
            } else {
                refuse("a group that begins with '(?' and is none of (?: (?i: (?= (?! (?<= (?<! (?>");
            }
        }
        emit(open);
        alternation(fold, depth + 1);
        if (!eat(")")) wrong("a '(' has no ')'");
        emit(")");
    }

    bool quantifier() {
        std::string q;
        bool interval = false, exact = false;
        char c = peek();
        if (c == '*' || c == '+' || c == '?') {
            q = c;
            ++at_;
        } else if (c == '{' && parse_interval(q, exact)) {
            interval = true;
        } else {
            return false;
        }
        if (peek() == '?') {
            if (exact) refuse("'?' after an exact count");
            q += '?', ++at_;
        } else if (peek() == '+') {
            if (interval) refuse("'+' after a count");
            q += '+', ++at_;
        }
        char next = peek();
        std::string ignored;
        std::size_t here = at_;
        if (next == '*' || next == '+' || next == '?' || (next == '{' && parse_interval(ignored, exact))) {
            at_ = here;
            refuse("a quantifier on a quantifier");
        }
        emit(q);
        return true;
    }

    // {n} {n,} {n,m} {,m}; anything else is literal text, as in Oniguruma.
    bool parse_interval(std::string& out, bool& exact) {
        std::size_t i = at_ + 1;
        auto number = [&](int& value) {
            std::size_t begin = i;
            value = 0;
            while (i < pattern_.size() && pattern_[i] >= '0' && pattern_[i] <= '9') {
                value = std::min(value * 10 + (pattern_[i] - '0'), kMaxRepeat + 1);
                ++i;
            }
            return i > begin;
        };
        int low = 0, high = 0;
        bool has_low = number(low), has_high = false, comma = false;
        if (i < pattern_.size() && pattern_[i] == ',') {
            comma = true;
            ++i;
            has_high = number(high);
        }
        if (i >= pattern_.size() || pattern_[i] != '}' || (!has_low && !has_high)) return false;
        if (low > kMaxRepeat || high > kMaxRepeat) refuse("a repeat count above 10000");
        if (has_high && low > high) wrong("a repeat's lower count is above its upper one");
        exact = !comma;
        out = fmt::format("{{{}", low);
        if (comma) out += ',';
        if (has_high) out += fmt::format("{}", high);
        out += '}';
        at_ = i + 1;
        return true;
    }

    char32_t next_char() {
        std::uint32_t length;
        char32_t c = unicode::decode_valid(pattern_, at_, length);
        at_ += length;
        return c;
    }

    // A literal or range, with its other case when folding. Beyond ASCII only
    // U+017F (s) and U+212A (k) fold to an ASCII letter.
    void add_range(CodePointSet& set, char32_t first, char32_t last, bool fold) {
        set.add(first, last);
        if (!fold) return;
        if (last >= 0x80) refuse("case-insensitive matching beyond ASCII");
        for (char32_t c = first; c <= last; ++c) {
            char32_t lower = c | 0x20;
            if (lower < 'a' || lower > 'z') continue;
            set.add(lower), set.add(lower - 32);
            if (lower == 's') set.add(0x17F);
            if (lower == 'k') set.add(0x212A);
        }
    }

    // At a backslash. Returns a literal, or adds a class to `set` and returns nothing.
    std::optional<char32_t> escape(CodePointSet& set, bool fold, bool in_bracket) {
        ++at_;
        if (!more()) wrong("it ends with a backslash");
        char c = peek();
        switch (c) {
            case 'n':
                return ++at_, U'\n';
            case 'r':
                return ++at_, U'\r';
            case 't':
                return ++at_, U'\t';
            case 'f':
                return ++at_, U'\f';
            case 'v':
                return ++at_, U'\v';
            case 'a':
                return ++at_, U'\a';
            case 'e':
                return ++at_, char32_t{0x1B};
            case 's':
                return ++at_, set.add(CodePointSet::white_space()), std::nullopt;
            case 'S':
                return ++at_, set.add(CodePointSet::white_space().complement()), std::nullopt;
            case 'w':
            case 'W': {
                CodePointSet word = CodePointSet::word();
                // Outside brackets Oniguruma also counts Latin-1's superscripts and fractions.
                if (!in_bracket)
                    for (char32_t digit : {0xB2, 0xB3, 0xB9, 0xBC, 0xBD, 0xBE}) word.add(digit);
                set.add(c == 'w' ? word : word.complement());
                return ++at_, std::nullopt;
            }
            case 'd':
            case 'D': {
                CodePointSet digits;
                CodePointSet::property("Nd", digits);
                set.add(c == 'd' ? digits : digits.complement());
                return ++at_, std::nullopt;
            }
            case 'p':
            case 'P':
                return property(set, fold), std::nullopt;
            case 'x':
            case 'u':
                return hex_escape();
            default:
                break;
        }
        if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'))
            refuse(fmt::format("the escape '\\{}'", c));
        return next_char();
    }

    void property(CodePointSet& set, bool fold) {
        bool negated = peek() == 'P';
        std::size_t close = pattern_.find('}', at_);
        if (peek(1) != '{' || close == std::string_view::npos) wrong("\\p is not followed by {name}");
        std::string_view name = pattern_.substr(at_ + 2, close - at_ - 2);
        if (name.starts_with('^')) negated = !negated, name.remove_prefix(1);
        if (fold && (name.starts_with("L") && name != "L")) refuse("a case-insensitive letter category");
        CodePointSet found;
        if (!CodePointSet::property(name, found)) refuse(fmt::format("the property '{}'", name));
        set.add(negated ? found.complement() : found);
        at_ = close + 1;
    }

    char32_t hex_escape() {
        bool braces = peek() == 'x' && peek(1) == '{';
        std::size_t digits = peek() == 'u' ? 4 : 2;
        at_ += braces ? 2 : 1;
        char32_t value = 0;
        std::size_t n = 0;
        for (; more() && n < (braces ? 6 : digits); ++n, ++at_) {
            char c = peek();
            if (c >= '0' && c <= '9') {
                value = value * 16 + static_cast<char32_t>(c - '0');
            } else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f') {
                value = value * 16 + static_cast<char32_t>((c | 0x20) - 'a' + 10);
            } else {
                break;
            }
        }
        if ((braces ? n == 0 : n != digits) || (braces && !eat("}")) || value > 0x10FFFF)
            wrong("a hexadecimal escape is incomplete or too large");
        if (!braces && digits == 2 && value >= 0x80) refuse("\\x with a byte above 7F");
        return value;
    }

    CodePointSet bracket(bool fold) {
        ++at_;
        bool negated = eat("^");
        CodePointSet set;
        bool first = true;
        while (true) {
            if (!more()) wrong("a '[' has no ']'");
            if (peek() == ']' && !first) break;
            if (peek() == ']') refuse("a ']' as the first member of a class");
            if (peek() == '[') refuse("a class inside a class");
            if (starts("&&")) refuse("'&&' in a class");
            first = false;
            std::optional<char32_t> low = peek() == '\\' ? escape(set, fold, true) : next_char();
            if (peek() != '-' || peek(1) == ']' || !more()) {
                if (low) add_range(set, *low, *low, fold);
                continue;
            }
            if (!low) refuse("a range that begins with a class");
            ++at_;
            if (peek() == '[') refuse("a class inside a class");
            if (!more()) wrong("a '[' has no ']'");
            std::optional<char32_t> high = peek() == '\\' ? escape(set, fold, true) : next_char();
            if (!high) refuse("a range that ends with a class");
            if (*low > *high) wrong("a range ends before it begins");
            add_range(set, *low, *high, fold);
        }
        ++at_;
        return negated ? set.complement() : set;
    }

    std::string_view pattern_, where_;
    std::size_t at_ = 0;
    std::size_t total_ranges_ = 0;
};

// Gives every code point an atom; returns for each set the atoms it consists of.
std::vector<std::vector<std::uint8_t>> partition(const std::vector<CodePointSet>& sets, AtomTable& table,
                                                 std::string_view where) {
    struct Edge {
        char32_t at;
        std::uint32_t set;
    };
    std::vector<Edge> edges;  // membership of `set` flips at `at`
    for (std::uint32_t s = 0; s < sets.size(); ++s) {
        for (unicode::Range r : sets[s].ranges()) {
            edges.push_back({r.first, s});
            edges.push_back({r.last + 1, s});
        }
    }
    std::sort(edges.begin(), edges.end(), [](Edge a, Edge b) { return a.at < b.at; });

    std::vector<std::uint8_t> flat(0x110000);
    std::vector<std::uint64_t> members((sets.size() + 63) / 64);
    std::map<std::vector<std::uint64_t>, int> atom_of;
    std::vector<std::vector<std::uint8_t>> atoms_of_set(sets.size());
    char32_t from = 0;
    auto close_interval = [&](char32_t to) {
        if (to <= from) return;
        auto [entry, added] = atom_of.try_emplace(members, static_cast<int>(atom_of.size()) + 1);
        if (added) {
            if (entry->second > kMaxAtoms)
                fail(ErrorKind::unsupported, "{}: the pattern tells more than {} kinds of characters apart.",
                     where, kMaxAtoms);
            for (std::size_t s = 0; s < sets.size(); ++s)
                if (members[s / 64] >> (s % 64) & 1)
                    atoms_of_set[s].push_back(static_cast<std::uint8_t>(entry->second));
        }
        std::fill(flat.begin() + from, flat.begin() + to, static_cast<std::uint8_t>(entry->second));
        from = to;
    };
    for (const Edge& e : edges) {
        close_interval(std::min<char32_t>(e.at, 0x110000));
        members[e.set / 64] ^= std::uint64_t{1} << (e.set % 64);
    }
    close_interval(0x110000);
    table.build(flat);
    return atoms_of_set;
}

}  // namespace

void AtomTable::build(const std::vector<std::uint8_t>& flat) {
    blocks_.clear();
    std::map<std::string_view, std::uint16_t> seen;
    for (std::size_t block = 0; block < index_.size(); ++block) {
        std::string_view content(reinterpret_cast<const char*>(flat.data()) + block * 256, 256);
        auto [entry, added] = seen.try_emplace(content, static_cast<std::uint16_t>(seen.size()));
        if (added)
            blocks_.insert(blocks_.end(), flat.begin() + block * 256, flat.begin() + (block + 1) * 256);
        index_[block] = entry->second;
    }
}

TranslatedPattern translate_pattern(std::string_view pattern, std::string_view where) {
    Parser parser(pattern, where);
    parser.parse();
    TranslatedPattern out;
    auto atoms = partition(parser.sets, out.atoms, where);
    for (const Parser::Piece& piece : parser.pieces) {
        if (piece.set < 0) {
            out.pcre += piece.syntax;
            continue;
        }
        const auto& members = atoms[static_cast<std::size_t>(piece.set)];
        if (members.empty()) {
            out.pcre += "(?:(?!))";  // a class that nothing is in
        } else if (members.size() == 1) {
            out.pcre += fmt::format("\\x{:02x}", members[0]);
        } else {
            out.pcre += '[';
            for (std::uint8_t a : members) out.pcre += fmt::format("\\x{:02x}", a);
            out.pcre += ']';
        }
    }
    return out;
}

}  // namespace forge
