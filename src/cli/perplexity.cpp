#include "perplexity.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "base/progress.h"

namespace forge::cli {

double Perplexity::mean() const { return sum / static_cast<double>(scored); }
double Perplexity::value() const { return std::exp(mean()); }

double Perplexity::error() const {
    const double n = static_cast<double>(scored);
    if (n < 2) return 0;
    const double variance = std::max(0.0, sum_of_squares / n - mean() * mean());
    return value() * std::sqrt(variance / (n - 1));
}

Perplexity perplexity(Session& session, std::span<const std::int32_t> ids, std::optional<std::int32_t> bos, int window) {
    const std::size_t prefix = bos ? 1 : 0;
    if (ids.size() + prefix < 2) fail("the text has {} tokens; at least {} are needed", ids.size(), 2 - prefix);
    if (window > session.capacity())
        fail("a window of {} tokens does not fit the context of {}; give a longer one with --ctx", window, session.capacity());
    const std::size_t length = static_cast<std::size_t>(window) - prefix;  // of the text's tokens
    const std::size_t stride = std::max<std::size_t>(1, length / 2);
    Perplexity result;
    Progress progress("perplexity", ids.size(), "tokens");
    std::size_t scored_to = bos ? 0 : 1;  // the first token that is not scored yet
    std::vector<std::int32_t> tokens;
    for (std::size_t first = 0; scored_to < ids.size(); first += stride) {
        const std::size_t end = std::min(first + length, ids.size());
        tokens.clear();
        if (bos) tokens.push_back(*bos);
        tokens.insert(tokens.end(), ids.begin() + static_cast<std::ptrdiff_t>(first), ids.begin() + static_cast<std::ptrdiff_t>(end));
        session.score(tokens, [&](int position, std::span<const float> logits) {
            const std::size_t next = first + static_cast<std::size_t>(position) + 1 - prefix;  // predicted token's index in ids
            if (next < scored_to || next >= end) return;
            const double largest = *std::max_element(logits.begin(), logits.end());
            double total = 0;
            for (float x : logits) total += std::exp(x - largest);
            const double loss = std::log(total) + largest - logits[static_cast<std::size_t>(ids[next])];
            if (!std::isfinite(loss)) fail(ErrorKind::internal, "the loss of token {} is not a number", next);
            ++result.scored;
            result.sum += loss;
            result.sum_of_squares += loss * loss;
        });
        progress.advance(end - scored_to);
        scored_to = end;
    }
    return result;
}

}  // namespace forge::cli
