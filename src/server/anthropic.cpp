// /v1/messages and /v1/messages/count_tokens
#include "anthropic.h"

#include "app.h"

namespace forge::server {
namespace {

std::string_view stop_reason(TextFinish reason, const std::string& stop_text) {
    switch (reason) {
        case TextFinish::length: return "max_tokens";
        case TextFinish::tool_calls: return "tool_use";
        default: return stop_text.empty() ? "end_turn" : "stop_sequence";
    }
}

Json parsed_arguments(const std::string& text) {
    Json json = Json::parse(text, nullptr, false);
    return json.is_object() ? json : Json::object();
}

class MessagesWriter final : public Writer {
  public:
    explicit MessagesWriter(bool stream) : stream_(stream) {}

    // The prompt's size is known when the first token is: the start waits for it.
    std::string begin() override {
        Json message = frame();
        message.update({{"content", Json::array()}, {"stop_reason", nullptr}, {"stop_sequence", nullptr}, {"usage", usage(prompt_tokens, 0, 0)}});
        return sse({{"type", "message_start"}, {"message", message}}, "message_start") + sse({{"type", "ping"}}, "ping");
    }

    std::string delta(int, const TextDelta& d) override {
        std::string out;
        if (!d.reasoning.empty()) {
            out += open(Block::thinking, {{"type", "thinking"}, {"thinking", ""}, {"signature", ""}});
            out += piece({{"type", "thinking_delta"}, {"thinking", d.reasoning}});
        }
        if (!d.content.empty()) {
            out += open(Block::text, {{"type", "text"}, {"text", ""}});
            out += piece({{"type", "text_delta"}, {"text", d.content}});
        }
        for (const ToolCallDelta& call : d.calls) {
            if (!call.name.empty()) {
                out += close();
                out += open(Block::tool, {{"type", "tool_use"}, {"id", call.id}, {"name", call.name}, {"input", Json::object()}});
            }
            if (!call.arguments.empty()) out += piece({{"type", "input_json_delta"}, {"partial_json", call.arguments}});
        }
        return out;
    }

    std::string done(int, const Answer& answer) override {
        std::string out = close();
        Json usage_json = {{"output_tokens", answer.done.new_tokens},
                           {"input_tokens", answer.done.prompt_tokens - answer.done.cached_tokens},
                           {"cache_read_input_tokens", answer.done.cached_tokens}};
        return out + sse({{"type", "message_delta"},
                          {"delta", {{"stop_reason", stop_reason(answer.done.reason, answer.done.stop_text)},
                                     {"stop_sequence", answer.done.stop_text.empty() ? Json() : Json(answer.done.stop_text)}}},
                          {"usage", usage_json}}, "message_delta");
    }
    std::string end(const Totals&) override { return sse({{"type", "message_stop"}}, "message_stop"); }
    std::string failed(const ApiError& error) override { return stream_ ? sse(anthropic_error(error), "error") : dump(anthropic_error(error)); }

    std::string whole(const std::vector<Answer>& answers, const Totals& totals) override {
        const Answer& a = answers.at(0);
        Json content = Json::array();
        if (!a.reasoning.empty()) content.push_back({{"type", "thinking"}, {"thinking", a.reasoning}, {"signature", ""}});
        if (!a.content.empty()) content.push_back({{"type", "text"}, {"text", a.content}});
        for (const Answer::Call& call : a.calls)
            content.push_back({{"type", "tool_use"}, {"id", call.id}, {"name", call.name}, {"input", parsed_arguments(call.arguments)}});
        Json message = frame();
        message.update({{"content", content}, {"stop_reason", stop_reason(a.done.reason, a.done.stop_text)},
                        {"stop_sequence", a.done.stop_text.empty() ? Json() : Json(a.done.stop_text)},
                        {"usage", usage(totals.prompt_tokens, totals.cached_tokens, totals.new_tokens)}});
        return dump(message);
    }

  private:
    enum class Block { none, thinking, text, tool };

    Json frame() const { return {{"id", "msg_" + id}, {"type", "message"}, {"role", "assistant"}, {"model", model}}; }
    static Json usage(int prompt, int cached, int made) {
        return {{"input_tokens", prompt - cached}, {"cache_creation_input_tokens", 0}, {"cache_read_input_tokens", cached}, {"output_tokens", made}};
    }
    std::string open(Block kind, const Json& start) {
        if (block_ == kind && kind != Block::tool) return {};
        std::string out = close();
        block_ = kind;
        return out + sse({{"type", "content_block_start"}, {"index", index_}, {"content_block", start}}, "content_block_start");
    }
    std::string piece(const Json& delta) const { return sse({{"type", "content_block_delta"}, {"index", index_}, {"delta", delta}}, "content_block_delta"); }
    std::string close() {
        if (block_ == Block::none) return {};
        block_ = Block::none;
        return sse({{"type", "content_block_stop"}, {"index", index_++}}, "content_block_stop");
    }

