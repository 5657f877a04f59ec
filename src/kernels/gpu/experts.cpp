// Kernels of text/experts.h, and their form on tensor cores.
#include <algorithm>

#include "base/error.h"
#include "gpu/builder.h"
#include "gpu/simd.h"

namespace forge::gpu {
namespace {

constexpr int kThreads = 128;

// The statement's arguments that all products of experts share.
struct Operands {
    std::string steps, values;    // template arguments; w1, w2, globals1, globals2
    bool scaled = false;
};

std::string step_type(const Weight& w) {
    std::string s = "fk::ExpertStep<";
    for (int plane = 0; plane < 6; ++plane) s += fmt::format("{}{}ull", plane ? ", " : "", expert_stride(w, plane));
    return s + ">";
}

Operands operands(EntryBuilder& b, const ExpertShape& s) {
    b.planes("w1", "weight", *s.w);
    if (s.w2) b.planes("w2", "weight2", *s.w2);
    Operands o;
    o.scaled = s.scaled;
    o.steps = step_type(*s.w) + ", " + step_type(s.w2 ? *s.w2 : *s.w);
    const std::string globals = s.scaled ? b.read("globals", "float") : EntryBuilder::absent("float");
    o.values = fmt::format("w1, {}, {}, {}", s.w2 ? "w2" : "w1", globals, s.scaled && s.w2 ? "(" + globals + " + " + std::to_string(s.experts) + ")" : globals);
    return o;
}

std::string scales(const ExpertShape& s) { return literal(s.w->global_scale) + ", " + literal(s.w2 ? s.w2->global_scale : 1.0f); }

Epilogue epilogue(const ExpertShape& s) { return s.w2 ? Epilogue::act_mul : Epilogue::none; }

// What follows the format in the template arguments of products of grouped rows.
std::string grouped(const Common& c, const ExpertShape& s, const Operands& o) {
    return fmt::format("{}, {}, {}, {}, {}, {}, {}, {}", o.steps, s.w->cols, s.w->rows, s.experts, s.per_token, s.per_token * c.max_rows, s.per_choice ? 1 : 0,
                       s.scaled ? 1 : 0);
}

}  // namespace

MatvecShape one_matrix(const ExpertShape& s) {
    MatvecShape m;
    m.w = s.w;
    m.w2 = s.w2;
    m.epilogue = epilogue(s);
    return m;
}

std::size_t expert_stride(const Weight& w, int plane) {
    const Plane* const planes[] = {&w.codes, &w.codes_high, &w.scales, &w.offsets, &w.super_scales, &w.super_mins};
    return planes[plane]->data ? (planes[plane]->stride * static_cast<std::size_t>(w.rows) + 15) / 16 * 16 : 0;
}

std::size_t group_table_words(int experts, int per_token, int rows) {
    return static_cast<std::size_t>(experts) + 1 + 2 * static_cast<std::size_t>(per_token) * static_cast<std::size_t>(rows);
}

Kernel route(const Common& c, const RouteShape& s) {
    EntryBuilder b("route");
    const std::string step = b.read("step", "int"), logits = b.read("logits", storage(c.type));
    const std::string scale = b.vector(s.scaled, "expert_scale");
    b.statement(fmt::format("fk::route<{}, {}, {}, {}, {}, {}>({}, {}, {}, {}, {}, id);", type_name(c.type), s.experts, s.per_token, s.normalise ? 1 : 0,
                            s.round_weights ? 1 : 0, s.scaled ? 1 : 0, step, logits, scale, b.write("route", "uint"), literal(s.logit_scale)));
    return b.finish(32, {});
}

Kernel group(const Common& c, int experts, int per_token) {
    EntryBuilder b("group");
    const std::string step = b.read("step", "int"), routes = b.read("route", "uint");
    b.statement(fmt::format("fk::group<{}, {}, {}>({}, {}, {}, id);", experts, per_token, per_token * c.max_rows, step, routes, b.write("table", "int")));
    return b.finish(32, {experts, 0});
}

Kernel expert_matvec(const Common& c, const ExpertShape& s) {
    EntryBuilder b("expert_matvec");
    const char* t = storage(c.type);
    const std::string step = b.read("step", "int"), routes = b.read("route", "uint"), x = b.read("x", t);
    const Operands o = operands(b, s);
    const int unit = s.w->format.is_dense() ? 8 : 32, units = divide_up(s.w->cols, unit);
    // The tiles of one row (matmul.cpp); rows of experts are short, so x is staged whenever it is small.
    const int strip = s.w2 ? 4 : 2, flight = s.w->format.is_dense() ? (units >= 256 ? 4 : units >= 128 ? 2 : 1) : units >= 128 ? 2 : 1;
    const int x_bytes = (units + 31) / 32 * 32 * unit * static_cast<int>(size_of(c.type));
    const bool staged = x_bytes <= 16 * 1024;
    b.statement(fmt::format("fk::expert_matvec<{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}>({}, {}, {}, {}, {}, {}, {}, {}, id);", type_name(c.type),
                            format_type(*s.w, c.limits.fast_codes && c.type != DType::f32), o.steps, s.w->cols, s.w->rows, s.per_token, s.per_choice ? 1 : 0,
                            s.scaled ? 1 : 0, strip, flight, staged ? 1 : 0, static_cast<int>(epilogue(s)), static_cast<int>(s.act), kThreads, step, routes, o.values, x,
                            b.write("y", t), scales(s), b.array("xs", "uint4", staged ? x_bytes / 16 : 1), b.array("red", "float", 32)));
    const int strips = divide_up(s.w->rows, s.w2 ? strip / 2 : strip);
    Grid grid{divide_up(strips, kThreads / 32)};
    grid.per_row = s.per_token;
    return b.finish(kThreads, grid);
}

Kernel expert_gemm_simd(const Common& c, const ExpertShape& s, const SimdTile& tile) {
    EntryBuilder b("expert_gemm");
    const char* t = storage(c.type);
    const std::string step = b.read("step", "int"), table = b.read("table", "int"), x = b.read("x", t);
    const Operands o = operands(b, s);
    b.statement(fmt::format("fk::expert_gemm_simd<{}, {}, {}, {}, {}, {}, {}>({}, {}, {}, {}, {}, {}, {}, id);", type_name(c.type), simd_units(c, tile), format_type(*s.w, false),
                            grouped(c, s, o), simd_literals(tile), static_cast<int>(epilogue(s)), static_cast<int>(s.act), step, table, o.values, x, b.write("y", t), scales(s),
                            b.array("memory", "uint4", simd_tile_bytes(tile) / 16)));
    Grid grid;
    grid.x = divide_up(s.w->rows, s.w2 ? tile.columns / 2 : tile.columns);
    grid.rows_per_group = tile.rows;
    grid.per_row = s.per_token;
    grid.groups = s.experts;
    return b.finish(kSimdThreads, grid);
}

Kernel expert_gemm_tensor(const Common& c, const ExpertShape& s, const TensorTile& tile) {
    EntryBuilder b("expert_gemm");
    const char* t = storage(c.type);
    const std::string step = b.read("step", "int"), table = b.read("table", "int"), x = b.read("x", t);
    const Operands o = operands(b, s);
    b.statement(fmt::format("fk::expert_gemm_tensor<{}, {}, {}, {}, {}, {}, {}, {}, {}>({}, {}, {}, {}, {}, {}, {}, id);", type_name(c.type), format_type(*s.w, false), grouped(c, s, o),
                            tile.rows, tile.columns, tile.stages, c.limits.tensor == Tensor::wgmma ? 1 : 0, static_cast<int>(epilogue(s)), static_cast<int>(s.act), step, table, o.values, x,
                            b.write("y", t), scales(s), b.array("memory", "uint4", (tile.rows + tile.columns) * 8 * tile.stages + 64)));
    Grid grid;
    grid.x = divide_up(s.w->rows * (s.w2 ? 2 : 1), tile.columns);
    grid.rows_per_group = tile.rows;
    grid.per_row = s.per_token;
    grid.groups = s.experts;
    return b.finish(2 * tile.rows, grid);
}

Kernel expert_gemm(const Common& c, const ExpertShape& s) {
    // Few rows an expert: small tiles.
    const MatvecShape matrix = one_matrix(s);
    if (simd_fits(c, matrix)) return expert_gemm_simd(c, s, choose_simd_tile(c, matrix, 32));
    if (tensor_fits(c, matrix)) return expert_gemm_tensor(c, s, tensor_tiles(c, matrix)[1]);
    EntryBuilder b("expert_gemm");
    const char* t = storage(c.type);
    const std::string step = b.read("step", "int"), table = b.read("table", "int"), x = b.read("x", t);
    const Operands o = operands(b, s);
    b.statement(fmt::format("fk::expert_gemm<{}, {}, {}, {}, {}>({}, {}, {}, {}, {}, {}, {}, {}, {}, id);", type_name(c.type), format_type(*s.w, false), grouped(c, s, o),
                            static_cast<int>(epilogue(s)), static_cast<int>(s.act), step, table, o.values, x, b.write("y", t), scales(s), b.array("xs", "float", 32 * 33),
                            b.array("ws", "float", 64 * 33), b.array("ws2", "float", s.w2 ? 64 * 33 : 1)));
    Grid grid;
    grid.x = divide_up(s.w->rows, 64);
    grid.rows_per_group = 32;
    grid.per_row = s.per_token;
    grid.groups = s.experts;
    return b.finish(kThreads, grid);
}

Kernel combine(const Common& c, const CombineShape& s) {
    EntryBuilder b("combine");
    const char* t = storage(c.type);
    const std::string step = b.read("step", "int"), x = b.read("x", t), table = s.table ? b.read("table", "int") : step, routes = b.read("route", "uint");
    const std::string shared = s.shared ? b.read("shared", t) : x, gate = s.shared ? b.read("shared_gate", t) : x, residual = s.residual ? b.read("residual", t) : x;
    b.statement(fmt::format("fk::combine<{}, {}, {}, {}, {}, {}, {}, {}>({}, {}, {}, {}, {}, {}, {}, {}, id);", type_name(c.type), s.per_token, s.width, s.experts,
                            s.table ? s.per_token * c.max_rows : 0, s.shared ? 1 : 0, s.residual ? 1 : 0, kThreads, step, x, table, routes, shared, gate, residual, b.write("y", t)));
    return b.finish(kThreads, {divide_up(s.width, kThreads)});
}

}  // namespace forge::gpu
