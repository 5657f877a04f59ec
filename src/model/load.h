// Making the weights: mapped where the file's bytes can be used as they are,
// converted or copied otherwise.
#pragma once

#include <functional>
#include <vector>

#include "base/thread_pool.h"
#include "model/bind.h"
#include "resolve.h"

namespace forge {

struct LoadReport {
    std::size_t mapped = 0, converted = 0, copied = 0;  // weights
    std::size_t misaligned = 0;                         // of the copied: address unusable for the element type
    std::uint64_t copied_bytes = 0, mapped_bytes = 0;
};

// weights[i] is made from uses[i]. Blocks are converted on `pool`, reading the
// file front to back, with one progress bar.
std::vector<Weight> load_weights(const ModelFile& file, const std::vector<TensorUse>& uses, ThreadPool& pool,
                                 WeightLayout layout, LoadReport& report,
                                 const std::function<void(const WeightBytes&)>& check = {});

// One weight, quietly: it may be a part of one.
Weight load_weight(const ModelFile& file, const TensorUse& use, ThreadPool& pool, WeightLayout layout);

}  // namespace forge
