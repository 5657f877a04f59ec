#include "openai.h"

#include <algorithm>
#include <charconv>

namespace forge::server {

Json joined_parts(const Json& content, const std::string& field) {
    if (content.is_null() || content.is_string()) return content;
    if (!content.is_array()) bad_field(field, "{} should be a text or a list of parts, found {}", field, describe(content));
    std::string text;
    for (std::size_t i = 0; i < content.size(); ++i) {
        const Json& part = content[i];
        const std::string where = fmt::format("{}[{}]", field, i);
        if (!part.is_object() || !part.contains("type") || !part["type"].is_string())
            bad_field(where, "{} should be an object with a type, found {}", where, describe(part));
        const std::string& type = part["type"].get_ref<const std::string&>();
        const char* key = type == "refusal" ? "refusal" : "text";
        if (type != "text" && type != "input_text" && type != "output_text" && type != "refusal")
            bad_field(where + ".type", "{} is a part of type {}, and only text is supported", where, type.substr(0, 40));
        if (!part.contains(key) || !part[key].is_string()) bad_field(where + "." + key, "{}.{} should be a text", where, key);
        if (i > 0) text += '\n';
        text += part[key].get_ref<const std::string&>();
    }
    return text;
}

namespace {

// What a message may hold besides what message_from_json() reads: clients send back whole messages that they got.
void check_message_fields(const Json& json, const std::string& where) {
    Fields f(json, where);
    for (const char* read : {"role", "content", "name", "tool_calls", "tool_call_id", "reasoning_content", "reasoning", "thinking"}) f.find(read);
    f.refuse("function_call", "it was replaced by tool_calls");
    f.refuse("audio", "only text is read");
    f.refuse("images", "only text is read");
    f.refuse("prefix", "an answer cannot be begun for the model", false);
    f.refuse("partial", "an answer cannot be begun for the model", false);
    f.ignore({"refusal", "annotations", "parsed", "cache_control", "id", "object", "type", "status", "index", "created_at", "timestamp", "metadata", "tool_name",
              "provider_specific_fields", "thinking_blocks", "reasoning_details", "reasoning_signature", "thinking_signature"});
    f.finish();
}

}  // namespace

std::vector<Message> openai_messages(const Json& list, const std::string& field) {
    if (list.empty()) bad_field(field, "{} is empty; a conversation needs at least one message", field);
    std::vector<Message> messages;
    for (std::size_t i = 0; i < list.size(); ++i) {
        const std::string where = fmt::format("{}[{}]", field, i);
        const Json& json = list[i];
        if (!json.is_object()) bad_field(where, "{} should be an object with a role and content, found {}", where, describe(json));
        check_message_fields(json, where);
        Message message;
        try {
            message = message_from_json(json, i);
        } catch (const Error& error) {
            throw ApiError(400, where, error.what());
        }
        if (message.role == "developer") message.role = "system";
        if (message.role == "function") message.role = "tool";
        if (message.role != "system" && message.role != "user" && message.role != "assistant" && message.role != "tool")
            bad_field(where + ".role", "{}.role should be system, developer, user, assistant or tool, found {}", where, message.role.substr(0, 40));
        message.content = joined_parts(message.content, where + ".content");
        if (message.content.is_null() && message.tool_calls.empty()) {
            if (message.role != "assistant") bad_field(where + ".content", "{} has no content", where);
            message.content = "";
        }
        for (std::size_t c = 0; message.tool_calls.is_array() && c < message.tool_calls.size(); ++c) {
            const std::string call = fmt::format("{}.tool_calls[{}]", where, c);
            const Json& function = message.tool_calls[c].contains("function") ? message.tool_calls[c]["function"] : Json();
            if (!function.is_object() || !function.contains("name") || !function["name"].is_string())
                bad_field(call + ".function", "{}.function should be an object with a name and arguments", call);
            if (function.contains("arguments") && !function["arguments"].is_string() && !function["arguments"].is_object())
                bad_field(call + ".function.arguments", "{}.function.arguments should be a text that holds a JSON object", call);
        }
        messages.push_back(std::move(message));
    }
    return messages;
}

void read_sampling(Fields& f, GenerateRequest& r) {
    SamplingPatch& s = r.sampling;
    const auto real = [&](const char* name, double least, double most, std::optional<float>& to) {
        if (const auto value = f.number(name, least, most)) to = static_cast<float>(*value);
    };
    real("temperature", 0, 100, s.temperature);
    real("top_p", 0, 1, s.top_p);
    real("min_p", 0, 1, s.min_p);
    real("typical_p", 0, 1, s.typical_p);
    real("presence_penalty", -2, 2, s.presence_penalty);
    real("frequency_penalty", -2, 2, s.frequency_penalty);
    real("repetition_penalty", 0.01, 100, s.repetition_penalty);
    real("repeat_penalty", 0.01, 100, s.repetition_penalty);
    if (s.top_p && *s.top_p == 0) s.top_k = 1, s.top_p.reset();   // the likeliest alone
    if (const auto k = f.whole("top_k", -1, 1 << 30)) s.top_k = static_cast<int>(std::max<std::int64_t>(*k, 0));
    if (const auto window = f.whole("repeat_last_n", -1, 1 << 30)) s.penalty_window = static_cast<int>(*window);
    // OpenAI's penalties count all that was said, not a window.
    if ((s.presence_penalty || s.frequency_penalty) && !s.penalty_window) s.penalty_window = -1;
    if (const auto seed = f.whole("seed", INT64_MIN, INT64_MAX)) s.seed = static_cast<std::uint64_t>(*seed);
    r.stop = f.texts("stop", 64);
    for (const std::string& stop : r.stop)
        if (stop.empty()) bad_field("stop", "stop holds an empty text, which would end every answer at once");
    if (const Json* bias = f.object("logit_bias")) {
        for (const auto& [key, value] : bias->items()) {
            std::int32_t id = -1;
            const auto end = std::from_chars(key.data(), key.data() + key.size(), id);
            if (end.ec != std::errc() || end.ptr != key.data() + key.size() || id < 0)
                bad_field("logit_bias", "logit_bias should have token ids as names, found {}", key.substr(0, 40));
            if (!value.is_number() || value.get<double>() < -100 || value.get<double>() > 100)
                bad_field("logit_bias", "logit_bias[{}] should be a number from -100 to 100, found {}", key, describe(value));
            // -100 means never, as in the hosted API.
            const double x = value.get<double>();
            s.logit_bias.emplace_back(id, x <= -100 ? -std::numeric_limits<float>::infinity() : static_cast<float>(x));
        }
    }
    if (const auto n = f.whole("n", 1, 128)) r.n = static_cast<int>(*n);
    if (const auto flag = f.flag("ignore_eos")) r.ignore_stop = *flag;
    if (const auto flag = f.flag("stream")) r.stream = *flag;
    if (const Json* options = f.object("stream_options")) {
        if (!r.stream) bad_field("stream_options", "stream_options is only for stream: true");
        Fields o(*options, "stream_options");
        r.include_usage = o.flag("include_usage").value_or(false);
        o.ignore({"include_obfuscation"});
        o.finish();
    }
}

void check_tools(const Json& tools, const std::string& field) {
    for (std::size_t i = 0; i < tools.size(); ++i) {
        const std::string where = fmt::format("{}[{}]", field, i);
        const Json& tool = tools[i];
        if (!tool.is_object() || tool.value("type", Json("function")) != "function")
            bad_field(where + ".type", "{} should be of type function; others are not supported", where);
        if (!tool.contains("function") || !tool["function"].is_object() || !tool["function"].contains("name") || !tool["function"]["name"].is_string() ||
            tool["function"]["name"].get_ref<const std::string&>().empty())
            bad_field(where + ".function", "{}.function should be an object with a name", where);
        const Json& function = tool["function"];
        if (function.contains("parameters") && !function["parameters"].is_null() && !function["parameters"].is_object())
            bad_field(where + ".function.parameters", "{}.function.parameters should be a JSON schema", where);
    }
}

void read_tools(Fields& f, GenerateRequest& r) {
    if (const Json* tools = f.list("tools"); tools && !tools->empty()) {
        check_tools(*tools, "tools");
        r.tools = *tools;
    }
    if (const auto parallel = f.flag("parallel_tool_calls")) r.parallel_tool_calls = *parallel;
    const Json* choice = f.find("tool_choice");
    if (!choice) return;
    if (choice->is_string()) {
        const std::string& word = choice->get_ref<const std::string&>();
        if (word == "none") r.tool_choice = ToolChoice::none;
        else if (word == "auto") r.tool_choice = ToolChoice::automatic;
        else if (word == "required" || word == "any") r.tool_choice = ToolChoice::required;
        else bad_field("tool_choice", "tool_choice should be none, auto, required or name a function, found {}", word.substr(0, 40));
    } else if (choice->is_object() && choice->contains("function") && (*choice)["function"].is_object() && (*choice)["function"].contains("name") &&
               (*choice)["function"]["name"].is_string()) {
        r.tool_choice = ToolChoice::named;
        r.tool_name = (*choice)["function"]["name"].get<std::string>();
    } else {
        bad_field("tool_choice", "tool_choice should be a word or {{\"type\": \"function\", \"function\": {{\"name\": ...}}}}, found {}", describe(*choice));
    }
}

void read_form(Fields& f, GenerateRequest& r) {
    if (const Json* format = f.object("response_format")) {
        Fields o(*format, "response_format");
        const std::string type = o.text("type").value_or("");
        if (type == "json_object") {
            r.form = AnswerForm::json_object;
            if (const Json* schema = o.object("schema")) r.form = AnswerForm::json_schema, r.form_field = "response_format.schema", r.schema = *schema;
        } else if (type == "json_schema") {
            r.form = AnswerForm::json_schema;
            r.form_field = "response_format.json_schema.schema";
            const Json* wrapped = o.object("json_schema");
            if (!wrapped) bad_field("response_format.json_schema", "response_format.json_schema is missing");
            Fields s(*wrapped, "response_format.json_schema");
            s.ignore({"name", "description", "strict"});
            const Json* schema = s.find("schema");
            if (!schema) bad_field("response_format.json_schema.schema", "response_format.json_schema.schema is missing");
            r.schema = *schema;
            s.finish();
        } else if (type != "text") {
            bad_field("response_format.type", "response_format.type should be text, json_object or json_schema, found {}", type.empty() ? "none" : type.substr(0, 40));
        }
        o.finish();
    }
    if (const Json* schema = f.find("json_schema")) r.form = AnswerForm::json_schema, r.form_field = "json_schema", r.schema = *schema;
    if (const auto grammar = f.text("grammar"); grammar && !grammar->empty()) r.form = AnswerForm::grammar, r.grammar = *grammar;
}

void set_effort(GenerateRequest& r, const std::string& effort, const std::string& field) {
    static const char* known[] = {"none", "minimal", "low", "medium", "high", "xhigh", "max"};
    if (std::none_of(std::begin(known), std::end(known), [&](const char* k) { return effort == k; }))
        bad_field(field, "{} should be none, minimal, low, medium or high, found {}", field, effort.substr(0, 40));
    if (effort == "none") r.chat.enable_thinking = false;
    else r.chat.variables["reasoning_effort"] = effort == "minimal" ? "low" : effort == "xhigh" || effort == "max" ? "high" : effort;
}

void read_thinking(Fields& f, GenerateRequest& r) {
    if (const Json* variables = f.object("chat_template_kwargs")) {
        for (const char* own : {"messages", "tools", "documents", "add_generation_prompt"})
            if (variables->contains(own)) bad_field(fmt::format("chat_template_kwargs.{}", own), "chat_template_kwargs.{} is set by the server", own);
        r.chat.variables.update(*variables);
    }
    if (const auto effort = f.text("reasoning_effort")) set_effort(r, *effort, "reasoning_effort");
    if (const auto think = f.flag("enable_thinking")) r.chat.enable_thinking = *think;
    if (const auto budget = f.whole("thinking_budget", -1, 1 << 30)) r.thinking_budget = static_cast<int>(*budget);
    if (r.thinking_budget == 0) r.chat.enable_thinking = false;
}

Json openai_usage(const Totals& t) {
    return {{"prompt_tokens", t.prompt_tokens},
            {"completion_tokens", t.new_tokens},
            {"total_tokens", t.prompt_tokens + t.new_tokens},
            {"prompt_tokens_details", {{"cached_tokens", t.cached_tokens}}},
            {"completion_tokens_details", {{"reasoning_tokens", t.reasoning_tokens}}}};
}

Json openai_error(const ApiError& error) {
    const int s = error.status();
    const char* type = s == 401 ? "authentication_error" : s == 403 ? "permission_error" : s == 404 ? "not_found_error"
        : s == 429 ? "rate_limit_error" : s == 503 ? "service_unavailable_error" : s >= 500 ? "server_error" : "invalid_request_error";
    return {{"error", {{"message", error.what()}, {"type", type}, {"param", error.field().empty() ? Json() : Json(error.field())},
                       {"code", error.code().empty() ? Json() : Json(error.code())}}}};
}

namespace {

Json logprob_entry(const std::string& bytes, float logprob) {
    Json list = Json::array();
    for (const char c : bytes) list.push_back(static_cast<int>(static_cast<unsigned char>(c)));
    return {{"token", bytes}, {"logprob", std::max(logprob, -9999.0f)}, {"bytes", list}};
}

}  // namespace

Json logprob_list(const std::vector<TokenLogprob>& tokens) {
    Json out = Json::array();
    for (const TokenLogprob& t : tokens) {
        Json entry = logprob_entry(t.bytes, t.logprob);
        entry["top_logprobs"] = Json::array();
        for (const auto& other : t.top) entry["top_logprobs"].push_back(logprob_entry(other.bytes, other.logprob));
        out.push_back(std::move(entry));
    }
    return out;
}

std::string_view openai_finish(TextFinish reason) {
    switch (reason) {
        case TextFinish::length: return "length";
        case TextFinish::tool_calls: return "tool_calls";
        default: return "stop";
    }
}

}  // namespace forge::server
