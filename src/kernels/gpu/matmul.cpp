#include <algorithm>

#include "gpu/builder.h"

namespace forge::gpu {
namespace {

struct Tile {
    int strip, units, threads;   // matrix rows of a strip, units in flight, threads
    bool staged;                 // x in threadgroup memory
    int x_bytes;                 // of it
};

int unit_elements(const Weight& w) { return w.format.is_dense() ? 8 : 32; }

// x of all rows in threadgroup memory: whole 32s of units.
int staged_bytes(const Common& c, const MatvecShape& s) {
    const int units = divide_up(s.w->cols, unit_elements(*s.w)), slots = (units + 31) / 32 * 32;
    return s.x_rows * slots * unit_elements(*s.w) * static_cast<int>(size_of(c.type));
}

Tile choose(const Common& c, const MatvecShape& s) {
    Tile t;
    const int units = divide_up(s.w->cols, unit_elements(*s.w));
    t.threads = kNormThreads;
    t.strip = s.epilogue == Epilogue::act_mul ? 4 : 2;
    // Dense rows want more loads in flight than quantised ones, whose units are larger.
    t.units = s.w->format.is_dense() ? (units >= 256 ? 4 : units >= 128 ? 2 : 1) : units >= 128 ? 2 : 1;
    // Long rows of one vector, by measurement on an 8B shape: codes are bound by instructions, and what a lane does for x
    // serves all matrix rows of its strip; dense rows by loads in flight.
    if (s.x_rows == 1 && units >= 128 && !s.w->format.is_dense() && (s.epilogue == Epilogue::act_mul || s.w->rows >= 8192)) {
        t.strip = 8;
        t.units = 1;
    }
    if (s.x_rows == 1 && units >= 256 && s.w->format.is_dense() && s.epilogue == Epilogue::act_mul) t.strip = 2;
    if (s.x_rows > 2) t.units = 1;
    if (s.x_rows > 4) t.strip = 2;
    t.x_bytes = staged_bytes(c, s);
    t.staged = s.norm || t.x_bytes <= 16 * 1024;
    return t;
}

bool fast_codes(const Common& c) { return c.limits.fast_codes && c.type != DType::f32; }

std::string vector_or_absent(EntryBuilder& b, bool there, const std::string& operand) {
    return there ? "(DEVICE const float*)" + b.read(operand + ".codes", "uchar") : EntryBuilder::absent("float");
}

}  // namespace

bool norm_fits(const Common& c, const MatvecShape& s) { return staged_bytes(c, s) + 128 <= std::min(c.limits.threadgroup_bytes, 24 * 1024); }

Kernel matvec(const Common& c, const MatvecShape& s) {
    const Tile tile = choose(c, s);
    EntryBuilder b("matvec");
    const char* t = storage(c.type);
    const std::string step = b.read("step", "int"), x = b.read("x", t);
    b.planes("w1", "weight", *s.w);
    if (s.w2) b.planes("w2", "weight2", *s.w2);
    const std::string norm = vector_or_absent(b, s.norm, "norm_weight"), bias = vector_or_absent(b, s.bias, "bias"),
                      bias2 = vector_or_absent(b, s.bias && s.w2, "bias2");
    const std::string residual = s.epilogue == Epilogue::add ? b.read("residual", t) : x;
    const std::string y = s.f32_out ? b.absent_output(t) : b.write("y", t), y32 = s.f32_out ? b.write("y", "float") : b.absent_output("float");
    const std::string xs = b.array("xs", "uint4", tile.staged ? tile.x_bytes / 16 : 1), red = b.array("red", "float", 32);
    const int epilogue = static_cast<int>(s.epilogue);
    b.statement(fmt::format("fk::matvec<{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}>({}, w1, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, id);",
                            type_name(c.type), format_type(*s.w, fast_codes(c)), s.w->cols, s.w->rows, s.x_rows, tile.strip, tile.units, tile.staged ? 1 : 0,
                            s.norm ? static_cast<int>(s.formula) : 3, epilogue, static_cast<int>(s.act), s.bias ? 1 : 0, s.f32_out ? 1 : 0,
                            s.output_rows ? 1 : 0, tile.threads, step, s.w2 ? "w2" : "w1", x, norm, bias, bias2, residual, y, y32, literal(s.eps),
                            literal(s.w->global_scale), literal(s.w2 ? s.w2->global_scale : 1.0f), literal(s.softcap), xs, red));
    const int rows_of_strip = s.epilogue == Epilogue::act_mul ? tile.strip / 2 : tile.strip;
    const int full = divide_up(divide_up(s.w->rows, rows_of_strip), tile.threads / 32);
    return b.finish(tile.threads, {full, 0, 0, 0, s.output_rows});
}

Kernel gemm(const Common& c, const MatvecShape& s) {
    EntryBuilder b("gemm");
    const char* t = storage(c.type);
    const std::string step = b.read("step", "int"), x = b.read("packed", t);
    b.planes("w1", "weight", *s.w);
    if (s.w2) b.planes("w2", "weight2", *s.w2);
    const std::string bias = vector_or_absent(b, s.bias, "bias"), bias2 = vector_or_absent(b, s.bias && s.w2, "bias2");
    const std::string residual = s.epilogue == Epilogue::add ? b.read("residual", t) : x;
    const std::string y = s.f32_out ? b.absent_output(t) : b.write("y", t), y32 = s.f32_out ? b.write("y", "float") : b.absent_output("float");
    const std::string xs = b.array("xs", "float", 32 * 33), ws = b.array("ws", "float", 64 * 33),
                      ws2 = b.array("ws2", "float", s.w2 ? 64 * 33 : 1);
    b.statement(fmt::format("fk::gemm<{}, {}, {}, {}, {}, {}, {}, {}, {}>({}, w1, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, id);", type_name(c.type),
                            format_type(*s.w, false), s.w->cols, s.w->rows, static_cast<int>(s.epilogue), static_cast<int>(s.act), s.bias ? 1 : 0,
                            s.f32_out ? 1 : 0, s.output_rows ? 1 : 0, step, s.w2 ? "w2" : "w1", x, bias, bias2, residual, y, y32, literal(s.w->global_scale),
                            literal(s.w2 ? s.w2->global_scale : 1.0f), literal(s.softcap), xs, ws, ws2));
    return b.finish(128, {divide_up(s.w->rows, 64), 32, 0, 0, s.output_rows});
}

}  // namespace forge::gpu
