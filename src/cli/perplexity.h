// How surprised a model is by a text.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "runtime/session.h"

namespace forge::cli {

struct Perplexity {
    std::int64_t scored = 0;
    double sum = 0, sum_of_squares = 0;  // of the losses, natural logarithms

    double mean() const;
    double value() const;                // exp(mean)
    double error() const;                // standard error of value()
};

// The text in windows of `window` tokens, each half a window after the one before. The first window is
// scored from its second token on (from its first after BOS); of the others only the second half, so
// that every token is scored once and, but for the first window's, with at least half a window before
// it. Where the model adds BOS, every window begins with it.
Perplexity perplexity(Session& session, std::span<const std::int32_t> ids, std::optional<std::int32_t> bos, int window);

}  // namespace forge::cli
