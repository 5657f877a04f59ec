// Checks parameters and chooses the entry points. Items are rows throughout:
// in prefill there are many, and in decode a row takes a microsecond or less.
#include "kernels/rows/rows.h"

#include <cstring>

#include "base/error.h"
#include "rows/functions.h"

namespace forge {
namespace {

const RowsFunctions& functions(Isa isa) {
    if (!isa_available(isa))
        fail(ErrorKind::unsupported, "row kernels for {} were asked for, but this machine does not run {}", name_of(isa),
             name_of(isa));
    switch (isa) {
        case Isa::plain: break;
#if defined(__x86_64__)
        case Isa::avx2: return rows_avx2;
        case Isa::avx512: return rows_avx512;
#elif defined(__aarch64__)
        case Isa::neon: return rows_neon;
#endif
        default: fail(ErrorKind::unsupported, "row kernels for {} are not part of this build", name_of(isa));
    }
    return rows_plain;
}

int type_index(const char* kernel, DType type) {
    if (type == DType::f32) return 0;
    if (type == DType::f16) return 1;
    if (type == DType::bf16) return 2;
    fail(ErrorKind::unsupported, "{}: activations must be f32, f16 or bf16, not {}", kernel, name_of(type));
}

std::int64_t rows_of(const void*, const StepRows& step) { return step.m; }
std::int64_t outputs_of(const void*, const StepRows& step) { return step.outputs; }
// A norm's items are its vectors: `groups` a row.
std::int64_t norm_rows(const void* p, const StepRows& step) { return std::int64_t{step.m} * static_cast<const NormParams*>(p)->groups; }

void take_rows(const void* params, const StepRows& step, std::int64_t first, std::int64_t last, CpuWorker&) {
    const auto& p = *static_cast<const TakeRowsParams*>(params);
    const std::size_t bytes = static_cast<std::size_t>(p.width) * size_of(p.type);
    for (std::int64_t i = first; i < last; ++i)
        std::memcpy(static_cast<std::byte*>(p.y) + static_cast<std::size_t>(i) * bytes,
                    static_cast<const std::byte*>(p.x) + static_cast<std::size_t>(step.output_rows[i]) * bytes, bytes);
}

}  // namespace

CpuKernel embed_kernel(const EmbedParams& params, Isa isa) {
    static const char* const names[] = {"embed_plain", "embed_avx2", "embed_avx512", "embed_neon"};
    // A decoded row of floats, read in whole vectors.
    const std::size_t scratch = (static_cast<std::size_t>(params.table->cols) * sizeof(float) + 127) / 64 * 64;
    return {names[static_cast<int>(isa)], functions(isa).embed[type_index("embed", params.type)], rows_of, 1, scratch};
}

CpuKernel scale_kernel(const ScaleParams& params, Isa isa) {
    static const char* const names[] = {"scale_plain", "scale_avx2", "scale_avx512", "scale_neon"};
    return {names[static_cast<int>(isa)], functions(isa).scale[type_index("scale", params.type)], rows_of, 1, 0};
}

CpuKernel norm_kernel(const NormParams& params, Isa isa) {
    static const char* const names[] = {"norm_plain", "norm_avx2", "norm_avx512", "norm_neon"};
    return {names[static_cast<int>(isa)], functions(isa).norm[type_index("norm", params.type)],
            norm_rows, 1, 0};
}

CpuKernel add_kernel(const AddParams& params, Isa isa) {
    static const char* const names[] = {"add_plain", "add_avx2", "add_avx512", "add_neon"};
    return {names[static_cast<int>(isa)], functions(isa).add[type_index("add", params.type)], rows_of, 1, 0};
}

CpuKernel act_mul_kernel(const ActMulParams& params, Isa isa) {
    static const char* const names[] = {"act_mul_plain", "act_mul_avx2", "act_mul_avx512", "act_mul_neon"};
    return {names[static_cast<int>(isa)], functions(isa).act_mul[type_index("act_mul", params.type)], rows_of, 1, 0};
}

CpuKernel take_rows_kernel(const TakeRowsParams& params, Isa) {
    type_index("take_rows", params.type);
    return {"take_rows", take_rows, outputs_of, 1, 0};
}

CpuKernel arg_max_kernel(const ArgMaxParams& params, Isa isa) {
    if (params.limit < 1 || params.limit > params.width)
        fail(ErrorKind::internal, "arg_max: {} ids of {} logits cannot be chosen from", params.limit, params.width);
    static const char* const names[] = {"arg_max_plain", "arg_max_avx2", "arg_max_avx512", "arg_max_neon"};
    return {names[static_cast<int>(isa)], functions(isa).arg_max, outputs_of, 1, 0};
}

}  // namespace forge
