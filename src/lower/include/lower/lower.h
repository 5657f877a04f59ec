// Fused plan -> program: kernels chosen by the number of rows, barriers from
// byte ranges, one arena by lifetimes.
#pragma once

#include <functional>
#include <span>

#include "backends/backend.h"
#include "backends/program.h"
#include "plan/plan.h"

namespace forge {

// What lowering asks of the backend it lowers for (see backends/backend.h).
struct LowerTarget {
    std::function<std::uint64_t(WeightId, int rows)> packed_bytes;
    std::function<bool(WeightId, WeightId)> same_packing;
    std::function<std::uint64_t(int rows, int heads, int head_dim)> attention_partial_bytes;
    std::function<std::uint64_t(WeightId, int experts, int per_token, int rows)> expert_packed_bytes = {};
    std::function<std::uint64_t(int experts, int per_token, int rows)> group_bytes = {};
    bool plain_rows = false;     // gemm reads plain rows: only norms are packed
    bool delta_norm = false;     // a delta kernel of up to eight rows can norm and gate what it reads
    bool wide_fusions = false;   // of up to eight rows: gated norms and convolutions in products, preparation and gates in
                                 // attention; of any number: a residual in the sum over experts
    bool merges_parts = false;   // and the merging of attention's parts in its launch
};

struct LowerOptions {
    DType type = DType::bf16;
    int max_rows = 1;            // up to 8: matvec and split-K attention; more: gemm and flash attention
    int max_outputs = 1;
    bool apart = false;          // every buffer keeps a place of its own: inputs and outputs can be set and read
};

// Rows up to which the matvec kernels serve; more rows take the matrix kernels.
inline constexpr int matvec_rows = 8;

// The answers of a backend for these weights. `backend` and `weights` must outlive it.
LowerTarget lower_target(const Backend& backend, std::span<const Weight> weights, DType type, int capacity);

// places: where each value of the plan lies (0 bytes: nowhere), for `apart`.
Program lower(const Plan& plan, std::span<const RopeSpec> ropes, const LowerOptions& options, const LowerTarget& target,
              std::vector<BufferRef>* places = nullptr);

// Sets `barrier` of every launch: true exactly when it reads or writes bytes that a launch since
// the last barrier wrote, or writes bytes that one read.
void place_barriers(std::vector<Launch>& launches);

// Arena buffers with lifetimes in barrier segments -> offsets. Buffers whose lifetimes
// touch never overlap. Offsets are multiples of 64.
struct ArenaBuffer { std::uint64_t bytes = 0; int first = 0, last = 0; std::uint64_t offset = 0; };
std::uint64_t layout_arena(std::vector<ArenaBuffer>& buffers);

}  // namespace forge
