// The weights of a model one by one, in pieces, for whoever writes them to another file: nothing is
// made before it is asked for.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "formats/forge_shard.h"
#include "formats/model_file.h"
#include "model/spec.h"

namespace forge {

// The weights of one part of a model, in the order in which they are used.
struct WeightPart {
    std::string name;  // "embedding", "layer.0", ..., "head"
    std::vector<WeightId> weights;
};

class WeightSource {
  public:
    // The file must outlive it. Errors as bind_model's: tensors that are missing or of wrong shapes.
    explicit WeightSource(const ModelFile& file);
    ~WeightSource();

    const ModelSpec& spec() const;
    // Parts in forward order; every weight is in one of them, once.
    std::vector<WeightPart> parts() const;
    // Key, format and shape; planes as packed_planes() gives them.
    PackedWeight describe(WeightId id, WeightLayout layout, ThreadPool& pool) const;
    // Rows [first, last) of a weight, `first` and `last` (but at the end) multiples of 16: a weight of as many
    // rows, mapped or made. A weight of one row comes whole.
    Weight rows(WeightId id, std::int64_t first, std::int64_t last, WeightLayout layout, ThreadPool& pool) const;
    // Bytes that rows() reads, for progress.
    std::uint64_t source_bytes(WeightId id) const;
    // What recipes call a weight, by its id: "model.layers.3.mlp.down_proj", "lm_head", whatever the file's own names;
    // all experts of a layer share one, "model.layers.3.mlp.switch_mlp.up_proj". Empty: a vector, which stays as it is.
    std::vector<std::string> modules() const;
    // Whether no weight is made from a tensor, though loading may read it (rope divisors, scales).
    bool is_beside(const Tensor& tensor) const;

  private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace forge
