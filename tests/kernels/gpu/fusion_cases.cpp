// Fused kernels against the kernels that they replace: the same bits.
#include <fmt/format.h>

#include <climits>

#include "cases.h"

namespace forge::test {
namespace {

void expect_same(const Array& got, const Array& wanted) { EXPECT_EQ(got.copy(), wanted.copy()); }

enum class Tiles { small, large, codes };   // codes: 4-bit ones on NVIDIA's tensor cores
gpu::Common with(Tiles tiles, DType type, int max_rows) {
    gpu::Common c = common(type, max_rows);
    c.limits.wide = tiles != Tiles::small;
    if (tiles == Tiles::codes) c.limits.tensor = gpu::Tensor::mma_sync;
    c.limits.tensor_codes = 1;
    return c;
}

// Three sequences: continued, fresh, continued; or a single row.
Rows some_rows(int rows) {
    Rows r;
    if (rows == 1) return std::move(r.add(1, 5, 1));
    return std::move(r.add(1, 5, rows - 2).add(0, 0, 1).add(2, 9, 1));
}

// A product of what the delta rule leaves, normed head by head and gated.
GpuCase gated_product(const WeightFormat& format, int heads, int width, int n, DType type, int rows, bool residual, Tiles tiles) {
    const auto w = std::make_shared<Weight>(random_weight(format, n, heads * width, 7));
    const gpu::Common c = with(tiles, type, rows);
    gpu::MatvecShape s;
    s.w = w.get();
    s.eps = 1e-6f;
    s.x_rows = rows;
    s.epilogue = residual ? Epilogue::add : Epilogue::none;
    const gpu::Kernel apart = gpu::matvec(c, s), norm = gpu::gated_norm(c, heads, width, 1e-6f, "norm_weight", "normed");
    s.gated_head = width;
    const gpu::Kernel fused = gpu::matvec(c, s);
    return {fmt::format("gated {} x {} to {} {} rows {}", heads, width, n, name_of(type), rows), {apart, norm, fused}, [=](GpuDevice& device, int order) {
                const std::size_t in = static_cast<std::size_t>(rows * heads * width), out = static_cast<std::size_t>(rows * n);
                Array x(type, normal(in, type, 1)), z(type, normal(in, type, 2)), r(type, normal(out, type, 3)), normed(type, in), y(type, out), wanted(type, out);
                const std::vector<float> weight = normal(static_cast<std::size_t>(width), DType::f32, 4);
                const Rows step = some_rows(rows);
                Bindings b;
                b.add("x", x).add("z", z).add("residual", r).add("normed", normed).floats("norm_weight.codes", weight).weight("weight", *w);
                EXPECT_EQ(device.run(norm, b, step.step(), rows, order), "");
                b.add("x", normed).add("y", wanted);
                EXPECT_EQ(device.run(apart, b, step.step(), rows, order), "");
                b.add("x", x).add("y", y);
                EXPECT_EQ(device.run(fused, b, step.step(), rows, order), "");
                expect_same(y, wanted);
            }};
}

// A product whose results go through a convolution.
GpuCase convolved_product(const WeightFormat& format, int k_heads, int v_heads, int dim, int k, DType type, int rows, Tiles tiles) {
    gpu::DeltaShape d;
    d.n_k_heads = k_heads;
    d.n_v_heads = v_heads;
    d.k_dim = d.v_dim = dim;
    const int channels = d.channels();
    const auto w = std::make_shared<Weight>(random_weight(format, channels, k, 7));
    const gpu::Common c = with(tiles, type, rows);
    gpu::MatvecShape s;
    s.w = w.get();
    s.norm = true;
    s.eps = 1e-6f;
    s.x_rows = rows;
    const gpu::Kernel apart = gpu::matvec(c, s), conv = gpu::conv(c, d);
    s.conv = true;
    const gpu::Kernel fused = gpu::matvec(c, s);
    return {fmt::format("product and convolution of {} channels {} rows {}", channels, name_of(type), rows), {apart, conv, fused}, [=](GpuDevice& device, int order) {
                const std::size_t out = static_cast<std::size_t>(rows * channels), states = static_cast<std::size_t>(3 * 3 * channels);
                Array x(type, normal(static_cast<std::size_t>(rows * k), type, 1)), u(type, out), y(type, out), wanted(type, out), mine(type, normal(states, type, 2)), theirs(type, normal(states, type, 2));
                const std::vector<float> taps = normal(static_cast<std::size_t>(channels * 4), DType::f32, 3), norm = normal(static_cast<std::size_t>(k), DType::f32, 4);
                const Rows step = some_rows(rows);
                Bindings b;
                b.add("x", x).add("y", u).weight("weight", *w).floats("norm_weight.codes", norm);
                EXPECT_EQ(device.run(apart, b, step.step(), rows, order), "");
                b.add("y", y).add("conv_state", mine).floats("conv_weight.codes", taps);
                EXPECT_EQ(device.run(fused, b, step.step(), rows, order), "");
                b.add("u", u).add("y", wanted).add("state", theirs).floats("weight.codes", taps);
                EXPECT_EQ(device.run(conv, b, step.step(), rows, order), "");
                expect_same(y, wanted);
                expect_same(mine, theirs);
            }};
}

// A product shared out evenly among eight cores, by so many threads a threadgroup, against 256 threads.
GpuCase even_product(const char* format, int n, int k, Epilogue epilogue, DType type, bool norm, Tiles tiles, int threads) {
    const auto w = std::make_shared<Weight>(random_weight(named(format).format, n, k, 7)), w2 = std::make_shared<Weight>(random_weight(named(format).format, n, k, 8));
    gpu::Common c = with(tiles, type, 1);
    gpu::MatvecShape s;
    s.w = w.get();
    s.w2 = epilogue == Epilogue::act_mul ? w2.get() : nullptr;
    s.norm = norm;
    s.eps = 1e-6f;
    s.epilogue = epilogue;
    EXPECT_EQ(gpu::matvec_tiles(c, s, true)[0].threads, threads);
    const gpu::Kernel even = gpu::matvec(c, s);
    c.limits.even = false;
    EXPECT_EQ(gpu::matvec_tiles(c, s, true)[0].threads, 256);
    const gpu::Kernel uneven = gpu::matvec(c, s);
    return {fmt::format("{} of {} x {} by {} threads {}", format, n, k, threads, name_of(type)), {even, uneven}, [=](GpuDevice& device, int order) {
                Array x(type, normal(static_cast<std::size_t>(k), type, 1)), residual(type, normal(static_cast<std::size_t>(n), type, 2)), y(type, static_cast<std::size_t>(n)), wanted(type, static_cast<std::size_t>(n));
                const std::vector<float> weights = normal(static_cast<std::size_t>(k), DType::f32, 3);
                const Rows step = some_rows(1);
                Bindings b;
                b.add("x", x).add("y", wanted).add("residual", residual).weight("weight", *w).weight("weight2", *w2).floats("norm_weight.codes", weights);
                EXPECT_EQ(device.run(uneven, b, step.step(), 1, order), "");
                b.add("y", y);
                EXPECT_EQ(device.run(even, b, step.step(), 1, order), "");
                expect_same(y, wanted);
            }};
}

constexpr int kCapacity = 320;

// Decode attention without tensor cores, with them, or with a ring of keys and values (against the same without).
enum class Decode { plain, tensor, far };
gpu::Common attending(DType type, int max_rows, Decode how) {
    gpu::Common c = common(type, max_rows);
    if (how == Decode::tensor) c.limits.tensor = gpu::Tensor::mma_sync;
    if (how == Decode::far) {
        c.limits.tensor = gpu::Tensor::wgmma;
        c.limits.cores = 2;   // two long parts at most, from position 256 on
        c.limits.near_positions = 256;
    }
    return c;
}

gpu::AttentionShape decode_shape(int heads, int kv, int head_dim, int window) {
    gpu::AttentionShape s;
    s.n_heads = heads;
    s.n_kv_heads = kv;
    s.head_dim = head_dim;
    s.capacity = kCapacity;
    s.scale = 0.2f;
    s.window = window;
    s.eps = 1e-6f;
    return s;
}

struct Form { bool q_norm, k_norm, gated, v_norm, v_from_k, writes; int half; NormFormula formula; };

// One row's attention with its preparation, and gates with the merging of parts.
GpuCase whole_attention(int heads, int kv, int head_dim, int position, int window, DType type, const Form& f, Decode how = Decode::plain) {
    const gpu::Common c = attending(type, 1, how);
    gpu::AttentionShape s = decode_shape(heads, kv, head_dim, window);
    s.q_norm = f.q_norm;
    s.k_norm = f.k_norm;
    s.gated = f.gated;
    s.v_norm = f.v_norm;
    s.v_from_k = f.v_from_k;
    s.writes = f.writes;
    s.rope_half = f.half;
    s.formula = f.formula;
    const gpu::Kernel prepare = gpu::qk_prepare(c, s), apart = gpu::attention_decode(c, s), gated_merge = gpu::attention_combine(c, s);
    s.fused = true;
    s.far = how == Decode::far;
    const gpu::Kernel fused = gpu::attention_decode(c, s);
    s.gated = false;
    const gpu::Kernel merge = gpu::attention_combine(c, s), gate = gpu::head_gate(c, heads, head_dim);
    return {fmt::format("whole attention {}:{} x {} at {} window {} {}{}", heads, kv, head_dim, position, window, name_of(type), s.far ? " far" : ""), {prepare, apart, fused, merge, gate, gated_merge}, [=](GpuDevice& device, int order) {
                const std::size_t qs = static_cast<std::size_t>(heads * head_dim), ks = static_cast<std::size_t>(kv * head_dim), cache = 3 * ks * kCapacity;
                Array q(type, normal(f.gated ? 2 * qs : qs, type, 1)), k(type, normal(ks, type, 2)), v(type, normal(ks, type, 3)), query(type, qs);
                Array keys(type, normal(cache, type, 4)), values(type, normal(cache, type, 5)), keys2(type, normal(cache, type, 4)), values2(type, normal(cache, type, 5));
                const std::size_t words = gpu::attention_partial_bytes(1, heads, head_dim, kCapacity) / 4;
                Array partial(DType::f32, words), partial2(DType::f32, words), y(type, qs), wanted(type, qs);
                const std::vector<float> qn = normal(static_cast<std::size_t>(head_dim), DType::f32, 6), kn = normal(static_cast<std::size_t>(head_dim), DType::f32, 7),
                                         angles = normal(static_cast<std::size_t>(kCapacity * 2 * f.half), DType::f32, 8);
                Rows step;
                step.add(1, position, 1);
                Bindings b;
                b.add("q", q).add("k", k).add("v", v).add("y", query).add("keys", keys).add("values", values).add("partial", partial);
                b.floats("q_norm.codes", qn).floats("k_norm.codes", kn).floats("rope_angles", angles);
                EXPECT_EQ(device.run(prepare, b, step.step(), 1, order), "");
                b.add("q", query);
                EXPECT_EQ(device.run(apart, b, step.step(), 1, order), "");
                b.add("q", q).add("keys", keys2).add("values", values2).add("partial", partial2);
                EXPECT_EQ(device.run(fused, b, step.step(), 1, order), "");
                expect_same(partial2, partial);
                expect_same(keys2, keys);
                expect_same(values2, values);
                if (!f.gated) return;
                Array merged(type, qs);
                b.add("y", merged);
                EXPECT_EQ(device.run(merge, b, step.step(), 1, order), "");
                b.add("x", merged).add("y", wanted);
                EXPECT_EQ(device.run(gate, b, step.step(), 1, order), "");
                b.add("y", y);
                EXPECT_EQ(device.run(gated_merge, b, step.step(), 1, order), "");
                expect_same(y, wanted);
            }};
}

// Decode attention whose last threadgroup merges the parts, against a merge in a launch of its own; twice, because the
// words in which threadgroups arrive must be as before. rows: {slot, position, count}.
GpuCase merged_attention(int heads, int kv, int head_dim, const std::vector<std::array<int, 3>>& positions, int window, DType type, bool prepares, bool gates, Decode how = Decode::plain) {
    Rows rows;
    for (const auto& [slot, position, count] : positions) rows.add(slot, position, count);
    const int m = rows.step().m;
    const gpu::Common c = attending(type, m, how);
    gpu::AttentionShape s = decode_shape(heads, kv, head_dim, window);
    s.rope_half = head_dim / 2;
    s.fused = prepares;
    s.gated = prepares && gates;
    const gpu::Kernel apart = gpu::attention_decode(c, s);
    s.merges = true;
    s.gates = gates;
    s.far = how == Decode::far;
    const gpu::Kernel merges = gpu::attention_decode(c, s);
    s.gated = gates;
    const gpu::Kernel merge = gpu::attention_combine(c, s);
    EXPECT_EQ(gpu::attention_merged(c, s), INT_MAX);
    EXPECT_EQ(gpu::attention_near(c, s), how == Decode::far && window == 0 ? 256 : INT_MAX);
    return {fmt::format("merging attention {}:{} x {} rows {} from {} window {} {}{}{}{}", heads, kv, head_dim, m, positions[0][1], window, name_of(type), prepares ? " prepares" : "", gates ? " gates" : "", s.far ? " far" : ""),
            {apart, merges, merge}, [=](GpuDevice& device, int order) {
                const std::size_t qs = static_cast<std::size_t>(m * heads * head_dim), ks = static_cast<std::size_t>(m * kv * head_dim), cache = static_cast<std::size_t>(3 * kv * head_dim * kCapacity);
                Array q(type, normal(prepares && gates ? 2 * qs : qs, type, 1)), gate(type, normal(2 * qs, type, 2)), k(type, normal(ks, type, 3)), v(type, normal(ks, type, 4));
                Array keys(type, normal(cache, type, 5)), values(type, normal(cache, type, 6)), y(type, qs), wanted(type, qs);
                const std::size_t words = gpu::attention_partial_bytes(m, heads, head_dim, kCapacity) / 4;
                Array partial(DType::f32, words), partial2(DType::f32, words);
                std::vector<std::uint32_t> arrivals(static_cast<std::size_t>(m * heads));
                const std::vector<float> angles = normal(static_cast<std::size_t>(kCapacity * head_dim), DType::f32, 8);
                const StepRows step = rows.step();
                Bindings b;
                b.add("q", q).add("k", k).add("v", v).add("keys", keys).add("values", values).add("partial", partial).floats("rope_angles", angles);
                EXPECT_EQ(device.run(apart, b, step, m, order), "");
                b.add("q", prepares && gates ? q : gate).add("y", wanted);
                EXPECT_EQ(device.run(merge, b, step, m, order), "");
                b.add("q", q).add("gates", prepares && gates ? q : gate).add("partial", partial2).add("out", y).add("arrivals", arrivals.data(), arrivals.size() * 4);
                for (int again = 0; again < 2; ++again) {
                    EXPECT_EQ(device.run(merges, b, step, m, order), "");
                    expect_same(y, wanted);
                    for (const std::uint32_t a : arrivals) EXPECT_EQ(a, 0u);
                }
            }};
}

GpuCase combined_residual(int rows, int width, bool shared, DType type) {
    const gpu::Common c = common(type, rows);
    gpu::CombineShape s{3, width, 5, false, shared, false};
    const gpu::Kernel apart = gpu::combine(c, s), add = gpu::add(c, width);
    s.residual = true;
    const gpu::Kernel fused = gpu::combine(c, s);
    return {fmt::format("sum over experts and residual {} {}", shared, name_of(type)), {apart, add, fused}, [=](GpuDevice& device, int order) {
                const std::size_t count = static_cast<std::size_t>(rows * width);
                Array x(type, normal(3 * count, type, 1)), sh(type, normal(count, type, 2)), gate(type, normal(static_cast<std::size_t>(rows), type, 3)), r(type, normal(count, type, 4)), total(type, count),
                    y(type, count), wanted(type, count);
                std::vector<std::uint32_t> routes;
                for (int i = 0; i < rows; ++i)
                    for (const std::uint32_t word : {0u, 3u, 4u, 0x3e800000u, 0x3f000000u, 0x3e99999au}) routes.push_back(word);
                const Rows step = some_rows(rows);
                Bindings b;
                b.add("x", x).add("route", routes.data(), routes.size() * 4).add("shared", sh).add("shared_gate", gate).add("residual", r).add("y", total);
                EXPECT_EQ(device.run(apart, b, step.step(), rows, order), "");
                b.add("a", r).add("b", total).add("y", wanted);
                EXPECT_EQ(device.run(add, b, step.step(), rows, order), "");
                b.add("y", y);
                EXPECT_EQ(device.run(fused, b, step.step(), rows, order), "");
                expect_same(y, wanted);
            }};
}

}  // namespace

std::vector<GpuCase> codes_fusion_cases() {
    std::vector<GpuCase> cases;
    for (const DType type : {DType::bf16, DType::f16})
        for (const char* name : {"gguf q4_0", "gguf q4_1"})
            for (const int rows : {1, 4, 8}) {
                cases.push_back(gated_product(named(name).format, 3, 32, 13, type, rows, false, Tiles::codes));
                cases.push_back(gated_product(named(name).format, 2, 128, 18, type, rows, true, Tiles::codes));
                cases.push_back(convolved_product(named(name).format, 1, 2, 16, 96, type, rows, Tiles::codes));
                cases.push_back(convolved_product(named(name).format, 2, 2, 8, 64, type, rows, Tiles::codes));
            }
    for (const DType type : {DType::bf16, DType::f16}) {
        cases.push_back(even_product("gguf q4_0", 380, 4096, Epilogue::none, type, true, Tiles::codes, 384));
        cases.push_back(even_product("gguf q4_1", 250, 8192, Epilogue::add, type, false, Tiles::codes, 512));
    }
    return cases;
}

std::vector<GpuCase> decode_fusion_cases() {
    std::vector<GpuCase> cases;
    for (const Decode how : {Decode::tensor, Decode::far})
        for (const DType type : {DType::bf16, DType::f16}) {
            for (const int position : {0, 15, 63, 64, 200, 299}) {
                if (how == Decode::far && position == 200) continue;   // two parts, and short: not for this kernel
                cases.push_back(whole_attention(4, 2, 64, position, 0, type, {true, true, false, false, false, true, 32, NormFormula::two_rounding}, how));
                cases.push_back(whole_attention(8, 1, 128, position, 0, type, {true, true, true, false, false, true, 16, NormFormula::one_plus}, how));
                cases.push_back(whole_attention(2, 1, 256, position, 40, type, {true, true, true, true, false, true, 32, NormFormula::one_rounding}, how));
                cases.push_back(whole_attention(10, 2, 128, position, 0, type, {false, true, false, true, true, true, 64, NormFormula::two_rounding}, how));
                cases.push_back(whole_attention(3, 3, 192, position, 40, type, {true, false, false, false, false, false, 96, NormFormula::two_rounding}, how));
            }
            cases.push_back(merged_attention(4, 2, 64, {{1, 40, 1}}, 0, type, true, false, how));
            cases.push_back(merged_attention(8, 2, 256, {{1, how == Decode::far ? 300 : 200, 1}}, 0, type, true, true, how));
            if (how == Decode::far) continue;   // which is for one row
            cases.push_back(merged_attention(9, 3, 64, {{0, 64, 1}, {2, 318, 2}, {1, 5, 1}}, 0, type, false, false, how));
            cases.push_back(merged_attention(8, 1, 128, {{0, 130, 1}, {2, 3, 1}}, 40, type, false, true, how));
        }
    return cases;
}

std::vector<GpuCase> fusion_cases(bool full) {
    std::vector<GpuCase> cases;
    for (const DType type : types()) {
        cases.push_back(even_product("gguf q4_0", 60, 1024, Epilogue::add, type, false, Tiles::large, 128));
        cases.push_back(even_product("gguf q4_0", 185, 1024, Epilogue::act_mul, type, true, Tiles::large, 384));
        cases.push_back(even_product("gguf q8_0", 221, 1024, Epilogue::none, type, true, Tiles::large, 448));
        cases.push_back(even_product("gguf q6_k", 250, 1024, Epilogue::none, type, true, Tiles::large, 512));
        // By 512 threads too.
        cases.push_back(gated_product(named("gguf q4_0").format, 8, 128, 250, type, 1, true, Tiles::large));
        cases.push_back(convolved_product(named("gguf q4_0").format, 2, 4, 32, 1024, type, 1, Tiles::large));
    }
    for (const DType type : types())
        for (const char* name : {"gguf bf16", "gguf q4_0"}) {
            if (!full && type == DType::f16) continue;
            for (const int rows : {1, 4}) {
                cases.push_back(gated_product(named(name).format, 3, 32, 13, type, rows, false, Tiles::small));
                cases.push_back(gated_product(named(name).format, 2, 128, 18, type, rows, true, Tiles::large));
                cases.push_back(convolved_product(named(name).format, 1, 2, 16, 96, type, rows, Tiles::small));
                cases.push_back(convolved_product(named(name).format, 2, 2, 8, 64, type, rows, Tiles::large));
            }
        }
    for (const DType type : types())
        for (const int position : {0, 63, 64, 200}) {
            if (!full && type != DType::bf16 && position != 64) continue;
            cases.push_back(whole_attention(4, 2, 64, position, 0, type, {true, true, false, false, false, true, 32, NormFormula::two_rounding}));
            cases.push_back(whole_attention(8, 1, 128, position, 0, type, {true, true, true, false, false, true, 16, NormFormula::one_plus}));
            cases.push_back(whole_attention(2, 1, 256, position, 40, type, {true, true, true, true, false, true, 32, NormFormula::one_rounding}));
            cases.push_back(whole_attention(6, 2, 10, position, 0, type, {false, true, false, true, true, true, 5, NormFormula::two_rounding}));
            cases.push_back(whole_attention(3, 3, 24, position, 40, type, {true, false, false, false, false, false, 12, NormFormula::two_rounding}));
        }
    // One part, two, five; rows of several lengths; windows; every width of the merge.
    for (const DType type : types()) {
        cases.push_back(merged_attention(4, 2, 64, {{1, 40, 1}}, 0, type, true, false));
        cases.push_back(merged_attention(8, 2, 256, {{1, 200, 1}}, 0, type, true, true));
        if (!full && type != DType::bf16) continue;
        cases.push_back(merged_attention(9, 3, 64, {{0, 64, 1}, {2, 318, 2}, {1, 5, 1}}, 0, type, false, false));
        cases.push_back(merged_attention(8, 1, 128, {{0, 130, 1}, {2, 3, 1}}, 0, type, false, true));
        cases.push_back(merged_attention(6, 2, 10, {{1, 319, 1}}, 0, type, true, false));
        cases.push_back(merged_attention(15, 5, 24, {{2, 200, 1}}, 40, type, true, true));
        cases.push_back(merged_attention(2, 2, 512, {{2, 150, 1}}, 0, type, false, true));
    }
    for (const DType type : types())
        for (const bool shared : {false, true}) cases.push_back(combined_residual(4, 70, shared, type));
    return cases;
}

}  // namespace forge::test
