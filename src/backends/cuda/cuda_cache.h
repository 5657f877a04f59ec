#pragma once

#include <memory>

#include "backends/backend.h"
#include "cuda_device.h"
#include "gpu_cache_layout.h"
#include "state_pool.h"

namespace forge::cuda {

class CudaCache final : public Cache {
  public:
    CudaCache(std::shared_ptr<GpuContext> context, const gpu::GpuCacheLayout& layout);
    std::uint64_t bytes() const override { return memory_.bytes(); }
    void read(int layer, bool values, int slot, int head, int position, void* out) const override;
    void write(int layer, bool values, int slot, int head, int position, const void* in) override;
    void read_run(int layer, bool values, int slot, int head, int first, int last, std::byte* out, std::size_t stride) const override;
    void write_run(int layer, bool values, int slot, int head, int first, int last, const std::byte* in, std::size_t stride) override;
    std::size_t state_bytes() const override { return layout_.state_bytes(); }
    std::shared_ptr<std::byte[]> state_memory() const override;
    void read_state(int slot, std::byte* out) const override;
    void write_state(int slot, const std::byte* in) override;
    const gpu::GpuCacheLayout& layout() const { return layout_; }
    Pointer at(std::uint64_t offset) const { return memory_.at(offset); }

  private:
    std::shared_ptr<GpuContext> context_;
    gpu::GpuCacheLayout layout_;
    Memory memory_;
    std::shared_ptr<StatePool> states_;   // pinned, which takes as long as a state's copy to other memory; null without recurrent states
};

}  // namespace forge::cuda
