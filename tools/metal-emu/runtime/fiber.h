// Stacks and the switch between them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace metal_emu {

// Tiles of tensor operations lie on a thread's stack, 96 KiB at most, besides what a kernel keeps itself. Below it is
// memory that faults; kernels are compiled so that no frame steps over it.
inline constexpr std::size_t kStackBytes = 512 * 1024, kGuardBytes = 64 * 1024;

// The lowest address of kStackBytes. `free_stack` takes what `new_stack` gave.
char* new_stack();
void free_stack(char* stack);
bool in_guard(const char* stack, const void* address);

// A stack pointer that switch_fiber() can load, so that `entry` starts. `index` spreads the stacks of one
// threadgroup over the cache's sets.
void* prepare_stack(char* stack, std::uint32_t index, void (*entry)());

}  // namespace metal_emu

// Saves the running fiber's registers and stack pointer at *save, and goes on where `load` was saved.
extern "C" void emu_switch_fiber(void** save, void* load);
