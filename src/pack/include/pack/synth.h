// Synthetic models: random weights in a true model's shape, with a valid small
// tokenizer inside. They serve measurements and tests; other engines load them
// too. One shape and one seed are one model, whatever the type and format: a
// bf16 folder holds the values that a Q4_0 file of the same seed approximates.
//
// Weights have a standard deviation of 0.02. They are drawn from 4096 chunks
// of 256 values, each encoded once, so that writing runs at the disk's speed; a
// row is a sequence of chunks that depends on the tensor and the row.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace forge {

struct SynthOptions {
    std::string shape;            // one of synth_shapes()
    std::string type = {};        // one of synth_types(), for mlx a recipe of pack/quantize.h ("q4", "mxfp4"); empty: q4_k_m, bf16, q4
    std::string format = "gguf";  // "gguf": a file; "hf": a folder (types bf16, f16, f32); "mlx": a quantised folder
    std::uint64_t seed = 1;
    std::string output;      // the file or folder to make
    bool outline = false;    // format hf: zeros for weights, in a file that takes no room; to be inspected, not run
    bool overwrite = false;  // otherwise an existing output is an Error
    int threads = 0;         // 0 = one per core
};

struct SynthSummary {
    std::uint64_t parameters = 0;
    std::uint64_t tensor_bytes = 0;
    std::size_t tensors = 0;
};

// Errors name what is wrong with the options, or why writing failed; no
// half-written file is left under the output's name.
SynthSummary synthesise(const SynthOptions& options);

std::vector<std::string> synth_shapes();
// "q4_k_m" and "q4_0" mix types as llama.cpp does; the name of a single type
// ("q6_k") uses it for every matrix but the head and the embedding.
std::vector<std::string> synth_types();

}  // namespace forge
