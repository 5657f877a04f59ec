// One draw of a token and what follows from it: the rules that generate() and the batcher share.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "runtime/sampler.h"
#include "runtime/session.h"

namespace forge {

// What a draw ended in: a token to go on with, or a reason to stop.
struct Drawn {
    std::int32_t token = 0;
    bool reported = false;                // on_token saw the token
    std::optional<FinishReason> end = {};
};

// history: the sequence so far; made: tokens reported before this one; capacity: positions of the context.
// on_token sees every token that is not a stop token; false cancels.
Drawn draw_token(Sampler& sampler, const GenerateOptions& options, std::span<const float> logits,
                 std::span<const std::int32_t> history, int made, int capacity, const std::uint32_t* mask,
                 const std::function<bool(std::int32_t)>& on_token);

// The same for a token that was drawn elsewhere; history: tokens before it.
Drawn settle_token(std::int32_t token, const GenerateOptions& options, std::size_t history, int made, int capacity, const std::function<bool(std::int32_t)>& on_token);

}  // namespace forge
