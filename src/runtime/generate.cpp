#include <algorithm>

#include "runtime/session.h"

namespace forge {

FinishReason generate(Session& session, Sampler& sampler, const GenerateOptions& options,
                      const std::function<bool(std::int32_t)>& on_token) {
    for (int made = 0;; ++made) {
        if (options.max_tokens >= 0 && made >= options.max_tokens) return FinishReason::length;
        const std::int32_t token = sampler.sample(session.logits(), session.tokens(), session.tokens().size());
        const bool stop = std::find(options.stop_ids.begin(), options.stop_ids.end(), token) != options.stop_ids.end();
        if (stop && !options.ignore_stop) return FinishReason::stop;
        if (!on_token(token)) return FinishReason::cancelled;
        if (options.max_tokens >= 0 && made + 1 >= options.max_tokens) return FinishReason::length;
        if (static_cast<int>(session.tokens().size()) >= session.capacity()) return FinishReason::length;
        session.append(token);
    }
}

}  // namespace forge
