// Where an element lies inside the cache of one (slot, KV head).
//
//   keys    blocks of 16 positions. f16, f32: [block][d][16]; bf16: [block][d/2][16][2],
//           so that one load brings a pair of dimensions of 16 positions.
//   values  f16, f32: [position][dims]; bf16: [position/2][dims][2], a pair of
//           positions; dims = head_dim rounded up to 16. What lies beyond
//           head_dim is never stored from nor into results.
//
// All offsets are in elements. Keys are padded to the same size as values.
#pragma once

#include "kernels/attention/attention.h"

namespace forge {

inline constexpr int kBlock = 16;      // positions of a key block
inline constexpr int kPart = 256;      // positions of a decode part; parts start at multiples of it

struct CacheLayout {
    std::int64_t unit;                 // consecutive elements that belong together: 2 for bf16, else 1
    std::int64_t dims;                 // head_dim rounded up to kBlock
    std::int64_t head;                 // elements of one (slot, head)
    std::int64_t key_block;            // from one key block to the next
    std::int64_t key_step;             // from one unit of dimensions to the next within a block
    std::int64_t value_step;           // from one unit of positions to the next

    CacheLayout(int head_dim, int capacity, DType type)
        : unit(type == DType::bf16 ? 2 : 1), dims((head_dim + kBlock - 1) / kBlock * kBlock),
          head(dims * capacity), key_block(dims * kBlock), key_step(kBlock * unit), value_step(dims * unit) {}

    std::int64_t key(std::int64_t position, std::int64_t d) const {
        return position / kBlock * key_block + d / unit * key_step + position % kBlock * unit + d % unit;
    }
    std::int64_t value(std::int64_t position, std::int64_t d) const {
        return position / unit * value_step + d * unit + position % unit;
    }
    std::int64_t head_offset(const KvCache& cache, int slot, int kv_head) const {
        return (static_cast<std::int64_t>(slot) * cache.n_kv_heads + kv_head) * head;
    }
};

inline CacheLayout layout_of(const KvCache& cache) { return {cache.head_dim, cache.capacity, cache.type}; }

}  // namespace forge
