// GBNF: rules NAME ::= alternatives of sequences of "texts", [classes], names, (groups), with * + ? {m,n}.
#include <algorithm>
#include <map>
#include <optional>

#include "base/error.h"
#include "char_ranges.h"
#include "grammar/compile.h"
#include "pattern.h"

namespace forge {
namespace grammar {
namespace {

constexpr int most_depth = 200, most_repeats = 100'000;

struct Part {
    enum Kind { text, set, rule, sequence, choice, repeat } kind;
    std::string literal = {};   // bytes
    Ranges ranges = {};
    std::size_t rule_index = 0;
    std::vector<Part> parts = {};
    int least = 0, most = -1;
};

class Reader {
  public:
    explicit Reader(std::string_view text) : text_(text) {}

    struct Rule { std::string name; std::optional<Part> body; int line; };
    std::vector<Rule> rules;

    void read() {
        skip(true);
        while (more()) {
            const std::size_t index = named(name());
            skip(false);
            if (text_.substr(at_, 3) != "::=") wrong("::= should follow a rule's name");
            at_ += 3;
            skip(true);
            Part body = choice(0);
            if (rules[index].body) wrong(fmt::format("the rule {} stands twice", rules[index].name));
            rules[index].body = std::move(body);
            if (more() && text_[at_] == ')') wrong("there is a ) without its (");
            skip(true);
        }
        for (const Rule& r : rules)
            if (!r.body) fail("the grammar uses the rule {} in line {}, and there is none of that name", r.name.substr(0, 80), r.line);
    }

    std::optional<std::size_t> find(std::string_view name) const {
        const auto it = index_.find(std::string(name));
        return it == index_.end() ? std::nullopt : std::optional(it->second);
    }

  private:
    [[noreturn]] void wrong(std::string_view what) const {
        const auto line = 1 + std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(std::min(at_, text_.size())), '\n');
        fail("the grammar is not understood in line {}: {}", line, what);
    }
    bool more() const { return at_ < text_.size(); }
    static bool is_name(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_'; }

    // Spaces and comments; with `lines`, line ends too.
    void skip(bool lines) {
        while (more()) {
            const char c = text_[at_];
            if (c == ' ' || c == '\t' || (lines && (c == '\n' || c == '\r'))) {
                ++at_;
            } else if (c == '#') {
                while (more() && text_[at_] != '\n' && text_[at_] != '\r') ++at_;
            } else {
                return;
            }
        }
    }

    std::string name() {
        const std::size_t from = at_;
        while (more() && is_name(text_[at_])) ++at_;
        if (at_ == from) wrong("a rule's name should stand here");
        return std::string(text_.substr(from, at_ - from));
    }

    std::size_t named(const std::string& name) {
        const auto [it, added] = index_.try_emplace(name, rules.size());
        if (added) {
            const auto line = 1 + std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(at_), '\n');
            rules.push_back({name, std::nullopt, static_cast<int>(line)});
        }
        return it->second;
    }

    Part choice(int depth) {
        if (depth > most_depth) wrong("groups are nested too deep");
        Part out{.kind = Part::choice};
        for (;;) {
            out.parts.push_back(sequence(depth));
            // A line that begins with | goes on with the rule.
            const std::size_t before = at_;
            skip(true);
            if (!more() || text_[at_] != '|') {
                at_ = before;
                break;
            }
            ++at_;
            skip(true);
        }
        return out.parts.size() == 1 ? Part(std::move(out.parts[0])) : out;
    }

