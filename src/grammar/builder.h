// Puts a Grammar together, checks it and removes what can never end.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/grammar.h"

namespace forge::grammar {

using NodeId = std::uint32_t;
using RuleId = std::uint32_t;

// More states than this are refused: about 20 MB, and some 20 ms of work.
constexpr std::size_t most_nodes = 300'000, most_edges = 900'000;

class Builder {
  public:
    NodeId node();
    void bytes(NodeId from, unsigned char lo, unsigned char hi, NodeId to);
    void epsilon(NodeId from, NodeId to);
    void call(NodeId from, RuleId rule, NodeId to);
    void text(NodeId from, const Grammar::Text& text, NodeId to);
    void accept(NodeId node) { nodes_[node].accept = true; }
    NodeId literal(NodeId from, std::string_view text);  // where it ends
    RuleId rule();                                       // with a first node of its own
    NodeId start(RuleId rule) const { return rules_[rule]; }

    // Grammar::Node's; the first that is said of a node stays.
    void alike(NodeId node, NodeId to, std::uint32_t agrees);
    void inside(NodeId node, const Grammar::Text& kind, std::uint32_t room, NodeId alike, std::uint32_t agrees);
    NodeId next_node() const { return static_cast<NodeId>(nodes_.size()); }

    // What is being compiled, for the message when it grows too large: the keyword, mostly.
    void working_on(std::string what) { what_ = std::move(what); }

    // Error when a rule calls itself before it has read a byte. `nothing`: the message when no text at all
    // belongs to the language.
    Grammar finish(RuleId start, const std::string& nothing);

  private:
    struct Edge : Grammar::Edge { NodeId from; };
    struct Node {
        bool accept = false;
        NodeId alike = 0;
        std::uint32_t agrees = 0, inside = Grammar::Node::no_inside;
    };
    std::uint32_t text_number(const Grammar::Text& text);
    void add(NodeId from, Grammar::Edge edge);
    std::vector<char> ending(bool bytes) const;
    void refuse_left_recursion() const;

    std::vector<Node> nodes_;
    std::vector<Edge> edges_;
    std::vector<Grammar::Text> texts_;
    std::vector<Grammar::Inside> insides_;
    std::map<Grammar::Text, std::uint32_t> text_index_;
    std::vector<NodeId> rules_;
    std::string what_ = "the grammar";
};

}  // namespace forge::grammar
