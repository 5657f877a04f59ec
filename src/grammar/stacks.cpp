#include "stacks.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "text_step.h"

namespace forge::grammar {
namespace {

using Kind = Grammar::EdgeKind;
constexpr SetId unknown = 0xFFFFFFFF;
// A set with more frames than this is not computed with: only hostile or very ambiguous grammars come here.
constexpr std::size_t most_frames = 20'000;

std::uint64_t mix(std::uint64_t h, std::uint64_t v) {
    h ^= v + 0x9E3779B97F4A7C15ull + (h << 6) + (h >> 2);
    return h * 0xFF51AFD7ED558CCDull;
}

std::uint64_t hash_of(const StackSet& s) {
    std::uint64_t h = s.has_empty;
    for (const Frame& f : s.frames) h = mix(mix(h, std::uint64_t{f.place} << 32 | f.aux), f.below);
    return h;
}

}  // namespace

Stacks::Stacks(std::shared_ptr<const Grammar> grammar) : grammar_(std::move(grammar)) {
    intern({});                                // none
    const SetId bottom = intern({true, {}});   // the empty stack
    begin();
    add(grammar_->rules[grammar_->start], 0, bottom);
    start_ = close();
}

SetId Stacks::intern(StackSet set) {
    const std::uint64_t hash = hash_of(set);
    std::vector<SetId>& same = index_[hash];
    for (const SetId id : same)
        if (sets_[id].has_empty == set.has_empty && sets_[id].frames == set.frames) return id;
    const SetId id = static_cast<SetId>(sets_.size());
    if (sets_.size() >= most_sets) fail(ErrorKind::unsupported, "the text is nested too deep, or the grammar too ambiguous, to follow: more than {} states are kept", most_sets);
    sets_.push_back(std::move(set));
    next_.emplace_back();
    same.push_back(id);
    return id;
}

SetId Stacks::unite(SetId a, SetId b) {
    if (a == b || b == none) return a;
    if (a == none) return b;
    if (a > b) std::swap(a, b);
    const std::uint64_t key = std::uint64_t{a} << 32 | b;
    if (const auto it = united_.find(key); it != united_.end()) return it->second;
    StackSet out;
    out.has_empty = sets_[a].has_empty || sets_[b].has_empty;
    const std::vector<Frame> left = sets_[a].frames, right = sets_[b].frames;   // copies: uniting below adds sets
    for (std::size_t i = 0, j = 0; i < left.size() || j < right.size();) {
        if (j == right.size() || (i < left.size() && before(left[i], right[j]))) {
            out.frames.push_back(left[i++]);
        } else if (i == left.size() || before(right[j], left[i])) {
            out.frames.push_back(right[j++]);
        } else {
            out.frames.push_back({left[i].place, left[i].aux, unite(left[i].below, right[j].below)});
            ++i, ++j;
        }
    }
    const SetId id = intern(std::move(out));
    united_.emplace(key, id);
    return id;
}

void Stacks::begin() {
    entries_.clear();
    entry_index_.clear();
    work_.clear();
    closing_empty_ = false;
}

void Stacks::add(std::uint32_t place, std::uint32_t aux, SetId below) {
    const auto [it, added] = entry_index_.try_emplace(std::uint64_t{place} << 32 | aux, static_cast<std::uint32_t>(entries_.size()));
    if (added) {
        if (entries_.size() >= most_frames)
            fail(ErrorKind::unsupported, "the grammar is too ambiguous: more than {} ways to go on are open at once", most_frames);
        entries_.push_back({place, aux, below, true});
        work_.push_back(it->second);
        return;
    }
    const SetId both = unite(entries_[it->second].below, below);
    Entry& entry = entries_[it->second];
    if (both == entry.below) return;
    entry.below = both;
    if (!entry.waiting) entry.waiting = true, work_.push_back(it->second);
}

// Follows what needs no byte, and keeps the frames that wait for one.
SetId Stacks::close() {
    const Grammar& g = *grammar_;
    std::size_t rounds = 0;
    while (!work_.empty()) {
        if (++rounds > 40 * most_frames) fail(ErrorKind::unsupported, "the grammar is too ambiguous to follow");
        const std::uint32_t index = work_.back();
        work_.pop_back();
        Entry& entry = entries_[index];
        entry.waiting = false;
        if (entry.place & Frame::text_bit) continue;
        const std::uint32_t place = entry.place;
        const SetId below = entry.below;
        const Grammar::Node& node = g.nodes[place];
        if (node.accept) {
            closing_empty_ = closing_empty_ || sets_[below].has_empty;
            const std::vector<Frame> returns = sets_[below].frames;
            for (const Frame& f : returns) add(f.place, f.aux, f.below);
        }
        for (std::uint32_t e = node.first; e < node.first + node.count; ++e) {
            const Grammar::Edge& edge = g.edges[e];
            if (edge.kind == Kind::epsilon) {
                add(edge.target, 0, below);
            } else if (edge.kind == Kind::text) {
                add(Frame::text_bit | e, text_ground, below);
            } else if (edge.kind == Kind::call) {
                // Where the caller has nothing left to do, its own return address does (a tail call).
                const Grammar::Node& after = g.nodes[edge.target];
                const bool tail = after.accept && after.count == 0;
                add(g.rules[edge.value], 0, tail ? below : intern({false, {{edge.target, 0, below}}}));
            }
        }
    }
    StackSet out;
    out.has_empty = closing_empty_;
    for (const Entry& entry : entries_) {
        bool waits = entry.place & Frame::text_bit;
        if (!waits) {
            const Grammar::Node& node = g.nodes[entry.place];
            for (std::uint32_t e = node.first; e < node.first + node.count && !waits; ++e) waits = g.edges[e].kind == Kind::bytes;
        }
        if (waits) out.frames.push_back({entry.place, entry.aux, entry.below});
    }
    std::sort(out.frames.begin(), out.frames.end(), before);
    return intern(std::move(out));
}

SetId Stacks::step(SetId set, unsigned char byte) {
    if (set == none) return none;
    if (next_[set] && next_[set][byte] != unknown) return next_[set][byte];
    if (!next_[set]) {
        next_[set] = std::make_unique<SetId[]>(256);
        std::fill_n(next_[set].get(), 256, unknown);
    }
    const Grammar& g = *grammar_;
    begin();
    const std::vector<Frame> frames = sets_[set].frames;
    for (const Frame& f : frames) {
        if (f.is_text()) {
            const Grammar::Edge& edge = g.edges[f.edge()];
            const Grammar::Text& text = g.texts[edge.value];
            const TextStep next = text_step(text, f.state(), byte);
            if (next.kind == TextStep::dead) continue;
            if (next.kind == TextStep::closed) {
                if (f.characters() >= text.least) add(edge.target, 0, f.below);
                continue;
            }
            std::uint32_t characters = f.characters() + next.begins;
            if (text.most == Grammar::unlimited) characters = std::min(characters, text.least);
            else if (characters > text.most) continue;
            add(f.place, next.state | characters << 8, f.below);
            continue;
        }
        const Grammar::Node& node = g.nodes[f.place];
        for (std::uint32_t e = node.first; e < node.first + node.count; ++e) {
            const Grammar::Edge& edge = g.edges[e];
            if (edge.kind == Kind::bytes && byte >= edge.lo && byte <= edge.hi) add(edge.target, 0, f.below);
        }
    }
    const SetId next = entries_.empty() ? none : close();
    next_[set][byte] = next;
    return next;
}

SetId Stacks::step(SetId set, std::string_view bytes) {
    for (const char c : bytes) {
        if (set == none) break;
        set = step(set, static_cast<unsigned char>(c));
    }
    return set;
}

SetId Stacks::after_text(const Frame& frame) {
    const SetId below = frame.below;
    const std::uint32_t target = grammar_->edges[frame.edge()].target;
    begin();
    add(target, 0, below);
    return close();
}

int Stacks::only_byte(SetId set) const {
    const StackSet& s = sets_[set];
    if (s.has_empty || s.frames.empty()) return -1;
    int only = -1;
    for (const Frame& f : s.frames) {
        if (f.is_text()) {
            // A text that has all its characters can only be closed.
            const Grammar::Text& text = grammar_->texts[grammar_->edges[f.edge()].value];
            if (!between_characters(f.state()) || f.characters() < text.most) return -1;
            if (only >= 0 && only != closing_byte(text)) return -1;
            only = closing_byte(text);
            continue;
        }
        const Grammar::Node& node = grammar_->nodes[f.place];
        for (std::uint32_t e = node.first; e < node.first + node.count; ++e) {
            const Grammar::Edge& edge = grammar_->edges[e];
            if (edge.kind != Kind::bytes) continue;
            if (edge.lo != edge.hi || (only >= 0 && only != edge.lo)) return -1;
            only = edge.lo;
        }
    }
    return only;
}

SetId Stacks::copy_from(const std::vector<StackSet>& old, SetId set, std::unordered_map<SetId, SetId>& done) {
    // Sets below have smaller numbers, so in ascending order each is there before it is needed.
    std::vector<SetId> needed{set};
    std::vector<char> seen(old.size(), 0);
    seen[set] = 1;
    for (std::size_t i = 0; i < needed.size(); ++i)
        for (const Frame& f : old[needed[i]].frames)
            if (!seen[f.below]) seen[f.below] = 1, needed.push_back(f.below);
    std::sort(needed.begin(), needed.end());
    for (const SetId id : needed) {
        StackSet copy = old[id];
        for (Frame& f : copy.frames) f.below = done.at(f.below);
        done[id] = intern(std::move(copy));
    }
    return done.at(set);
}

SetId Stacks::forget_all_but(SetId keep) {
    const std::vector<StackSet> old = std::move(sets_);
    sets_.clear();
    next_.clear();
    index_.clear();
    united_.clear();
    alike_.clear();
    std::unordered_map<SetId, SetId> done;
    done[none] = intern({});
    const SetId bottom = intern({true, {}});
    begin();
    add(grammar_->rules[grammar_->start], 0, bottom);
    start_ = close();
    keep = copy_from(old, keep, done);
    limit_ = std::max(usual_sets, 3 * sets_.size());
    return keep;
}

}  // namespace forge::grammar
