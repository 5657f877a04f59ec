// A program on the GPU: its launches with their arguments, replayed as one graph a step.
#pragma once

#include <map>
#include <tuple>

#include "backends/backend.h"
#include "cuda_cache.h"
#include "cuda_weights.h"

namespace forge::cuda {

// Each kernel once, with its machine code, which the disk cache has afterwards.
struct CompiledKernels {
    std::vector<gpu::Kernel> kernels;
    std::vector<std::vector<char>> code;
};
CompiledKernels compile_kernels(const GpuContext& context, std::span<const gpu::Kernel> kernels);

class CudaExecutable final : public Executable {
  public:
    CudaExecutable(std::shared_ptr<GpuContext> context, const Program& program, gpu::GpuProgram bound, std::span<const Weight> weights,
                   std::shared_ptr<Weights> uploaded, std::shared_ptr<CudaCache> cache);
    ~CudaExecutable() override;
    void submit(const StepRows& step) override;
    bool follow(const StepRows& first, std::int32_t limit, std::span<std::int32_t> picked) override;
    void wait() override;
    std::span<const float> logits() const override;
    void set_timing(bool on) override { timing_ = on; }
    std::span<const LaunchTime> timings() const override { return timings_; }
    StepCounts counts() const override { return counts_; }
    std::uint64_t scratch_bytes() const override { return arena_.bytes() + scratch_.bytes(); }
    void write_arena(std::uint64_t offset, std::span<const std::byte> bytes) override;
    void read_arena(std::uint64_t offset, std::span<std::byte> bytes) const override;

  private:
    StepCounts counts_;
    struct Call {
        Function function = nullptr;
        unsigned threads = 0, shared_bytes = 0;
        gpu::Grid grid;
        std::vector<Pointer> pointers;
        std::vector<void*> arguments;     // addresses of the pointers
    };
    struct CallVariant { int max_rows, positions; bool single; std::vector<Call> calls; };
    struct CallLaunch { std::vector<CallVariant> variants; bool output_rows; std::size_t source; std::vector<std::size_t> beside; };
    // Rows, outputs, parts of the cache, whether the device picks the next token: what a graph depends on.
    using GraphKey = std::tuple<int, int, int, bool>;

    void load_code(const gpu::GpuProgram& bound);
    Pointer address(const gpu::Buffer& buffer, std::span<const Weight> weights) const;
    Call make_call(const gpu::BoundKernel& kernel, std::span<const Weight> weights);
    // Copies the step in, runs every launch, copies the logits out: onto the stream, or into a graph being captured.
    // With `pick` nothing is copied, and the next token is picked.
    void enqueue(const StepRows& step, int parts, bool pick);
    void run(const StepRows& step, int parts, bool pick);
    // Parts of the cache up to a position, in powers of two: a graph serves until they double.
    int parts_to(int position) const;
    void copy_step();
    void copy_logits(int outputs);
    // Every kernel that runs in the step, up to position `longest`.
    template <typename Fn>
    void each_call(const StepRows& step, int longest, Fn&& fn) const;
    unsigned shared_part(const StepRows& step, int longest) const;
    // shared_part: of what threadgroup memory and L1 share, in percent; 0: as the driver likes.
    void launch(const Call& call, const StepRows& step, int parts, bool dependent, unsigned shared_part = 0);
    void run_timed(const StepRows& step);
    GraphExec graph(const StepRows& step, int parts, bool pick);

    std::shared_ptr<GpuContext> context_;
    std::shared_ptr<Weights> weights_;
    std::shared_ptr<CudaCache> cache_;
    std::vector<Module> modules_;
    std::map<std::string, Function> functions_;   // by entry point
    Memory arena_, scratch_, record_;
    std::vector<Memory> ropes_, constants_;
    PinnedMemory host_record_, host_logits_, host_picked_;
    std::vector<CallLaunch> launches_;
    std::vector<Call> pick_;
    std::uint64_t picked_offset_ = 0;
    std::map<GraphKey, GraphExec> graphs_;
    std::vector<Event> events_;
    std::vector<LaunchTime> timings_;
    BufferRef logits_;
    DType logits_type_;
    mutable std::vector<float> floats_;   // hidden states of 16-bit activations
    std::int64_t vocab_ = 0;
    int max_rows_ = 1, part_size_ = 0, outputs_ = 0;
    bool timing_ = false;
};

}  // namespace forge::cuda
