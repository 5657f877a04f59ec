#include "pattern_automaton.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"

namespace forge::grammar {
namespace {

constexpr std::size_t most_states = 4000;
constexpr std::size_t most_work = 20'000'000;   // node visits: about a fifth of a second

// The subset construction over all patterns' nodes. A pattern that has matched and needs no end stays matched,
// and its nodes are dropped.
class Construction {
  public:
    Construction(const std::vector<Pattern>& patterns, std::uint64_t needed) : needed_(needed) {
        if (patterns.size() > 64) fail(ErrorKind::unsupported, "there are {} patterns for one text, and at most 64 are supported", patterns.size());
        std::set<std::uint32_t> borders{0, 0xD800, 0xE000, last_code_point + 1};
        for (std::size_t p = 0; p < patterns.size(); ++p) {
            const auto base = static_cast<std::uint32_t>(nodes_.size()), set_base = static_cast<std::uint32_t>(sets_.size());
            for (PatternNode n : patterns[p].nodes) {
                n.a += base, n.b += base, n.set += set_base;
                nodes_.push_back(n);
                owner_.push_back(static_cast<std::uint8_t>(p));
            }
            for (const Ranges& r : patterns[p].sets) {
                sets_.push_back({});
                raw_sets_.push_back(&r);
                for (const Range& x : r) borders.insert(x.lo), borders.insert(x.hi + 1);
            }
            starts_.push_back(base + patterns[p].start);
        }
        borders_.assign(borders.begin(), borders.end());
        const std::size_t classes = borders_.size() - 1;
        if (classes * sets_.size() > 4'000'000) fail(ErrorKind::unsupported, "the expressions have too many different characters");
        for (std::size_t s = 0; s < sets_.size(); ++s) {
            sets_[s].assign(classes, false);
            for (const Range& x : *raw_sets_[s])
                for (auto c = static_cast<std::size_t>(std::lower_bound(borders_.begin(), borders_.end(), x.lo) - borders_.begin()); c < classes && borders_[c] <= x.hi; ++c) sets_[s][c] = true;
        }
        seen_.assign(nodes_.size(), 0);
    }

    PatternAutomaton run() {
        std::vector<std::uint32_t> first;
        Key key;
        ++mark_;
        for (const std::uint32_t s : starts_) follow(s, true, false, key);
        id_of(finish(std::move(key)));
        for (std::size_t i = 0; i < keys_.size(); ++i) {
            std::vector<PatternAutomaton::Step> steps;
            for (std::size_t c = 0; c + 1 < borders_.size(); ++c) {
                if (borders_[c] == 0xD800) continue;
                const std::uint32_t target = id_of(move(keys_[i], c));
                if (!steps.empty() && steps.back().target == target && steps.back().hi + 1 == borders_[c]) steps.back().hi = borders_[c + 1] - 1;
                else steps.push_back({borders_[c], borders_[c + 1] - 1, target});
            }
            out_.states[i].steps = std::move(steps);
        }
        settle();
        prune();
        return std::move(out_);
    }

  private:
    struct Key {
        std::uint64_t matched = 0;
        std::vector<std::uint32_t> nodes;   // that wait for a character or the end
        auto operator<=>(const Key&) const = default;
    };

    void follow(std::uint32_t n, bool at_start, bool at_end, Key& key) {
        std::vector<std::uint32_t> work{n};
        while (!work.empty()) {
            const std::uint32_t i = work.back();
            work.pop_back();
            if (seen_[i] == mark_) continue;
            seen_[i] = mark_;
            if (++work_ > most_work) fail(ErrorKind::unsupported, "the expressions take too long to compile");
            const PatternNode& node = nodes_[i];
            switch (node.kind) {
                case PatternNode::characters: if (!at_end) key.nodes.push_back(i); break;
                case PatternNode::split: work.push_back(node.b), work.push_back(node.a); break;
                case PatternNode::at_start: if (at_start) work.push_back(node.a); break;
                case PatternNode::at_end:
                    if (at_end) work.push_back(node.a);
                    else key.nodes.push_back(i);
                    break;
                case PatternNode::match: key.matched |= std::uint64_t{1} << owner_[i]; break;
            }
        }
    }

    Key finish(Key key) const {
        std::erase_if(key.nodes, [&](std::uint32_t n) { return key.matched >> owner_[n] & 1; });
        std::sort(key.nodes.begin(), key.nodes.end());
        return key;
    }

    Key move(const Key& from, std::size_t c) {
        Key key;
        key.matched = from.matched;
        ++mark_;
        work_ += from.nodes.size() / 4 + 1;
        for (const std::uint32_t n : from.nodes)
            if (nodes_[n].kind == PatternNode::characters && sets_[nodes_[n].set][c]) follow(nodes_[n].a, false, false, key);
        for (std::size_t p = 0; p < starts_.size(); ++p)   // the match may also begin here
            if (!(key.matched >> p & 1)) follow(starts_[p], false, false, key);
        return finish(std::move(key));
    }

