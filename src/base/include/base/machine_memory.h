// How much memory the machine has, and how much of it a program can still take.
#pragma once

#include <cstdint>
#include <string>

namespace forge {

// In a container (Linux control groups), of what its limit leaves.
struct MachineMemory {
    std::uint64_t total = 0;      // 0 = unknown
    std::uint64_t available = 0;  // without swapping; what files occupy in the page cache counts as available
};
MachineMemory machine_memory();

// What the processor calls itself, "Intel(R) Xeon(R) Platinum 8481C"; "processor" where it does not say.
std::string processor_name();

}  // namespace forge