    Part sequence(int depth) {
        Part out{.kind = Part::sequence};
        for (;;) {
            skip(depth > 0);
            if (!more()) break;
            const char c = text_[at_];
            if (c == '"') {
                out.parts.push_back(literal());
            } else if (c == '[') {
                out.parts.push_back(set());
            } else if (c == '.') {
                ++at_;
                out.parts.push_back({.kind = Part::set, .ranges = complement({})});
            } else if (c == '(') {
                ++at_;
                Part group = choice(depth + 1);
                skip(true);
                if (!more() || text_[at_] != ')') wrong("a ( has no )");
                ++at_;
                out.parts.push_back(std::move(group));
            } else if (is_name(c)) {
                if (depth == 0 || c != ':') {
                    const std::size_t before = at_;
                    std::string rule = name();
                    skip(false);
                    if (text_.substr(at_, 3) == "::=") {   // the next rule
                        at_ = before;
                        break;
                    }
                    out.parts.push_back({.kind = Part::rule, .rule_index = named(rule)});
                }
            } else if (c == '*' || c == '+' || c == '?' || c == '{') {
                if (out.parts.empty()) wrong("there is nothing to repeat");
                repeat(out.parts.back());
            } else if (c == '\n' || c == '\r' || c == '|' || c == ')') {
                break;
            } else {
                wrong(fmt::format("{:?} means nothing here", std::string(1, c)));
            }
        }
        return out;
    }

    int number() {
        if (!more() || text_[at_] < '0' || text_[at_] > '9') wrong("a number of repetitions should stand here");
        int value = 0;
        while (more() && text_[at_] >= '0' && text_[at_] <= '9') value = std::min(most_repeats + 1, value * 10 + (text_[at_++] - '0'));
        if (value > most_repeats) wrong(fmt::format("more than {} repetitions are not supported", most_repeats));
        return value;
    }

    void repeat(Part& last) {
        int least = 0, most = -1;
        switch (text_[at_++]) {
            case '*': break;
            case '+': least = 1; break;
            case '?': most = 1; break;
            default:
                skip(false);
                least = most = number();
                skip(false);
                if (more() && text_[at_] == ',') {
                    ++at_;
                    skip(false);
                    most = more() && text_[at_] == '}' ? -1 : number();
                    skip(false);
                }
                if (!more() || text_[at_] != '}') wrong("a { has no }");
                ++at_;
                if (most >= 0 && most < least) wrong("a repetition's bounds are the wrong way round");
        }
        Part out{.kind = Part::repeat, .least = least, .most = most};
        out.parts.push_back(std::move(last));
        last = std::move(out);
    }

    std::uint32_t hex(int count) {
        std::uint32_t value = 0;
        for (int i = 0; i < count; ++i, ++at_) {
            const char c = more() ? text_[at_] : ' ';
            const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
            if (digit < 0) wrong("hexadecimal digits should follow");
            value = value * 16 + static_cast<std::uint32_t>(digit);
        }
        if (value > last_code_point || (value >= 0xD800 && value < 0xE000)) wrong("this is no character");
        return value;
    }

    std::uint32_t character() {
        if (text_[at_] != '\\') {
            const auto b = static_cast<unsigned char>(text_[at_]);
            const std::size_t length = b < 0x80 ? 1 : b < 0xE0 ? 2 : b < 0xF0 ? 3 : 4;
            const auto read = code_points(text_.substr(at_, length));
            if (read.size() != 1 || read[0] == 0xFFFD) wrong("the text is not UTF-8");
            at_ += length;
            return read[0];
        }
        ++at_;
        if (!more()) wrong("it ends in a backslash");
        switch (const char c = text_[at_++]) {
            case 'n': return '\n';
            case 'r': return '\r';
            case 't': return '\t';
            case 'x': return hex(2);
            case 'u': return hex(4);
            case 'U': return hex(8);
            case '\\': case '"': case '[': case ']': case '-': case '^': return static_cast<std::uint32_t>(c);
            default: wrong(fmt::format("\\{} means nothing", c));
        }
    }

    Part literal() {
        ++at_;
        Part out{.kind = Part::text};
        while (more() && text_[at_] != '"') out.literal += utf8(character());
        if (!more()) wrong("a text has no closing quote");
        ++at_;
        return out;
    }

    Part set() {
        ++at_;
        const bool negated = more() && text_[at_] == '^';
        if (negated) ++at_;
        Part out{.kind = Part::set};
        while (more() && text_[at_] != ']') {
            const std::uint32_t lo = character();
            std::uint32_t hi = lo;
            if (at_ + 1 < text_.size() && text_[at_] == '-' && text_[at_ + 1] != ']') {
                ++at_;
                hi = character();
                if (hi < lo) wrong("a range's ends are the wrong way round");
            }
            out.ranges.push_back({lo, hi});
        }
        if (!more()) wrong("a [ has no ]");
        ++at_;
        normalize(out.ranges);
        if (negated) out.ranges = complement(out.ranges);
        return out;
    }

