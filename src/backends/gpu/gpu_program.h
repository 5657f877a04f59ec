// A program as GPU launches: kernels chosen for every number of rows, and where their buffers lie. What the Metal
// and the CUDA backend share; they add memory, compilation and submission.
#pragma once

#include <climits>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backends/backend.h"
#include "backends/program.h"
#include "gpu_cache_layout.h"
#include "kernels/gpu/registry.h"
#include "quant/weight.h"

namespace forge::gpu {

enum class Place : std::uint8_t {
    step,        // the step record
    arena,       // offset in the program's arena
    scratch,     // offset in the memory for normed rows
    plane,       // a weight's plane: index = weight, plane = which
    rope,        // angles of every position: index into GpuProgram::ropes
    constants,   // index into GpuProgram::constants
    cache,       // offset in the cache's memory
};
enum PlaneIndex { plane_codes, plane_high, plane_scales, plane_offsets, plane_super_scales, plane_super_mins };

struct Buffer {
    Place place = Place::step;
    int index = 0, plane = 0;
    std::uint64_t offset = 0;
    int stacked = 1;    // plane: so many weights from `index` on, one after the other
    bool operator==(const Buffer&) const = default;
};

struct BoundKernel {
    Kernel kernel;
    std::vector<Buffer> buffers;   // one a parameter
};

// Kernels that run one after the other, each after what the one before wrote.
struct Variant {
    int max_rows = 0;              // serves steps of up to that many rows
    std::vector<BoundKernel> kernels;
    int positions = INT_MAX;       // and of positions below this
    bool single = false;           // and of one row only, outputs or not
};

// The first of variants (of anything that has these fields) that serves a launch of `rows` rows, up to position
// `longest`, in a step of m.
template <typename Variants>
const auto& variant_for(const Variants& variants, int rows, int longest, int m) {
    for (const auto& v : variants)
        if (rows <= v.max_rows && longest < v.positions && (m == 1 || !v.single)) return v;
    return variants.back();
}
int longest_position(const StepRows& step);

struct GpuLaunch {
    std::vector<Variant> variants; // the last one serves every step
    bool barrier = false, output_rows = false;
    std::size_t source = 0;        // launch of the Program
    std::vector<std::size_t> beside = {};   // launches of the Program that run in the same one
};

inline constexpr int most_picks = 64;

struct RopeAngles { std::vector<float> inv_freq; int half; float scale; };

struct GpuProgram {
    std::vector<GpuLaunch> launches;
    std::vector<RopeAngles> ropes;
    std::vector<std::vector<float>> constants;
    std::uint64_t scratch_bytes = 0;   // zero before the first step
    // Programs of few rows: what follows a step whose token the device picks. picked_offset: in scratch, most_picks words.
    std::vector<BoundKernel> pick;
    std::uint64_t picked_offset = 0;

    std::vector<Kernel> kernels() const;
    // What a step of one row takes: kernels, and groups of them that nothing separates.
    StepCounts counts() const;
};

// Error(unsupported) names a launch that has no GPU kernel.
GpuProgram bind_program(const Program& program, std::span<const Weight> weights, const GpuCacheLayout& cache, const Limits& limits);

// Backend::variants of the GPU backends.
std::vector<LaunchVariants> launch_variants(const Program& program, std::size_t launch, std::span<const Weight> weights, const GpuCacheLayout& cache,
                                            const Limits& limits);

// [capacity][2 * half]: cosines, then sines, of every position, as the CPU's rope tables.
std::vector<float> rope_angles(const RopeAngles& rope, int capacity, DType type);

// The plane of a weight, and its bytes (0: the format has none).
const Plane& plane_of(const Weight& weight, int plane);
std::size_t plane_bytes(const Weight& weight, int plane);

// Calls fn(weights, plane) for every plane that a program's kernels read, as often as they name it; several weights
// are experts, which must lie gpu::expert_stride() bytes from one to the next.
template <typename Fn>
void for_each_plane(const GpuProgram& program, std::span<const Weight> weights, Fn&& fn) {
    for (const GpuLaunch& launch : program.launches)
        for (const Variant& variant : launch.variants)
            for (const BoundKernel& kernel : variant.kernels)
                for (const Buffer& b : kernel.buffers)
                    if (b.place == Place::plane) fn(weights.subspan(static_cast<std::size_t>(b.index), static_cast<std::size_t>(b.stacked)), b.plane);
}

// Outputs of a step as floats: logits are, and hidden states (of a plan without its head) are activations.
void outputs_to_floats(const std::byte* in, DType type, std::span<float> out);

}  // namespace forge::gpu
