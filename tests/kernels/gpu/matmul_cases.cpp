#include <fmt/format.h>

#include <array>

#include "cases.h"
#include "kernels/matmul/matmul.h"

namespace forge::test {
namespace {

struct Shape {
    int n = 37, k = 0, rows = 1, variant = 1;   // variant: rows that the kernel is made for
    DType type = DType::bf16;
    bool norm = false, bias = false, f32_out = false, outputs = false;
    NormFormula formula = NormFormula::two_rounding;
    Epilogue epilogue = Epilogue::none;
    ActKind act = ActKind::silu;
    float softcap = 0;
    bool fast = true, wide = false, codes = false;   // codes: few rows on tensor cores
    gpu::Tensor tensor = gpu::Tensor::none;
    gpu::TensorTile tile{};
    gpu::SimdTile simd{};   // tensor is simdgroup
    bool matmul2d = false;  // likewise
    std::size_t matvec_tile = 0;   // which of gpu::matvec_tiles()
    int threads = 256;      // that a product of one row must have, on eight cores
};

// Matrix units take weights rounded to T: the same matrix in f32, with every element rounded.
std::shared_ptr<Weight> rounded_weight(const Weight& w, DType type) {
    const auto values = std::make_shared<std::vector<float>>(static_cast<std::size_t>(w.rows * w.cols));
    Weight plain = w;
    plain.global_scale = 1;   // acts on the sums
    for (std::int64_t r = 0; r < w.rows; ++r) decode_row(plain, r, values->data() + r * w.cols);
    for (float& v : *values) v = rounded(type, v);
    const auto out = std::make_shared<Weight>();
    out->name = w.name;
    out->rows = w.rows;
    out->cols = w.cols;
    out->codes = {reinterpret_cast<const std::byte*>(values->data()), static_cast<std::size_t>(w.cols) * 4};
    out->global_scale = w.global_scale;
    out->owner = values;
    return out;
}

// Columns for a format: about `wanted`, a multiple of what it needs.
int columns(const NamedFormat& f, int wanted) {
    const int multiple = f.format.is_dense() ? 1 : std::max(32, f.multiple);
    return std::max(multiple, wanted / multiple * multiple);
}

// A norm's factor depends on the order in which it adds squares, and an element of norm(x) near the middle between two
// values of T is rounded to either: to a difference that no bound of sums allows. Moves such elements of x, in 16 bits,
// until all are away from the middle for every factor that a GPU kernel may compute, and returns norm(x).
// A kernel adds K squares in 256 chains and those pairwise: K / 256 + 32 roundings of f32 at most, norm and product included.
std::vector<float> settled_norm(std::vector<float>& x, const std::vector<float>& weight, DType type, NormFormula formula, float eps) {
    const std::size_t k = weight.size();
    const double off = static_cast<double>(k / 256 + 32) * unit_roundoff(DType::f32);
    const auto normed = [&](float n, float w) {
        return formula == NormFormula::two_rounding ? rounded(type, w * rounded(type, n)) : rounded(type, formula == NormFormula::one_plus ? n * (1 + w) : n * w);
    };
    std::vector<float> out(x.size());
    for (std::size_t row = 0; row < x.size(); row += k) {
        std::size_t moved = 1;
        for (int turn = 0; moved > 0 && turn < 200; ++turn) {
            double squares = 0;
            for (std::size_t i = 0; i < k; ++i) squares += static_cast<double>(x[row + i]) * static_cast<double>(x[row + i]);
            const double factor = 1 / std::sqrt(squares / static_cast<double>(k) + static_cast<double>(eps));
            const auto least = static_cast<float>(factor * (1 - off)), most = static_cast<float>(factor * (1 + off));
            moved = 0;
            for (std::size_t i = 0; i < k; ++i) {
                float& v = x[row + i];
                out[row + i] = normed(v * most, weight[i]);
                if (normed(v * least, weight[i]) == out[row + i]) continue;
                v = rounded(type, v * (1 + (moved++ % 2 ? -2.0f : 2.0f) * static_cast<float>(1 + turn) * static_cast<float>(unit_roundoff(type))));   // ever farther
            }
        }
        EXPECT_EQ(moved, 0u) << "some element stays near the middle";
    }
    return out;
}

GpuCase matmul_case(const NamedFormat& format, Shape s, bool matrix) {
    if (s.k == 0) s.k = columns(format, 200);
    const auto w = std::make_shared<Weight>(random_weight(format.format, s.n, s.k, 7)), w2 = std::make_shared<Weight>();
    const bool two = s.epilogue == Epilogue::act_mul;
    if (two) *w2 = random_weight(format.format, s.n, s.k, 8);
    gpu::MatvecShape g;
    g.w = w.get();
    g.w2 = two ? w2.get() : nullptr;
    g.norm = s.norm;
    g.bias = s.bias;
    g.formula = s.formula;
    g.eps = 1e-5f;
    g.softcap = s.softcap;
    g.epilogue = s.epilogue;
    g.act = s.act;
    g.f32_out = s.f32_out;
    g.output_rows = s.outputs;
    g.x_rows = s.variant;
    const int max_rows = std::max(s.rows, 9);
    gpu::Common c = common(s.type, max_rows);
    c.limits.fast_codes = s.fast;
    c.limits.wide = s.wide;
    c.limits.tensor = s.codes ? gpu::Tensor::mma_sync : s.tensor;
    c.limits.tensor_codes = 1;
    const bool tensor = s.tensor != gpu::Tensor::none;
    if (!matrix && !tensor && !s.codes && s.variant == 1 && s.matvec_tile == 0) {
        EXPECT_EQ(gpu::matvec_tiles(c, g, true)[0].threads, s.threads) << format.name << " n " << s.n << " k " << s.k;
    }
    const bool simd = s.tensor == gpu::Tensor::simdgroup, rounds = tensor && !s.simd.wide;
    const gpu::Kernel k = s.matmul2d ? gpu::gemm_matmul2d(c, g, s.simd) : simd ? gpu::gemm_simd(c, g, s.simd) : tensor ? gpu::gemm_tensor(c, g, s.tile) : matrix ? gpu::gemm(c, g)
                          : gpu::matvec(c, g, gpu::matvec_tiles(c, g, true).at(s.matvec_tile));
    const auto reference = rounds ? rounded_weight(*w, s.type) : w, reference2 = rounds && two ? rounded_weight(*w2, s.type) : w2;
    const std::string kernel = simd     ? fmt::format("simd {}x{}x{}{}{}", s.simd.rows, s.simd.columns, s.simd.depth, s.simd.wide ? " wide" : "", s.simd.ahead ? " ahead" : "")
                               : tensor ? fmt::format("tensor {}x{}", s.tile.rows, s.tile.columns)
                               : matrix ? "gemm"
                               : s.codes ? "codes"
                                        : "matvec";
    const std::string name = fmt::format("{} {} n {} k {} rows {} of {} {}", kernel, format.name, s.n, s.k, s.rows, s.variant, name_of(s.type));
    return {name, {k}, [=](GpuDevice& device, int order) {
                const std::size_t inputs = static_cast<std::size_t>(s.rows) * static_cast<std::size_t>(s.k), count = static_cast<std::size_t>(s.rows) * static_cast<std::size_t>(s.n);
                const DType out = s.f32_out ? DType::f32 : s.type;
                std::vector<float> norm = normal(static_cast<std::size_t>(s.k), DType::bf16, 15, 0.2f);
                for (float& v : norm) v += 1;
                std::vector<float> values = normal(inputs, s.type, 11), normed;
                if (s.norm && s.type != DType::f32) normed = settled_norm(values, norm, s.type, s.formula, g.eps);
                Array x(s.type, values), plain_x(s.type, normed.empty() ? values : normed), residual(s.type, normal(count, s.type, 12)), wanted(out, count), y(out, count);
                const std::vector<float> bias = normal(static_cast<std::size_t>(s.n), DType::f32, 13), bias2 = normal(static_cast<std::size_t>(s.n), DType::f32, 14);
                MatmulParams p;
                p.type = s.type;
                p.w = reference.get();
                p.w2 = two ? reference2.get() : nullptr;
                p.bias = s.bias ? bias.data() : nullptr;
                p.bias2 = s.bias && two ? bias2.data() : nullptr;
                p.x = plain_x.data();
                p.y = wanted.data();
                p.residual = s.epilogue == Epilogue::add ? residual.data() : nullptr;
                p.norm_weight = s.norm && normed.empty() ? norm.data() : nullptr;
                p.norm = s.formula;
                p.eps = 1e-5f;
                p.epilogue = s.epilogue;
                p.act = s.act;
                p.f32_out = s.f32_out;
                p.softcap = s.softcap;
                p.max_rows = s.rows;
                Rows step;
                step.add(0, 0, s.outputs ? max_rows : s.rows);
                for (int i = 0; i < s.rows; ++i) step.outputs.push_back(i);
                StepRows cpu = step.step();
                cpu.m = s.rows;   // an executor hands output rows over as rows
                run_plain(matvec_kernel, p, cpu);   // its plain form takes any number of rows
                Bindings b;
                b.add("x", x).add("packed", x).weight("weight", *w).add("residual", residual).add("y", y);
                if (two) b.weight("weight2", *w2);
                b.floats("norm_weight.codes", norm).floats("bias.codes", bias).floats("bias2.codes", bias2);
                EXPECT_EQ(device.run(k, b, step.step(), max_rows, order), "");
                // f32 sums of k terms in another order; a rounding or two of T after them.
                if (s.epilogue == Epilogue::add) {   // what is added may cancel the product, whose rounding stays: as if nothing had been
                    for (std::size_t i = 0; i < count; ++i) {
                        const float larger = std::fabs(residual.get(i)) + std::fabs(wanted.get(i));
                        y.set(i, y.get(i) - wanted.get(i) + larger);
                        wanted.set(i, larger);
                    }
                }
                expect_close(y, wanted, count, out, s.f32_out ? 0 : s.epilogue == Epilogue::none ? 1.01 : 3, s.type == DType::f32 && !s.f32_out ? 4e-6 : s.fast ? 3e-5 : 4e-6);
            }};
}

// Every epilogue, norm and flag on a few formats.
void add_epilogues(std::vector<GpuCase>& cases, DType type, bool matrix, int rows, int variant) {
    for (const char* name : {"gguf bf16", "gguf q4_0", "gguf q6_k"}) {
        const NamedFormat f = named(name);
        Shape s;
        s.type = type;
        s.rows = rows;
        s.variant = variant;
        const auto with = [&](auto change) {
            Shape t = s;
            change(t);
            cases.push_back(matmul_case(f, t, matrix));
        };
        with([](Shape& t) { t.epilogue = Epilogue::add; });
        with([](Shape& t) { t.epilogue = Epilogue::act_mul; });
        with([](Shape& t) { t.epilogue = Epilogue::act_mul, t.act = ActKind::gelu_tanh, t.bias = true; });
        with([](Shape& t) { t.bias = true; });
        with([](Shape& t) { t.f32_out = true, t.softcap = 5, t.outputs = true; });
        if (!matrix) {
            with([](Shape& t) { t.norm = true; });
            with([](Shape& t) { t.norm = true, t.formula = NormFormula::one_plus, t.epilogue = Epilogue::act_mul; });
            with([](Shape& t) { t.norm = true, t.formula = NormFormula::one_rounding, t.f32_out = true; });
        }
    }
}

// Every epilogue of products in tiles, on a few formats: add(format, shape, in every tile).
template <typename Add>
void add_tile_epilogues(const Add& add, bool full) {
    for (const char* name : {"gguf bf16", "gguf q4_0", "gguf q6_k"}) {
        const NamedFormat f = named(name);
        Shape s;
        s.n = 70;
        s.k = columns(f, 100);
        s.rows = 41;
        const auto with = [&](auto change) {
            Shape t = s;
            change(t);
            add(f, t, full);
        };
        with([](Shape& t) { t.epilogue = Epilogue::add; });
        with([](Shape& t) { t.epilogue = Epilogue::add, t.n = 72, t.type = DType::f16; });
        with([](Shape& t) { t.epilogue = Epilogue::act_mul; });
        with([](Shape& t) { t.epilogue = Epilogue::act_mul, t.act = ActKind::gelu_tanh, t.bias = true, t.n = 76; });
        with([](Shape& t) { t.bias = true; });
        with([](Shape& t) { t.f32_out = true, t.softcap = 5, t.outputs = true; });
    }
}

}  // namespace

NamedFormat named(const std::string& name) {
    for (const NamedFormat& f : all_formats())
        if (f.name == name) return f;
    ADD_FAILURE() << "no format " << name;
    return all_formats()[0];
}

std::vector<GpuCase> matvec_cases(bool full) {
    std::vector<GpuCase> cases;
    for (const NamedFormat& f : all_formats()) {
        const bool sample = f.name.find("gguf") == 0 || f.name.find("mxfp8") != std::string::npos || f.name.find("/64 bf16") != std::string::npos || f.name.find("/32 f16") != std::string::npos;
        if (!full && !sample) continue;
        for (const DType type : types()) {
            if (!full && type != DType::bf16 && f.name.find("gguf") != 0) continue;
            Shape s;
            s.type = type;
            s.f32_out = true;
            cases.push_back(matmul_case(f, s, false));
            s.f32_out = false;
            s.k = columns(f, 1100);
            s.rows = 3;
            s.variant = 4;
            s.fast = false;
            if (full || type == DType::bf16) cases.push_back(matmul_case(f, s, false));
        }
    }
    for (const DType type : types()) {
        add_epilogues(cases, type, false, 1, 1);
        if (full || type == DType::bf16) add_epilogues(cases, type, false, 7, 8);
    }
    // Every number of rows, by the kernel that serves it.
    for (const char* name : {"gguf bf16", "gguf q4_0", "gguf q6_k", "gguf q8_0"})
        for (int rows = 1; full && rows <= 8; ++rows) {
            Shape s;
            s.n = 83;
            s.k = columns(named(name), 550);
            s.rows = rows;
            s.variant = rows > 4 ? 8 : rows > 2 ? 4 : rows;
            cases.push_back(matmul_case(named(name), s, false));
        }
    // Tiles of large GPUs: strips that several simdgroups share, units loaded ahead, heads on a resident grid.
    for (const char* name : {"gguf bf16", "gguf q4_0", "gguf q8_0"})
        for (const auto& [n, k] : {std::pair{70, 2304}, std::pair{37, 8192}, std::pair{2100, 2304}, std::pair{1030, 1024}, std::pair{45, 1024}}) {
            if (!full && n > 1000 && std::string_view(name) != "gguf q4_0") continue;
            for (const int rows : {1, 3}) {
                if (!full && rows > 1 && n > 1000) continue;
                Shape s;
                s.n = n;
                s.k = k;
                s.rows = rows;
                s.variant = rows == 1 ? 1 : 4;
                s.wide = true;
                s.norm = rows == 1 && n != 70;
                cases.push_back(matmul_case(named(name), s, false));
                s.epilogue = Epilogue::act_mul;
                cases.push_back(matmul_case(named(name), s, false));
                s.epilogue = Epilogue::add;
                cases.push_back(matmul_case(named(name), s, false));
            }
        }
    // Shared out evenly among the cores: 4, 9, 12, 14 and 16 simdgroups a threadgroup.
    for (const char* name : {"gguf q4_0", "gguf q8_0"})
        for (const auto& [n, threads] : {std::pair{60, 128}, std::pair{135, 288}, std::pair{185, 384}, std::pair{221, 448}, std::pair{250, 512}})
            for (const Epilogue epilogue : {Epilogue::none, Epilogue::add, Epilogue::act_mul}) {
                Shape s;
                s.n = n;
                s.k = 1024;
                s.wide = true;
                s.norm = threads > 128 && epilogue != Epilogue::add;
                s.epilogue = epilogue;
                s.threads = threads;
                cases.push_back(matmul_case(named(name), s, false));
            }
    // A head of more than 4 bits and long rows.
    {
        Shape s;
        s.n = 32783;
        s.k = 4096;
        s.wide = s.norm = s.f32_out = true;
        cases.push_back(matmul_case(named("gguf q6_k"), s, false));
        Weight w;
        w.format = named("gguf q6_k").format;
        w.rows = s.n;
        w.cols = s.k;
        gpu::MatvecShape g;
        g.w = &w;
        g.norm = g.f32_out = true;
        gpu::Common c = common(s.type, 9);
        c.limits.wide = true;
        const gpu::MatvecTile tile = gpu::matvec_tiles(c, g, true)[0];
        EXPECT_EQ(tile.strip, 4);
        EXPECT_EQ(tile.residents, 2);
    }
    // Norms of long rows.
    for (const DType type : {DType::bf16, DType::f16})
        for (const auto& [k, rows] : {std::pair{2080, 2}, std::pair{4096, 2}, std::pair{8192, 1}}) {
            Shape s;
            s.n = 300;
            s.k = k;
            s.type = type;
            s.rows = s.variant = rows;
            s.wide = s.norm = s.bias = true;
            cases.push_back(matmul_case(named("gguf q4_0"), s, false));
        }
    // Every tile that the tuner may take, of both kinds.
    for (const char* name : {"gguf bf16", "gguf q4_0"})
        for (const int rows : {1, 4})
            for (const bool wide : {false, true}) {
                Shape s;
                s.k = wide ? 2304 : columns(named(name), 4200);   // split, and whole
                s.rows = s.variant = rows;
                s.wide = wide;
                const Weight w = random_weight(named(name).format, s.n, s.k, 7);
                gpu::MatvecShape g;
                g.w = &w;
                g.x_rows = rows;
                gpu::Common c = common(s.type, 9);
                c.limits.wide = wide;
                const std::size_t tiles = gpu::matvec_tiles(c, g, true).size();
                for (s.matvec_tile = 1; s.matvec_tile < tiles; ++s.matvec_tile) cases.push_back(matmul_case(named(name), s, false));
            }
    for (const char* name : {"gguf bf16", "gguf q4_0", "gguf q8_0"}) {
        Shape s;
        s.n = 33003;
        s.k = 64;
        s.wide = s.norm = s.f32_out = true;
        cases.push_back(matmul_case(named(name), s, false));
    }
    // Columns that end inside a unit, rows that are not aligned, one row, many strips.
    for (const char* name : {"gguf f32", "gguf f16", "gguf bf16"})
        for (const int k : {4, 12, 37, 100, 1023}) {
            Shape s;
            s.k = k;
            s.rows = 2;
            s.variant = 2;
            cases.push_back(matmul_case(named(name), s, false));
            s.type = DType::f32;
            s.norm = true;
            s.n = 3;
            cases.push_back(matmul_case(named(name), s, false));
        }
    return cases;
}

// Few rows on tensor cores: every format of 4-bit integer codes, both types, every number of rows, every share of a row
// among simdgroups, epilogues, ragged rows and columns.
std::vector<GpuCase> codes_cases(bool full) {
    std::vector<GpuCase> cases = codes_fusion_cases();
    const auto fits = [](const NamedFormat& f) {
        return f.format.map == CodeMap::integer && f.format.packing == Packing::stream && f.format.bits == 4 && f.format.group % 32 == 0 && !f.tiled;
    };
    Shape s;
    s.wide = s.codes = true;
    for (const NamedFormat& f : all_formats()) {
        if (!fits(f)) continue;
        for (const DType type : {DType::bf16, DType::f16})
            for (const int rows : {1, 2, 3, 5, 8}) {
                Shape t = s;
                t.type = type;
                t.k = columns(f, rows == 5 ? 96 : 800);
                t.rows = rows;
                t.variant = rows == 3 ? 4 : rows == 5 ? 8 : rows;
                t.f32_out = rows == 2;
                cases.push_back(matmul_case(f, t, false));
            }
    }
    for (const char* name : {"gguf q4_0", "gguf q4_1"})
        for (const auto& [n, k] : {std::pair{45, 1024}, std::pair{45, 2080}, std::pair{100, 4096}, std::pair{37, 8192}, std::pair{33, 9216}, std::pair{8200, 64}, std::pair{8193, 4096}, std::pair{33003, 64}}) {
            if (!full && n > 100 && std::string_view(name) != "gguf q4_0") continue;
            for (const int rows : {1, 2, 7}) {
                if (!full && n > 8192 && rows > 1) continue;
                Shape t = s;
                t.n = n;
                t.k = k;
                t.rows = rows;
                t.variant = rows == 7 ? 8 : rows;
                const auto with = [&](auto change) {
                    Shape u = t;
                    change(u);
                    cases.push_back(matmul_case(named(name), u, false));
                };
                with([](Shape& u) { u.epilogue = Epilogue::add; });
                with([](Shape& u) { u.epilogue = Epilogue::act_mul, u.norm = u.k < 8192; });
                if (n > 100) continue;
                with([](Shape& u) { u.epilogue = Epilogue::act_mul, u.act = ActKind::gelu_tanh, u.bias = true; });
                with([](Shape& u) { u.bias = true, u.norm = u.k < 8192; });
                with([](Shape& u) { u.bias = true, u.type = DType::f16; });
                with([](Shape& u) { u.f32_out = true, u.softcap = 5, u.outputs = true; });
            }
        }
    Shape head = s;
    head.n = 33003;
    head.k = 1024;
    head.norm = head.f32_out = true;
    cases.push_back(matmul_case(named("gguf q4_0"), head, false));
    return cases;
}

std::vector<GpuCase> gemm_cases(bool full) {
    std::vector<GpuCase> cases;
    for (const NamedFormat& f : all_formats()) {
        const bool sample = f.name.find("gguf") == 0 || f.name.find("mxfp8") != std::string::npos || f.name.find("/64 bf16") != std::string::npos;
        if (!full && !sample) continue;
        Shape s;
        s.n = full ? 70 : 37;
        s.k = columns(f, 70);
        s.rows = full ? 33 : 9;
        cases.push_back(matmul_case(f, s, true));
    }
    for (const DType type : types()) add_epilogues(cases, type, true, full ? 33 : 12, 1);
    for (const char* name : {"gguf f32", "gguf bf16"})
        for (const int k : {4, 37}) {
            Shape s;
            s.k = k;
            s.n = 65;
            s.rows = 33;
            cases.push_back(matmul_case(named(name), s, true));
        }
    return cases;
}

// Every format and epilogue, every tile, ragged rows, columns and sums.
std::vector<GpuCase> tensor_cases(bool full) {
    std::vector<GpuCase> cases;
    for (const gpu::Tensor tensor : {gpu::Tensor::mma_sync, gpu::Tensor::wgmma}) {
        const auto tile_of = [&](const NamedFormat& f, DType type, std::size_t which) {
            gpu::Common c = common(type, 9);
            c.limits.tensor = tensor;
            Weight w;
            w.format = f.format;
            w.cols = 64;
            w.codes.stride = 128;
            gpu::MatvecShape g;
            g.w = &w;
            const std::vector<gpu::TensorTile> tiles = gpu::tensor_tiles(c, g);
            return tiles[which % tiles.size()];
        };
        std::size_t turn = 0;
        const auto add = [&](const NamedFormat& f, Shape s) {
            s.tensor = tensor;
            s.tile = tile_of(f, s.type, turn++);
            cases.push_back(matmul_case(f, s, true));
        };
        for (const NamedFormat& f : all_formats()) {
            if (f.tiled || (!full && f.name.find("gguf") != 0 && f.name.find("mxfp8") == std::string::npos && f.name.find("/64 bf16") == std::string::npos)) continue;
            for (const DType type : {DType::bf16, DType::f16}) {
                if (type == DType::f16 && f.format.is_dense() && f.format.dense_type != DType::f16) continue;
                Shape s;
                s.type = type;
                s.n = 37;
                s.k = columns(f, f.format.is_dense() ? 200 : 416);
                s.rows = 9;
                add(f, s);
                s.n = 300;
                s.rows = 150;
                s.f32_out = true;
                add(f, s);
            }
        }
        for (const char* name : {"gguf bf16", "gguf q4_0", "gguf q6_k"})
            for (std::size_t which = 0; which < 4; ++which) {
                const NamedFormat f = named(name);
                const auto with = [&](auto change) {
                    Shape s;
                    s.n = 70 + static_cast<int>(which) * 90;
                    s.k = columns(f, 600);
                    s.rows = 65 + static_cast<int>(which) * 30;
                    s.tensor = tensor;
                    s.tile = tile_of(f, s.type, which);
                    change(s);
                    cases.push_back(matmul_case(f, s, true));
                };
                with([](Shape& t) { t.epilogue = Epilogue::add; });
                with([](Shape& t) { t.epilogue = Epilogue::act_mul; });
                with([](Shape& t) { t.epilogue = Epilogue::act_mul, t.act = ActKind::gelu_tanh, t.bias = true, t.n += 1; });
                with([](Shape& t) { t.bias = true; });
                with([](Shape& t) { t.f32_out = true, t.softcap = 5, t.outputs = true; });
                with([](Shape& t) { t.n = 37; });
            }
        for (const int k : {8, 72, 1024, 1096}) {
            Shape s;
            s.k = k;
            s.n = 260;
            s.rows = 130;
            for (std::size_t which = 0; which < 4; ++which) {
                s.tensor = tensor;
                s.tile = tile_of(named("gguf bf16"), s.type, which);
                cases.push_back(matmul_case(named("gguf bf16"), s, true));
            }
        }
    }
    return cases;
}

// Every format, epilogue and tile; ragged rows, columns and sums. A sample takes tiles and rows in turns.
std::vector<GpuCase> simd_cases(bool full) {
    std::vector<GpuCase> cases;
    const auto tiles_of = [](const NamedFormat& f, DType type, Epilogue epilogue) {
        gpu::Common c = common(type, 9);
        c.limits.tensor = gpu::Tensor::simdgroup;
        Weight w;
        w.format = f.format;
        gpu::MatvecShape g;
        g.w = &w;
        g.epilogue = epilogue;
        EXPECT_TRUE(gpu::simd_fits(c, g));
        return gpu::simd_tiles(c, g);
    };
    constexpr std::array rows_in_turn{9, 33, 65};
    std::size_t turn = 0;
    // One tile, or all of them.
    const auto add = [&](const NamedFormat& f, Shape s, bool every) {
        s.tensor = gpu::Tensor::simdgroup;
        in_turns(tiles_of(f, s.type, s.epilogue), every, turn, [&](const gpu::SimdTile& tile) {
            s.simd = tile;
            cases.push_back(matmul_case(f, s, true));
        });
    };
    for (const NamedFormat& f : all_formats()) {
        if (f.tiled || (!full && f.name.find("gguf") != 0 && f.name.find("mxfp8") == std::string::npos && f.name.find("/64 bf16") == std::string::npos)) continue;
        for (const DType type : {DType::bf16, DType::f16})
            for (std::size_t i = 0; i < (full ? rows_in_turn.size() : 1); ++i) {
                Shape s;
                s.type = type;
                s.rows = rows_in_turn[(turn + i) % rows_in_turn.size()];
                s.n = full && i == 0 ? 150 : 37;
                s.k = columns(f, f.format.is_dense() ? 100 : 160);
                s.f32_out = i == 1;
                add(f, s, false);
            }
    }
    add_tile_epilogues(add, full);
    // Sums that end inside a tile or a unit, rows that are not aligned, floats in tiles.
    for (const char* name : {"gguf bf16", "gguf f16", "gguf f32"})
        for (const int k : {4, 8, 37, 72, 200}) {
            Shape s;
            s.type = k % 8 == 0 ? DType::f16 : DType::bf16;
            s.k = k;
            s.n = 65;
            s.rows = 33;
            add(named(name), s, full);
        }
    for (const gpu::SimdTile tile : {gpu::SimdTile{64, 64, 32, false, true}, gpu::SimdTile{64, 64, 32, true, true}}) {   // sums over many tiles
        Shape s;
        s.tensor = gpu::Tensor::simdgroup;
        s.simd = tile;
        s.k = 1096;
        s.n = 130;
        s.rows = 70;
        cases.push_back(matmul_case(named("gguf bf16"), s, true));
    }
    return cases;
}

// The same by Metal 4's matmul2d, where it fits.
std::vector<GpuCase> matmul2d_cases(bool full) {
    std::vector<GpuCase> cases;
    std::size_t turn = 0;
    const auto add = [&](const NamedFormat& f, Shape s, bool every) {
        s.tensor = gpu::Tensor::simdgroup;
        s.matmul2d = true;
        gpu::Common c = common(s.type, 9);
        c.limits.tensor = s.tensor;
        Weight w;
        w.format = f.format;
        gpu::MatvecShape g;
        g.w = &w;
        EXPECT_FALSE(gpu::matmul2d_fits(c, g)) << "without the capability";
        c.limits.matmul2d = true;
        if (!gpu::matmul2d_fits(c, g)) return;
        in_turns(gpu::matmul2d_tiles(c, g), every, turn, [&](const gpu::SimdTile& tile) {
            s.simd = tile;
            cases.push_back(matmul_case(f, s, true));
        });
    };
    constexpr std::array rows_in_turn{9, 33, 65};
    for (const NamedFormat& f : all_formats()) {
        if (f.tiled || (!full && f.name.find("gguf") != 0 && f.name.find("mxfp8") == std::string::npos && f.name.find("/64 bf16") == std::string::npos)) continue;
        for (const DType type : {DType::bf16, DType::f16}) {
            if (!full && type == DType::f16 && f.name != "gguf f16" && f.name != "gguf q4_0") continue;
            Shape s;
            s.type = type;
            s.rows = rows_in_turn[turn % rows_in_turn.size()];
            s.k = columns(f, f.format.is_dense() ? 100 : 160);
            add(f, s, false);
        }
    }
    add_tile_epilogues(add, full);
    for (const int k : {4, 37, 200}) {
        Shape s;
        s.k = k;
        s.n = 65;
        s.rows = 33;
        add(named("gguf bf16"), s, full);
    }
    return cases;
}

}  // namespace forge::test
