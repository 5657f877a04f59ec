#include "cpu_cache.h"

#include <fmt/format.h>

namespace forge {
namespace {

std::uint64_t aligned(std::uint64_t bytes) { return (bytes + 63) / 64 * 64; }
int rounded(int capacity) { return (capacity + 15) / 16 * 16; }

}  // namespace

std::uint64_t CpuCache::total_bytes(std::span<const CacheLayer> layers, int slots, int capacity, DType type) {
    std::uint64_t total = 0;
    for (const CacheLayer& l : layers)
        if (l.n_kv_heads > 0) total += 2 * aligned(kv_cache_bytes(rounded(capacity), slots, l.n_kv_heads, l.head_dim, type));
    return total;
}

// Pages are zero until written, so a long context costs memory only as it fills.
CpuCache::CpuCache(std::span<const CacheLayer> layers, int slots, int capacity, DType type)
    : memory_(total_bytes(layers, slots, capacity, type),
              fmt::format("the key/value cache of {} sequences of {} positions", slots, capacity)) {
    std::byte* next = memory_.data();
    for (const CacheLayer& l : layers) {
        KvCache cache;
        cache.capacity = rounded(capacity);
        cache.slots = slots;
        cache.n_kv_heads = l.n_kv_heads;
        cache.head_dim = l.head_dim;
        cache.type = type;
        if (l.n_kv_heads > 0) {
            const std::uint64_t bytes = aligned(kv_cache_bytes(cache.capacity, slots, l.n_kv_heads, l.head_dim, type));
            cache.keys = next;
            cache.values = next + bytes;
            next += 2 * bytes;
        }
        layers_.push_back(cache);
    }
}

void CpuCache::read(int layer, bool values, int slot, int head, int position, void* out) const {
    kv_read(layers_[static_cast<std::size_t>(layer)], values, slot, head, position, out);
}
void CpuCache::write(int layer, bool values, int slot, int head, int position, const void* in) {
    kv_write(layers_[static_cast<std::size_t>(layer)], values, slot, head, position, in);
}

}  // namespace forge
