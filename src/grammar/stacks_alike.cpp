// Sets that differ only in how much is left of a count.
#include <algorithm>

#include "alike_states.h"
#include "stacks.h"

namespace forge::grammar {
namespace {

constexpr std::uint32_t most_depth = 6;   // stacks are looked at so far down; what lies below stays as it is

}  // namespace

Stacks::Alike Stacks::alike(SetId set, std::uint32_t least, std::uint32_t depth) {
    if (depth > most_depth || set == none) return {set, always_alike};
    const std::uint64_t key = std::uint64_t{least} << 32 | set;
    if (const auto it = alike_.find(key); it != alike_.end()) return it->second;
    StackSet from = sets_[set], out{from.has_empty, {}};   // copies: sets are added below
    Alike result{set, always_alike};
    for (Frame& f : from.frames) {
        // Nodes that others are like come before them, so this ends; counts inside others first.
        while (!f.is_text() && grammar_->nodes[f.place].agrees >= least) {
            result.agrees = std::min(result.agrees, grammar_->nodes[f.place].agrees);
            f.place = grammar_->nodes[f.place].alike;
        }
        const Alike below = alike(f.below, least, depth + 1);
        result.agrees = std::min(result.agrees, below.agrees);
        f.below = below.set;
    }
    std::sort(from.frames.begin(), from.frames.end(), before);
    for (const Frame& f : from.frames) {
        if (!out.frames.empty() && out.frames.back().place == f.place && out.frames.back().aux == f.aux)
            out.frames.back().below = unite(out.frames.back().below, f.below);
        else out.frames.push_back(f);
    }
    result.set = intern(std::move(out));
    alike_.emplace(key, result);
    return result;
}

}  // namespace forge::grammar
