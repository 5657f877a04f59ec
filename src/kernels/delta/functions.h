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

inline constexpr int kConvChannels = 256;  // channels of a conv item
inline constexpr int kDeltaAhead = 2048;   // floats of a state that are fetched ahead (docs/performance.md)
inline constexpr int kDeltaRowByRow = 8;   // rows of a step that are still taken one by one: the same bits for each as alone
inline constexpr int kDeltaBlock = 16;     // rows of a block of the matrix form
inline constexpr int delta_width(int v_dim) { return (v_dim + 31) / 32 * 32; }   // whole pairs of the widest vectors

// One past the last row of the sequence that row `first` begins.
inline int span_end(const StepRows& step, int first) {
    int last = first + 1;
    while (last < step.m && step.slots[last] == step.slots[first]) ++last;
    return last;
}

}  // namespace forge
