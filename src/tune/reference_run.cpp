#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "tune/probe.h"

namespace forge::tune {
namespace {

constexpr int kBatch = 8;             // rows of a step of the reference: the kernels for few rows serve all
constexpr std::int64_t kAligned = 16; // matrix rows of a tile

struct Columns { std::int64_t first, count; };

// Multiplications of one row.
double work_of(const Part& part, const Subject& subject, const Case& c) {
    double work = 0;
    for (const Op& op : part.plan.ops) {
        if (const auto* o = std::get_if<AttentionOp>(&op.attributes)) work += 2.0 * o->attention.n_heads * o->attention.head_dim * c.filled[0];
        const auto add = [&](WeightId id, double times) {
            if (id < 0) return;
            const Weight& w = subject.weights[static_cast<std::size_t>(id)];
            work += times * static_cast<double>(w.rows) * static_cast<double>(w.cols);
        };
        if (const auto* o = std::get_if<MatmulOp>(&op.attributes)) add(o->weight, 1), add(o->weight2, 1);
        if (const auto* o = std::get_if<ExpertMatmulOp>(&op.attributes)) add(o->weight, o->per_token), add(o->weight2, o->per_token);
    }
    return work;
}

// All rows, or eight that begin, end and lie inside of blocks.
std::vector<int> sampled_rows(const Part& part, int rows, double work, double budget) {
    std::vector<int> all(static_cast<std::size_t>(rows));
    std::iota(all.begin(), all.end(), 0);
    const bool depend = part.state_layer >= 0 || (part.reads_keys && part.writes_keys);   // on the rows before them
    if (depend || rows <= kBatch || work * rows <= budget) return all;
    std::vector<int> some{0, 1, rows / 3, rows / 2, rows / 2 + 1, rows - 9, rows - 2, rows - 1};
    std::sort(some.begin(), some.end());
    some.erase(std::unique(some.begin(), some.end()), some.end());
    return some;
}

// The output's columns, or its beginning, middle and ragged end.
std::vector<Columns> sampled_columns(const Part& part, const Subject& subject, const Case& c, int rows, double budget) {
    const MatmulOp* matmul = part.matmul();
    if (!matmul || matmul->conv_weight >= 0) return {};
    const Weight& w = subject.weights[static_cast<std::size_t>(matmul->weight)];
    if (work_of(part, subject, c) * rows <= budget || w.rows <= 320) return {};
    const auto down = [](std::int64_t n) { return n / kAligned * kAligned; };
    const std::int64_t end = down(w.rows - 128);
    return {{0, 128}, {down(w.rows / 2), 64}, {end, w.rows - end}};
}

Weight rows_of(Weight w, const Columns& c) {
    const auto first = static_cast<std::size_t>(c.first);
    if (w.tiled) {
        w.codes.data += first / kAligned * w.codes.stride;
    } else {
        for (Plane* p : {&w.codes, &w.codes_high, &w.scales, &w.offsets, &w.super_scales, &w.super_mins})
            if (p->data) p->data += first * p->stride;
    }
    w.rows = c.count;
    return w;
}

Weight elements_of(Weight w, const Columns& c) {
    w.codes.data += static_cast<std::size_t>(c.first) * size_of(w.format.dense_type);
    w.cols = c.count;
    return w;
}

std::vector<float> columns_of(const std::vector<float>& values, std::int64_t cols, const Columns& c) {
    std::vector<float> some;
    for (std::size_t row = 0; row < values.size() / static_cast<std::size_t>(cols); ++row) {
        const auto from = values.begin() + static_cast<std::ptrdiff_t>(row) * cols + c.first;
        some.insert(some.end(), from, from + c.count);
    }
    return some;
}

Result run_batches(const Subject& subject, std::span<const Weight> weights, const Part& part, const Case& c) {
    const LoweredPart lowered = lower_part(subject.reference, subject, weights, part, kBatch, kBatch);
    const std::shared_ptr<Cache> cache = make_cache(subject.reference, part, subject);
    Probe probe(subject.reference, subject, part, lowered, weights, cache);
    fill_cache(*cache, part, subject, c);
    Result all;
    for (int first = 0; first < c.rows;) {
        std::vector<int> rows;   // a sequence's rows follow each other in a step
        const auto follows = [&](std::size_t row) { return c.slots[row] != c.slots[row - 1] || c.positions[row] == c.positions[row - 1] + 1; };
        do rows.push_back(first++);
        while (first < c.rows && rows.size() < kBatch && follows(static_cast<std::size_t>(first)));
        Result some = probe.run(c.some(part, rows));
        for (const std::vector<float>* made : {&some.values, &some.state})   // NaN would read as what was not asked for
            if (!std::all_of(made->begin(), made->end(), [](float v) { return std::isfinite(v); }))
                fail(ErrorKind::internal, "the plain kernels make what is no number, so that nothing can be held against them");
        all.width = some.width;
        all.values.insert(all.values.end(), some.values.begin(), some.values.end());
        all.state = std::move(some.state);
    }
    return all;
}

// A product of some of the matrix's rows.
Result run_columns(const Subject& subject, const Part& part, const Case& c, const Columns& columns) {
    std::vector<Weight> weights(subject.weights.begin(), subject.weights.end());
    const MatmulOp& m = *part.matmul();
    for (const WeightId id : {m.weight, m.weight2})
        if (id >= 0) weights[static_cast<std::size_t>(id)] = rows_of(subject.weights[static_cast<std::size_t>(id)], columns);
    for (const WeightId id : {m.bias, m.bias2})
        if (id >= 0) weights[static_cast<std::size_t>(id)] = elements_of(subject.weights[static_cast<std::size_t>(id)], columns);
    Part narrow = part;
    Case data = c;
    narrow.plan.values[static_cast<std::size_t>(part.output())].cols = columns.count;
    for (std::size_t i = 0; i < part.inputs.size(); ++i) {
        if (part.inputs[i].kind != InputKind::residual) continue;
        Value& v = narrow.plan.values[static_cast<std::size_t>(part.inputs[i].value)];
        data.inputs[i] = columns_of(c.inputs[i], v.cols, columns);
        v.cols = columns.count;
    }
    return run_batches(subject, weights, narrow, data);
}

}  // namespace

Result reference_run(const Subject& subject, const Part& part, const Case& c, double budget) {
    const std::vector<int> rows = sampled_rows(part, c.rows, work_of(part, subject, c), budget);
    const bool every_row = static_cast<int>(rows.size()) == c.rows;
    const Case some = every_row ? c : c.some(part, rows);
    const std::vector<Columns> columns = sampled_columns(part, subject, c, static_cast<int>(rows.size()), budget);
    if (columns.empty() && every_row) return run_batches(subject, subject.weights, part, some);
    Result all;
    if (columns.empty()) {
        const Result found = run_batches(subject, subject.weights, part, some);
        all.width = found.width;
        all.values.assign(static_cast<std::size_t>(c.rows) * all.width, std::numeric_limits<float>::quiet_NaN());
        for (std::size_t i = 0; i < rows.size(); ++i)
            std::copy_n(found.values.begin() + static_cast<std::ptrdiff_t>(i * all.width), all.width,
                        all.values.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(rows[i]) * all.width));
        return all;
    }
    all.width = static_cast<std::size_t>(part.plan.values[static_cast<std::size_t>(part.output())].cols);
    all.values.assign(static_cast<std::size_t>(c.rows) * all.width, std::numeric_limits<float>::quiet_NaN());
    for (const Columns& part_columns : columns) {
        const Result found = run_columns(subject, part, some, part_columns);
        for (std::size_t i = 0; i < rows.size(); ++i)
            std::copy_n(found.values.begin() + static_cast<std::ptrdiff_t>(i * found.width), found.width,
                        all.values.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(rows[i]) * all.width + static_cast<std::size_t>(part_columns.first)));
    }
    return all;
}

}  // namespace forge::tune
