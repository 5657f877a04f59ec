// The entry points of each instruction set; arrays are by activation type (f32, f16, bf16).
#pragma once

#include "kernels/cpu_kernel.h"

namespace forge {

struct ExpertFunctions {
    CpuFn route[3];
    CpuFn combine[3];
};
extern const ExpertFunctions experts_plain, experts_avx2, experts_avx512, experts_neon;

inline constexpr int kCombineColumns = 512;   // columns of a combine item

}  // namespace forge
