#include "gpu_program.h"

#include <algorithm>
#include <cstring>

#include "base/float16.h"
#include "binder.h"
#include "kernels/attention/attention.h"

namespace forge::gpu {

int longest_position(const StepRows& step) { return step.m > 0 ? *std::max_element(step.positions, step.positions + step.m) : 0; }

std::vector<Kernel> GpuProgram::kernels() const {
    std::vector<Kernel> all;
    for (const GpuLaunch& l : launches)
        for (const Variant& v : l.variants)
            for (const BoundKernel& k : v.kernels) all.push_back(k.kernel);
    for (const BoundKernel& k : pick) all.push_back(k.kernel);
    return all;
}

StepCounts GpuProgram::counts() const {
    StepCounts c{0, 1, 0, 0, static_cast<int>(pick.size())};
    for (const GpuLaunch& l : launches) {
        const Variant &first = variant_for(l.variants, 1, 0, 1), &last = variant_for(l.variants, 1, INT_MAX - 1, 1);
        const auto kernels = static_cast<int>(first.kernels.size()), longer = static_cast<int>(last.kernels.size()) - kernels;
        c.launches += kernels;
        c.stages += (l.barrier ? 1 : 0) + kernels - 1;
        c.longer += longer;
        if (longer > 0 && (c.short_context == 0 || first.positions < c.short_context)) c.short_context = first.positions;
    }
    return c;
}

GpuProgram bind_program(const Program& program, std::span<const Weight> weights, const GpuCacheLayout& cache, const Limits& limits) {
    return Binder(program, weights, cache, limits).run();
}

std::vector<LaunchVariants> launch_variants(const Program& program, std::size_t launch, std::span<const Weight> weights, const GpuCacheLayout& cache,
                                            const Limits& limits) {
    return Binder(program, weights, cache, limits).variants(launch);
}

std::vector<float> rope_angles(const RopeAngles& rope, int capacity, DType type) {
    std::vector<float> angles(static_cast<std::size_t>(capacity) * 2 * static_cast<std::size_t>(rope.half));
    std::vector<std::int32_t> positions(static_cast<std::size_t>(capacity));
    for (int i = 0; i < capacity; ++i) positions[static_cast<std::size_t>(i)] = i;
    StepRows every;
    every.m = capacity;
    every.positions = positions.data();
    RopeTableParams p;
    p.inv_freq = rope.inv_freq.data();
    p.half = rope.half;
    p.scale = rope.scale;
    p.type = type;
    p.table = angles.data();
    CpuWorker worker;
    rope_table_kernel(p, Isa::plain).fn(&p, every, 0, capacity, worker);
    return angles;
}

const Plane& plane_of(const Weight& w, int plane) {
    const Plane* const planes[] = {&w.codes, &w.codes_high, &w.scales, &w.offsets, &w.super_scales, &w.super_mins};
    return *planes[plane];
}

std::size_t plane_bytes(const Weight& w, int plane) {
    const Plane& p = plane_of(w, plane);
    return p.data ? p.stride * static_cast<std::size_t>(w.rows) : 0;
}

void outputs_to_floats(const std::byte* in, DType type, std::span<float> out) {
    for (float& x : out) {
        if (type == DType::f32) {
            std::memcpy(&x, in, sizeof x);
            in += sizeof x;
            continue;
        }
        std::uint16_t bits;
        std::memcpy(&bits, in, sizeof bits);
        in += sizeof bits;
        x = type == DType::bf16 ? bf16_to_f32(bits) : f16_to_f32(bits);
    }
}

}  // namespace forge::gpu
