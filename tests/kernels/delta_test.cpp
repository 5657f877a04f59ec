// Gated DeltaNet's kernels against double-precision references written here,
// and against published vectors of the recurrence.
#include "kernels/delta/delta.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "kernel_test.h"

namespace forge::test {
namespace {

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

struct Shape { int k_heads, v_heads, k_dim, v_dim; };

std::string describe(const Shape& s, Isa isa, DType type) {
    return std::string(name_of(isa)) + " " + std::string(name_of(type)) + " heads " + std::to_string(s.k_heads) + "/" + std::to_string(s.v_heads) +
           " dims " + std::to_string(s.k_dim) + "x" + std::to_string(s.v_dim);
}

// Inputs and states of the delta rule, and what they should become.
struct Delta {
    Delta(const Shape& shape, DType type, int rows, int slots, bool tiled = false, unsigned seed = 1) : shape(shape), type(type), rows(rows), tiled(tiled) {
        const auto m = static_cast<std::size_t>(rows), heads = static_cast<std::size_t>(shape.v_heads);
        channels = 2 * shape.k_heads * shape.k_dim + shape.v_heads * shape.v_dim;
        c = normal(m * static_cast<std::size_t>(channels), type, seed);
        a = normal(m * heads, type, seed + 1);
        b = normal(m * heads, type, seed + 2);
        a_log = normal(heads, DType::f32, seed + 3, 0.7f);
        dt_bias = normal(heads, DType::f32, seed + 4, 0.7f);
        for (float& x : dt_bias) x -= 2;   // decays from a few rows to a few dozen
        state = normal(static_cast<std::size_t>(slots) * heads * static_cast<std::size_t>(shape.k_dim * shape.v_dim), DType::f32, seed + 5, 0.3f);
        exact.assign(state.begin(), state.end());
    }

    // Row by row in double precision; states travel in `exact`.
    std::vector<double> expected(const StepRows& step) {
        const auto dk = static_cast<std::size_t>(shape.k_dim), dv = static_cast<std::size_t>(shape.v_dim);
        std::vector<double> out(static_cast<std::size_t>(rows * shape.v_heads) * dv);
        for (int r = 0; r < step.m; ++r)
            for (int h = 0; h < shape.v_heads; ++h) {
                const int kh = tiled ? h % shape.k_heads : h / (shape.v_heads / shape.k_heads);
                const float* row = &c[static_cast<std::size_t>(r) * static_cast<std::size_t>(channels)];
                const auto unit = [&](const float* x, double scale) {
                    double squares = 1e-6;
                    for (std::size_t i = 0; i < dk; ++i) squares += double(x[i]) * x[i];
                    std::vector<double> y(dk);
                    for (std::size_t i = 0; i < dk; ++i) y[i] = x[i] * scale / std::sqrt(squares);
                    return y;
                };
                const auto q = unit(row + kh * shape.k_dim, 1 / std::sqrt(double(dk))), k = unit(row + (shape.k_heads + kh) * shape.k_dim, 1);
                const float* v = row + 2 * shape.k_heads * shape.k_dim + h * shape.v_dim;
                const auto at = static_cast<std::size_t>(r * shape.v_heads + h);
                const double decay = std::exp((negative_exp ? a_log[static_cast<std::size_t>(h)] : -std::exp(double(a_log[static_cast<std::size_t>(h)]))) *
                                              std::log1p(std::exp(double(a[at]) + dt_bias[static_cast<std::size_t>(h)])));
                const double beta = rounded(type, 1 / (1 + std::exp(-b[at])));   // in f32, so that it rounds to the same side
                double* s = &exact[(static_cast<std::size_t>(step.slots[r]) * static_cast<std::size_t>(shape.v_heads) + static_cast<std::size_t>(h)) * dk * dv];
                for (std::size_t j = 0; j < dv; ++j) {
                    double seen = 0, o = 0;
                    for (std::size_t i = 0; i < dk; ++i) {
                        s[i * dv + j] = step.positions[r] == 0 ? 0 : s[i * dv + j] * decay;
                        seen += s[i * dv + j] * k[i];
                    }
                    for (std::size_t i = 0; i < dk; ++i) {
                        s[i * dv + j] += k[i] * beta * (v[j] - seen);
                        o += s[i * dv + j] * q[i];
                    }
                    out[at * dv + j] = o;
                }
            }
        return out;
    }

