// From sums to y: bias, activation, residual, softcap, rounding.
#pragma once

#include "kernels/matmul/matmul.h"
#include "matmul/ints.h"
#include "simd/math.h"

namespace forge::FORGE_SIMD {

// Writes y[row][n .. n + count) from the sums a (and b of w2), before global scale and bias.
template <typename T>
void finish(const MatmulParams& p, std::int64_t row, std::int64_t n, int count, const float* a,
            const float* b) {
    const std::int64_t at = row * p.w->rows + n;
    const F32 scale = set1(p.w->global_scale), scale2 = set1(p.w2 ? p.w2->global_scale : 1.0f);
    for (int i = 0; i < count; i += kLanes) {
        const int left = count - i < kLanes ? count - i : kLanes;
        F32 sum = load_first(a + i, left) * scale;
        if (p.bias) sum = sum + load_first(p.bias + n + i, left);
        if (p.f32_out) {
            if (p.softcap != 0) sum = set1(p.softcap) * tanh(sum / set1(p.softcap));
            store_first(static_cast<float*>(p.y) + at + i, sum, left);
            continue;
        }
        T* y = static_cast<T*>(p.y) + at + i;
        if (p.epilogue == Epilogue::add) {
            sum = load_first(static_cast<const T*>(p.residual) + at + i, left) + round_as<T>(sum);
        } else if (p.epilogue == Epilogue::act_mul) {
            F32 up = load_first(b + i, left) * scale2;
            if (p.bias2) up = up + load_first(p.bias2 + n + i, left);
            const F32 gate = round_as<T>(sum);
            sum = round_as<T>(p.act == ActKind::silu ? silu(gate) : gelu_tanh(gate)) * round_as<T>(up);
        }
        store_first(y, sum, left);
    }
}

}  // namespace forge::FORGE_SIMD
