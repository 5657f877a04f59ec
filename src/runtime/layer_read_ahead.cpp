#include "layer_read_ahead.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "quant/tiles.h"

namespace forge {
namespace {

void add_planes(const Weight& w, std::vector<LayerReadAhead::Piece>& out) {
    // Tiles may have been made while loading, and lie in memory then: advice about that is harmless.
    const auto rows = static_cast<std::size_t>(w.tiled ? (w.rows + kTiledRows - 1) / kTiledRows : w.rows);
    if (rows == 0) return;
    for (const Plane* plane : {&w.codes, &w.codes_high, &w.scales, &w.offsets, &w.super_scales, &w.super_mins})
        if (plane->data) out.emplace_back(plane->data, plane->stride * rows);
}

}  // namespace

LayerReadAhead::LayerReadAhead(const Program& program, std::span<const Weight> weights) {
    int layers = 0;
    for (const Launch& launch : program.launches) layers = std::max(layers, launch.layer + 1);
    pieces_.resize(static_cast<std::size_t>(layers) + 1);
    for (const Launch& launch : program.launches) {
        if (launch.kernel == "embed" || launch.kernel.starts_with("expert_")) continue;
        for (const Operand& operand : launch.operands)
            if (operand.buffer.space == Space::weight && operand.name.starts_with("weight"))
                add_planes(weights[static_cast<std::size_t>(operand.buffer.index)], pieces_[index_of(launch.layer)]);
    }
    thread_ = std::thread([this] { run(); });
}

LayerReadAhead::~LayerReadAhead() {
    {
        std::lock_guard lock(mutex_);
        stop_ = true;
    }
    wake_.notify_one();
    thread_.join();
}

// Layers have their number; everything else comes last.
std::size_t LayerReadAhead::index_of(int layer) const {
    const std::size_t last = pieces_.size() - 1;
    return layer < 0 ? last : std::min(static_cast<std::size_t>(layer), last);
}

void LayerReadAhead::at_layer(int layer) {
    {
        std::lock_guard lock(mutex_);
        wanted_ = static_cast<int>(index_of(layer + 1));
    }
    wake_.notify_one();
}

void LayerReadAhead::run() {
    const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
    for (;;) {
        int wanted;
        {
            std::unique_lock lock(mutex_);
            wake_.wait(lock, [&] { return stop_ || wanted_ >= 0; });
            if (stop_) return;
            wanted = std::exchange(wanted_, -1);
        }
        for (const Piece& piece : pieces_[static_cast<std::size_t>(wanted)]) {
            const auto first = reinterpret_cast<std::uintptr_t>(piece.data()) / page * page;
            const auto last = reinterpret_cast<std::uintptr_t>(piece.data()) + piece.size();
            madvise(reinterpret_cast<void*>(first), last - first, MADV_WILLNEED);   // advice: failing is harmless
        }
    }
}

}  // namespace forge
