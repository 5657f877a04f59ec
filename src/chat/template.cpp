#include "chat/template.h"

#include <nlohmann/json.hpp>

#include "jinja/ast.h"
#include "jinja/evaluator.h"
#include "jinja/json.h"

namespace forge {

ChatTemplate ChatTemplate::parse(std::string_view source) { return ChatTemplate(jinja::parse(source)); }

const std::string& ChatTemplate::source() const { return parsed_->source; }

namespace {

std::string render_value(const jinja::Template& parsed, const RenderOptions& options, auto make_context) {
    jinja::Evaluator evaluator(parsed, options);
    const jinja::Value context = make_context(evaluator.heap());
    if (!context.is(jinja::Kind::dict))
        fail(
            "The inputs of a chat template must be a JSON object whose members are the variables, but they "
            "are {}.",
            jinja::indefinite_type_name(context));
    return evaluator.render(context);
}

}  // namespace

std::string ChatTemplate::render(const nlohmann::ordered_json& inputs, const RenderOptions& options) const {
    return render_value(*parsed_, options, [&](jinja::Heap& heap) { return jinja::from_json(heap, inputs); });
}

std::string ChatTemplate::render_json_text(std::string_view inputs, const RenderOptions& options) const {
    return render_value(*parsed_, options, [&](jinja::Heap& heap) { return jinja::read_json(heap, inputs); });
}

}  // namespace forge
