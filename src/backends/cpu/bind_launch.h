// Launch (plain data) -> kernel parameters and function.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "backends/program.h"
#include "cpu_cache.h"
#include "kernels/cpu_kernel.h"

namespace forge {

struct BindContext {
    Isa isa;
    const Program& program;
    std::span<const Weight> weights;
    const CpuCache& cache;
    std::byte* arena;
    const std::vector<std::vector<float>>& tables;  // copies that outlive the launch
};

struct BoundLaunch {
    std::shared_ptr<const void> params;
    CpuKernel kernel;
};

// Error(internal) names a kernel family that the CPU does not have.
BoundLaunch bind_launch(const Launch& launch, const BindContext& context);

}  // namespace forge
