// Rope table, and the preparation of queries, keys and values (norm, rope,
// cache write) for one instruction set.
#pragma once

#include <cmath>

#include "attention/functions.h"
#include "attention/layout.h"
#include "simd/norm.h"

namespace forge::FORGE_SIMD {

// Cosine and sine of |angle| < 2^22 in double, with an error far below half an ulp of f32:
// angle = quarter * pi/2 + r, |r| <= pi/4; then the Taylor polynomials of r.
// Written without branches, so that the compiler turns the loop into vectors.
FORGE_INLINE void cosine_and_sine(double angle, double& cosine, double& sine) {
    constexpr double kMagic = 0x1.8p52;  // adding it rounds to an integer, which lies in the low bits
    const double shifted = angle * 0.63661977236758134308 + kMagic;
    const double quarters = shifted - kMagic;
    const auto quarter = std::bit_cast<std::uint64_t>(shifted);
    // pi/2 in two parts; the first has 33 bits, so that its multiples are exact.
    const double r = (angle - quarters * 0x1.921fb544p0) - quarters * 0x1.0b4611a626331p-34;
    const double z = r * r;
    const double s = r + r * z * (-1.0 / 6 + z * (1.0 / 120 + z * (-1.0 / 5040 + z * (1.0 / 362880 +
                     z * (-1.0 / 39916800 + z * (1.0 / 6227020800.0 - z * (1.0 / 1307674368000.0)))))));
    const double c = 1.0 - z * (0.5 - z * (1.0 / 24 - z * (1.0 / 720 - z * (1.0 / 40320 - z * (1.0 / 3628800 -
                     z * (1.0 / 479001600 - z * (1.0 / 87178291200.0)))))));
    const std::uint64_t swap = 0 - (quarter & 1);  // all ones when sine and cosine change places
    const auto cb = std::bit_cast<std::uint64_t>(c), sb = std::bit_cast<std::uint64_t>(s);
    const std::uint64_t cosine_bits = (cb & ~swap) | (sb & swap), sine_bits = (sb & ~swap) | (cb & swap);
    cosine = std::bit_cast<double>(cosine_bits ^ (((quarter + 1) & 2) << 62));
    sine = std::bit_cast<double>(sine_bits ^ ((quarter & 2) << 62));
}

template <typename T>
void rope_table(const void* params, const StepRows& step, std::int64_t first, std::int64_t last, CpuWorker&) {
    const auto& p = *static_cast<const RopeTableParams*>(params);
    for (std::int64_t row = first; row < last; ++row) {
        float* cosines = p.table + row * 2 * p.half;
        float* sines = cosines + p.half;
        const auto position = static_cast<float>(step.positions[row]);
        for (int i = 0; i < p.half; ++i) {
            const float angle = position * p.inv_freq[i];
            double cosine, sine;
            cosine_and_sine(static_cast<double>(angle), cosine, sine);
            cosines[i] = static_cast<float>(cosine);
            sines[i] = static_cast<float>(sine);
        }
        for (int i = 0; i < p.half; ++i) {
            const float angle = position * p.inv_freq[i];
            if (angle < 0x1p22f && angle > -0x1p22f) continue;
            cosines[i] = static_cast<float>(std::cos(static_cast<double>(angle)));
            sines[i] = static_cast<float>(std::sin(static_cast<double>(angle)));
        }
        const F32 scale = set1(p.scale);
        for (int i = 0; i < 2 * p.half; i += kLanes) {
            const int n = 2 * p.half - i < kLanes ? 2 * p.half - i : kLanes;
            store_first(cosines + i, round_as<T>(load_first(cosines + i, n) * scale), n);
        }
    }
}

// Rotates pairs (i, i + half) of `x` in place.
template <typename T>
void rotate(float* x, const float* table, int half) {
    for (int i = 0; i < half; i += kLanes) {
        const int n = half - i < kLanes ? half - i : kLanes;
        const F32 a = load_first(x + i, n), b = load_first(x + half + i, n);
        const F32 cosine = load_first(table + i, n), sine = load_first(table + half + i, n);
        store_first(x + i, round_as<T>(round_as<T>(a * cosine) - round_as<T>(b * sine)), n);
        store_first(x + half + i, round_as<T>(round_as<T>(b * cosine) + round_as<T>(a * sine)), n);
    }
}

template <typename T>
void write_key(T* block, const float* key, int head_dim, std::int64_t step, int lane) {
    if constexpr (std::is_same_v<T, bf16>) {
        for (int d = 0; d < head_dim; d += 2) {
            // Values of bf16 already: their upper halves.
            const std::uint32_t pair = std::bit_cast<std::uint32_t>(key[d]) >> 16 |
                                       (std::bit_cast<std::uint32_t>(key[d + 1]) & 0xffff0000u);
            __builtin_memcpy(static_cast<void*>(block + d / 2 * step + 2 * lane), &pair, sizeof pair);
        }
    } else if constexpr (std::is_same_v<T, f16>) {
        alignas(64) f16 narrow[512 + kLanes];
        for (int d = 0; d < head_dim; d += kLanes) store(narrow + d, load(key + d));
        for (int d = 0; d < head_dim; ++d) block[d * step + lane] = narrow[d];
    } else {
        for (int d = 0; d < head_dim; ++d) block[d * step + lane] = key[d];
    }
}

template <typename T>
void write_value(T* values, const T* v, int head_dim, const CacheLayout& layout, int position) {
    for (int first = 0; first < head_dim; first += kPanel) {
        T* row = values + layout.value(position, first);
        const int width = std::min(kPanel, head_dim - first);
        int d = 0;
#ifdef FORGE_TARGET_AVX512
        if constexpr (std::is_same_v<T, bf16>) {
            // Sixteen dimensions: this position's word of each pair, the other position's stays.
            const bool odd = position % 2 != 0;
            T* pairs = row - (odd ? 1 : 0);
            for (; d + 16 <= width; d += 16) {
                __m512i words = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(v + first + d)));
                if (odd) words = _mm512_slli_epi32(words, 16);
                _mm512_mask_storeu_epi16(pairs + 2 * d, odd ? 0xaaaaaaaau : 0x55555555u, words);
            }
        }
#endif
        for (; d < width; ++d) row[d * layout.unit] = v[first + d];
    }
}

