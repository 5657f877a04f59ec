// The entry points of each instruction set; arrays are by activation type (f32, f16, bf16).
#pragma once

#include "kernels/cpu_kernel.h"

namespace forge {

struct DeltaFunctions {
    CpuFn conv[3];
    CpuFn delta[3];
    CpuFn gated_norm[3];
    CpuFn head_gate[3];
};
extern const DeltaFunctions delta_plain, delta_avx2, delta_avx512, delta_neon;

inline constexpr int kConvChannels = 64;   // channels of a conv item
inline constexpr int kDeltaColumns = 32;   // state columns of a delta item

// One past the last row of the sequence that row `first` begins.
inline int span_end(const StepRows& step, int first) {
    int last = first + 1;
    while (last < step.m && step.slots[last] == step.slots[first]) ++last;
    return last;
}

}  // namespace forge
