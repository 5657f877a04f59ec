#include "cuda_cache.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <mutex>
#include <vector>

namespace forge::cuda {

// What is handed out keeps the pool, and comes back to it.
class StatePool : public std::enable_shared_from_this<StatePool> {
  public:
    StatePool(std::shared_ptr<GpuContext> context, std::size_t bytes) : context_(std::move(context)), bytes_(bytes), most_(std::max<std::size_t>(kMostBytes / bytes, kFirst)) {
        memory_.reserve(most_);
        free_.reserve(most_);
        for (std::size_t i = 0; i < kFirst && grow(); ++i) {}
    }
    // Null when there is no more to be had.
    std::shared_ptr<std::byte[]> take() {
        std::lock_guard lock(mutex_);
        if (free_.empty() && !grow()) return nullptr;
        std::byte* const state = free_.back();
        free_.pop_back();
        return {state, [pool = shared_from_this()](std::byte* p) {
                    std::lock_guard again(pool->mutex_);
                    pool->free_.push_back(p);   // has room for all
                }};
    }

  private:
    // A prompt leaves three snapshots; a sequence keeps up to 512 MiB of them.
    static constexpr std::size_t kFirst = 3, kMostBytes = 512u << 20;

    bool grow() {
        if (memory_.size() == most_) return false;
        try {
            memory_.emplace_back(context_, bytes_);
        } catch (const std::exception&) {   // a host may not let more be pinned
            return false;
        }
        free_.push_back(memory_.back().data());
        return true;
    }

    std::shared_ptr<GpuContext> context_;
    std::size_t bytes_, most_;
    std::mutex mutex_;
    std::vector<PinnedMemory> memory_;
    std::vector<std::byte*> free_;
};

CudaCache::CudaCache(std::shared_ptr<GpuContext> context, const gpu::GpuCacheLayout& layout)
    : context_(std::move(context)), layout_(layout), memory_(context_, layout.bytes()) {
    check(context_->driver().fill8(memory_.at(), 0, memory_.bytes(), context_->stream()), "clear the cache");
    context_->synchronize();
    if (layout_.state_bytes() > 0) states_ = std::make_shared<StatePool>(context_, layout_.state_bytes());
}

void CudaCache::read(int layer, bool values, int slot, int head, int position, void* out) const {
    context_->use();
    check(context_->driver().to_host(out, at(layout_.vector_offset(layer, values, slot, head, position)), layout_.vector_bytes(layer), context_->stream()),
          "read the cache");
    context_->synchronize();
}

void CudaCache::write(int layer, bool values, int slot, int head, int position, const void* in) {
    context_->use();
    check(context_->driver().to_device(at(layout_.vector_offset(layer, values, slot, head, position)), in, layout_.vector_bytes(layer), context_->stream()),
          "write the cache");
    context_->synchronize();
}

// Positions of a head lie one after the other on the device: one copy, not one a position.
void CudaCache::read_run(int layer, bool values, int slot, int head, int first, int last, std::byte* out, std::size_t stride) const {
    if (first >= last) return;
    const std::size_t size = layout_.vector_bytes(layer), count = static_cast<std::size_t>(last - first);
    std::vector<std::byte> run(count * size);
    context_->use();
    check(context_->driver().to_host(run.data(), at(layout_.vector_offset(layer, values, slot, head, first)), run.size(), context_->stream()), "read the cache");
    context_->synchronize();
    for (std::size_t i = 0; i < count; ++i) std::memcpy(out + i * stride, run.data() + i * size, size);
}

void CudaCache::write_run(int layer, bool values, int slot, int head, int first, int last, const std::byte* in, std::size_t stride) {
    if (first >= last) return;
    const std::size_t size = layout_.vector_bytes(layer), count = static_cast<std::size_t>(last - first);
    std::vector<std::byte> run(count * size);
    for (std::size_t i = 0; i < count; ++i) std::memcpy(run.data() + i * size, in + i * stride, size);
    context_->use();
    check(context_->driver().to_device(at(layout_.vector_offset(layer, values, slot, head, first)), run.data(), run.size(), context_->stream()), "write the cache");
    context_->synchronize();
}

std::shared_ptr<std::byte[]> CudaCache::state_memory() const {
    std::shared_ptr<std::byte[]> memory = states_ ? states_->take() : nullptr;
    return memory ? memory : Cache::state_memory();
}

void CudaCache::read_state(int slot, std::byte* out) const {
    context_->use();
    for (const auto& part : layout_.state_parts(slot)) {
        check(context_->driver().to_host(out, at(part.offset), part.bytes, context_->stream()), "read a state");
        out += part.bytes;
    }
    context_->synchronize();
}

void CudaCache::write_state(int slot, const std::byte* in) {
    context_->use();
    for (const auto& part : layout_.state_parts(slot)) {
        check(context_->driver().to_device(at(part.offset), in, part.bytes, context_->stream()), "write a state");
        in += part.bytes;
    }
    context_->synchronize();
}

}  // namespace forge::cuda
