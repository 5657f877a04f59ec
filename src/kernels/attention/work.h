// How a step's attention is cut into items, the same for every instruction set.
#pragma once

#include <algorithm>

#include "attention/layout.h"

namespace forge {

// Rows of one sequence: row + i stands at position + i.
struct Span { int row, rows, slot, position; };

// The span that starts at `row`.
inline Span span_at(const StepRows& step, int row) {
    Span span{row, 1, step.slots[row], step.positions[row]};
    while (row + span.rows < step.m && step.slots[row + span.rows] == span.slot &&
           step.positions[row + span.rows] == span.position + span.rows)
        ++span.rows;
    return span;
}

// The first key that a query at `position` sees; the last is its own.
inline int first_key(int window, int position) { return window > 0 ? std::max(0, position - window + 1) : 0; }

// Decode: an item is one KV head and one part of the cache, for all rows of a span.
struct DecodeItem { Span span; int kv_head, part; };

inline int first_part(int window, int position) { return first_key(window, position) / kPart; }
inline int parts_of(int window, const Span& span) {
    return (span.position + span.rows - 1) / kPart - first_part(window, span.position) + 1;
}
inline std::int64_t decode_items(const AttentionParams& p, const StepRows& step) {
    std::int64_t items = 0;
    for (int row = 0; row < step.m;) {
        const Span span = span_at(step, row);
        items += static_cast<std::int64_t>(parts_of(p.window, span)) * p.n_kv_heads;
        row += span.rows;
    }
    return items;
}
// Parts of a head are neighbours, so that one thread's grain is one run of memory.
inline DecodeItem decode_item(const AttentionParams& p, const StepRows& step, std::int64_t index) {
    for (int row = 0;;) {
        const Span span = span_at(step, row);
        const int parts = parts_of(p.window, span);
        const std::int64_t items = static_cast<std::int64_t>(parts) * p.n_kv_heads;
        if (index < items)
            return {span, static_cast<int>(index / parts),
                    first_part(p.window, span.position) + static_cast<int>(index % parts)};
        index -= items;
        row += span.rows;
    }
}

// A part's result for one row and head: [maximum, sum, 14 unused][dims] floats.
inline constexpr int kPartHeader = 16;
inline int max_parts(const AttentionParams& p) {
    const int all = (p.cache.capacity + kPart - 1) / kPart;
    return p.window > 0 ? std::min(all, (p.window + kPart - 2) / kPart + 1) : all;
}
inline float* partial_of(const AttentionParams& p, int row, int head, int part) {
    const std::int64_t dims = (p.head_dim + kBlock - 1) / kBlock * kBlock;
    return p.partial + ((static_cast<std::int64_t>(row) * p.n_heads + head) * max_parts(p) + part) * (kPartHeader + dims);
}

// Prefill: an item is one KV head and a block of query rows of a span, with all
// query heads of the KV head. A (row, head) pair is one "line" of work. More lines
// read the cache less often (96 instead of 48: a tenth to a fifth faster at 4096
// keys); fewer make enough items for many threads.
inline constexpr int kLines = 96;      // lines of an item at most, unless one row has more heads
inline constexpr int kFewItems = 64;   // below this many items, blocks of half the lines are taken
struct PrefillItem { int row, rows, slot, position, kv_head; };

inline int rows_per_item(const AttentionParams& p, int rows) {
    const int group = p.n_heads / p.n_kv_heads;
    const bool few = static_cast<std::int64_t>(rows) * group / kLines * p.n_kv_heads < kFewItems;
    return std::max(1, (few ? kLines / 2 : kLines) / group);
}
inline std::int64_t prefill_items(const AttentionParams& p, const StepRows& step) {
    std::int64_t items = 0;
    for (int row = 0; row < step.m;) {
        const Span span = span_at(step, row);
        const int block = rows_per_item(p, span.rows);
        items += static_cast<std::int64_t>((span.rows + block - 1) / block) * p.n_kv_heads;
        row += span.rows;
    }
    return items;
}
// Late blocks see the most keys: they come first, so that threads end together.
inline PrefillItem prefill_item(const AttentionParams& p, const StepRows& step, std::int64_t index) {
    for (int row = 0;;) {
        const Span span = span_at(step, row);
        const int block = rows_per_item(p, span.rows);
        const int blocks = (span.rows + block - 1) / block;
        const std::int64_t items = static_cast<std::int64_t>(blocks) * p.n_kv_heads;
        if (index < items) {
            const int first = (blocks - 1 - static_cast<int>(index / p.n_kv_heads)) * block;
            return {span.row + first, std::min(block, span.rows - first), span.slot, span.position + first,
                    static_cast<int>(index % p.n_kv_heads)};
        }
        index -= items;
        row += span.rows;
    }
}

}  // namespace forge