    // The kernel over rows [first, first + m of the step); `states` are updated. Outputs are poisoned before.
    std::vector<float> run_kernel(Isa isa, const StepRows& step, int first, Array& states, Split split) {
        const auto from = static_cast<std::size_t>(first), m = static_cast<std::size_t>(step.m), heads = static_cast<std::size_t>(shape.v_heads);
        const auto part = [&](const std::vector<float>& all, std::size_t width) {
            return std::vector<float>(all.begin() + static_cast<std::ptrdiff_t>(from * width), all.begin() + static_cast<std::ptrdiff_t>((from + m) * width));
        };
        Array ca(type, part(c, static_cast<std::size_t>(channels))), aa(type, part(a, heads)), ba(type, part(b, heads));
        Array out(type, m * heads * static_cast<std::size_t>(shape.v_dim));
        DeltaParams p;
        p.type = type;
        p.c = ca.data();
        p.a = aa.data();
        p.b = ba.data();
        p.a_log = a_log.data();
        p.dt_bias = dt_bias.data();
        p.negative_exp = negative_exp;
        p.tiled_heads = tiled;
        p.out = out.data();
        p.max_rows = step.m;
        p.state.state = states.floats();
        p.state.channels = channels;
        p.state.n_k_heads = shape.k_heads;
        p.state.n_v_heads = shape.v_heads;
        p.state.k_dim = shape.k_dim;
        p.state.v_dim = shape.v_dim;
        p.state.type = type;
        Array za(type, z);
        if (!z.empty()) {
            p.z = za.data();
            p.norm_weight = norm_weight.data();
            p.norm_eps = 1e-6f;
        }
        run(delta_kernel(p, isa), p, step, split);
        std::vector<float> y;
        for (std::size_t i = 0; i < m * heads * static_cast<std::size_t>(shape.v_dim); ++i) y.push_back(out.get(i));
        return y;
    }

