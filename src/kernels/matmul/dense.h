// Rows of dense weights (f32, f16, bf16) times rows of x. Nothing but memory limits them, so the loop has as few
// instructions a line of weights as there can be, over long runs of rows: the more lines of the next rows stand in the
// machine's window, the more of them are on their way.
//
// A row's sum is one running vector over all its columns, in the same order whatever the number of rows of x.
#pragma once

#include <algorithm>
#include <cstring>

#include "matmul/codec.h"

namespace forge::FORGE_SIMD {

// Prefetch distance along a run of rows, bytes.
inline constexpr std::int64_t kAhead = 2048;

// Weights as floats, x as floats. A step is one vector of x.
template <CodeKind kind>
struct DensePath {
    using X = float;
    using Element = std::conditional_t<kind == CodeKind::dense_f32, float, std::conditional_t<kind == CodeKind::dense_f16, f16, bf16>>;
    static constexpr bool tiled = false;
    static constexpr CodeKind code_kind = kind;
    static constexpr int step = kLanes, step_bytes = step * static_cast<int>(sizeof(Element));
    explicit DensePath(const WeightFormat&) {}
    static FORGE_INLINE F32 load_x(const X* x) { return load(x); }
    static FORGE_INLINE F32 load_weights(const std::uint8_t* at) { return load(reinterpret_cast<const Element*>(at)); }
    static FORGE_INLINE F32 add(F32 sum, F32 weights, F32 x) { return fma(weights, x, sum); }
};

// R runs of `count` rows of k weights, `stride` bytes apart, from start[r] on, times M rows of x, which has zeros up to a
// whole block. The sum of row i of run r goes to out[m][r * apart + i].
template <typename Path, int R, int M>
__attribute__((noinline)) void dot_dense(std::int64_t k, std::int64_t stride, std::int64_t count, const std::uint8_t* const* start, const typename Path::X* const (&x)[M],
                                         float* const (&out)[M], std::int64_t apart) {
    constexpr int steps = 4, block = steps * Path::step, bytes = steps * Path::step_bytes;
    const std::int64_t whole = k / block, rest = k % block;
    for (std::int64_t i = 0; i < count; ++i) {
        const std::uint8_t* at[R];
        F32 sums[R][M];
        unroll<R>([&](auto r) __attribute__((always_inline)) {
            at[r] = start[r] + i * stride;
            unroll<M>([&](auto m) __attribute__((always_inline)) { sums[r][m] = zero(); });
        });
        const auto add_block = [&](std::int64_t b, auto ahead) __attribute__((always_inline)) {
            unroll<steps>([&](auto j) __attribute__((always_inline)) {
                decltype(Path::load_x(nullptr)) xs[M];
                unroll<M>([&](auto m) __attribute__((always_inline)) { xs[m] = Path::load_x(x[m] + b * block + j * Path::step); });
                unroll<R>([&](auto r) __attribute__((always_inline)) {
                    const std::uint8_t* here = at[r] + b * bytes + j * Path::step_bytes;
                    const auto weights = Path::load_weights(here);
                    unroll<M>([&](auto m) __attribute__((always_inline)) { sums[r][m] = Path::add(sums[r][m], weights, xs[m]); });
                    if constexpr (ahead && j * Path::step_bytes % 64 == 0) prefetch(here + kAhead);
                });
            });
        };
        for (std::int64_t b = 0; b < whole; ++b) add_block(b, std::true_type{});
        if (rest > 0) [[unlikely]] {
            alignas(64) std::uint8_t copy[R][bytes] = {};
            unroll<R>([&](auto r) __attribute__((always_inline)) {
                std::memcpy(copy[r], at[r] + whole * bytes, static_cast<std::size_t>(rest * Path::step_bytes / Path::step));
                at[r] = copy[r] - whole * bytes;
            });
            add_block(whole, std::false_type{});
        }
        unroll<R>([&](auto r) __attribute__((always_inline)) {
            unroll<M>([&](auto m) __attribute__((always_inline)) { out[m][r * apart + i] = sum(sums[r][m]); });
        });
    }
}

// The rows [first, last) of w, for all rows of x, into out[token][0..): four runs side by side, far enough apart that the
// machine's prefetchers see each. One or two rows of x go through all of it at once; more take the runs' rows four by four,
// so that what the first of them read is still near for the others.
template <typename Path>
struct DenseStreams {
    const Weight& w;
    int tokens;
    const typename Path::X* const* x;

    template <int R, int M>
    void some(const std::uint8_t* const* start, std::int64_t count, int token, float* const* out, std::int64_t offset, std::int64_t apart) const {
        const typename Path::X* x_of[M];
        float* to[M];
        for (int m = 0; m < M; ++m) {
            const int t = std::min(token + m, tokens - 1);   // fewer by repeating the last
            x_of[m] = x[t], to[m] = out[t] + offset;
        }
        dot_dense<Path, R, M>(w.cols, static_cast<std::int64_t>(w.codes.stride), count, start, x_of, to, apart);
    }

    void rows(std::int64_t first, std::int64_t last, float* const* out) const {
        const std::int64_t run = (last - first) / 4;
        const auto start_four = [&](std::int64_t i, const std::uint8_t* (&start)[4]) {
            for (int r = 0; r < 4; ++r) start[r] = reinterpret_cast<const std::uint8_t*>(w.codes.data) + static_cast<std::size_t>(first + r * run + i) * w.codes.stride;
        };
        const std::uint8_t* start[4];
        if (run > 0 && tokens <= 2) {
            start_four(0, start);
            tokens == 1 ? some<4, 1>(start, run, 0, out, 0, run) : some<4, 2>(start, run, 0, out, 0, run);
        }
        for (std::int64_t i = 0; tokens > 2 && i < run; ++i) {
            start_four(i, start);
            for (int t = 0; t < tokens; t += 4)
                for (int half = 0; half < 4; half += 2) some<2, 4>(start + half, 1, t, out, half * run + i, run);
        }
        for (std::int64_t i = 4 * run; i < last - first; ++i) {
            start[0] = reinterpret_cast<const std::uint8_t*>(w.codes.data) + static_cast<std::size_t>(first + i) * w.codes.stride;
            for (int t = 0; t < tokens; ++t) some<1, 1>(start, 1, t, out, i, 0);
        }
    }
};

}  // namespace forge::FORGE_SIMD
