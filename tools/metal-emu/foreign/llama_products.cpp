#include <algorithm>
#include <cctype>

#include "foreign/llama.h"

namespace metal_emu::foreign {
namespace {

std::uint32_t u32(long v) { return static_cast<std::uint32_t>(v); }
std::size_t size(long v) { return static_cast<std::size_t>(v); }

// What a host chooses for a matvec: rows of a simdgroup, simdgroups of a threadgroup.
struct MatvecShape {
    long simdgroups, rows;         // rows of one simdgroup
    long threadgroup_rows;
    std::size_t threadgroup_bytes;
};
MatvecShape matvec_shape(const Llama& l, const std::string& type, long columns) {
    if (type == "f16") return {std::min(4l, (columns + 127) / 128), 2, 2, 32 * 4 * 2};
    std::string name = type;
    for (char& c : name) c = c == 'K' ? c : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    MatvecShape s{l.macro("N_SG_" + name), l.macro("N_R0_" + name), 0, 0};
    const bool together = type == "q8_0";   // simdgroups share the rows and add through threadgroup memory
    s.threadgroup_rows = together ? s.rows : s.rows * s.simdgroups;
    s.threadgroup_bytes = together ? size(32 * 4 * s.rows) : 0;
    return s;
}

void set_sizes(Arguments& a, const BlockType& t, const Matrix& m, long columns, long n, long rows) {
    const auto row = static_cast<long>(m.row_bytes);
    a.set("ne00", columns).set("ne01", n).set("ne02", 1).set_all("nb0", "", {static_cast<long>(t.bytes), row, row * n, row * n});
    a.set("ne10", columns).set("ne11", rows).set("ne12", 1).set_all("nb1", "", {4, columns * 4, columns * 4 * rows, columns * 4 * rows});
    a.set("ne0", n).set("ne1", rows).set("r2", 1).set("r3", 1);
}

std::vector<double> product(const Matrix& m, const std::vector<float>& x, long columns, long n, long rows) {
    std::vector<double> y(size(n * rows));
    for (long r = 0; r < rows; r++)
        for (long o = 0; o < n; o++) {
            double sum = 0;
            for (long k = 0; k < columns; k++) sum += static_cast<double>(m.values[size(o * columns + k)]) * static_cast<double>(x[size(r * columns + k)]);
            y[size(r * n + o)] = sum;
        }
    return y;
}

void round_to_half(std::vector<float>& v) {
    for (float& x : v) x = static_cast<float>(static_cast<half>(x));
}

void matvec(const Llama& l, const std::string& type, long n, bool vectors) {
    const BlockType& t = block_type(type);
    const long columns = 512, rows = 2;
    const MatvecShape s = matvec_shape(l, type, columns);
    const Matrix m = random_matrix(l.h, t, static_cast<int>(n), static_cast<int>(columns));
    const auto x = l.h.random(size(columns * rows));
    std::vector<float> y(size(n * rows));
    Arguments a = l.arguments("mul_mv");
    set_sizes(a, t, m, columns, n, rows);
    a.set("nr0", s.rows);
    const auto wanted = product(m, x, columns, n, rows);
    const long f = l.macro("FC_MUL_MV");
    Case c{"mul_mv " + type + (vectors ? "_4" : "") + " N=" + std::to_string(n),
           {{"mul_mv.metal", "kernel_mul_mv_" + type + "_f32" + (vectors ? "_4" : ""), constants({{f, s.simdgroups}, {f + 2, 1}, {f + 3, 1}, {f + 4, 1}, {f + 5, 0}}),
             {a.bound(), in(m.blocks), in(x), out(y)}, {u32((n + s.threadgroup_rows - 1) / s.threadgroup_rows), u32(rows), 1}, {32, u32(s.simdgroups), 1}, s.threadgroup_bytes}},
           2e-5, [&] { return largest_error(y.data(), wanted); }};
    if (n % 8) c.known_findings = "reads rows past the last one; what they give is not stored";
    l.h.run(c);
}

void matrix_product(const Llama& l, const std::string& type, bool ragged) {
    const BlockType& t = block_type(type);
    const long columns = t.values == 256 ? 256 : ragged && type == "f16" ? 76 : 96, n = ragged ? 70 : 128, rows = ragged ? 35 : 64;
    Matrix m = random_matrix(l.h, t, static_cast<int>(n), static_cast<int>(columns));
    auto x = l.h.random(size(columns * rows));
    round_to_half(x);
    std::vector<float> y(size(n * rows));
    Arguments a = l.arguments("mul_mm");
    set_sizes(a, t, m, columns, n, rows);
    round_to_half(m.values);   // the kernel keeps weights in half
    const auto wanted = product(m, x, columns, n, rows);
    const long f = l.macro("FC_MUL_MM");
    const bool tail_in = columns % 32 != 0, tail_out = n % 64 || rows % 32;
    Case c{"mul_mm " + type + (ragged ? " ragged" : "") + (tail_in ? " K%32" : ""),
           {{"mul_mm.metal", "kernel_mul_mm_" + type + "_f32", constants({{f, tail_in}, {f + 1, tail_out}, {f + 2, 1}, {f + 3, 1}, {f + 4, 1}, {f + 5, 1}}),
             {a.bound(), in(m.blocks), in(x), out(y)}, {u32((rows + 31) / 32), u32((n + 63) / 64), 1}, {32, 4, 1}, tail_out ? 8192u : 6144u}},
           2e-4, [&] { return largest_error(y.data(), wanted); }};
    if (ragged) c.known_findings = "stores float4 at addresses that are 8 mod 16 when rows of the result are no multiple of 4";
    l.h.run(c);
}

// The same kernels on matmul2d: tiles of 64 columns and 128 rows, four simdgroups.
void tensor_product(const Llama& l, const std::string& type, bool ragged, Profile profile, bool zero) {
    const BlockType& t = block_type(type);
    const long columns = ragged && type == "f16" ? 76 : 96, n = ragged ? 70 : 128, rows = ragged ? 35 : 160;
    Matrix m = random_matrix(l.h, t, static_cast<int>(n), static_cast<int>(columns));
    auto x = l.h.random(size(columns * rows));
    round_to_half(x);
    std::vector<float> y(size(n * rows));
    Arguments a = l.arguments("mul_mm");
    set_sizes(a, t, m, columns, n, rows);
    round_to_half(m.values);
    const auto wanted = product(m, x, columns, n, rows);
    const long f = l.macro("FC_MUL_MM");
    Case c{"mul_mm, matmul2d " + type + (ragged ? " ragged" : "") + (profile == Profile::m1 ? " on m1" : profile == Profile::m3 ? " on m3" : " on m5") + (zero ? "" : ", NaN at first"),
           {{"mul_mm.metal", "kernel_mul_mm_" + type + "_f32", constants({{f, columns % 32 != 0}, {f + 1, ragged}, {f + 2, 1}, {f + 3, 1}, {f + 4, 1}, {f + 5, 1}}),
             {a.bound(), in(m.blocks), in(x), out(y)}, {u32((rows + 127) / 128), u32((n + 63) / 64), 1}, {32, 4, 1}, 4096}},
           2e-4, [&] { return largest_error(y.data(), wanted); }, profile, zero};
    if (!zero) c.known_wrong = "accumulates into a cooperative tensor that nothing wrote: right where those begin at 0";
    l.h.run(c);
}

struct Experts {
    static constexpr long columns = 512, n = 64, count = 8, chosen = 2, rows = 5;
    std::vector<int> ids;
    std::vector<float> x;
    std::vector<double> wanted;
};

Experts experts(const Llama& l, const Matrix& m) {
    Experts e;
    e.x = l.h.random(size(Experts::columns * Experts::rows));
    round_to_half(e.x);
    for (long r = 0; r < Experts::rows; r++) {
        const auto first = static_cast<int>(l.h.bits() % Experts::count);
        e.ids.push_back(first);
        e.ids.push_back(static_cast<int>((static_cast<std::uint32_t>(first) + 1 + l.h.bits() % (Experts::count - 1)) % Experts::count));
    }
    for (long r = 0; r < Experts::rows; r++)
        for (long j = 0; j < Experts::chosen; j++)
            for (long o = 0; o < Experts::n; o++) {
                double sum = 0;
                const long row = e.ids[size(r * Experts::chosen + j)] * Experts::n + o;
                for (long k = 0; k < Experts::columns; k++)
                    sum += static_cast<double>(m.values[size(row * Experts::columns + k)]) * static_cast<double>(e.x[size(r * Experts::columns + k)]);
                e.wanted.push_back(sum);
            }
    return e;
}

void expert_matvec(const Llama& l, const std::string& type, const Matrix& m, const Experts& e) {
    const BlockType& t = block_type(type);
    const MatvecShape s = matvec_shape(l, type, Experts::columns);
    const auto row = static_cast<long>(m.row_bytes);
    std::vector<float> y(e.wanted.size());
    Arguments a = l.arguments("mul_mv_id");
    a.set("nei0", Experts::chosen).set("nei1", Experts::rows).set("nbi1", 4 * Experts::chosen).set("ne00", Experts::columns).set("ne01", Experts::n).set("ne02", Experts::count);
    a.set("nb00", static_cast<long>(t.bytes)).set("nb01", row).set("nb02", row * Experts::n).set("ne10", Experts::columns).set("ne11", 1).set("ne12", Experts::rows).set("ne13", 1);
    a.set("nb10", 4).set("nb11", Experts::columns * 4).set("nb12", Experts::columns * 4).set("ne0", Experts::n).set("ne1", Experts::chosen).set("nb1", Experts::n * 4).set("nr0", s.rows);
    const long f = l.macro("FC_MUL_MV");
    l.h.run({"mul_mv_id " + type,
             {{"mul_mv.metal", "kernel_mul_mv_id_" + type + "_f32", constants({{f, s.simdgroups}, {f + 2, 1}, {f + 3, 1}, {f + 4, 1}, {f + 5, 0}}),
               {a.bound(), in(m.blocks), in(e.x), out(y), in(e.ids)}, {u32((Experts::n + s.threadgroup_rows - 1) / s.threadgroup_rows), 1, u32(Experts::chosen * Experts::rows)},
               {32, u32(s.simdgroups), 1}, s.threadgroup_bytes}},
             2e-5, [&] { return largest_error(y.data(), e.wanted); }});
}

// The rows of each expert are listed by one kernel and multiplied by another.
void expert_product(const Llama& l, const std::string& type, const Matrix& m, const Experts& e) {
    const auto row = static_cast<long>(m.row_bytes);
    std::vector<std::uint32_t> per_expert(Experts::count);
    std::vector<int> listed(Experts::count * Experts::rows);
    const std::vector<float> scales(2 + 256);
    std::vector<float> y(e.wanted.size());
    Arguments map = l.arguments("mul_mm_id_map0"), a = l.arguments("mul_mm_id");
    map.set("ne02", Experts::count).set("ne10", Experts::columns).set("ne11", 1).set("nb11", Experts::columns * 4).set("nb12", Experts::columns * 4);
    map.set("ne21", Experts::rows).set("ne20", Experts::chosen).set("nb21", 4 * Experts::chosen);
    a.set("ne00", Experts::columns).set("ne02", Experts::count).set("nb01", row).set("nb02", row * Experts::n).set("nb03", row * Experts::n * Experts::count).set("ne11", 1);
    a.set_all("nb1", "", {4, Experts::columns * 4, Experts::columns * 4, Experts::columns * 4 * Experts::rows}).set("ne20", Experts::chosen).set("ne21", Experts::rows);
    a.set("ne0", Experts::n).set("ne1", Experts::chosen).set("r2", 1).set("r3", 1);
    const long f = l.macro("FC_MUL_MM");
    l.h.run({"mul_mm_id_map0 + mul_mm_id " + type,
             {{"mul_mm.metal", "kernel_mul_mm_id_map0_ne20_2", constants({{f, 0}, {f + 6, 0}}), {map.bound(), in(e.ids), out(per_expert), out(listed)}, {1, 1, 1}, {Experts::count, 1, 1},
               static_cast<std::size_t>(Experts::count * Experts::chosen * 2 + 15) / 16 * 16},
              {"mul_mm.metal", "kernel_mul_mm_id_" + type + "_f32", constants({{f, 0}, {f + 6, 0}}), {a.bound(), in(m.blocks), in(e.x), in(per_expert), in(listed), out(y), in(scales)},
               {u32((Experts::rows + 31) / 32), u32((Experts::n + 63) / 64), Experts::count}, {128, 1, 1}, 8192}},
             2e-3, [&] { return largest_error(y.data(), e.wanted); }});
}

}  // namespace

void llama_tensor_products(const Llama& l) {
    for (const char* type : {"f16", "q4_0"})
        for (const bool ragged : {false, true}) tensor_product(l, type, ragged, Profile::m5, true);
    for (const Profile other : {Profile::m1, Profile::m3}) tensor_product(l, "q4_0", true, other, true);
    tensor_product(l, "q4_0", false, Profile::m5, false);
}

void llama_products(const Llama& l) {
    for (const char* type : {"f16", "q4_0", "q8_0", "q4_K", "q6_K"})
        for (const long n : {64, 37})
            for (const bool vectors : {false, true})
                if (!vectors || std::string(type) == "f16") matvec(l, type, n, vectors);
    for (const char* type : {"f16", "q4_0", "q8_0", "q4_K"})
        for (const bool ragged : {false, true}) matrix_product(l, type, ragged);
    for (const char* type : {"f16", "q4_0", "q4_K"}) {
        const Matrix m = random_matrix(l.h, block_type(type), static_cast<int>(Experts::n * Experts::count), static_cast<int>(Experts::columns));
        const Experts e = experts(l, m);
        expert_matvec(l, type, m, e);
        if (std::string(type) != "q4_K") expert_product(l, type, m, e);
    }
}

}  // namespace metal_emu::foreign
