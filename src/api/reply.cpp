#include <chrono>

#include "api/answer_guide.h"
#include "api/answer_stream.h"
#include "api/text_model.h"

namespace forge {
namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

Reply reply(const TextModel& model, Session& session, const Prompt& prompt, const ReplyOptions& options,
            const std::function<bool(PieceKind, std::string_view)>& on_piece, const std::function<bool(int, int)>& on_progress) {
    Reply result;
    result.prompt_tokens = static_cast<int>(prompt.ids.size());
    Sampler sampler(options.sampling, model.id_limit());
    auto start = std::chrono::steady_clock::now();
    try {
        result.cached_tokens = session.feed(prompt.ids, on_progress);
    } catch (const Session::Stopped&) {
        result.prompt_seconds = seconds_since(start);
        result.reason = FinishReason::cancelled;
        return result;
    }
    result.prompt_seconds = seconds_since(start);

    AnswerStream stream(model.tokenizer(), prompt, options.stop);
    AnswerGuide guide(model, prompt, options.constraint, true);
    bool cancelled = false;
    const auto pass_on = [&](const AnswerStream::Delta& delta) {
        result.reasoning += delta.reasoning;
        result.text += delta.content;
        if (!on_piece) return;
        if (!delta.reasoning.empty() && !on_piece(PieceKind::reasoning, delta.reasoning)) cancelled = true;
        if (!delta.content.empty() && !on_piece(PieceKind::answer, delta.content)) cancelled = true;
    };
    start = std::chrono::steady_clock::now();
    const auto on_token = [&](std::int32_t token) {
        ++result.new_tokens;
        guide.accept(token, stream.in_reasoning());
        pass_on(stream.push(token));
        return !cancelled && !stream.stopped() && !guide.finished();
    };
    const auto mask = [&] { return guide.mask(stream.in_reasoning()); };
    // An answer that is complete as its grammar says needs no end token, and does not go on after one.
    const GenerateOptions how{options.max_tokens, model.stop_ids(), options.ignore_stop && !guide.active()};
    result.reason = guide.active() ? generate(session, sampler, how, on_token, mask) : generate(session, sampler, how, on_token);
    pass_on(stream.finish());
    result.decode_seconds = seconds_since(start);
    if (cancelled) {
        result.reason = FinishReason::cancelled;
    } else if (stream.stopped() || guide.finished()) {
        result.reason = FinishReason::stop;
    }
    return result;
}

}  // namespace forge
