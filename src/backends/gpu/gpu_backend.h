// What backends of GPUs answer alike: how they want weights, what caches and lowered programs take.
#pragma once

#include "backends/backend.h"
#include "gpu_program.h"

namespace forge::gpu {

class GpuBackend : public Backend {
  public:
    WeightLayout layout() const final { return WeightLayout::rows; }
    std::uint64_t cache_bytes(std::span<const CacheLayer> layers, int slots, int capacity, DType type) const final {
        return GpuCacheLayout(layers, slots, capacity, type).bytes();
    }
    std::uint64_t packed_bytes(const Weight& weight, int rows, DType type) const final {
        return static_cast<std::uint64_t>(rows) * static_cast<std::uint64_t>(weight.cols) * size_of(type);
    }
    bool same_packing(const Weight&, const Weight&, DType) const final { return true; }
    bool plain_rows() const final { return true; }
    bool wide_fusions() const final { return true; }
    bool merges_parts() const final { return limits_.merge; }
    std::uint64_t attention_partial_bytes(int rows, int heads, int head_dim, int capacity, DType) const final {
        return gpu::attention_partial_bytes(rows, heads, head_dim, capacity);
    }
    std::uint64_t expert_packed_bytes(const Weight&, int, int, int, DType) const final { return 0; }   // products gather their rows
    std::uint64_t group_bytes(int experts, int per_token, int rows) const final { return 4 * gpu::group_table_words(experts, per_token, rows); }

    std::vector<LaunchVariants> variants(const Program& program, std::size_t launch, std::span<const Weight> weights, std::span<const CacheLayer> layers,
                                         int capacity) const final {
        return launch_variants(program, launch, weights, GpuCacheLayout(layers, 1, capacity, program.type), limits_);
    }

  protected:
    Limits limits_;
};

}  // namespace forge::gpu
