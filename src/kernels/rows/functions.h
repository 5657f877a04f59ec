// The entry points of each instruction set; arrays are by activation type (f32, f16, bf16).
#pragma once

#include "kernels/cpu_kernel.h"

namespace forge {

struct RowsFunctions {
    CpuFn embed[3];
    CpuFn norm[3];
    CpuFn add[3];
    CpuFn act_mul[3];
    CpuFn scale[3];
    CpuFn arg_max;
};

extern const RowsFunctions rows_plain, rows_avx2, rows_avx512, rows_neon;

}  // namespace forge
