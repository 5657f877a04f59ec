// What lowering asks a backend.
#include "lower/lower.h"

namespace forge {

LowerTarget lower_target(const Backend& backend, std::span<const Weight> weights, DType type, int capacity) {
    const Backend* b = &backend;
    return {
        [=](WeightId w, int rows) { return b->packed_bytes(weights[static_cast<std::size_t>(w)], rows, type); },
        [=](WeightId x, WeightId y) { return b->same_packing(weights[static_cast<std::size_t>(x)], weights[static_cast<std::size_t>(y)], type); },
        [=](int rows, int heads, int head_dim) { return b->attention_partial_bytes(rows, heads, head_dim, capacity, type); },
        [=](WeightId w, int experts, int per_token, int rows) {
            return b->expert_packed_bytes(weights[static_cast<std::size_t>(w)], experts, per_token, rows, type);
        },
        [=](int experts, int per_token, int rows) { return b->group_bytes(experts, per_token, rows); },
        b->plain_rows(),
        b->delta_norm(),
        b->wide_fusions(),
        b->merges_parts(),
    };
}

}  // namespace forge
