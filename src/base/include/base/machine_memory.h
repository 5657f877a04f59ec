// How much memory the machine has, and how much of it a program can still take.
#pragma once

#include <cstdint>

namespace forge {

// In a container (Linux control groups), of what its limit leaves.
struct MachineMemory {
    std::uint64_t total = 0;      // 0 = unknown
    std::uint64_t available = 0;  // without swapping; what files occupy in the page cache counts as available
};
MachineMemory machine_memory();

}  // namespace forge
