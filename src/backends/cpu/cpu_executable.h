#pragma once

#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "backends/backend.h"
#include "barrier.h"
#include "base/page_memory.h"
#include "base/thread_pool.h"
#include "bind_launch.h"

namespace forge {

class CpuExecutable final : public Executable {
  public:
    CpuExecutable(const Program& program, std::span<const Weight> weights, std::shared_ptr<CpuCache> cache,
                  ThreadPool& pool, Isa isa);
    void submit(const StepRows& step) override;
    void wait() override {}
    std::span<const float> logits() const override;
    void set_timing(bool on) override { timing_ = on; }
    void on_layer(std::function<void(int)> fn) override { on_layer_ = std::move(fn); }
    std::span<const LaunchTime> timings() const override { return timings_; }
    std::uint64_t scratch_bytes() const override { return arena_.size() + scratch_.size(); }
    void write_arena(std::uint64_t offset, std::span<const std::byte> bytes) override { std::memcpy(arena_.data() + offset, bytes.data(), bytes.size()); }
    void read_arena(std::uint64_t offset, std::span<std::byte> bytes) const override { std::memcpy(bytes.data(), arena_.data() + offset, bytes.size()); }

  private:
    struct Entry {
        CpuKernel kernel;
        std::shared_ptr<const void> params;
        bool barrier, output_rows;
        int layer;
    };
    // One cache line each: threads take items of a launch here.
    struct alignas(64) Counter { std::atomic<std::int64_t> next{0}; };

    void work(int worker);

    ThreadPool& pool_;
    std::shared_ptr<CpuCache> cache_;
    std::vector<std::vector<float>> tables_;
    PageMemory arena_, scratch_;
    std::vector<Entry> entries_;
    std::vector<Counter> counters_;
    std::vector<CpuWorker> workers_;
    SpinBarrier barrier_;
    StepRows tokens_, outputs_;   // the step as token rows and as output rows
    const std::byte* logits_ = nullptr;
    DType logits_type_;
    mutable std::vector<float> converted_;   // of logits that are no floats
    std::int64_t vocab_ = 0;
    bool timing_ = false;
    std::function<void(int)> on_layer_;
    std::vector<LaunchTime> timings_;
};

}  // namespace forge
