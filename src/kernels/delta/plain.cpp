// The reference: gated DeltaNet as plain loops.
#include <algorithm>
#include <cmath>
#include <vector>

#include "base/float16.h"
#include "delta/functions.h"
#include "kernels/delta/delta.h"

namespace forge {
namespace {

template <typename T>
float at(const void* p, std::size_t i) { return static_cast<float>(static_cast<const T*>(p)[i]); }
float sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }

template <typename T>
void conv(const void* params, const StepRows& step, std::int64_t first, std::int64_t last, CpuWorker&) {
    const auto& p = *static_cast<const ConvParams*>(params);
    const std::size_t channels = static_cast<std::size_t>(p.state.channels), taps = static_cast<std::size_t>(p.state.kernel), before = taps - 1;
    const std::size_t to = std::min(channels, static_cast<std::size_t>(last * kConvChannels));
    for (std::size_t c = static_cast<std::size_t>(first * kConvChannels); c < to; ++c) {
        for (int row = 0; row < step.m;) {
            const int end = span_end(step, row);
            T* state = static_cast<T*>(p.state.conv) + static_cast<std::size_t>(step.slots[row]) * before * channels + c;
            std::vector<float> inputs;   // what came before, then the span's own
            for (std::size_t j = 0; j < before; ++j) inputs.push_back(step.positions[row] == 0 ? 0.0f : static_cast<float>(state[j * channels]));
            for (int r = row; r < end; ++r) {
                inputs.push_back(at<T>(p.u, static_cast<std::size_t>(r) * channels + c));
                float sum = 0;
                for (std::size_t j = 0; j < taps; ++j) sum += p.weight[c * taps + j] * inputs[inputs.size() - taps + j];
                sum = round_to<T>(sum);
                static_cast<T*>(p.c)[static_cast<std::size_t>(r) * channels + c] = T(sum * sigmoid(sum));
            }
            for (std::size_t j = 0; j < before; ++j) state[j * channels] = T(inputs[inputs.size() - before + j]);
            row = end;
        }
    }
}

template <typename T>
std::vector<float> unit(const void* x, std::size_t first, std::size_t n, float scale) {
    float squares = 0;
    for (std::size_t i = 0; i < n; ++i) squares += at<T>(x, first + i) * at<T>(x, first + i);
    std::vector<float> out;
    for (std::size_t i = 0; i < n; ++i) out.push_back(at<T>(x, first + i) * (scale / std::sqrt(squares + 1e-6f)));
    return out;
}

// Norm of one head, times silu(z).
template <typename T>
void norm_gate(const void* x, const void* z, std::size_t from, const float* weight, float eps, std::size_t width, void* y) {
    float squares = 0;
    for (std::size_t c = 0; c < width; ++c) squares += at<T>(x, from + c) * at<T>(x, from + c);
    const float factor = 1.0f / std::sqrt(squares / static_cast<float>(width) + eps);
    for (std::size_t c = 0; c < width; ++c) {
        const float t = round_to<T>(weight[c] * round_to<T>(at<T>(x, from + c) * factor)), gate = at<T>(z, from + c);
        static_cast<T*>(y)[from + c] = T(t * (gate * sigmoid(gate)));
    }
}

template <typename T>
void delta(const void* params, const StepRows& step, std::int64_t first, std::int64_t last, CpuWorker&) {
    const auto& p = *static_cast<const DeltaParams*>(params);
    const DeltaState& s = p.state;
    const auto dk = static_cast<std::size_t>(s.k_dim), dv = static_cast<std::size_t>(s.v_dim), heads = static_cast<std::size_t>(s.n_v_heads);
    const std::size_t key_heads = static_cast<std::size_t>(s.n_k_heads);
    for (auto h = static_cast<std::size_t>(first); h < static_cast<std::size_t>(last); ++h) {
        const std::size_t kh = p.tiled_heads ? h % key_heads : h / (heads / key_heads);
        const float rate = p.negative_exp ? p.a_log[h] : -std::exp(p.a_log[h]);
        for (std::size_t j = 0; j < dv; ++j) {
            for (int r = 0; r < step.m; ++r) {
                float* state = s.state + (static_cast<std::size_t>(step.slots[r]) * heads + h) * dk * dv + j;
                const std::size_t row = static_cast<std::size_t>(r), channels = static_cast<std::size_t>(s.channels);
                const auto q = unit<T>(p.c, row * channels + kh * dk, dk, 1.0f / std::sqrt(static_cast<float>(dk)));
                const auto k = unit<T>(p.c, row * channels + (key_heads + kh) * dk, dk, 1.0f);
                const float v = at<T>(p.c, row * channels + 2 * key_heads * dk + h * dv + j);
                const float a = at<T>(p.a, row * heads + h) + p.dt_bias[h];
                const float decay = std::exp(rate * (a > 20 ? a : std::log1p(std::exp(a))));
                const float beta = round_to<T>(sigmoid(at<T>(p.b, row * heads + h)));
                float seen = 0, out = 0;
                for (std::size_t i = 0; i < dk; ++i) {
                    state[i * dv] = step.positions[r] == 0 ? 0.0f : state[i * dv] * decay;
                    seen += state[i * dv] * k[i];
                }
                for (std::size_t i = 0; i < dk; ++i) {
                    state[i * dv] += k[i] * (beta * (v - seen));
                    out += state[i * dv] * q[i];
                }
                static_cast<T*>(p.out)[(row * heads + h) * dv + j] = T(out);
            }
        }
        if (p.z)
            for (std::size_t row = 0; row < static_cast<std::size_t>(step.m); ++row)
                norm_gate<T>(p.out, p.z, (row * heads + h) * dv, p.norm_weight, p.norm_eps, dv, p.out);
    }
}

template <typename T>
void gated_norm(const void* params, const StepRows&, std::int64_t first, std::int64_t last, CpuWorker&) {
    const auto& p = *static_cast<const GatedNormParams*>(params);
    const auto width = static_cast<std::size_t>(p.width);
    for (auto i = static_cast<std::size_t>(first * p.heads); i < static_cast<std::size_t>(last * p.heads); ++i)
        norm_gate<T>(p.x, p.z, i * width, p.weight, p.eps, width, p.y);
}

template <typename T>
void head_gate(const void* params, const StepRows&, std::int64_t first, std::int64_t last, CpuWorker&) {
    const auto& p = *static_cast<const HeadGateParams*>(params);
    const std::size_t width = static_cast<std::size_t>(p.head_dim);
    for (auto i = static_cast<std::size_t>(first * p.heads); i < static_cast<std::size_t>(last * p.heads); ++i)
        for (std::size_t c = 0; c < width; ++c)
            static_cast<T*>(p.y)[i * width + c] = T(at<T>(p.x, i * width + c) * round_to<T>(sigmoid(at<T>(p.q, (2 * i + 1) * width + c))));
}

}  // namespace

const DeltaFunctions delta_plain = {{conv<float>, conv<f16>, conv<bf16>}, {delta<float>, delta<f16>, delta<bf16>},
                                    {gated_norm<float>, gated_norm<f16>, gated_norm<bf16>}, {head_gate<float>, head_gate<f16>, head_gate<bf16>}};

}  // namespace forge
