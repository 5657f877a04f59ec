// /v1/responses
#include "openai.h"

namespace forge::server {
namespace {

// The parts of an answer are items of a list: reasoning, a message, calls. A stream opens and closes them one after the other.
class ResponseWriter final : public Writer {
  public:
    ResponseWriter(bool stream, bool logprobs, Json echoed) : stream_(stream), logprobs_(logprobs), echoed_(std::move(echoed)) {}

    std::string begin() override {
        const Json response = frame("in_progress");
        std::string out = event("response.created", {{"response", response}});   // in this order: events are numbered
        return out += event("response.in_progress", {{"response", response}});
    }

    std::string delta(int, const TextDelta& d) override {
        std::string out;
        if (!d.reasoning.empty()) {
            out += open(Kind::reasoning);
            text_ += d.reasoning;
            out += event("response.reasoning_text.delta", {{"item_id", item_["id"]}, {"output_index", index()}, {"content_index", 0}, {"delta", d.reasoning}});
        }
        if (!d.content.empty()) {
            out += open(Kind::message);
            text_ += d.content;
            const Json tokens = logprobs_ ? logprob_list(d.logprobs) : Json::array();
            tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
            out += event("response.output_text.delta", {{"item_id", item_["id"]}, {"output_index", index()}, {"content_index", 0}, {"delta", d.content}, {"logprobs", tokens}});
        }
        for (const ToolCallDelta& call : d.calls) {
            if (!call.name.empty()) out += open(Kind::call, &call);
            if (call.arguments.empty()) continue;
            text_ += call.arguments;
            out += event("response.function_call_arguments.delta", {{"item_id", item_["id"]}, {"output_index", index()}, {"delta", call.arguments}});
        }
        return out;
    }

    std::string done(int, const Answer& answer) override {
        last_ = answer.done;
        return close(answer.done.reason == TextFinish::length ? "incomplete" : "completed");
    }

    std::string end(const Totals& totals) override {
        const bool cut = last_.reason == TextFinish::length;
        return event(cut ? "response.incomplete" : "response.completed", {{"response", finished(totals)}});
    }

    std::string failed(const ApiError& error) override {
        if (!stream_) return dump(openai_error(error));
        Json response = frame("failed");
        response["error"] = {{"code", "server_error"}, {"message", error.what()}};
        return event("response.failed", {{"response", response}});
    }

    std::string whole(const std::vector<Answer>& answers, const Totals& totals) override {
        const Answer& a = answers.at(0);
        TextDelta all;
        all.reasoning = a.reasoning;
        all.content = a.content;
        all.logprobs = a.logprobs;
        for (std::size_t i = 0; i < a.calls.size(); ++i) {
            all.calls.push_back({static_cast<int>(i), a.calls[i].id, a.calls[i].name, ""});
            all.calls.push_back({static_cast<int>(i), "", "", a.calls[i].arguments});
        }
        delta(0, all);   // builds the items; the events are not wanted
        done(0, a);
        return dump(finished(totals));
    }

  private:
    enum class Kind { none, reasoning, message, call };

    std::string event(const char* type, Json data) {
        Json json = {{"type", type}, {"sequence_number", sequence_++}};
        json.update(data);
        return sse(json, type);
    }
    int index() const { return static_cast<int>(output_.size()); }

    std::string open(Kind kind, const ToolCallDelta* call = nullptr) {
        if (kind_ == kind && kind != Kind::call) return {};
        std::string out = close("completed");
        kind_ = kind;
        text_.clear();
        tokens_ = Json::array();
        const std::string number = id + "_" + std::to_string(output_.size());
        if (kind == Kind::reasoning) {
            item_ = {{"id", "rs_" + number}, {"type", "reasoning"}, {"summary", Json::array()}, {"content", Json::array()}, {"status", "in_progress"}};
        } else if (kind == Kind::message) {
            item_ = {{"id", "msg_" + number}, {"type", "message"}, {"role", "assistant"}, {"status", "in_progress"}, {"content", Json::array()}};
        } else {
            item_ = {{"id", "fc_" + number}, {"type", "function_call"}, {"call_id", call->id}, {"name", call->name}, {"arguments", ""}, {"status", "in_progress"}};
        }
        out += event("response.output_item.added", {{"output_index", index()}, {"item", item_}});
        if (kind != Kind::call)
            out += event("response.content_part.added", {{"item_id", item_["id"]}, {"output_index", index()}, {"content_index", 0}, {"part", part("")}});
        return out;
    }

    Json part(const std::string& text) const {
        if (kind_ == Kind::reasoning) return {{"type", "reasoning_text"}, {"text", text}};
        return {{"type", "output_text"}, {"text", text}, {"annotations", Json::array()}, {"logprobs", tokens_}};
    }

