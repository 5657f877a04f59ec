#include "draw.h"

#include <algorithm>

namespace forge {

Drawn draw_token(Sampler& sampler, const GenerateOptions& options, std::span<const float> logits,
                 std::span<const std::int32_t> history, int made, int capacity, const std::uint32_t* mask,
                 const std::function<bool(std::int32_t)>& on_token) {
    Drawn drawn;
    const bool limited = options.max_tokens >= 0;
    if (limited && made >= options.max_tokens) return drawn.end = FinishReason::length, drawn;
    drawn.token = sampler.sample(logits, history, history.size(), mask);
    const auto& stops = options.stop_ids;
    if (!options.ignore_stop && std::find(stops.begin(), stops.end(), drawn.token) != stops.end())
        return drawn.end = FinishReason::stop, drawn;
    drawn.reported = true;
    if (!on_token(drawn.token)) return drawn.end = FinishReason::cancelled, drawn;
    if ((limited && made + 1 >= options.max_tokens) || static_cast<int>(history.size()) >= capacity)
        drawn.end = FinishReason::length;
    return drawn;
}

}  // namespace forge
