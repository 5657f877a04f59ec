#include "api/text_service.h"

#include <algorithm>

#include "api/answer_guide.h"
#include "api/answer_stream.h"

namespace forge {
namespace {

// One request while it is answered.
class Answering {
  public:
    Answering(std::shared_ptr<const TextModel> model, TextRequest request, TextService::Callbacks callbacks)
        : model_(std::move(model)),
          request_(std::move(request)),
          callbacks_(std::move(callbacks)),
          stream_(model_->tokenizer(), request_.prompt, request_.stop, request_.split_reasoning,
                  request_.tool_options ? tool_markers(request_.tools) : std::vector<std::string>()),
          guide_(*model_, request_.prompt, request_.constraint, request_.split_reasoning) {
        if (request_.tool_options) parser_ = make_tool_parser(request_.tools, *request_.tool_options);
        if (request_.thinking_budget >= 0 && request_.prompt.reasoning && request_.split_reasoning)
            closer_ = model_->tokenizer()->encode(request_.prompt.reasoning->close + "\n\n", {.parse_special = true});
    }

    const Prompt& prompt() const { return request_.prompt; }

    const std::uint32_t* mask() {
        forcing_ = closing_ < closer_.size() && (closing_ > 0 || (stream_.in_reasoning() && reasoning_tokens_ >= request_.thinking_budget));
        if (forcing_) {
            forced_.assign((static_cast<std::size_t>(model_->engine()->spec().vocab) + 31) / 32, 0);
            const auto id = static_cast<std::uint32_t>(closer_[closing_]);
            forced_[id / 32] = 1u << (id % 32);
            return forced_.data();
        }
        return guide_.mask(stream_.in_reasoning());
    }

    // Not where log probabilities are wanted: those come from a step each.
    std::vector<std::int32_t> forced() {
        if (request_.top_logprobs >= 0 || closing_ > 0 || stream_.stopped()) return {};
        return guide_.forced(stream_.in_reasoning());
    }

    bool token(std::int32_t token, std::span<const float> logits) {
        const bool reasoning = stream_.in_reasoning();
        if (forcing_) ++closing_;
        else guide_.accept(token, reasoning);
        reasoning_tokens_ += reasoning;
        if (request_.top_logprobs >= 0 && !reasoning) logprobs_.push_back(logprob(token, logits));
        if (!pass_on(stream_.push(token), false)) return unwanted_ = true, false;
        return !stream_.stopped() && !enough_calls() && !guide_.finished();
    }

    void done(FinishReason reason, const BatchStats& stats) {
        TextDone done;
        if (reason == FinishReason::cancelled && guide_.finished() && !unwanted_) reason = FinishReason::stop;   // complete without an end token
        const bool cut = reason == FinishReason::length || (reason == FinishReason::cancelled && !stream_.stopped() && !enough_calls());
        if (reason != FinishReason::cancelled || stream_.stopped() || enough_calls()) pass_on(stream_.finish(), true, cut);
        done.reason = stream_.stopped() ? TextFinish::stop
                      : enough_calls() ? TextFinish::tool_calls
                      : reason == FinishReason::length ? TextFinish::length
                      : reason == FinishReason::cancelled ? TextFinish::cancelled
                      : parser_ && parser_->complete() > 0 ? TextFinish::tool_calls
                                                           : TextFinish::stop;
        done.stop_text = stream_.stop_text();
        done.prompt_tokens = stats.prompt_tokens;
        done.cached_tokens = stats.cached_tokens;
        done.new_tokens = stats.generated_tokens;
        done.reasoning_tokens = reasoning_tokens_;
        done.queue_seconds = stats.queue_seconds;
        done.prompt_seconds = stats.prompt_seconds;
        done.decode_seconds = stats.decode_seconds;
        if (callbacks_.on_done) callbacks_.on_done(done);
    }

    void error(const std::string& message) {
        if (callbacks_.on_error) callbacks_.on_error(message);
    }

  private:
    bool enough_calls() const { return parser_ && !request_.tool_options->parallel && parser_->complete() > 0; }

    bool pass_on(AnswerStream::Delta part, bool last, bool cut = false) {
        TextDelta delta;
        delta.reasoning = std::move(part.reasoning);
        if (parser_) {
            ToolCallParser::Delta parsed = parser_->push(part.content);
            delta.content = std::move(parsed.content);
            delta.calls = std::move(parsed.calls);
            if (last) {
                parsed = parser_->finish(cut);
                delta.content += parsed.content;
                delta.calls.insert(delta.calls.end(), parsed.calls.begin(), parsed.calls.end());
            }
        } else {
            delta.content = std::move(part.content);
        }
        if (!delta.content.empty()) delta.logprobs = std::exchange(logprobs_, {});
        return delta.empty() || !callbacks_.on_delta || callbacks_.on_delta(std::move(delta));
    }

    TokenLogprob logprob(std::int32_t token, std::span<const float> logits) const {
        TokenLogprob entry{token, model_->tokenizer()->token_bytes(token), 0, {}};
        for (const TokenProbability& other : top_logprobs(logits, token, request_.top_logprobs, model_->id_limit(), &entry.logprob))
            entry.top.push_back({other.id, model_->tokenizer()->token_bytes(other.id), other.logprob});
        return entry;
    }

    std::shared_ptr<const TextModel> model_;
    TextRequest request_;
    TextService::Callbacks callbacks_;
    AnswerStream stream_;
    AnswerGuide guide_;
    std::unique_ptr<ToolCallParser> parser_;
    std::vector<TokenLogprob> logprobs_;     // of tokens whose text was not passed on yet
    std::vector<std::int32_t> closer_;       // what ends the reasoning when its budget is spent
    std::size_t closing_ = 0;                // how much of it was said
    bool unwanted_ = false;                  // nobody takes the rest
    bool forcing_ = false;                   // the next token is one of it
    std::vector<std::uint32_t> forced_;
    int reasoning_tokens_ = 0;
};

}  // namespace

TextService::TextService(std::shared_ptr<const TextModel> model, int max_queue, std::size_t prefix_bytes)
    : model_(std::move(model)), batcher_(model_->engine(), max_queue, prefix_bytes) {}

std::uint64_t TextService::submit(TextRequest request, Callbacks callbacks) {
    BatchRequest batch;
    batch.sampling = request.sampling;
    batch.id_limit = model_->id_limit();
    // A text that must end where its grammar ends does not go on after an end token.
    batch.generate = {request.max_tokens, model_->stop_ids(), request.ignore_stop && !request.constraint};
    const bool constrained = request.constraint != nullptr;
    const bool masked = request.constraint || request.thinking_budget >= 0;
    auto answering = std::make_shared<Answering>(model_, std::move(request), std::move(callbacks));
    batch.prompt = answering->prompt().ids;
    batch.on_token = [answering](std::int32_t token, std::span<const float> logits) { return answering->token(token, logits); };
    batch.on_done = [answering](FinishReason reason, const BatchStats& stats) { answering->done(reason, stats); };
    batch.on_error = [answering](const std::string& message) { answering->error(message); };
    if (masked) batch.mask = [answering] { return answering->mask(); };
    if (constrained) batch.forced = [answering] { return answering->forced(); };
    return batcher_.submit(std::move(batch));
}

}  // namespace forge
