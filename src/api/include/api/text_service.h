// One model serving many: conversations in, streams of reasoning, text and tool calls out.
//
// Callbacks come from the thread that steps the model, between two steps; they hand what they get on and
// do not block. The work of a token there (decoding, splitting, matching stops) is some microseconds.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/constraint.h"
#include "api/text_model.h"
#include "chat/tool_calls.h"
#include "runtime/batcher.h"

namespace forge {


struct TextRequest {
    Prompt prompt;
    SamplingOptions sampling;
    int max_tokens = -1;
    std::vector<std::string> stop;
    bool ignore_stop = false;
    int top_logprobs = -1;         // -1: no log probabilities; n: the chosen token's and the n largest
    bool split_reasoning = true;
    int thinking_budget = -1;      // tokens of reasoning after which it is closed; -1: no limit
    ToolFamily tools = ToolFamily::none;
    std::optional<ToolCallParser::Options> tool_options;  // absent: calls are not looked for
    std::shared_ptr<TokenConstraint> constraint;          // applies after the reasoning
};

struct TokenLogprob {
    std::int32_t id = 0;
    std::string bytes;
    float logprob = 0;
    struct Other { std::int32_t id; std::string bytes; float logprob; };
    std::vector<Other> top;
};

struct TextDelta {
    std::string reasoning, content;
    std::vector<ToolCallDelta> calls;
    std::vector<TokenLogprob> logprobs;  // of the content's tokens
    bool empty() const { return reasoning.empty() && content.empty() && calls.empty() && logprobs.empty(); }
};

enum class TextFinish { stop, length, tool_calls, cancelled };

struct TextDone {
    TextFinish reason = TextFinish::stop;
    std::string stop_text;   // the stop string that ended it, if one did
    int prompt_tokens = 0, cached_tokens = 0, new_tokens = 0, reasoning_tokens = 0;
    double queue_seconds = 0, prompt_seconds = 0, decode_seconds = 0;
};

class TextService {
  public:
    TextService(std::shared_ptr<const TextModel> model, int max_queue, std::size_t prefix_bytes);

    struct Callbacks {
        std::function<bool(TextDelta&&)> on_delta;   // false: nobody wants the rest
        std::function<void(const TextDone&)> on_done;
        std::function<void(const std::string&)> on_error;
    };
    // Error when the prompt does not fit; QueueFull when too many wait.
    std::uint64_t submit(TextRequest request, Callbacks callbacks);
    void cancel(std::uint64_t id) { batcher_.cancel(id); }
    void close() { batcher_.close(); }   // cancels everything
    Batcher& batcher() { return batcher_; }   // for what is no text: embeddings, slots
    Batcher::Load load() const { return batcher_.load(); }
    const TextModel& model() const { return *model_; }
    const std::shared_ptr<const TextModel>& model_pointer() const { return model_; }

  private:
    std::shared_ptr<const TextModel> model_;
    Batcher batcher_;
};

}  // namespace forge