    std::string_view text_;
    std::size_t at_ = 0;
    std::map<std::string, std::size_t> index_;
};

// Copies of one part that follow each other, all with the same nodes in the same order. A text that has no more bytes
// than there are copies to come does not tell one from the first: where the part may be empty, more than one a byte are
// not needed, and where it may not, none is left for what follows them before.
class Copies {
  public:
    void begin(NodeId first) { firsts_.push_back(first); }
    void say(Builder& builder) const {
        for (std::size_t i = 1; i + 1 < firsts_.size(); ++i) {   // the last one has none to come
            const NodeId next = firsts_[i + 1];
            if (next - firsts_[i] != firsts_[1] - firsts_[0]) return;
            for (NodeId n = firsts_[i]; n < next; ++n)
                builder.alike(n, firsts_[0] + (n - firsts_[i]), static_cast<std::uint32_t>(firsts_.size() - i - 1));
        }
    }

  private:
    std::vector<NodeId> firsts_;
};

class Emitter {
  public:
    explicit Emitter(const Reader& reader) : reader_(reader), edges_(builder_, false) {}

    Grammar run(std::size_t root) {
        for (std::size_t i = 0; i < reader_.rules.size(); ++i) builder_.rule();
        for (std::size_t i = 0; i < reader_.rules.size(); ++i) builder_.accept(emit(*reader_.rules[i].body, builder_.start(static_cast<RuleId>(i))));
        return builder_.finish(static_cast<RuleId>(root), "no text belongs to the grammar: its rules never come to an end");
    }

  private:
    NodeId emit(const Part& p, NodeId from) {
        switch (p.kind) {
            case Part::text: return builder_.literal(from, p.literal);
            case Part::set: {
                const NodeId to = builder_.node();
                edges_.add(from, p.ranges, to);
                return to;
            }
            case Part::rule: {
                const NodeId to = builder_.node();
                builder_.call(from, static_cast<RuleId>(p.rule_index), to);
                return to;
            }
            case Part::sequence:
                for (const Part& part : p.parts) from = emit(part, from);
                return from;
            case Part::choice: {
                const NodeId to = builder_.node();
                for (const Part& part : p.parts) {
                    const NodeId begin = builder_.node();
                    builder_.epsilon(from, begin);
                    builder_.epsilon(emit(part, begin), to);
                }
                return to;
            }
            case Part::repeat: {
                Copies required, optional;   // each may be left only for the next, or for what follows as well
                for (int i = 0; i < p.least; ++i) {
                    required.begin(builder_.next_node());
                    from = emit(p.parts[0], step(from));
                }
                required.say(builder_);
                const NodeId to = builder_.node();
                if (p.most < 0) {
                    const NodeId loop = step(from);
                    builder_.epsilon(emit(p.parts[0], step(loop)), loop);
                    builder_.epsilon(loop, to);
                } else {
                    for (int i = p.least; i < p.most; ++i) {
                        builder_.epsilon(from, to);
                        optional.begin(builder_.next_node());
                        from = emit(p.parts[0], step(from));
                    }
                    optional.say(builder_);
                    builder_.epsilon(from, to);
                }
                return to;
            }
        }
        return from;
    }

    NodeId step(NodeId from) {
        const NodeId to = builder_.node();
        builder_.epsilon(from, to);
        return to;
    }

    const Reader& reader_;
    Builder builder_;
    CharacterEdges edges_;
};

}  // namespace
}  // namespace grammar

Grammar compile_gbnf(std::string_view text) {
    if (text.size() > (std::size_t{1} << 20)) fail(ErrorKind::unsupported, "a grammar of {} bytes is too large (1 MiB)", text.size());
    grammar::Reader reader(text);
    reader.read();
    const auto root = reader.find("root");
    if (!root) fail("the grammar has no rule named root");
    return grammar::Emitter(reader).run(*root);
}

}  // namespace forge
