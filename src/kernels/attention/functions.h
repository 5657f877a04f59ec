// The entry points of each instruction set, by activation type (functions are
// indexed by type_index).
#pragma once

#include "kernels/cpu_kernel.h"

namespace forge {

struct AttentionFunctions {
    CpuFn rope_table[3];
    CpuFn qk_prepare[3];
    CpuFn decode[3];
    CpuFn combine[3];
    CpuFn prefill[3];
    std::size_t block_scratch[3];  // bytes of one element of the packed query and probability arrays
};

// f32, f16, bf16 -> 0, 1, 2
constexpr int type_index(DType type) { return type == DType::f32 ? 0 : type == DType::f16 ? 1 : 2; }

extern const AttentionFunctions attention_plain, attention_avx2, attention_avx512, attention_neon;

}  // namespace forge
