// file -> descriptor and bound weights.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "base/thread_pool.h"
#include "formats/model_file.h"
#include "model/spec.h"

namespace forge {

// What the weights will take, known before any is made.
struct WeightBytes {
    std::uint64_t mapped = 0;  // stay in the file
    std::uint64_t made = 0;    // converted or copied: memory of the process
};
// May throw: nothing large was allocated yet.
using MemoryCheck = std::function<void(const ModelSpec&, const WeightBytes&)>;

// Reads config or metadata through the architecture's table, checks every shape
// and binds every tensor. GGUF blocks become planes in parallel on `pool` with a
// progress bar; Hugging Face tensors stay mapped. An unknown architecture, rope
// type or quirk is an Error that names it.
// What is converted anyway is laid out as `layout` says; mapped weights keep their rows.
std::shared_ptr<const BoundModel> bind_model(const ModelFile& file, ThreadPool& pool, WeightLayout layout = WeightLayout::rows,
                                             const MemoryCheck& check = {});

// The descriptor alone (for inspect and tests). WeightIds are those that bind_model would
// give; -1 for tensors that the file does not have, required or not.
ModelSpec read_spec(const ModelFile& file);

}  // namespace forge
