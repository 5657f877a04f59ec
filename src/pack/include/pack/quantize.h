// `forge quantize`: a Hugging Face folder -> a folder as mlx-lm converts it:
// the same tensors byte for byte, the same names and config.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace forge {

struct QuantizeOptions {
    std::string source;  // a Hugging Face folder
    std::string output;  // the folder to make
    // The grammar of recipes: q4 (affine, groups of 64), q4g32, mxfp4, mxfp8, nvfp4, plain; mixed_2_6,
    // mixed_3_4, mixed_3_6, mixed_4_6 with an optional group (mixed_4_6g32), and mixed, which is mixed_4_6.
    // The first is the folder's own; PATTERN=RECIPE is for modules whose path matches (a shell pattern),
    // the last match counts.
    std::vector<std::string> recipes = {"q4"};
    bool global_scale = false;  // nvfp4: a second scale for each expert, as only experts can have in mlx-lm
    bool overwrite = false;     // otherwise an existing output is an Error
    int threads = 0;            // 0 = one per core
};

struct QuantizeSummary {
    std::uint64_t parameters = 0;
    std::uint64_t source_bytes = 0, bytes = 0;  // of tensors
    std::size_t tensors = 0, quantised = 0, files = 0;
};

// Errors name what is wrong with the source, the recipes or the disk; no half-written folder is left.
QuantizeSummary quantize(const QuantizeOptions& options);

}  // namespace forge
