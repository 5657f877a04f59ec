#include "grammar/matcher.h"

#include <algorithm>
#include <unordered_map>

#include "stacks.h"
#include "text_step.h"

namespace forge {

using grammar::Frame;
using grammar::SetId;
using grammar::Stacks;

struct Matcher::State {
    std::shared_ptr<const Vocabulary> vocabulary;
    Stacks stacks;
    SetId now;
    // Masks of sets that were computed with the trie, the latest ones.
    static constexpr std::size_t most_masks = 512;
    std::unordered_map<SetId, std::vector<std::uint32_t>> masks;
    std::vector<std::uint32_t> result;
    std::vector<SetId> path;

    std::vector<const StringTokens*> strings;   // of the grammar's texts

    State(std::shared_ptr<const Grammar> g, std::shared_ptr<const Vocabulary> v) : vocabulary(std::move(v)), stacks(std::move(g)), now(stacks.start()) {
        for (const Grammar::Text& text : stacks.grammar().texts) strings.push_back(&vocabulary->strings(text));
    }

    void set(std::uint32_t id) { result[id / 32] |= 1u << (id % 32); }

    // Calls found(item) for every string of the trie that `from` can read.
    template <typename Found>
    void walk(const ByteTrie& trie, SetId from, Found found) {
        path.assign(1, from);
        const auto& nodes = trie.nodes;
        for (std::uint32_t i = 0; i < nodes.size();) {
            const ByteTrie::Node& n = nodes[i];
            const SetId next = stacks.step(path[n.depth - 1u], n.byte);
            if (next == Stacks::none) {
                i = n.end;
                continue;
            }
            if (path.size() <= n.depth) path.resize(n.depth + 1u);
            path[n.depth] = next;
            for (std::uint32_t k = n.first; k < n.first + n.count; ++k) found(trie.items[k]);
            ++i;
        }
    }

    void add_text(const Frame& frame) {
        const Grammar& g = stacks.grammar();
        const Grammar::Text& text = g.texts[g.edges[frame.edge()].value];
        const StringTokens& tokens = *strings[g.edges[frame.edge()].value];
        const bool after_first = frame.state() == grammar::text_after_first;
        const std::uint32_t so_far = frame.characters();
        const std::uint32_t room = text.most == Grammar::unlimited ? Grammar::unlimited : text.most - so_far;
        const bool all = room == Grammar::unlimited || tokens.inside.empty() || tokens.inside.back().characters <= room;
        const std::vector<std::uint32_t>& base = all ? tokens.inside_all : tokens.inside_masks[std::min(room, StringTokens::most_characters)];
        for (std::size_t i = 0; i < base.size(); ++i) result[i] |= after_first ? base[i] & ~tokens.after_first[i] : base[i];
        if (!all && room > StringTokens::most_characters) {
            const auto first = std::partition_point(tokens.inside.begin(), tokens.inside.end(), [](const auto& t) { return t.characters <= StringTokens::most_characters; });
            for (auto it = first; it != tokens.inside.end() && it->characters <= room; ++it)
                if (!after_first || !(tokens.after_first[it->id / 32] >> (it->id % 32) & 1)) set(it->id);
        }
        const auto fits = [&](const StringTokens::Token& t) {
            return so_far + t.characters >= text.least && t.characters <= room && !(after_first && (tokens.after_first[t.id / 32] >> (t.id % 32) & 1));
        };
        for (const StringTokens::Token& t : tokens.closing_exactly)
            if (fits(t)) set(t.id);
        walk(tokens.after, stacks.after_text(frame), [&](std::uint32_t group) {
            for (const StringTokens::Token& t : tokens.closing[group])
                if (fits(t)) set(t.id);
        });
    }

    const std::uint32_t* mask() {
        if (stacks.full()) {
            now = stacks.forget_all_but(now);
            masks.clear();
        }
        if (const auto it = masks.find(now); it != masks.end()) return it->second.data();
        result.assign(vocabulary->words(), 0);
        const grammar::StackSet set_now = stacks[now];   // a copy: sets are added below
        std::vector<Frame> others;
        for (const Frame& f : set_now.frames) {
            if (f.is_text() && grammar::between_characters(f.state())) add_text(f);
            else others.push_back(f);
        }
        if (!others.empty()) walk(vocabulary->trie(), stacks.subset(std::move(others), false), [&](std::uint32_t id) { set(id); });
        if (set_now.has_empty)
            for (const std::int32_t id : vocabulary->ends()) set(static_cast<std::uint32_t>(id));
        if (masks.size() >= most_masks) masks.clear();
        return masks.emplace(now, result).first->second.data();
    }
};

Matcher::Matcher(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const Vocabulary> vocabulary)
    : state_(std::make_unique<State>(std::move(grammar), std::move(vocabulary))) {}
Matcher::~Matcher() = default;
Matcher::Matcher(Matcher&&) noexcept = default;
Matcher& Matcher::operator=(Matcher&&) noexcept = default;

const std::uint32_t* Matcher::mask() { return state_->mask(); }

bool Matcher::accept(std::string_view text) {
    const SetId next = state_->stacks.step(state_->now, text);
    if (next == Stacks::none) return false;
    state_->now = next;
    return true;
}

bool Matcher::accept(std::int32_t token) {
    if (token < 0 || static_cast<std::size_t>(token) >= state_->vocabulary->size()) return false;
    const std::string& bytes = state_->vocabulary->bytes(token);
    return !bytes.empty() && accept(bytes);
}

bool Matcher::can_end() const { return state_->stacks[state_->now].has_empty; }
bool Matcher::finished() const { return can_end() && state_->stacks[state_->now].frames.empty(); }

std::string Matcher::forced_text() {
    std::string text;
    SetId at = state_->now;
    for (int byte; text.size() < 1024 && (byte = state_->stacks.only_byte(at)) >= 0;) {
        text += static_cast<char>(byte);
        at = state_->stacks.step(at, static_cast<unsigned char>(byte));
    }
    return text;
}

std::vector<std::int32_t> Matcher::forced() {
    const std::string text = forced_text();
    if (text.size() < 2) return {};
    std::vector<std::int32_t> ids = state_->vocabulary->encode(text);
    const SetId after = state_->stacks.step(state_->now, text);
    const bool ends = state_->stacks[after].has_empty && state_->stacks[after].frames.empty();
    if (!ids.empty() && !ends && text.back() != Grammar::special_end) ids.pop_back();
    return ids;
}

void Matcher::reset() { state_->now = state_->stacks.start(); }

}  // namespace forge
