#include "lower/lower.h"

namespace forge {
namespace {

bool overlap(const BufferRef& a, const BufferRef& b) {
    if (a.space != b.space) return false;
    if (a.space != Space::arena) return a.index == b.index;
    return a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
}

bool mutable_space(Space space) { return space != Space::weight && space != Space::table; }

bool conflict(const Operand& later, const Operand& earlier) {
    if (later.access == Access::read && earlier.access == Access::read) return false;
    return mutable_space(later.buffer.space) && overlap(later.buffer, earlier.buffer);
}

}  // namespace

void place_barriers(std::vector<Launch>& launches) {
    std::size_t segment = 0;  // first launch since the last barrier
    for (std::size_t i = 0; i < launches.size(); ++i) {
        bool barrier = false;
        for (std::size_t j = segment; j < i && !barrier; ++j)
            for (const Operand& later : launches[i].operands)
                for (const Operand& earlier : launches[j].operands) barrier = barrier || conflict(later, earlier);
        launches[i].barrier = barrier;
        if (barrier) segment = i;
    }
}

}  // namespace forge
