// /v1/chat/completions
#include "openai.h"

namespace forge::server {
namespace {

Json logprobs_json(const std::vector<TokenLogprob>& tokens) { return {{"content", logprob_list(tokens)}, {"refusal", nullptr}}; }

class ChatWriter final : public Writer {
  public:
    ChatWriter(bool usage, bool logprobs, int count) : usage_(usage), logprobs_(logprobs), count_(count) {}

    std::string begin() override {
        std::string out;
        for (int i = 0; i < count_; ++i) out += chunk(i, {{"role", "assistant"}, {"content", ""}}, nullptr);
        return out;
    }

    std::string delta(int index, const TextDelta& d) override {
        Json delta = Json::object();
        if (!d.reasoning.empty()) delta["reasoning_content"] = d.reasoning;
        if (!d.content.empty()) delta["content"] = d.content;
        if (!d.calls.empty()) delta["tool_calls"] = Json::array();
        for (const ToolCallDelta& call : d.calls) {
            Json json = {{"index", call.index}};
            if (!call.name.empty()) json.update({{"id", call.id}, {"type", "function"}});
            json["function"] = call.name.empty() ? Json{{"arguments", call.arguments}} : Json{{"name", call.name}, {"arguments", call.arguments}};
            delta["tool_calls"].push_back(std::move(json));
        }
        return chunk(index, delta, nullptr, logprobs_ && !d.logprobs.empty() ? logprobs_json(d.logprobs) : Json());
    }

    std::string done(int index, const Answer& answer) override { return chunk(index, Json::object(), openai_finish(answer.done.reason)); }

    std::string end(const Totals& totals) override {
        std::string out;
        if (usage_) {
            Json json = frame("chat.completion.chunk");
            json["choices"] = Json::array();
            json["usage"] = openai_usage(totals);
            out = sse(json);
        }
        return out + "data: [DONE]\n\n";
    }

    std::string failed(const ApiError& error) override { return count_ > 0 && streaming_ ? sse(openai_error(error)) : dump(openai_error(error)); }

    std::string whole(const std::vector<Answer>& answers, const Totals& totals) override {
        Json json = frame("chat.completion");
        json["choices"] = Json::array();
        for (std::size_t i = 0; i < answers.size(); ++i) {
            const Answer& a = answers[i];
            Json message = {{"role", "assistant"}, {"content", a.content.empty() && (!a.calls.empty() || !a.reasoning.empty()) ? Json() : Json(a.content)}, {"refusal", nullptr}};
            if (!a.reasoning.empty()) message["reasoning_content"] = a.reasoning;
            if (!a.calls.empty()) message["tool_calls"] = Json::array();
            for (const Answer::Call& call : a.calls)
                message["tool_calls"].push_back({{"id", call.id}, {"type", "function"}, {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
            json["choices"].push_back({{"index", i}, {"message", message}, {"logprobs", logprobs_ ? logprobs_json(a.logprobs) : Json()},
                                       {"finish_reason", openai_finish(a.done.reason)}});
        }
        json["usage"] = openai_usage(totals);
        return dump(json);
    }

    bool streaming_ = false;

  private:
    Json frame(const char* object) const {
        return {{"id", "chatcmpl-" + id}, {"object", object}, {"created", created}, {"model", model}, {"system_fingerprint", "forge"}};
    }
    std::string chunk(int index, const Json& delta, Json finish, Json logprobs = nullptr) {
        if (chunk_frame_.empty()) chunk_frame_ = dump(frame("chat.completion.chunk"));
        return sse_choice(chunk_frame_, {{"index", index}, {"delta", delta}, {"logprobs", std::move(logprobs)}, {"finish_reason", std::move(finish)}}, usage_);
    }
    bool usage_, logprobs_;
    int count_;
    std::string chunk_frame_;   // written once, not with each token
};

}  // namespace

Translated openai_chat(const Json& body) {
    Fields f(body);
    Translated t;
    GenerateRequest& r = t.request;
    r.model = f.text("model").value_or("");
    const Json* messages = f.list("messages");
    if (!messages) bad_field("messages", "messages is missing; it should be a list of {{role, content}}");
    r.conversation.emplace();
    r.conversation->messages = openai_messages(*messages, "messages");
    read_sampling(f, r);
    read_tools(f, r);
    read_form(f, r);
    read_thinking(f, r);
    if (const Json* documents = f.list("documents")) r.conversation->documents = *documents;
    const auto most = f.whole("max_tokens", -1, 1 << 30), completion = f.whole("max_completion_tokens", -1, 1 << 30);
    if (most && completion && *most != *completion)
        bad_field("max_completion_tokens", "max_tokens is {} and max_completion_tokens {}; give one of them", *most, *completion);
    r.max_tokens = static_cast<int>(completion.value_or(most.value_or(-1)));
    const bool logprobs = f.flag("logprobs").value_or(false);
    if (const auto top = f.whole("top_logprobs", 0, 20)) {
        if (!logprobs && *top > 0) bad_field("top_logprobs", "top_logprobs needs logprobs: true");
        r.top_logprobs = logprobs ? static_cast<int>(*top) : -1;
    } else if (logprobs) {
        r.top_logprobs = 0;
    }
    if (const Json* modalities = f.list("modalities"); modalities && *modalities != Json::array({"text"}))
        bad_field("modalities", "modalities should be [\"text\"]; others are not supported");
    f.refuse("audio", "only text is answered");
    f.refuse("functions", "it was replaced by tools");
    f.refuse("function_call", "it was replaced by tool_choice");
    f.refuse("web_search_options", "there is no web search");
    f.refuse("best_of", "ask for n answers and choose", 1);
    f.refuse("use_beam_search", "answers are sampled", false);
    f.ignore({"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention", "prediction", "verbosity",
              "cache_prompt", "id_slot", "timings_per_token", "return_progress", "reasoning_format", "stream_usage"});
    f.finish();
    auto writer = std::make_shared<ChatWriter>(r.include_usage, logprobs, r.n);
    writer->streaming_ = r.stream;
    t.writer = std::move(writer);
    return t;
}

}  // namespace forge::server
