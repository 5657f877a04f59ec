// The reference: dot products of decoded rows, in order.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/float16.h"
#include "matmul/layout.h"

namespace forge {
namespace {

// x' = norm(x), rounded to T.
template <typename T>
void prepare(const MatmulParams& p, std::int64_t row, float* out) {
    const std::int64_t k = p.w->cols;
    const T* x = static_cast<const T*>(p.x) + row * k;
    for (std::int64_t i = 0; i < k; ++i) out[i] = static_cast<float>(x[i]);
    if (p.norm_weight == nullptr) return;
    float squares = 0;
    for (std::int64_t i = 0; i < k; ++i) squares += out[i] * out[i];
    const float factor = 1.0f / std::sqrt(squares / static_cast<float>(k) + p.eps);
    for (std::int64_t i = 0; i < k; ++i) {
        const float n = out[i] * factor, w = p.norm_weight[i];
        switch (p.norm) {
            case NormFormula::two_rounding:
                out[i] = round_to<T>(w * round_to<T>(n));
                break;
            case NormFormula::one_plus:
                out[i] = round_to<T>(n * (1.0f + w));
                break;
            case NormFormula::one_rounding:
                out[i] = round_to<T>(n * w);
                break;
        }
    }
}

float dot(const float* w, const float* x, std::int64_t k) {
    float sum = 0;
    for (std::int64_t i = 0; i < k; ++i) sum += w[i] * x[i];
    return sum;
}

float activate(ActKind act, float x) {
    const float t = act == ActKind::silu ? x : 1.59576912160573071f * (x + 0.044715f * x * x * x);
    const float e = std::exp(-std::abs(t));  // x times the sigmoid of t
    return x * ((t < 0 ? e : 1.0f) / (1.0f + e));
}

template <typename T>
void finish(const MatmulParams& p, std::int64_t row, std::int64_t n, float a, float b) {
    const std::int64_t at = row * p.w->rows + n;
    if (p.bias) a += p.bias[n];
    if (p.f32_out) {
        static_cast<float*>(p.y)[at] = p.softcap != 0 ? p.softcap * std::tanh(a / p.softcap) : a;
        return;
    }
    float y = a;
    if (p.epilogue == Epilogue::add) {
        y = static_cast<float>(static_cast<const T*>(p.residual)[at]) + round_to<T>(a);
    } else if (p.epilogue == Epilogue::act_mul) {
        if (p.bias2) b += p.bias2[n];
        y = round_to<T>(activate(p.act, round_to<T>(a))) * round_to<T>(b);
    }
    static_cast<T*>(p.y)[at] = T(y);
}

// Rows [first, last) of W times all rows of x', which are given as floats.
template <typename T>
void multiply(const MatmulParams& p, const float* x, int rows, std::int64_t first, std::int64_t last,
              float* scratch) {
    const std::int64_t k = p.w->cols;
    float* w = scratch;
    float* w2 = scratch + k;
    for (std::int64_t n = first; n < last; ++n) {
        decode_row(*p.w, n, w);
        if (p.w2) decode_row(*p.w2, n, w2);
        for (int m = 0; m < rows; ++m)
            finish<T>(p, m, n, dot(w, x + m * k, k), p.w2 ? dot(w2, x + m * k, k) : 0.0f);
    }
}

template <typename T>
void matvec(const void* params, const StepRows& step, std::int64_t first, std::int64_t last,
            CpuWorker& worker) {
    const auto& p = *static_cast<const MatmulParams*>(params);
    const std::int64_t k = p.w->cols, item = item_rows(p);
    const int rows = std::min(step.m, std::max(p.max_rows, 1));
    auto* x = reinterpret_cast<float*>(worker.scratch.data());
    worker.tag = 0;
    for (int m = 0; m < rows; ++m) prepare<T>(p, m, x + m * k);
    multiply<T>(p, x, rows, first * item, std::min(p.w->rows, last * item), x + rows * k);
}

// Packed rows are x' as floats; an item is one row.
template <typename T>
void pack(const void* params, const StepRows&, std::int64_t first, std::int64_t last, CpuWorker&) {
    const auto& p = *static_cast<const MatmulParams*>(params);
    for (std::int64_t m = first; m < last; ++m)
        prepare<T>(p, m, static_cast<float*>(p.packed) + m * p.w->cols);
}

template <typename T>
void gemm(const void* params, const StepRows& step, std::int64_t first, std::int64_t last,
          CpuWorker& worker) {
    const auto& p = *static_cast<const MatmulParams*>(params);
    worker.tag = 0;
    multiply<T>(p, static_cast<const float*>(p.packed), step.m, first * kGemmRows,
                std::min(p.w->rows, last * kGemmRows), reinterpret_cast<float*>(worker.scratch.data()));
}

std::size_t floats(std::int64_t rows, std::int64_t k) {
    return static_cast<std::size_t>(rows * k) * sizeof(float);
}

}  // namespace

const MatvecFunctions matvec_plain = {{matvec<float>, matvec<f16>, matvec<bf16>}, [](const MatmulParams& p) {
                                          return floats(std::max(p.max_rows, 1) + 2, p.w->cols);
                                      }};
const GemmFunctions gemm_plain = {{pack<float>, pack<f16>, pack<bf16>},
                                  {gemm<float>, gemm<f16>, gemm<bf16>},
                                  [](const MatmulParams&) { return std::size_t{0}; },
                                  [](const MatmulParams& p) { return floats(2, p.w->cols); },
                                  [](const MatmulParams& p) { return floats(p.max_rows, p.w->cols); },
                                  1};

}  // namespace forge
