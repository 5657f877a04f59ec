// Binds a program's launches one after the other: which GPU kernels each becomes, and where their buffers lie. What a
// launch says is read here; a file each for products, experts and attention, and for what can be chosen of them.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gpu_program.h"

namespace forge::gpu {

struct Way;

// Variants that take a fusion apart: a norm in a launch before its product, queries and keys before attention reads them.
inline constexpr const char *kNormedBefore = "normed before", *kPreparedBefore = "prepared before";

class Binder {
  public:
    Binder(const Program& program, std::span<const Weight> weights, const GpuCacheLayout& cache, const Limits& limits)
        : program_(program), weights_(weights), cache_(cache), common_{program.type, program.max_rows, limits} {}

    GpuProgram run();
    std::vector<LaunchVariants> variants(std::size_t index);

  private:
    // Buckets of rows that kernels are made for: 1, 2, 4, 8; 16, 32, ... of tiles.
    template <typename Fn>
    void for_each_bucket(Fn&& fn) const {
        const int most = std::min(8, integer("max_rows"));
        for (int rows = 1;; rows *= 2) {
            fn(std::min(rows, most));
            if (rows >= most) break;
        }
    }
    template <typename Fn>
    void for_each_tile_bucket(Fn&& fn) const {
        for (int rows = 16, most = integer("max_rows");; rows *= 2) {
            fn(std::min(rows, most));
            if (rows >= most) break;
        }
    }
    bool joins_next(std::size_t index) const;
    bool stands_alone(std::size_t index) const;
    bool wants(const char* variant, int rows) const {
        const std::string* name = launch_->variant(rows);
        return name && *name == variant;
    }
    // The one that the launch names for a bucket of rows, or the default.
    Kernel chosen(const std::vector<Way>& ways, int rows) const;
    void reserve_arrivals();
    void add_pick();

    // ---- reading the launch
    int integer(std::string_view name) const { return static_cast<int>(launch_->integer(name)); }
    float number(std::string_view name) const { return static_cast<float>(launch_->number(name)); }
    NormFormula formula() const { return static_cast<NormFormula>(integer("norm")); }
    const Weight* weight(std::string_view name) const {
        const Operand* o = launch_->find(name);
        return o ? &weights_[static_cast<std::size_t>(o->buffer.index)] : nullptr;
    }
    bool has(std::string_view name) const { return launch_->find(name) != nullptr; }

    // ---- binding
    void fill(GpuLaunch& out);
    Buffer buffer_of(const std::string& name) const;
    BoundKernel bound(Kernel kernel) const;
    BoundKernel bound_as(Kernel kernel, std::initializer_list<std::pair<std::string_view, std::string>> names) const;
    void one(GpuLaunch& out, Kernel kernel) const;
    void remember_rope();

    // ---- families
    using Fill = void (Binder::*)(GpuLaunch&);
    void embed_(GpuLaunch& out);
    void norm_(GpuLaunch& out);
    void add_(GpuLaunch& out);
    void scale_(GpuLaunch& out);
    void act_mul_(GpuLaunch& out);
    void head_gate_(GpuLaunch& out);
    DeltaShape delta_shape() const;
    void conv_(GpuLaunch& out);
    void delta_(GpuLaunch& out);
    void gated_norm_(GpuLaunch& out);

    // ---- products
    MatvecShape matmul_shape() const;
    std::int64_t rows_beside(const MatvecShape& s);
    static MatvecShape without_norm(MatvecShape s);
    Kernel matvec_of(const MatvecShape& s) const;
    void matvec_(GpuLaunch& out);
    void split_norm(MatvecShape s, Variant& v);
    void pack_(GpuLaunch& out);
    void gemm_(GpuLaunch& out);
    void take_rows_(GpuLaunch& out);
    bool skips_take() const;

    // ---- experts
    ExpertShape expert_shape() const;
    void route_(GpuLaunch& out);
    void group_(GpuLaunch& out);
    void experts_(GpuLaunch& out);
    void combine_(GpuLaunch& out);

    // ---- attention
    bool prepares() const { return launch_->kernel == "attention_decode" && launch_->number("prepares", 0) != 0; }
    bool merges() const { return launch_->kernel == "attention_decode" && launch_->number("merges", 0) != 0; }
    AttentionShape attention_shape() const;
    AttentionShape prepare_shape() const;
    AttentionShape merged_shape() const;
    Kernel decode_of(const AttentionShape& s, int rows) const;
    void qk_prepare_(GpuLaunch& out);
    void attention_and_prepare(GpuLaunch& out);
    void attention_and_merge(GpuLaunch& out);
    void attention_(GpuLaunch& out);

    const Program& program_;
    std::span<const Weight> weights_;
    const GpuCacheLayout& cache_;
    Common common_;
    const Launch* launch_ = nullptr;
    GpuProgram out_;
    bool pending_barrier_ = false;
    std::optional<std::uint64_t> arrivals_;                      // scratch offset
    std::map<std::uint64_t, int> rope_at_;                       // arena offset -> rope
    std::map<std::pair<int, int>, std::uint64_t> normed_;        // tag, rows -> scratch offset
};

}  // namespace forge::gpu
