// Whether a model fits, said before anything large is allocated.
#pragma once

#include <cstdint>
#include <string>

#include "base/machine_memory.h"
#include "model/bind.h"

namespace forge {

struct MemoryPlan {
    WeightBytes weights;
    std::uint64_t cache = 0;   // bytes; 0: a device of its own holds it
    int sequences = 1, positions = 0;
};

// Error(out_of_memory) with the figures when weights that must be made and the cache exceed the machine's memory;
// a warning with them when they, or mapped weights beside them, exceed what is free. What programs of a step
// need beside (`forge inspect --memory`) is not counted. Unknown memory (total 0) is taken for enough.
void check_fit(const std::string& path, const MemoryPlan& plan, const MachineMemory& memory);

}  // namespace forge
