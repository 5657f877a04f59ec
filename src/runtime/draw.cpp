#include "draw.h"

#include <algorithm>

namespace forge {

Drawn draw_token(Sampler& sampler, const GenerateOptions& options, std::span<const float> logits,
                 std::span<const std::int32_t> history, int made, int capacity, const std::uint32_t* mask,
                 const std::function<bool(std::int32_t)>& on_token) {
    if (options.max_tokens >= 0 && made >= options.max_tokens) return {.end = FinishReason::length};
    return settle_token(sampler.sample(logits, history, history.size(), mask), options, history.size(), made, capacity, on_token);
}

Drawn settle_token(std::int32_t token, const GenerateOptions& options, std::size_t history, int made, int capacity, const std::function<bool(std::int32_t)>& on_token) {
    Drawn drawn{token};
    const bool limited = options.max_tokens >= 0;
    const auto& stops = options.stop_ids;
    if (!options.ignore_stop && std::find(stops.begin(), stops.end(), drawn.token) != stops.end())
        return drawn.end = FinishReason::stop, drawn;
    drawn.reported = true;
    if (!on_token(drawn.token)) return drawn.end = FinishReason::cancelled, drawn;
    if ((limited && made + 1 >= options.max_tokens) || static_cast<int>(history) >= capacity)
        drawn.end = FinishReason::length;
    return drawn;
}

}  // namespace forge
