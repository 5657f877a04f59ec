#include "cuda_weights.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/progress.h"

namespace forge::cuda {
namespace {

constexpr std::size_t kStaging = 32u << 20;

struct Wanted { const std::byte* data; std::size_t bytes; std::uint64_t offset; bool first; };

}  // namespace

void Weights::upload(const gpu::GpuProgram& program, std::span<const Weight> weights) {
    std::vector<Wanted> wanted;
    std::uint64_t total = 0;
    gpu::for_each_plane(program, weights, [&](std::span<const Weight> stacked, int plane) {
        const std::byte* data = gpu::plane_of(stacked[0], plane).data;
        if (planes_.count(data)) return;
        planes_[data] = 0;
        for (const Weight& w : stacked) {
            wanted.push_back({gpu::plane_of(w, plane).data, gpu::plane_bytes(w, plane), total, &w == &stacked[0]});
            total += stacked.size() > 1 ? gpu::expert_stride(w, plane) : wanted.back().bytes;
        }
        total = (total + 255) / 256 * 256;
    });
    if (wanted.empty()) return;
    blocks_.emplace_back(context_, total);
    const Pointer base = blocks_.back().at();
    PinnedMemory staging[2] = {PinnedMemory(context_, kStaging), PinnedMemory(context_, kStaging)};
    Event copied[2] = {};
    const Driver& d = context_->driver();
    for (Event& e : copied) check(d.event_create(&e, 0), "make an event");
    Progress progress("weights to the GPU", total);
    int turn = 0;
    for (const Wanted& w : wanted) {
        if (w.first) planes_[w.data] = base + w.offset;
        for (std::size_t at = 0; at < w.bytes; at += kStaging, turn ^= 1) {
            const std::size_t n = std::min(kStaging, w.bytes - at);
            // This half is free once its last copy is done; the other one may still be under way.
            check(d.event_synchronize(copied[turn]), "copy weights");
            std::memcpy(staging[turn].data(), w.data + at, n);
            check(d.to_device(base + w.offset + at, staging[turn].data(), n, context_->stream()), "copy weights");
            check(d.event_record(copied[turn], context_->stream()), "copy weights");
            progress.advance(n);
        }
    }
    context_->synchronize();
    for (Event& e : copied) d.event_destroy(e);
}

Pointer Weights::plane(const Weight& weight, int plane) const {
    const auto it = planes_.find(gpu::plane_of(weight, plane).data);
    if (it == planes_.end()) fail(ErrorKind::internal, "{}: plane {} was not copied to the GPU", weight.name, plane);
    return it->second;
}

}  // namespace forge::cuda
