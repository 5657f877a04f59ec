#include <fmt/format.h>

#include "backends/cpu.h"
#include "base/machine_memory.h"
#include "cpu_cache.h"
#include "cpu_executable.h"
#include "cpu_variants.h"
#include "kernels/experts/experts.h"
#include "kernels/matmul/matmul.h"

namespace forge {
namespace {

class CpuBackend final : public Backend {
  public:
    CpuBackend(ThreadPool& pool, Isa isa) : pool_(pool), isa_(isa) {}

    BackendLimits limits() const override {
        BackendLimits limits{fmt::format("CPU {}", name_of(isa_)), pool_.size(), machine_memory().total};
        limits.driver = processor_name();
        return limits;
    }
    WeightLayout layout() const override { return WeightLayout::tiles; }
    bool delta_norm() const override { return true; }
    std::uint64_t cache_bytes(std::span<const CacheLayer> layers, int slots, int capacity, DType type) const override {
        return CpuCache::total_bytes(layers, slots, capacity, type);
    }
    std::shared_ptr<Cache> create_cache(std::span<const CacheLayer> layers, int slots, int capacity, DType type) override {
        return std::make_shared<CpuCache>(layers, slots, capacity, type);
    }
    std::unique_ptr<Executable> compile(const Program& program, std::span<const Weight> weights, std::shared_ptr<Cache> cache) override {
        return std::make_unique<CpuExecutable>(program, weights, std::static_pointer_cast<CpuCache>(std::move(cache)), pool_, isa_);
    }
    std::uint64_t packed_bytes(const Weight& weight, int rows, DType type) const override {
        MatmulParams params;
        params.type = type;
        params.w = &weight;
        params.max_rows = rows;
        return pack_bytes(params, isa_);
    }
    bool same_packing(const Weight& a, const Weight& b, DType type) const override {
        return forge::same_packing(a, b, type, isa_);
    }
    std::uint64_t attention_partial_bytes(int rows, int heads, int head_dim, int capacity, DType type) const override {
        AttentionParams params;
        params.type = type;
        params.n_heads = heads;
        params.head_dim = head_dim;
        params.cache.capacity = (capacity + 15) / 16 * 16;
        params.max_rows = rows;
        return forge::attention_partial_bytes(params);
    }
    std::uint64_t expert_packed_bytes(const Weight& weight, int experts, int per_token, int rows, DType type) const override {
        ExpertMatmulParams params;
        params.type = type;
        params.w = &weight;
        params.experts = experts;
        params.k = per_token;
        params.max_rows = rows;
        return expert_pack_bytes(params, isa_);
    }
    std::uint64_t group_bytes(int experts, int per_token, int rows) const override {
        return forge::group_bytes(experts, per_token, rows);
    }

    std::vector<LaunchVariants> variants(const Program& program, std::size_t launch, std::span<const Weight> weights, std::span<const CacheLayer>,
                                         int) const override {
        constexpr int few = 8;   // rows of a program whose steps are mostly of one
        std::vector<std::string> names = cpu_variants(program.launches[launch], weights);
        if (names.size() < 2 || (program.max_rows > few && program.launches[launch].kernel == "matvec")) return {};   // a prompt has one such product
        return {{program.max_rows, std::move(names), program.max_rows <= few ? 1 : program.max_rows}};
    }

  private:
    ThreadPool& pool_;
    Isa isa_;
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(ThreadPool& pool) { return std::make_unique<CpuBackend>(pool, detect_isa()); }
std::unique_ptr<Backend> make_plain_backend(ThreadPool& pool) { return std::make_unique<CpuBackend>(pool, Isa::plain); }

}  // namespace forge