    Shape shape;
    DType type;
    int rows, channels = 0;
    bool tiled, negative_exp = false;
    std::vector<float> c, a, b, a_log, dt_bias, state;
    std::vector<float> z, norm_weight;   // given: the norm is fused
    std::vector<double> exact;
};

void expect_close(const std::vector<float>& found, const std::vector<double>& expected, double relative, const std::string& what) {
    ASSERT_EQ(found.size(), expected.size()) << what;
    double largest = 0, worst = 0;
    for (const double x : expected) largest = std::max(largest, std::abs(x));
    for (std::size_t i = 0; i < found.size(); ++i) {
        ASSERT_FALSE(std::isnan(found[i])) << what << ": element " << i << " was not written";
        worst = std::max(worst, std::abs(found[i] - expected[i]));
    }
    EXPECT_LE(worst, relative * largest) << what;
}

std::vector<float> values(const Array& array, std::size_t count) {
    std::vector<float> out;
    for (std::size_t i = 0; i < count; ++i) out.push_back(array.get(i));
    return out;
}

TEST(DeltaTest, RaggedShapesAndSequences) {
    const Shape shapes[] = {{1, 1, 4, 3}, {2, 6, 12, 10}, {1, 2, 16, 16}, {2, 4, 24, 33}, {1, 3, 40, 64}, {2, 2, 128, 128}};
    // One user, several, a prompt beside others, blocks that end within a sequence.
    const std::vector<Rows> steps = {Rows().add(0, 5, 1), Rows().add(2, 0, 3).add(0, 9, 1).add(1, 4, 4), Rows().add(1, 0, 9), Rows().add(0, 3, 16).add(2, 0, 1).add(1, 7, 33)};
    for (const Shape& shape : shapes)
        for (const Isa isa : isas())
            for (const DType type : types())
                for (const Rows& rows : steps)
                    for (const bool odd : {false, true}) {
                        const StepRows step = rows.step();
                        Delta data(shape, type, step.m, 3, odd, static_cast<unsigned>(step.m));
                        data.negative_exp = odd;
                        if (odd)
                            for (float& x : data.a_log) x = -std::exp(x);
                        const std::vector<double> expected = data.expected(step);
                        Array states(DType::f32, data.state);
                        const auto found = data.run_kernel(isa, step, 0, states, Split::random);
                        const std::string what = describe(shape, isa, type) + " rows " + std::to_string(step.m);
                        expect_close(found, expected, 1.01 * unit_roundoff(type) + 2e-6, what);
                        expect_close(values(states, data.state.size()), data.exact, 2e-6, what + " state");
                    }
}

// Prompts of 521 rows cut at 1, 7, 64 and 512: the same within f32 rounding.
TEST(DeltaTest, ChunksOfAnySizeAgreeWithRowByRow) {
    for (const Isa isa : isas()) {
        Delta data({1, 2, 32, 32}, DType::f32, 521, 1);
        const Rows all = Rows().add(0, 0, 521);
        const std::vector<double> expected = data.expected(all.step());
        for (const int chunk : {1, 7, 64, 512}) {
            Array states(DType::f32, data.state);
            std::vector<float> found;
            for (int first = 0; first < 521; first += chunk) {
                const Rows rows = Rows().add(0, first, std::min(chunk, 521 - first));
                const auto part = data.run_kernel(isa, rows.step(), first, states, Split::whole);
                found.insert(found.end(), part.begin(), part.end());
            }
            const std::string what = std::string(name_of(isa)) + " chunks of " + std::to_string(chunk);
            expect_close(found, expected, 1e-5, what);
            expect_close(values(states, data.state.size()), data.exact, 1e-5, what + " state");
        }
    }
}

// A row of a small step has the same bits alone and beside others, however the items are shared out.
TEST(DeltaTest, SmallStepsGiveTheSameBits) {
    for (const Isa isa : isas()) {
        Delta data({2, 4, 24, 40}, DType::bf16, 8, 8);
        Rows all;
        for (int slot = 0; slot < 8; ++slot) all.add(slot, 3 + slot, 1);
        Array together(DType::f32, data.state), alone(DType::f32, data.state);
        const auto found = data.run_kernel(isa, all.step(), 0, together, Split::backwards);
        std::vector<float> single;
        for (int slot = 0; slot < 8; ++slot) {
            const Rows one = Rows().add(slot, 3 + slot, 1);
            const auto part = data.run_kernel(isa, one.step(), slot, alone, Split::random);
            single.insert(single.end(), part.begin(), part.end());
        }
        EXPECT_EQ(found, single) << name_of(isa);
        EXPECT_EQ(together.copy(), alone.copy()) << name_of(isa);
    }
}

TEST(DeltaTest, FusedNormGivesTheSameBits) {
    for (const Isa isa : isas())
        for (const DType type : types())
            for (const Shape& shape : {Shape{2, 4, 24, 40}, Shape{1, 2, 16, 3}, Shape{2, 2, 128, 128}, Shape{1, 1, 8, 200}}) {
                const Rows rows = Rows().add(1, 0, 3).add(0, 7, 1).add(2, 3, 2);
                const StepRows step = rows.step();
                const std::size_t count = static_cast<std::size_t>(step.m * shape.v_heads * shape.v_dim);
                Delta data(shape, type, step.m, 3);
                Array apart(DType::f32, data.state), fused(DType::f32, data.state);
                const auto read = data.run_kernel(isa, step, 0, apart, Split::random);
                data.z = normal(count, type, 8);
                data.norm_weight = normal(static_cast<std::size_t>(shape.v_dim), DType::bf16, 9);
                Array x(type, read), z(type, data.z), y(type, count);
                GatedNormParams n;
                n.type = type;
                n.x = x.data();
                n.z = z.data();
                n.weight = data.norm_weight.data();
                n.eps = 1e-6f;
                n.heads = shape.v_heads;
                n.width = shape.v_dim;
                n.y = y.data();
                run(gated_norm_kernel(n, isa), n, step, Split::backwards);
                EXPECT_EQ(data.run_kernel(isa, step, 0, fused, Split::backwards), values(y, count)) << describe(shape, isa, type);
                EXPECT_EQ(fused.copy(), apart.copy()) << describe(shape, isa, type);
            }
}

TEST(DeltaTest, PublishedVectors) {
    std::ifstream in(FORGE_TEST_DATA "/kernels/gated_delta_rule.json");
    const auto json = nlohmann::json::parse(in);
    const int dk = json["dk"], dv = json["dv"], rows = json["T"];
    for (const Isa isa : isas())
        for (const int chunk : {1, 4, rows}) {
            Delta data({1, 1, dk, dv}, DType::f32, rows, 1);
            data.negative_exp = true;
            data.a_log = {-1};   // g = -softplus(a)
            data.dt_bias = {0};
            data.c.clear();
            std::vector<double> expected, final_state;
            for (std::size_t t = 0; t < static_cast<std::size_t>(rows); ++t) {
                for (const char* part : {"q_raw", "k_raw", "v"})
                    for (const double x : json[part][t]) data.c.push_back(static_cast<float>(x));
                data.a[t] = static_cast<float>(std::log(std::expm1(-json["g_log_decay"][t].get<double>())));
                const double beta = json["beta"][t];
                data.b[t] = static_cast<float>(std::log(beta / (1 - beta)));
                for (const double x : json["out"][t]) expected.push_back(x);
            }
            data.state.clear();
            for (const auto& row : json["S0_dk_by_dv"])
                for (const double x : row) data.state.push_back(static_cast<float>(x));
            for (const auto& row : json["S_final"])
                for (const double x : row) final_state.push_back(x);
            Array states(DType::f32, data.state);
            std::vector<float> found;
            for (int first = 0; first < rows; first += chunk) {
                const Rows part = Rows().add(0, 1 + first, std::min(chunk, rows - first));
                const auto y = data.run_kernel(isa, part.step(), first, states, Split::whole);
                found.insert(found.end(), y.begin(), y.end());
            }
            const std::string what = std::string(name_of(isa)) + " chunks of " + std::to_string(chunk);
            expect_close(found, expected, 2e-6, what);
            expect_close(values(states, data.state.size()), final_state, 2e-6, what + " state");
        }
}

TEST(DeltaTest, Convolution) {
    for (const Isa isa : isas())
        for (const DType type : types())
            for (const int taps : {2, 4, 5})
                for (const int channels : {3, 16, 65, 140, 531}) {
                    const Rows rows = Rows().add(1, 0, 2).add(0, 7, 11).add(2, 3, 1);
                    const StepRows step = rows.step();
                    const auto m = static_cast<std::size_t>(step.m), width = static_cast<std::size_t>(channels), before = static_cast<std::size_t>(taps - 1);
                    const auto u = normal(m * width, type, 1), state = normal(3 * before * width, type, 2), weight = normal(width * static_cast<std::size_t>(taps), DType::f32, 3, 0.6f);
                    Array ua(type, u), ca(type, u.size()), sa(type, state);
                    ConvParams p;
                    p.type = type;
                    p.u = ua.data();
                    p.weight = weight.data();
                    p.c = ca.data();
                    p.state.conv = sa.data();
                    p.state.slots = 3;
                    p.state.kernel = taps;
                    p.state.channels = channels;
                    p.state.type = type;
                    run(conv_kernel(p, isa), p, step, Split::random);
                    const std::string what = std::string(name_of(isa)) + " " + std::string(name_of(type)) + " taps " + std::to_string(taps) + " channels " + std::to_string(channels);
                    std::vector<float> after = state;
                    for (std::size_t r = 0; r < m; ++r) {
                        const auto slot = static_cast<std::size_t>(step.slots[r]);
                        for (std::size_t c = 0; c < width; ++c) {
                            float* past = &after[slot * before * width + c];   // oldest first, `width` apart
                            if (step.positions[r] == 0)
                                for (std::size_t j = 0; j < before; ++j) past[j * width] = 0;
                            double sum = 0;
                            for (std::size_t j = 0; j < before; ++j) sum += double(weight[c * static_cast<std::size_t>(taps) + j]) * past[j * width];
                            sum += double(weight[c * static_cast<std::size_t>(taps) + before]) * u[r * width + c];
                            for (std::size_t j = 0; j + 1 < before; ++j) past[j * width] = past[(j + 1) * width];
                            past[(before - 1) * width] = u[r * width + c];
                            // The sum is rounded, perhaps to the other side, and so is the result.
                            const double expected = sum * sigmoid(sum);
                            ASSERT_LE(std::abs(ca.get(r * width + c) - expected), 4 * unit_roundoff(type) * (std::abs(sum) + std::abs(expected)) + 1e-6) << what << " row " << r << " channel " << c;
                        }
                    }
                    for (std::size_t i = 0; i < after.size(); ++i) ASSERT_EQ(sa.get(i), after[i]) << what << " state " << i;
                }
}

TEST(DeltaTest, GatedNormAndHeadGate) {
    const Rows rows = Rows().add(0, 0, 5);
    for (const Isa isa : isas())
        for (const DType type : types())
            for (const int width : {3, 16, 31, 128}) {
                const std::string what = std::string(name_of(isa)) + " " + std::string(name_of(type)) + " width " + std::to_string(width);
                const auto w = static_cast<std::size_t>(width), heads = std::size_t{3}, count = 5 * heads * w;
                const auto x = normal(count, type, 1, 2), z = normal(count, type, 2), weight = normal(w, DType::bf16, 3);
                Array xa(type, x), za(type, z), y(type, count);
                GatedNormParams n;
                n.type = type;
                n.x = xa.data();
                n.z = za.data();
                n.weight = weight.data();
                n.eps = 1e-6f;
                n.heads = 3;
                n.width = width;
                n.y = y.data();
                run(gated_norm_kernel(n, isa), n, rows.step(), Split::random);
                const auto gates = normal(2 * count, type, 4);
                Array qa(type, gates), o(type, count);
                HeadGateParams g;
                g.type = type;
                g.x = xa.data();
                g.q = qa.data();
                g.heads = 3;
                g.head_dim = width;
                g.y = o.data();
                run(head_gate_kernel(g, isa), g, rows.step(), Split::backwards);
                for (std::size_t i = 0; i < 5 * heads; ++i) {
                    double squares = 0;
                    for (std::size_t c = 0; c < w; ++c) squares += double(x[i * w + c]) * x[i * w + c];
                    const double factor = 1 / std::sqrt(squares / width + 1e-6);
                    for (std::size_t c = 0; c < w; ++c) {
                        const double normed = x[i * w + c] * factor * weight[c] * z[i * w + c] * sigmoid(z[i * w + c]);
                        ASSERT_LE(std::abs(y.get(i * w + c) - normed), 4 * unit_roundoff(type) * std::abs(normed) + 1e-6) << what;
                        const double gated = x[i * w + c] * sigmoid(gates[(2 * i + 1) * w + c]);
                        ASSERT_LE(std::abs(o.get(i * w + c) - gated), 3 * unit_roundoff(type) * std::abs(gated) + 1e-6) << what;
                    }
                }
            }
}

}  // namespace
}  // namespace forge::test
