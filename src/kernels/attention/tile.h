// The product at the heart of attention, for both q k^T and p v:
//
//   c[r][16 b + lane] (+)= sum over steps of a[r][step] * b[block b][step][lane]
//
// `a` is row-major and broadcast, `b` a panel with 16 lanes a block (the cache's
// arrangement, layout.h). The sum of one c runs over the steps in order, in one
// accumulator, so its bits do not depend on how rows and blocks are grouped.
#pragma once

#include <array>
#include <utility>

#include "simd/vec.h"

namespace forge::FORGE_SIMD {

// How elements of T are multiplied. A: what `a` is packed as. unit: elements a step takes.
template <typename T>
struct Wide {  // unpacked to floats
    using A = float;
    static constexpr int unit = 1;
    static constexpr int vector = kLanes;  // elements of b a vector brings
    using B = F32;
    static FORGE_INLINE B load_b(const T* p) { return load(p); }
    static FORGE_INLINE B load_a(const float* a) { return set1(a[0]); }
    static FORGE_INLINE F32 dot(F32 acc, const B& a, const B& b) { return fma(a, b, acc); }
    static FORGE_INLINE void store_a(float* a, F32 x) { store(a, round_as<T>(x)); }
};

#ifdef FORGE_SIMD_BF16_DOT
template <typename T>
struct Dot;
template <>
struct Dot<bf16> {  // pairs, by the machine's bf16 product
    using A = bf16;
    static constexpr int unit = 2;
    static constexpr int vector = 2 * kLanes;
    using B = BfPairs;
    static FORGE_INLINE B load_b(const bf16* p) { return load_bf_pairs(p); }
    static FORGE_INLINE B load_a(const bf16* a) {
        std::uint32_t pair;
        __builtin_memcpy(&pair, a, sizeof pair);
        return set1_bf_pair(pair);
    }
    static FORGE_INLINE F32 dot(F32 acc, const B& a, const B& b) { return dot_pairs(acc, a, b); }
    static FORGE_INLINE void store_a(bf16* a, F32 x) { store_flushed(a, x); }
};
#endif

template <>
struct Wide<bf16> {  // pairs, unpacked to floats
    using A = float;
    static constexpr int unit = 2;
    static constexpr int vector = 2 * kLanes;
    using B = Pairs;
    static FORGE_INLINE B load_b(const bf16* p) { return load_pairs(p); }
    static FORGE_INLINE B load_a(const float* a) { return {set1(a[0]), set1(a[1])}; }
    static FORGE_INLINE F32 dot(F32 acc, const B& a, const B& b) {
        return fma(a.second, b.second, fma(a.first, b.first, acc));
    }
    static FORGE_INLINE void store_a(float* a, F32 x) { store(a, round_bf16(x)); }
};

// Rows and 16-lane blocks of one tile, from the number of registers.
#if defined(FORGE_TARGET_AVX512)
inline constexpr int kTileRows = 6, kTileBlocks = 4;
#else
inline constexpr int kTileRows = 4, kTileBlocks = 1;
#endif

// How far ahead of its loads decode asks for the cache, which comes from memory, and
// how many bytes of values while it makes probabilities of the scores.
inline constexpr int kDecodeAhead = 2048, kValuesAhead = 8192;

template <typename D, typename T>
struct TileArgs {
    const typename D::A* a;
    std::ptrdiff_t a_row;      // elements from one row of a to the next
    const T* b;
    std::ptrdiff_t b_block;    // elements from one block of b to the next
    std::ptrdiff_t b_step;     // elements from one step to the next
    int steps;
    float* c;
    std::ptrdiff_t c_row, c_block;
    const float* keep;         // with Keep: c[r] is multiplied by keep[r] first
};

// Keep: c is added to. Ahead: bytes of b to prefetch ahead, 0 for none.
template <typename D, typename T, int Rows, int Blocks, bool Keep, int Ahead>
void tile(const TileArgs<D, T>& t) {
    constexpr int kPer = 16 / kLanes;  // vectors a block
    const std::ptrdiff_t c_row = t.c_row, c_block = t.c_block, b_block = t.b_block, b_step = t.b_step, a_row = t.a_row;
    float* const c = t.c;
    // Unrolled throughout, so that the sums stay in registers from start to end.
    F32 acc[Rows][Blocks * kPer];
    if constexpr (!Keep) {
#pragma GCC unroll 16
        for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 16
            for (int v = 0; v < Blocks * kPer; ++v) acc[r][v] = zero();
    } else {
#pragma GCC unroll 16
        for (int r = 0; r < Rows; ++r) {
            const F32 keep = set1(t.keep[r]);
#pragma GCC unroll 16
            for (int v = 0; v < Blocks * kPer; ++v)
                acc[r][v] = load(c + r * c_row + v / kPer * c_block + v % kPer * kLanes) * keep;
        }
    }
    const typename D::A* a = t.a;
    const T* b = t.b;
    for (int s = t.steps; s > 0; --s) {
        typename D::B panel[Blocks * kPer];
#pragma GCC unroll 16
        for (int v = 0; v < Blocks * kPer; ++v) {
            const T* p = b + v / kPer * b_block + v % kPer * D::vector;
            panel[v] = D::load_b(p);
            if constexpr (Ahead > 0) prefetch(reinterpret_cast<const char*>(p) + Ahead);
        }
#pragma GCC unroll 16
        for (int r = 0; r < Rows; ++r) {
            const typename D::B x = D::load_a(a + r * a_row);
#pragma GCC unroll 16
            for (int v = 0; v < Blocks * kPer; ++v) acc[r][v] = D::dot(acc[r][v], x, panel[v]);
        }
        a += D::unit;
        b += b_step;
    }
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 16
        for (int v = 0; v < Blocks * kPer; ++v)
            store(c + r * c_row + v / kPer * c_block + v % kPer * kLanes, acc[r][v]);
}

// Any number of rows and blocks up to kTileRows and kTileBlocks.
template <typename D, typename T, bool Keep, int Ahead>
FORGE_INLINE void run_tile(int rows, int blocks, const TileArgs<D, T>& args) {
    using Fn = void (*)(const TileArgs<D, T>&);
    static constexpr auto table = []<int... I>(std::integer_sequence<int, I...>) {
        return std::array<Fn, sizeof...(I)>{tile<D, T, I / kTileBlocks + 1, I % kTileBlocks + 1, Keep, Ahead>...};
    }(std::make_integer_sequence<int, kTileRows * kTileBlocks>{});
    table[static_cast<std::size_t>((rows - 1) * kTileBlocks + blocks - 1)](args);
}

}  // namespace forge::FORGE_SIMD
