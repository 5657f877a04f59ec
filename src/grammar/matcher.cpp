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
    // Of sets that others are alike: what the trie says of them alone.
    static constexpr std::size_t most_walked = 64;
    std::unordered_map<SetId, std::vector<std::uint32_t>> walked;

    std::vector<const StringTokens*> strings;   // of the grammar's texts

    State(std::shared_ptr<const Grammar> g, std::shared_ptr<const Vocabulary> v) : vocabulary(std::move(v)), stacks(std::move(g)), now(stacks.start()) {
        for (const Grammar::Text& text : stacks.grammar().texts) strings.push_back(&vocabulary->strings(text));
    }

    void set(std::uint32_t id) { result[id / 32] |= 1u << (id % 32); }

    // Calls found(item) for every string of the trie that `from` can read; with `longer`, for those of more bytes only
    // (and some others).
    template <typename Found>
    void walk(const ByteTrie& trie, SetId from, Found found, std::uint32_t longer = 0) {
        path.assign(1, from);
        const auto& nodes = trie.nodes;
        for (std::uint32_t i = 0; i < nodes.size();) {
            const ByteTrie::Node& n = nodes[i];
            if (longer > 0 && trie.deepest[i] <= longer) {
                i = n.end;
                continue;
            }
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

    // Tokens of at most `room` characters that stay inside a text, of those that `among` has in its words.
    template <typename Among>
    void set_inside(const StringTokens& tokens, std::uint32_t room, const Among& among) {
        const bool all = tokens.inside.empty() || tokens.inside.back().characters <= room;
        const std::vector<std::uint32_t>& fits = all ? tokens.inside_all : tokens.inside_masks[std::min(room, StringTokens::most_characters)];
        for (std::size_t i = 0; i < fits.size(); ++i) result[i] |= fits[i] & among(i);
        if (all || room <= StringTokens::most_characters) return;
        const auto first = std::partition_point(tokens.inside.begin(), tokens.inside.end(), [](const auto& t) { return t.characters <= StringTokens::most_characters; });
        for (auto it = first; it != tokens.inside.end() && it->characters <= room; ++it)
            if (among(it->id / 32) >> (it->id % 32) & 1) set(it->id);
    }

    void add_text(const Frame& frame) {
        const Grammar& g = stacks.grammar();
        const Grammar::Text& text = g.texts[g.edges[frame.edge()].value];
        const StringTokens& tokens = *strings[g.edges[frame.edge()].value];
        const bool after_first = frame.state() == grammar::text_after_first;
        const std::uint32_t so_far = frame.characters();
        const std::uint32_t room = text.most == Grammar::unlimited ? Grammar::unlimited : text.most - so_far;
        set_inside(tokens, room, [&](std::size_t i) { return after_first ? ~tokens.after_first[i] : ~0u; });
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

    // What the trie says of a set alone.
    const std::vector<std::uint32_t>& walk_once(SetId from) {
        auto it = walked.find(from);
        if (it == walked.end()) {
            std::vector<std::uint32_t> before(vocabulary->words(), 0);
            before.swap(result);
            walk(vocabulary->trie(), from, [&](std::uint32_t id) { set(id); });
            before.swap(result);
            if (walked.size() >= most_walked) walked.clear();
            it = walked.emplace(from, std::move(before)).first;
        }
        return it->second;
    }

    // Tokens for a set of one frame inside a string: those that stay inside are the ones of a state that many counts of
    // characters share, as far as there is room for them; those that close it are looked at.
    bool add_inside(SetId from) {
        const Grammar& g = stacks.grammar();
        const std::vector<Frame>& frames = stacks[from].frames;
        if (frames.size() != 1 || frames[0].is_text() || g.nodes[frames[0].place].inside == Grammar::Node::no_inside) return false;
        const Grammar::Inside& inside = g.insides[g.nodes[frames[0].place].inside];
        if (inside.agrees < inside.room) return false;
        const StringTokens& tokens = *strings[inside.text];
        // Nothing lies below: what follows the string does not matter.
        const std::vector<std::uint32_t>& base = walk_once(stacks.subset({{inside.alike, 0, Stacks::none}}, false));
        set_inside(tokens, inside.room, [&](std::size_t i) { return base[i]; });
        walk(tokens.closing_whole, from, [&](std::uint32_t id) { set(id); });
        return true;
    }

    // The tokens that `from` can read. Where it is like another set for short texts, only the longer tokens are walked.
    void add_tokens(SetId from) {
        if (add_inside(from)) return;
        const auto add = [&](std::uint32_t id) { set(id); };
        for (const std::uint32_t least : {32u, 10u, 4u}) {
            const Stacks::Alike alike = stacks.alike(from, least);
            if (alike.set == from) continue;
            const std::vector<std::uint32_t>& base = walk_once(alike.set);
            const auto& lengths = Vocabulary::lengths;
            const auto known = std::upper_bound(lengths.begin(), lengths.end(), alike.agrees) - lengths.begin() - 1;   // least is one of them
            const std::vector<std::uint32_t>& shorter = vocabulary->not_longer(static_cast<std::size_t>(known));
            for (std::size_t i = 0; i < result.size(); ++i) result[i] |= base[i] & shorter[i];
            return walk(vocabulary->trie(), from, add, lengths[static_cast<std::size_t>(known)]);
        }
        walk(vocabulary->trie(), from, add);
    }

    const std::uint32_t* mask() {
        if (stacks.full()) {
            now = stacks.forget_all_but(now);
            masks.clear();
            walked.clear();
        }
        if (const auto it = masks.find(now); it != masks.end()) return it->second.data();
        result.assign(vocabulary->words(), 0);
        const grammar::StackSet set_now = stacks[now];   // a copy: sets are added below
        std::vector<Frame> others;
        for (const Frame& f : set_now.frames) {
            if (f.is_text() && grammar::between_characters(f.state())) add_text(f);
            else others.push_back(f);
        }
        if (!others.empty()) add_tokens(stacks.subset(std::move(others), false));
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
