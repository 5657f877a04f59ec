// y = x W^T for tiled weights and up to eight rows of x: sums of sixteen rows lie in the lanes, and
// x is broadcast. Per group of columns: d = sum of T(code) * x, then run = scale * d + run, and
// run += offset * sum of x over the group. Where a path's codes are too large by a constant (`shift`), d begins with
// that much of x's sum less. A row's bits do not depend on the number of rows of x.
#pragma once

#include <algorithm>

#include "matmul/prepare.h"
#include "matmul/scales.h"
#include "matmul/tile_codec.h"

namespace forge::FORGE_SIMD {

// Sums of x over runs of sixteen columns, the smallest group.
inline constexpr int kSumColumns = 16;

// Codes as floats, x as floats in natural order.
template <CodeKind kind>
struct TileFloatPath {
    using X = float;
    static constexpr CodeKind code_kind = kind;
    static constexpr bool tiled = true;
    static constexpr int chunk = tile_chunk(kind);
    static constexpr float shift = 0;   // what its codes are too large by
    TileCodec<kind> codec;
    explicit TileFloatPath(const WeightFormat& format) : codec(format) {}

    // d[r][m] += the chunk's products; two sums each, so that they wait for each other half as long.
    template <int R, int M>
    FORGE_INLINE void dot(const UnitCodes (&units)[R], const int (&parts)[R], std::int64_t c,
                          const float* const (&x)[M], F32 (&d)[R][M][2]) const {
        typename TileCodec<kind>::Block codes[R];
        unroll<R>([&](auto r) __attribute__((always_inline)) { codes[r] = codec.load(units[r], c, parts[r]); });
        unroll<chunk>([&](auto e) __attribute__((always_inline)) {
            F32 xs[M];
            unroll<M>([&](auto m) __attribute__((always_inline)) { xs[m] = set1(x[m][c * chunk + e]); });
            unroll<R>([&](auto r) __attribute__((always_inline)) {
                const F32 value = codec.template value<e>(codes[r]);
                unroll<M>([&](auto m)
                              __attribute__((always_inline)) { d[r][m][e % 2] = fma(value, xs[m], d[r][m][e % 2]); });
            });
        });
    }
    // x' of a row from its natural order.
    static void arrange(const float* natural, std::int64_t columns, float* out) {
        std::memcpy(out, natural, static_cast<std::size_t>(columns) * sizeof(float));
    }
};

// Which way of multiplying serves a tiled weight and type; AVX-512 has one for bf16 of its own (tile_words.h).
template <typename T, CodeKind kind>
struct TilePathFor {
    using type = TileFloatPath<kind>;
};

// A tiled weight as a kernel walks it.
template <typename Path>
struct TileReader {
    Path path;
    const WeightFormat& format;
    TileUnit whole, rest;         // of 256 columns, and of those that are left
    int group_chunks;             // chunks of a group
    bool offsets;
    explicit TileReader(const Weight& w)
        : path(w.format), format(w.format), whole(tile_unit(w.format, kUnitColumns)),
          rest(tile_unit(w.format, std::max<std::int64_t>(1, w.cols % kUnitColumns))),
          group_chunks(w.format.group / Path::chunk), offsets(w.format.offset != OffsetKind::none) {}
};

template <typename Path, int M>
struct TileInputs {
    const typename Path::X* x[M];
    const float* sums[M];  // over groups
};

// R vectors of rows times M rows of x; results of vector r go to out[m] + columns[r].
template <typename Path, int R, int M>
__attribute__((noinline)) void dot_tiles(const TileReader<Path>& reader, std::int64_t k, const std::uint8_t* const* tiles,
                                         const int* part_of, const TileInputs<Path, M>& inputs, float* const (&out)[M],
                                         const std::int64_t* columns) {
    constexpr int most_groups = kUnitColumns / 16;
    alignas(64) float scales[R][most_groups * kLanes], offsets[R][most_groups * kLanes];
    const Path path = reader.path;
    const int group = reader.format.group, group_chunks = reader.group_chunks;
    F32 run[R][M];
    const std::uint8_t* at[R];
    int parts[R];
    const typename Path::X* x[M];
    const float* sums[M];
    unroll<R>([&](auto r) __attribute__((always_inline)) {
        at[r] = tiles[r];
        parts[r] = part_of[r];
        unroll<M>([&](auto m) __attribute__((always_inline)) { run[r][m] = zero(); });
    });
    unroll<M>([&](auto m) __attribute__((always_inline)) { x[m] = inputs.x[m], sums[m] = inputs.sums[m]; });
    for (std::int64_t column = 0; column < k; column += kUnitColumns) {
        const int width = static_cast<int>(std::min<std::int64_t>(kUnitColumns, k - column));
        const TileUnit& unit = width == kUnitColumns ? reader.whole : reader.rest;
        const int groups = (width + group - 1) / group, chunks = (width + Path::chunk - 1) / Path::chunk;
        UnitCodes codes[R];
        unroll<R>([&](auto r) __attribute__((always_inline)) {
            load_unit_scales(reader.format, unit, at[r], parts[r], groups, scales[r], offsets[r]);
            for (std::size_t b = 0; b < unit.low; b += 64) prefetch(at[r] + unit.bytes + b);
            for (std::size_t b = unit.high; b < unit.bytes; b += 64) prefetch(at[r] + unit.bytes + b);
            codes[r] = {at[r] + unit.low + parts[r] * kLanes * 4, at[r] + unit.high};
        });
        const std::size_t ahead = unit.bytes;  // the same line of the next unit
        std::int64_t c = 0;
        for (int g = 0; g < groups; ++g) {
            F32 d[R][M][2];
            unroll<R>([&](auto r) __attribute__((always_inline)) {
                unroll<M>([&](auto m) __attribute__((always_inline)) {
                    d[r][m][0] = path.shift == 0 ? zero() : set1(-path.shift * sums[m][g]);
                    d[r][m][1] = zero();
                });
            });
            const std::int64_t last = std::min<std::int64_t>(c + group_chunks, chunks);
            for (; c < last; ++c) {
                path.dot(codes, parts, c, x, d);
                constexpr int lines = tile_lines(Path::code_kind);
                unroll<R>([&](auto r) __attribute__((always_inline)) {
                    unroll<lines>([&](auto l)
                                      __attribute__((always_inline)) { prefetch(codes[r].low + ahead + (c * lines + l) * 64); });
                });
            }
            unroll<R>([&](auto r) __attribute__((always_inline)) {
                const F32 scale = load(scales[r] + g * kLanes);
                unroll<M>([&](auto m) __attribute__((always_inline)) {
                    run[r][m] = fma(scale, d[r][m][0] + d[r][m][1], run[r][m]);
                });
            });
            if (reader.offsets)
                unroll<R>([&](auto r) __attribute__((always_inline)) {
                    const F32 offset = load(offsets[r] + g * kLanes);
                    unroll<M>([&](auto m) __attribute__((always_inline)) {
                        run[r][m] = fma(offset, set1(sums[m][g]), run[r][m]);
                    });
                });
        }
        unroll<R>([&](auto r) __attribute__((always_inline)) { at[r] += unit.bytes; });
        unroll<M>([&](auto m) __attribute__((always_inline)) { x[m] += kUnitColumns, sums[m] += groups; });
    }
    unroll<R>([&](auto r) __attribute__((always_inline)) {
        unroll<M>([&](auto m) __attribute__((always_inline)) { store(out[m] + columns[r], run[r][m]); });
    });
}

// Tiles of one weight, read as four streams far enough apart that the machine's prefetchers see each
// as a run of its own.
template <typename Path>
struct TileStreams {
    const TileReader<Path>& reader;
    const Weight& w;
    int tokens;
    const typename Path::X* const* x;
    const float* const* sums;

