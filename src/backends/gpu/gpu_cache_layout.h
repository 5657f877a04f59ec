// Where keys, values and recurrent states lie in one block of device memory.
//
//   keys, values   [slot][kv head][position][head_dim] of T, a layer after the other
//   states         as on the CPU: [slot][kernel - 1][channels] of T; [slot][value head][k_dim][v_dim] f32
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backends/program.h"
#include "base/dtype.h"

namespace forge::gpu {

class GpuCacheLayout {
  public:
    GpuCacheLayout(std::span<const CacheLayer> layers, int slots, int capacity, DType type);

    std::uint64_t bytes() const { return bytes_; }
    int capacity() const { return capacity_; }
    int slots() const { return slots_; }
    const CacheLayer& layer(int index) const { return layers_[static_cast<std::size_t>(index)]; }
    std::uint64_t keys(int layer) const { return at(layer).keys; }
    std::uint64_t values(int layer) const { return at(layer).values; }
    std::uint64_t conv(int layer) const { return at(layer).conv; }
    std::uint64_t delta(int layer) const { return at(layer).delta; }
    // One head's vector at a position.
    std::uint64_t vector_offset(int layer, bool values, int slot, int head, int position) const;
    std::size_t vector_bytes(int layer) const;

    // The parts of a slot's recurrent states, in the order of read_state().
    struct Part { std::uint64_t offset; std::size_t bytes; };
    std::vector<Part> state_parts(int slot) const;
    std::size_t state_bytes() const;

  private:
    struct Offsets { std::uint64_t keys = 0, values = 0, conv = 0, delta = 0; };
    const Offsets& at(int layer) const { return offsets_[static_cast<std::size_t>(layer)]; }
    std::size_t conv_bytes(const CacheLayer& l) const;

    std::vector<CacheLayer> layers_;
    std::vector<Offsets> offsets_;
    int slots_, capacity_;
    DType type_;
    std::uint64_t bytes_ = 0;
};

}  // namespace forge::gpu
