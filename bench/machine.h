// What this machine can do right now, measured beside a benchmark, because
// memory bandwidth on shared machines changes from minute to minute.
#pragma once

#include <cstddef>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/cpu_kernel.h"

namespace forge::bench {

// GB/s that `pool` reads from memory, four streams a thread (about 30 ms).
double read_bandwidth(ThreadPool& pool);
// GFLOP/s of the widest bf16 product, or of f32 multiply-adds where there is none (about 10 ms).
double peak_flops(ThreadPool& pool, Isa isa);

// Runs a kernel over the pool as the CPU backend does: items by an atomic counter, `grain` at a time.
class Launcher {
  public:
    explicit Launcher(ThreadPool& pool, std::size_t scratch);
    void run(const CpuKernel& kernel, const void* params, const StepRows& step);

  private:
    ThreadPool& pool_;
    std::vector<std::vector<std::byte>> memory_;
    std::vector<CpuWorker> workers_;
};

// True with FORGE_BENCH_BUSY=1, for a machine that others use too: one thread, and its own
// processor time instead of the clock, for benchmarks and for what they are compared with.
bool busy_machine();
double seconds_now();
// One thread on a busy machine, else one per core.
ThreadPool& pool();

}  // namespace forge::bench
