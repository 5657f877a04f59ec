#include <chrono>

#include "api/text_model.h"
#include "base/error.h"
#include "stop_texts.h"

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

    StreamDecoder decoder(model.tokenizer(), true);
    StopTexts stops(options.stop);
    bool cancelled = false;
    const auto pass_on = [&](std::string text) {
        if (text.empty()) return;
        result.text += text;
        if (on_piece && !on_piece(PieceKind::answer, text)) cancelled = true;
    };
    start = std::chrono::steady_clock::now();
    result.reason = generate(session, sampler, {options.max_tokens, model.stop_ids(), options.ignore_stop}, [&](std::int32_t token) {
        ++result.new_tokens;
        pass_on(stops.push(decoder.push(token)));
        return !cancelled && !stops.found();
    });
    if (!stops.found()) pass_on(stops.push(decoder.finish()));
    if (!stops.found()) pass_on(stops.finish());
    result.decode_seconds = seconds_since(start);
    if (cancelled) {
        result.reason = FinishReason::cancelled;
    } else if (stops.found()) {
        result.reason = FinishReason::stop;
    }
    return result;
}

}  // namespace forge
