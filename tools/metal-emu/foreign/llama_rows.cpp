#include <algorithm>
#include <cmath>

#include "foreign/llama.h"

namespace metal_emu::foreign {
namespace {

std::uint32_t u32(long v) { return static_cast<std::uint32_t>(v); }
std::size_t size(long v) { return static_cast<std::size_t>(v); }

// A power of two of threads from 32 on, as many as items, at most `most`.
std::uint32_t threads_for(long items, std::uint32_t most) {
    std::uint32_t n = 32;
    while (n < items && n < most) n *= 2;
    return n;
}

void rms_norm(const Llama& l, long n, bool vectors) {
    const long rows = 3, items = vectors ? n / 4 : n;
    const auto x = l.h.random(size(n * rows)), w = l.h.random(size(n));
    std::vector<float> y(x.size());
    Arguments a = l.arguments("norm");
    a.set("ne00", n).set("ne00_t", items).set("nb1", n * 4).set("nb2", n * 4 * rows).set("nb3", n * 4 * rows).set_float("eps", 1e-5f);
    for (int k = 0; k < 3; k++) {
        a.set("nef1", k == 0 ? rows : 1, k).set("nef2", 1, k).set("nef3", 1, k);
        a.set("nbf1", k == 0 ? n * 4 : 0, k).set("nbf2", 0, k).set("nbf3", 0, k);
    }
    std::vector<double> wanted(x.size());
    for (long r = 0; r < rows; r++) {
        double sum = 0;
        for (long k = 0; k < n; k++) sum += static_cast<double>(x[size(r * n + k)]) * static_cast<double>(x[size(r * n + k)]);
        const double scale = 1 / std::sqrt(sum / static_cast<double>(n) + 1e-5);
        for (long k = 0; k < n; k++) wanted[size(r * n + k)] = static_cast<double>(x[size(r * n + k)]) * scale * static_cast<double>(w[size(k)]);
    }
    const std::uint32_t threads = std::min(threads_for(items, 1024), u32((items + 31) / 32 * 32));
    l.h.run({"rms_norm n=" + std::to_string(n) + (vectors ? " float4" : " float"),
             {{"norm.metal", std::string("kernel_rms_norm_mul_f32") + (vectors ? "_4" : ""), constants({{l.macro("FC_NORM"), 0}}),
               {a.bound(), in(x), in(w), in(w), out(y)}, {u32(rows), 1, 1}, {threads, 1, 1}, 128}},
             1e-5, [&] { return largest_error(y.data(), wanted); }});
}

void rope(const Llama& l, const std::string& kind, bool halves) {
    const long dim = 96, turned = 64, heads = 3, rows = 4, element = halves ? 2 : 4;
    auto x = l.h.random(size(dim * heads * rows));
    const std::vector<half> xh(x.begin(), x.end());
    if (halves) x.assign(xh.begin(), xh.end());
    std::vector<float> y(x.size());
    std::vector<half> yh(x.size());
    const std::vector<int> positions{0, 1, 77, 1500};
    Arguments a = l.arguments("rope");
    for (const char* tail : {"0", ""})   // ne00 ne01 ...: the source, ne0 ne1 ...: the result
        a.set_all(std::string("ne") + tail, "", {dim, heads, rows, 1}).set_all(std::string("nb") + tail, "", {element, dim * element, dim * heads * element, dim * heads * rows * element});
    a.set("n_dims", turned).set("n_ctx_orig", 4096).set_float("freq_base", 10000).set_float("freq_scale", 1).set_float("attn_factor", 1).set_float("beta_fast", 32).set_float("beta_slow", 1);
    std::vector<double> wanted(x.begin(), x.end());
    for (long t = 0; t < rows; t++)
        for (long h = 0; h < heads; h++)
            for (long i = 0; i < turned / 2; i++) {
                const double angle = positions[size(t)] * std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(turned));
                const long at = (t * heads + h) * dim, i0 = kind == "norm" ? 2 * i : i, i1 = kind == "norm" ? 2 * i + 1 : i + turned / 2;
                const double x0 = static_cast<double>(x[size(at + i0)]), x1 = static_cast<double>(x[size(at + i1)]);
                wanted[size(at + i0)] = x0 * std::cos(angle) - x1 * std::sin(angle);
                wanted[size(at + i1)] = x0 * std::sin(angle) + x1 * std::cos(angle);
            }
    const Bound source = halves ? in(xh) : in(x), result = halves ? out(yh) : out(y);
    l.h.run({"rope " + kind + (halves ? " f16" : " f32"),
             {{"rope.metal", "kernel_rope_" + kind + (halves ? "_f16" : "_f32"), constants({{l.macro("FC_ROPE"), 0}, {l.macro("FC_ROPE") + 1, 0}}),
               {a.bound(), source, in(positions), source, result}, {u32(heads), u32(rows), 1}, {32, 1, 1}}},
             halves ? 1e-3 : 3e-4, [&] {
                 if (halves) y.assign(yh.begin(), yh.end());
                 return largest_error(y.data(), wanted);
             }});
}

// mask: 0 none, 1 float, 2 half.
void soft_max(const Llama& l, long n, int mask) {
    const long rows = 5, heads = 2, element = mask == 2 ? 2 : 4;
    const bool vectors = n % 4 == 0;
    const auto x = l.h.random(size(n * rows * heads), 8);
    std::vector<float> y(x.size());
    auto m = l.h.random(size(n * rows));
    for (long r = 0; r < rows; r++)
        for (long k = n / 2 + r * 3 + 1; k < n; k++) m[size(r * n + k)] = -INFINITY;
    const std::vector<half> mh(m.begin(), m.end());
    if (mask == 2) m.assign(mh.begin(), mh.end());
    Arguments a = l.arguments("soft_max");
    a.set("ne00", n).set("ne01", rows).set("ne02", heads).set("nb01", n * 4).set("nb02", n * 4 * rows).set("nb03", n * 4 * rows * heads);
    a.set("ne11", rows).set("ne12", 1).set("ne13", 1).set("nb11", n * element).set("nb12", n * element * rows).set("nb13", n * element * rows);
    a.set("nb1", n * 4).set("nb2", n * 4 * rows).set("nb3", n * 4 * rows * heads).set_float("scale", 0.3f).set_float("max_bias", 0);
    std::vector<double> wanted(x.size());
    for (long r = 0; r < rows * heads; r++) {
        double most = -1e300, sum = 0;
        for (long k = 0; k < n; k++) {
            double& w = wanted[size(r * n + k)];
            w = static_cast<double>(x[size(r * n + k)] * 0.3f) + (mask ? static_cast<double>(m[size(r % rows * n + k)]) : 0.0);
            most = std::max(most, w);
        }
        for (long k = 0; k < n; k++) sum += wanted[size(r * n + k)] = std::exp(wanted[size(r * n + k)] - most);
        for (long k = 0; k < n; k++) wanted[size(r * n + k)] /= sum;
    }
    const std::uint32_t threads = threads_for(vectors ? n / 4 : n, 256);
    const Bound masks = mask == 2 ? in(mh) : mask ? in(m) : in(x);
    Case c{"soft_max n=" + std::to_string(n) + (mask == 2 ? " mask f16" : mask ? " mask f32" : ""),
           {{"softmax.metal", std::string("kernel_soft_max_") + (mask == 2 ? "f16" : "f32") + (vectors ? "_4" : ""), {},
             {a.bound(), in(x), masks, in(x), out(y)}, {u32(rows), u32(heads), 1}, {threads, 1, 1}, 128}},
           1e-5, [&] { return largest_error(y.data(), wanted, 1e-3); }};
    if (threads > 32) c.known_findings = "writes again what it read, with a barrier that orders no memory between; the value went through simd_max first, so it is ordered in effect";
    l.h.run(c);
}

Arguments get_rows_arguments(const Llama& l, const Matrix& m, long columns, long table, long rows, long items) {
    Arguments a = l.arguments("get_rows");
    const auto row = static_cast<long>(m.row_bytes);
    a.set("ne00t", items).set("ne00", columns).set("nb01", row).set("nb02", row * table).set("nb03", row * table);
    a.set("ne10", rows).set("nb10", 4).set("nb11", 4 * rows).set("nb12", 4 * rows);
    a.set("nb1", columns * 4).set("nb2", columns * 4 * rows).set("nb3", columns * 4 * rows);
    return a;
}

void get_rows(const Llama& l, const std::string& type) {
    const BlockType& t = block_type(type);
    const long columns = 512, table = 20, items = t.values > 1 ? columns / 16 : columns;
    const Matrix m = random_matrix(l.h, t, static_cast<int>(table), static_cast<int>(columns));
    const std::vector<int> ids{3, 19, 0, 7, 7};
    const auto rows = static_cast<long>(ids.size());
    std::vector<float> y(size(columns * rows));
    const Arguments a = get_rows_arguments(l, m, columns, table, rows, items);
    std::vector<double> wanted;
    for (const int id : ids)
        for (long k = 0; k < columns; k++) wanted.push_back(static_cast<double>(m.values[size(id * columns + k)]));
    const long threads = std::min(items, 256l), groups = (items + threads - 1) / threads;
    l.h.run({"get_rows " + type,
             {{"quantize.metal", "kernel_get_rows_" + type, {}, {a.bound(), in(m.blocks), in(ids), out(y)}, {u32(groups * rows), 1, 1}, {u32(threads), 1, 1}}},
             1e-5, [&] { return largest_error(y.data(), wanted, 1e-2); }});
}

// d divided by 16 in half: exact, or rounded as the text says? In real files such d/16 are subnormal.
void small_q4_K(const Llama& l, bool as_written) {
    const long columns = 512, table = 8;
    Matrix m = random_matrix(l.h, block_type("q4_K"), static_cast<int>(table), static_cast<int>(columns), true);
    if (as_written) round_sixteenths(m);
    const std::vector<int> ids{0, 1, 2, 3, 4, 5, 6, 7};
    std::vector<float> y(size(columns * table));
    const Arguments a = get_rows_arguments(l, m, columns, table, table, columns / 16);
    const std::vector<double> wanted(m.values.begin(), m.values.end());
    l.h.run({std::string("get_rows q4_K small d, ") + (as_written ? "d/16 in half" : "exact d"),
             {{"quantize.metal", "kernel_get_rows_q4_K", {}, {a.bound(), in(m.blocks), in(ids), out(y)}, {u32(table), 1, 1}, {u32(columns / 16), 1, 1}}},
             as_written ? 1e-5 : 3e-2, [&] { return largest_error(y.data(), wanted, 1e-2); }});
}

void gated(const Llama& l, const std::string& kind, bool halves) {
    const long n = 200, rows = 3, element = halves ? 2 : 4;
    auto x = l.h.random(size(2 * n * rows), 4);
    const std::vector<half> xh(x.begin(), x.end());
    if (halves) x.assign(xh.begin(), xh.end());
    std::vector<float> y(size(n * rows));
    std::vector<half> yh(y.size());
    Arguments a = l.arguments("glu");
    a.set("ne00", 2 * n).set("nb01", 2 * n * element).set("ne10", 2 * n).set("nb11", 2 * n * element).set("ne0", n).set("nb1", n * element).set("i00", 0).set("i10", n);
    std::vector<double> wanted;
    for (long r = 0; r < rows; r++)
        for (long k = 0; k < n; k++) {
            const double g = static_cast<double>(x[size(r * 2 * n + k)]), u = static_cast<double>(x[size(r * 2 * n + n + k)]);
            wanted.push_back(kind == "swiglu" ? g / (1 + std::exp(-g)) * u : 0.5 * g * (1 + std::tanh(0.7978845608 * g * (1 + 0.044715 * g * g))) * u);
        }
    const Bound source = halves ? in(xh) : in(x), result = halves ? out(yh) : out(y);
    l.h.run({"glu " + kind + (halves ? " f16" : " f32"),
             {{"unary.metal", "kernel_" + kind + (halves ? "_f16" : "_f32"), {}, {a.bound(), source, source, result}, {u32(rows), 1, 1}, {128, 1, 1}}},
             halves ? 2e-3 : 1e-5, [&] {
                 if (halves) y.assign(yh.begin(), yh.end());
                 return largest_error(y.data(), wanted);
             }});
}

double activation(const std::string& name, double x) {
    const double sigmoid = 1 / (1 + std::exp(-x));
    if (name == "SILU") return x * sigmoid;
    if (name == "GELU") return 0.5 * x * (1 + std::tanh(0.7978845608 * x * (1 + 0.044715 * x * x)));
    if (name == "RELU") return x > 0 ? x : 0;
    if (name == "SIGMOID") return sigmoid;
    if (name == "HARDSWISH") return x * std::clamp(x / 6 + 0.5, 0.0, 1.0);
    if (name == "SOFTPLUS") return std::log1p(std::exp(x));
    if (name == "SGN") return static_cast<double>((x > 0) - (x < 0));
    return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));   // GELU_ERF
}

