#include "prefix_trie.h"

#include <algorithm>
#include <utility>

namespace forge {
namespace {

// Copies are made in runs that end at multiples of this, so that splitting one moves little and the least recently used
// leave in small parts, ends first.
constexpr std::size_t run = 256;

}  // namespace

std::size_t common_prefix(PrefixTrie::Tokens a, PrefixTrie::Tokens b) {
    return static_cast<std::size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

// Of a kept node all nodes towards the root are kept. A node that is neither kept nor held has children.
struct PrefixTrie::Node {
    std::vector<std::int32_t> tokens;                        // of the edge that leads here; none for the root
    Node* parent = nullptr;
    std::map<std::int32_t, std::unique_ptr<Node>> children;  // by first token
    std::vector<int> slots;                                  // whose tokens lead here or further
    bool kept = false;                                       // `rows` are this edge's (they may take no bytes)
    std::vector<std::byte> rows, state;
    Recent::iterator place;                                  // in recent_, where the node is in it

    bool keeps_children() const {
        return std::any_of(children.begin(), children.end(), [](const auto& c) { return c.second->kept; });
    }
    std::size_t row_bytes() const { return rows.size() + tokens.size() * sizeof(std::int32_t); }
    bool leads_to(const Node* path) const {
        while (path && path != this) path = path->parent;
        return path != nullptr;
    }
};

PrefixTrie::PrefixTrie(const Sizes& sizes) : sizes_(sizes), root_(std::make_unique<Node>()) {}

// Without recursion: a chain of edges can be long.
PrefixTrie::~PrefixTrie() {
    std::vector<std::unique_ptr<Node>> all;
    all.push_back(std::move(root_));
    while (!all.empty()) {
        const std::unique_ptr<Node> node = std::move(all.back());
        all.pop_back();
        for (auto& [token, child] : node->children) all.push_back(std::move(child));
    }
}

PrefixTrie::Node& PrefixTrie::split(Node& node, std::size_t at) {
    auto upper = std::make_unique<Node>();
    Node& above = *upper;
    const auto middle = node.tokens.begin() + static_cast<std::ptrdiff_t>(at);
    above.tokens.assign(node.tokens.begin(), middle);
    above.parent = node.parent;
    above.slots = node.slots;
    std::unique_ptr<Node>& place = node.parent->children.at(node.tokens.front());
    std::unique_ptr<Node> lower = std::exchange(place, std::move(upper));
    node.tokens = std::vector<std::int32_t>(middle, node.tokens.end());
    node.parent = &above;
    if (node.kept) {
        above.kept = true;
        const auto cut = node.rows.begin() + static_cast<std::ptrdiff_t>(at * sizes_.row);
        above.rows.assign(node.rows.begin(), cut);
        node.rows = std::vector<std::byte>(cut, node.rows.end());
        if (!recurrent()) above.place = recent_.insert(node.place, &above);
    }
    above.children.emplace(node.tokens.front(), std::move(lower));
    return above;
}

PrefixTrie::Node& PrefixTrie::insert(Tokens tokens) {
    Node* node = root_.get();
    while (!tokens.empty()) {
        const auto child = node->children.find(tokens.front());
        if (child == node->children.end()) {
            auto made = std::make_unique<Node>();
            made->tokens.assign(tokens.begin(), tokens.end());
            made->parent = node;
            return *(node->children[tokens.front()] = std::move(made));
        }
        node = child->second.get();
        const std::size_t common = common_prefix(tokens, node->tokens);
        if (common < node->tokens.size()) node = &split(*node, common);
        tokens = tokens.subspan(common);
    }
    return *node;
}

void PrefixTrie::prune(Node* node) {
    while (node != root_.get() && !node->kept && node->slots.empty() && node->children.empty()) {
        Node* parent = node->parent;
        parent->children.erase(node->tokens.front());
        node = parent;
    }
}

// ---- slots

void PrefixTrie::hold(int slot, Tokens tokens) {
    if (const auto end = ends_.find(slot); end != ends_.end()) {
        for (Node* node = end->second; node != root_.get(); node = node->parent) std::erase(node->slots, slot);
        prune(end->second);
        ends_.erase(end);
    }
    if (tokens.empty()) return;
    Node& end = insert(tokens);
    for (Node* node = &end; node != root_.get(); node = node->parent) node->slots.push_back(slot);
    ends_[slot] = &end;
}

void PrefixTrie::held(Tokens wanted, std::vector<Held>& found) const {
    found.clear();
    const Node* node = root_.get();
    for (std::size_t depth = 0; depth < wanted.size();) {
        const auto child = node->children.find(wanted[depth]);
        if (child == node->children.end()) return;
        node = child->second.get();
        const std::size_t common = common_prefix(wanted.subspan(depth), node->tokens);
        depth += common;
        for (const int slot : node->slots) {
            const auto known = std::find_if(found.begin(), found.end(), [&](const Held& h) { return h.slot == slot; });
            if (known == found.end()) found.push_back({slot, depth});
            else known->common = depth;
        }
        if (common < node->tokens.size()) return;
    }
}

// ---- copies

// Everything on the way is at least as recent as its end, so that ends leave first.
void PrefixTrie::touch(Node& node) {
    if (recurrent()) {
        if (!node.state.empty()) recent_.splice(recent_.begin(), recent_, node.place);
        return;
    }
    for (Node* n = &node; n != root_.get(); n = n->parent)
        if (n->kept) recent_.splice(recent_.begin(), recent_, n->place);
}

void PrefixTrie::drop_rows(Node& node) {
    bytes_ -= node.row_bytes();
    node.kept = false;
    node.rows = {};
    if (!recurrent()) recent_.erase(node.place);
}

void PrefixTrie::drop_state(Node& node) {
    bytes_ -= node.state.size();
    node.state = {};
    recent_.erase(node.place);
}

void PrefixTrie::drop_useless_rows(Node* node, const Node* path) {
    while (node != root_.get() && node->kept && node->state.empty() && !node->keeps_children() && !node->leads_to(path)) {
        Node* parent = node->parent;
        drop_rows(*node);
        prune(node);
        node = parent;
    }
}

// The copy that was not used for longest, if it is not part of `path`.
bool PrefixTrie::evict_one(const Node& path) {
    if (recent_.empty()) return false;
    Node* oldest = recent_.back();
    if (recurrent()) {
        drop_state(*oldest);
        drop_useless_rows(oldest, &path);
        return true;
    }
    if (oldest->leads_to(&path)) return false;
    drop_rows(*oldest);
    prune(oldest);
    return true;
}

bool PrefixTrie::make_room(std::size_t bytes, const Node& path) {
    if (bytes > sizes_.budget) return false;
    while (bytes_ + bytes > sizes_.budget)
        if (!evict_one(path)) return false;
    return true;
}

bool PrefixTrie::keep_rows(Node& node, std::size_t first, const Read& read) {
    if (node.kept) return true;
    const std::size_t count = node.tokens.size(), rows = count * sizes_.row;
    if (!make_room(rows + node.row_bytes(), node)) return false;
    node.rows.resize(rows);
    if (rows > 0) read(first, first + count, node.rows.data());
    node.kept = true;
    bytes_ += node.row_bytes();
    if (!recurrent()) node.place = recent_.insert(recent_.end(), &node);
    return true;
}

void PrefixTrie::keep_state(Node& node, std::span<const std::byte> state) {
    if (!node.state.empty()) return touch(node);
    if (!make_room(state.size(), node)) return;
    node.state.assign(state.begin(), state.end());
    bytes_ += state.size();
    node.place = recent_.insert(recent_.begin(), &node);
}

void PrefixTrie::keep(Tokens tokens, std::span<const State> states, const Read& read) {
    if (sizes_.budget == 0) return;
    std::vector<State> wanted;
    const auto alone = [&](std::size_t length) {   // what it takes if nothing else is kept
        return length * (sizes_.row + sizeof(std::int32_t)) + sizes_.state;
    };
    for (const State& s : states)
        if (s.length > 0 && s.length <= tokens.size() && s.bytes.size() == sizes_.state && sizes_.state > 0 && alone(s.length) <= sizes_.budget) wanted.push_back(s);
    std::sort(wanted.begin(), wanted.end(), [](const State& a, const State& b) { return a.length < b.length; });
    if (recurrent()) {
        if (wanted.empty()) return;
        tokens = tokens.first(wanted.back().length);
    }
    // What is here already must not leave for the rest.
    if (const auto [node, length] = loadable(tokens); length > 0 && !recurrent()) touch(*node);
    auto state = wanted.begin();
    for (std::size_t done = 0; done < tokens.size();) {
        std::size_t end = std::min((done / run + 1) * run, tokens.size());
        if (state != wanted.end()) end = std::min(end, state->length);
        Node& last = insert(tokens.first(end));
        // There may be several nodes up to there: others branched off in between.
        bool fits = true;
        while (done < end) {
            // The node that begins after `done` tokens: the path exists, so nothing is made here.
            Node* node = root_.get();
            std::size_t depth = 0;
            for (;;) {
                node = node->children.at(tokens[depth]).get();
                if (depth + node->tokens.size() > done) break;
                depth += node->tokens.size();
            }
            fits = keep_rows(*node, depth, read);
            if (!fits) break;
            done = depth + node->tokens.size();
            if (!recurrent()) touch(*node);
        }
        if (!fits) {
            prune(&last);
            break;
        }
        for (; state != wanted.end() && state->length == done; ++state) keep_state(last, state->bytes);
    }
    // Rows behind the last state that fitted.
    if (!recurrent()) return;
    Node* node = root_.get();
    for (std::size_t depth = 0; depth < tokens.size();) {
        const auto child = node->children.find(tokens[depth]);
        if (child == node->children.end() || !child->second->kept) break;
        node = child->second.get();
        depth += node->tokens.size();
    }
    drop_useless_rows(node, nullptr);
}

std::pair<PrefixTrie::Node*, std::size_t> PrefixTrie::loadable(Tokens wanted) const {
    std::pair<Node*, std::size_t> best{nullptr, 0};
    Node* node = root_.get();
    for (std::size_t depth = 0; depth < wanted.size();) {
        const auto child = node->children.find(wanted[depth]);
        if (child == node->children.end() || !child->second->kept) break;
        node = child->second.get();
        const std::size_t common = common_prefix(wanted.subspan(depth), node->tokens);
        depth += common;
        const bool whole = common == node->tokens.size();
        if (!recurrent() || (whole && !node->state.empty())) best = {node, depth};
        if (!whole) break;
    }
    return best;
}

std::size_t PrefixTrie::kept(Tokens wanted) const { return loadable(wanted).second; }

std::size_t PrefixTrie::load(Tokens wanted, std::size_t from, const Write& write, std::span<const std::byte>* state) {
    const auto [end, length] = loadable(wanted);
    if (state) *state = {};
    if (!end) return 0;
    touch(*end);
    if (state) *state = end->state;
    const Node* node = root_.get();
    for (std::size_t depth = 0; depth < length;) {
        node = node->children.at(wanted[depth]).get();
        const std::size_t last = std::min(length, depth + node->tokens.size()), first = std::max(depth, from);
        if (first < last && sizes_.row > 0) write(first, last, node->rows.data() + (first - depth) * sizes_.row);
        depth += node->tokens.size();
    }
    return length;
}

}  // namespace forge