    std::string close(const char* status) {
        if (kind_ == Kind::none) return {};
        std::string out;
        const Json where = {{"item_id", item_["id"]}, {"output_index", index()}};
        if (kind_ == Kind::call) {
            item_["arguments"] = text_;
            Json data = where;
            data.update({{"name", item_["name"]}, {"arguments", text_}});
            out += event("response.function_call_arguments.done", data);
        } else {
            Json data = where;
            data["content_index"] = 0;
            Json with_text = data, with_part = data;
            with_text["text"] = text_;
            if (kind_ == Kind::message) with_text["logprobs"] = tokens_;
            with_part["part"] = part(text_);
            out += event(kind_ == Kind::reasoning ? "response.reasoning_text.done" : "response.output_text.done", with_text);
            out += event("response.content_part.done", with_part);
            item_["content"].push_back(part(text_));
        }
        item_["status"] = status;
        out += event("response.output_item.done", {{"output_index", index()}, {"item", item_}});
        output_.push_back(item_);
        kind_ = Kind::none;
        return out;
    }

    Json frame(const char* status) const {
        Json json = {{"id", "resp_" + id}, {"object", "response"}, {"created_at", created}, {"status", status}, {"background", false}, {"error", nullptr},
                     {"incomplete_details", nullptr}, {"model", model}, {"output", output_}, {"previous_response_id", nullptr}, {"store", false}, {"usage", nullptr}};
        json.update(echoed_);
        return json;
    }

    Json finished(const Totals& t) const {
        const bool cut = last_.reason == TextFinish::length;
        Json json = frame(cut ? "incomplete" : "completed");
        if (cut) json["incomplete_details"] = {{"reason", "max_output_tokens"}};
        json["usage"] = {{"input_tokens", t.prompt_tokens}, {"input_tokens_details", {{"cached_tokens", t.cached_tokens}}},
                         {"output_tokens", t.new_tokens}, {"output_tokens_details", {{"reasoning_tokens", t.reasoning_tokens}}},
                         {"total_tokens", t.prompt_tokens + t.new_tokens}};
        return json;
    }

