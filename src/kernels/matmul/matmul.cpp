// Chooses the kernels of an instruction set.
#include "kernels/matmul/matmul.h"

#include "base/error.h"
#include "matmul/layout.h"

namespace forge {
namespace {

struct Functions {
    const MatvecFunctions& matvec;
    const GemmFunctions& gemm;
};

Functions functions_of(Isa isa) {
    switch (isa) {
        case Isa::plain:
            return {matvec_plain, gemm_plain};
#if defined(__x86_64__)
        case Isa::avx2:
            return {matvec_avx2, gemm_avx2};
        case Isa::avx512:
            return {matvec_avx512, gemm_avx512};
#elif defined(__aarch64__)
        case Isa::neon:
            return {matvec_neon, gemm_neon};
#endif
        default:
            fail(ErrorKind::unsupported, "this build of Forge has no {} kernels", name_of(isa));
    }
}

void check(const Weight& w, DType type) {
    if (type != DType::f32 && type != DType::f16 && type != DType::bf16)
        fail(ErrorKind::unsupported, "{}: activations of type {} are not implemented; use bf16, f16 or f32",
             w.name, name_of(type));
    const WeightFormat& f = w.format;
    const bool group = f.group >= 16 && f.group <= 256 && (f.group & (f.group - 1)) == 0;
    const bool dense =
        f.dense_type == DType::f32 || f.dense_type == DType::f16 || f.dense_type == DType::bf16;
    if (f.is_dense() ? !dense : !group || w.cols % 8 != 0)
        fail(ErrorKind::unsupported, "{}: no kernel multiplies a {} x {} weight in the format {}", w.name,
             w.rows, w.cols, describe(f));
}

std::int64_t matvec_items(const void* params, const StepRows& step) {
    const auto& p = *static_cast<const MatmulParams*>(params);
    const std::int64_t item = item_rows(p);
    return step.m > 0 ? (p.w->rows + item - 1) / item : 0;
}
std::int64_t gemm_items(const void* params, const StepRows& step) {
    const auto& p = *static_cast<const MatmulParams*>(params);
    return step.m > 0 ? (p.w->rows + kGemmRows - 1) / kGemmRows : 0;
}
template <int panel>
std::int64_t pack_items(const void*, const StepRows& step) {
    return (step.m + panel - 1) / panel;
}

constexpr const char* matvec_names[] = {"matvec_plain", "matvec_avx2", "matvec_avx512", "matvec_neon"};
constexpr const char* pack_names[] = {"pack_plain", "pack_avx2", "pack_avx512", "pack_neon"};
constexpr const char* gemm_names[] = {"gemm_plain", "gemm_avx2", "gemm_avx512", "gemm_neon"};

void check(const MatmulParams& p) {
    check(*p.w, p.type);
    if (p.w2 == nullptr) return;
    check(*p.w2, p.type);
    if (p.w2->rows != p.w->rows || p.w2->cols != p.w->cols)
        fail(ErrorKind::internal,
             "{} ({} x {}) and {} ({} x {}) cannot be multiplied together: their shapes differ", p.w->name,
             p.w->rows, p.w->cols, p.w2->name, p.w2->rows, p.w2->cols);
}

}  // namespace

CpuKernel matvec_kernel(const MatmulParams& p, Isa isa) {
    check(p);
    const MatvecFunctions& f = functions_of(isa).matvec;
    return {matvec_names[static_cast<int>(isa)], f.matvec[type_slot(p.type)], matvec_items, 1, f.scratch(p)};
}

CpuKernel pack_kernel(const MatmulParams& p, Isa isa) {
    check(p);
    const GemmFunctions& f = functions_of(isa).gemm;
    const auto items = f.panel == 1   ? pack_items<1>
                       : f.panel == 4 ? pack_items<4>
                       : f.panel == 8 ? pack_items<8>
                                      : pack_items<16>;
    return {pack_names[static_cast<int>(isa)], f.pack[type_slot(p.type)], items, 1, f.pack_scratch(p)};
}

CpuKernel gemm_kernel(const MatmulParams& p, Isa isa) {
    check(p);
    if (p.w2 && !same_packing(*p.w, *p.w2, p.type, isa))
        fail(ErrorKind::internal,
             "{} ({}) and {} ({}) cannot share packed rows; multiply them one after the other", p.w->name,
             describe(p.w->format), p.w2->name, describe(p.w2->format));
    const GemmFunctions& f = functions_of(isa).gemm;
    return {gemm_names[static_cast<int>(isa)], f.gemm[type_slot(p.type)], gemm_items, 1, f.gemm_scratch(p)};
}

int pack_panel(Isa isa) { return functions_of(isa).gemm.panel; }

std::size_t pack_bytes(const MatmulParams& p, Isa isa) { return functions_of(isa).gemm.packed_bytes(p); }

bool same_packing(const Weight& a, const Weight& b, DType, Isa isa) {
    if (a.cols != b.cols) return false;
    return isa == Isa::plain || packing_stride(a) == packing_stride(b);
}

}  // namespace forge
