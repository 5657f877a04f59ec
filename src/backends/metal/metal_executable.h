// A program on an Apple GPU: one command buffer a step, one concurrent encoder, barriers only where the program has
// them.
#pragma once

#include <cstring>

#include "backends/backend.h"
#include "metal_cache.h"
#include "metal_weights.h"

namespace forge::metal {

class MetalExecutable final : public Executable {
  public:
    MetalExecutable(std::shared_ptr<Device> device, const Program& program, const gpu::GpuProgram& bound, std::span<const Weight> weights,
                    std::shared_ptr<Weights> mapped, std::shared_ptr<MetalCache> cache);
    void submit(const StepRows& step) override;
    bool follow(const StepRows& first, std::int32_t limit, std::span<std::int32_t> picked) override;
    void wait() override;
    std::span<const float> logits() const override;
    void set_timing(bool on) override { timing_ = on; }
    std::span<const LaunchTime> timings() const override { return timings_; }
    StepCounts counts() const override { return counts_; }
    std::uint64_t scratch_bytes() const override { return arena_->bytes() + scratch_->bytes(); }
    void write_arena(std::uint64_t offset, std::span<const std::byte> bytes) override { std::memcpy(arena_->contents() + offset, bytes.data(), bytes.size()); }
    void read_arena(std::uint64_t offset, std::span<std::byte> bytes) const override { std::memcpy(bytes.data(), arena_->contents() + offset, bytes.size()); }

  private:
    StepCounts counts_;
    struct Call {
        std::shared_ptr<Pipeline> pipeline;
        std::vector<Binding> bindings;
        gpu::Grid grid;
        unsigned threads;
    };
    struct CallVariant { int max_rows, positions; bool single; std::vector<Call> calls; };
    struct CallLaunch { std::vector<CallVariant> variants; bool barrier, output_rows; std::size_t source; std::vector<std::size_t> beside; };

    Binding binding(const gpu::Buffer& buffer, std::span<const Weight> weights) const;
    void encode(const CallLaunch& launch, const StepRows& step);
    void finish();
    void encode(const Call& call, const StepRows& step, bool barrier);
    Call make_call(const gpu::BoundKernel& kernel, const std::map<std::string, std::shared_ptr<Pipeline>>& pipelines, std::span<const Weight> weights) const;

    std::shared_ptr<Device> device_;
    std::shared_ptr<Weights> weights_;
    std::shared_ptr<MetalCache> cache_;
    std::shared_ptr<Buffer> arena_, scratch_, record_;
    std::vector<std::shared_ptr<Buffer>> ropes_, constants_;
    std::vector<CallLaunch> launches_;
    std::vector<Call> pick_;
    std::uint64_t picked_offset_;
    std::vector<LaunchTime> timings_;
    BufferRef logits_;
    DType logits_type_;
    mutable std::vector<float> floats_;   // hidden states of 16-bit activations
    std::int64_t vocab_;
    int max_rows_, outputs_ = 0;
    bool timing_ = false, running_ = false;
};

}  // namespace forge::metal
