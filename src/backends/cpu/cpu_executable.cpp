#include "cpu_executable.h"

#include <algorithm>
#include <chrono>

#include "base/float16.h"

namespace forge {

CpuExecutable::CpuExecutable(const Program& program, std::span<const Weight> weights, std::shared_ptr<CpuCache> cache,
                             ThreadPool& pool, Isa isa)
    : pool_(pool), cache_(std::move(cache)), tables_(program.tables), arena_(program.arena_bytes, "activations"),
      counters_(program.launches.size()), barrier_(pool.size()), logits_type_(program.logits_type), vocab_(program.vocab) {
    const BindContext context{isa, program, weights, *cache_, arena_.data(), tables_};
    std::size_t scratch = 64;
    for (const Launch& launch : program.launches) {
        BoundLaunch b = bind_launch(launch, context);
        scratch = std::max(scratch, b.kernel.scratch);
        entries_.push_back({b.kernel, std::move(b.params), launch.barrier, launch.output_rows, launch.layer});
    }
    scratch = (scratch + 4095) / 4096 * 4096;
    scratch_ = PageMemory(scratch * static_cast<std::size_t>(pool.size()), "kernel scratch");
    for (int i = 0; i < pool.size(); ++i)
        workers_.push_back({i, {scratch_.data() + scratch * static_cast<std::size_t>(i), scratch}, 0});
    logits_ = arena_.data() + program.logits.offset;
    if (logits_type_ != DType::f32) converted_.resize(static_cast<std::size_t>(program.max_outputs) * static_cast<std::size_t>(vocab_));
    timings_.reserve(entries_.size());
}

void CpuExecutable::submit(const StepRows& step) {
    tokens_ = step;
    outputs_ = step;
    outputs_.m = step.outputs;
    for (Counter& counter : counters_) counter.next.store(0, std::memory_order_relaxed);
    for (CpuWorker& worker : workers_) worker.tag = 0;
    timings_.clear();
    pool_.run([](void* self, int worker) { static_cast<CpuExecutable*>(self)->work(worker); }, this);
}

void CpuExecutable::work(int index) {
    using Clock = std::chrono::steady_clock;
    CpuWorker& worker = workers_[static_cast<std::size_t>(index)];
    const bool timing = timing_, tells_layers = index == 0 && on_layer_;
    int layer = -2;
    for (std::size_t i = 0; i < entries_.size(); ++i) {
        const Entry& entry = entries_[i];
        if (tells_layers && entry.layer != layer) on_layer_(layer = entry.layer);
        // From the end of the launch before: a worker that is held up at the barrier would find the work done by the others.
        if (timing && i == 0) barrier_.wait();
        const Clock::time_point start = timing ? Clock::now() : Clock::time_point{};
        if (entry.barrier || (timing && i > 0)) barrier_.wait();
        const StepRows& rows = entry.output_rows ? outputs_ : tokens_;
        const std::int64_t count = entry.kernel.items(entry.params.get(), rows), grain = entry.kernel.grain;
        std::atomic<std::int64_t>& next = counters_[i].next;
        for (std::int64_t first; (first = next.fetch_add(grain, std::memory_order_relaxed)) < count;)
            entry.kernel.fn(entry.params.get(), rows, first, std::min(count, first + grain), worker);
        if (timing) {
            barrier_.wait();
            if (index == 0) timings_.push_back({i, std::chrono::duration<double>(Clock::now() - start).count()});
        }
    }
}

std::span<const float> CpuExecutable::logits() const {
    const std::size_t count = static_cast<std::size_t>(tokens_.outputs) * static_cast<std::size_t>(vocab_);
    if (logits_type_ == DType::f32) return {reinterpret_cast<const float*>(logits_), count};
    const auto* bits = reinterpret_cast<const std::uint16_t*>(logits_);
    for (std::size_t i = 0; i < count; ++i) converted_[i] = logits_type_ == DType::bf16 ? bf16_to_f32(bits[i]) : f16_to_f32(bits[i]);
    return {converted_.data(), count};
}

}  // namespace forge
