#include "alike_states.h"

#include <algorithm>
#include <map>

namespace forge::grammar {
namespace {

constexpr std::uint32_t most_rounds = 256;      // hardly a token is longer
constexpr std::size_t most_work = 400'000;   // steps looked at: a few milliseconds; what is found until then holds

std::vector<std::vector<std::uint32_t>> predecessors(std::span<const ReadingState> states) {
    std::vector<std::vector<std::uint32_t>> before(states.size());
    for (std::uint32_t s = 0; s < states.size(); ++s)
        for (const auto& step : states[s].steps)
            if (before[step.target].empty() || before[step.target].back() != s) before[step.target].push_back(s);
    return before;
}

// States are in one class after round r when they agree on all texts of at most r characters. A class keeps its number
// while it loses states, so that a round only looks at states whose steps lead to one that got a new number: of a count
// of characters, those near its end.
class Refinement {
  public:
    explicit Refinement(std::span<const ReadingState> states)
        : states_(states), before_(predecessors(states)), class_(states.size(), 0), out_(states.size()), members_(1), signature_(1) {
        for (std::uint32_t s = 0; s < states.size(); ++s) members_[0].push_back(s);
        for (std::uint32_t s = 0; s < states.size(); ++s) {
            if (!states[s].free) continue;
            for (const std::uint64_t n : {states[s].least, states[s].most})
                if (n < most_rounds) due_[static_cast<std::uint32_t>(n) + 1].push_back(s);
                else if (n != Grammar::unlimited) later_ = true;
        }
    }

    std::vector<Likeness> run() {
        std::vector<std::uint32_t> dirty = members_[0];
        std::uint32_t round = 1;
        for (; round <= most_rounds && work_ < most_work; ++round) {
            if (const auto it = due_.find(round); it != due_.end()) {
                dirty.insert(dirty.end(), it->second.begin(), it->second.end());
                due_.erase(it);
            }
            std::sort(dirty.begin(), dirty.end());
            dirty.erase(std::unique(dirty.begin(), dirty.end()), dirty.end());
            if (dirty.empty() && due_.empty()) break;
            dirty = refine(dirty, round);
        }
        const std::uint32_t agrees = !dirty.empty() || !due_.empty() ? round - 1 : later_ ? most_rounds : always_alike;
        for (const auto& members : members_)
            for (const std::uint32_t s : members)
                if (s != members.front()) out_[s] = {members.front(), agrees};
        return std::move(out_);
    }

  private:
    using Signature = std::vector<std::uint32_t>;

    // What tells a state from others in this round.
    Signature signature(std::uint32_t s, std::uint32_t round) {
        const ReadingState& state = states_[s];
        const auto seen = [&](std::uint64_t n) { return n < round ? static_cast<std::uint32_t>(n) : always_alike; };
        Signature out{state.ends, state.free};
        if (state.free) out.insert(out.end(), {seen(state.least), seen(state.most)});
        for (const auto& step : state.steps) {
            const std::uint32_t to = class_[step.target];
            if (out.size() > 4 && !state.free && out.back() == to && out[out.size() - 2] + 1 == step.lo) out[out.size() - 2] = step.hi;
            else out.insert(out.end(), {step.lo, step.hi, to});
        }
        work_ += state.steps.size() + 1;
        return out;
    }

    // The states to look at in the next round.
    std::vector<std::uint32_t> refine(const std::vector<std::uint32_t>& dirty, std::uint32_t round) {
        std::map<std::uint32_t, std::map<Signature, std::vector<std::uint32_t>>> touched;   // by class
        std::map<std::uint32_t, std::size_t> counts;
        for (const std::uint32_t s : dirty) {
            touched[class_[s]][signature(s, round)].push_back(s);
            ++counts[class_[s]];
        }
        std::vector<std::uint32_t> moved;
        for (auto& [c, groups] : touched) {
            // Those that were not looked at are what they were.
            if (counts[c] == members_[c].size()) {
                const auto largest = std::max_element(groups.begin(), groups.end(), [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
                signature_[c] = largest->first;
            }
            groups.erase(signature_[c]);
            if (groups.empty()) continue;
            const std::uint32_t first = members_[c].front();
            for (auto& [signature, group] : groups) {
                const auto number = static_cast<std::uint32_t>(members_.size());
                for (const std::uint32_t s : group) {
                    class_[s] = number;
                    note(s, first, round - 1);
                    moved.push_back(s);
                }
                members_.push_back(std::move(group));   // ascending, as `dirty` is
                signature_.push_back(signature);
            }
            std::erase_if(members_[c], [&, c = c](std::uint32_t s) { return class_[s] != c; });
            if (!members_[c].empty()) note(members_[c].front(), first, round - 1);
        }
        std::vector<std::uint32_t> next;
        for (const std::uint32_t s : moved) next.insert(next.end(), before_[s].begin(), before_[s].end());
        return next;
    }

    void note(std::uint32_t s, std::uint32_t first, std::uint32_t agrees) {
        if (s != first && agrees > 0) out_[s] = {first, agrees};
    }

    bool later_ = false;   // free states can differ by texts of more than most_rounds characters
    std::span<const ReadingState> states_;
    std::vector<std::vector<std::uint32_t>> before_;
    std::vector<std::uint32_t> class_;
    std::vector<Likeness> out_;
    std::vector<std::vector<std::uint32_t>> members_;            // of each class, ascending
    std::vector<Signature> signature_;                           // of each class
    std::map<std::uint32_t, std::vector<std::uint32_t>> due_;    // by the round in which a free state's length begins to count
    std::size_t work_ = 0;
};

}  // namespace

std::vector<Likeness> find_alike(std::span<const ReadingState> states) {
    if (states.empty()) return {};
    return Refinement(states).run();
}

std::vector<std::uint32_t> longest_texts(std::span<const ReadingState> states) {
    const auto before = predecessors(states);
    std::vector<std::uint32_t> longest(states.size(), always_alike), waits(states.size(), 0), work;
    for (std::uint32_t s = 0; s < states.size(); ++s)
        for (const std::uint32_t b : before[s]) ++waits[b];
    for (std::uint32_t s = 0; s < states.size(); ++s)
        if (waits[s] == 0) work.push_back(s);
    // Backwards from where no step is; what is never reached so leads in a circle.
    while (!work.empty()) {
        const std::uint32_t s = work.back();
        work.pop_back();
        std::uint64_t most = states[s].free ? states[s].most : 0;
        for (const auto& step : states[s].steps) most = std::max<std::uint64_t>(most, longest[step.target] == always_alike ? always_alike : longest[step.target] + 1ull);
        longest[s] = static_cast<std::uint32_t>(std::min<std::uint64_t>(most, always_alike));
        for (const std::uint32_t b : before[s])
            if (--waits[b] == 0) work.push_back(b);
    }
    return longest;
}

void leave_out_dead(std::span<ReadingState> states) {
    const auto before = predecessors(states);
    std::vector<char> alive(states.size(), 0);
    std::vector<std::uint32_t> work;
    const auto mark = [&](std::uint32_t s) {
        if (!alive[s]) alive[s] = 1, work.push_back(s);
    };
    for (std::uint32_t s = 0; s < states.size(); ++s)
        if (states[s].ends || (states[s].free && states[s].least <= states[s].most)) mark(s);
    while (!work.empty()) {
        const std::uint32_t s = work.back();
        work.pop_back();
        for (const std::uint32_t b : before[s]) mark(b);
    }
    for (ReadingState& state : states) std::erase_if(state.steps, [&](const auto& step) { return !alive[step.target]; });
}

}  // namespace forge::grammar
