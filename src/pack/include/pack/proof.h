// The proof of a packed model: what it answers to a short prompt, with the logits behind it, so that
// another machine can show that it computes the same model.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/engine.h"

namespace forge {

// Greedy tokens after the prompt and the largest logits of each step, computed on the CPU once with f32
// and once with bf16 activations. JSON (docs/format.md); the same machine makes the same text.
std::string compute_proof(const std::string& path, std::span<const std::int32_t> prompt, int threads = 0);

struct ProofResult {
    std::string dtype;        // "f32", "bf16"
    int steps = 0;
    int different = 0;        // steps whose likeliest token is another one
    int near_ties = 0;        // of those, where the proof's two best lie within the bound
    double largest = 0;       // difference of a logit, as a fraction of the step's largest logit
    double bound = 0;         // what the proof allows
    bool holds() const { return different == near_ties && largest <= bound; }
};

// Computes the proof's steps again with its tokens, on options.device. Error when the text is no proof, or
// one for another vocabulary.
std::vector<ProofResult> check_proof(std::string_view proof, const std::string& path, const LoadOptions& options);

}  // namespace forge
