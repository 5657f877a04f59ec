#include <algorithm>
#include <numeric>

#include "lower/lower.h"

namespace forge {

// Greedy by size: the largest buffer first, each at the lowest offset that is
// free for its whole lifetime.
std::uint64_t layout_arena(std::vector<ArenaBuffer>& buffers) {
    std::vector<std::size_t> order(buffers.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return buffers[a].bytes > buffers[b].bytes; });
    std::uint64_t total = 0;
    std::vector<std::size_t> placed;
    for (std::size_t i : order) {
        ArenaBuffer& buffer = buffers[i];
        std::vector<const ArenaBuffer*> live;
        for (std::size_t j : placed)
            if (buffers[j].first <= buffer.last && buffer.first <= buffers[j].last) live.push_back(&buffers[j]);
        std::sort(live.begin(), live.end(), [](auto* a, auto* b) { return a->offset < b->offset; });
        std::uint64_t offset = 0;
        for (const ArenaBuffer* other : live) {
            if (offset + buffer.bytes <= other->offset) break;
            offset = std::max(offset, (other->offset + other->bytes + 63) / 64 * 64);
        }
        buffer.offset = offset;
        total = std::max(total, offset + buffer.bytes);
        placed.push_back(i);
    }
    return (total + 63) / 64 * 64;
}

}  // namespace forge
