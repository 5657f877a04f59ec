#include "encode_fit.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/float16.h"

namespace forge {

int nearest_in(float x, int lo, int hi) {
    if (!(x > static_cast<float>(lo))) return lo;
    if (x >= static_cast<float>(hi)) return hi;
    // Adding 1.5 * 2^23 leaves the rounded integer in the mantissa.
    const auto bits = std::bit_cast<std::uint32_t>(x + 0x1.8p23f);
    return static_cast<int>(bits & 0x7fffffu) - 0x400000;
}

std::uint16_t finite_half(float x) {
    if (std::isnan(x)) return 0;
    return f32_to_f16(std::clamp(x, -65504.0f, 65504.0f));
}

namespace {

// Large weights matter more than their share: w = rms + |x|.
void weigh(const float* x, int n, float* w) {
    float square = 0;
    for (int i = 0; i < n; ++i) square += x[i] * x[i];
    const float rms = std::sqrt(square / static_cast<float>(n));
    for (int i = 0; i < n; ++i) w[i] = rms + std::fabs(x[i]);
}

}  // namespace

float fit_scale(const float* x, int n, int lo, int hi) {
    float extreme = 0;
    for (int i = 0; i < n; ++i)
        if (std::fabs(x[i]) > std::fabs(extreme)) extreme = x[i];
    if (!(std::fabs(extreme) > 1e-30f)) return 0;
    float w[256];
    weigh(x, n, w);
    float best_scale = extreme / static_cast<float>(lo), best_gain = -1;
    // With codes q the best scale is sum(wxq)/sum(wqq), and it lowers the error by sum(wxq)^2/sum(wqq).
    for (int step = -8; step <= 8; ++step) {
        const float inverse = (static_cast<float>(lo) + 0.1f * static_cast<float>(step)) / extreme;
        float xq = 0, qq = 0;
        for (int i = 0; i < n; ++i) {
            const auto q = static_cast<float>(nearest_in(inverse * x[i], lo, hi));
            xq += w[i] * x[i] * q;
            qq += w[i] * q * q;
        }
        if (qq > 0 && xq * xq > best_gain * qq) {
            best_gain = xq * xq / qq;
            best_scale = xq / qq;
        }
    }
    return best_scale;
}

AffineFit fit_affine(const float* x, int n, int hi) {
    const auto [low, high] = std::minmax_element(x, x + n);
    const float least = std::min(*low, 0.0f), most = *high;
    const float range = most - least;
    if (!(range > 1e-30f)) return {0, -least};
    float w[256];
    weigh(x, n, w);
    float sw = 0, sx = 0;
    for (int i = 0; i < n; ++i) {
        sw += w[i];
        sx += w[i] * x[i];
    }
    AffineFit best{range / static_cast<float>(hi), -least};
    float best_error = -1;
    for (int step = -5; step <= 9; ++step) {
        const float inverse = (static_cast<float>(hi) + 0.1f * static_cast<float>(step)) / range;
        float q[256], sq = 0, sqq = 0, sxq = 0;
        for (int i = 0; i < n; ++i) {
            q[i] = static_cast<float>(nearest_in(inverse * (x[i] - least), 0, hi));
            sq += w[i] * q[i];
            sqq += w[i] * q[i] * q[i];
            sxq += w[i] * x[i] * q[i];
        }
        // Normal equations of x = scale q - minimum.
        const float determinant = sw * sqq - sq * sq;
        if (!(determinant > 0)) continue;
        AffineFit fit{(sw * sxq - sx * sq) / determinant, (sq * sxq - sqq * sx) / determinant};
        if (fit.minimum < 0) fit = {sxq / sqq, 0};
        float error = 0;
        for (int i = 0; i < n; ++i) {
            const float difference = x[i] - (fit.scale * q[i] - fit.minimum);
            error += w[i] * difference * difference;
        }
        if (fit.scale > 0 && (best_error < 0 || error < best_error)) {
            best_error = error;
            best = fit;
        }
    }
    return best;
}

}  // namespace forge
