// The experts' products: the matmul kernels, expert by expert.
#include "kernels/experts/experts.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace forge {
namespace {

// What a matmul of one expert would be given. Rows of x and y are set by the caller.
MatmulParams expert(const ExpertMatmulParams& p, std::int64_t e, int max_rows) {
    MatmulParams m;
    m.type = p.type;
    m.w = p.w + e;
    m.w2 = p.w2 ? p.w2 + e : nullptr;
    m.epilogue = p.epilogue;
    m.act = p.act;
    m.max_rows = max_rows;
    return m;
}

std::size_t row_bytes(const ExpertMatmulParams& p, std::int64_t columns) { return static_cast<std::size_t>(columns) * size_of(p.type); }

StepRows rows(const StepRows& step, int m) {
    StepRows r = step;
    r.m = m;
    return r;
}

std::int64_t matvec_blocks(const ExpertMatmulParams& p) {
    const MatmulParams m = expert(p, 0, 1);
    return matvec_kernel(m, p.isa).items(&m, StepRows{.m = 1});
}

std::int64_t matvec_items(const void* params, const StepRows& step) {
    const auto& p = *static_cast<const ExpertMatmulParams*>(params);
    return std::int64_t{step.m} * p.k * matvec_blocks(p);
}

// An item is a block of one chosen expert's rows for one pair.
void matvec(const void* params, const StepRows& step, std::int64_t first, std::int64_t last, CpuWorker& worker) {
    const auto& p = *static_cast<const ExpertMatmulParams*>(params);
    const std::int64_t blocks = matvec_blocks(p);
    for (std::int64_t item = first; item < last; ++item) {
        const std::int64_t pair = item / blocks, row = pair / p.k;
        const std::int64_t e = p.route[row * 2 * p.k + pair % p.k];
        MatmulParams m = expert(p, e, 1);
        m.x = static_cast<const std::byte*>(p.x) + row_bytes(p, m.w->cols) * static_cast<std::size_t>(p.x_per_pair ? pair : row);
        m.y = static_cast<std::byte*>(p.y) + row_bytes(p, m.w->rows) * static_cast<std::size_t>(pair);
        // A thread's next blocks are mostly of the same row, which stays prepared.
        if (p.input_tag != 0) m.input_tag = p.input_tag + static_cast<std::uint32_t>(p.x_per_pair ? pair : row);
        const CpuKernel kernel = matvec_kernel(m, p.isa);
        kernel.fn(&m, rows(step, 1), item % blocks, item % blocks + 1, worker);
    }
}

GroupTable table_of(const ExpertMatmulParams& p) {
    return GroupTable(const_cast<std::int32_t*>(p.table), p.experts, p.max_rows * p.k);
}

std::size_t panel_bytes(const ExpertMatmulParams& p) { return pack_bytes(expert(p, 0, pack_panel(p.isa)), p.isa); }

// The panel's expert: the last whose first panel is not after it.
std::int64_t expert_of_panel(const ExpertMatmulParams& p, const GroupTable& t, std::int64_t panel) {
    return std::upper_bound(t.panel_starts, t.panel_starts + p.experts + 1, static_cast<std::int32_t>(panel)) - t.panel_starts - 1;
}

// The table is made in the same step, so items are counted for the worst case.
std::int64_t pack_items(const void* params, const StepRows& step) {
    const auto& p = *static_cast<const ExpertMatmulParams*>(params);
    const std::int64_t pairs = std::int64_t{step.m} * p.k, panel = pack_panel(p.isa);
    return pairs == 0 ? 0 : pairs / panel + std::min<std::int64_t>(pairs, p.experts);
}

void pack(const void* params, const StepRows& step, std::int64_t first, std::int64_t last, CpuWorker& worker) {
    const auto& p = *static_cast<const ExpertMatmulParams*>(params);
    const GroupTable t = table_of(p);
    const int panel = pack_panel(p.isa);
    worker.tag = 0;
    last = std::min<std::int64_t>(last, t.panel_starts[p.experts]);
    for (std::int64_t item = first; item < last; ++item) {
        const std::int64_t e = expert_of_panel(p, t, item);
        MatmulParams m = expert(p, e, panel);
        const std::size_t bytes = row_bytes(p, m.w->cols);
        const std::int32_t start = t.starts[e] + static_cast<std::int32_t>(item - t.panel_starts[e]) * panel;
        const int count = std::min<int>(panel, t.starts[e + 1] - start);
        CpuWorker inner = worker;
        if (p.x_per_pair) {
            m.x = static_cast<const std::byte*>(p.x) + bytes * static_cast<std::size_t>(start);
        } else {
            // Gather the rows at the front of the scratch; the kernel works behind them.
            const std::size_t gathered = (bytes * static_cast<std::size_t>(panel) + 127) / 64 * 64;
            for (int i = 0; i < count; ++i)
                std::memcpy(worker.scratch.data() + bytes * static_cast<std::size_t>(i),
                            static_cast<const std::byte*>(p.x) + bytes * static_cast<std::size_t>(t.pair_of[start + i] / p.k), bytes);
            m.x = worker.scratch.data();
            inner.scratch = worker.scratch.subspan(gathered);
        }
        m.packed = static_cast<std::byte*>(p.packed) + panel_bytes(p) * static_cast<std::size_t>(item);
        const CpuKernel kernel = pack_kernel(m, p.isa);
        const StepRows part = rows(step, count);
        kernel.fn(&m, part, 0, kernel.items(&m, part), inner);
    }
}

std::int64_t gemm_blocks(const ExpertMatmulParams& p) {
    const MatmulParams m = expert(p, 0, p.max_rows);
    return gemm_kernel(m, p.isa).items(&m, StepRows{.m = 1});
}

std::int64_t gemm_items(const void* params, const StepRows& step) {
    const auto& p = *static_cast<const ExpertMatmulParams*>(params);
    return step.m == 0 ? 0 : std::int64_t{p.experts} * gemm_blocks(p);
}

// An item is a block of an expert's rows for all pairs that chose it.
void gemm(const void* params, const StepRows& step, std::int64_t first, std::int64_t last, CpuWorker& worker) {
    const auto& p = *static_cast<const ExpertMatmulParams*>(params);
    const GroupTable t = table_of(p);
    const std::int64_t blocks = gemm_blocks(p);
    for (std::int64_t item = first; item < last; ++item) {
        const std::int64_t e = item / blocks;
        const int count = t.starts[e + 1] - t.starts[e];
        if (count == 0) continue;
        MatmulParams m = expert(p, e, p.max_rows);
        m.packed = static_cast<std::byte*>(p.packed) + panel_bytes(p) * static_cast<std::size_t>(t.panel_starts[e]);
        m.y = static_cast<std::byte*>(p.y) + row_bytes(p, m.w->rows) * static_cast<std::size_t>(t.starts[e]);
        gemm_kernel(m, p.isa).fn(&m, rows(step, count), item % blocks, item % blocks + 1, worker);
    }
}

void check(const ExpertMatmulParams& p, Isa isa) {
    if (p.isa != isa) fail(ErrorKind::internal, "expert kernels for {} were given parameters for {}", name_of(isa), name_of(p.isa));
}

}  // namespace

