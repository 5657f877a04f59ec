// Running a compiled kernel: every GPU thread is a fiber, threadgroups are spread over workers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace metal_emu {

// What a thread knows of itself. The kernels' trampolines declare the same struct.
struct ThreadIds {
    std::uint32_t threadgroup[3], thread[3], threads[3], grid[3], lane, simdgroup, index, simdgroups;
};
using Entry = void (*)(void* const* buffers, void* const* threadgroup_memory, const ThreadIds*);

inline constexpr int kBuffers = 31, kThreadgroupArguments = 8, kTensorRank = 4;

struct Launch {
    Entry entry = nullptr;
    const char* name = "";
    std::uint32_t grid[3] = {1, 1, 1}, threads[3] = {1, 1, 1};  // threadgroups; threads of one
    void* buffers[kBuffers] = {};
    std::size_t bytes[kBuffers] = {};
    bool read_only[kBuffers] = {};
    // Read-only, and nothing between the same memory barriers writes it: only bounds are checked.
    bool constant[kBuffers] = {};
    std::size_t threadgroup_bytes[kThreadgroupArguments] = {};
    // Of buffers that the kernel takes as tensor_handle: extents, innermost first, then as many strides.
    long tensor_shapes[kBuffers][2 * kTensorRank] = {};
    bool check = false;      // the code is instrumented: report what breaks a rule
    std::uint64_t seed = 0;  // 0: lanes in order; else a random schedule
    int workers = 1;
    const void *image_low = nullptr, *image_high = nullptr;  // of the code: its constants may be read
};

struct LaunchStatistics {
    std::uint64_t switches = 0, exchanges = 0, barriers = 0, accesses = 0;
};

// Findings, empty when clean. One launching thread at a time.
std::vector<std::string> run(const Launch& launch, LaunchStatistics* statistics = nullptr);

// A memory barrier between dispatches, the end of an encoder, or the border of two serial dispatches.
void memory_barrier();

// Bytes of threadgroup memory a kernel may use; 32 KiB on every Apple GPU so far.
inline constexpr std::size_t kThreadgroupMemory = 32 * 1024;

}  // namespace metal_emu