inline constexpr int kRowsAhead = 4;  // whose inputs are fetched early

// Items go head by head, rows within, so that a thread's grain fills whole lines of the cache.
template <typename T>
void qk_prepare(const void* params, const StepRows& step, std::int64_t first, std::int64_t last, CpuWorker& worker) {
    const auto& p = *static_cast<const QkPrepareParams*>(params);
    worker.tag = 0;
    auto* x = reinterpret_cast<float*>(worker.scratch.data());
    const CacheLayout layout = layout_of(p.cache);
    const int dims = p.head_dim;
    for (std::int64_t item = first; item < last; ++item) {
        const int which = static_cast<int>(item / step.m), row = static_cast<int>(item % step.m);
        const bool query = which < p.n_heads;
        const int head = query ? which : which - p.n_heads;
        const std::int64_t at = (static_cast<std::int64_t>(row) * (query ? p.n_heads : p.n_kv_heads) + head) * dims;
        const T* in = query ? static_cast<const T*>(p.q) + query_offset(p, row, head) : static_cast<const T*>(p.k) + at;
        // The next rows' heads lie a page or so apart, which the machine's prefetchers do not follow.
        const std::int64_t row_step = query ? query_offset(p, 1, 0) : static_cast<std::int64_t>(p.n_kv_heads) * dims;
        if (row + kRowsAhead < step.m) {
            const T* coming = in + kRowsAhead * row_step;
            for (int d = 0; d < dims; d += static_cast<int>(64 / sizeof(T))) prefetch(coming + d);
            if (!query && p.v != nullptr)
                for (int d = 0; d < dims; d += static_cast<int>(64 / sizeof(T)))
                    prefetch(static_cast<const T*>(p.v) + at + kRowsAhead * row_step + d);
        }
        const float* weight = query ? p.q_norm : p.k_norm;
        for (int d = 0; d < dims; d += kLanes) {
            const int n = dims - d < kLanes ? dims - d : kLanes;
            store(x + d, load_first(in + d, n));
        }
        if (weight != nullptr) {
            const F32 factor = set1(norm_factor(x, dims, p.eps));
            for (int d = 0; d < dims; d += kLanes) {
                const int n = dims - d < kLanes ? dims - d : kLanes;
                store(x + d, normed<T>(p.norm, load(x + d) * factor, load_first(weight + d, n)));
            }
        }
        if (p.rope != nullptr) rotate<T>(x, p.rope + static_cast<std::int64_t>(row) * 2 * p.rope_half, p.rope_half);
        if (query) {
            T* out = static_cast<T*>(p.q_out) + at;
            for (int d = 0; d < dims; d += kLanes) store_first(out + d, load(x + d), dims - d < kLanes ? dims - d : kLanes);
            continue;
        }
        const int position = step.positions[row];
        const std::int64_t base = layout.head_offset(p.cache, step.slots[row], head);
        write_key(static_cast<T*>(p.cache.keys) + base + position / kBlock * layout.key_block, x, dims, layout.key_step,
                  position % kBlock);
        const T* value = static_cast<const T*>(p.v_from_k ? p.k : p.v) + at;
        T* const normed_value = reinterpret_cast<T*>(x);   // the key is written: its place is free
        if (p.v_norm) {
            const F32 factor = set1(norm_factor(value, dims, p.eps));
            for (int d = 0; d < dims; d += kLanes) {
                const int n = dims - d < kLanes ? dims - d : kLanes;
                store_first(normed_value + d, load_first(value + d, n) * factor, n);
            }
            value = normed_value;
        }
        write_value(static_cast<T*>(p.cache.values) + base, value, dims, layout, position);
    }
}

}  // namespace forge::FORGE_SIMD
