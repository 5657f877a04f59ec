// Row operations against double-precision references written here.
#include "kernels/rows/rows.h"

#include "kernel_test.h"

namespace forge::test {
namespace {

const int kWidths[] = {1, 3, 8, 15, 16, 17, 100, 127, 128, 129, 576, 1000, 2048};

double act(ActKind kind, double x) {
    if (kind == ActKind::silu) return x / (1 + std::exp(-x));
    const double u = 0.7978845608028654 * (x + 0.044715 * x * x * x);
    return x / (1 + std::exp(-2 * u));  // 0.5 x (1 + tanh u)
}

// A value of `type` within `ulps` roundings of x, plus an absolute slack.
void expect_near(DType type, float got, double x, double ulps, double slack, const std::string& what) {
    ASSERT_LE(std::abs(static_cast<double>(got) - x), ulps * unit_roundoff(type) * std::abs(x) + slack)
        << what << ": got " << got << ", expected " << x;
}

std::string label(const char* kernel, Isa isa, DType type, int width) {
    return std::string(kernel) + " " + std::string(name_of(isa)) + " " + std::string(name_of(type)) + " width " + std::to_string(width);
}

TEST(RowsTest, Norm) {
    const Rows rows = Rows().add(0, 0, 3);
    for (const Isa isa : isas())
        for (const DType type : types())
            for (const int width : kWidths)
                for (const NormFormula formula : {NormFormula::two_rounding, NormFormula::one_plus, NormFormula::one_rounding})
                    for (const bool with_residual : {false, true}) {
                        const auto w = static_cast<std::size_t>(width);
                        std::vector<float> x = normal(3 * w, type, 1, 3), weight = normal(w, DType::bf16, 2);
                        for (std::size_t i = 0; i < w; ++i) x[2 * w + i] = 0;  // a row of zeros
                        const std::vector<float> residual = normal(3 * w, type, 3);
                        Array xa(type, x), ra(type, residual), y(type, x.size());
                        NormParams p;
                        p.type = type;
                        p.x = xa.data();
                        p.weight = weight.data();
                        p.norm = formula;
                        p.eps = 1e-6f;
                        p.width = width;
                        p.residual = with_residual ? ra.data() : nullptr;
                        p.y = y.data();
                        run(norm_kernel(p, isa), p, rows.step(), Split::random);
                        for (std::size_t r = 0; r < 3; ++r) {
                            double squares = 0;
                            for (std::size_t i = 0; i < w; ++i) squares += static_cast<double>(x[r * w + i]) * static_cast<double>(x[r * w + i]);
                            const double factor = 1 / std::sqrt(squares / width + 1e-6);
                            for (std::size_t i = 0; i < w; ++i) {
                                const double n = static_cast<double>(x[r * w + i]) * factor, g = static_cast<double>(weight[i]);
                                double e;
                                if (formula == NormFormula::two_rounding) e = g * static_cast<double>(rounded(type, static_cast<float>(n)));
                                else e = formula == NormFormula::one_plus ? n * (1 + g) : n * g;
                                // the result rounded, and n perhaps to the other side
                                double bound = (3.01 * unit_roundoff(type) + 1e-6) * std::abs(e) + (type == DType::f16 ? 0x1p-23 : 1e-12);  // f16 has subnormals here
                                if (with_residual) {
                                    e = static_cast<double>(residual[r * w + i]) + static_cast<double>(rounded(type, static_cast<float>(e)));
                                    bound += 1.01 * unit_roundoff(type) * std::abs(e);
                                }
                                ASSERT_LE(std::abs(static_cast<double>(y.get(r * w + i)) - e), bound) << label("norm", isa, type, width) << " at " << i;
                            }
                        }
                        // In place gives the same bits, over x and over the residual.
                        const std::vector<unsigned char> apart = y.copy();
                        p.y = with_residual ? ra.data() : xa.data();
                        run(norm_kernel(p, isa), p, rows.step());
                        ASSERT_EQ(apart, with_residual ? ra.copy() : xa.copy());
                    }
}

// The separate norm rounds exactly as the formulas say: against them in float, element for element,
// given the factor. A width of one makes the factor's sum exact.
TEST(RowsTest, NormRoundsWhereTheFormulaSays) {
    for (const Isa isa : isas())
        for (const DType type : types())
            for (const NormFormula formula : {NormFormula::two_rounding, NormFormula::one_plus, NormFormula::one_rounding})
                for (const float x : {1.0f, -3.0f, 0.40625f, 117.0f})
                    for (const float w : {1.0f, 0.33203125f, -1.7578125f}) {
                        Array xa(type, std::vector<float>{x}), y(type, 1);
                        NormParams p;
                        p.type = type;
                        p.x = xa.data();
                        p.weight = &w;
                        p.norm = formula;
                        p.eps = 0.01f;
                        p.width = 1;
                        p.y = y.data();
                        run(norm_kernel(p, isa), p, Rows().add(0, 0, 1).step());
                        const float n = x * (1.0f / std::sqrt(x * x + 0.01f));
                        const float expected = formula == NormFormula::two_rounding ? w * rounded(type, n)
                                               : formula == NormFormula::one_plus   ? n * (1 + w)
                                                                                    : n * w;
                        EXPECT_EQ(y.get(0), rounded(type, expected)) << label("norm", isa, type, 1);
                    }
}

TEST(RowsTest, NormWithoutWeight) {
    const Rows rows = Rows().add(0, 0, 2);
    for (const Isa isa : isas()) {
        const std::vector<float> x = {3, 4, 1, 1};
        Array xa(DType::f32, x), y(DType::f32, 4);
        NormParams p;
        p.type = DType::f32;
        p.x = xa.data();
        p.width = 2;
        p.y = y.data();
        const CpuKernel kernel = norm_kernel(p, isa);
        EXPECT_EQ(kernel.items(&p, rows.step()), 2);
        run(kernel, p, rows.step());
        EXPECT_FLOAT_EQ(y.get(0), 3 / std::sqrt(12.5f));
        EXPECT_FLOAT_EQ(y.get(3), 1);
    }
}

// Several vectors a row, normed apart: as many rows of one vector.
TEST(RowsTest, NormOfGroups) {
    for (const Isa isa : isas())
        for (const DType type : types())
            for (const int width : {5, 64, 128}) {
                const auto n = static_cast<std::size_t>(6 * width);
                const std::vector<float> x = normal(n, type, 1), weight = normal(static_cast<std::size_t>(width), type, 2);
                Array xa(type, x), grouped(type, n), apart(type, n);
                NormParams p;
                p.type = type;
                p.x = xa.data();
                p.weight = weight.data();
                p.width = width;
                p.eps = 1e-6f;
                p.y = apart.data();
                run(norm_kernel(p, isa), p, Rows().add(0, 0, 6).step());
                p.groups = 3;
                p.y = grouped.data();
                run(norm_kernel(p, isa), p, Rows().add(0, 0, 2).step(), Split::random);
                ASSERT_EQ(grouped.copy(), apart.copy()) << label("norm", isa, type, width);
            }
}

TEST(RowsTest, ScaleIsExactlyRounded) {
    for (const Isa isa : isas())
        for (const DType type : types())
            for (const int width : kWidths) {
                const auto n = static_cast<std::size_t>(2 * width);
                const std::vector<float> x = normal(n, type, 1);
                Array xa(type, x), y(type, n);
                ScaleParams p;
                p.type = type;
                p.x = xa.data();
                p.y = y.data();
                p.width = width;
                p.factor = 0.7071068f;
                run(scale_kernel(p, isa), p, Rows().add(0, 0, 2).step(), Split::backwards);
                for (std::size_t i = 0; i < n; ++i) ASSERT_EQ(y.get(i), rounded(type, x[i] * 0.7071068f)) << label("scale", isa, type, width);
                p.y = xa.data();
                run(scale_kernel(p, isa), p, Rows().add(0, 0, 2).step());
                ASSERT_EQ(y.copy(), xa.copy());
            }
}

TEST(RowsTest, AddIsExactlyRounded) {
    const Rows rows = Rows().add(0, 0, 2);
    for (const Isa isa : isas())
        for (const DType type : types())
            for (const int width : kWidths) {
                const auto n = static_cast<std::size_t>(2 * width);
                const std::vector<float> a = normal(n, type, 1), b = normal(n, type, 2, 10);
                Array aa(type, a), ba(type, b), y(type, n);
                const AddParams p{type, aa.data(), ba.data(), y.data(), width};
                run(add_kernel(p, isa), p, rows.step(), Split::backwards);
                for (std::size_t i = 0; i < n; ++i) ASSERT_EQ(y.get(i), rounded(type, a[i] + b[i])) << label("add", isa, type, width);
            }
}

TEST(RowsTest, ActMul) {
    const Rows rows = Rows().add(0, 0, 3);
    for (const Isa isa : isas())
        for (const DType type : types())
            for (const ActKind kind : {ActKind::silu, ActKind::gelu_tanh})
                for (const int width : kWidths) {
                    const auto n = static_cast<std::size_t>(3 * width);
                    const std::vector<float> gate = normal(n, type, 1, 3), up = normal(n, type, 2);
                    Array ga(type, gate), ua(type, up), y(type, n);
                    ActMulParams p;
                    p.type = type;
                    p.gate = ga.data();
                    p.up = ua.data();
                    p.y = y.data();
                    p.width = width;
                    p.act = kind;
                    run(act_mul_kernel(p, isa), p, rows.step(), Split::backwards);
                    // The same `up` in rows that lie further apart gives the same bits.
                    const int stride = width + 5;
                    Array wide(type, static_cast<std::size_t>(3 * stride)), again(type, n);
                    for (std::size_t i = 0; i < n; ++i)
                        wide.set(i / static_cast<std::size_t>(width) * static_cast<std::size_t>(stride) + i % static_cast<std::size_t>(width), up[i]);
                    ActMulParams strided = p;
                    strided.up = wide.data();
                    strided.up_stride = stride;
                    strided.y = again.data();
                    run(act_mul_kernel(strided, isa), strided, rows.step());
                    ASSERT_EQ(y.copy(), again.copy()) << label("act_mul", isa, type, width);
                    for (std::size_t i = 0; i < n; ++i) {
                        const double a = act(kind, static_cast<double>(gate[i]));
                        // Two roundings, an activation good to a few ulp of f32 (gelu: of its largest term), f16 subnormals.
                        const double slack = std::abs(static_cast<double>(up[i])) * (1e-6 * std::abs(a) + 0x1p-25) + (type == DType::f16 ? 0x1p-25 : 0);
                        expect_near(type, y.get(i), a * static_cast<double>(up[i]), 2.01, type == DType::f32 ? 2e-6 * std::abs(a * static_cast<double>(up[i])) + 1e-12 : slack,
                                    label("act_mul", isa, type, width) + " gate " + std::to_string(gate[i]));
                    }
                }
}

// Dense sweep of the activations in f32 (up = 1): relative error in ulp of f32.
TEST(RowsTest, ActivationsAreF32Accurate) {
    std::vector<float> gate;
    for (float x = -20; x <= 20; x += 0.0007f) gate.push_back(x);
    for (float x = 1e-30f; x < 90; x *= 1.01f) gate.push_back(x), gate.push_back(-x);
    const std::vector<float> up(gate.size(), 1.0f);
    for (const Isa isa : isas())
        for (const ActKind kind : {ActKind::silu, ActKind::gelu_tanh}) {
            Array ga(DType::f32, gate), ua(DType::f32, up), y(DType::f32, gate.size());
            ActMulParams p;
            p.type = DType::f32;
            p.gate = ga.data();
            p.up = ua.data();
            p.y = y.data();
            p.width = static_cast<int>(gate.size());
            p.act = kind;
            run(act_mul_kernel(p, isa), p, Rows().add(0, 0, 1).step());
            double worst = 0, at = 0;
            for (std::size_t i = 0; i < gate.size(); ++i) {
                const double e = act(kind, static_cast<double>(gate[i]));
                if (std::abs(e) < 1e-30) continue;
                // For negative gates the exponent's own rounding shows: t ulp of t, t the exponent.
                const double x = static_cast<double>(gate[i]);
                const double t = kind == ActKind::silu ? x : 1.5957691216057308 * (x + 0.044715 * x * x * x);
                const double allowed = 4 + (t < 0 && kind == ActKind::gelu_tanh ? 3 * std::abs(t) : 0);
                const double ulps = std::abs(static_cast<double>(y.get(i)) - e) / (std::abs(e) * 0x1p-23) / allowed;
                if (ulps > worst) worst = ulps, at = x;
            }
            EXPECT_LE(worst, 1) << name_of(isa) << (kind == ActKind::silu ? " silu" : " gelu") << " at " << at;
        }
}

TEST(RowsTest, EmbedFromPlainTables) {
    Rows rows = Rows().add(0, 0, 3);
    rows.tokens = {6, 0, 2};
    for (const Isa isa : isas())
        for (const DType type : types())
            for (const DType stored : types())
                for (const int width : {1, 16, 37, 130})
                    for (const float scale : {1.0f, 11.313708f}) {
                        const auto w = static_cast<std::size_t>(width);
                        const std::vector<float> values = normal(7 * w, stored, 1);
                        Array table(stored, values), y(type, 3 * w);
                        Weight weight;
                        weight.format.map = CodeMap::dense;
                        weight.format.dense_type = stored;
                        weight.format.bits = static_cast<std::uint8_t>(8 * size_of(stored));
                        weight.rows = 7;
                        weight.cols = width;
                        weight.codes = {static_cast<const std::byte*>(table.data()), w * size_of(stored)};
                        EmbedParams p;
                        p.type = type;
                        p.table = &weight;
                        p.scale = scale;
                        p.y = y.data();
                        run(embed_kernel(p, isa), p, rows.step(), Split::backwards);
                        for (std::size_t r = 0; r < 3; ++r)
                            for (std::size_t i = 0; i < w; ++i) {
                                const float e = rounded(type, values[static_cast<std::size_t>(rows.tokens[r]) * w + i]);
                                ASSERT_EQ(y.get(r * w + i), scale == 1 ? e : rounded(type, e * rounded(type, scale)))
                                    << label("embed", isa, type, width) << " from " << name_of(stored);
                            }
                    }
}

TEST(RowsTest, TakeRows) {
    Rows rows = Rows().add(0, 0, 5);
    rows.outputs = {0, 3, 4};
    for (const DType type : types()) {
        const std::vector<float> x = normal(5 * 7, type, 1);
        Array xa(type, x), y(type, 3 * 7);
        const TakeRowsParams p{type, xa.data(), y.data(), 7};
        run(take_rows_kernel(p, Isa::plain), p, rows.step(), Split::random);
        for (std::size_t i = 0; i < 3; ++i)
            for (std::size_t c = 0; c < 7; ++c) EXPECT_EQ(y.get(i * 7 + c), x[static_cast<std::size_t>(rows.outputs[i]) * 7 + c]);
    }
}

TEST(RowsTest, ArgMax) {
    const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
    for (const Isa isa : isas()) {
        const auto best = [&](std::vector<float> logits, int limit = 0) {
            Rows rows = Rows().add(0, 0, 1);
            rows.outputs = {0};
            Array la(DType::f32, logits), token(DType::i32, 1);
            const int width = static_cast<int>(logits.size());
            const ArgMaxParams p{la.floats(), width, limit == 0 ? width : limit, static_cast<std::int32_t*>(token.data())};
            run(arg_max_kernel(p, isa), p, rows.step());
            return *static_cast<std::int32_t*>(token.data());
        };
        EXPECT_EQ(best({1, 3, 2}), 1);
        EXPECT_EQ(best({3, 3, 3}), 0);
        EXPECT_EQ(best({nan, 1, nan, 2, nan}), 3);
        EXPECT_EQ(best({nan, -inf, -inf}), 1);
        EXPECT_EQ(best({nan, nan}), 0);
        EXPECT_EQ(best({-0.0f, 0.0f}), 0);
        EXPECT_EQ(best({1, 2, 9}, 2), 1);
        EXPECT_EQ(best({1, nan, inf}), 2);
        std::mt19937 rng(3);
        for (const int width : {1, 7, 16, 31, 64, 127, 128, 129, 300, 1500, 15193}) {
            std::vector<float> x = normal(static_cast<std::size_t>(width), DType::bf16, 9);  // equals happen
            for (int i = 0; i < width / 5; ++i) x[rng() % x.size()] = nan;
            for (const int limit : {width, std::max(1, width - 3)}) {
                int expected = 0;
                bool found = false;
                for (int i = 0; i < limit; ++i)
                    if (!std::isnan(x[static_cast<std::size_t>(i)]) && (!found || x[static_cast<std::size_t>(i)] > x[static_cast<std::size_t>(expected)])) expected = i, found = true;
                EXPECT_EQ(best(x, limit), expected) << name_of(isa) << " width " << width;
            }
        }
        // Several rows, and the largest in each place.
        const int width = 150;
        std::vector<float> logits(static_cast<std::size_t>(width * width), -1);
        Rows rows;
        for (int i = 0; i < width; ++i) {
            logits[static_cast<std::size_t>(i * width + i)] = 1;
            rows.outputs.push_back(i);
        }
        Array la(DType::f32, logits), token(DType::i32, static_cast<std::size_t>(width));
        const ArgMaxParams p{la.floats(), width, width, static_cast<std::int32_t*>(token.data())};
        run(arg_max_kernel(p, isa), p, rows.step(), Split::random);
        for (int i = 0; i < width; ++i) EXPECT_EQ(static_cast<std::int32_t*>(token.data())[i], i);
    }
}

}  // namespace
}  // namespace forge::test
