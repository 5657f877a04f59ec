// Where an element lies inside the cache of one (slot, KV head).
//
//   keys    blocks of 16 positions. f16, f32: [block][d][16]; bf16: [block][d/2][16][2],
//           so that one load brings a pair of dimensions of 16 positions.
//   values  in panels of up to 64 dimensions, each with all positions, so that the
//           panel a tile works on is one run of memory. Within a panel: f16, f32:
//           [position][width]; bf16: [position/2][width][2], a pair of positions.
//           width is 64, in the last panel what is left of head_dim rounded up to
//           16. What lies beyond head_dim never reaches a result.
//
// All offsets are in elements. Keys are padded to the same size as values.
#pragma once

#include <algorithm>

#include "kernels/attention/attention.h"

namespace forge {

inline constexpr int kBlock = 16;      // positions of a key block
inline constexpr int kPanel = 64;      // dimensions of a panel of values
inline constexpr int kPart = 256;      // positions of a decode part; parts start at multiples of it
inline constexpr int kRun = 256;        // keys that prefill takes at a time, at most kPart

// First element of a head's query: a gated projection has query and gate side by side.
inline std::int64_t query_offset(const QkPrepareParams& p, std::int64_t row, std::int64_t head) {
    return (row * p.n_heads + head) * p.head_dim * (p.q_gated ? 2 : 1);
}

struct CacheLayout {
    std::int64_t unit;                 // consecutive elements that belong together: 2 for bf16, else 1
    std::int64_t dims;                 // head_dim rounded up to kBlock
    std::int64_t head;                 // elements of one (slot, head)
    std::int64_t key_block;            // from one key block to the next
    std::int64_t key_step;             // from one unit of dimensions to the next within a block
    std::int64_t value_panel;          // from one panel of values to the next

    CacheLayout(int head_dim, int capacity, DType type)
        : unit(type == DType::bf16 ? 2 : 1), dims((head_dim + kBlock - 1) / kBlock * kBlock),
          head(dims * capacity), key_block(dims * kBlock), key_step(kBlock * unit),
          value_panel(std::int64_t{kPanel} * capacity) {}

    std::int64_t key(std::int64_t position, std::int64_t d) const {
        return position / kBlock * key_block + d / unit * key_step + position % kBlock * unit + d % unit;
    }
    std::int64_t panel_width(std::int64_t panel) const { return std::min<std::int64_t>(kPanel, dims - panel * kPanel); }
    // From one unit of positions to the next within a panel.
    std::int64_t value_step(std::int64_t panel) const { return panel_width(panel) * unit; }
    std::int64_t value(std::int64_t position, std::int64_t d) const {
        return d / kPanel * value_panel + position / unit * value_step(d / kPanel) + d % kPanel * unit + position % unit;
    }
    std::int64_t head_offset(const KvCache& cache, int slot, int kv_head) const {
        return (static_cast<std::int64_t>(slot) * cache.n_kv_heads + kv_head) * head;
    }
};

inline CacheLayout layout_of(const KvCache& cache) { return {cache.head_dim, cache.capacity, cache.type}; }

}  // namespace forge
