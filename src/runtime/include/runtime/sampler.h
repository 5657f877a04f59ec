// logits -> token. The order is fixed: penalties, bias, mask, temperature,
// top-k, typical, top-p, min-p, draw.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace forge {

struct SamplingOptions {
    float temperature = 0.8f;       // 0 = greedy (the first of equal logits)
    int top_k = 40;                 // 0 = off
    float typical_p = 1.0f;         // 1 = off
    float top_p = 0.95f;            // 1 = off
    float min_p = 0.05f;            // 0 = off
    float repetition_penalty = 1.0f;  // logits of seen tokens: / p when positive, * p when negative
    float presence_penalty = 0.0f;  // subtracted once from seen tokens
    float frequency_penalty = 0.0f; // subtracted per occurrence
    int penalty_window = 64;        // last tokens that count (generated and prompt); -1 = all, 0 = penalties off
    std::vector<std::pair<std::int32_t, float>> logit_bias = {};
    std::uint64_t seed = 0;
};

// Throws Error naming the option, its range and the value found.
void check_options(const SamplingOptions& options);

struct TokenProbability { std::int32_t id; float logprob; };

class Sampler {
  public:
    // limit: ids >= limit (padding rows of the head) are never chosen. Error for options out of range.
    Sampler(SamplingOptions options, std::int32_t limit);

    // logits: [vocab] of the model, not changed. history: the tokens so far, for penalties.
    // position: index of the token to draw in its sequence; with the seed it fixes the random number.
    // mask: null, or one bit per id (bit id % 32 of word id / 32), 1 = allowed.
    // Error when a logit is NaN or +inf, or when nothing is allowed (-inf is never chosen).
    std::int32_t sample(std::span<const float> logits, std::span<const std::int32_t> history,
                        std::uint64_t position, const std::uint32_t* mask = nullptr);

    const SamplingOptions& options() const { return options_; }
    std::int32_t limit() const { return limit_; }
    // Whether a draw is the arg-max of the logits and nothing else.
    bool plain_greedy() const {
        return options_.temperature == 0 && options_.repetition_penalty == 1 && options_.presence_penalty == 0 && options_.frequency_penalty == 0 && options_.logit_bias.empty();
    }

  private:
    SamplingOptions options_;
    std::int32_t limit_;
    struct Candidate { float logit; std::int32_t id; };
    const float* adjust(const float* logits, std::span<const std::int32_t> history, const std::uint32_t* mask);
    void select(const float* x, std::size_t k);
    void gather(const float* x);
    void keep_typical(float largest);
    std::int32_t draw(double u, float largest, double total);
    std::int32_t pick(double u, float largest) const;

    std::vector<Candidate> candidates_;  // reused: no allocation after the first call
    std::vector<float> scratch_;
    std::vector<std::int32_t> counts_;
};

// log softmax of the raw logits at `chosen`, and the `n` largest, falling.
std::vector<TokenProbability> top_logprobs(std::span<const float> logits, std::int32_t chosen, int n,
                                           std::int32_t limit, float* chosen_logprob);

// The counter-based generator: a uniform number in [0, 1) that depends only on seed and position.
double uniform(std::uint64_t seed, std::uint64_t position);

}  // namespace forge
