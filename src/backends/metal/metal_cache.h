#pragma once

#include <cstring>

#include "backends/backend.h"
#include "gpu_cache_layout.h"
#include "metal_api.h"

namespace forge::metal {

// Memory is shared with the host, so reading and writing are copies.
class MetalCache final : public Cache {
  public:
    MetalCache(Device& device, const gpu::GpuCacheLayout& layout) : layout_(layout), memory_(device.allocate(layout.bytes(), "cache")) {
        device.make_resident({&memory_, 1});
    }
    std::uint64_t bytes() const override { return layout_.bytes(); }
    void read(int layer, bool values, int slot, int head, int position, void* out) const override {
        std::memcpy(out, memory_->contents() + layout_.vector_offset(layer, values, slot, head, position), layout_.vector_bytes(layer));
    }
    void write(int layer, bool values, int slot, int head, int position, const void* in) override {
        std::memcpy(memory_->contents() + layout_.vector_offset(layer, values, slot, head, position), in, layout_.vector_bytes(layer));
    }
    std::size_t state_bytes() const override { return layout_.state_bytes(); }
    void read_state(int slot, std::byte* out) const override {
        for (const auto& part : layout_.state_parts(slot)) {
            std::memcpy(out, memory_->contents() + part.offset, part.bytes);
            out += part.bytes;
        }
    }
    void write_state(int slot, const std::byte* in) override {
        for (const auto& part : layout_.state_parts(slot)) {
            std::memcpy(memory_->contents() + part.offset, in, part.bytes);
            in += part.bytes;
        }
    }
    const gpu::GpuCacheLayout& layout() const { return layout_; }
    const Buffer* buffer() const { return memory_.get(); }

  private:
    gpu::GpuCacheLayout layout_;
    std::shared_ptr<Buffer> memory_;
};

}  // namespace forge::metal
