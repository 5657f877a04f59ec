#include "cpu_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace forge {
namespace {

std::uint64_t aligned(std::uint64_t bytes) { return (bytes + 63) / 64 * 64; }
int rounded(int capacity) { return (capacity + 15) / 16 * 16; }

// Bytes of one slot's recurrent state.
std::uint64_t conv_bytes(const CacheLayer& l, DType type) {
    return static_cast<std::uint64_t>(std::max(0, l.conv_kernel - 1)) * static_cast<std::uint64_t>(l.conv_channels()) * size_of(type);
}
std::uint64_t delta_bytes(const CacheLayer& l) {
    return 4ull * static_cast<std::uint64_t>(l.n_v_heads) * static_cast<std::uint64_t>(l.k_dim) * static_cast<std::uint64_t>(l.v_dim);
}
std::uint64_t conv_bytes(const DeltaState& s) {
    return static_cast<std::uint64_t>(s.kernel - 1) * static_cast<std::uint64_t>(s.channels) * size_of(s.type);
}
std::uint64_t delta_bytes(const DeltaState& s) {
    return 4ull * static_cast<std::uint64_t>(s.n_v_heads) * static_cast<std::uint64_t>(s.k_dim) * static_cast<std::uint64_t>(s.v_dim);
}

}  // namespace

std::uint64_t CpuCache::total_bytes(std::span<const CacheLayer> layers, int slots, int capacity, DType type) {
    std::uint64_t total = 0;
    for (const CacheLayer& l : layers)
        if (l.n_kv_heads > 0) total += 2 * aligned(kv_cache_bytes(rounded(capacity), slots, l.n_kv_heads, l.head_dim, type));
        else if (l.recurrent()) total += aligned(static_cast<std::uint64_t>(slots) * conv_bytes(l, type)) + aligned(static_cast<std::uint64_t>(slots) * delta_bytes(l));
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
        DeltaState state;
        if (l.recurrent()) {
            state.slots = slots;
            state.kernel = l.conv_kernel;
            state.channels = l.conv_channels();
            state.n_k_heads = l.n_k_heads;
            state.n_v_heads = l.n_v_heads;
            state.k_dim = l.k_dim;
            state.v_dim = l.v_dim;
            state.type = type;
            state.conv = next;
            next += aligned(static_cast<std::uint64_t>(slots) * conv_bytes(l, type));
            state.state = reinterpret_cast<float*>(next);
            next += aligned(static_cast<std::uint64_t>(slots) * delta_bytes(l));
        }
        states_.push_back(state);
    }
}

void CpuCache::read(int layer, bool values, int slot, int head, int position, void* out) const {
    kv_read(layers_[static_cast<std::size_t>(layer)], values, slot, head, position, out);
}
void CpuCache::write(int layer, bool values, int slot, int head, int position, const void* in) {
    kv_write(layers_[static_cast<std::size_t>(layer)], values, slot, head, position, in);
}

std::size_t CpuCache::state_bytes() const {
    std::size_t total = 0;
    for (const DeltaState& s : states_)
        if (s.slots > 0) total += conv_bytes(s) + delta_bytes(s);
    return total;
}

void CpuCache::read_state(int slot, std::byte* out) const {
    for (const DeltaState& s : states_) {
        if (s.slots == 0) continue;
        const std::uint64_t conv = conv_bytes(s), delta = delta_bytes(s);
        std::memcpy(out, static_cast<const std::byte*>(s.conv) + conv * static_cast<std::uint64_t>(slot), conv);
        std::memcpy(out + conv, reinterpret_cast<const std::byte*>(s.state) + delta * static_cast<std::uint64_t>(slot), delta);
        out += conv + delta;
    }
}

void CpuCache::write_state(int slot, const std::byte* in) {
    for (const DeltaState& s : states_) {
        if (s.slots == 0) continue;
        const std::uint64_t conv = conv_bytes(s), delta = delta_bytes(s);
        std::memcpy(static_cast<std::byte*>(s.conv) + conv * static_cast<std::uint64_t>(slot), in, conv);
        std::memcpy(reinterpret_cast<std::byte*>(s.state) + delta * static_cast<std::uint64_t>(slot), in + conv, delta);
        in += conv + delta;
    }
}

}  // namespace forge
