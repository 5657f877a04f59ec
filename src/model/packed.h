// Weights of a .forge model: they are there already, in the layout that the packer chose.
#pragma once

#include <functional>
#include <vector>

#include "base/thread_pool.h"
#include "formats/forge_shard.h"
#include "load.h"
#include "resolve.h"

namespace forge {

// Where a packed model keeps the weight that a use would make.
PackedKey packed_key(const TensorUse& use);

// Rows [first, last) of one weight, `first` a multiple of 16: mapped, or made where the layout asks for another one
// than the file has.
Weight packed_rows(const ModelFile& file, const TensorUse& use, std::int64_t first, std::int64_t last, WeightLayout layout);
std::uint64_t packed_bytes(const ModelFile& file, const TensorUse& use);

// As load_weights. Tiles that the backend cannot read become rows in memory; all else stays mapped.
std::vector<Weight> load_packed(const ModelFile& file, const std::vector<TensorUse>& uses, ThreadPool& pool, WeightLayout layout,
                                LoadReport& report, const std::function<void(const WeightBytes&)>& check);

}  // namespace forge
