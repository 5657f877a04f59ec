// y = x W^T for many rows of x. x' is packed once into panels of kLanes rows,
// [depth][kLanes] words: a float, or a pair of bf16 of neighbouring columns (AVX-512,
// T = bf16). An item is kGemmRows rows of W: they are dequantised tile by tile
// (kGemmDepth columns) into the worker's scratch and multiplied with all panels.
#pragma once

#include "matmul/epilogue.h"
#include "matmul/prepare.h"
#include "matmul/scales.h"
#include "matmul/stream.h"
#include "matmul/tile_codec.h"

namespace forge::FORGE_SIMD {

#ifdef FORGE_SIMD_BF16_DOT
template <typename T>
inline constexpr bool paired = std::is_same_v<T, bf16>;
#else
template <typename T>
inline constexpr bool paired = false;
#endif

#if defined(FORGE_TARGET_AVX512)
inline constexpr int kTileRows = 12, kTilePanels = 2;  // 24 sums of 32 registers
#elif defined(FORGE_TARGET_AVX2)
inline constexpr int kTileRows = 6, kTilePanels = 2;  // 12 sums of 16 registers
#else
inline constexpr int kTileRows = 6, kTilePanels = 4;  // 24 sums of 32 registers
#endif
static_assert(kGemmRows % kTileRows == 0 && kGemmRows % kLanes == 0);

inline constexpr std::int64_t kRowGap = 16;  // words between rows, against rows that share cache sets

template <bool pairs>
std::int64_t depth_of(std::int64_t columns) {
    return pairs ? columns / 2 : columns;
}
template <typename T>
std::int64_t packed_depth(const MatmulParams& p) {
    return depth_of<paired<T>>(input_layout(*p.w).padded);
}
inline std::int64_t panels_of(std::int64_t rows) { return (rows + kLanes - 1) / kLanes; }

template <typename T>
std::size_t packed_bytes_as(const MatmulParams& p) {
    return static_cast<std::size_t>(panels_of(p.max_rows) * kLanes * packed_depth<T>(p)) * 4;
}
template <typename T>
std::size_t pack_scratch_as(const MatmulParams& p) {
    return static_cast<std::size_t>(2 * input_layout(*p.w).padded + kLanes * (packed_depth<T>(p) + kRowGap)) *
           4;
}

// Two vectors of neighbouring columns as one vector of pairs in the same order.
#ifdef FORGE_SIMD_BF16_DOT
FORGE_INLINE void store_pairs(float* out, F32 first, F32 second) {
    _mm512_storeu_si512(out, (__m512i)_mm512_cvtne2ps_pbh(second.v, first.v));
}
#else
FORGE_INLINE void store_pairs(float*, F32, F32) {}
#endif

// Items are panels.
template <typename T>
void pack(const void* params, const StepRows& step, std::int64_t first, std::int64_t last,
          CpuWorker& worker) {
    const auto& p = *static_cast<const MatmulParams*>(params);
    const InputLayout layout = input_layout(*p.w);
    const std::int64_t depth = packed_depth<T>(p), row_words = depth + kRowGap;
    const int rows = step.m;
    auto* natural = reinterpret_cast<float*>(worker.scratch.data());
    float* ordered = natural + layout.padded;
    float* panel_rows = ordered + layout.padded;  // [kLanes][row_words]
    worker.tag = 0;
    for (std::int64_t panel = first; panel < last; ++panel) {
        for (int t = 0; t < kLanes; ++t) {
            const std::int64_t row = panel * kLanes + t;
            float* out = panel_rows + t * row_words;
            if (row >= rows) {
                std::memset(out, 0, static_cast<std::size_t>(depth) * 4);
                continue;
            }
            prepare_row<T>(p, row, layout.padded, natural);
            reorder(layout, natural, paired<T> ? ordered : out, nullptr);
            if constexpr (paired<T>)
                for (std::int64_t d = 0; d < depth; d += kLanes)
                    store_pairs(out + d, load(ordered + 2 * d), load(ordered + 2 * d + kLanes));
        }
        float* to = static_cast<float*>(p.packed) + panel * depth * kLanes;
        for (std::int64_t d = 0; d < depth; d += kLanes)
            transpose(panel_rows + d, row_words, to + d * kLanes, kLanes);
    }
}

// Columns [from, from + count) of a row of W as words of the tile; count is padded to whole blocks with
// codes of zero, which meet zeros of x.
template <CodeKind kind, bool pairs>
__attribute__((noinline)) void dequantise(const Codec<kind>& codec, const WeightFormat& format,
                                          RowCodes codes, const float* scales, const float* offsets,
                                          std::int64_t count, float* out) {
    constexpr int block = Codec<kind>::block, steps = Codec<kind>::steps;
    constexpr bool scaled = !is_dense(kind);
    std::uint32_t lane_group[kLanes] = {};
    if constexpr (scaled)
        for (int i = 0; i < kLanes; ++i)
            lane_group[i] = static_cast<std::uint32_t>(i * stride_of(kind) >> group_shift(format));
    const U32 spread = load_ints(lane_group);
    Tail<kind> tail;
    for (std::int64_t b = 0; b * block < count; ++b) {
        if (count - b * block < block) [[unlikely]]
            codes.low = tail.take(codes.low, b, count - b * block);
        const auto loaded = codec.load(codes, b);
        F32 scale = zero(), offset = zero();
        if constexpr (scaled) {
            scale = permute(load(scales + (b * block >> group_shift(format))), spread);
            if (offsets) offset = permute(load(offsets + (b * block >> group_shift(format))), spread);
        }
        const auto value = [&](auto j) __attribute__((always_inline)) {
            const F32 code = codec.template value<j>(loaded);
            if constexpr (!scaled)
                return code;
            else
                return fma(code, scale, offset);
        };
        if constexpr (pairs) {
            unroll<steps / 2>([&](auto j) __attribute__((always_inline)) {
                store_pairs(out + (b * steps / 2 + j) * kLanes, value(std::integral_constant<int, 2 * j>{}),
                            value(std::integral_constant<int, 2 * j + 1>{}));
            });
        } else {
            unroll<steps>([&](auto j) __attribute__((always_inline)) {
                store(out + (b * steps + j) * kLanes, value(j));
            });
        }
    }
}

#ifdef FORGE_SIMD_BF16_DOT
// Lane by lane a pair of bf16: a, then b.
FORGE_INLINE F32 pair_words(F32 a, F32 b) {
    const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21,
                                           5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    return {_mm512_castsi512_ps(_mm512_permutexvar_epi16(order, (__m512i)_mm512_cvtne2ps_pbh(b.v, a.v)))};
}
#else
FORGE_INLINE F32 pair_words(F32 a, F32) { return a; }
#endif

// Columns [k, k + columns) of `count` rows of a tiled W from row n (both of whole tiles, k of whole units) as
// words of the gemm's tile, zeros up to `padded` columns (a multiple of 2 kLanes).
template <CodeKind kind, bool pairs>
__attribute__((noinline)) void dequantise_tiles(const Weight& w, std::int64_t n, std::int64_t count, std::int64_t k,
                                                std::int64_t columns, std::int64_t padded, std::int64_t row_words,
                                                float* out) {
    constexpr int chunk = tile_chunk(kind), words = pairs ? 2 : 1;  // columns of a word
    const TileCodec<kind> codec(w.format);
    const int group_chunks = w.format.group / chunk;
    const TileUnit whole = tile_unit(w.format, kUnitColumns);
    alignas(64) float scales[kUnitColumns / 16 * kLanes], offsets[kUnitColumns / 16 * kLanes] = {};
    alignas(64) float buffer[kUnitColumns * kLanes];  // [word][row]
    for (std::int64_t row = 0; row < count; row += kTiledRows) {
        const auto* tile = reinterpret_cast<const std::uint8_t*>(w.codes.data) +
                           static_cast<std::size_t>((n + row) / kTiledRows) * w.codes.stride +
                           static_cast<std::size_t>(k / kUnitColumns) * whole.bytes;
        for (std::int64_t column = 0; column < padded; column += kUnitColumns, tile += whole.bytes) {
            const std::int64_t wide = std::min<std::int64_t>(kUnitColumns, padded - column);
            const std::int64_t width = std::clamp<std::int64_t>(columns - column, 0, kUnitColumns);
            const TileUnit unit = width == kUnitColumns || width == 0 ? whole : tile_unit(w.format, width);
            const int chunks = static_cast<int>((width + chunk - 1) / chunk);
            for (int part = 0; part < kParts; ++part) {
                if (width > 0)
                    load_unit_scales(w.format, unit, tile, part, (chunks + group_chunks - 1) / group_chunks, scales,
                                     offsets);
                const UnitCodes codes{tile + unit.low + part * kLanes * 4, tile + unit.high};
                float* to = buffer;
                for (int c = 0; c < chunks; ++c) {
                    const auto block = codec.load(codes, c, part);
                    const F32 scale = load(scales + c / group_chunks * kLanes);
                    const F32 offset = load(offsets + c / group_chunks * kLanes);
                    unroll<chunk / words>([&](auto i) __attribute__((always_inline)) {
                        const F32 first = fma(codec.template value<words * i>(block), scale, offset);
                        if constexpr (pairs)
                            store(to + i * kLanes,
                                  pair_words(first, fma(codec.template value<2 * i + 1>(block), scale, offset)));
                        else
                            store(to + i * kLanes, first);
                    });
                    to += chunk / words * kLanes;
                }
                std::memset(to, 0, static_cast<std::size_t>(buffer + wide / words * kLanes - to) * sizeof(float));
                float* rows = out + (row + part * kLanes) * row_words + column / words;
                for (std::int64_t d = 0; d < wide / words; d += kLanes)
                    transpose(buffer + d * kLanes, kLanes, rows + d, row_words);
            }
        }
    }
}

// c[panel][row][kLanes] (+)= R rows of the tile times P panels. Half a panel of `depth` words from `next` on,
// which are wanted soon, are fetched meanwhile: they lie in the cache that cores share, or beyond it.
template <bool pairs, int R, int P>
__attribute__((noinline)) void multiply(const float* w, std::int64_t w_stride, const float* x,
                                        std::int64_t panel_stride, std::int64_t depth, float* c,
                                        std::int64_t c_stride, bool add, const float* next) {
    F32 sums[R][P];
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
        for (int q = 0; q < P; ++q) sums[r][q] = add ? load(c + q * c_stride + r * kLanes) : zero();
    for (std::int64_t d = 0; d < depth; ++d) {
        F32 xs[P];
#pragma GCC unroll 4
        for (int q = 0; q < P; ++q) xs[q] = load(x + q * panel_stride + d * kLanes);
        if (d & 1) prefetch(next + (d >> 1) * kLanes);
#pragma GCC unroll 12
        for (int r = 0; r < R; ++r) {
            const F32 wr = set1(w[r * w_stride + d]);
#pragma GCC unroll 4
            for (int q = 0; q < P; ++q) {
#ifdef FORGE_SIMD_BF16_DOT
                if constexpr (pairs) {
                    sums[r][q].v = _mm512_dpbf16_ps(sums[r][q].v, (__m512bh)xs[q].v, (__m512bh)wr.v);
                    continue;
                }
#endif
                sums[r][q] = fma(xs[q], wr, sums[r][q]);
            }
        }
    }
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
        for (int q = 0; q < P; ++q) store(c + q * c_stride + r * kLanes, sums[r][q]);
}

struct GemmScratch {
    static constexpr std::int64_t row_words = kGemmDepth + kRowGap;
    static constexpr std::int64_t tile = kGemmRows * row_words;
    std::int64_t sums;    // of one matrix: [panel][kGemmRows][kLanes]
    std::int64_t scales;  // scales, and offsets, of a tile's row
    static constexpr std::int64_t codes = kGemmDepth / 4 + 16;
    static constexpr std::int64_t rows =
        static_cast<std::int64_t>(kLanes) * kGemmRows;  // a panel's results, [token][row]
    bool two;
    std::int64_t floats() const { return tile + (two ? 2 : 1) * (sums + rows) + 2 * scales + codes; }
};
inline GemmScratch gemm_scratch_layout(const MatmulParams& p) {
    const std::int64_t tokens = std::min<std::int64_t>(round_up(p.max_rows, kLanes), kGemmTokens);
    return {tokens * kGemmRows, kGemmDepth / 16 + 2 * kLanes, p.w2 != nullptr};
}
inline std::size_t gemm_scratch(const MatmulParams& p) {
    return static_cast<std::size_t>(gemm_scratch_layout(p).floats()) * 4;
}

// sums = rows [n, n + count) of w times panels [panel, panel + panels).
template <bool pairs, CodeKind kind>
void multiply_rows(const Weight& w, const MatmulParams& p, std::int64_t n, std::int64_t count,
                   std::int64_t panel, std::int64_t panels, const GemmScratch& layout, float* scratch,
                   float* sums) {
    float* const tile = scratch;
    float* const scales = tile + GemmScratch::tile;
    float* const offsets = scales + layout.scales;
    auto* const unpacked = reinterpret_cast<std::uint8_t*>(offsets + layout.scales);
    const Codec<kind> codec(w.format);
    const std::int64_t padded = input_layout(w).padded, depth = depth_of<pairs>(padded);
    const std::int64_t tile_rows = round_up(count, kTileRows);
    const float* packed = static_cast<const float*>(p.packed) + panel * depth * kLanes;
    for (std::int64_t k = 0; k < padded; k += kGemmDepth) {
        const std::int64_t columns = std::min<std::int64_t>(kGemmDepth, w.cols - k);
        const std::int64_t tile_depth = depth_of<pairs>(std::min<std::int64_t>(kGemmDepth, padded - k));
        const std::int64_t tiled_rows = w.tiled ? round_up(count, kTiledRows) : 0;
        if constexpr (!is_dense(kind))
            if (w.tiled)
                dequantise_tiles<kind, pairs>(w, n, count, k, columns, std::min<std::int64_t>(kGemmDepth, padded - k),
                                              GemmScratch::row_words, tile);
        for (std::int64_t r = tiled_rows; r < tile_rows; ++r) {
            float* out = tile + r * GemmScratch::row_words;
            if (r >= count) {
                std::memset(out, 0, static_cast<std::size_t>(tile_depth) * 4);
                continue;
            }
            const bool has_offsets = w.format.offset != OffsetKind::none;
            const RowCodes codes = row_codes(w, n + r, k, columns, unpacked);
            if constexpr (!is_dense(kind)) load_scales(w, n + r, k, columns, scales, offsets);
            dequantise<kind, pairs>(codec, w.format, codes, scales, has_offsets ? offsets : nullptr, columns,
                                    out);
        }
        const float* x = packed + depth_of<pairs>(k) * kLanes;
        for (std::int64_t q = 0; q < panels;) {
            float* c = sums + q * kGemmRows * kLanes;
            const bool whole = panels - q >= kTilePanels, more = panels - q >= 2 * kTilePanels;
            for (std::int64_t r = 0; r < tile_rows; r += kTileRows) {
                const std::int64_t part = r / kTileRows % (2 * kTilePanels);   // of the next panels, halves of each
                const float* const next =
                    x + (more ? (q + kTilePanels + part / 2) * depth + part % 2 * (tile_depth / 2) : q * depth) * kLanes;
                const auto call = [&](auto width) {
                    multiply<pairs, kTileRows, width.value>(
                        tile + r * GemmScratch::row_words, GemmScratch::row_words, x + q * depth * kLanes,
                        depth * kLanes, tile_depth, c + r * kLanes, kGemmRows * kLanes, k > 0, next);
                };
                if (whole)
                    call(std::integral_constant<int, kTilePanels>{});
                else
                    call(std::integral_constant<int, 1>{});
            }
            q += whole ? kTilePanels : 1;
        }
    }
}

template <typename Fn>
void with_kind(CodeKind kind, Fn&& fn) {
    switch (kind) {
#define FORGE_KIND(kind) \
    case CodeKind::kind: \
        return fn(std::integral_constant<CodeKind, CodeKind::kind>{});
        FORGE_KIND(dense_f32)
        FORGE_KIND(dense_f16)
        FORGE_KIND(dense_bf16)
        FORGE_KIND(nibbles)
        FORGE_KIND(nibbles_1)
        FORGE_KIND(nibbles_2)
        FORGE_KIND(pairs)
        FORGE_KIND(pairs_1)
        FORGE_KIND(bytes)
        FORGE_KIND(bytes_e4m3)
#undef FORGE_KIND
    }
}

template <typename T>
void gemm(const void* params, const StepRows& step, std::int64_t first, std::int64_t last,
          CpuWorker& worker) {
    const auto& p = *static_cast<const MatmulParams*>(params);
    const GemmScratch layout = gemm_scratch_layout(p);
    const int rows = step.m;
    worker.tag = 0;
    float* const sums = reinterpret_cast<float*>(worker.scratch.data());
    float* const sums2 = sums + (layout.two ? layout.sums : 0);
    float* const results = sums2 + layout.sums;
    float* const results2 = results + (layout.two ? GemmScratch::rows : 0);
    float* const scratch = results2 + GemmScratch::rows;
    for (std::int64_t item = first; item < last; ++item) {
        const std::int64_t n = item * kGemmRows, count = std::min<std::int64_t>(kGemmRows, p.w->rows - n);
        for (int token = 0; token < rows; token += kGemmTokens) {
            const int tokens = std::min(kGemmTokens, rows - token);
            const std::int64_t panel = token / kLanes, panels = panels_of(tokens);
            with_kind(code_kind(p.w->format), [&](auto kind) {
                multiply_rows<paired<T>, kind.value>(*p.w, p, n, count, panel, panels, layout, scratch, sums);
            });
            if (p.w2)
                with_kind(code_kind(p.w2->format), [&](auto kind) {
                    multiply_rows<paired<T>, kind.value>(*p.w2, p, n, count, panel, panels, layout, scratch,
                                                         sums2);
                });
            for (std::int64_t q = 0; q < panels; ++q) {
                if (p.epilogue == Epilogue::add)  // a line or two a row, far apart: fetched while sums are turned
                    for (std::int64_t t = token + q * kLanes, last = std::min<std::int64_t>(rows, t + kLanes); t < last; ++t)
                        for (std::int64_t i = 0; i < count; i += 16)
                            prefetch(static_cast<const T*>(p.residual) + t * p.w->rows + n + i);
                for (std::int64_t r = 0; r < count; r += kLanes) {
                    transpose(sums + (q * kGemmRows + r) * kLanes, kLanes, results + r, kGemmRows);
                    if (p.w2)
                        transpose(sums2 + (q * kGemmRows + r) * kLanes, kLanes, results2 + r, kGemmRows);
                }
                for (int t = 0; t < kLanes && q * kLanes + t < tokens; ++t)
                    finish<T>(p, token + q * kLanes + t, n, static_cast<int>(count), results + t * kGemmRows,
                              results2 + t * kGemmRows);
            }
        }
    }
}

inline std::size_t pack_scratch(const MatmulParams& p) {
    return p.type == DType::bf16 ? pack_scratch_as<bf16>(p) : pack_scratch_as<float>(p);
}
inline std::size_t packed_bytes(const MatmulParams& p) {
    return p.type == DType::bf16 ? packed_bytes_as<bf16>(p) : packed_bytes_as<float>(p);
}

}  // namespace forge::FORGE_SIMD
