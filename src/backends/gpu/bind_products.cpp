// Products with weights: which kernels serve which numbers of rows, and where their norms run.
#include "binder.h"
#include "kernels/gpu/ways.h"

namespace forge::gpu {

MatvecShape Binder::matmul_shape() const {
    MatvecShape s;
    s.w = weight("weight");
    s.w2 = weight("weight2");
    s.norm = has("norm_weight");
    s.bias = has("bias");
    s.formula = formula();
    s.eps = number("eps");
    s.softcap = number("softcap");
    s.epilogue = static_cast<Epilogue>(integer("epilogue"));
    s.act = static_cast<ActKind>(integer("activation"));
    s.f32_out = integer("f32_out") != 0;
    s.output_rows = launch_->output_rows;
    if (const int heads = static_cast<int>(launch_->number("gated_heads", 0)); heads > 0) {
        s.norm = false;
        s.gated_head = static_cast<int>(s.w->cols) / heads;
    }
    s.conv = has("conv_weight");
    if (s.conv) s.conv_kernel = cache_.layer(integer("state_layer")).conv_kernel;
    return s;
}

// Whether the launch after this one can run beside it (join_matvecs).
bool Binder::joins_next(std::size_t index) const {
    if (!common_.limits.join || index + 1 >= program_.launches.size()) return false;
    const Launch& next = program_.launches[index + 1];
    return program_.launches[index].kernel == "matvec" && next.kernel == "matvec" && !next.barrier;
}

// MatvecShape::beside of a launch: the rows of the launches that run beside it, or -1 where one of them could get other
// threads than it: then they would run one after the other.
std::int64_t Binder::rows_beside(const MatvecShape& s) {
    if (s.x_rows != 1) return 0;
    const auto at = static_cast<std::size_t>(launch_ - program_.launches.data());
    std::size_t first = at, last = at;
    while (first > 0 && joins_next(first - 1)) --first;
    while (joins_next(last)) ++last;
    const auto tile = [&](MatvecShape shape) {
        shape.x_rows = s.x_rows;
        shape.beside = -1;
        return matvec_tiles(common_, shape, false)[0];
    };
    const MatvecTile mine = tile(s);
    const Launch* const own = launch_;
    std::int64_t rows = 0;
    for (std::size_t i = first; i <= last && rows >= 0; ++i) {
        if (i == at) continue;
        launch_ = &program_.launches[i];
        const MatvecShape other = matmul_shape();
        const MatvecTile theirs = tile(other);
        const bool alike = theirs.strip == mine.strip && theirs.units == mine.units && theirs.split == mine.split && theirs.tensor == mine.tensor && theirs.residents == mine.residents &&
                           other.norm == s.norm && other.gated_head == s.gated_head && (other.w2 != nullptr) == (s.w2 != nullptr) && other.w->cols == s.w->cols &&
                           other.w->format.is_dense() == s.w->format.is_dense();
        rows = alike ? rows + other.w->rows : -1;
    }
    launch_ = own;
    return rows;
}

MatvecShape Binder::without_norm(MatvecShape s) {
    s.norm = false;
    s.gated_head = 0;
    return s;
}

// A launch that names a variant was found to stand alone, if the variant needs it.
Kernel Binder::matvec_of(const MatvecShape& s) const { return launch_->variant(s.x_rows) ? chosen(matvec_ways(common_, s, true), s.x_rows) : matvec(common_, s); }

void Binder::matvec_(GpuLaunch& out) {
    MatvecShape s = matmul_shape();
    for_each_bucket([&](int rows) {
        s.x_rows = rows;
        s.beside = rows_beside(s);
        Variant v{s.x_rows, {}};
        const bool split = (s.norm || s.gated_head > 0) && (!norm_fits(common_, s) || wants(kNormedBefore, rows));
        if (rows == 1 && has("untaken") && (!s.norm || norm_fits(common_, s))) out.variants.push_back({1, {bound_as(matvec_of(s), {{"x", "untaken"}})}, INT_MAX, true});
        if (split) split_norm(s, v);
        else v.kernels.push_back(bound(matvec_of(s)));
        out.variants.push_back(std::move(v));
    });
}

// The norm in a launch of its own, once for all products of the same normed rows.
void Binder::split_norm(MatvecShape s, Variant& v) {
    const auto key = std::make_pair(integer("input_tag"), s.x_rows);
    auto it = normed_.find(key);
    if (it == normed_.end()) {
        NormShape n;
        n.width = static_cast<int>(s.w->cols);
        n.output_rows = s.output_rows;
        n.formula = s.formula;
        n.eps = s.eps;
        n.w = "norm_weight";
        n.y = "scratch";
        it = normed_.emplace(key, out_.scratch_bytes).first;
        out_.scratch_bytes += (static_cast<std::uint64_t>(s.x_rows) * static_cast<std::uint64_t>(s.w->cols) * size_of(program_.type) + 255) / 256 * 256;
        BoundKernel b{s.gated_head > 0 ? gated_norm(common_, static_cast<int>(s.w->cols) / s.gated_head, s.gated_head, s.eps, "norm_weight", "scratch") : norm(common_, n), {}};
        for (const Param& p : b.kernel.params) b.buffers.push_back(p.name == "scratch" ? Buffer{Place::scratch, 0, 0, it->second} : buffer_of(p.name));
        v.kernels.push_back(std::move(b));
    }
    BoundKernel b = bound(matvec_of(without_norm(s)));
    for (std::size_t i = 0; i < b.kernel.params.size(); ++i)
        if (b.kernel.params[i].name == "x") b.buffers[i] = {Place::scratch, 0, 0, it->second};
    v.kernels.push_back(std::move(b));
}

// Rows for a product of many rows: normed. (Without a norm nothing is packed.)
void Binder::pack_(GpuLaunch& out) {
    NormShape n;
    n.width = static_cast<int>(weight("weight")->cols);
    n.output_rows = launch_->output_rows;
    n.formula = formula();
    n.eps = number("eps");
    n.w = "norm_weight";
    n.y = "packed";
    one(out, norm(common_, n));
}

void Binder::gemm_(GpuLaunch& out) {
    const MatvecShape s = matmul_shape();
    if (matmul2d_fits(common_, s)) return one(out, chosen(gemm_ways(common_, s, program_.max_rows), program_.max_rows));
    // A tile for every doubling of the rows; any gives the same bits.
    for_each_tile_bucket([&](int rows) {
        BoundKernel kernel = bound(chosen(gemm_ways(common_, s, rows), rows));
        if (!out.variants.empty() && out.variants.back().kernels[0].kernel.name == kernel.kernel.name) out.variants.back().max_rows = rows;
        else out.variants.push_back({rows, {std::move(kernel)}});
    });
}

// Nothing for a step of one row, where its reader takes that.
void Binder::take_rows_(GpuLaunch& out) {
    if (skips_take()) out.variants.push_back({program_.max_rows, {}, INT_MAX, true});
    one(out, take_rows(common_, integer("width")));
}

bool Binder::skips_take() const {
    for (const Launch& l : program_.launches) {
        const Operand *x = l.find("x"), *untaken = l.find("untaken");
        if (!x || !untaken || x->buffer.offset != launch_->operand("y").buffer.offset || &l < launch_) continue;
        const Weight& w = weights_[static_cast<std::size_t>(l.operand("weight").buffer.index)];
        MatvecShape s;
        s.w = &w;
        return !l.find("norm_weight") || norm_fits(common_, s);
    }
    return false;
}

}  // namespace forge::gpu