void unary(const Llama& l, const std::string& name, bool vectors) {
    const long n = 1024, items = vectors ? n / 4 : n;
    const auto x = l.h.random(size(n), 6);
    std::vector<float> y(x.size());
    Arguments a = l.arguments("unary");
    for (const char* tail : {"0", ""})
        a.set_all(std::string("ne") + tail, "", {items, 1, 1, 1}).set_all(std::string("nb") + tail, "", {4, n * 4, n * 4, n * 4});
    std::vector<double> wanted;
    for (const float v : x) wanted.push_back(activation(name, static_cast<double>(v)));
    l.h.run({"unary " + name + (vectors ? " float4" : ""),
             {{"unary.metal", std::string("kernel_unary_f32_f32") + (vectors ? "_4" : ""),
               constants({{l.macro("FC_UNARY"), l.macro("OP_UNARY_NUM_" + name)}, {l.macro("FC_UNARY") + 1, 0}}), {a.bound(), in(x), out(y)}, {u32((items + 127) / 128), 1, 1}, {128, 1, 1}}},
             2e-5, [&] { return largest_error(y.data(), wanted); }});
}

}  // namespace

void llama_rows(const Llama& l) {
    rms_norm(l, 512, true);
    rms_norm(l, 512, false);
    rms_norm(l, 1030, false);
    for (const char* kind : {"norm", "neox"})
        for (const bool halves : {false, true}) rope(l, kind, halves);
    for (const long n : {512, 77})
        for (const int mask : {0, 1, 2}) soft_max(l, n, mask);
    for (const char* type : {"f16", "q4_0", "q8_0", "q4_K", "q6_K"}) get_rows(l, type);
    for (const bool as_written : {false, true}) small_q4_K(l, as_written);
    for (const char* kind : {"swiglu", "geglu"})
        for (const bool halves : {false, true}) gated(l, kind, halves);
    for (const char* name : {"SILU", "GELU", "RELU", "SIGMOID", "HARDSWISH", "SOFTPLUS", "SGN", "GELU_ERF"})
        for (const bool vectors : {false, true}) unary(l, name, vectors);
}

}  // namespace metal_emu::foreign
