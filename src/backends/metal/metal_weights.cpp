#include "metal_weights.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/log.h"
#include "base/progress.h"

namespace forge::metal {
namespace {

// Planes below this are not worth a mapping; they often lie on the heap.
constexpr std::size_t kMapped = 256 * 1024;
// Stretches with a gap below this are one buffer.
constexpr std::size_t kGap = 4u << 20;

}  // namespace

void Weights::bind(const gpu::GpuProgram& program, std::span<const Weight> weights) {
    std::vector<Range> to_map, to_copy;
    gpu::for_each_plane(program, weights, [&](std::span<const Weight> stacked, int plane) {
        const Weight& w = stacked[0];
        const std::byte* data = gpu::plane_of(w, plane).data;
        if (!planes_.emplace(data, Binding{nullptr, 0}).second) return;
        std::size_t bytes = gpu::plane_bytes(w, plane);
        if (stacked.size() > 1) {   // experts that follow each other in memory are bound as one
            const std::size_t stride = gpu::expert_stride(w, plane);
            for (std::size_t e = 0; e < stacked.size(); ++e)
                if (gpu::plane_of(stacked[e], plane).data != data + e * stride) return stack(stacked, plane);
            bytes = (stacked.size() - 1) * stride + bytes;
        }
        const bool aligned = reinterpret_cast<std::uintptr_t>(data) % 16 == 0;
        if (!aligned && bytes >= kMapped) log_info("{}: {} are copied for the GPU, because they are not aligned", w.name, format_bytes(bytes));
        (aligned && bytes >= kMapped ? to_map : to_copy).push_back({data, data + bytes});
    });
    map(std::move(to_map));
    copy(to_copy);
}

// Neighbours share a buffer of whole pages.
void Weights::map(std::vector<Range> ranges) {
    std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.low < b.low; });
    const std::uintptr_t page = page_bytes();
    for (std::size_t i = 0; i < ranges.size();) {
        const std::uintptr_t low = reinterpret_cast<std::uintptr_t>(ranges[i].low) / page * page;
        std::uintptr_t high = low;
        std::size_t end = i;
        for (; end < ranges.size(); ++end) {
            const auto from = reinterpret_cast<std::uintptr_t>(ranges[end].low);
            const std::uintptr_t to = (reinterpret_cast<std::uintptr_t>(ranges[end].high) + page - 1) / page * page;
            if (end > i && (from > high + kGap || std::max(high, to) - low > device_->info().buffer_bytes)) break;
            high = std::max(high, to);
        }
        if (high - low > device_->info().buffer_bytes)
            fail(ErrorKind::out_of_memory, "a weight of {} does not fit a GPU buffer, which takes {}", format_bytes(high - low), format_bytes(device_->info().buffer_bytes));
        buffers_.push_back(device_->wrap(reinterpret_cast<const std::byte*>(low), high - low, "weights"));
        mapped_ += high - low;
        for (; i < end; ++i) planes_[ranges[i].low] = {buffers_.back().get(), reinterpret_cast<std::uintptr_t>(ranges[i].low) - low};
        device_->make_resident({&buffers_.back(), 1});
    }
}

void Weights::copy(const std::vector<Range>& ranges) {
    std::size_t total = 0;
    for (const Range& r : ranges) total += (static_cast<std::size_t>(r.high - r.low) + 255) / 256 * 256;
    if (total == 0) return;
    buffers_.push_back(device_->allocate(total, "weights"));
    std::size_t at = 0;
    for (const Range& r : ranges) {
        const auto bytes = static_cast<std::size_t>(r.high - r.low);
        std::memcpy(buffers_.back()->contents() + at, r.low, bytes);
        planes_[r.low] = {buffers_.back().get(), at};
        at += (bytes + 255) / 256 * 256;
    }
    copied_ += total;
    device_->make_resident({&buffers_.back(), 1});
}

// Experts that do not lie one after the other: copied so.
void Weights::stack(std::span<const Weight> stacked, int plane) {
    const std::size_t stride = gpu::expert_stride(stacked[0], plane);
    buffers_.push_back(device_->allocate(stride * stacked.size(), "weights"));
    for (std::size_t e = 0; e < stacked.size(); ++e)
        std::memcpy(buffers_.back()->contents() + e * stride, gpu::plane_of(stacked[e], plane).data, gpu::plane_bytes(stacked[e], plane));
    planes_[gpu::plane_of(stacked[0], plane).data] = {buffers_.back().get(), 0};
    copied_ += stride * stacked.size();
    device_->make_resident({&buffers_.back(), 1});
}

Binding Weights::plane(const Weight& weight, int plane) const {
    const auto it = planes_.find(gpu::plane_of(weight, plane).data);
    if (it == planes_.end() || !it->second.buffer) fail(ErrorKind::internal, "{}: plane {} was not bound to the GPU", weight.name, plane);
    return it->second;
}

}  // namespace forge::metal
