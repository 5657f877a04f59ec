// What a CPU kernel is: a function over a range of work items. The CPU backend
// spreads items over its threads with an atomic counter.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/dtype.h"
#include "base/step_rows.h"

namespace forge {

// Instruction sets that kernels are built for; `plain` is the readable reference.
enum class Isa : std::uint8_t { plain, avx2, avx512, neon };
std::string_view name_of(Isa isa);
// The best that this machine runs, or what FORGE_ISA names (an Error when it cannot run here).
Isa detect_isa();
bool isa_available(Isa isa);

// One thread's own memory. `tag` lets kernels that share an input prepare it
// once a step and thread: it names what the front of `scratch` holds (0 = nothing).
struct CpuWorker {
    int index = 0;
    std::span<std::byte> scratch;             // 64-byte aligned
    std::uint64_t tag = 0;
};

using CpuFn = void (*)(const void* params, const StepRows& step, std::int64_t first, std::int64_t last,
                       CpuWorker& worker);

// A kernel chosen for given parameters. `params` stays owned by the caller.
struct CpuKernel {
    const char* name = "";                    // registry row, e.g. "matvec_avx512"
    CpuFn fn = nullptr;
    // Items of this launch in a step, and how many one thread takes at a time.
    std::int64_t (*items)(const void* params, const StepRows& step) = nullptr;
    std::int64_t grain = 1;
    std::size_t scratch = 0;                  // bytes of CpuWorker::scratch it needs at most
};

}  // namespace forge
