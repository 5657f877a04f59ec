#pragma once

#include <vector>

#include "backends/backend.h"
#include "base/page_memory.h"
#include "kernels/attention/attention.h"
#include "kernels/delta/delta.h"

namespace forge {

class CpuCache final : public Cache {
  public:
    CpuCache(std::span<const CacheLayer> layers, int slots, int capacity, DType type);
    std::uint64_t bytes() const override { return memory_.size(); }
    void read(int layer, bool values, int slot, int head, int position, void* out) const override;
    void write(int layer, bool values, int slot, int head, int position, const void* in) override;
    std::size_t state_bytes() const override;
    void read_state(int slot, std::byte* out) const override;
    void write_state(int slot, const std::byte* in) override;
    const KvCache& layer(int index) const { return layers_[static_cast<std::size_t>(index)]; }
    const DeltaState& state(int index) const { return states_[static_cast<std::size_t>(index)]; }

    static std::uint64_t total_bytes(std::span<const CacheLayer> layers, int slots, int capacity, DType type);

  private:
    std::vector<KvCache> layers_;
    std::vector<DeltaState> states_;
    PageMemory memory_;
};

}  // namespace forge
