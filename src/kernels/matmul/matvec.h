// y = x W^T for up to eight rows of x: each weight row is one running vector
// sum, kept in the same order whatever the number of rows of x, so that their
// bits do not depend on it.
//
// Per block of codes: d = sum over steps of T(code) * x (f32 lanes), then
// run = scale * d + run. Where the format has offsets, run starts with offset * sum of x over
// the group, a vector of groups at a time.
#pragma once

#include "matmul/dense.h"
#include "matmul/epilogue.h"
#include "matmul/prepare.h"
#include "matmul/scales.h"
#include "matmul/stream.h"
#include "matmul/tiled.h"

namespace forge::FORGE_SIMD {

struct RowInput {
    RowCodes codes;
    const float* scales = nullptr;   // scale_floats
    const float* offsets = nullptr;  // as many
};

// Codes as floats, x as floats.
template <CodeKind kind>
struct FloatPath {
    using X = float;
    static constexpr bool tiled = false;
    static constexpr CodeKind code_kind = kind;
    static constexpr int lane_elements = stride_of(kind);  // consecutive elements a lane holds
    static constexpr int block = Codec<kind>::block;
    Codec<kind> codec;
    explicit FloatPath(const WeightFormat& format) : codec(format) {}

    // d[r][m] = lanes of block b of row r times x[m]. Rows inside steps: neighbouring
    // instructions belong to different sums.
    template <int R, int M>
    FORGE_INLINE void dot(const RowCodes (&rows)[R], std::int64_t b, const float* const (&x)[M],
                          F32 (&d)[R][M]) const {
        typename Codec<kind>::Block codes[R];
        unroll<R>([&](auto r) __attribute__((always_inline)) { codes[r] = codec.load(rows[r], b); });
        unroll<Codec<kind>::steps>([&](auto j) __attribute__((always_inline)) {
            F32 xs[M];
            unroll<M>([&](auto m)
                          __attribute__((always_inline)) { xs[m] = load(x[m] + b * block + j * kLanes); });
            unroll<R>([&](auto r) __attribute__((always_inline)) {
                const F32 value = codec.template value<j>(codes[r]);
                unroll<M>([&](auto m) __attribute__((always_inline)) {
                    d[r][m] = j == 0 ? value * xs[m] : fma(value, xs[m], d[r][m]);
                });
            });
        });
    }
};

// One weight as a path reads it: tables and how scales spread over lanes.
template <typename Path>
struct Reader {
    Path path;
    U32 spread;  // group of each lane, from the block's first on
    int shift;   // log2 of the group
    explicit Reader(const WeightFormat& format) : path(format), spread(lane_index()), shift(__builtin_ctz(format.group)) {
        constexpr int lane_shift = __builtin_ctz(Path::lane_elements);
        spread = spread >> set1(static_cast<std::uint32_t>(shift - lane_shift));
    }
};

// What the rows of x bring along: x' in the path's order and, for weights with offsets, its
// sums over groups in `group_vectors` vectors (0: no offsets).
template <typename Path, int M>
struct Inputs {
    const typename Path::X* x[M];
    const float* sums[M];
    int group_vectors;
};

// R rows of weights times M rows of x; sums of row r go to out[m][columns[r]].
template <typename Path, int R, int M>
__attribute__((noinline)) void dot_rows(const Reader<Path>& reader, std::int64_t k, const RowInput* rows,
                                        const Inputs<Path, M>& inputs, float* const (&out)[M],
                                        const std::int64_t* columns) {
    const auto& x = inputs.x;
    const Path path = reader.path;
    const U32 spread = reader.spread;
    const int shift = reader.shift;
    constexpr int block = Path::block;
    constexpr std::int64_t bytes = std::int64_t{block} * code_bits(Path::code_kind) / 8;
    // Every loop is unrolled, so that the arrays are registers.
    F32 run[R][M];
    RowCodes codes[R];
    unroll<R>([&](auto r) __attribute__((always_inline)) {
        codes[r] = rows[r].codes;
        unroll<M>([&](auto m) __attribute__((always_inline)) { run[r][m] = zero(); });
    });
    if constexpr (can_have_offsets(Path::code_kind))
        for (int v = 0; v < inputs.group_vectors; ++v)
            unroll<R>([&](auto r) __attribute__((always_inline)) {
                const F32 offset = load(rows[r].offsets + v * kLanes);
                unroll<M>([&](auto m) __attribute__((always_inline)) {
                    run[r][m] = fma(offset, load(inputs.sums[m] + v * kLanes), run[r][m]);
                });
            });
    Tail<Path::code_kind> tails[R];
    const std::int64_t whole = k / block, blocks = (k + block - 1) / block;
    for (std::int64_t b = 0; b < blocks; ++b) {
        if (b == whole) [[unlikely]]
            unroll<R>([&](auto r) __attribute__((always_inline)) {
                codes[r].low = tails[r].take(codes[r].low, b, k % block);
            });
        F32 d[R][M];
        path.dot(codes, b, x, d);
        unroll<R>([&](auto r) __attribute__((always_inline)) {
            for (std::int64_t at = 0; at < bytes; at += 64) prefetch(codes[r].low + b * bytes + at + kAhead);
        });
        const std::int64_t group = (b * block) >> shift;
        unroll<R>([&](auto r) __attribute__((always_inline)) {
            const F32 scale = permute(load(rows[r].scales + group), spread);
            unroll<M>([&](auto m)
                          __attribute__((always_inline)) { run[r][m] = fma(scale, d[r][m], run[r][m]); });
        });
    }
    unroll<R>([&](auto r) __attribute__((always_inline)) {
        unroll<M>([&](auto m) __attribute__((always_inline)) { out[m][columns[r]] = sum(run[r][m]); });
    });
}

inline constexpr std::size_t kRowSlots = 8;  // weight rows whose scales are kept: four in use, four to come

// Where an item keeps its things in the worker's scratch; sizes in bytes, all multiples of 64.
struct MatvecScratch {
    std::size_t x, sums;        // of one row of x: x' and its lane sums
    std::size_t natural;        // a row before it is reordered
    std::size_t scales, codes;  // of one weight row: scales (and as much for offsets), unpacked codes
    std::size_t out;            // results of an item for one row of x, one matrix
    int tokens;
    bool second;  // w2 wants x in another order than w
    std::size_t inputs() const { return static_cast<std::size_t>(tokens) * (x + sums); }
    std::size_t total() const {
        return (second ? 2 : 1) * inputs() + natural + kRowSlots * (2 * scales + codes) +
               static_cast<std::size_t>(tokens) * 2 * (out + sums);
    }
};
inline std::size_t to_line(std::int64_t bytes) { return static_cast<std::size_t>(round_up(bytes, 64)); }

inline MatvecScratch matvec_scratch_layout(const MatmulParams& p) {
    const Weight& w = *p.w;
    const Weight& w2 = p.w2 ? *p.w2 : w;
    const std::int64_t columns = round_up(w.cols, 256);  // whole blocks of any order
    const bool unpacked = needs_unpacking(w.format) || needs_unpacking(w2.format);
    return {to_line(columns * 4),
            to_line(columns),  // 16 bytes of sums for 16 elements at most: 4 elements a lane and more
            to_line(columns * 4),
            to_line(std::max(scale_floats(w.format, w.cols), scale_floats(w2.format, w2.cols)) * 4),
            to_line(unpacked ? columns + 64 : 0),
            to_line(item_rows(p) * 4),
            std::min(std::max(p.max_rows, 1), kMatvecTokens),
            code_kind(w.format) != code_kind(w2.format) || w.tiled != w2.tiled};
}

// The rows [first, last) of up to two matrices of codes, as four streams far enough apart
// that the machine's prefetchers see each as a run of its own.
template <typename Path>
struct RowStreams {
    const Reader<Path>& reader;
    const MatmulParams& p;
    const MatvecScratch& scratch;
    std::byte* rows_at;  // scales, offsets and codes of kRowSlots rows
    std::int64_t rows_ahead;
    int tokens;
    const typename Path::X* const* x;
    const float* const* sums;  // over groups
    int group_vectors;

