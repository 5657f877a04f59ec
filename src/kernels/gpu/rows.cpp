#include "gpu/builder.h"

namespace forge::gpu {
namespace {

constexpr int kThreads = 128;

Grid over_elements(int width, bool output_rows = false) { return {divide_up(width, kThreads), 1, 0, 0, output_rows}; }

}  // namespace

Kernel embed(const Common& c, const Weight& table, float scale) {
    EntryBuilder b("embed");
    const std::string step = b.read("step", "int");
    b.planes("w", "table", table);
    const int units = divide_up(table.cols, table.format.is_dense() ? 8 : 32), threads = 64;
    b.statement(fmt::format("fk::embed<{}, {}, {}, {}, {}>({}, w, {}, {}, {}, id);", type_name(c.type), format_type(table, false), table.cols, c.max_rows,
                            threads, step, b.write("y", storage(c.type)), literal(table.global_scale), literal(scale)));
    return b.finish(threads, {divide_up(units, threads)});
}

Kernel norm(const Common& c, const NormShape& s) {
    EntryBuilder b("norm");
    const char* t = storage(c.type);
    const std::string step = b.read("step", "int"), x = b.read(s.x, t);
    const std::string w = b.vector(s.weight, s.w);
    const std::string residual = s.residual ? b.read("residual", t) : x;
    const int threads = kNormThreads;
    b.statement(fmt::format("fk::norm<{}, {}, {}, {}, {}, {}, {}>({}, {}, {}, {}, {}, {}, {}, id);", type_name(c.type), s.width, s.groups,
                            s.weight ? static_cast<int>(s.formula) : 3, s.residual ? 1 : 0, s.output_rows ? 1 : 0, threads, step, x, w, residual,
                            b.write(s.y, t), literal(s.eps), b.array("red", "float", 32)));
    return b.finish(threads, {s.groups, 1, 0, 0, s.output_rows});
}

Kernel add(const Common& c, int width) {
    EntryBuilder b("add");
    const char* t = storage(c.type);
    const std::string step = b.read("step", "int"), a0 = b.read("a", t), a1 = b.read("b", t);
    b.statement(fmt::format("fk::add<{}, {}, {}>({}, {}, {}, {}, id);", type_name(c.type), width, kThreads, step, a0, a1, b.write("y", t)));
    return b.finish(kThreads, over_elements(width));
}

Kernel scale(const Common& c, int width, float factor, bool weight) {
    EntryBuilder b("scale");
    const char* t = storage(c.type);
    const std::string step = b.read("step", "int"), x = b.read("x", t);
    const std::string w = b.vector(weight, "weight");
    b.statement(fmt::format("fk::scale<{}, {}, {}>({}, {}, {}, {}, {}, {}, id);", type_name(c.type), width, kThreads, step, x, w, b.write("y", t), literal(factor),
                            weight ? 1 : 0));
    return b.finish(kThreads, over_elements(width));
}

Kernel act_mul(const Common& c, int width, int up_stride, int up_offset, ActKind act) {
    EntryBuilder b("act_mul");
    const char* t = storage(c.type);
    const std::string step = b.read("step", "int"), gate = b.read("gate", t), up = b.read("up", t);
    b.statement(fmt::format("fk::act_mul<{}, {}, {}, {}, {}, {}>({}, {}, {}, {}, id);", type_name(c.type), width, up_stride, up_offset, static_cast<int>(act),
                            kThreads, step, gate, up, b.write("y", t)));
    return b.finish(kThreads, over_elements(width));
}

Kernel take_rows(const Common& c, int width) {
    EntryBuilder b("take_rows");
    const char* t = storage(c.type);
    const std::string step = b.read("step", "int"), x = b.read("x", t);
    b.statement(fmt::format("fk::take_rows<{}, {}, {}, {}>({}, {}, {}, id);", type_name(c.type), width, c.max_rows, kThreads, step, x, b.write("y", t)));
    return b.finish(kThreads, over_elements(width, true));
}

Kernel head_gate(const Common& c, int heads, int head_dim) {
    EntryBuilder b("head_gate");
    const char* t = storage(c.type);
    const std::string step = b.read("step", "int"), x = b.read("x", t), q = b.read("q", t);
    b.statement(fmt::format("fk::head_gate<{}, {}, {}, {}>({}, {}, {}, {}, id);", type_name(c.type), heads, head_dim, kThreads, step, x, q, b.write("y", t)));
    return b.finish(kThreads, over_elements(heads * head_dim));
}

}  // namespace forge::gpu
