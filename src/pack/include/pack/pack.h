// `forge pack`: a model in any format that Forge reads -> a .forge model, in the store or in one file.
// Weights are read, arranged and written in pieces, so that memory does not grow with the model; a run
// that was stopped goes on at the shard that it had begun.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "quant/weight.h"

namespace forge {

struct PackOptions {
    std::string source;  // a path that open_model_file() takes
    std::string output;  // NAME[:TAG] in the store, or a file that ends in .forge
    WeightLayout layout = WeightLayout::rows;  // of weights with codes; rows, or tiles for CPUs
    std::vector<std::string> recipes = {};  // as QuantizeOptions::recipes; empty: weights stay as they are
    std::string version;                    // of Forge, for the record
    bool overwrite = false;                 // otherwise an existing output is an Error
    int threads = 0;                        // 0 = one per core
    // Computes the proof's text from a finished model's path (pack/proof.h); empty: without a proof.
    std::function<std::string(const std::string& path)> prove = {};
};

struct PackSummary {
    std::string path;  // that open_model_file() takes
    std::uint64_t parameters = 0;
    std::uint64_t source_bytes = 0, bytes = 0;  // of tensors; of all blobs
    std::size_t shards = 0;
    std::size_t tiled = 0;                      // weights in tiles of sixteen rows; the others lie in rows
    std::size_t resumed = 0;                    // shards that an earlier run had finished
    std::uint64_t shared = 0;                   // bytes of blobs that the store had before
};

// Errors name the model, or what the disk refused.
PackSummary pack_model(const PackOptions& options);

}  // namespace forge