    bool stream_;
    Block block_ = Block::none;
    int index_ = 0;
};

// Text blocks joined by line ends; what a tool gave may be a text or blocks.
std::string text_of(const Json& content, const std::string& where) {
    if (content.is_string()) return content.get<std::string>();
    if (content.is_null()) return {};
    return joined_parts(content, where).get<std::string>();
}

// One of Anthropic's messages is one or several in our form: each tool result is a message of its own.
void add_message(const Json& json, const std::string& where, std::vector<Message>& out) {
    Fields f(json, where);
    const std::string role = f.text("role").value_or("");
    if (role != "user" && role != "assistant" && role != "system") bad_field(where + ".role", "{}.role should be user or assistant, found {}", where, role.empty() ? "none" : role.substr(0, 40));
    const Json* content = f.find("content");
    f.finish();
    if (!content) bad_field(where + ".content", "{} has no content", where);
    Message message;
    message.role = role;
    if (content->is_string()) {
        message.content = *content;
        out.push_back(std::move(message));
        return;
    }
    if (!content->is_array()) bad_field(where + ".content", "{}.content should be a text or a list of blocks, found {}", where, describe(*content));
    std::string text;
    bool any_text = false;
    for (std::size_t i = 0; i < content->size(); ++i) {
        const std::string at = fmt::format("{}.content[{}]", where, i);
        Fields b((*content)[i], at);
        const std::string type = b.text("type").value_or("");
        b.ignore({"cache_control", "citations"});
        if (type == "text") {
            text += (any_text ? "\n" : "") + b.text("text").value_or("");
            any_text = true;
        } else if (type == "thinking" && role == "assistant") {
            message.reasoning = message.reasoning.value_or("") + b.text("thinking").value_or("");
            b.ignore({"signature"});
        } else if (type == "redacted_thinking" && role == "assistant") {
            b.ignore({"data"});
        } else if (type == "tool_use" && role == "assistant") {
            if (message.tool_calls.is_null()) message.tool_calls = Json::array();
            const std::string name = b.text("name").value_or("");
            if (name.empty()) bad_field(at + ".name", "{} has no name", at);
            const Json* input = b.object("input");
            message.tool_calls.push_back({{"id", b.text("id").value_or("")}, {"type", "function"}, {"function", {{"name", name}, {"arguments", input ? *input : Json::object()}}}});
        } else if (type == "tool_result" && role == "user") {
            Message result;
            result.role = "tool";
            result.tool_call_id = b.text("tool_use_id").value_or("");
            const Json* given = b.find("content");
            result.content = given ? text_of(*given, at + ".content") : "";
            if (b.flag("is_error").value_or(false)) result.content = "Error: " + result.content.get<std::string>();
            // The name of the called tool, which some templates want.
            for (auto it = out.rbegin(); it != out.rend() && result.name.empty(); ++it)
                for (const Json& call : it->tool_calls.is_array() ? it->tool_calls : Json::array())
                    if (call["id"] == result.tool_call_id) result.name = call["function"]["name"].get<std::string>();
            out.push_back(std::move(result));
        } else {
            bad_field(at + ".type", "{} is a block of type {} in a message of {}, which is not supported", at, type.empty() ? "none" : type.substr(0, 40), role);
        }
        b.finish();
    }
    if (!any_text && message.tool_calls.is_null() && !message.reasoning && role == "user") return;   // only results
    if (any_text || role == "user") message.content = text;
    else if (message.tool_calls.is_null()) message.content = "";
    out.push_back(std::move(message));
}

void read_anthropic_tools(Fields& f, GenerateRequest& r) {
    if (const Json* tools = f.list("tools"); tools && !tools->empty()) {
        r.tools = Json::array();
        for (std::size_t i = 0; i < tools->size(); ++i) {
            const std::string where = fmt::format("tools[{}]", i);
            Fields t((*tools)[i], where);
            const std::string type = t.text("type").value_or("custom"), name = t.text("name").value_or("");
            if (type != "custom") bad_field(where + ".type", "{} is a tool of type {}, which this server does not run", where, type.substr(0, 40));
            if (name.empty()) bad_field(where + ".name", "{} has no name", where);
            const Json* schema = t.object("input_schema");
            if (!schema) bad_field(where + ".input_schema", "{} has no input_schema", where);
            Json function = {{"name", name}};
            if (const auto text = t.text("description")) function["description"] = *text;
            function["parameters"] = *schema;
            if (t.flag("strict").value_or(false)) function["strict"] = true;
            t.ignore({"cache_control", "defer_loading", "input_examples", "eager_input_streaming"});
            t.finish();
            r.tools.push_back({{"type", "function"}, {"function", function}});
        }
    }
    if (const Json* choice = f.object("tool_choice")) {
        Fields c(*choice, "tool_choice");
        const std::string type = c.text("type").value_or("");
        if (type == "auto") r.tool_choice = ToolChoice::automatic;
        else if (type == "any") r.tool_choice = ToolChoice::required;
        else if (type == "none") r.tool_choice = ToolChoice::none;
        else if (type == "tool") r.tool_choice = ToolChoice::named, r.tool_name = c.text("name").value_or("");
        else bad_field("tool_choice.type", "tool_choice.type should be auto, any, tool or none, found {}", type.substr(0, 40));
        r.parallel_tool_calls = !c.flag("disable_parallel_tool_use").value_or(false);
        c.finish();
    }
}

}  // namespace

Translated anthropic_messages(const Json& body, bool count_only) {
    Fields f(body);
    Translated t;
    GenerateRequest& r = t.request;
    r.model = f.text("model").value_or("");
    r.conversation.emplace();
    std::vector<Message>& messages = r.conversation->messages;
    if (const Json* system = f.find("system")) {
        Message message;
        message.role = "system";
        if (system->is_array()) {
            Json parts = *system;
            for (Json& part : parts)
                if (part.is_object()) part.erase("cache_control");
            message.content = joined_parts(parts, "system");
        } else {
            message.content = joined_parts(*system, "system");
        }
        messages.push_back(std::move(message));
    }
    const Json* list = f.list("messages");
    if (!list || list->empty()) bad_field("messages", "messages is missing or empty; a conversation needs at least one message");
    for (std::size_t i = 0; i < list->size(); ++i) add_message((*list)[i], fmt::format("messages[{}]", i), messages);
    read_anthropic_tools(f, r);
    if (const Json* thinking = f.object("thinking")) {
        Fields o(*thinking, "thinking");
        const std::string type = o.text("type").value_or("");
        if (type == "enabled") {
            r.chat.enable_thinking = true;
            if (const auto budget = o.whole("budget_tokens", 1, 1 << 30)) r.thinking_budget = static_cast<int>(*budget);
        } else if (type == "disabled") {
            r.chat.enable_thinking = false;
        } else if (type != "adaptive") {
            bad_field("thinking.type", "thinking.type should be enabled, adaptive or disabled, found {}", type.substr(0, 40));
        }
        o.ignore({"display"});
        o.finish();
    }
    if (const Json* output = f.object("output_config")) {
        Fields o(*output, "output_config");
        if (const auto effort = o.text("effort")) set_effort(r, *effort, "output_config.effort");
        if (const Json* format = o.object("format")) {
            Fields form(*format, "output_config.format");
            if (form.text("type").value_or("") != "json_schema") bad_field("output_config.format.type", "output_config.format.type should be json_schema");
            const Json* schema = form.find("schema");
            if (!schema) bad_field("output_config.format.schema", "output_config.format.schema is missing");
            r.form = AnswerForm::json_schema;
            r.form_field = "output_config.format.schema";
            r.schema = *schema;
            form.finish();
        }
        o.finish();
    }
    const auto most = f.whole("max_tokens", 1, 1 << 30);
    if (!most && !count_only) bad_field("max_tokens", "max_tokens is missing");
    r.max_tokens = static_cast<int>(most.value_or(-1));
    r.stop = f.texts("stop_sequences", 64);
    for (const std::string& stop : r.stop)
        if (stop.empty()) bad_field("stop_sequences", "stop_sequences holds an empty text");
    const auto real = [&](const char* name, std::optional<float>& to) {
        if (const auto value = f.number(name, 0, 1)) to = static_cast<float>(*value);
    };
    real("temperature", r.sampling.temperature);
    real("top_p", r.sampling.top_p);
    if (const auto k = f.whole("top_k", 0, 1 << 30)) r.sampling.top_k = static_cast<int>(*k);
    r.stream = f.flag("stream").value_or(false);
    f.refuse("mcp_servers", "tools are run by the client");
    f.refuse("container", "there are no containers");
    f.ignore({"metadata", "service_tier", "context_management", "betas", "cache_control", "inference_geo", "speed"});
    f.finish();
    t.writer = std::make_shared<MessagesWriter>(r.stream);
    return t;
}

Json anthropic_error(const ApiError& error) {
    const int s = error.status();
    const char* type = s == 401 ? "authentication_error" : s == 403 ? "permission_error" : s == 404 ? "not_found_error" : s == 413 ? "request_too_large"
        : s == 429 ? "rate_limit_error" : s == 503 ? "overloaded_error" : s >= 500 ? "api_error" : "invalid_request_error";
    const std::string field = error.field();
    std::string message = error.what();
    if (!field.empty() && message.find(field) == std::string::npos) message = field + ": " + message;
    return {{"type", "error"}, {"error", {{"type", type}, {"message", message}}}};
}

bool route_anthropic(const Call& call) {
    if (call.is("POST", "/v1/messages")) return run(call, anthropic_messages(call.body())), true;
    if (call.is("POST", "/v1/messages/count_tokens")) {
        Translated t = anthropic_messages(call.body(), true);
        const auto served = call.app.models.get(t.request.model);
        t.request.conversation->tools = t.request.tools;
        call.send({{"input_tokens", build_prompts(t.request, served->service.model()).at(0).ids.size()}});
        return true;
    }
    return false;
}

}  // namespace forge::server