    std::uint32_t id_of(Key key) {
        const auto [it, added] = ids_.try_emplace(key, static_cast<std::uint32_t>(keys_.size()));
        if (added) {
            if (keys_.size() >= most_states) fail(ErrorKind::unsupported, "the expressions need more than {} states together", most_states);
            PatternAutomaton::State state;
            Key at_end;
            at_end.matched = key.matched;
            ++mark_;
            for (const std::uint32_t n : key.nodes)
                if (nodes_[n].kind == PatternNode::at_end) follow(nodes_[n].a, false, true, at_end);
            // A start that is the end as well: ^$ of the empty text is among the nodes already.
            state.matches = at_end.matched;
            out_.states.push_back(std::move(state));
            keys_.push_back(std::move(key));
        }
        return it->second;
    }

    // States that only lead to themselves.
    void settle() {
        for (std::uint32_t i = 0; i < out_.states.size(); ++i) {
            auto& s = out_.states[i];
            s.settled = std::all_of(s.steps.begin(), s.steps.end(), [&](const auto& step) { return step.target == i; });
        }
    }

    // Removes steps to states from which what is needed cannot come any more.
    void prune() {
        const std::size_t n = out_.states.size();
        std::vector<std::vector<std::uint32_t>> back(n);
        for (std::uint32_t i = 0; i < n; ++i)
            for (const auto& step : out_.states[i].steps)
                if (back[step.target].empty() || back[step.target].back() != i) back[step.target].push_back(i);
        std::vector<char> alive(n, 0);
        std::vector<std::uint32_t> work;
        for (std::uint32_t i = 0; i < n; ++i)
            if ((out_.states[i].matches & needed_) == needed_) alive[i] = 1, work.push_back(i);
        while (!work.empty()) {
            const std::uint32_t i = work.back();
            work.pop_back();
            for (const std::uint32_t b : back[i])
                if (!alive[b]) alive[b] = 1, work.push_back(b);
        }
        for (auto& s : out_.states) std::erase_if(s.steps, [&](const auto& step) { return !alive[step.target]; });
    }

    std::uint64_t needed_;
    std::vector<PatternNode> nodes_;
    std::vector<std::uint8_t> owner_;
    std::vector<const Ranges*> raw_sets_;
    std::vector<std::vector<bool>> sets_;      // by class of characters
    std::vector<std::uint32_t> starts_, borders_;
    std::vector<std::uint32_t> seen_;
    std::uint32_t mark_ = 0;
    std::size_t work_ = 0;
    std::map<Key, std::uint32_t> ids_;
    std::vector<Key> keys_;
    PatternAutomaton out_;
};

}  // namespace

const PatternAutomaton::State* PatternAutomaton::read(std::string_view text) const {
    const State* state = &states[0];
    for (const std::uint32_t c : code_points(text)) {
        const auto it = std::partition_point(state->steps.begin(), state->steps.end(), [&](const Step& s) { return s.hi < c; });
        if (it == state->steps.end() || it->lo > c) return nullptr;
        state = &states[it->target];
    }
    return state;
}

PatternAutomaton build_automaton(const std::vector<Pattern>& patterns, std::uint64_t needed) { return Construction(patterns, needed).run(); }

PatternAutomaton name_automaton(const std::vector<std::string>& names) {
    // A tree of names; state 1 is everything that has left it.
    PatternAutomaton a;
    std::vector<std::map<std::uint32_t, std::uint32_t>> children(2);
    a.states.resize(2);
    for (const std::string& name : names) {
        std::uint32_t at = 0;
        for (const std::uint32_t c : code_points(name)) {
            const auto [it, added] = children[at].try_emplace(c, static_cast<std::uint32_t>(a.states.size()));
            at = it->second;
            if (added) {
                a.states.emplace_back();
                children.emplace_back();
            }
        }
        a.states[at].matches = 1;
    }
    for (std::size_t i = 0; i < a.states.size(); ++i) {
        Ranges listed;
        for (const auto& [c, target] : children[i]) {
            a.states[i].steps.push_back({c, c, target});
            listed.push_back({c, c});
        }
        for (const Range& r : complement(listed)) a.states[i].steps.push_back({r.lo, r.hi, 1});
        std::sort(a.states[i].steps.begin(), a.states[i].steps.end(), [](const auto& x, const auto& y) { return x.lo < y.lo; });
    }
    a.states[1].settled = true;
    return a;
}

}  // namespace forge::grammar
