#include <chrono>

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
    bool cancelled = false;
    const auto pass_on = [&](const AnswerStream::Delta& delta) {
        result.reasoning += delta.reasoning;
        result.text += delta.content;
        if (!on_piece) return;
        if (!delta.reasoning.empty() && !on_piece(PieceKind::reasoning, delta.reasoning)) cancelled = true;
        if (!delta.content.empty() && !on_piece(PieceKind::answer, delta.content)) cancelled = true;
    };
    start = std::chrono::steady_clock::now();
    result.reason = generate(session, sampler, {options.max_tokens, model.stop_ids(), options.ignore_stop}, [&](std::int32_t token) {
        ++result.new_tokens;
        pass_on(stream.push(token));
        return !cancelled && !stream.stopped();
    });
    pass_on(stream.finish());
    result.decode_seconds = seconds_since(start);
    if (cancelled) {
        result.reason = FinishReason::cancelled;
    } else if (stream.stopped()) {
        result.reason = FinishReason::stop;
    }
    return result;
}

}  // namespace forge