    // The planes beside the codes have short rows, which the machine's prefetchers do not follow.
    // Inline by force: GCC takes a function that only prefetches for one without effects, and drops its
    // calls.
    static FORGE_INLINE void prefetch_row(const Plane& plane, std::int64_t row) {
        const std::byte* at = plane.data + static_cast<std::size_t>(row) * plane.stride;
        for (std::size_t i = 0; i < plane.stride; i += 64) prefetch(at + i);
    }
    static FORGE_INLINE void prefetch_planes(const Weight& w, std::int64_t row) {
        prefetch_row(w.scales, row);
        if (needs_unpacking(w.format)) prefetch_row(w.codes, row);
        if (w.codes_high.data) prefetch_row(w.codes_high, row);
        if (w.offsets.data) prefetch_row(w.offsets, row);
        if (w.super_scales.data)
            prefetch(w.super_scales.data + static_cast<std::size_t>(row) * w.super_scales.stride);
        if (w.super_mins.data)
            prefetch(w.super_mins.data + static_cast<std::size_t>(row) * w.super_mins.stride);
    }

    void fill(const Weight& w, std::int64_t row, int slot, RowInput& input) const {
        std::byte* at = rows_at + static_cast<std::size_t>(slot) * (2 * scratch.scales + scratch.codes);
        input.codes = row_codes(w, row, 0, w.cols, reinterpret_cast<std::uint8_t*>(at + 2 * scratch.scales));
        prefetch_planes(w, row + rows_ahead);
        auto* scales = reinterpret_cast<float*>(at);
        auto* minima = reinterpret_cast<float*>(at + scratch.scales);
        load_scales(w, row, 0, w.cols, scales, minima);
        input.scales = scales;
        input.offsets = minima;
    }

