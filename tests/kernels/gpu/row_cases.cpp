#include "cases.h"
#include "kernels/delta/delta.h"
#include "kernels/rows/rows.h"

namespace forge::test {
namespace {

// Runs kernel `k` and holds "y" against `wanted`.
void compare(GpuDevice& device, const gpu::Kernel& k, Bindings b, const StepRows& step, int max_rows, int order, DType type, const Array& wanted, std::size_t count,
             double ulps) {
    Array y(type, count);
    b.add("y", y);
    EXPECT_EQ(device.run(k, b, step, max_rows, order), "");
    expect_close(y, wanted, count, type, ulps, 1e-6);
}

std::vector<float> weights(int n, unsigned seed) {
    std::vector<float> w = normal(static_cast<std::size_t>(n), DType::bf16, seed, 0.3f);
    for (float& x : w) x += 1;
    return w;
}

GpuCase norm_case(DType type, int width, int groups, bool weight, bool residual, NormFormula formula, int rows, bool outputs) {
    gpu::NormShape s;
    s.width = width;
    s.groups = groups;
    s.weight = weight;
    s.residual = residual;
    s.output_rows = outputs;
    s.formula = formula;
    s.eps = 1e-5f;
    const gpu::Kernel k = gpu::norm(common(type, 9), s);
    return {"norm " + std::to_string(width) + " x " + std::to_string(groups) + " " + std::string(name_of(type)), {k}, [=](GpuDevice& device, int order) {
                const std::size_t count = static_cast<std::size_t>(rows * groups * width);
                Array x(type, normal(count, type, 1)), r(type, normal(count, type, 2)), wanted(type, count);
                const std::vector<float> w = weights(width, 3);
                NormParams p;
                p.type = type;
                p.x = x.data();
                p.weight = weight ? w.data() : nullptr;
                p.norm = formula;
                p.eps = s.eps;
                p.width = width;
                p.groups = groups;
                p.residual = residual ? r.data() : nullptr;
                p.y = wanted.data();
                Rows step;
                step.add(0, 0, outputs ? 9 : rows);
                for (int i = 0; outputs && i < rows; ++i) step.outputs.push_back(i);
                StepRows cpu = step.step();
                if (outputs) cpu.m = rows;   // the CPU backend hands output rows over as rows
                run_plain(norm_kernel, p, cpu);
                Bindings b;
                b.add("x", x).add("residual", r).floats("weight.codes", w);
                compare(device, k, b, step.step(), 9, order, type, wanted, count, 1);
            }};
}

GpuCase embed_case(DType type, const NamedFormat& format, int cols, float scale) {
    const auto table = std::make_shared<Weight>(random_weight(format.format, 11, cols, 5));
    const gpu::Kernel k = gpu::embed(common(type, 4), *table, scale);
    return {"embed " + format.name + " " + std::to_string(cols) + " " + std::string(name_of(type)), {k}, [=](GpuDevice& device, int order) {
                const std::size_t count = static_cast<std::size_t>(4 * cols);
                Array wanted(type, count);
                Rows step;
                step.add(0, 0, 4);
                step.tokens = {10, 0, 7, 7};
                EmbedParams p;
                p.type = type;
                p.table = table.get();
                p.scale = scale;
                p.y = wanted.data();
                run_plain(embed_kernel, p, step.step());
                Bindings b;
                b.weight("table", *table);
                compare(device, k, b, step.step(), 4, order, type, wanted, count, 0);
            }};
}

GpuCase elementwise_case(const std::string& what, DType type, int width) {
    const int rows = 3, stride = 2 * width + 5;
    const gpu::Common c = common(type, 5);
    const gpu::Kernel k = what == "add"         ? gpu::add(c, width)
                          : what == "scale"     ? gpu::scale(c, width, 0.37f, false)
                          : what == "scale by"  ? gpu::scale(c, width, 0, true)
                          : what == "silu"      ? gpu::act_mul(c, width, stride, 3, ActKind::silu)
                          : what == "gelu"      ? gpu::act_mul(c, width, width, 0, ActKind::gelu_tanh)
                          : what == "take rows" ? gpu::take_rows(c, width)
                                                : gpu::head_gate(c, 3, width / 3);
    return {what + " " + std::to_string(width) + " " + std::string(name_of(type)), {k}, [=](GpuDevice& device, int order) {
                const std::size_t count = static_cast<std::size_t>(rows * width);
                Array x(type, normal(5 * static_cast<std::size_t>(width), type, 1, 3)), u(type, normal(static_cast<std::size_t>(rows * stride), type, 2)), wanted(type, count);
                const std::vector<float> factor{1.7f};
                Rows step;
                step.add(0, 0, what == "take rows" ? 5 : rows);
                step.outputs = {0, 2, 4};
                double ulps = 1;
                if (what == "add") {
                    AddParams p{type, x.data(), u.data(), wanted.data(), width};
                    run_plain(add_kernel, p, step.step());
                    ulps = 0;
                } else if (what == "scale" || what == "scale by") {
                    ScaleParams p{type, x.data(), wanted.data(), width, what == "scale" ? 0.37f : 1.7f};
                    run_plain(scale_kernel, p, step.step());
                    ulps = 0;
                } else if (what == "silu" || what == "gelu") {
                    ActMulParams p;
                    p.type = type;
                    p.gate = x.data();
                    p.up = static_cast<std::byte*>(u.data()) + (what == "silu" ? 3 * size_of(type) : 0);
                    p.y = wanted.data();
                    p.width = width;
                    p.act = what == "silu" ? ActKind::silu : ActKind::gelu_tanh;
                    p.up_stride = what == "silu" ? stride : width;
                    run_plain(act_mul_kernel, p, step.step());
                    ulps = type == DType::f32 ? 8 : 2;
                } else if (what == "take rows") {
                    TakeRowsParams p{type, x.data(), wanted.data(), width};
                    StepRows outputs = step.step();
                    outputs.m = outputs.outputs;
                    run_plain(take_rows_kernel, p, outputs);
                    ulps = 0;
                } else {
                    HeadGateParams p{type, x.data(), u.data(), 3, width / 3, wanted.data()};
                    run_plain(head_gate_kernel, p, step.step());
                    ulps = type == DType::f32 ? 8 : 2;
                }
                Bindings b;
                b.add("x", x).add("a", x).add("b", u).add("gate", x).add("up", u).add("q", u).floats("weight.codes", factor);
                compare(device, k, b, step.step(), 5, order, type, wanted, count, ulps);
            }};
}

}  // namespace

std::vector<GpuCase> row_cases(bool full) {
    std::vector<GpuCase> cases;
    for (const DType type : types()) {
        cases.push_back(norm_case(type, 64, 1, true, false, NormFormula::two_rounding, 3, false));
        cases.push_back(norm_case(type, 100, 1, true, true, NormFormula::one_plus, 2, false));
        cases.push_back(norm_case(type, 37, 3, true, false, NormFormula::one_rounding, 2, false));
        cases.push_back(norm_case(type, 1536, 1, false, false, NormFormula::two_rounding, 1, false));
        cases.push_back(norm_case(type, 576, 1, true, false, NormFormula::two_rounding, 2, true));
        for (const char* what : {"add", "scale", "scale by", "silu", "gelu", "take rows", "head gate"})
            for (const int width : {129, 288}) cases.push_back(elementwise_case(what, type, width));
        for (const NamedFormat& format : all_formats()) {
            const bool sample = format.name.find("gguf") == 0 || format.name.find("/64 bf16") != std::string::npos || format.name.find("mxfp8") != std::string::npos;
            if (!full && (!sample || (type != DType::bf16 && format.name.find("4") == std::string::npos))) continue;
            cases.push_back(embed_case(type, format, format.format.is_dense() ? 70 : std::max(format.multiple, 32) * (format.multiple >= 256 ? 1 : 3), format.multiple % 64 ? 1.0f : 8.3f));
        }
    }
    return cases;
}

}  // namespace forge::test
