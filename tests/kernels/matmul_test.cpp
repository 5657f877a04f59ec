// Matrix kernels against a double-precision product of decoded weights, and
// against the separate operations that their fused forms replace.
#include "kernels/matmul/matmul.h"

#include <gtest/gtest.h>

#include "kernel_test.h"
#include "kernels/rows/rows.h"
#include "weights.h"

namespace forge::test {
namespace {

struct Product {
    std::vector<double> sum, absolute, squares;  // [m][n]: sum, sum of |w x|, sum of (w x)^2
};

// With every offset counted as `slack`, because it is summed apart from the codes.
Product product(const Weight& w, const std::vector<float>& x, int m) {
    const auto n = static_cast<std::size_t>(w.rows), k = static_cast<std::size_t>(w.cols);
    const double slack = w.format.offset == OffsetKind::none ? 0 : 0.6;
    Product out{std::vector<double>(static_cast<std::size_t>(m) * n), {}, {}};
    out.absolute = out.squares = out.sum;
    std::vector<float> row(k);
    for (std::size_t r = 0; r < n; ++r) {
        decode_row(w, static_cast<std::int64_t>(r), row.data());
        for (std::size_t t = 0; t < static_cast<std::size_t>(m); ++t)
            for (std::size_t i = 0; i < k; ++i) {
                const double term = static_cast<double>(row[i]) * x[t * k + i];
                out.sum[t * n + r] += term;
                out.absolute[t * n + r] += std::abs(term) + slack * std::abs(x[t * k + i]);
                out.squares[t * n + r] += term * term;
            }
    }
    return out;
}

// Everything a launch needs, with outputs poisoned and guarded.
struct Launch {
    MatmulParams p;
    Weight w, w2;
    int m;
    Array x, y, residual, packed;
    std::vector<float> values;
    Rows rows;

