// What this machine can do at most, measured beside each benchmark: reading memory (the limit of
// decode) and multiplying (the limit of prefill).
#pragma once

#include <cstddef>
#include <memory>

#include "base/dtype.h"
#include "base/thread_pool.h"
#include "kernels/cpu_kernel.h"
#include "runtime/engine.h"

namespace forge::cli {

class MachineLimits {
  public:
    // Takes a buffer well beyond the caches: 512 MiB, or less on a small machine.
    MachineLimits(int threads, Isa isa);
    ~MachineLimits();

    // GB/s of all threads reading the buffer once, each as four streams (one stream leaves
    // bandwidth unused on many chips); the best of several passes.
    double read_gbps();
    // GFLOP/s of the widest multiply-add that a matmul with activations of this type may use,
    // on registers only; the best of several runs.
    double multiply_gflops(DType type);

  private:
    ThreadPool pool_;
    Isa isa_;
    std::size_t size_;
    std::unique_ptr<std::byte[]> memory_;
    std::byte* buffer_;
};

// Of the threads and the instruction set that the engine runs on. Null on a GPU: what the processor's cores read and
// multiply is no limit of one.
std::unique_ptr<MachineLimits> limits_of(const Engine& engine);

}  // namespace forge::cli