    bool stream_, logprobs_;
    Json echoed_;                 // of the request, as the answer repeats it
    Json output_ = Json::array(), item_;
    Kind kind_ = Kind::none;
    std::string text_;            // of the open item
    Json tokens_ = Json::array(); // likewise, with their probabilities if they are wanted
    TextDone last_;
    int sequence_ = 0;
};

// Items -> messages: what a model said in one turn (reasoning, text, calls) is one message.
void add_items(const Json& items, std::vector<Message>& out) {
    const auto assistant = [&]() -> Message& {
        if (out.empty() || out.back().role != "assistant") {
            out.emplace_back();
            out.back().role = "assistant";
        }
        return out.back();
    };
    for (std::size_t i = 0; i < items.size(); ++i) {
        const std::string where = fmt::format("input[{}]", i);
        Fields f(items[i], where);
        const std::string type = f.text("type").value_or("message");
        f.ignore({"id", "status", "encrypted_content", "phase", "namespace"});
        if (type == "message") {
            std::string role = f.text("role").value_or("");
            if (role == "developer") role = "system";
            if (role != "user" && role != "assistant" && role != "system") bad_field(where + ".role", "{}.role should be user, assistant, system or developer, found {}", where, role.empty() ? "none" : role.substr(0, 40));
            const Json* content = f.find("content");
            if (!content) bad_field(where + ".content", "{} has no content", where);
            const Json text = joined_parts(*content, where + ".content");
            if (role == "assistant") {
                assistant().content = text;
            } else {
                out.emplace_back();
                out.back().role = role;
                out.back().content = text;
            }
        } else if (type == "reasoning") {
            std::string text;
            for (const char* key : {"content", "summary"}) {
                const Json* list = f.list(key);
                if (!list || !text.empty()) continue;
                for (const Json& part : *list)
                    if (part.is_object() && part.contains("text") && part["text"].is_string()) text += part["text"].get<std::string>();
            }
            if (!text.empty()) assistant().reasoning = text;
        } else if (type == "function_call") {
            const std::string name = f.text("name").value_or("");
            if (name.empty()) bad_field(where + ".name", "{} has no name", where);
            Message& message = assistant();
            if (message.tool_calls.is_null()) message.tool_calls = Json::array();
            message.tool_calls.push_back({{"id", f.text("call_id").value_or("")}, {"type", "function"}, {"function", {{"name", name}, {"arguments", f.text("arguments").value_or("{}")}}}});
        } else if (type == "function_call_output") {
            out.emplace_back();
            out.back().role = "tool";
            out.back().tool_call_id = f.text("call_id").value_or("");
            const Json* output = f.find("output");
            out.back().content = output ? joined_parts(*output, where + ".output") : Json("");
        } else {
            bad_field(where + ".type", "{} is an item of type {}, which is not supported", where, type.substr(0, 40));
        }
        f.finish();
    }
    for (Message& message : out)
        if (message.content.is_null() && message.tool_calls.is_null()) message.content = "";
}

// The flat form of tools and of tool_choice -> the chat form.
void read_response_tools(Fields& f, GenerateRequest& r) {
    if (const Json* tools = f.list("tools"); tools && !tools->empty()) {
        r.tools = Json::array();
        for (std::size_t i = 0; i < tools->size(); ++i) {
            Json function = (*tools)[i];
            const std::string where = fmt::format("tools[{}]", i);
            if (!function.is_object() || function.value("type", Json("function")) != "function")
                bad_field(where + ".type", "{} should be of type function; others are not run here", where);
            function.erase("type");
            r.tools.push_back({{"type", "function"}, {"function", std::move(function)}});
        }
        check_tools(r.tools, "tools");
    }
    if (const auto parallel = f.flag("parallel_tool_calls")) r.parallel_tool_calls = *parallel;
    if (const Json* choice = f.find("tool_choice")) {
        Json chat = {{"tool_choice", *choice}};
        if (choice->is_object() && choice->contains("name")) chat["tool_choice"] = {{"type", "function"}, {"function", {{"name", (*choice)["name"]}}}};
        Fields inner(chat);
        read_tools(inner, r);
    }
}

}  // namespace

Translated openai_response(const Json& body) {
    Fields f(body);
    Translated t;
    GenerateRequest& r = t.request;
    r.model = f.text("model").value_or("");
    r.conversation.emplace();
    std::vector<Message>& messages = r.conversation->messages;
    const auto instructions = f.text("instructions");
    if (instructions && !instructions->empty()) {
        messages.emplace_back();
        messages.back().role = "system";
        messages.back().content = *instructions;
    }
    const Json* input = f.find("input");
    if (!input) bad_field("input", "input is missing; it should be a text or a list of items");
    if (input->is_string()) {
        messages.emplace_back();
        messages.back().role = "user";
        messages.back().content = *input;
    } else if (input->is_array() && !input->empty()) {
        add_items(*input, messages);
    } else {
        bad_field("input", "input should be a text or a list of items, found {}", describe(*input));
    }
    read_sampling(f, r);
    if (r.n != 1) bad_field("n", "n is not a field of this API");
    read_response_tools(f, r);
    if (const Json* text = f.object("text")) {
        Fields o(*text, "text");
        if (const Json* format = o.object("format")) {
            Fields form(*format, "text.format");
            const std::string type = form.text("type").value_or("");
            form.ignore({"name", "description", "strict"});
            const Json* schema = form.find("schema");
            if (type == "json_schema") {
                if (!schema) bad_field("text.format.schema", "text.format.schema is missing");
                r.form = AnswerForm::json_schema;
                r.form_field = "text.format.schema";
                r.schema = *schema;
            } else if (type == "json_object") {
                r.form = AnswerForm::json_object;
            } else if (type != "text") {
                bad_field("text.format.type", "text.format.type should be text, json_object or json_schema, found {}", type.substr(0, 40));
            }
            form.finish();
        }
        o.ignore({"verbosity"});
        o.finish();
    }
    if (const Json* reasoning = f.object("reasoning")) {
        Fields o(*reasoning, "reasoning");
        if (const auto effort = o.text("effort")) set_effort(r, *effort, "reasoning.effort");
        o.ignore({"summary", "generate_summary"});
        o.finish();
    }
    read_thinking(f, r);
    if (const auto most = f.whole("max_output_tokens", 1, 1 << 30)) r.max_tokens = static_cast<int>(*most);
    // The other things that can be included belong to tools that are not run here.
    if (const Json* include = f.list("include"))
        for (const Json& what : *include)
            if (what == "message.output_text.logprobs") r.top_logprobs = 0;
    if (const auto top = f.whole("top_logprobs", 0, 20)) {
        if (r.top_logprobs < 0 && *top > 0) bad_field("top_logprobs", "top_logprobs needs include: [\"message.output_text.logprobs\"]");
        if (r.top_logprobs >= 0) r.top_logprobs = static_cast<int>(*top);
    }
    f.refuse("previous_response_id", "answers are not kept: send the whole conversation");
    f.refuse("conversation", "conversations are not kept: send the whole one");
    f.refuse("background", "answers are given at once", false);
    f.refuse("prompt", "there are no stored prompts");
    f.ignore({"store", "metadata", "user", "service_tier", "truncation", "safety_identifier", "prompt_cache_key", "prompt_cache_retention", "max_tool_calls", "client_metadata"});
    f.finish();
    Json echoed = {{"instructions", instructions ? Json(*instructions) : Json()}, {"max_output_tokens", r.max_tokens < 0 ? Json() : Json(r.max_tokens)},
                   {"parallel_tool_calls", r.parallel_tool_calls}, {"temperature", r.sampling.temperature ? Json(*r.sampling.temperature) : Json()},
                   {"top_p", r.sampling.top_p ? Json(*r.sampling.top_p) : Json()}, {"tool_choice", body.contains("tool_choice") ? body["tool_choice"] : Json("auto")},
                   {"tools", body.contains("tools") ? body["tools"] : Json::array()}, {"text", body.contains("text") ? body["text"] : Json{{"format", {{"type", "text"}}}}},
                   {"truncation", "disabled"}, {"metadata", body.contains("metadata") ? body["metadata"] : Json::object()}};
    t.writer = std::make_shared<ResponseWriter>(r.stream, r.top_logprobs >= 0, std::move(echoed));
    return t;
}

}  // namespace forge::server