    template <int R, int M>
    void some(const std::uint8_t* const* tiles, const int* parts, const std::int64_t* columns, float* const* out,
              int t) const {
        TileInputs<Path, M> inputs;
        float* to[M];
        for (int m = 0; m < M; ++m) {
            const int token = std::min(t + m, tokens - 1);
            inputs.x[m] = x[token], inputs.sums[m] = sums[token], to[m] = out[token];
        }
        dot_tiles<Path, R, M>(reader, w.cols, tiles, parts, inputs, to, columns);
    }

    // R vectors of rows for all tokens; fewer rows at once for many tokens, which share the codes.
    template <int R>
    void vectors(const std::uint8_t* const* tiles, const int* parts, const std::int64_t* columns,
                 float* const* out) const {
        for (int t = 0; t < tokens;) {
            const int left = tokens - t;
            if (left >= 3) {
                constexpr int r = R >= 2 ? 2 : 1;
                for (int half = 0; half < R; half += r) some<r, 4>(tiles + half, parts + half, columns + half, out, t);
                t += 4;
            } else if (left == 2) {
                some<R, 2>(tiles, parts, columns, out, t);
                t += 2;
            } else {
                some<R, 1>(tiles, parts, columns, out, t);
                t += 1;
            }
        }
    }

    // Tiles [first, last) into out[token][0..).
    void tiles(std::int64_t first, std::int64_t last, float* const* out) const {
        constexpr int streams = 4, vectors_of_run = streams * kParts;
        constexpr int at_once = kLanes == 8 ? 2 : 4;  // sums that the registers hold
        const std::int64_t run = (last - first) / streams;
        const std::uint8_t* at[vectors_of_run];
        int parts[vectors_of_run];
        std::int64_t columns[vectors_of_run];
        const auto place = [&](int i, std::int64_t tile) {
            for (int part = 0; part < kParts; ++part) {
                at[i + part] = reinterpret_cast<const std::uint8_t*>(w.codes.data) +
                               static_cast<std::size_t>(first + tile) * w.codes.stride;
                parts[i + part] = part;
                columns[i + part] = tile * kTiledRows + part * kLanes;
            }
        };
        for (std::int64_t i = 0; i < run; ++i) {
            for (int s = 0; s < streams; ++s) place(s * kParts, s * run + i);
            for (int v = 0; v < vectors_of_run; v += at_once) vectors<at_once>(at + v, parts + v, columns + v, out);
        }
        for (std::int64_t i = streams * run; i < last - first; ++i) {
            place(0, i);
            for (int v = 0; v < kParts; ++v) vectors<1>(at + v, parts + v, columns + v, out);
        }
    }
};

// Sums of x over the groups of w from its sums over runs of sixteen columns.
inline void sum_tile_groups(const Weight& w, std::int64_t columns, const float* runs, float* out) {
    const int of_group = w.format.group / kSumColumns;
    const std::int64_t count = (columns + kSumColumns - 1) / kSumColumns;
    for (std::int64_t g = 0; g * of_group < count; ++g) {
        float sum = 0;
        for (std::int64_t i = g * of_group; i < std::min(count, (g + 1) * of_group); ++i) sum += runs[i];
        out[g] = sum;
    }
}

// x' of a row, floats in natural order padded with zeros to whole units, in a path's order; sums over
// runs of sixteen columns to `runs`.
template <typename Path>
void arrange_input(const float* natural, std::int64_t padded, typename Path::X* out, float* runs) {
    Path::arrange(natural, padded, out);
    for (std::int64_t i = 0; i * kSumColumns < padded; ++i) {
        float sums[kSumColumns / 2];
        for (int j = 0; j < kSumColumns / 2; ++j)
            sums[j] = natural[i * kSumColumns + j] + natural[i * kSumColumns + kSumColumns / 2 + j];
        float sum = 0;
        for (const float s : sums) sum += s;
        runs[i] = sum;
    }
}

}  // namespace forge::FORGE_SIMD
