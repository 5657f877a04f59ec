// Stacks and the switch between them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace metal_emu {

inline constexpr std::size_t kStackBytes = 256 * 1024;

// Memory whose lowest page must not be touched. `free_stack` takes what `new_stack` gave.
char* new_stack();
void free_stack(char* stack);

// A stack pointer that switch_fiber() can load, so that `entry` starts. `index` spreads the stacks of one
// threadgroup over the cache's sets.
void* prepare_stack(char* stack, std::uint32_t index, void (*entry)());

}  // namespace metal_emu

// Saves the running fiber's registers and stack pointer at *save, and goes on where `load` was saved.
extern "C" void emu_switch_fiber(void** save, void* load);
