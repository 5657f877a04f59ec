#include "grammar/compile.h"

#include <algorithm>

#include "base/error.h"
#include "emitter.h"

namespace forge {
namespace grammar {
namespace {

// Names of this kind are written without quotes (emit_object.cpp has them as a pattern too).
bool can_stand_bare(std::string_view name) {
    const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
    return !name.empty() && letter(name[0]) &&
           std::all_of(name.begin(), name.end(), [&](char c) { return letter(c) || (c >= '0' && c <= '9') || c == '.' || c == '-'; });
}

// The quote as a text shows it.
std::string plain_quote(const std::string& quote) {
    std::string plain;
    for (const char c : quote)
        if (c != Grammar::special_begin && c != Grammar::special_end) plain += c;
    return plain;
}

}  // namespace

SchemaEmitter::SchemaEmitter(Builder& builder, Expander& expander, Notation notation)
    : expander_(expander), builder_(builder), notation_(std::move(notation)), json_edges_(builder_, true), plain_edges_(builder_, false) {
    if (!bare()) return;
    // The first two characters of a quote never follow each other, so that its beginning is always one.
    const std::string quote = plain_quote(notation_.quote);
    if (quote.size() < 2) fail(ErrorKind::internal, "a quote of {} characters", quote.size());
    const std::string first = escaped(quote.substr(0, 1)), second = escaped(quote.substr(1, 1));
    unquoted_ = fmt::format("^(?:[^{0}]|{0}+[^{0}{1}])*{0}*$", first, second);
}

NodeId SchemaEmitter::emit(const Conjunction& schemas, NodeId from) {
    const NodeId to = builder_.node();
    if (notation_.kind != Notation::Kind::call) {
        builder_.call(from, rule_for(schemas), to);
        return to;
    }
    const ObjectStyle style{'(', ')', '=', true};
    for (const Shape& shape : expander_.shapes(schemas)) {
        if (!shape.values) {
            if (shape.types & type_object) emit_object(shape, from, to, style);
            continue;
        }
        for (const Json& value : *shape.values)
            if (value.is_object()) builder_.epsilon(object_text(value, from, style), to);
    }
    return to;
}

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
    if (!bare()) byte(after, ' ', to);
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
    if (s.types & type_object) emit_object(s, from, to, usual_style());
}

void SchemaEmitter::emit_value(const Json& value, NodeId from, NodeId to) {
    builder_.working_on("the schema's enum or const");
    builder_.epsilon(value_text(value, from), to);
}

NodeId SchemaEmitter::value_text(const Json& value, NodeId from) {
    if (value.is_string()) return string_text(value.get_ref<const std::string&>(), from);
    if (value.is_number()) return builder_.literal(from, to_text(decimal_of(value)));
    if (value.is_object()) return object_text(value, from, usual_style());
    if (!value.is_array()) {
        if (notation_.kind != Notation::Kind::call) return builder_.literal(from, value.dump());
        return builder_.literal(from, value.is_null() ? "None" : value.get<bool>() ? "True" : "False");
    }
    NodeId at = builder_.literal(from, "[");
    bool first = true;
    for (const Json& v : value) {
        if (!std::exchange(first, false)) at = spaced(at, ',');
        at = value_text(v, at);
    }
    return builder_.literal(at, "]");
}

NodeId SchemaEmitter::object_text(const Json& value, NodeId from, const ObjectStyle& style) {
    NodeId at = builder_.literal(from, std::string_view(&style.open, 1));
    bool first = true;
    for (const auto& [key, v] : value.items()) {
        if (!std::exchange(first, false)) at = spaced(at, ',');
        at = value_text(v, name_text(key, at, style));
    }
    return builder_.literal(at, std::string_view(&style.close, 1));
}

NodeId SchemaEmitter::name_text(const std::string& name, NodeId from, const ObjectStyle& style) {
    if (!style.bare) return spaced(builder_.literal(from, json_string(name)), style.assign);
    if (can_stand_bare(name)) return builder_.literal(from, name + style.assign);
    if (bare()) return builder_.literal(string_text(name, from), std::string_view(&style.assign, 1));
    fail(ErrorKind::unsupported, "the name {} cannot be written as an argument of a call", name.substr(0, 80));
}

NodeId SchemaEmitter::string_text(const std::string& text, NodeId from) {
    if (!bare()) return builder_.literal(from, json_string(text));
    if (text.find(plain_quote(notation_.quote).substr(0, 2)) != std::string::npos)
        fail(ErrorKind::unsupported, "the text {} cannot be written between this model's quotes", text.substr(0, 80));
    return builder_.literal(from, notation_.quote + text + notation_.quote);
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
                SchemaEmitter emitter(builder, expander, piece.notation);
                at = emitter.emit({reader.root()}, at);
                emitter.finish_rules();
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
