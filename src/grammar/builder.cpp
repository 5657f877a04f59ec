#include "builder.h"

#include <algorithm>

#include "base/error.h"

namespace forge::grammar {
namespace {

using Kind = Grammar::EdgeKind;

// Lists of edge numbers, one a node.
struct Lists {
    std::vector<std::uint32_t> first, items;

    template <typename Edges, typename Key>
    Lists(std::size_t nodes, const Edges& edges, Key key) : first(nodes + 1, 0) {
        for (const auto& e : edges) ++first[key(e) + 1];
        for (std::size_t i = 0; i < nodes; ++i) first[i + 1] += first[i];
        items.resize(edges.size());
        std::vector<std::uint32_t> at(first.begin(), first.end() - 1);
        for (std::size_t i = 0; i < edges.size(); ++i) items[at[key(edges[i])]++] = static_cast<std::uint32_t>(i);
    }
};

}  // namespace

NodeId Builder::node() {
    if (nodes_.size() >= most_nodes)
        fail(ErrorKind::unsupported, "{} needs more than {} states, which is too large", what_, most_nodes);
    nodes_.emplace_back();
    return static_cast<NodeId>(nodes_.size() - 1);
}

void Builder::add(NodeId from, Grammar::Edge edge) {
    if (edges_.size() >= most_edges)
        fail(ErrorKind::unsupported, "{} needs more than {} transitions, which is too large", what_, most_edges);
    edges_.push_back({edge, from});
}

void Builder::bytes(NodeId from, unsigned char lo, unsigned char hi, NodeId to) { add(from, {Kind::bytes, lo, hi, 0, to}); }
void Builder::epsilon(NodeId from, NodeId to) { add(from, {Kind::epsilon, 0, 0, 0, to}); }
void Builder::call(NodeId from, RuleId rule, NodeId to) { add(from, {Kind::call, 0, 0, rule, to}); }

void Builder::text(NodeId from, const Grammar::Text& text, NodeId to) {
    add(from, {Kind::text, 0, 0, text_number(text), to});
}

std::uint32_t Builder::text_number(const Grammar::Text& text) {
    const auto [it, added] = text_index_.try_emplace(text, static_cast<std::uint32_t>(texts_.size()));
    if (added) texts_.push_back(text);
    return it->second;
}

void Builder::alike(NodeId node, NodeId to, std::uint32_t agrees) {
    if (nodes_[node].agrees > 0 || node == to) return;
    nodes_[node].alike = to;
    nodes_[node].agrees = agrees;
}

void Builder::inside(NodeId node, const Grammar::Text& kind, std::uint32_t room, NodeId alike, std::uint32_t agrees) {
    nodes_[node].inside = static_cast<std::uint32_t>(insides_.size());
    insides_.push_back({text_number(kind), room, alike, agrees});
}

NodeId Builder::literal(NodeId from, std::string_view text) {
    for (const char c : text) {
        const NodeId next = node();
        bytes(from, static_cast<unsigned char>(c), static_cast<unsigned char>(c), next);
        from = next;
    }
    return from;
}

RuleId Builder::rule() {
    rules_.push_back(node());
    return static_cast<RuleId>(rules_.size() - 1);
}

// Nodes from which an accepting one can be reached, calls included; with `bytes` false, without a byte.
std::vector<char> Builder::ending(bool bytes) const {
    const Lists by_target(nodes_.size(), edges_, [](const Edge& e) { return e.target; });
    std::vector<Edge> calls;
    for (const Edge& e : edges_)
        if (e.kind == Kind::call) calls.push_back(e);
    const Lists by_callee(nodes_.size(), calls, [&](const Edge& e) { return rules_[e.value]; });
    std::vector<char> good(nodes_.size(), 0);
    std::vector<NodeId> work;
    const auto mark = [&](NodeId n) {
        if (!good[n]) good[n] = 1, work.push_back(n);
    };
    const auto try_edge = [&](const Edge& e) {
        if (!bytes && (e.kind == Kind::bytes || e.kind == Kind::text)) return;
        if (good[e.target] && (e.kind != Kind::call || good[rules_[e.value]]) && (e.kind != Kind::text || texts_[e.value].least <= texts_[e.value].most)) mark(e.from);
    };
    for (NodeId n = 0; n < nodes_.size(); ++n)
        if (nodes_[n].accept) mark(n);
    while (!work.empty()) {
        const NodeId n = work.back();
        work.pop_back();
        for (auto i = by_target.first[n]; i < by_target.first[n + 1]; ++i) try_edge(edges_[by_target.items[i]]);
        for (auto i = by_callee.first[n]; i < by_callee.first[n + 1]; ++i) try_edge(calls[by_callee.items[i]]);
    }
    return good;
}

// A call that leads back to itself without a byte in between would push for ever.
void Builder::refuse_left_recursion() const {
    const std::vector<char> empty = ending(false);
    const auto nullable = [&](RuleId r) { return empty[rules_[r]] != 0; };
    // Steps without a byte: to the callee, past a callee that may be empty, along an epsilon.
    struct Step { NodeId from, to; bool call; };
    std::vector<Step> steps;
    for (const Edge& e : edges_) {
        if (e.kind == Kind::epsilon) steps.push_back({e.from, e.target, false});
        if (e.kind != Kind::call) continue;
        steps.push_back({e.from, rules_[e.value], true});
        if (nullable(e.value)) steps.push_back({e.from, e.target, false});
    }
    const Lists out(nodes_.size(), steps, [](const Step& s) { return s.from; });
    // Tarjan's components, without recursion.
    std::vector<std::uint32_t> order(nodes_.size(), 0), low(nodes_.size(), 0), component(nodes_.size(), 0), stack;
    struct Visit { NodeId node; std::uint32_t next; };
    std::vector<Visit> visits;
    std::uint32_t counter = 0, components = 0;
    std::vector<char> on_stack(nodes_.size(), 0);
    for (NodeId root = 0; root < nodes_.size(); ++root) {
        if (order[root]) continue;
        visits.push_back({root, out.first[root]});
        while (!visits.empty()) {
            auto& [n, next] = visits.back();
            if (!order[n]) {
                order[n] = low[n] = ++counter;
                stack.push_back(n);
                on_stack[n] = 1;
            }
            if (next < out.first[n + 1]) {
                const NodeId to = steps[out.items[next++]].to;
                if (!order[to]) visits.push_back({to, out.first[to]});
                else if (on_stack[to]) low[n] = std::min(low[n], order[to]);
                continue;
            }
            const NodeId done = n;
            if (low[done] == order[done]) {
                ++components;
                for (NodeId m;;) {
                    m = stack.back();
                    stack.pop_back();
                    on_stack[m] = 0;
                    component[m] = components;
                    if (m == done) break;
                }
            }
            visits.pop_back();
            if (!visits.empty()) low[visits.back().node] = std::min(low[visits.back().node], low[done]);
        }
    }
    for (const Step& s : steps)
        if (s.call && component[s.from] == component[s.to])
            fail("a rule begins with itself (left recursion), which the grammar's automaton cannot follow; write it with repetition, or recursive at its end");
}

Grammar Builder::finish(RuleId start, const std::string& nothing) {
    refuse_left_recursion();
    const std::vector<char> good = ending(true);
    if (!good[rules_[start]]) fail("{}", nothing);
    const Lists out(nodes_.size(), edges_, [](const Edge& e) { return e.from; });
    Grammar g;
    g.nodes.reserve(nodes_.size());
    for (NodeId n = 0; n < nodes_.size(); ++n) {
        Grammar::Node node{static_cast<std::uint32_t>(g.edges.size()), 0, nodes_[n].accept, nodes_[n].alike, nodes_[n].agrees, nodes_[n].inside};
        if (good[n]) {
            for (auto i = out.first[n]; i < out.first[n + 1]; ++i) {
                const Edge& e = edges_[out.items[i]];
                if (!good[e.target] || (e.kind == Kind::call && !good[rules_[e.value]])) continue;
                if (e.kind == Kind::text && texts_[e.value].least > texts_[e.value].most) continue;
                g.edges.push_back(e);
                ++node.count;
            }
        }
        g.nodes.push_back(node);
    }
    g.texts = texts_;
    g.insides = insides_;
    g.rules = rules_;
    g.start = start;
    return g;
}

}  // namespace forge::grammar
