#include "barrier.h"

#include <thread>

namespace forge {

void SpinBarrier::wait() {
    if (threads_ == 1) return;
    const std::uint32_t phase = phase_.load(std::memory_order_acquire);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) == threads_ - 1) {
        arrived_.store(0, std::memory_order_relaxed);
        phase_.store(phase + 1, std::memory_order_release);
        return;
    }
    for (int spin = 0; phase_.load(std::memory_order_acquire) == phase; ++spin) {
        if (spin > 4000) {
            std::this_thread::yield();
            continue;
        }
#if defined(__x86_64__)
        __builtin_ia32_pause();
#elif defined(__aarch64__)
        asm volatile("yield");
#endif
    }
}

}  // namespace forge
