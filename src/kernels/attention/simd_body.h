// Attention for one instruction set. Both kernels walk over runs of keys for a
// set of "lines", a line being one query row and head, all of one KV head:
//
//   scores [lines][keys] = q k^T        tile by tile
//   p [lines][keys] = r(exp(scores * scale - maximum)); maximum, total, keep [lines]
//   sums [lines][dims] = keep * sums + p v
//
// Decode takes one part of the cache as one run, prefill many runs in turn.
// A line's bits do not depend on the lines beside it.
#pragma once

#include <limits>

#include "attention/functions.h"
#include "attention/tile.h"
#include "attention/work.h"
#include "simd/math.h"

namespace forge::FORGE_SIMD {

// Arrays of one item, cut from the worker's scratch.
template <typename D>
struct BlockScratch {
    typename D::A* q;      // [lines][dims]
    float* scores;         // [lines][keys + kBlock]: rows of a power of two would share cache sets
    typename D::A* p;      // [lines][keys + kBlock]
    float* sums;           // [lines][dims]
    void* edge;            // [kPanel] pairs of T, one of the two missing
    float *maximum, *total, *keep, *ones;  // [lines]

    BlockScratch(CpuWorker& worker, std::int64_t lines, std::int64_t dims, std::int64_t keys) {
        worker.tag = 0;
        std::byte* at = worker.scratch.data();
        const auto take = [&](std::int64_t bytes) {
            std::byte* here = at;
            at += (bytes + 63) / 64 * 64;
            return here;
        };
        const auto element = static_cast<std::int64_t>(sizeof(typename D::A));
        q = reinterpret_cast<typename D::A*>(take(lines * dims * element));
        scores = reinterpret_cast<float*>(take(lines * (keys + kBlock) * 4));
        p = reinterpret_cast<typename D::A*>(take(lines * (keys + kBlock) * element));
        sums = reinterpret_cast<float*>(take(lines * dims * 4));
        edge = take(kPanel * 8);
        for (float** f : {&maximum, &total, &keep, &ones}) *f = reinterpret_cast<float*>(take(lines * 4));
    }
};

// Lines first_line..first_line+count of (rows from `row`, heads of one KV head).
struct Lines {
    int row, position;     // of line 0 of the item
    int group;             // query heads a row
    int first_head;
    int count;
    int position_of(int line) const { return position + line / group; }
};

// A query as the tile takes it.
template <typename D, typename T>
void pack_query(const T* q, int head_dim, typename D::A* out) {
    if constexpr (std::is_same_v<typename D::A, T>) {
        __builtin_memcpy(static_cast<void*>(out), q, sizeof(T) * static_cast<std::size_t>(head_dim));
    } else {
        int d = 0;
        for (; d + kLanes <= head_dim; d += kLanes) store(out + d, load(q + d));
        store_first(out + d, load_first(q + d, head_dim - d), head_dim - d);
    }
}

// The exponential that turns scores into probabilities. f32 takes e^x; the 16-bit
// types 2^x with a shorter polynomial, whose error is far below their rounding.
// Maxima are kept in the same unit.
template <typename T>
struct Power {
    static constexpr float unit = 1.44269504088896341f;
    static FORGE_INLINE F32 of(F32 x) { return exp2_short(x); }
};
template <>
struct Power<float> {
    static constexpr float unit = 1;
    static FORGE_INLINE F32 of(F32 x) { return exp(x); }
};

// Scores of keys [begin, end) of a line become probabilities: s[0] and p[0] are
// key `base`. p is written for [p_begin, p_end), zero outside [begin, end);
// base, p_begin and p_end lie on block borders.
template <typename D, typename T>
void soften(float* s, typename D::A* p, int base, int begin, int end, int p_begin, int p_end, float scale,
            float softcap, float& maximum, float& total, float& keep) {
    s -= base;
    p -= base;
    if (begin >= end) {
        for (int at = p_begin; at < p_end; at += kLanes) D::store_a(p + at, zero());
        keep = 1;
        return;
    }
    const int first = begin / kLanes * kLanes, last = (end + kLanes - 1) / kLanes * kLanes;
    const F32 low = set1(-std::numeric_limits<float>::infinity());
    float factor = scale * Power<T>::unit;
    if (softcap != 0 || !(factor > 0)) {  // then the scores are finished in place, else as they are read
        for (int at = first; at < last; at += kLanes) {
            F32 x = load(s + at) * set1(scale);
            if (softcap != 0) x = set1(softcap) * tanh(x / set1(softcap));
            store(s + at, x * set1(Power<T>::unit));
        }
        factor = 1;
    }
    // Scores of keys that are not this line's, written or not, become -inf.
    store(s + first, select(first_lanes(begin - first), low, load(s + first)));
    store(s + last - kLanes, select(first_lanes(end - (last - kLanes)), load(s + last - kLanes), low));
    F32 top = load(s + first);
    for (int at = first + kLanes; at < last; at += kLanes) top = max(load(s + at), top);
    const float highest = std::max(maximum, largest(top) * factor);
    keep = maximum == highest ? 1.0f : first_of(Power<T>::of(set1(maximum - highest)));
    const F32 multiplier = set1(factor), minus = set1(-highest);
    F32 sums = zero();
    int at = p_begin;
    for (; at < first; at += kLanes) D::store_a(p + at, zero());
    for (; at < last; at += kLanes) {
        const F32 e = Power<T>::of(fma(load(s + at), multiplier, minus));
        sums = sums + e;
        D::store_a(p + at, e);
    }
    for (; at < p_end; at += kLanes) D::store_a(p + at, zero());
    total = total * keep + sum(sums);
    maximum = highest;
}

// A pair of value rows in which only position 0 or 1 exists; the other may hold anything.
template <typename T>
const T* edge_pair(const T* pair, std::int64_t dims, bool keep_first, void* space) {
    auto* out = static_cast<std::uint16_t*>(space);
    const auto* in = reinterpret_cast<const std::uint16_t*>(pair);
    for (std::int64_t d = 0; d < dims; ++d) {
        out[2 * d] = keep_first ? in[2 * d] : 0;
        out[2 * d + 1] = keep_first ? 0 : in[2 * d + 1];
    }
    return static_cast<const T*>(space);
}

// One run of keys [base, base + width), width a multiple of 16 and at most kPart,
// for all lines. Stride: how blocks that are scored together lie: 1 side by side,
// else spread over the run, so that a cold cache is read as several streams.
template <typename D, typename T, int Keys, int Ahead, bool Spread>
void attend_run(const AttentionParams& p, const Lines& lines, const CacheLayout& layout, const T* keys,
                const T* values, int base, BlockScratch<D>& scratch) {
    constexpr int kRow = Keys + kBlock;
    const auto bounds = [&](int line, int& begin, int& end) {
        const int position = lines.position_of(line);
        begin = std::max(base, first_key(p.window, position));
        end = std::min(base + Keys, position + 1);
    };
    // What a tile of lines needs: from its first line's first key to its last line's last.
    const auto tile_bounds = [&](int line, int rows, int& begin, int& end) {
        int unused;
        bounds(line, begin, unused);
        bounds(line + rows - 1, unused, end);
    };

    int run_begin, run_end;
    tile_bounds(0, lines.count, run_begin, run_end);
    const int first_block = run_begin / kBlock, end_block = (run_end + kBlock - 1) / kBlock;
    const int stride = Spread ? (end_block - first_block + kTileBlocks - 1) / kTileBlocks : 1;
    const int step_blocks = Spread ? 1 : kTileBlocks;
    const int stop = Spread ? first_block + stride : end_block;
    for (int block = first_block; block < stop; block += step_blocks) {
        int blocks = 0;
        while (blocks < kTileBlocks && block + blocks * stride < end_block) ++blocks;
        const int last_key = (block + (blocks - 1) * stride + 1) * kBlock;
        for (int line = 0; line < lines.count; line += kTileRows) {
            const int rows = std::min(kTileRows, lines.count - line);
            int begin, end;
            tile_bounds(line, rows, begin, end);
            if (begin >= last_key || end <= block * kBlock) continue;
            const int wanted = Spread ? blocks : std::min(blocks, (end + kBlock - 1) / kBlock - block);
            run_tile<D, T, false, Ahead>(rows, wanted,
                                  {scratch.q + line * layout.dims, layout.dims, keys + block * layout.key_block,
                                   stride * layout.key_block, layout.key_step, p.head_dim / D::unit,
                                   scratch.scores + line * kRow + block * kBlock - base, kRow, stride * kBlock,
                                   nullptr});
        }
    }

    if constexpr (Spread) {  // values begin to arrive while probabilities are made
        const auto* at = reinterpret_cast<const char*>(values + run_begin / D::unit * layout.value_step(0));
        for (std::ptrdiff_t b = 0; b < kValuesAhead; b += 64) prefetch(at + b);
    }
    for (int line = 0; line < lines.count; line += kTileRows) {
        const int rows = std::min(kTileRows, lines.count - line);
        int tile_begin, tile_end;
        tile_bounds(line, rows, tile_begin, tile_end);
        const int p_begin = tile_begin / kBlock * kBlock, p_end = (tile_end + kBlock - 1) / kBlock * kBlock;
        for (int i = line; i < line + rows; ++i) {
            int begin, end;
            bounds(i, begin, end);
            soften<D, T>(scratch.scores + i * kRow, scratch.p + i * kRow, base, begin, end, p_begin, p_end, p.scale,
                      p.softcap, scratch.maximum[i], scratch.total[i], scratch.keep[i]);
        }
    }

    for (std::int64_t panel = 0; panel * kPanel < layout.dims; ++panel) {
        const T* panel_values = values + panel * layout.value_panel;
        const std::ptrdiff_t step = layout.value_step(panel);
        const int panel_blocks = static_cast<int>(layout.panel_width(panel)) / kBlock;
        for (int block = 0; block < panel_blocks; block += kTileBlocks) {
            const int blocks = std::min(kTileBlocks, panel_blocks - block);
            for (int line = 0; line < lines.count; line += kTileRows) {
                const int rows = std::min(kTileRows, lines.count - line);
                int begin, end;
                tile_bounds(line, rows, begin, end);
                if (begin >= end) continue;
                const float* keep = scratch.keep + line;
                float* c = scratch.sums + line * layout.dims + panel * kPanel + block * kBlock;
                // Whole steps in between, and at either end a pair of which one position is not ours.
                const auto multiply = [&](const T* b, int position, int steps) {
                    run_tile<D, T, true, Ahead>(rows, blocks,
                                                {scratch.p + line * kRow + position - base, kRow,
                                                 b + block * kBlock * D::unit, kBlock * D::unit, step, steps, c,
                                                 layout.dims, kBlock, keep});
                    keep = scratch.ones;
                };
                int from = begin, to = end;
                if constexpr (D::unit == 2) {
                    if (from % 2 != 0) {
                        multiply(edge_pair(panel_values + from / 2 * step, step / 2, false, scratch.edge), from - 1, 1);
                        ++from;
                    }
                    if (to % 2 != 0) --to;
                }
                if (from < to) multiply(panel_values + from / D::unit * step, from, (to - from) / D::unit);
                if (to < end && to >= from)
                    multiply(edge_pair(panel_values + to / 2 * step, step / 2, true, scratch.edge), to, 1);
            }
        }
    }
}

template <typename D>
void begin_lines(const Lines& lines, const CacheLayout& layout, BlockScratch<D>& scratch) {
    for (int i = 0; i < lines.count; ++i) {
        scratch.maximum[i] = -std::numeric_limits<float>::infinity();
        scratch.total[i] = 0;
        scratch.ones[i] = 1;
        float* sums = scratch.sums + i * layout.dims;
        for (std::int64_t d = 0; d < layout.dims; d += kLanes) store(sums + d, zero());
    }
}

template <typename D, typename T>
void pack_lines(const AttentionParams& p, const Lines& lines, const CacheLayout& layout, BlockScratch<D>& scratch) {
    for (int i = 0; i < lines.count; ++i) {
        const std::int64_t row = lines.row + i / lines.group, head = lines.first_head + i % lines.group;
        pack_query<D, T>(static_cast<const T*>(p.q) + (row * p.n_heads + head) * p.head_dim, p.head_dim,
                         scratch.q + i * layout.dims);
    }
}

template <typename D, typename T>
void decode(const void* params, const StepRows& step, std::int64_t first, std::int64_t last, CpuWorker& worker) {
    const auto& p = *static_cast<const AttentionParams*>(params);
    const CacheLayout layout = layout_of(p.cache);
    const int group = p.n_heads / p.n_kv_heads;
    const int rows_at_once = std::max(1, kLines / group);
    BlockScratch<D> scratch(worker, std::max(kLines, group), layout.dims, std::max(kPart, kRun));
    for (std::int64_t i = first; i < last; ++i) {
        const DecodeItem item = decode_item(p, step, i);
        const int base = item.part * kPart;
        const std::int64_t head = layout.head_offset(p.cache, item.span.slot, item.kv_head);
        // Rows of the span that see keys of this part.
        int row = std::max(0, base - item.span.position), end = item.span.rows;
        if (p.window > 0) end = std::min(end, base + kPart - 1 + p.window - item.span.position);
        for (; row < end; row += rows_at_once) {
            const Lines lines{item.span.row + row, item.span.position + row, group, item.kv_head * group,
                              std::min(rows_at_once, end - row) * group};
            begin_lines(lines, layout, scratch);
            pack_lines<D, T>(p, lines, layout, scratch);
            attend_run<D, T, kPart, kDecodeAhead, true>(p, lines, layout, static_cast<const T*>(p.cache.keys) + head,
                                                 static_cast<const T*>(p.cache.values) + head, base, scratch);
            for (int l = 0; l < lines.count; ++l) {
                const int part = item.part - first_part(p.window, lines.position_of(l));
                float* partial = partial_of(p, lines.row + l / group, lines.first_head + l % group, part);
                partial[0] = scratch.maximum[l];
                partial[1] = scratch.total[l];
                for (std::int64_t d = 0; d < layout.dims; d += kLanes)
                    store(partial + kPartHeader + d, load(scratch.sums + l * layout.dims + d));
            }
        }
    }
}

template <typename T>
void store_out(T* out, const float* sums, F32 factor, int head_dim) {
    int d = 0;
    for (; d + kLanes <= head_dim; d += kLanes) store(out + d, load(sums + d) * factor);
    if (d < head_dim) store_first(out + d, load(sums + d) * factor, head_dim - d);
}

template <typename T>
void combine(const void* params, const StepRows& step, std::int64_t first, std::int64_t last, CpuWorker&) {
    const auto& p = *static_cast<const AttentionParams*>(params);
    const int dims = (p.head_dim + kBlock - 1) / kBlock * kBlock;
    for (std::int64_t i = first; i < last; ++i) {
        const int row = static_cast<int>(i / p.n_heads), head = static_cast<int>(i % p.n_heads);
        const int parts = parts_of(p.window, {row, 1, step.slots[row], step.positions[row]});
        float top = -std::numeric_limits<float>::infinity(), total = 0;
        for (int part = 0; part < parts; ++part) top = std::max(top, partial_of(p, row, head, part)[0]);
        alignas(64) float sums[512];
        for (int d = 0; d < dims; d += kLanes) store(sums + d, zero());
        for (int part = 0; part < parts; ++part) {
            const float* partial = partial_of(p, row, head, part);
            const F32 weight = Power<T>::of(set1(partial[0] - top));
            total += first_of(weight) * partial[1];
            for (int d = 0; d < dims; d += kLanes) store(sums + d, fma(weight, load(partial + kPartHeader + d), load(sums + d)));
        }
        store_out(static_cast<T*>(p.out) + i * p.head_dim, sums, set1(1.0f / total), p.head_dim);
    }
}

template <typename D, typename T>
void prefill(const void* params, const StepRows& step, std::int64_t first, std::int64_t last, CpuWorker& worker) {
    const auto& p = *static_cast<const AttentionParams*>(params);
    const CacheLayout layout = layout_of(p.cache);
    const int group = p.n_heads / p.n_kv_heads;
    BlockScratch<D> scratch(worker, std::max(kLines, group), layout.dims, std::max(kPart, kRun));
    for (std::int64_t i = first; i < last; ++i) {
        const PrefillItem item = prefill_item(p, step, i);
        const std::int64_t head = layout.head_offset(p.cache, item.slot, item.kv_head);
        const Lines lines{item.row, item.position, group, item.kv_head * group, item.rows * group};
        begin_lines(lines, layout, scratch);
        pack_lines<D, T>(p, lines, layout, scratch);
        const int end = item.position + item.rows;
        for (int base = first_key(p.window, item.position) / kRun * kRun; base < end; base += kRun)
            attend_run<D, T, kRun, 0, false>(p, lines, layout, static_cast<const T*>(p.cache.keys) + head,
                                       static_cast<const T*>(p.cache.values) + head, base, scratch);
        for (int l = 0; l < lines.count; ++l) {
            const std::int64_t row = lines.row + l / group, out_head = lines.first_head + l % group;
            store_out(static_cast<T*>(p.out) + (row * p.n_heads + out_head) * p.head_dim, scratch.sums + l * layout.dims,
                      set1(1.0f / scratch.total[l]), p.head_dim);
        }
    }
}

}  // namespace forge::FORGE_SIMD
