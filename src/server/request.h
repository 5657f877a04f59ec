// What every protocol's request is translated into, and the answer that each translates back.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/text_service.h"
#include "chat/conversation.h"
#include "fields.h"

namespace forge::server {

// Sampling options that the request gives; the others are the model's own recommendation.
struct SamplingPatch {
    std::optional<float> temperature, top_p, min_p, typical_p, repetition_penalty, presence_penalty, frequency_penalty;
    std::optional<int> top_k, penalty_window;
    std::optional<std::uint64_t> seed;
    std::vector<std::pair<std::int32_t, float>> logit_bias;
};

enum class ToolChoice { automatic, none, required, named };

enum class AnswerForm { text, json_object, json_schema, grammar };

struct GenerateRequest {
    std::string model;                    // as the client wrote it; empty: the first
    // What to continue: a conversation, or texts, or ids (one answer for each).
    std::optional<Conversation> conversation;
    ChatOptions chat = with_variables();
    std::vector<std::string> texts;
    std::vector<std::vector<std::int32_t>> ids;
    std::optional<std::string> suffix;    // fill in between text and suffix

    SamplingPatch sampling;
    int max_tokens = -1;
    std::vector<std::string> stop;
    bool ignore_stop = false;
    int n = 1;
    int top_logprobs = -1;
    bool stream = false, include_usage = false, echo = false;
    bool split_reasoning = true;
    int thinking_budget = -1;

    Json tools;                           // as in the OpenAI API, or null
    ToolChoice tool_choice = ToolChoice::automatic;
    std::string tool_name;                // with `named`
    bool parallel_tool_calls = true;

    AnswerForm form = AnswerForm::text;
    Json schema;                          // with json_schema
    std::string form_field = "response_format";   // where the protocol has it
    std::string grammar;                  // with grammar
    std::optional<double> keep_alive;     // seconds the model stays loaded; negative: always

  private:
    static ChatOptions with_variables() {   // an object that protocols add to
        ChatOptions options;
        options.variables = Json::object();
        return options;
    }
};

// One of the answers, put together.
struct Answer {
    std::string reasoning, content;
    struct Call { std::string id, name, arguments; };
    std::vector<Call> calls;
    std::vector<TokenLogprob> logprobs;
    TextDone done;

    void add(const TextDelta& delta);
};

// What is said about the whole request.
struct Totals {
    int prompt_tokens = 0, cached_tokens = 0, new_tokens = 0, reasoning_tokens = 0;
    double seconds = 0, load_seconds = 0, prompt_seconds = 0, decode_seconds = 0;
};

// Turns answers into a protocol's words. One object a request; calls do not overlap.
class Writer {
  public:
    virtual ~Writer() = default;
    virtual std::string_view stream_type() const { return "text/event-stream"; }
    // Pieces of a stream, each empty when there is nothing to say. `index`: which of several answers.
    virtual std::string begin() { return {}; }
    virtual std::string delta(int index, const TextDelta& delta) = 0;
    virtual std::string done(int index, const Answer& answer) = 0;
    virtual std::string end(const Totals& totals) = 0;
    virtual std::string failed(const ApiError& error) = 0;      // the stream ends with it
    // The body of an answer that is not streamed.
    virtual std::string whole(const std::vector<Answer>& answers, const Totals& totals) = 0;

    // Facts that the runner fills in before anything else.
    std::string model;      // the name to give
    std::string id;         // 24 letters and digits, unlike any other
    std::int64_t created = 0;
    int prompt_tokens = 0;  // of the first prompt
    std::vector<std::string> prompts;   // with `echo`: the prompts' texts
};

std::string random_id(std::size_t length = 24);   // letters and digits

// "data: {...}\n\n", or with a name "event: name\ndata: ...".
std::string sse(const Json& data, std::string_view event = {});
std::string dump(const Json& json);   // compact; never throws on bytes that are no UTF-8
// sse() of the object `frame` with {"choices": [choice]} at its end; the frame as dump() has it.
std::string sse_choice(std::string_view frame, const Json& choice, bool null_usage);

}  // namespace forge::server