    Launch(const NamedFormat& format, DType type, int m_, std::int64_t n, std::int64_t k, Isa isa,
           bool f32_out = true, unsigned seed = 1)
        : w(random_weight(format, n, k, seed)),
          w2(random_weight(format, n, k, seed + 1)),
          m(m_),
          x(type, normal(static_cast<std::size_t>(m_ * k), type, seed + 2)),
          y(f32_out ? DType::f32 : type, static_cast<std::size_t>(m_ * n)),
          residual(type, normal(static_cast<std::size_t>(m_ * n), type, seed + 3)),
          packed(DType::u8, pack_size(type, m_, isa)),
          values(normal(static_cast<std::size_t>(m_ * k), type, seed + 2)) {
        p.type = type;
        p.w = &w;
        p.x = x.data();
        p.y = y.data();
        p.residual = residual.data();
        p.f32_out = f32_out;
        p.packed = packed.data();
        p.max_rows = m;
        rows.add(0, 0, m);
    }
    std::size_t pack_size(DType type, int rows_, Isa isa) {
        MatmulParams q;
        q.type = type, q.w = &w, q.max_rows = rows_;
        return pack_bytes(q, isa);
    }
    void go(Isa isa, Split split = Split::whole, bool force_gemm = false) {
        const StepRows step = rows.step();
        if (m <= 8 && !force_gemm) {
            run(matvec_kernel(p, isa), p, step, split);
        } else {
            run(pack_kernel(p, isa), p, step, split);
            run(gemm_kernel(p, isa), p, step, split);
        }
    }
    std::vector<float> result() const {
        std::vector<float> out(static_cast<std::size_t>(m * w.rows));
        for (std::size_t i = 0; i < out.size(); ++i) out[i] = y.get(i);
        return out;
    }
};

void expect_close(const Launch& launch, Isa isa, const std::string& what) {
    const Product want = product(launch.w, launch.values, launch.m);
    // f32 sums: at worst one rounding a term. Many rows: each weight may be rounded once to T.
    const double sums = 0x1p-24 * (static_cast<double>(launch.w.cols) + 64);
    const double tile = launch.m > 8 && isa != Isa::plain ? 4 * unit_roundoff(launch.p.type) : 0;
    const std::vector<float> got = launch.result();
    for (std::size_t i = 0; i < got.size(); ++i) {
        const double bound = sums * want.absolute[i] + tile * std::sqrt(want.squares[i]) + 1e-30;
        ASSERT_LE(std::abs(got[i] - want.sum[i]), bound)
            << what << ", element " << i << " of " << launch.m << " x " << launch.w.rows << ": " << got[i]
            << ", wanted " << want.sum[i];
    }
}

std::string label(Isa isa, DType type, const NamedFormat& format, int m, std::int64_t n, std::int64_t k) {
    return std::string(name_of(isa)) + " " + std::string(name_of(type)) + " " + format.name + " m " +
           std::to_string(m) + " n " + std::to_string(n) + " k " + std::to_string(k);
}

std::vector<std::int64_t> widths(const NamedFormat& f) {
    if (f.format.is_dense()) return {71, 100, 288, 1, 576};
    std::vector<std::int64_t> out;
    for (const std::int64_t k : {32, 96, 288, 576, 1280, 256, 768})
        if (k % f.multiple == 0) out.push_back(k);
    return out;
}

TEST(Matmul, EveryFormatTypeAndShape) {
    const std::vector<int> ms = {1, 2, 3, 4, 5, 7, 8, 9, 17, 33, 64, 130};
    const std::vector<std::int64_t> ns = {37, 5, 52, 1};
    std::size_t turn = 0;
    for (const Isa isa : isas())
        for (const NamedFormat& format : all_formats())
            for (const DType type : types()) {
                const std::vector<std::int64_t> ks = widths(format);
                // All combinations, or for each format and type three that change from one to the next.
                const std::size_t all = ms.size() * ns.size() * ks.size();
                for (std::size_t i = 0; i < (long_tests() ? all : 3); ++i) {
                    const std::size_t pick = long_tests() ? i : turn++;
                    const int m = ms[pick % ms.size()];
                    const std::int64_t
                        n = ns[pick / ms.size() % ns.size()],
                        k = ks[(long_tests() ? pick / ms.size() / ns.size() : pick) % ks.size()];
                    Launch launch(format, type, m, n, k, isa);
                    launch.go(isa);
                    expect_close(launch, isa, label(isa, type, format, m, n, k));
                    if (HasFatalFailure()) return;
                }
            }
}

// Tiles are another order of the same bits.
TEST(Matmul, TilesHoldTheNumbersOfTheRows) {
    int formats = 0;
    for (const NamedFormat& format : all_formats()) {
        if (!format.tiled) continue;
        ++formats;
        for (const std::int64_t k : widths(format))
            for (const std::int64_t n : {1, 16, 37}) {
                const Weight rows = random_weight(format.format, n, k, 5), tiles = tiled(rows);
                std::vector<float> want(static_cast<std::size_t>(k)), got(want);
                for (std::int64_t r = 0; r < n; ++r) {
                    decode_row(rows, r, want.data());
                    decode_row(tiles, r, got.data());
                    ASSERT_EQ(std::memcmp(want.data(), got.data(), want.size() * sizeof(float)), 0)
                        << format.name << " row " << r << " of " << n << " x " << k;
                }
            }
    }
    EXPECT_GE(formats, 30);
}

// Formats that have a kernel of their own, for tests of everything but the codes.
std::vector<NamedFormat> few_formats() {
    std::vector<NamedFormat> out;
    for (const NamedFormat& f : all_formats())
        for (const char* name :
             {"gguf f32", "gguf bf16", "gguf q4_0", "gguf q4_k", "gguf q5_k", "gguf q6_k", "gguf q8_0",
              "gguf q3_k", "gguf q2_k", "mlx q4/64 bf16 +bias", "mlx q3/32 f16 +bias", "mlx mxfp8"})
            if (f.name == name || f.name == name + std::string(" tiled")) out.push_back(f);
    return out;
}

TEST(Matmul, RowsDoNotDependOnTheirNumber) {
    for (const Isa isa : isas())
        for (const NamedFormat& format : few_formats())
            for (const DType type : types()) {
                const std::int64_t k = format.format.is_dense() ? 300 : 768, n = 45;
                Launch all(format, type, 8, n, k, isa);
                all.go(isa);
                const std::vector<float> want = all.result();
                for (int m = 1; m <= 8; ++m) {
                    Launch some(format, type, 8, n, k, isa);
                    some.m = m;
                    some.rows = Rows().add(0, 0, m);
                    some.go(isa);
                    const std::vector<float> got = some.result();
                    for (std::size_t i = 0; i < static_cast<std::size_t>(m * n); ++i)
                        ASSERT_EQ(want[i], got[i]) << label(isa, type, format, m, n, k) << " element " << i;
                }
                // One row alone, wherever it stood.
                for (int t : {0, 3, 7}) {
                    Launch one(format, type, 8, n, k, isa);
                    one.m = 1;
                    one.rows = Rows().add(0, 0, 1);
                    one.p.x = static_cast<const char*>(one.x.data()) +
                              static_cast<std::size_t>(t * k) * size_of(type);
                    one.go(isa);
                    for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i)
                        ASSERT_EQ(want[static_cast<std::size_t>(t * n) + i], one.y.get(i))
                            << label(isa, type, format, 1, n, k);
                }
            }
}

TEST(Matmul, AnySplitOfItemsGivesTheSameBits) {
    for (const Isa isa : isas())
        for (const NamedFormat& format : few_formats())
            for (const int m : {1, 5, 40}) {
                const std::int64_t k = format.format.is_dense() ? 100 : 256, n = 333;
                Launch whole(format, DType::bf16, m, n, k, isa);
                whole.go(isa);
                for (const Split split : {Split::backwards, Split::random}) {
                    Launch other(format, DType::bf16, m, n, k, isa);
                    other.go(isa, split);
                    ASSERT_EQ(whole.y.copy(), other.y.copy()) << label(isa, DType::bf16, format, m, n, k);
                }
            }
}

// r(a) for the separate operations: the plain epilogue's y.
TEST(Matmul, PlainEpilogueRoundsTheSum) {
    for (const Isa isa : isas())
        for (const NamedFormat& format : few_formats())
            for (const DType type : types())
                for (const int m : {3, 20}) {
                    Launch wide(format, type, m, 41, 768, isa),
                        narrow(format, type, m, 41, 768, isa, false);
                    const std::vector<float> bias = normal(41, DType::f32, 9);
                    wide.p.bias = narrow.p.bias = bias.data();
                    wide.go(isa);
                    narrow.go(isa);
                    for (std::size_t i = 0; i < static_cast<std::size_t>(m * 41); ++i)
                        ASSERT_EQ(rounded(type, wide.y.get(i)), narrow.y.get(i))
                            << label(isa, type, format, m, 41, 768);
                }
}

TEST(Matmul, BiasAndSoftcap) {
    for (const Isa isa : isas())
        for (const int m : {2, 20}) {
            const NamedFormat format = few_formats()[2];
            Launch bare(format, DType::bf16, m, 41, 256, isa),
                capped(format, DType::bf16, m, 41, 256, isa);
            const std::vector<float> bias = normal(41, DType::f32, 9);
            capped.p.bias = bias.data();
            capped.p.softcap = 3;
            bare.go(isa);
            capped.go(isa);
            for (std::size_t i = 0; i < static_cast<std::size_t>(m * 41); ++i) {
                const float want = 3 * std::tanh((bare.y.get(i) + bias[i % 41]) / 3);
                ASSERT_NEAR(want, capped.y.get(i), 2e-6) << name_of(isa) << " element " << i;
            }
        }
}

TEST(Matmul, FusedAddEqualsTheAddKernel) {
    for (const Isa isa : isas())
        for (const DType type : types())
            for (const int m : {1, 6, 20}) {
                const NamedFormat format = few_formats()[3];
                Launch plain(format, type, m, 53, 768, isa, false),
                    fused(format, type, m, 53, 768, isa, false);
                plain.go(isa);
                fused.p.epilogue = Epilogue::add;
                fused.go(isa);
                AddParams add;
                add.type = type, add.a = plain.residual.data(), add.b = plain.y.data(),
                add.y = plain.y.data(), add.width = 53;
                run(add_kernel(add, isa), add, plain.rows.step());
                ASSERT_EQ(plain.y.copy(), fused.y.copy()) << label(isa, type, format, m, 53, 768);
                // In place: the residual is y.
                Launch in_place(format, type, m, 53, 768, isa, false);
                std::memcpy(in_place.y.data(), in_place.residual.data(), in_place.y.bytes());
                in_place.p.residual = in_place.p.y;
                in_place.p.epilogue = Epilogue::add;
                in_place.go(isa);
                ASSERT_EQ(fused.y.copy(), in_place.y.copy()) << label(isa, type, format, m, 53, 768);
            }
}

TEST(Matmul, FusedActMulEqualsItsParts) {
    for (const Isa isa : isas())
        for (const DType type : types())
            for (const int m : {1, 4, 8, 20})
                for (const ActKind act : {ActKind::silu, ActKind::gelu_tanh}) {
                    const NamedFormat format = few_formats()[m == 4 ? 1 : 3];
                    const std::int64_t n = 75, k = 512;
                    const std::vector<float> bias = normal(75, DType::f32, 9),
                                             bias2 = normal(75, DType::f32, 10);
                    Launch gate(format, type, m, n, k, isa, false),
                        up(format, type, m, n, k, isa, false);
                    gate.p.bias = bias.data();
                    up.p.w = &up.w2;
                    up.p.bias = bias2.data();
                    gate.go(isa);
                    up.go(isa);
                    Launch fused(format, type, m, n, k, isa, false);
                    fused.p.w2 = &fused.w2;
                    fused.p.bias = bias.data(), fused.p.bias2 = bias2.data();
                    fused.p.epilogue = Epilogue::act_mul;
                    fused.p.act = act;
                    fused.go(isa);
                    ActMulParams parts;
                    parts.type = type, parts.gate = gate.y.data(), parts.up = up.y.data(),
                    parts.y = gate.y.data();
                    parts.width = static_cast<int>(n), parts.act = act;
                    run(act_mul_kernel(parts, isa), parts, gate.rows.step());
                    ASSERT_EQ(gate.y.copy(), fused.y.copy()) << label(isa, type, format, m, n, k);
                }
}

// The two matrices of a feed-forward may be stored differently.
TEST(Matmul, ActMulOverTwoFormats) {
    const auto find = [](const std::string& name) {
        for (const NamedFormat& f : all_formats())
            if (f.name == name) return f;
        ADD_FAILURE() << name;
        return NamedFormat{};
    };
    for (const Isa isa : isas())
        for (const auto& [a, name] : {std::pair("gguf q4_k", "gguf q6_k"), {"gguf q4_k", "gguf q3_k"}, {"gguf q4_k", "gguf q8_0"},
                                      {"gguf q4_k", "gguf f16"}, {"gguf q4_k", "mlx q5/64 bf16 +bias"},
                                      {"gguf q4_k tiled", "gguf q6_k tiled"}, {"gguf q4_k tiled", "gguf q8_0 tiled"},
                                      {"gguf q4_k tiled", "gguf q4_k"}, {"gguf q4_k", "gguf q6_k tiled"},
                                      {"gguf bf16", "gguf q8_0 tiled"}, {"gguf q3_k tiled", "gguf f16"}})
            for (const int m : {1, 3}) {
                const NamedFormat first = find(a);
                const std::int64_t n = 40, k = 512;
                Launch gate(first, DType::bf16, m, n, k, isa, false),
                    up(find(name), DType::bf16, m, n, k, isa, false, 1);
                up.p.x = gate.x.data();
                Launch fused(first, DType::bf16, m, n, k, isa, false);
                fused.p.w2 = &up.w;
                fused.p.epilogue = Epilogue::act_mul;
                gate.go(isa);
                up.go(isa);
                fused.go(isa);
                ActMulParams parts;
                parts.type = DType::bf16, parts.gate = gate.y.data(), parts.up = up.y.data(),
                parts.y = gate.y.data();
                parts.width = static_cast<int>(n);
                run(act_mul_kernel(parts, isa), parts, gate.rows.step());
                ASSERT_EQ(gate.y.copy(), fused.y.copy()) << name_of(isa) << " " << name << " m " << m;
            }
}

TEST(Matmul, FusedNormEqualsTheNormKernel) {
    for (const Isa isa : isas())
        for (const DType type : types())
            for (const NormFormula formula :
                 {NormFormula::two_rounding, NormFormula::one_plus, NormFormula::one_rounding})
                for (const int m : {1, 5, 20})
                    for (const NamedFormat& format : few_formats()) {
                        if (formula != NormFormula::two_rounding && format.name != "gguf q4_0") continue;
                        const std::int64_t k = format.format.is_dense() ? 100 : 768, n = 19;
                        const std::vector<float> weight = normal(static_cast<std::size_t>(k), DType::bf16, 5);
                        Launch fused(format, type, m, n, k, isa),
                            parts(format, type, m, n, k, isa);
                        fused.p.norm_weight = weight.data();
                        fused.p.norm = formula;
                        fused.p.eps = 1e-5f;
                        fused.go(isa);
                        NormParams norm;
                        norm.type = type, norm.x = parts.x.data(), norm.y = parts.x.data(),
                        norm.weight = weight.data();
                        norm.norm = formula, norm.eps = 1e-5f, norm.width = static_cast<int>(k);
                        run(norm_kernel(norm, isa), norm, parts.rows.step());
                        parts.go(isa);
                        ASSERT_EQ(parts.y.copy(), fused.y.copy()) << label(isa, type, format, m, n, k);
                    }
}

// Launches with the same input prepare it once a step; other inputs, steps and orders do not mix.
TEST(Matmul, SharedInput) {
    for (const Isa isa : isas()) {
        const std::vector<NamedFormat> formats = few_formats();
        std::vector<std::unique_ptr<Launch>> launches;
        std::vector<std::vector<unsigned char>> want;
        for (std::size_t i = 0; i < formats.size(); ++i) {
            launches.push_back(std::make_unique<Launch>(formats[i], DType::bf16, 3, 40, 768, isa));
            launches.back()->go(isa);
            want.push_back(launches.back()->y.copy());
        }
        std::size_t scratch_bytes = 0;
        for (auto& launch : launches)
            scratch_bytes = std::max(scratch_bytes, matvec_kernel(launch->p, isa).scratch);
        Array scratch(DType::u8, scratch_bytes);
        CpuWorker worker;
        worker.scratch = {static_cast<std::byte*>(scratch.data()), scratch_bytes};
        for (int pass = 0; pass < 4; ++pass) {
            StepRows step = launches[0]->rows.step();
            step.serial = static_cast<std::uint64_t>(1 + pass / 2);
            for (std::size_t i = 0; i < launches.size(); ++i) {
                Launch& launch = *launches[pass % 2 ? launches.size() - 1 - i : i];
                launch.p.x = launches[0]->x.data();  // same values in all of them
                launch.p.input_tag = 7;
                std::memset(launch.y.data(), 0xff, launch.y.bytes());
                const CpuKernel kernel = matvec_kernel(launch.p, isa);
                kernel.fn(&launch.p, step, 0, kernel.items(&launch.p, step), worker);
                ASSERT_EQ(launch.y.copy(), want[pass % 2 ? launches.size() - 1 - i : i])
                    << name_of(isa) << " pass " << pass << " format " << i;
            }
            // Another input in between, as another kernel would use the scratch.
            Launch& other = *launches[2];
            other.p.input_tag = 8;
            const CpuKernel kernel = matvec_kernel(other.p, isa);
            kernel.fn(&other.p, step, 0, 1, worker);
        }
    }
}

// A step may want no logits: the head has nothing to do.
TEST(Matmul, NoRowsNoItems) {
    for (const Isa isa : isas()) {
        const Launch none(few_formats()[2], DType::bf16, 3, 40, 256, isa);
        const StepRows step{};
        EXPECT_EQ(matvec_kernel(none.p, isa).items(&none.p, step), 0);
        EXPECT_EQ(pack_kernel(none.p, isa).items(&none.p, step), 0);
        EXPECT_EQ(gemm_kernel(none.p, isa).items(&none.p, step), 0);
    }
}

// More rows than a tile of the gemm holds, and more columns than one dequantised tile.
TEST(Matmul, GemmBeyondOneTile) {
    for (const Isa isa : isas()) {
        if (isa == Isa::plain) continue;
        for (const char* name : {"gguf q4_k", "gguf q6_k", "gguf q3_k", "gguf bf16", "mlx q5/64 bf16 +bias",
                                 "gguf q4_k tiled", "gguf q6_k tiled", "gguf q3_k tiled", "gguf q8_0 tiled"})
            for (const NamedFormat& format : all_formats()) {
                if (format.name != name) continue;
                Launch launch(format, DType::bf16, 530, 14, 1280, isa);
                launch.go(isa);
                expect_close(launch, isa, label(isa, DType::bf16, format, 530, 14, 1280));
            }
    }
}

TEST(Matmul, SamePackingNeedsTheSameOrder) {
    const auto weight = [](const char* name) {
        for (const NamedFormat& f : all_formats())
            if (f.name == name) return random_weight(f, 1, 256, 1);
        return Weight{};
    };
    const Weight q4 = weight("gguf q4_k"), q6 = weight("gguf q6_k"), q2 = weight("gguf q2_k"),
                 dense = weight("gguf bf16");
    const Isa isa = detect_isa();
    EXPECT_TRUE(same_packing(q4, q6, DType::bf16, isa));
    if (isa != Isa::plain) {
        EXPECT_FALSE(same_packing(q4, q2, DType::bf16, isa));
        EXPECT_FALSE(same_packing(q4, dense, DType::bf16, isa));
    }
}

}  // namespace
}  // namespace forge::test
