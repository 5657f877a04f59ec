// What the CPU can do in more than one way. Every way has the same bits: they differ in how a launch is cut for threads.
#pragma once

#include <span>
#include <vector>

#include "backends/backend.h"

namespace forge {

// Names, the default first; fewer than two: there is nothing to choose.
std::vector<std::string> cpu_variants(const Launch& launch, std::span<const Weight> weights);

// The number in a name that cpu_variants() made: weight rows of a matvec item, or items that a thread takes at a time. 0
// when the launch names none.
std::int64_t cpu_variant_value(const Launch& launch, int rows);

}  // namespace forge
