// The reference: what every attention kernel computes, as plain loops.
#include <cmath>
#include <cstring>
#include <limits>

#include "base/float16.h"
#include "attention/functions.h"
#include "attention/work.h"

namespace forge {
namespace {

template <typename T>
void rope_table(const void* params, const StepRows& step, std::int64_t first, std::int64_t last, CpuWorker&) {
    const auto& p = *static_cast<const RopeTableParams*>(params);
    for (std::int64_t row = first; row < last; ++row) {
        float* cosines = p.table + row * 2 * p.half;
        for (int i = 0; i < p.half; ++i) {
            const float angle = static_cast<float>(step.positions[row]) * p.inv_freq[i];
            cosines[i] = round_to<T>(static_cast<float>(std::cos(static_cast<double>(angle))) * p.scale);
            cosines[p.half + i] = round_to<T>(static_cast<float>(std::sin(static_cast<double>(angle))) * p.scale);
        }
    }
}

// One head: x (of T) -> out, floats that hold values of T.
template <typename T>
void norm_and_rope(const QkPrepareParams& p, const T* x, const float* weight, const float* rope, float* out) {
    for (int d = 0; d < p.head_dim; ++d) out[d] = static_cast<float>(x[d]);
    if (weight != nullptr) {
        float squares = 0;
        for (int d = 0; d < p.head_dim; ++d) squares += out[d] * out[d];
        const float factor = 1.0f / std::sqrt(squares / static_cast<float>(p.head_dim) + p.eps);
        for (int d = 0; d < p.head_dim; ++d) {
            const float n = out[d] * factor;
            if (p.norm == NormFormula::two_rounding) out[d] = round_to<T>(weight[d] * round_to<T>(n));
            else if (p.norm == NormFormula::one_plus) out[d] = round_to<T>(n * (1.0f + weight[d]));
            else out[d] = round_to<T>(n * weight[d]);
        }
    }
    if (rope == nullptr) return;
    const int half = p.rope_half;
    for (int i = 0; i < half; ++i) {
        const float a = out[i], b = out[i + half], cosine = rope[i], sine = rope[half + i];
        out[i] = round_to<T>(round_to<T>(a * cosine) - round_to<T>(b * sine));
        out[i + half] = round_to<T>(round_to<T>(b * cosine) + round_to<T>(a * sine));
    }
}

template <typename T>
void qk_prepare(const void* params, const StepRows& step, std::int64_t first, std::int64_t last, CpuWorker& worker) {
    const auto& p = *static_cast<const QkPrepareParams*>(params);
    worker.tag = 0;
    auto* head = reinterpret_cast<float*>(worker.scratch.data());
    const CacheLayout layout = layout_of(p.cache);
    for (std::int64_t item = first; item < last; ++item) {  // head by head, rows within
        const int which = static_cast<int>(item / step.m), row = static_cast<int>(item % step.m);
        const float* rope = p.rope == nullptr ? nullptr : p.rope + static_cast<std::int64_t>(row) * 2 * p.rope_half;
        if (which < p.n_heads) {
            const std::int64_t at = (static_cast<std::int64_t>(row) * p.n_heads + which) * p.head_dim;
            norm_and_rope(p, static_cast<const T*>(p.q) + query_offset(p, row, which), p.q_norm, rope, head);
            for (int d = 0; d < p.head_dim; ++d) static_cast<T*>(p.q_out)[at + d] = T(head[d]);
            continue;
        }
        const int kv_head = which - p.n_heads, position = step.positions[row];
        const std::int64_t at = (static_cast<std::int64_t>(row) * p.n_kv_heads + kv_head) * p.head_dim;
        const std::int64_t base = layout.head_offset(p.cache, step.slots[row], kv_head);
        norm_and_rope(p, static_cast<const T*>(p.k) + at, p.k_norm, rope, head);
        for (int d = 0; d < p.head_dim; ++d) static_cast<T*>(p.cache.keys)[base + layout.key(position, d)] = T(head[d]);
        const T* value = static_cast<const T*>(p.v_from_k ? p.k : p.v) + at;
        float squares = 0;
        for (int d = 0; d < p.head_dim; ++d) squares += static_cast<float>(value[d]) * static_cast<float>(value[d]);
        const float factor = p.v_norm ? 1.0f / std::sqrt(squares / static_cast<float>(p.head_dim) + p.eps) : 1.0f;
        for (int d = 0; d < p.head_dim; ++d)
            static_cast<T*>(p.cache.values)[base + layout.value(position, d)] = T(static_cast<float>(value[d]) * factor);
    }
}

// Attention of one query over keys [begin, end), which continues what maximum,
// total and sums hold (maximum = -inf at the start). `scores` has room for kPart.
template <typename T>
void attend(const AttentionParams& p, const CacheLayout& layout, const T* q, std::int64_t base, int begin, int end,
            float* scores, float& maximum, float& total, float* sums) {
    const T* keys = static_cast<const T*>(p.cache.keys) + base;
    const T* values = static_cast<const T*>(p.cache.values) + base;
    float top = maximum;
    for (int j = begin; j < end; ++j) {
        float s = 0;
        for (int d = 0; d < p.head_dim; ++d) s += static_cast<float>(q[d]) * static_cast<float>(keys[layout.key(j, d)]);
        s *= p.scale;
        if (p.softcap != 0) s = p.softcap * std::tanh(s / p.softcap);
        scores[j - begin] = s;
        top = std::max(top, s);
    }
    const float kept = std::exp(maximum - top);
    total *= kept;
    for (int d = 0; d < p.head_dim; ++d) sums[d] *= kept;
    for (int j = begin; j < end; ++j) {
        const float weight = std::exp(scores[j - begin] - top);
        total += weight;
        for (int d = 0; d < p.head_dim; ++d)
            sums[d] += round_to<T>(weight) * static_cast<float>(values[layout.value(j, d)]);
    }
    maximum = top;
}

template <typename T>
void decode(const void* params, const StepRows& step, std::int64_t first, std::int64_t last, CpuWorker& worker) {
    const auto& p = *static_cast<const AttentionParams*>(params);
    const CacheLayout layout = layout_of(p.cache);
    const int group = p.n_heads / p.n_kv_heads;
    worker.tag = 0;
    auto* scores = reinterpret_cast<float*>(worker.scratch.data());
    for (std::int64_t i = first; i < last; ++i) {
        const DecodeItem item = decode_item(p, step, i);
        for (int r = 0; r < item.span.rows; ++r) {
            const int row = item.span.row + r, position = item.span.position + r;
            const int begin = std::max(item.part * kPart, first_key(p.window, position));
            const int end = std::min((item.part + 1) * kPart, position + 1);
            if (begin >= end) continue;
            for (int head = item.kv_head * group; head < (item.kv_head + 1) * group; ++head) {
                float* partial = partial_of(p, row, head, item.part - first_part(p.window, position));
                float* sums = partial + kPartHeader;
                float maximum = -std::numeric_limits<float>::infinity(), total = 0;
                std::fill(sums, sums + p.head_dim, 0.0f);
                attend(p, layout, static_cast<const T*>(p.q) + (static_cast<std::int64_t>(row) * p.n_heads + head) * p.head_dim,
                       layout.head_offset(p.cache, item.span.slot, item.kv_head), begin, end, scores, maximum, total, sums);
                partial[0] = maximum;
                partial[1] = total;
            }
        }
    }
}

template <typename T>
void combine(const void* params, const StepRows& step, std::int64_t first, std::int64_t last, CpuWorker&) {
    const auto& p = *static_cast<const AttentionParams*>(params);
    for (std::int64_t i = first; i < last; ++i) {
        const int row = static_cast<int>(i / p.n_heads), head = static_cast<int>(i % p.n_heads);
        const int parts = parts_of(p.window, {row, 1, step.slots[row], step.positions[row]});
        float top = -std::numeric_limits<float>::infinity(), total = 0;
        for (int part = 0; part < parts; ++part) top = std::max(top, partial_of(p, row, head, part)[0]);
        for (int part = 0; part < parts; ++part) {
            const float* partial = partial_of(p, row, head, part);
            total += std::exp(partial[0] - top) * partial[1];
        }
        for (int d = 0; d < p.head_dim; ++d) {
            float sum = 0;
            for (int part = 0; part < parts; ++part) {
                const float* partial = partial_of(p, row, head, part);
                sum += std::exp(partial[0] - top) * partial[kPartHeader + d];
            }
            static_cast<T*>(p.out)[i * p.head_dim + d] = T(sum / total);
        }
    }
}

template <typename T>
void prefill(const void* params, const StepRows& step, std::int64_t first, std::int64_t last, CpuWorker& worker) {
    const auto& p = *static_cast<const AttentionParams*>(params);
    const CacheLayout layout = layout_of(p.cache);
    const int group = p.n_heads / p.n_kv_heads;
    worker.tag = 0;
    auto* scores = reinterpret_cast<float*>(worker.scratch.data());
    float* sums = scores + kPart;
    for (std::int64_t i = first; i < last; ++i) {
        const PrefillItem item = prefill_item(p, step, i);
        for (int line = 0; line < item.rows * group; ++line) {
            const int position = item.position + line / group, head = item.kv_head * group + line % group;
            const std::int64_t at = (static_cast<std::int64_t>(item.row + line / group) * p.n_heads + head) * p.head_dim;
            float maximum = -std::numeric_limits<float>::infinity(), total = 0;
            std::fill(sums, sums + p.head_dim, 0.0f);
            for (int begin = first_key(p.window, position); begin <= position;) {
                const int end = std::min(position + 1, (begin / kPart + 1) * kPart);
                attend(p, layout, static_cast<const T*>(p.q) + at,
                       layout.head_offset(p.cache, item.slot, item.kv_head), begin, end, scores, maximum, total, sums);
                begin = end;
            }
            for (int d = 0; d < p.head_dim; ++d) static_cast<T*>(p.out)[at + d] = T(sums[d] / total);
        }
    }
}

}  // namespace

const AttentionFunctions attention_plain = {
    {rope_table<float>, rope_table<f16>, rope_table<bf16>}, {qk_prepare<float>, qk_prepare<f16>, qk_prepare<bf16>},
    {decode<float>, decode<f16>, decode<bf16>},             {combine<float>, combine<f16>, combine<bf16>},
    {prefill<float>, prefill<f16>, prefill<bf16>},          {4, 4, 4}};

}  // namespace forge
