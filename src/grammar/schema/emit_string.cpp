#include <algorithm>
#include <map>

#include "../alike_states.h"
#include "base/error.h"
#include "emitter.h"

namespace forge::grammar {
namespace {

constexpr std::size_t most_counted_states = 50'000;

// A special token whose beginning is one for Grammar::Text.
bool special_quote(const std::string& quote) {
    const auto ascii = [](char c) { return c > 0 && c < 0x7F; };
    return quote.size() > 2 && quote[0] == Grammar::special_begin && ascii(quote[1]) && ascii(quote[2]) && quote[1] != quote[2];
}

std::uint32_t limit32(std::uint64_t n) { return n >= Grammar::unlimited ? Grammar::unlimited : static_cast<std::uint32_t>(n); }

}  // namespace

void SchemaEmitter::emit_string(const Shape& s, NodeId from, NodeId to) {
    if (!s.patterns.empty() || (bare() && !special_quote(notation_.quote))) {
        builder_.call(from, matching_string(s), to);
        return;
    }
    // Characters are counted in 24 bits.
    if (s.least_length > 0xFFFFFF) fail(ErrorKind::unsupported, "the schema's minLength of {} is too large", s.least_length);
    Grammar::Text text{limit32(s.least_length), s.most_length > 0xFFFFFF ? Grammar::unlimited : limit32(s.most_length)};
    if (!bare()) return builder_.text(builder_.literal(from, "\""), text, to);
    text.first = static_cast<unsigned char>(notation_.quote[1]);
    text.second = static_cast<unsigned char>(notation_.quote[2]);
    const NodeId closed = builder_.node();
    builder_.text(builder_.literal(from, notation_.quote), text, closed);
    builder_.epsilon(builder_.literal(closed, std::string_view(notation_.quote).substr(1)), to);
}

// For masks: which counts of characters read the same, and what is known inside the string, whatever comes after it.
void SchemaEmitter::say_alike(std::vector<ReadingState> states, const std::vector<NodeId>& nodes) {
    leave_out_dead(states);
    Grammar::Text kind{0, Grammar::unlimited};
    if (bare() && special_quote(notation_.quote)) {
        kind.first = static_cast<unsigned char>(notation_.quote[1]);
        kind.second = static_cast<unsigned char>(notation_.quote[2]);
    }
    bool complete = false;
    if (!bare() || kind.between_specials()) {
        std::vector<ReadingState> endless = states;
        for (ReadingState& state : endless) state.ends = false, state.least = 0;
        const std::vector<std::uint32_t> room = longest_texts(states);
        std::vector<Likeness> likeness = find_alike(endless);
        complete = true;
        for (std::uint32_t i = 0; i < nodes.size(); ++i) {
            Likeness& like = likeness[i];
            if (like.agrees == 0) {
                like = {i, always_alike};
            } else {
                // On to what that one is like: always when they are one state written twice, else while all is known.
                const Likeness next{likeness[like.state].state, std::min(like.agrees, likeness[like.state].agrees)};
                if (like.agrees == always_alike || next.agrees >= room[i]) like = next;
            }
            if (states[i].free) continue;   // a text's own
            builder_.inside(nodes[i], kind, room[i], nodes[like.state], like.agrees);
            complete = complete && like.agrees >= room[i];
        }
    }
    if (complete) return;
    const std::vector<Likeness> likeness = find_alike(states);
    for (std::size_t i = 0; i < nodes.size(); ++i)
        if (likeness[i].agrees > 0) builder_.alike(nodes[i], nodes[likeness[i].state], likeness[i].agrees);
}

// The automaton of the patterns, times the number of characters where that is bounded.
RuleId SchemaEmitter::matching_string(const Shape& s) {
    std::vector<std::string> patterns = s.patterns;
    if (bare()) patterns.push_back(unquoted_);
    const std::string quote = bare() ? notation_.quote : "\"";
    std::string key = fmt::format("string {} {}", s.least_length, s.most_length);
    for (const std::string& p : patterns) key += '\0' + p;
    if (const auto it = shared_.find(key); it != shared_.end()) return it->second;
    builder_.working_on("the schema's pattern or format");
    const std::uint64_t needed = Expander::all_bits(patterns.size());
    const PatternAutomaton& a = expander_.automaton(patterns, needed);
    const RuleId rule = builder_.rule();
    const NodeId end = builder_.node();
    builder_.accept(end);
    const bool bounded = s.most_length != no_limit;
    const std::uint64_t highest = bounded ? s.most_length : s.least_length;   // counts beyond are alike
    std::map<std::pair<std::uint32_t, std::uint64_t>, std::uint32_t> numbers;
    std::vector<NodeId> nodes;              // by number
    std::vector<ReadingState> counted;
    std::vector<std::pair<std::uint32_t, std::uint64_t>> work;
    const auto number_of = [&](std::uint32_t state, std::uint64_t count) {
        const auto [it, added] = numbers.try_emplace({state, count}, static_cast<std::uint32_t>(nodes.size()));
        if (added) {
            if (nodes.size() >= most_counted_states) fail(ErrorKind::unsupported, "the schema's pattern (or format) together with minLength and maxLength needs more than {} states", most_counted_states);
            nodes.push_back(builder_.node());
            counted.emplace_back();
            work.emplace_back(state, count);
        }
        return it->second;
    };
    builder_.epsilon(builder_.literal(builder_.start(rule), quote), nodes[number_of(0, 0)]);
    while (!work.empty()) {
        const auto [state, count] = work.back();
        work.pop_back();
        const std::uint32_t number = numbers.at({state, count});
        const NodeId here = nodes[number];
        const auto& st = a.states[state];
        const bool matches = (st.matches & needed) == needed;
        if (matches && st.settled && !bare()) {
            const Grammar::Text rest{limit32(s.least_length > count ? s.least_length - count : 0), bounded ? limit32(s.most_length - count) : Grammar::unlimited};
            builder_.text(here, rest, end);
            counted[number].free = true, counted[number].least = rest.least, counted[number].most = rest.most;
            continue;
        }
        if (matches && count >= s.least_length) builder_.epsilon(builder_.literal(here, quote), end), counted[number].ends = true;
        if (bounded && count == highest) continue;
        std::map<std::uint32_t, Ranges> by_target;
        for (const auto& step : st.steps) by_target[step.target].push_back({step.lo, step.hi});
        std::vector<PatternAutomaton::Step> steps;
        for (const auto& [target, ranges] : by_target) {
            const std::uint32_t to = number_of(target, std::min(count + 1, highest));
            (bare() ? plain_edges_ : json_edges_).add(here, ranges, nodes[to]);
            for (const Range& r : ranges) steps.push_back({r.lo, r.hi, to});
        }
        std::sort(steps.begin(), steps.end(), [](const auto& x, const auto& y) { return x.lo < y.lo; });
        counted[number].steps = std::move(steps);
    }
    say_alike(std::move(counted), nodes);
    shared_.emplace(std::move(key), rule);
    return rule;
}

}  // namespace forge::grammar
