#include "cuda_weights.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/progress.h"
#include "upload.h"

namespace forge::cuda {
namespace {

// One core copies slower than the bus.
constexpr std::size_t kPieceBytes = 4u << 20;
constexpr std::size_t kFillers = 8, kPlaces = 12;

struct Wanted { const std::byte* data; std::size_t bytes; std::uint64_t offset; bool first; };

void copy_all(const std::shared_ptr<GpuContext>& context, std::span<const Piece> pieces, std::uint64_t total) {
    if (pieces.empty()) return;
    context->use();
    const auto start = std::chrono::steady_clock::now();
    std::size_t largest = 0;
    for (const Piece& p : pieces) largest = std::max(largest, p.bytes);
    const std::size_t places = std::min(kPlaces, pieces.size()), fillers = std::clamp<std::size_t>(std::thread::hardware_concurrency(), 1, std::min(kFillers, places));
    const PinnedMemory staging(context, places * largest);
    Progress progress("weights to the GPU", total);
    upload(context->driver(), pieces, staging.data(), places, largest, fillers, [&](std::size_t bytes) { progress.advance(bytes); });
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    log_debug("{} of weights to the GPU in {:.2f} s, {:.1f} GB/s", format_bytes(total), seconds, static_cast<double>(total) / seconds / 1e9);
}

}  // namespace

std::future<void> Weights::upload(const gpu::GpuProgram& program, std::span<const Weight> weights) {
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
    std::promise<void> nothing;
    if (wanted.empty()) {
        nothing.set_value();
        return nothing.get_future();
    }
    blocks_.emplace_back(context_, total);
    const Pointer base = blocks_.back().at();
    std::vector<Piece> pieces;
    for (const Wanted& w : wanted) {
        if (w.first) planes_[w.data] = base + w.offset;
        for (std::size_t at = 0; at < w.bytes; at += kPieceBytes) pieces.push_back({w.data + at, std::min(kPieceBytes, w.bytes - at), base + w.offset + at});
    }
    return std::async(std::launch::async, [context = context_, pieces = std::move(pieces), total] { copy_all(context, pieces, total); });
}

Pointer Weights::plane(const Weight& weight, int plane) const {
    const auto it = planes_.find(gpu::plane_of(weight, plane).data);
    if (it == planes_.end()) fail(ErrorKind::internal, "{}: plane {} was not copied to the GPU", weight.name, plane);
    return it->second;
}

}  // namespace forge::cuda
