#include <algorithm>
#include <array>
#include <chrono>

#include "draw.h"
#include "runtime/session.h"

namespace forge {
namespace {

// Greedy tokens are picked by the device in runs, as long as a run takes about this long.
constexpr auto kRun = std::chrono::milliseconds(20);
constexpr int kLongest = 32;

}  // namespace

FinishReason generate(Session& session, Sampler& sampler, const GenerateOptions& options,
                      const std::function<bool(std::int32_t)>& on_token, const std::function<const std::uint32_t*()>& mask) {
    std::array<std::int32_t, kLongest> room;
    int run = 4;
    for (int made = 0;; ++made) {
        const Drawn drawn = draw_token(sampler, options, session.logits(), session.tokens(), made, session.capacity(),
                                       mask ? mask() : nullptr, on_token);
        if (drawn.end) return *drawn.end;
        int n = sampler.plain_greedy() && !mask ? std::min(run, session.capacity() - static_cast<int>(session.tokens().size())) : 0;
        if (options.max_tokens >= 0) n = std::min(n, options.max_tokens - made - 1);
        const std::span<std::int32_t> picked(room.data(), static_cast<std::size_t>(std::max(0, n)));
        const auto start = std::chrono::steady_clock::now();
        if (n < 2 || !session.append_greedy(drawn.token, sampler.limit(), picked)) {
            session.append(drawn.token);
            continue;
        }
        const auto took = std::chrono::steady_clock::now() - start;
        if (n == run) run = took * 2 < kRun ? std::min(2 * run, kLongest) : took > 2 * kRun ? std::max(2, run / 2) : run;
        // All but the last were appended: each is a draw like any other. The last is drawn from the logits.
        for (int i = 0; i + 1 < n; ++i, ++made) {
            const int later = n - 1 - i;   // picked[i] itself and what was appended after it
            if (picked[static_cast<std::size_t>(i)] < 0) {   // computed again, for the sampler to say what is wrong
                session.take_back(later + 1);
                session.append(i == 0 ? drawn.token : picked[static_cast<std::size_t>(i - 1)]);
                break;
            }
            const Drawn next = settle_token(picked[static_cast<std::size_t>(i)], options, session.tokens().size() - static_cast<std::size_t>(later), made + 1, session.capacity(), on_token);
            if (next.end) {
                session.take_back(later);
                return *next.end;
            }
        }
    }
}

}  // namespace forge
