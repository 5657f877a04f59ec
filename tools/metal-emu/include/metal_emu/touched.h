// Which bytes of device memory kernels touched, each counted once however often: what a step must move.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace metal_emu {

struct TouchedBytes {
    std::uint64_t read = 0, written = 0;
};

// Counts from nothing, or stops. Kernels must be compiled with CompileOptions::check; launches need not be
// checked, which is quicker. Over the host API: METAL_EMU_COUNT=1 in the environment.
void count_touched(bool on);
TouchedBytes touched(const void* memory, std::size_t bytes);

// Buffers that the host API holds, by label (metal_emu_objc).
struct BufferUse {
    std::string label;
    std::size_t bytes;
    TouchedBytes touched;
};
std::vector<BufferUse> buffer_use();

}  // namespace metal_emu
