#include "backends/outline.h"

#include "base/error.h"
#include "gpu_backend.h"

namespace forge {
namespace {

[[noreturn]] void refuse() { fail(ErrorKind::internal, "this program is an outline: it can be counted, not run"); }

class OutlineCache final : public Cache {
  public:
    explicit OutlineCache(gpu::GpuCacheLayout layout) : layout_(std::move(layout)) {}
    std::uint64_t bytes() const override { return layout_.bytes(); }
    void read(int, bool, int, int, int, void*) const override { refuse(); }
    void write(int, bool, int, int, int, const void*) override { refuse(); }
    std::size_t state_bytes() const override { return layout_.state_bytes(); }
    void read_state(int, std::byte*) const override { refuse(); }
    void write_state(int, const std::byte*) override { refuse(); }
    const gpu::GpuCacheLayout& layout() const { return layout_; }

  private:
    gpu::GpuCacheLayout layout_;
};

class OutlineExecutable final : public Executable {
  public:
    OutlineExecutable(const Program& program, const gpu::GpuProgram& bound)
        : counts_(bound.counts()), scratch_(program.arena_bytes + bound.scratch_bytes) {}
    void submit(const StepRows&) override { refuse(); }
    void wait() override {}
    std::span<const float> logits() const override { refuse(); }
    void set_timing(bool) override {}
    void write_arena(std::uint64_t, std::span<const std::byte>) override { refuse(); }
    void read_arena(std::uint64_t, std::span<std::byte>) const override { refuse(); }
    std::span<const LaunchTime> timings() const override { return {}; }
    std::uint64_t scratch_bytes() const override { return scratch_; }
    StepCounts counts() const override { return counts_; }

  private:
    StepCounts counts_;
    std::uint64_t scratch_;
};

class OutlineBackend final : public gpu::GpuBackend {
  public:
    explicit OutlineBackend(OutlineTarget target) : target_(target) {
        if (target == OutlineTarget::metal) {
            limits_.tensor = gpu::Tensor::simdgroup;
            return;
        }
        limits_.tensor = gpu::Tensor::wgmma;
        limits_.wide = true;
        limits_.merge = false;
        limits_.cores = 132;
    }
    BackendLimits limits() const override {
        return {target_ == OutlineTarget::metal ? "Metal, counted without a GPU" : "CUDA, counted without a GPU", 1, 0, target_ == OutlineTarget::metal ? 512 : 2048};
    }
    bool runs() const override { return false; }
    std::shared_ptr<Cache> create_cache(std::span<const CacheLayer> layers, int slots, int capacity, DType type) override {
        return std::make_shared<OutlineCache>(gpu::GpuCacheLayout(layers, slots, capacity, type));
    }
    std::unique_ptr<Executable> compile(const Program& program, std::span<const Weight> weights, std::shared_ptr<Cache> cache) override {
        const auto own = std::static_pointer_cast<OutlineCache>(std::move(cache));
        return std::make_unique<OutlineExecutable>(program, gpu::bind_program(program, weights, own->layout(), limits_));
    }

  private:
    OutlineTarget target_;
};

}  // namespace

std::unique_ptr<Backend> make_outline_backend(OutlineTarget target) { return std::make_unique<OutlineBackend>(target); }

}  // namespace forge
