#include "draw.h"
#include "runtime/session.h"

namespace forge {

FinishReason generate(Session& session, Sampler& sampler, const GenerateOptions& options,
                      const std::function<bool(std::int32_t)>& on_token, const std::function<const std::uint32_t*()>& mask) {
    for (int made = 0;; ++made) {
        const Drawn drawn = draw_token(sampler, options, session.logits(), session.tokens(), made, session.capacity(),
                                       mask ? mask() : nullptr, on_token);
        if (drawn.end) return *drawn.end;
        session.append(drawn.token);
    }
}

}  // namespace forge
