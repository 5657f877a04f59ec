#include "cuda_cache.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <vector>

namespace forge::cuda {

namespace {

// A prompt leaves three snapshots; a sequence keeps up to 512 MiB of them.
constexpr std::size_t kFirstStates = 3, kStateBytes = 512u << 20;

std::shared_ptr<StatePool> pool_of(const std::shared_ptr<GpuContext>& context, std::size_t bytes) {
    if (bytes == 0) return nullptr;
    const auto pin = [context, bytes, pinned = std::make_shared<std::vector<PinnedMemory>>()]() -> std::byte* {
        try {
            pinned->emplace_back(context, bytes);
        } catch (const std::exception&) {   // a host may not let more be pinned
            return nullptr;
        }
        return pinned->back().data();
    };
    return std::make_shared<StatePool>(pin, kFirstStates, std::max(kStateBytes / bytes, kFirstStates));
}

}  // namespace

CudaCache::CudaCache(std::shared_ptr<GpuContext> context, const gpu::GpuCacheLayout& layout)
    : context_(std::move(context)), layout_(layout), memory_(context_, layout.bytes()), states_(pool_of(context_, layout.state_bytes())) {
    check(context_->driver().fill8(memory_.at(), 0, memory_.bytes(), context_->stream()), "clear the cache");
    context_->synchronize();
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
