#include "gpu_cache_layout.h"

#include <algorithm>

namespace forge::gpu {
namespace {

// Offsets suit every load, and Metal's alignment of buffers.
std::uint64_t aligned(std::uint64_t bytes) { return (bytes + 255) / 256 * 256; }
std::size_t delta_bytes(const CacheLayer& l) {
    return 4 * static_cast<std::size_t>(l.n_v_heads) * static_cast<std::size_t>(l.k_dim) * static_cast<std::size_t>(l.v_dim);
}

}  // namespace

GpuCacheLayout::GpuCacheLayout(std::span<const CacheLayer> layers, int slots, int capacity, DType type)
    : layers_(layers.begin(), layers.end()), slots_(slots), capacity_(capacity), type_(type) {
    const auto take = [&](std::uint64_t bytes) {
        const std::uint64_t offset = bytes_;
        bytes_ += aligned(bytes);
        return offset;
    };
    for (const CacheLayer& l : layers_) {
        Offsets o;
        const std::uint64_t kv = static_cast<std::uint64_t>(slots) * static_cast<std::uint64_t>(l.n_kv_heads) * static_cast<std::uint64_t>(capacity) *
                                 static_cast<std::uint64_t>(l.head_dim) * size_of(type);
        if (kv > 0) {
            o.keys = take(kv);
            o.values = take(kv);
        }
        if (l.recurrent()) {
            o.conv = take(static_cast<std::uint64_t>(slots) * conv_bytes(l));
            o.delta = take(static_cast<std::uint64_t>(slots) * delta_bytes(l));
        }
        offsets_.push_back(o);
    }
}

std::size_t GpuCacheLayout::conv_bytes(const CacheLayer& l) const {
    return static_cast<std::size_t>(std::max(0, l.conv_kernel - 1)) * static_cast<std::size_t>(l.conv_channels()) * size_of(type_);
}

std::size_t GpuCacheLayout::vector_bytes(int index) const { return static_cast<std::size_t>(layer(index).head_dim) * size_of(type_); }

std::uint64_t GpuCacheLayout::vector_offset(int index, bool values, int slot, int head, int position) const {
    const CacheLayer& l = layer(index);
    const std::uint64_t row = (static_cast<std::uint64_t>(slot) * static_cast<std::uint64_t>(l.n_kv_heads) + static_cast<std::uint64_t>(head)) *
                                  static_cast<std::uint64_t>(capacity_) +
                              static_cast<std::uint64_t>(position);
    return (values ? at(index).values : at(index).keys) + row * vector_bytes(index);
}

std::vector<GpuCacheLayout::Part> GpuCacheLayout::state_parts(int slot) const {
    std::vector<Part> parts;
    for (std::size_t i = 0; i < layers_.size(); ++i) {
        if (!layers_[i].recurrent()) continue;
        const std::size_t conv = conv_bytes(layers_[i]), delta = delta_bytes(layers_[i]);
        parts.push_back({offsets_[i].conv + conv * static_cast<std::uint64_t>(slot), conv});
        parts.push_back({offsets_[i].delta + delta * static_cast<std::uint64_t>(slot), delta});
    }
    return parts;
}

std::size_t GpuCacheLayout::state_bytes() const {
    std::size_t total = 0;
    for (const Part& p : state_parts(0)) total += p.bytes;
    return total;
}

}  // namespace forge::gpu
