// A barrier between the pool's threads inside one step.
#pragma once

#include <atomic>
#include <cstdint>

namespace forge {

// Spins, because launches of a decode step last microseconds; yields when the
// others do not come, because cores may be shared.
class SpinBarrier {
  public:
    explicit SpinBarrier(int threads) : threads_(threads) {}
    void wait();

  private:
    const int threads_;
    alignas(64) std::atomic<int> arrived_{0};
    alignas(64) std::atomic<std::uint32_t> phase_{0};
};

}  // namespace forge
