// Shapes -> rules of a Builder.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "../alike_states.h"
#include "../builder.h"
#include "../char_ranges.h"
#include "expand.h"
#include "grammar/notation.h"

namespace forge::grammar {

class SchemaEmitter {
  public:
    SchemaEmitter(Builder& builder, Expander& expander, Notation notation = {});

    // A value, written as the notation says; finish_rules() writes the rules that it needs.
    NodeId emit(const Conjunction& schemas, NodeId from);
    void finish_rules();

  private:
    struct Waiting { Conjunction schemas; RuleId rule; };
    // What stands around an object and between a name and its value.
    struct ObjectStyle { char open, close, assign; bool bare; };

    RuleId rule_for(const Conjunction& schemas);
    ObjectStyle usual_style() const { return {'{', '}', ':', bare()}; }
    bool bare() const { return notation_.kind == Notation::Kind::bare; }
    void emit_shape(const Shape& shape, NodeId from, NodeId to);
    void emit_value(const Json& value, NodeId from, NodeId to);
    NodeId value_text(const Json& value, NodeId from);
    NodeId object_text(const Json& value, NodeId from, const ObjectStyle& style);
    NodeId name_text(const std::string& name, NodeId from, const ObjectStyle& style);   // with what assigns
    NodeId string_text(const std::string& text, NodeId from);
    void emit_number(const Shape& shape, NodeId from, NodeId to);
    void emit_string(const Shape& shape, NodeId from, NodeId to);
    void emit_array(const Shape& shape, NodeId from, NodeId to);
    void emit_object(const Shape& shape, NodeId from, NodeId to, const ObjectStyle& style);

    RuleId plain_number(bool whole);
    RuleId matching_string(const Shape& shape);
    void say_alike(std::vector<ReadingState> states, const std::vector<NodeId>& nodes);
    // A whole member whose name no property lists: name, colon, value. False: there can be none.
    bool other_member(const Shape& shape, const std::vector<std::string>& listed, const ObjectStyle& style, RuleId& rule);
    void other_names(const PatternAutomaton& automaton, const std::map<std::uint64_t, Conjunction>& values, const ObjectStyle& style, NodeId from, NodeId to);

    NodeId spaced(NodeId from, char c);   // the character and perhaps a space, where the notation has any
    void byte(NodeId from, char c, NodeId to) { builder_.bytes(from, static_cast<unsigned char>(c), static_cast<unsigned char>(c), to); }

    Expander& expander_;
    Builder& builder_;
    Notation notation_;
    std::string unquoted_;         // a pattern: a text that can stand between the notation's quotes
    CharacterEdges json_edges_, plain_edges_;
    std::map<Conjunction, RuleId> rules_;
    std::vector<Waiting> waiting_;
    std::map<std::string, RuleId> shared_;   // rules that many places use, by what they accept
};

}  // namespace forge::grammar
