// A case is one kernel on one set of data, held against the plain CPU kernel.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "../kernel_test.h"
#include "../weights.h"
#include "device.h"
#include "kernels/gpu/registry.h"

namespace forge::test {

struct GpuCase {
    std::string name;
    std::vector<gpu::Kernel> kernels;
    std::function<void(GpuDevice& device, int order)> run;   // expects
};

// Families of cases. `full`: the whole grid of shapes instead of a sample that reaches every path.
std::vector<GpuCase> row_cases(bool full);
std::vector<GpuCase> matvec_cases(bool full);
std::vector<GpuCase> codes_cases(bool full);    // NVIDIA's tensor cores
std::vector<GpuCase> gemm_cases(bool full);
std::vector<GpuCase> tensor_cases(bool full);   // NVIDIA's tensor cores
std::vector<GpuCase> flash_cases(bool full);    // likewise
std::vector<GpuCase> decode_cases(bool full);   // likewise: attention of few rows
std::vector<GpuCase> attention_cases(bool full);
std::vector<GpuCase> expert_cases(bool full);
std::vector<GpuCase> expert_tensor_cases(bool full);   // likewise
std::vector<GpuCase> simd_cases(bool full);            // Metal's 8x8 matrices
std::vector<GpuCase> matmul2d_cases(bool full);        // Metal 4's tensor operations, on the same devices
std::vector<GpuCase> simd_flash_cases(bool full);      // likewise
std::vector<GpuCase> simd_expert_cases(bool full);     // likewise
std::vector<GpuCase> delta_cases(bool full);
std::vector<GpuCase> delta_tensor_cases(bool full);    // in chunks on NVIDIA's tensor cores
std::vector<GpuCase> codes_fusion_cases();     // some of codes_cases()
std::vector<GpuCase> decode_fusion_cases();    // and of decode_cases()
std::vector<GpuCase> fusion_cases(bool full);   // fused kernels against those that they replace

// got against wanted: within `ulps` roundings of T, or `part` of the largest wanted value. NaN anywhere fails.
inline void expect_close(const Array& got, const Array& wanted, std::size_t count, DType type, double ulps, double part) {
    double largest = 0;
    for (std::size_t i = 0; i < count; ++i) largest = std::max(largest, std::fabs(static_cast<double>(wanted.get(i))));
    int shown = 0;
    for (std::size_t i = 0; i < count && shown < 5; ++i) {
        const double g = static_cast<double>(got.get(i)), w = static_cast<double>(wanted.get(i));
        const double bound = ulps * 2 * unit_roundoff(type) * std::fabs(w) + part * largest;
        if (std::fabs(g - w) <= bound) continue;   // false for NaN
        ADD_FAILURE() << "element " << i << " of " << count << ": " << g << " instead of " << w << ", bound " << bound;
        ++shown;
    }
}

// By the name that all_formats() gives it.
NamedFormat named(const std::string& name);

// Calls fn with each of `tiles`, or with one of them in turns.
template <typename Tile, typename Fn>
void in_turns(const std::vector<Tile>& tiles, bool every, std::size_t& turn, Fn&& fn) {
    for (std::size_t i = 0; i < (every ? tiles.size() : 1); ++i, ++turn) fn(tiles[every ? i : turn * 5 % tiles.size()]);
}

inline gpu::Common common(DType type, int max_rows) {
    gpu::Common c;
    c.type = type;
    c.max_rows = max_rows;
    return c;
}

// Runs a CPU kernel of the plain instruction set.
template <typename Params>
void run_plain(CpuKernel (*choose)(const Params&, Isa), const Params& params, const StepRows& step) {
    run(choose(params, Isa::plain), params, step);
}

}  // namespace forge::test
