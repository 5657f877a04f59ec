// For models whose mapped weights do not fit in memory: while a layer computes, the next one is read from the disk, in
// one piece and not page by page as it is touched.
#pragma once

#include <cstddef>
#include <condition_variable>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "backends/program.h"
#include "quant/weight.h"

namespace forge {

class LayerReadAhead {
  public:
    // Experts are left to be read when they are chosen, as few of them are. The weights must outlive this.
    LayerReadAhead(const Program& program, std::span<const Weight> weights);
    ~LayerReadAhead();   // stops
    LayerReadAhead(const LayerReadAhead&) = delete;
    LayerReadAhead& operator=(const LayerReadAhead&) = delete;

    // A step is at `layer` now (as Executable::on_layer says): what comes after it is asked of the disk. Returns at once.
    void at_layer(int layer);
    // What is read when a step is at a layer, for tests: pieces of the next layer's weights, or of what follows the last.
    using Piece = std::span<const std::byte>;
    const std::vector<Piece>& after(int layer) const { return pieces_[index_of(layer + 1)]; }

  private:
    std::size_t index_of(int layer) const;
    void run();

    std::vector<std::vector<Piece>> pieces_;   // by layer; the last: what is in none
    std::mutex mutex_;
    std::condition_variable wake_;
    int wanted_ = -1;        // index into pieces_; -1: nothing
    bool stop_ = false;
    std::thread thread_;
};

}  // namespace forge
