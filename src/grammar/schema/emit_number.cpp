#include <map>
#include <tuple>

#include "base/error.h"
#include "emitter.h"

namespace forge::grammar {
namespace {

constexpr std::size_t most_states = 40'000;

// Reads a number without exponent digit by digit and knows at each point how it compares with the bounds and
// what it leaves when divided.
class NumberStates {
  public:
    explicit NumberStates(const Shape& s) : whole_(s.whole) {
        if (s.least) bounds_.push_back({s.least->value, s.least->exclusive, true});
        if (s.most) bounds_.push_back({s.most->value, s.most->exclusive, false});
        std::size_t scale = 0;
        for (const Decimal& m : s.multiples) scale = std::max(scale, m.fraction.size());
        for (const Decimal& m : s.multiples) {
            const std::string digits = m.whole + m.fraction + std::string(scale - m.fraction.size(), '0');
            const std::size_t first = digits.find_first_not_of('0');
            const std::string plain = first == std::string::npos ? "0" : digits.substr(first);
            if (plain.size() > 5 || std::stoul(plain) > 20'000)
                fail(ErrorKind::unsupported, "the schema's keyword multipleOf: {} is too large or too fine (at most five digits, 20000 in its smallest unit)", to_text(m));
            divisors_.push_back(static_cast<std::uint32_t>(std::stoul(plain)));
        }
        divided_ = !divisors_.empty();
        scale_ = scale;
        for (const auto& b : bounds_) {
            most_digits_ = std::max(most_digits_, b.value.whole.size() + 1);
            most_fraction_ = std::max(most_fraction_, b.value.fraction.size());
        }
        most_fraction_ = std::max(most_fraction_, scale_);
    }

    enum Phase { start, sign, zero, digits, point, fraction };
    struct State {
        Phase phase = start;
        bool negative = false, nonzero = false;
        std::size_t count = 0;                 // digits so far of the whole part, or of the fraction
        std::vector<signed char> order;        // of the size against each bound's: -1, 0, 1
        std::vector<std::uint32_t> rest;       // modulo each divisor
        auto operator<=>(const State&) const = default;
    };

    State first() const {
        State s;
        s.order.assign(bounds_.size(), 0);
        s.rest.assign(divisors_.size(), 0);
        return s;
    }

    bool step(const State& from, char c, State& to) const {
        to = from;
        if (c == '-') {
            if (from.phase != start) return false;
            to.phase = sign;
            to.negative = true;
            return true;
        }
        if (c == '.') {
            if (whole_ || (divided_ && scale_ == 0) || (from.phase != zero && from.phase != digits)) return false;
            to.order = after_whole(from);
            to.phase = point;
            to.count = 0;
            return true;
        }
        const unsigned digit = static_cast<unsigned>(c - '0');
        if (from.phase == zero) return false;
        to.nonzero |= digit != 0;
        for (std::size_t i = 0; i < divisors_.size(); ++i) to.rest[i] = (from.rest[i] * 10 + digit) % divisors_[i];
        if (from.phase == point || from.phase == fraction) {
            if (divided_ && from.count >= scale_) return false;
            for (std::size_t i = 0; i < bounds_.size(); ++i) {
                const std::string& f = bounds_[i].value.fraction;
                if (to.order[i] == 0) to.order[i] = sign_of(static_cast<int>(digit) - (from.count < f.size() ? f[from.count] - '0' : 0));
            }
            to.phase = fraction;
            to.count = std::min(from.count + 1, most_fraction_);
            return true;
        }
        to.phase = from.phase != digits && digit == 0 ? zero : digits;
        for (std::size_t i = 0; i < bounds_.size(); ++i) {
            const std::string& w = bounds_[i].value.whole;
            if (from.count < w.size() && to.order[i] == 0) to.order[i] = sign_of(static_cast<int>(digit) - (w[from.count] - '0'));
        }
        to.count = std::min(from.count + 1, most_digits_);
        return true;
    }

    bool accepts(const State& s) const {
        if (s.phase != zero && s.phase != digits && s.phase != fraction) return false;
        const bool in_fraction = s.phase == fraction;
        const std::vector<signed char> order = in_fraction ? s.order : after_whole(s);
        for (std::size_t i = 0; i < bounds_.size(); ++i) {
            const auto& b = bounds_[i];
            int size = order[i];
            const std::size_t read = in_fraction ? s.count : 0;
            if (size == 0 && read < b.value.fraction.size()) size = -1;   // the bound has more digits
            int compared;
            if (!s.nonzero) compared = b.value.zero() ? 0 : b.value.negative ? 1 : -1;
            else if (s.negative != b.value.negative) compared = s.negative ? -1 : 1;
            else compared = s.negative ? -size : size;
            if (compared == 0 && b.exclusive) return false;
            if (b.lower ? compared < 0 : compared > 0) return false;
        }
        for (std::size_t i = 0; i < divisors_.size(); ++i) {
            std::uint64_t rest = s.rest[i];
            for (std::size_t k = in_fraction ? s.count : 0; k < scale_; ++k) rest = rest * 10 % divisors_[i];
            if (rest != 0) return false;
        }
        return true;
    }

  private:
    struct Limit { Decimal value; bool exclusive, lower; };

    static signed char sign_of(int x) { return static_cast<signed char>(x < 0 ? -1 : x > 0); }

    // The whole part is complete: its length decides before its digits.
    std::vector<signed char> after_whole(const State& s) const {
        std::vector<signed char> order = s.order;
        for (std::size_t i = 0; i < bounds_.size(); ++i) {
            const std::size_t length = bounds_[i].value.whole.size();
            if (s.count != length) order[i] = s.count < length ? -1 : 1;
        }
        return order;
    }

    bool whole_, divided_ = false;
    std::vector<Limit> bounds_;
    std::vector<std::uint32_t> divisors_;
    std::size_t scale_ = 0, most_digits_ = 1, most_fraction_ = 0;
};

}  // namespace

void SchemaEmitter::emit_number(const Shape& s, NodeId from, NodeId to) {
    if (!s.least && !s.most && s.multiples.empty()) {
        builder_.call(from, plain_number(s.whole), to);
        return;
    }
    builder_.working_on("the schema's minimum, maximum or multipleOf");
    std::string key = fmt::format("number {}", s.whole);
    for (const auto& b : {s.least, s.most}) key += b ? fmt::format(" {}{}", to_text(b->value), b->exclusive ? "!" : "") : " -";
    for (const Decimal& m : s.multiples) key += " / " + to_text(m);
    if (const auto it = shared_.find(key); it != shared_.end()) {
        builder_.call(from, it->second, to);
        return;
    }
    const NumberStates number(s);
    const RuleId rule = builder_.rule();
    std::map<NumberStates::State, NodeId> nodes;
    std::vector<NumberStates::State> work{number.first()};
    nodes.emplace(work[0], builder_.start(rule));
    while (!work.empty()) {
        const NumberStates::State state = std::move(work.back());
        work.pop_back();
        const NodeId here = nodes.at(state);
        if (number.accepts(state)) builder_.accept(here);
        for (const char c : std::string_view("-.0123456789")) {
            NumberStates::State next;
            if (!number.step(state, c, next)) continue;
            const auto [it, added] = nodes.try_emplace(next, 0);
            if (added) {
                if (nodes.size() > most_states) fail(ErrorKind::unsupported, "the schema's minimum, maximum and multipleOf need more than {} states together", most_states);
                it->second = builder_.node();
                work.push_back(next);
            }
            byte(here, c, it->second);
        }
    }
    shared_.emplace(key, rule);
    builder_.call(from, rule, to);
}

// -?(0|[1-9][0-9]*)(.[0-9]+)?(e[+-]?[0-9]{1,3})?, the exponent at most 308.
RuleId SchemaEmitter::plain_number(bool whole) {
    const std::string key = whole ? "integer" : "number";
    if (const auto it = shared_.find(key); it != shared_.end()) return it->second;
    const RuleId rule = builder_.rule();
    const NodeId begin = builder_.node(), zero = builder_.node(), digits = builder_.node();
    byte(builder_.start(rule), '-', begin);
    builder_.epsilon(builder_.start(rule), begin);
    byte(begin, '0', zero);
    builder_.bytes(begin, '1', '9', digits);
    builder_.bytes(digits, '0', '9', digits);
    builder_.accept(zero);
    builder_.accept(digits);
    if (!whole) {
        const NodeId point = builder_.node(), fraction = builder_.node(), e = builder_.node(), sign = builder_.node();
        for (const NodeId n : {zero, digits}) byte(n, '.', point);
        builder_.bytes(point, '0', '9', fraction);
        builder_.bytes(fraction, '0', '9', fraction);
        builder_.accept(fraction);
        for (const NodeId n : {zero, digits, fraction}) byte(n, 'e', e), byte(n, 'E', e);
        for (const char c : {'+', '-'}) byte(e, c, sign);
        builder_.epsilon(e, sign);
        const NodeId last = builder_.node(), two = builder_.node(), one = builder_.node(), third = builder_.node(), three_zero = builder_.node();
        builder_.accept(last);
        // One or two digits; or 1xx, 2xx; or 300 to 308.
        builder_.bytes(sign, '0', '9', one);
        builder_.accept(one);
        builder_.bytes(one, '0', '9', last);
        builder_.bytes(sign, '1', '2', two);
        builder_.bytes(two, '0', '9', third);
        builder_.bytes(third, '0', '9', last);
        const NodeId three = builder_.node();
        byte(sign, '3', three);
        byte(three, '0', three_zero);
        builder_.bytes(three_zero, '0', '8', last);
    }
    shared_.emplace(key, rule);
    return rule;
}

}  // namespace forge::grammar
