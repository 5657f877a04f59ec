// Rotary embeddings: from a config's parameters to inverse frequencies.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/spec.h"

namespace forge {

enum class RopeType { standard, linear, llama3, yarn, proportional };

// What a config or metadata says about one rotary embedding; every number is as
// written there. Fields of other types are ignored.
struct RopeParams {
    RopeType type = RopeType::standard;
    double theta = 10000;
    // R: the divisor of the exponents; (R + 1) / 2 pairs rotate. For `proportional` the whole head.
    int rotary_dim = 0;
    double factor = 1;
    double original_context = 0;                        // llama3, yarn
    double low_freq_factor = 1, high_freq_factor = 4;   // llama3
    double beta_fast = 32, beta_slow = 1;               // yarn
    bool truncate = true;                               // yarn: whole correction dims
    std::optional<double> attention_factor, mscale, mscale_all_dim;  // yarn
    double extra_scale = 1;                             // yarn: one more multiplier (GGUF attn_factor)
    double rotated_share = 1;                           // proportional: share of the pairs that rotate
    std::vector<float> divisors;                        // GGUF rope_freqs: divides inv_freq[i]; or empty
};

// Computes in f32, in the order of operations that the Hugging Face reference
// uses, so that frequencies agree with it to the last bit or the one before it.
// `where` (file and key) starts every error message.
RopeSpec resolve_rope(const RopeParams& params, std::string_view where);

// Index of `rope` in `ropes`, appended when no equal one is there yet.
int add_rope(std::vector<RopeSpec>& ropes, RopeSpec rope);

}  // namespace forge