CpuKernel expert_matvec_kernel(const ExpertMatmulParams& p, Isa isa) {
    check(p, isa);
    return {"expert_matvec", matvec, matvec_items, 1, matvec_kernel(expert(p, 0, 1), isa).scratch};
}

CpuKernel expert_pack_kernel(const ExpertMatmulParams& p, Isa isa) {
    check(p, isa);
    const std::size_t gathered = row_bytes(p, p.w->cols) * static_cast<std::size_t>(pack_panel(isa)) + 128;
    return {"expert_pack", pack, pack_items, 1, gathered + pack_kernel(expert(p, 0, pack_panel(isa)), isa).scratch};
}

CpuKernel expert_gemm_kernel(const ExpertMatmulParams& p, Isa isa) {
    check(p, isa);
    // A row can choose an expert once, so an expert has at most max_rows rows.
    return {"expert_gemm", gemm, gemm_items, 1, gemm_kernel(expert(p, 0, p.max_rows), isa).scratch};
}

std::size_t expert_pack_bytes(const ExpertMatmulParams& p, Isa isa) {
    ExpertMatmulParams q = p;
    q.isa = isa;
    const std::size_t pairs = static_cast<std::size_t>(p.max_rows) * static_cast<std::size_t>(p.k);
    return panel_bytes(q) * (pairs / static_cast<std::size_t>(pack_panel(isa)) + std::min(pairs, static_cast<std::size_t>(p.experts)));
}

int expert_panel(Isa isa) { return pack_panel(isa); }

}  // namespace forge
