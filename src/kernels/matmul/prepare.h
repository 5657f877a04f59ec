// x' = norm(x) of a row, in the order in which codes come out of a weight.
#pragma once

#include <type_traits>

#include "matmul/codec.h"
#include "simd/norm.h"

namespace forge::FORGE_SIMD {

// What a kernel needs of x: order, padding and whether lane sums are wanted.
struct InputLayout {
    int stride;           // elements between lanes: 1, 4, 8, 16
    std::int64_t block;   // elements of a block
    std::int64_t padded;  // columns rounded up to whole blocks
    bool sums;
};

inline InputLayout input_layout(const Weight& w) {
    const CodeKind kind = w.tiled ? CodeKind::dense_f32 : code_kind(w.format);  // tiled: in natural order
    const std::int64_t block = static_cast<std::int64_t>(steps_of(kind)) * kLanes;
    return {stride_of(kind), block, round_up(w.cols, block), w.format.offset != OffsetKind::none};
}

// x' in natural order, rounded to T and kept as floats, with zeros up to `padded`.
template <typename T>
void prepare_row(const MatmulParams& p, std::int64_t row, std::int64_t padded, float* out) {
    const std::int64_t k = p.w->cols;
    const T* x = static_cast<const T*>(p.x) + row * k;
    const F32 factor = set1(p.norm_weight ? norm_factor(x, static_cast<int>(k), p.eps) : 1.0f);
    std::int64_t i = 0;
    if (p.norm_weight == nullptr) {
        for (; i + kLanes <= k; i += kLanes) store(out + i, load(x + i));
        if (i < k) store(out + i, load_first(x + i, static_cast<int>(k - i))), i += kLanes;
    } else {
        for (; i + kLanes <= k; i += kLanes)
            store(out + i, normed<T>(p.norm, load(x + i) * factor, load(p.norm_weight + i)));
        if (i < k) {
            const int n = static_cast<int>(k - i);
            store(out + i,
                  normed<T>(p.norm, load_first(x + i, n) * factor, load_first(p.norm_weight + i, n)));
            i += kLanes;
        }
    }
    for (; i < padded; i += kLanes) store(out + i, zero());
}

// Reorders one block of stride * kLanes floats: out[j][i] = in[stride * i + j].
template <int stride>
FORGE_INLINE void deinterleave(const float* in, F32 (&out)[stride]) {
    // log2(stride) rounds of unzipping; after each, evens come first, so results are in bit-reversed order.
    F32 a[stride], b[stride];
    unroll<stride>([&](auto i) __attribute__((always_inline)) { a[i] = load(in + i * kLanes); });
    constexpr int rounds = stride == 4 ? 2 : stride == 8 ? 3 : 4;
    unroll<rounds>([&](auto round) __attribute__((always_inline)) {
        constexpr int half = stride / 2;
        unroll<half>([&](auto i) __attribute__((always_inline)) {
            unzip(a[2 * i], a[2 * i + 1], b[i], b[half + i]);
        });
        unroll<stride>([&](auto i) __attribute__((always_inline)) { a[i] = b[i]; });
        (void)round;
    });
    // Each round put the even positions in the first half and halved the distance between
    // neighbours' elements; a[j] now holds phase j.
    unroll<stride>([&](auto i) __attribute__((always_inline)) { out[i] = a[i]; });
}

// All blocks of a row to the layout's order; lane sums of each block to `sums` when wanted.
template <int stride>
void reorder(const float* in, std::int64_t blocks, float* out, float* sums) {
    for (std::int64_t b = 0; b < blocks; ++b) {
        F32 v[stride];
        deinterleave<stride>(in + b * stride * kLanes, v);
        unroll<stride>([&](auto j)
                           __attribute__((always_inline)) { store(out + (b * stride + j) * kLanes, v[j]); });
        if (sums) {
            F32 total = v[0];
            unroll<stride - 1>([&](auto j) __attribute__((always_inline)) { total = total + v[j + 1]; });
            store(sums + b * kLanes, total);
        }
    }
}

inline void reorder(const InputLayout& layout, const float* in, float* out, float* sums) {
    const std::int64_t blocks = layout.padded / layout.block;
    switch (layout.stride) {
        case 4:
            return reorder<4>(in, blocks, out, sums);
        case 8:
            return reorder<8>(in, blocks, out, sums);
        case 16:
            return reorder<16>(in, blocks, out, sums);
        default:
            std::memcpy(out, in, static_cast<std::size_t>(layout.padded) * sizeof(float));
    }
}

#ifdef FORGE_SIMD_BF16_DOT
// x' of a row from floats in FloatPath's order to words: word 2i of step j is lane i of
// vector j, word 2i + 1 lane i of vector j + stride / 2. In place: writes stay behind reads.
inline void narrow_row(const InputLayout& layout, const float* in, bf16* out) {
    if (layout.stride == 1) {
        for (std::int64_t i = 0; i < layout.padded; i += kLanes) store(out + i, load(in + i));
        return;
    }
    const int half = layout.stride / 2;
    const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
    for (std::int64_t b = 0; b < layout.padded / layout.block; ++b)
        for (int j = 0; j < half; ++j) {
            const float* at = in + (b * layout.stride + j) * kLanes;
            const __m512i low = _mm512_srli_epi32(_mm512_loadu_si512(at), 16);
            const __m512i high = _mm512_and_si512(_mm512_loadu_si512(at + half * kLanes), upper);
            _mm512_storeu_si512(out + (b * half + j) * 2 * kLanes, _mm512_or_si512(low, high));
        }
}
#else
inline void narrow_row(const InputLayout&, const float*, bf16*) {}  // only paths with words of bf16 call it
#endif

}  // namespace forge::FORGE_SIMD
