// Shapes -> rules of a Builder.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "../builder.h"
#include "../char_ranges.h"
#include "expand.h"

namespace forge::grammar {

class SchemaEmitter {
  public:
    SchemaEmitter(Builder& builder, Expander& expander) : expander_(expander), builder_(builder), json_edges_(builder_, true) {}

    // The rule of a value; finish_rules() writes the rules that were asked for, and those that they need.
    RuleId rule_for(const Conjunction& schemas);
    void finish_rules();

  private:
    struct Waiting { Conjunction schemas; RuleId rule; };

    void emit_shape(const Shape& shape, NodeId from, NodeId to);
    void emit_value(const Json& value, NodeId from, NodeId to);
    NodeId value_text(const Json& value, NodeId from);
    void emit_number(const Shape& shape, NodeId from, NodeId to);
    void emit_string(const Shape& shape, NodeId from, NodeId to);
    void emit_array(const Shape& shape, NodeId from, NodeId to);
    void emit_object(const Shape& shape, NodeId from, NodeId to);

    RuleId plain_number(bool whole);
    RuleId matching_string(const Shape& shape);
    // A whole member whose name no property lists: name, colon, value. False: there can be none.
    bool other_member(const Shape& shape, const std::vector<std::string>& listed, RuleId& rule);
    void other_names(const PatternAutomaton& automaton, const std::map<std::uint64_t, Conjunction>& values, NodeId from, NodeId to);

    NodeId spaced(NodeId from, char c);   // the character and perhaps a space
    void byte(NodeId from, char c, NodeId to) { builder_.bytes(from, static_cast<unsigned char>(c), static_cast<unsigned char>(c), to); }

    Expander& expander_;
    Builder& builder_;
    CharacterEdges json_edges_;
    std::map<Conjunction, RuleId> rules_;
    std::vector<Waiting> waiting_;
    std::map<std::string, RuleId> shared_;   // rules that many places use, by what they accept
};

}  // namespace forge::grammar
