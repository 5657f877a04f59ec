#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <cstring>
#include <numeric>

#include "cases.h"
#include "kernels/delta/delta.h"

namespace forge::test {
namespace {

constexpr int kSlots = 5;   // more than any step has

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

// Rows of the sequences of a step; a threadgroup takes 64 rows of a convolution, and those before see the state.
const std::vector<int> kSequences[] = {{3, 2, 1}, {11, 7, 2}, {62, 3, 64, 2, 1}, {63, 2, 63, 65, 7}, {64, 64, 1, 63, 2}, {61, 70}, {300}};

// Sequences of so many rows, every third one fresh.
Rows sequences(const std::vector<int>& counts) {
    Rows r;
    for (int i = 0; i < static_cast<int>(counts.size()); ++i) r.add((i * 2 + 1) % kSlots, i % 3 == 1 ? 0 : 3 * i + 2, counts[static_cast<std::size_t>(i)]);
    return r;
}

GpuCase conv_case(const gpu::DeltaShape& s, DType type, const std::vector<int>& counts) {
    const int count_rows = std::accumulate(counts.begin(), counts.end(), 0);
    const gpu::Kernel k = gpu::conv(common(type, count_rows), s);
    return {fmt::format("conv {} taps {} channels {} rows {}", s.conv_kernel, s.channels(), name_of(type), fmt::join(counts, " + ")), {k}, [=](GpuDevice& device, int order) {
                const Rows rows = sequences(counts);
                const std::size_t channels = static_cast<std::size_t>(s.channels()), count = static_cast<std::size_t>(count_rows) * channels, taps = static_cast<std::size_t>(s.conv_kernel),
                                  states = kSlots * (taps - 1) * channels;
                Array u(type, normal(count, type, 1)), mine(type, normal(states, type, 2)), theirs(type, normal(states, type, 2)), none(DType::f32, 1), y(type, count), wanted(type, count);
                const std::vector<float> weight = normal(channels * taps, DType::f32, 3);
                ConvParams p{type, u.data(), weight.data(), wanted.data(), state_of(s, type, theirs, none)};
                run_plain(conv_kernel, p, rows.step());
                Bindings b;
                b.add("u", u).add("state", mine).add("y", y).floats("weight.codes", weight);
                EXPECT_EQ(device.run(k, b, rows.step(), count_rows, order), "");
                expect_close(y, wanted, count, type, type == DType::f32 ? 8 : 2, 1e-6);
                expect_close(mine, theirs, states, type, 0, 0);
            }};
}

// The delta rule of `rows` by the kernel and by the plain one, each into a result and states of its own.
void run_both(GpuDevice& device, const gpu::Kernel& k, const gpu::DeltaShape& s, DType type, const Rows& rows, int most, int order, Array& c, Array& beta, Array& alpha, Array& mine, Array& theirs,
              Array& y, Array& wanted) {
    const auto heads = static_cast<std::size_t>(s.n_v_heads);
    Array none(type, 1);
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
    p.max_rows = most;
    run_plain(delta_kernel, p, rows.step());
    Bindings b;
    b.add("c", c).add("b", beta).add("a", alpha).add("state", mine).add("y", y).floats("a_log.codes", a_log).floats("dt_bias.codes", bias);
    EXPECT_EQ(device.run(k, b, rows.step(), most, order), "");
}

GpuCase delta_case(const gpu::DeltaShape& s, DType type, int count_rows = 6) {
    const gpu::Kernel k = gpu::delta(common(type, count_rows), s);
    return {fmt::format("delta {}:{} heads {} x {} {} rows {}", s.n_k_heads, s.n_v_heads, s.k_dim, s.v_dim, name_of(type), count_rows), {k}, [=](GpuDevice& device, int order) {
                const Rows rows = some_rows(count_rows);
                const std::size_t heads = static_cast<std::size_t>(s.n_v_heads), channels = static_cast<std::size_t>(s.channels()), all = static_cast<std::size_t>(count_rows), outputs = all * heads * static_cast<std::size_t>(s.v_dim),
                                  states = kSlots * heads * static_cast<std::size_t>(s.k_dim * s.v_dim);
                Array c(type, normal(all * channels, type, 1)), beta(type, normal(all * heads, type, 2)), alpha(type, normal(all * heads, type, 3)), mine(DType::f32, normal(states, DType::f32, 4)),
                    theirs(DType::f32, normal(states, DType::f32, 4)), y(type, outputs), wanted(type, outputs);
                run_both(device, k, s, type, rows, count_rows, order, c, beta, alpha, mine, theirs, y, wanted);
                expect_close(y, wanted, outputs, type, 2, 1e-5);
                expect_close(mine, theirs, states, DType::f32, 16, 1e-5);
            }};
}

// What decays, gates and keys are like.
enum class Kind { usual, equal_keys, kept, forgotten, both, large };
constexpr std::pair<Kind, const char*> kKinds[] = {{Kind::usual, "usual"}, {Kind::equal_keys, "equal keys, gates and decays 1"}, {Kind::kept, "gates and decays 1"},
                                                   {Kind::forgotten, "decays 0"}, {Kind::both, "decays 0 and 1"}, {Kind::large, "largest values"}};
struct Sequence { int slot, position, rows; };

// In chunks on tensor cores. Products are of numbers of 16 bits, their sums of f32: for the result and the state 2e-5 of the largest,
// a little more than what operands of some 16 bits (2^-17, three at a time) leave.
GpuCase chunks_case(const gpu::DeltaShape& s, DType type, gpu::Tensor tensor, const std::vector<Sequence>& sequences, Kind kind = Kind::usual) {
    constexpr int most = 512;
    gpu::Common c = common(type, most);
    c.limits.tensor = tensor;
    const gpu::Kernel k = gpu::delta(c, s);
    std::string name = fmt::format("delta in chunks of {} {}:{} heads {} x {} {}{} {}", tensor == gpu::Tensor::wgmma ? 64 : 32, s.n_k_heads, s.n_v_heads, s.k_dim, s.v_dim, name_of(type), s.tiled_heads ? " tiled" : "",
                                   kKinds[static_cast<int>(kind)].second);
    for (const Sequence& q : sequences) name += fmt::format(", slot {} rows {} to {}", q.slot, q.position, q.position + q.rows - 1);
    return {name, {k}, [=](GpuDevice& device, int order) {
                EXPECT_TRUE(gpu::delta_tensor_fits(c, s));
                Rows rows;
                for (const Sequence& q : sequences) rows.add(q.slot, q.position, q.rows);
                const std::size_t all = rows.positions.size(), heads = static_cast<std::size_t>(s.n_v_heads), channels = static_cast<std::size_t>(s.channels()), width = heads * static_cast<std::size_t>(s.v_dim),
                                  keys = static_cast<std::size_t>(2 * s.n_k_heads * s.k_dim), state = heads * static_cast<std::size_t>(s.k_dim * s.v_dim), states = kSlots * state, beyond = 3 * width;
                std::vector<float> values = normal(all * channels, type, 1), gates = normal(all * heads, type, 2), steps = normal(all * heads, type, 3);
                for (std::size_t i = 0; i < all * channels; ++i) {
                    const std::size_t column = i % channels;
                    if (kind == Kind::equal_keys && column < keys) values[i] = values[column];
                    if (kind == Kind::large && column >= keys) values[i] = values[i] < 0 ? -65504.0f : 65504.0f;   // f16 has no larger ones
                }
                for (std::size_t i = 0; i < all * heads; ++i) {
                    if (kind == Kind::equal_keys || kind == Kind::kept) gates[i] = 9, steps[i] = -14;
                    if (kind == Kind::forgotten) steps[i] = 40;
                    if (kind == Kind::both) steps[i] = i / heads % 7 == 3 ? 60.0f : -9.0f;
                }
                Array x(type, values), beta(type, gates), alpha(type, steps), mine(DType::f32, normal(states, DType::f32, 4)), theirs(DType::f32, normal(states, DType::f32, 4)),
                    y(type, all * width + beyond), wanted(type, all * width);
                const std::vector<float> before = normal(states, DType::f32, 4);
                run_both(device, k, s, type, rows, most, order, x, beta, alpha, mine, theirs, y, wanted);
                expect_close(y, wanted, all * width, type, 2, 2e-5);
                expect_close(mine, theirs, states, DType::f32, 16, 2e-5);
                for (std::size_t i = all * width; i < all * width + beyond; ++i)
                    if (!std::isnan(y.get(i))) {
                        ADD_FAILURE() << "wrote y behind the last row";
                        break;
                    }
                for (int slot = 0; slot < kSlots; ++slot) {
                    bool used = false;
                    for (const Sequence& q : sequences) used = used || q.slot == slot;
                    if (!used && std::memcmp(mine.floats() + static_cast<std::size_t>(slot) * state, before.data() + static_cast<std::size_t>(slot) * state, state * sizeof(float)) != 0)
                        ADD_FAILURE() << "changed the state of slot " << slot << ", which has no rows";
                }
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
        for (const std::vector<int>& counts : kSequences) cases.push_back(conv_case(shape(2, 4, 16, 24, false, false), type, counts));
        for (const int taps : {2, 6}) {
            gpu::DeltaShape s = shape(1, 2, 16, 24, false, false);
            s.conv_kernel = taps;
            cases.push_back(conv_case(s, type, {62, 3, 64, 2, 1}));
            cases.push_back(conv_case(s, type, {3, 60, 69, 4}));
        }
        cases.push_back(delta_case(shape(2, 4, 16, 24, false, false), type));
        cases.push_back(delta_case(shape(2, 4, 16, 24, false, false), type, 20));
        cases.push_back(gated_norm_case(3, 40, type));
        cases.push_back(gated_norm_case(13, 64, type));
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

std::vector<GpuCase> delta_tensor_cases(bool full) {
    std::vector<GpuCase> cases;
    const gpu::DeltaShape shapes[] = {shape(1, 2, 128, 128, false, false), shape(2, 6, 64, 64, true, true), shape(2, 4, 128, 64, false, true), shape(1, 1, 64, 128, false, false),
                                      shape(2, 4, 16, 16, true, false), shape(1, 2, 32, 48, false, false), shape(1, 2, 48, 80, false, true), shape(1, 1, 112, 32, false, false)};
    const std::vector<Sequence> several = {{1, 5, 70}, {0, 0, 33}, {3, 64, 1}, {4, 0, 1}, {2, 63, 140}};
    for (const DType type : {DType::bf16, DType::f16})
        for (const gpu::Tensor tensor : {gpu::Tensor::wgmma, gpu::Tensor::mma_sync}) {
            const bool every = full || (type == DType::bf16 && tensor == gpu::Tensor::wgmma);
            for (const int rows : {1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 129, 300, 512}) {
                if (!every && rows != 65) continue;
                cases.push_back(chunks_case(shapes[0], type, tensor, {{1, 0, rows}}));
                cases.push_back(chunks_case(shapes[0], type, tensor, {{2, 37, rows}}));
            }
            for (const auto& [kind, name] : kKinds)
                if (every || kind == Kind::equal_keys) cases.push_back(chunks_case(shapes[0], type, tensor, several, kind));
            for (const gpu::DeltaShape& s : shapes) {
                if (!every && s.v_dim != 48) continue;
                cases.push_back(chunks_case(s, type, tensor, several));
                cases.push_back(chunks_case(s, type, tensor, {{0, 100, 9}, {1, 0, 130}}, Kind::both));
            }
        }
    return cases;
}

}  // namespace forge::test
