#include "grammar/compile.h"

#include "base/error.h"
#include "emitter.h"

namespace forge {
namespace grammar {

RuleId SchemaEmitter::rule_for(const Conjunction& schemas) {
    if (const auto it = rules_.find(schemas); it != rules_.end()) return it->second;
    const RuleId rule = builder_.rule();
    rules_.emplace(schemas, rule);
    waiting_.push_back({schemas, rule});
    return rule;
}

void SchemaEmitter::finish_rules() {
    while (!waiting_.empty()) {
        const Waiting next = std::move(waiting_.back());
        waiting_.pop_back();
        const NodeId from = builder_.start(next.rule), to = builder_.node();
        builder_.accept(to);
        for (const Shape& shape : expander_.shapes(next.schemas)) emit_shape(shape, from, to);
    }
}

NodeId SchemaEmitter::spaced(NodeId from, char c) {
    const NodeId after = builder_.node(), to = builder_.node();
    byte(from, c, after);
    byte(after, ' ', to);
    builder_.epsilon(after, to);
    return to;
}

void SchemaEmitter::emit_shape(const Shape& s, NodeId from, NodeId to) {
    if (s.values) {
        for (const Json& v : *s.values) emit_value(v, from, to);
        return;
    }
    if (s.types & type_null) emit_value(nullptr, from, to);
    if (s.types & type_boolean) emit_value(true, from, to), emit_value(false, from, to);
    if (s.types & type_number) emit_number(s, from, to);
    if (s.types & type_string) emit_string(s, from, to);
    if (s.types & type_array) emit_array(s, from, to);
    if (s.types & type_object) emit_object(s, from, to);
}

void SchemaEmitter::emit_value(const Json& value, NodeId from, NodeId to) {
    builder_.working_on("the schema's enum or const");
    builder_.epsilon(value_text(value, from), to);
}

NodeId SchemaEmitter::value_text(const Json& value, NodeId from) {
    if (value.is_string()) return builder_.literal(from, json_string(value.get_ref<const std::string&>()));
    if (value.is_number()) return builder_.literal(from, to_text(decimal_of(value)));
    if (!value.is_structured()) return builder_.literal(from, value.dump());
    NodeId at = builder_.literal(from, value.is_array() ? "[" : "{");
    bool first = true;
    for (const auto& [key, v] : value.items()) {
        if (!std::exchange(first, false)) at = spaced(at, ',');
        if (value.is_object()) at = spaced(builder_.literal(at, json_string(key)), ':');
        at = value_text(v, at);
    }
    return builder_.literal(at, value.is_array() ? "]" : "}");
}

}  // namespace grammar

Grammar compile_schema(const nlohmann::ordered_json& schema, const SchemaOptions& options) {
    return compile_forms({{{}, {}, {}, {{{"", &schema}}}, false}}, options);
}

Grammar compile_forms(const std::vector<Form>& forms, const SchemaOptions& options) {
    using namespace grammar;
    Builder builder;
    const RuleId start = builder.rule();
    for (const Form& form : forms) {
        const NodeId begin = builder.literal(builder.start(start), form.before), first = builder.node(), end = builder.node();
        builder.epsilon(begin, first);
        for (const std::vector<FormPiece>& pieces : form.alternatives) {
            NodeId at = first;
            for (const FormPiece& piece : pieces) {
                at = builder.literal(at, piece.text);
                if (!piece.schema) continue;
                SchemaReader reader(*piece.schema);
                Expander expander(reader, options.open_objects);
                SchemaEmitter emitter(builder, expander);
                const NodeId after = builder.node();
                builder.call(at, emitter.rule_for({reader.root()}), after);
                emitter.finish_rules();
                at = after;
            }
            builder.epsilon(at, end);
        }
        if (form.several) builder.epsilon(builder.literal(end, form.between), first);
        builder.accept(builder.literal(end, form.after));
    }
    return builder.finish(start, "no value fits the schema");
}

Grammar any_object() { return compile_schema({{"type", "object"}}); }

}  // namespace forge
