#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "gpu/builder.h"
#include "gpu/texts.h"
#include "kernels/gpu/kernel.h"

namespace forge::gpu {
namespace {

std::size_t array_bytes(const Array& a) { return (static_cast<std::size_t>(a.count) * (a.type == "uint4" ? 16 : 4) + 15) / 16 * 16; }

std::string metal_entry(const Kernel& k) {
    std::string s = fmt::format("[[max_total_threads_per_threadgroup({})]] kernel void {}(", k.threads, k.name);
    int index = 0;
    for (const Param& p : k.params)
        s += fmt::format("device {}{}* {} [[buffer({})]], ", p.written ? "" : "const ", p.type, c_name(p.name), index++);
    s += "uint3 tg [[threadgroup_position_in_grid]], uint3 groups [[threadgroups_per_grid]], uint lane [[thread_index_in_simdgroup]], "
         "uint sg [[simdgroup_index_in_threadgroup]], uint tid [[thread_index_in_threadgroup]]) {\n";
    for (const Array& a : k.arrays) s += fmt::format("    threadgroup {} {}[{}];\n", a.type, a.name, a.count);
    return s + "    fk::Ids id = {tg.x, tg.y, tg.z, groups.x, lane, sg, tid};\n" + k.body + "}\n";
}

std::string cuda_entry(const Kernel& k) {
    const std::string bounds = k.residents > 0 ? fmt::format("{}, {}", k.threads, k.residents) : std::to_string(k.threads);
    std::string s = fmt::format("extern \"C\" __global__ void __launch_bounds__({}) {}(", bounds, k.name), separator;
    for (const Param& p : k.params) {
        s += fmt::format("{}{}{}* {}", separator, p.written ? "" : "const ", p.type, c_name(p.name));
        separator = ", ";
    }
    s += ") {\n";
    if (k.dynamic_bytes() == 0) {
        for (const Array& a : k.arrays) s += fmt::format("    __shared__ {} {}[{}];\n", a.type, a.name, a.count);
    } else {
        s += "    extern __shared__ uint4 fk_memory[];\n";
        std::size_t at = 0;
        for (const Array& a : k.arrays) {
            s += fmt::format("    {}* {} = ({}*)(fk_memory + {});\n", a.type, a.name, a.type, at / 16);
            at += array_bytes(a);
        }
    }
    return s + "    fk::Ids id = fk::this_thread();\n" + k.body + "}\n";
}

// The texts for tensor cores that one of the kernels names. Compiled kernels are kept by their whole text: others need not be
// compiled anew where one of these changes, nor are these parsed for them.
std::string tensor_texts(std::span<const Kernel> kernels) {
    const auto named = [&](std::string_view name) {
        return std::any_of(kernels.begin(), kernels.end(), [&](const Kernel& k) { return k.body.find(name) != std::string::npos; });
    };
    std::string s;
    if (named("fk::tensor_rows")) s += text::tensor_rows;
    if (named("fk::TensorDecode")) s += text::tensor_decode;
    if (named("fk::attention_flash")) s += text::flash;
    if (named("fk::attention_groups")) s += text::group_flash;
    if (named("fk::delta_tensor")) s += text::tensor_delta;
    if (s.empty() && !named("gemm_tensor")) return s;
    return std::string(text::tensor) + s;   // what all of them share
}

}  // namespace

std::size_t Kernel::threadgroup_bytes() const {
    std::size_t bytes = 0;
    for (const Array& a : arrays) bytes += array_bytes(a);
    return bytes;
}

std::size_t Kernel::dynamic_bytes() const { return threadgroup_bytes() > 48 * 1024 ? threadgroup_bytes() : 0; }

std::size_t step_words(int max_rows) { return 8 + 4 * static_cast<std::size_t>(max_rows); }

void write_step(const StepRows& step, int max_rows, std::int32_t* words, std::int32_t pick_limit) {
    words[0] = step.m;
    words[1] = step.outputs;
    words[2] = 0;
    words[3] = pick_limit;
    std::int32_t* arrays = words + 8;
    const auto copy = [&](const std::int32_t* from, int count, int which) {
        if (from) std::copy_n(from, count, arrays + static_cast<std::ptrdiff_t>(which) * max_rows);
    };
    copy(step.tokens, step.m, 0);
    copy(step.slots, step.m, 1);
    copy(step.positions, step.m, 2);
    copy(step.output_rows, step.outputs, 3);
}

GridSize grid_size(const Grid& grid, const StepRows& step) {
    GridSize size{static_cast<unsigned>(grid.x), 1, 1};
    const int rows = (grid.output_rows ? step.outputs : step.m) * grid.per_row;
    if (grid.rows_per_group > 0) size.y = static_cast<unsigned>((rows + grid.rows_per_group - 1) / grid.rows_per_group + std::min(rows, grid.groups));
    if (grid.part_size > 0) {
        int parts = 1;
        for (int i = 0; i < step.m; ++i) {
            const int position = step.positions[i], first = grid.window > 0 ? std::max(0, position + 1 - grid.window) : 0;
            parts = std::max(parts, position / grid.part_size - first / grid.part_size + 1);
        }
        size.z = static_cast<unsigned>(grid.most_parts > 0 ? std::min(parts, grid.most_parts) : parts);
    }
    return size;
}

std::string source(Target target, std::span<const Kernel> kernels) {
    const bool matmul2d = target == Target::metal && std::any_of(kernels.begin(), kernels.end(), [](const Kernel& k) { return k.matmul2d; });
    std::string s = matmul2d ? "#include <metal_tensor>\n#include <MetalPerformancePrimitives/MetalPerformancePrimitives.h>\n" : "";
    s += target == Target::metal ? text::prelude_metal : text::prelude_cuda;
    for (const std::string_view t : {text::types, text::rows, text::delta, text::formats, text::matvec, text::gemm, text::attention_prepare, text::attention, text::attention_merge, text::experts, text::pick}) s += t;
    if (target == Target::cuda) s += tensor_texts(kernels);
    else s.append(text::simd_gemm).append(text::simd_flash);
    if (matmul2d) s += text::matmul2d_gemm;
    std::set<std::string> emitted;
    for (const Kernel& k : kernels)
        if (emitted.insert(k.name).second) s += target == Target::metal ? metal_entry(k) : cuda_entry(k);
    return s;
}

}  // namespace forge::gpu