    // R rows for all tokens: four at a time, fewer by repeating the last.
    template <int R>
    void rows(const RowInput* input, float* const* out, const std::int64_t* columns) const {
        int t = 0;
        while (t < tokens) {
            const int left = tokens - t;
            if (left >= 3) {
                constexpr int r = R == 4 ? 2 : 1;
                for (int half = 0; half < R; half += r) some<r, 4>(input + half, out, columns + half, t);
                t += 4;
            } else if (left == 2) {
                some<R, 2>(input, out, columns, t);
                t += 2;
            } else {
                some<R, 1>(input, out, columns, t);
                t += 1;
            }
        }
    }
    template <int R, int M>
    void some(const RowInput* input, float* const* out, const std::int64_t* columns, int t) const {
        Inputs<Path, M> inputs;
        inputs.group_vectors = group_vectors;
        float* to[M];
        for (int m = 0; m < M; ++m) {
            const int token = std::min(t + m, tokens - 1);
            inputs.x[m] = x[token], inputs.sums[m] = sums[token], to[m] = out[token];
        }
        dot_rows<Path, R, M>(reader, p.w->cols, input, inputs, to, columns);
    }

    // Rows first..last of w into out[token][0..). Scales of the next four rows are made before
    // this four are summed, so that their stores are done when they are read.
    void matrix(const Weight& w, std::int64_t first, std::int64_t last, float* const* out) const {
        const std::int64_t run = (last - first) / 4;
        RowInput input[2][4];
        const auto fill_four = [&](std::int64_t i) {
            for (int s = 0; s < 4; ++s)
                fill(w, first + s * run + i, static_cast<int>(i % 2) * 4 + s, input[i % 2][s]);
        };
        if (run > 0) fill_four(0);
        for (std::int64_t i = 0; i < run; ++i) {
            if (i + 1 < run) fill_four(i + 1);
            const std::int64_t columns[4] = {i, run + i, 2 * run + i, 3 * run + i};
            rows<4>(input[i % 2], out, columns);
        }
        for (std::int64_t i = 4 * run; i < last - first; ++i) {
            fill(w, first + i, 0, input[0][0]);
            rows<1>(input[0], out, &i);
        }
    }
};

// Rows [first, last) of w into out[token][0..). `sums` holds x's sums over w's groups, one row a token.
template <typename Path>
void matvec_rows_of(const Weight& w, const MatmulParams& p, const MatvecScratch& scratch, std::byte* rows_at,
                    int tokens, const std::byte* x, const std::byte* sums, std::int64_t first,
                    std::int64_t last, float* const* out) {
    const typename Path::X* x_of[kMatvecTokens];
    const float* sums_of[kMatvecTokens];
    for (int t = 0; t < tokens; ++t) {
        x_of[t] = reinterpret_cast<const typename Path::X*>(x + static_cast<std::size_t>(t) * (scratch.x + scratch.sums));
        sums_of[t] = reinterpret_cast<const float*>(sums + static_cast<std::size_t>(t) * scratch.sums);
    }
    if constexpr (Path::tiled) {
        const TileReader<Path> reader(w);
        const TileStreams<Path> streams{reader, w, tokens, x_of, sums_of};
        streams.tiles(first / kTiledRows, (last + kTiledRows - 1) / kTiledRows, out);
    } else if constexpr (is_dense(Path::code_kind)) {
        DenseStreams<Path>{w, tokens, x_of}.rows(first, last, out);
    } else {
        const Reader<Path> reader(w.format);
        const bool offsets = w.format.offset != OffsetKind::none;
        const RowStreams<Path> streams{
            reader,
            p,
            scratch,
            rows_at,
            1 + 2 * kAhead / (1 + static_cast<std::int64_t>(w.codes.stride)),
            tokens,
            x_of,
            sums_of,
            offsets ? static_cast<int>((groups_of(w.format, w.cols) + kLanes - 1) / kLanes) : 0};
        streams.matrix(w, first, last, out);
    }
}

// Sums of x over the groups of w from its lane sums, for each row of x.
inline void sum_groups(const Weight& w, const MatvecScratch& scratch, int tokens, const std::byte* x,
                       std::byte* out) {
    const InputLayout layout = input_layout(w);
    for (int t = 0; t < tokens; ++t) {
        const auto* lanes = reinterpret_cast<const float*>(
            x + static_cast<std::size_t>(t) * (scratch.x + scratch.sums) + scratch.x);
        auto* to = reinterpret_cast<float*>(out + static_cast<std::size_t>(t) * scratch.sums);
        if (w.tiled) {
            sum_tile_groups(w, w.cols, lanes, to);
            continue;
        }
        std::int64_t count = layout.padded / layout.stride;  // lanes, whole vectors
        std::memcpy(to, lanes, static_cast<std::size_t>(count) * sizeof(float));
        for (int width = layout.stride; width < w.format.group; width *= 2) {  // neighbours become one
            for (std::int64_t i = 0; i < count; i += 2 * kLanes) {
                F32 even, odd;
                unzip(load(to + i), i + kLanes < count ? load(to + i + kLanes) : zero(), even, odd);
                store(to + i / 2, even + odd);
            }
            count = round_up(count / 2, kLanes);
        }
    }
}

// Which way of multiplying serves a weight and type; AVX-512 has one for bf16 of its own (bf16_path.h).
template <typename T, CodeKind kind>
struct PathFor {
    using type = std::conditional_t<is_dense(kind), DensePath<kind>, FloatPath<kind>>;
};

template <typename T, typename Fn>
void with_path(const Weight& w, Fn&& fn) {
    switch (code_kind(w.format)) {
#define FORGE_PATH(kind)                                                        \
    case CodeKind::kind:                                                        \
        if constexpr (!is_dense(CodeKind::kind))                                \
            if (w.tiled) return fn(TilePathFor<T, CodeKind::kind>{});           \
        return fn(PathFor<T, CodeKind::kind>{});
        FORGE_PATH(dense_f32)
        FORGE_PATH(dense_f16)
        FORGE_PATH(dense_bf16)
        FORGE_PATH(nibbles)
        FORGE_PATH(nibbles_1)
        FORGE_PATH(nibbles_2)
        FORGE_PATH(pairs)
        FORGE_PATH(pairs_1)
        FORGE_PATH(bytes)
        FORGE_PATH(bytes_e4m3)
#undef FORGE_PATH
    }
}

// The order in which a path wants x: paths with equal orders can share it.
template <typename Path>
std::uint64_t order_of(const Weight& w) {
    const std::uint64_t words = sizeof(typename Path::X) == 2 ? 32 : 0;
    if constexpr (Path::tiled) return static_cast<std::uint64_t>(words ? Path::chunk : 0) | words | 128u;
    return static_cast<std::uint64_t>(input_layout(w).stride) | words | 64u;
}

// Whether x's sums over w's groups are used: for offsets, or for codes that a path takes too large.
template <typename T>
bool wants_sums(const Weight& w) {
    if (w.format.offset != OffsetKind::none) return true;
    bool shifted = false;
    with_path<T>(w, [&](auto path) {
        using Path = typename decltype(path)::type;
        if constexpr (Path::tiled) shifted = Path(w.format).shift != 0;
    });
    return shifted;
}

// x' and lane sums of all rows of x in the order of `w`, from `at` on.
template <typename T, typename Path>
void prepare_input(const MatmulParams& p, const Weight& w, int first_token, int tokens,
                   const MatvecScratch& scratch, std::byte* at, float* natural) {
    const InputLayout layout = input_layout(w);
    for (int t = 0; t < tokens; ++t) {
        auto* x = reinterpret_cast<float*>(at + static_cast<std::size_t>(t) * (scratch.x + scratch.sums));
        auto* sums = reinterpret_cast<float*>(reinterpret_cast<std::byte*>(x) + scratch.x);
        if constexpr (Path::tiled) {
            const std::int64_t padded = round_up(w.cols, kUnitColumns);
            prepare_row<T>(p, first_token + t, padded, natural);
            arrange_input<Path>(natural, padded, reinterpret_cast<typename Path::X*>(x), sums);
            continue;
        }
        prepare_row<T>(p, first_token + t, layout.padded, natural);
        reorder(layout, natural, x, layout.stride > 1 ? sums : nullptr);
        if constexpr (!Path::tiled && sizeof(typename Path::X) == 2) narrow_row(layout, x, reinterpret_cast<bf16*>(x));
    }
}

template <typename T>
void matvec(const void* params, const StepRows& step, std::int64_t first, std::int64_t last,
            CpuWorker& worker) {
    const auto& p = *static_cast<const MatmulParams*>(params);
    const MatvecScratch scratch = matvec_scratch_layout(p);
    const std::int64_t item = item_rows(p), n = p.w->rows;
    const int total = step.m;
    std::byte* const x = worker.scratch.data();
    std::byte* const x2 = x + scratch.inputs();
    std::byte* const natural = scratch.second ? x2 + scratch.inputs() : x2;
    std::byte* const rows_at = natural + scratch.natural;
    std::byte* const results = rows_at + kRowSlots * (2 * scratch.scales + scratch.codes);

    std::byte* const group_sums = results + static_cast<std::size_t>(scratch.tokens) * 2 * scratch.out;
    std::byte* const group_sums2 = group_sums + static_cast<std::size_t>(scratch.tokens) * scratch.sums;

    for (int first_token = 0; first_token < total; first_token += scratch.tokens) {
        const int tokens = std::min(scratch.tokens, total - first_token);
        with_path<T>(*p.w, [&](auto path) {
            using Path = typename decltype(path)::type;
            const std::uint64_t order = order_of<Path>(*p.w);
            // Once a step and thread: the tag (serial, input, order) names what lies in front of scratch.
            const bool shared = p.input_tag != 0 && p.input_tag < (1u << 16) && total <= scratch.tokens;
            const std::uint64_t tag =
                shared ? step.serial << 24 | std::uint64_t{p.input_tag} << 8 | order : 0;
            if (tag == 0 || worker.tag != tag)
                prepare_input<T, Path>(p, *p.w, first_token, tokens, scratch, x,
                                       reinterpret_cast<float*>(natural));
            worker.tag = tag;
        });
        std::byte* w2_input = x;
        if (scratch.second)
            with_path<T>(*p.w2, [&](auto path) {
                using Path = typename decltype(path)::type;
                w2_input = x2;
                prepare_input<T, Path>(p, *p.w2, first_token, tokens, scratch, x2,
                                       reinterpret_cast<float*>(natural));
            });
        if (wants_sums<T>(*p.w)) sum_groups(*p.w, scratch, tokens, x, group_sums);
        if (p.w2 && wants_sums<T>(*p.w2)) sum_groups(*p.w2, scratch, tokens, w2_input, group_sums2);
        float* a[kMatvecTokens] = {};
        float* b[kMatvecTokens] = {};
        for (int t = 0; t < tokens; ++t) {
            a[t] = reinterpret_cast<float*>(results + static_cast<std::size_t>(2 * t) * scratch.out);
            b[t] = reinterpret_cast<float*>(results + static_cast<std::size_t>(2 * t + 1) * scratch.out);
        }
        for (std::int64_t i = first; i < last; ++i) {
            const std::int64_t from = i * item, to = std::min(n, from + item);
            with_path<T>(*p.w, [&](auto path) {
                using Path = typename decltype(path)::type;
                matvec_rows_of<Path>(*p.w, p, scratch, rows_at, tokens, x, group_sums, from, to, a);
            });
            if (p.w2)
                with_path<T>(*p.w2, [&](auto path) {
                    using Path = typename decltype(path)::type;
                    matvec_rows_of<Path>(*p.w2, p, scratch, rows_at, tokens, w2_input, group_sums2, from, to,
                                         b);
                });
            for (int t = 0; t < tokens; ++t)
                finish<T>(p, first_token + t, from, static_cast<int>(to - from), a[t], b[t]);
        }
    }
}

inline std::size_t matvec_scratch(const MatmulParams& p) { return matvec_scratch_layout(p).total(); }

}  // namespace forge::FORGE_SIMD
