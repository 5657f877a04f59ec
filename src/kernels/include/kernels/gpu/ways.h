// The ways in which an operation can run on a GPU: kernels that differ in literals, and give the same bits, but for Metal
// 4's matmul2d, which sums in an order of its own and has one bucket of rows. Which is fastest is measured where it runs
// (tune/tuner.h).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "kernels/gpu/registry.h"

namespace forge::gpu {

struct Way {
    std::string name;                // of the literals: "tile 64x64x32 ahead"
    std::function<Kernel()> make;    // the shape's weights must outlive it
};

// The first is what runs where nothing was measured. Neighbours of it: compiling takes longer than running.
std::vector<Way> matvec_ways(const Common& c, const MatvecShape& s, bool alone);
std::vector<Way> gemm_ways(const Common& c, const MatvecShape& s, int rows);       // of steps of up to so many rows
std::vector<Way> expert_gemm_ways(const Common& c, const ExpertShape& s);
std::vector<Way> attention_decode_ways(const Common& c, const AttentionShape& s);
std::vector<Way> attention_prefill_ways(const Common& c, const AttentionShape& s);

// Other kernels for gemm(): each makes the same product where it fits, in the same order of sums, because it can be chosen
// for one bucket of rows and not for the next; it is one of gemm_ways() then.
struct GemmForm {
    std::string name;
    bool (*fits)(const Common& c, const MatvecShape& s);
    Kernel (*make)(const Common& c, const MatvecShape& s);
};
void add_gemm_form(const GemmForm& form);

}  // namespace forge::gpu
