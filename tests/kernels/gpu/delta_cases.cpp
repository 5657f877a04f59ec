#include <fmt/format.h>

#include "cases.h"
#include "kernels/delta/delta.h"

namespace forge::test {
namespace {

constexpr int kSlots = 3;

// Continued, fresh, continued: 6 or 20 rows.
Rows some_rows(int rows) {
    Rows r;
    if (rows == 6) r.add(1, 5, 3).add(0, 0, 2).add(2, 9, 1);
    else r.add(1, 5, 11).add(0, 0, 7).add(2, 9, 2);
    return r;
}

gpu::DeltaShape shape(int k_heads, int v_heads, int k_dim, int v_dim, bool tiled, bool negative) {
    gpu::DeltaShape s;
    s.n_k_heads = k_heads;
    s.n_v_heads = v_heads;
    s.k_dim = k_dim;
    s.v_dim = v_dim;
    s.conv_kernel = 4;
    s.tiled_heads = tiled;
    s.negative_exp = negative;
    return s;
}

DeltaState state_of(const gpu::DeltaShape& s, DType type, Array& conv, Array& delta) {
    DeltaState state;
    state.conv = conv.data();
    state.state = delta.floats();
    state.slots = kSlots;
    state.kernel = s.conv_kernel;
    state.channels = s.channels();
    state.n_k_heads = s.n_k_heads;
    state.n_v_heads = s.n_v_heads;
    state.k_dim = s.k_dim;
    state.v_dim = s.v_dim;
    state.type = type;
    return state;
}

GpuCase conv_case(const gpu::DeltaShape& s, DType type, int count_rows = 6) {
    const gpu::Kernel k = gpu::conv(common(type, count_rows), s);
    return {fmt::format("conv {} channels {} rows {}", s.channels(), name_of(type), count_rows), {k}, [=](GpuDevice& device, int order) {
                const Rows rows = some_rows(count_rows);
                const std::size_t channels = static_cast<std::size_t>(s.channels()), count = static_cast<std::size_t>(count_rows) * channels, states = kSlots * 3 * channels;
                Array u(type, normal(count, type, 1)), mine(type, normal(states, type, 2)), theirs(type, normal(states, type, 2)), none(DType::f32, 1), y(type, count), wanted(type, count);
                const std::vector<float> weight = normal(channels * 4, DType::f32, 3);
                ConvParams p{type, u.data(), weight.data(), wanted.data(), state_of(s, type, theirs, none)};
                run_plain(conv_kernel, p, rows.step());
                Bindings b;
                b.add("u", u).add("state", mine).add("y", y).floats("weight.codes", weight);
                EXPECT_EQ(device.run(k, b, rows.step(), count_rows, order), "");
                expect_close(y, wanted, count, type, type == DType::f32 ? 8 : 2, 1e-6);
                expect_close(mine, theirs, states, type, 0, 0);
            }};
}

GpuCase delta_case(const gpu::DeltaShape& s, DType type, int count_rows = 6) {
    const gpu::Kernel k = gpu::delta(common(type, count_rows), s);
    return {fmt::format("delta {}:{} heads {} x {} {} rows {}", s.n_k_heads, s.n_v_heads, s.k_dim, s.v_dim, name_of(type), count_rows), {k}, [=](GpuDevice& device, int order) {
                const Rows rows = some_rows(count_rows);
                const std::size_t heads = static_cast<std::size_t>(s.n_v_heads), channels = static_cast<std::size_t>(s.channels()), all = static_cast<std::size_t>(count_rows), outputs = all * heads * static_cast<std::size_t>(s.v_dim),
                                  states = kSlots * heads * static_cast<std::size_t>(s.k_dim * s.v_dim);
                Array c(type, normal(all * channels, type, 1)), beta(type, normal(all * heads, type, 2)), alpha(type, normal(all * heads, type, 3)), mine(DType::f32, normal(states, DType::f32, 4)),
                    theirs(DType::f32, normal(states, DType::f32, 4)), none(type, 1), y(type, outputs), wanted(type, outputs);
                const std::vector<float> bias = normal(heads, DType::f32, 6);
                std::vector<float> a_log = normal(heads, DType::f32, 5);
                if (s.negative_exp)
                    for (float& v : a_log) v = -std::exp(v);
                DeltaParams p;
                p.type = type;
                p.c = c.data();
                p.b = beta.data();
                p.a = alpha.data();
                p.a_log = a_log.data();
                p.dt_bias = bias.data();
                p.negative_exp = s.negative_exp;
                p.tiled_heads = s.tiled_heads;
                p.out = wanted.data();
                p.state = state_of(s, type, none, theirs);
                p.max_rows = count_rows;
                run_plain(delta_kernel, p, rows.step());
                Bindings b;
                b.add("c", c).add("b", beta).add("a", alpha).add("state", mine).add("y", y).floats("a_log.codes", a_log).floats("dt_bias.codes", bias);
                EXPECT_EQ(device.run(k, b, rows.step(), count_rows, order), "");
                expect_close(y, wanted, outputs, type, 2, 1e-5);
                expect_close(mine, theirs, states, DType::f32, 16, 1e-5);
            }};
}

GpuCase gated_norm_case(int heads, int width, DType type) {
    const gpu::Kernel k = gpu::gated_norm(common(type, 3), heads, width, 1e-6f);
    return {fmt::format("gated norm {} x {} {}", heads, width, name_of(type)), {k}, [=](GpuDevice& device, int order) {
                Rows rows;
                rows.add(0, 4, 3);
                const std::size_t count = static_cast<std::size_t>(3 * heads * width);
                Array x(type, normal(count, type, 1)), z(type, normal(count, type, 2)), y(type, count), wanted(type, count);
                const std::vector<float> weight = normal(static_cast<std::size_t>(width), DType::f32, 3);
                GatedNormParams p{type, x.data(), z.data(), weight.data(), 1e-6f, heads, width, wanted.data()};
                run_plain(gated_norm_kernel, p, rows.step());
                Bindings b;
                b.add("x", x).add("z", z).add("y", y).floats("weight.codes", weight);
                EXPECT_EQ(device.run(k, b, rows.step(), 3, order), "");
                expect_close(y, wanted, count, type, type == DType::f32 ? 8 : 2, 1e-6);
            }};
}

}  // namespace

std::vector<GpuCase> delta_cases(bool full) {
    std::vector<GpuCase> cases;
    for (const DType type : types()) {
        cases.push_back(conv_case(shape(2, 4, 16, 24, false, false), type));
        cases.push_back(delta_case(shape(2, 4, 16, 24, false, false), type));
        cases.push_back(conv_case(shape(2, 4, 16, 24, false, false), type, 20));
        cases.push_back(delta_case(shape(2, 4, 16, 24, false, false), type, 20));
        cases.push_back(gated_norm_case(3, 40, type));
        if (!full && type != DType::bf16) continue;
        cases.push_back(delta_case(shape(2, 6, 64, 64, true, true), type));
        cases.push_back(delta_case(shape(1, 2, 128, 128, false, false), type));
        cases.push_back(delta_case(shape(1, 1, 192, 33, false, true), type));
        cases.push_back(delta_case(shape(1, 2, 128, 128, false, false), type, 20));
        cases.push_back(delta_case(shape(1, 1, 192, 33, false, true), type, 20));
        cases.push_back(gated_norm_case(2, 128, type));
    }
    return cases;
}

}  // namespace forge::test
