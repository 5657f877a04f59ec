#pragma once

#include <vector>

#include "gpu_program.h"

namespace forge::gpu {

// Products of few rows that nothing separates (queries, keys and values, say) become one launch.
void join_matvecs(std::vector<GpuLaunch>& launches);

}  // namespace forge::gpu
