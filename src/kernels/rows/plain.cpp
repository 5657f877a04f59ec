// The reference: every row operation as a plain loop.
#include <cmath>

#include "base/float16.h"
#include "rows/functions.h"
#include "kernels/rows/rows.h"

namespace forge {
namespace {

template <typename T>
void embed(const void* params, const StepRows& step, std::int64_t first, std::int64_t last, CpuWorker& worker) {
    const auto& p = *static_cast<const EmbedParams*>(params);
    const std::int64_t width = p.table->cols;
    worker.tag = 0;
    auto* row = reinterpret_cast<float*>(worker.scratch.data());
    for (std::int64_t i = first; i < last; ++i) {
        decode_row(*p.table, step.tokens[i], row);
        T* y = static_cast<T*>(p.y) + i * width;
        for (std::int64_t c = 0; c < width; ++c)
            y[c] = p.scale == 1 ? T(row[c]) : T(round_to<T>(row[c]) * round_to<T>(p.scale));
    }
}

template <typename T>
void norm(const void* params, const StepRows&, std::int64_t first, std::int64_t last, CpuWorker&) {
    const auto& p = *static_cast<const NormParams*>(params);
    for (std::int64_t i = first; i < last; ++i) {
        const T* x = static_cast<const T*>(p.x) + i * p.width;
        T* y = static_cast<T*>(p.y) + i * p.width;
        float squares = 0;
        for (int c = 0; c < p.width; ++c) squares += static_cast<float>(x[c]) * static_cast<float>(x[c]);
        const float factor = 1.0f / std::sqrt(squares / static_cast<float>(p.width) + p.eps);
        for (int c = 0; c < p.width; ++c) {
            const float n = static_cast<float>(x[c]) * factor;
            const float w = p.weight == nullptr ? 1.0f : p.weight[c];
            float value;
            if (p.weight == nullptr) value = round_to<T>(n);
            else if (p.norm == NormFormula::two_rounding) value = round_to<T>(w * round_to<T>(n));
            else if (p.norm == NormFormula::one_plus) value = round_to<T>(n * (1.0f + w));
            else value = round_to<T>(n * w);
            if (p.residual != nullptr) value = static_cast<float>(static_cast<const T*>(p.residual)[i * p.width + c]) + value;
            y[c] = T(value);
        }
    }
}

template <typename T>
void scale(const void* params, const StepRows&, std::int64_t first, std::int64_t last, CpuWorker&) {
    const auto& p = *static_cast<const ScaleParams*>(params);
    for (std::int64_t i = first * p.width; i < last * p.width; ++i)
        static_cast<T*>(p.y)[i] = T(static_cast<float>(static_cast<const T*>(p.x)[i]) * p.factor);
}

template <typename T>
void add(const void* params, const StepRows&, std::int64_t first, std::int64_t last, CpuWorker&) {
    const auto& p = *static_cast<const AddParams*>(params);
    for (std::int64_t i = first * p.width; i < last * p.width; ++i)
        static_cast<T*>(p.y)[i] = T(static_cast<float>(static_cast<const T*>(p.a)[i]) +
                                    static_cast<float>(static_cast<const T*>(p.b)[i]));
}

float activate(ActKind act, float x) {
    const float t = act == ActKind::silu ? x : 1.59576912160573071f * (x + 0.044715f * x * x * x);
    // x times the sigmoid of t: gelu's 0.5 (1 + tanh(u)) is the sigmoid of 2u.
    const float e = std::exp(-std::abs(t));
    return x * ((t < 0 ? e : 1.0f) / (1.0f + e));
}

template <typename T>
void act_mul(const void* params, const StepRows&, std::int64_t first, std::int64_t last, CpuWorker&) {
    const auto& p = *static_cast<const ActMulParams*>(params);
    const std::int64_t stride = p.up_stride > 0 ? p.up_stride : p.width;
    for (std::int64_t i = first; i < last; ++i)
        for (std::int64_t c = 0; c < p.width; ++c)
            static_cast<T*>(p.y)[i * p.width + c] =
                T(round_to<T>(activate(p.act, static_cast<float>(static_cast<const T*>(p.gate)[i * p.width + c]))) *
                  static_cast<float>(static_cast<const T*>(p.up)[i * stride + c]));
}

void arg_max(const void* params, const StepRows&, std::int64_t first, std::int64_t last, CpuWorker&) {
    const auto& p = *static_cast<const ArgMaxParams*>(params);
    for (std::int64_t i = first; i < last; ++i) {
        const float* logits = p.logits + i * p.width;
        int best = -1;
        for (int c = 0; c < p.limit; ++c)
            if (!std::isnan(logits[c]) && (best < 0 || logits[c] > logits[best])) best = c;
        p.token[i] = best < 0 ? 0 : best;
    }
}

}  // namespace

const RowsFunctions rows_plain = {{embed<float>, embed<f16>, embed<bf16>},
                                  {norm<float>, norm<f16>, norm<bf16>},
                                  {add<float>, add<f16>, add<bf16>},
                                  {act_mul<float>, act_mul<f16>, act_mul<bf16>},
                                  {scale<float>, scale<f16>, scale<bf16>},
                                  arg_max};

}  // namespace forge
